from __future__ import annotations

import re
from dataclasses import replace

import pytest

from inference_bench.report.lab_page import LabPage, lab_html, lab_markdown, lab_text, repeated
from inference_bench.report.text import display_columns
from labs.made_page import HEAD, MISSED, made
from report.pages import Page, require_a_page_that_stands_alone

HOSTILE = "<script>alert(1)</script>|`a`\n# \x1b[31m‮</td>"


def html(page: LabPage) -> str:
    return lab_html(page, repeated(page.head), lambda _spec: "<svg></svg>")


def test_the_text_begins_with_what_ran_where_and_then_the_answer() -> None:
    first, second, *_ = lab_text(made()).split("\n\n")
    assert first.replace("\n", " ") == "SmolLM2-135M-Instruct in float32 on AMD EPYC 7B13, 2 cores, 2 threads, quick"
    assert second.startswith("The cache of SmolLM2-135M-Instruct saves 31 times")


@pytest.mark.parametrize("name", ["m", "a-name-of-a-model-" * 12, "模型" * 60, HOSTILE])
@pytest.mark.parametrize("is_missed", [False, True])
def test_no_line_of_a_terminal_is_over_100_columns(name: str, is_missed: bool) -> None:
    text = lab_text(made(name, is_missed=is_missed))
    assert max(map(display_columns, text.split("\n"))) <= 100
    assert "\x1b" not in text
    assert "5,898,240" in text


def test_what_was_left_out_assumed_and_took_is_said_last() -> None:
    notes = lab_text(made()).split("\n\n")[-1]
    assert "note: one sequence at a time" in notes
    assert "note: left out: contexts above 512" in notes
    assert "41.5 s" in notes
    assert "seed 7" in notes


def test_a_check_that_did_not_hold_stands_out_everywhere() -> None:
    page = made(is_missed=True)
    assert f"1 of 2 checks did not hold: {MISSED.name}." in " ".join(lab_text(page).split())
    assert "Its one check held." in lab_text(made())
    assert f"\n  MISSED  {MISSED.name}: 0.5; allowed: at most 2e-4\n" in lab_text(page)
    assert f"| {MISSED.name} | NO | 0.5 | at most 2e-4 |" in lab_markdown(page)
    shown = Page(html(page))
    assert f"{MISSED.name}: 0.5, allowed at most 2e-4" in shown.said()
    assert shown.said().index("Checks that did not hold") < shown.said().index("What the numbers say")
    assert "Checks that did not hold" not in Page(html(made())).said()


@pytest.mark.parametrize("name", ["m", HOSTILE])
def test_the_page_stands_alone_and_shows_a_model_s_name_as_text(name: str) -> None:
    page = html(made(name, is_missed=True))
    require_a_page_that_stands_alone(page)
    assert "<script" not in page
    assert Page(page).open == []


def test_the_page_holds_every_table_the_folded_ones_too_and_how_to_repeat_it() -> None:
    shown = Page(html(made()))
    assert shown.rows("context")[0]["bytes"] == "5,898,240"
    said = shown.said()
    for part in ("Every length", "Checks", "Assumptions", "ab" * 32, "134,515,008", "version of torch"):
        assert part in said
    assert "inference-bench lab cache --quick --threads 2 --seed 7" in said


def test_without_what_draws_the_page_says_what_to_install() -> None:
    page = made()
    assert "vl-convert-python" in Page(lab_html(page, repeated(page.head), None)).said()


def test_a_model_of_the_hub_is_repeated_by_its_commit() -> None:
    assert HEAD.subject is not None
    head = replace(HEAD, is_quick=False, subject=replace(HEAD.subject, name="org/na me", revision="c0ffee"))
    assert repeated(head).line == (
        "inference-bench lab cache --model 'org/na me' --revision c0ffee --threads 2 --seed 7"
    )


@pytest.mark.parametrize("name", ["m", HOSTILE])
def test_every_markdown_table_has_as_many_cells_in_every_row(name: str) -> None:
    lines = lab_markdown(made(name)).split("\n")
    assert lines[0].startswith("Measured 2026-11-30: ")
    blocks, block = list[list[str]](), list[str]()
    for line in [*lines, ""]:
        if line.startswith("|"):
            block.append(line)
        elif block:
            blocks, block = [*blocks, block], []
    assert len(blocks) == 2  # the table and the checks; what is folded stays on the page
    for rows in blocks:
        cells = {len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows}
        assert len(cells) == 1
        assert re.fullmatch(r"\|(?:---:?\|)+", rows[1])
    assert "<script" not in lab_markdown(made(name))


def test_the_name_of_whoever_ran_it_is_in_none_of_the_three() -> None:
    page = made("/home/somebody/models/m")
    assert all("somebody" not in said for said in (lab_text(page), lab_markdown(page), html(page)))
