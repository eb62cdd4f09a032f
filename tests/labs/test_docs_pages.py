"""The page of each lab in docs: what a reader finds on it, and how its figures get there."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from inference_bench.cli.lab_options import LABS
from labs.made_page import MISSED, MadeResult, made

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "labs"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
_SECTION = re.compile(rf"{BEGIN}\n(.*?){END}\n", re.DOTALL)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_labs", ROOT / "scripts" / "write_labs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("lab", LABS)
def test_a_page_names_its_command_its_notebook_and_its_chart(lab: str) -> None:
    text = (DOCS / f"{lab}.md").read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert f"inference-bench lab {lab}" in text
    for name in (f"notebooks/{lab}.py", f"{lab}.svg"):
        assert f"({name})" in text
        assert (DOCS / name).is_file()


@pytest.mark.parametrize("lab", LABS)
def test_a_page_s_figures_have_a_date_a_machine_and_checks_that_all_held(lab: str) -> None:
    (figures,) = _SECTION.findall((DOCS / f"{lab}.md").read_text(encoding="utf-8"))
    assert re.match(r"Measured \d{4}-\d\d-\d\d: .+ threads?\.\n", figures)
    assert ", quick" not in figures.split("\n")[0]
    checks = figures.split("**Checks**")[1]
    assert "| yes |" in checks
    assert "| NO |" not in checks


@pytest.mark.parametrize("lab", LABS)
def test_a_page_s_chart_is_a_picture(lab: str) -> None:
    assert ElementTree.fromstring((DOCS / f"{lab}.svg").read_text(encoding="utf-8")).tag.endswith("svg")


def test_every_lab_is_on_the_index_and_every_page_is_a_lab_s() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert all(f"({lab}.md)" in index for lab in LABS)
    assert {path.stem for path in DOCS.glob("*.md")} == {*LABS, "README"}
    assert {path.stem for path in (DOCS / "notebooks").glob("*.py")} == set(LABS)


def test_the_keys_in_docs_are_those_of_the_result_types() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "write_lab_keys.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run scripts/write_lab_keys.py"


def test_figures_replace_those_before_them_and_nothing_else(script: ModuleType) -> None:
    page = f"# A\n\n{BEGIN}\nold\n{END}\n\nprose\n"
    assert script.with_figures(page, "new\n") == f"# A\n\n{BEGIN}\nnew\n{END}\n\nprose\n"
    assert script.with_figures(f"{BEGIN}\n{END}\n", "new") == f"{BEGIN}\nnew\n{END}\n"


@pytest.mark.parametrize("page", ["", f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{END}\n" * 2])
def test_a_page_without_its_two_lines_is_not_written(script: ModuleType, page: str) -> None:
    with pytest.raises(ValueError, match="once each"):
        script.with_figures(page, "new")


@pytest.mark.parametrize("is_missed", [False, True])
def test_a_run_is_written_only_where_its_checks_held(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_missed: bool
) -> None:
    pytest.importorskip("vl_convert")
    page = made(is_missed=is_missed)
    monkeypatch.setattr(script, "run", lambda _lab, _settings: MadeResult(page.head, page.checks))
    monkeypatch.setattr("inference_bench.report.lab_cache.lab_page", lambda _result: page)
    before = f"# Cache\n{BEGIN}\n{END}\n"
    (tmp_path / "cache.md").write_text(before)
    assert script.main(["cache", "--docs", str(tmp_path), "--keep", str(tmp_path / "kept")]) == int(is_missed)
    assert (tmp_path / "kept" / "cache.json").is_file()
    after = (tmp_path / "cache.md").read_text()
    assert (after == before) == is_missed
    assert MISSED.name not in after
    assert (tmp_path / "cache.svg").exists() != is_missed
