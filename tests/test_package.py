from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import inference_bench
from inference_bench.cli.lab_options import LABS as LAB_COMMANDS
from inference_bench.cli.main import build_parser

ROOT = Path(__file__).parent.parent


def test_the_version_is_the_installed_one() -> None:
    assert version("inference-bench") == inference_bench.__version__


@pytest.mark.parametrize("name", [name for name in inference_bench.__all__ if name != "__version__"])
def test_every_public_name_is_a_documented_call_or_type(name: str) -> None:
    assert getattr(inference_bench, name).__doc__


def test_a_star_import_works_where_no_extra_is_installed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    packages = {re.split(r"[\[>=;]", each)[0] for extra in extras.values() for each in extra}
    assert {"torch", "huggingface_hub"} <= packages
    modules = [*sorted(each.replace("-", "_") for each in packages), "vl_convert", "cyclonedx"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({modules}))\n"
        "from inference_bench import *\n"
        "import inference_bench\n"
        "print(*sorted(set(inference_bench.__all__) - set(globals())), callable(lab_cache))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("True", "")


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = inference_bench.nothing_like_this


def test_importing_the_package_loads_none_of_its_modules() -> None:
    code = "import sys, inference_bench; print(*[name for name in sys.modules if name.startswith('inference_bench')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["inference_bench"]


def test_every_command_has_a_public_call_in_the_docs() -> None:
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| `")]
    told = {command: calls for commands, calls in rows for command in re.findall(r"`([a-z]+)`", commands)}
    actions = build_parser()._subparsers._group_actions  # type: ignore[union-attr]  # argparse has no public way
    assert set(told) == set(actions[0].choices or ())
    for command, calls in told.items():
        names = re.findall(r"`([\w.]+)`", calls)
        assert names, command
        for name in names:
            module, _, own = name.rpartition(".")
            assert name in inference_bench.__all__ or hasattr(importlib.import_module(module), own), name


LABS = [name for name in inference_bench.__all__ if name.startswith("lab_")]


def test_every_lab_is_a_public_call_with_its_request() -> None:
    assert sorted(LABS) == sorted(f"lab_{lab}" for lab in LAB_COMMANDS)
    for name in LABS:
        assert f"{name.removeprefix('lab_').capitalize()}Request" in inference_bench.__all__


@pytest.mark.parametrize("name", LABS)
def test_a_lab_without_pytorch_says_what_to_install(name: str) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import inference_bench as it\n"
        f"request = getattr(it, {name.removeprefix('lab_').capitalize() + 'Request'!r})(it.LabSettings(is_quick=True))\n"
        f"try: it.{name}(request)\n"
        "except ImportError as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("MissingExtraError ")
    assert "pip install 'inference-bench[labs]'" in done.stdout


def test_the_python_in_the_readme_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # 2.90625 GiB and the factor 15.5 / 2.90625, worked by hand in tests/accounting/test_cache.py
    assert done.stdout.split() == ["3120562176", "5.333333333333333", "True"]


def test_every_formula_in_the_docs_names_a_function_that_exists() -> None:
    names = re.findall(
        r"`((?:accounting|arrival_proof|calibrate|compare|definitions|facts|metrics|predict|referee|roofline|simulate|stats|workload)\.[\w.]+)`",
        (ROOT / "docs" / "formulas.md").read_text(encoding="utf-8"),
    )
    assert len(names) > 20
    for name in names:
        module, _, rest = name.partition(".")
        found = None
        parts = name.split(".")
        for split in range(len(parts) - 1, 0, -1):
            try:
                found = __import__(f"inference_bench.{'.'.join(parts[:split])}", fromlist=["x"])
            except ModuleNotFoundError:
                continue
            for part in parts[split:]:
                found = getattr(found, part)
            break
        assert found is not None, (module, rest)
