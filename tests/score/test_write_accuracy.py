"""The page of scores is written from small tables as from large ones, the same each time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from score.tables import PROMPTS, SERVING, WHOLE, write_table
from score.test_flow import three_machines

SCRIPT = Path(__file__).parents[2] / "scripts" / "write_accuracy.py"


def write_pages(tables: Path, out: Path) -> tuple[str, str]:
    out.mkdir()
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tables), "--out", str(out)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return tuple((out / name).read_text(encoding="utf-8") for name in ("accuracy.md", "accuracy.svg"))  # type: ignore[return-value]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("tables")
    three_machines(folder)
    rows = [
        {**kind, "hardware": machine, "batch_or_concurrency": batch}
        for kind in (PROMPTS, WHOLE, SERVING, {**PROMPTS, **SERVING})
        for machine in ("H100 SXM", "B200")
        for batch in ("1", "2", "8", "Offline")
    ]
    write_table(folder / "others.csv", *rows)
    return [write_pages(folder, tmp_path_factory.mktemp("out") / name) for name in ("one", "two")]


def test_the_pages_are_the_same_each_time(pages: list[tuple[str, str]]) -> None:
    assert pages[0] == pages[1]


def test_the_page_has_its_targets_its_tables_its_hand_written_part_and_its_chart(pages: list[tuple[str, str]]) -> None:
    page, picture = pages[0]
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert headings[:3] == ["What was to be reached", "By phase", "What limits it"]
    assert {"By machine", "By engine", "Beside others", "Rows furthest off", "What the numbers are"} <= set(headings)
    assert page.count("≤ ") == 9
    assert (SCRIPT.parent / "accuracy_limits.md").read_text(encoding="utf-8").strip() in page
    assert "8: the batch or concurrency is not a number (Offline)" in page
    assert picture.startswith("<svg")


def test_every_table_of_the_page_has_rows_as_wide_as_its_header(pages: list[tuple[str, str]]) -> None:
    page = pages[0][0]
    for block in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        widths = {len(re.split(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1
        assert block.count("\n") > 2
