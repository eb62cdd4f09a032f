"""The page of `check` in a real browser: every column is seen on a screen, and the answer on a telephone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inference_bench.operate.contract.catalog import GROUPS
from inference_bench.operate.contract.rows import Contract, Row, Verdict
from inference_bench.report.check_report import check_html
from inference_bench.report.report_html import Provenance

LONG = "the server answered with HTTP 400 and a message of its own that goes on for longer than a column is wide"
TO_DO = "put a gateway or a key in front of the address, and ask again with stream_options.include_usage set"
MADE = Provenance("check", "check http://127.0.0.1:1", "2026-11-30 00:00:00 UTC", {})
HIDDEN = "() => [...document.querySelectorAll('.scroll')].map(box => box.scrollWidth - box.clientWidth)"
ENDS = """() => [...document.querySelectorAll('table')].map(table =>
  Object.fromEntries([...table.querySelectorAll('thead th')].map(
    cell => [cell.textContent, cell.getBoundingClientRect().right])))"""


@pytest.fixture(scope="module")
def page_source() -> str:
    """Two groups of long rows, one with the longest id and an answer that is no."""
    rows = (
        Row("limits.max_completion_tokens", Verdict.NO, LONG, TO_DO),
        Row("limits.both", Verdict.YES, LONG),
        Row("stops.empty", Verdict.UNKNOWN, "x" * 90, TO_DO),
    )
    return check_html(contract(rows), (), MADE)


def contract(rows: tuple[Row, ...]) -> Contract:
    groups = tuple(dict.fromkeys(row.group for row in rows))
    assert set(groups) <= set(GROUPS)
    return Contract(
        "http://127.0.0.1:1", "m", "/v1/chat/completions", "2026-11-30T00:00:00Z", 1.0, 3, False, groups, rows
    )


def test_the_answer_stands_beside_the_question_and_the_id_comes_last(page_source: str) -> None:
    head = page_source.partition("<thead>")[2].partition("</thead>")[0]
    titles = [part.partition("</th>")[0].rpartition(">")[2] for part in head.split("<th ")[1:]]
    assert titles == ["asked", "answer", "seen", "what to do", "id"]
    assert '<td class="l wrapped">the server answered' in page_source
    assert '<table class="few wraps">' in page_source


@pytest.mark.browser
def test_on_a_screen_no_column_is_hidden_and_on_a_telephone_none_but_the_id(
    chrome: Any, page_source: str, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    file.write_text(page_source, encoding="utf-8")
    page = chrome.new_page(viewport={"width": 1280, "height": 900})
    page.goto(file.as_uri())
    assert page.evaluate(HIDDEN) == [0, 0]
    page.set_viewport_size({"width": 400, "height": 900})
    tables = page.evaluate(ENDS)
    assert len(tables) == 2
    for ends in tables:
        assert ends["answer"] < ends["seen"] < ends["what to do"] <= 400, ends
    page.close()
