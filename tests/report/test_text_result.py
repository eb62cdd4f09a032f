from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from inference_bench.report.text import display_columns
from inference_bench.report.text_result import verify_text
from inference_bench.verify.result import VerifyResult
from report.closed_loop_sample import LOOPS, nothing_came_of_it, troubled_loop, whole_loop
from report.sample import bare_result, hostile_result, no_ceiling_result, sample_result, with_findings

MAKERS = (sample_result, with_findings, bare_result, no_ceiling_result, hostile_result, *LOOPS)


@pytest.mark.parametrize("make", MAKERS)
def test_the_text_fits_a_terminal_of_100_columns_and_holds_nothing_that_moves_the_cursor(
    make: Callable[[], VerifyResult],
) -> None:
    lines = verify_text(make()).splitlines()
    assert len(lines) > 20
    assert max(map(display_columns, lines)) <= 100
    assert all(line.isprintable() for line in lines)


def test_the_first_lines_are_the_verdict_and_the_figures_follow() -> None:
    lines = verify_text(whole_loop()).splitlines()
    assert lines[0].startswith("SmolLM2-135M-Instruct.Q4_1 on AMD EPYC 7B13, 2 cores by llama.cpp")
    assert lines[2] == "Does it reach its ceiling? In part."
    assert lines[3].startswith("  Generating tokens (decode) reaches 27 % to 62 % of what memory and compute allow")
    figure = next(line for line in lines if line.startswith("decode, batch 1"))
    assert "measured" in figure
    assert "62.0 % of the ceiling" in figure


def test_a_whole_closed_loop_is_no_longer_than_two_screens() -> None:
    for make in (whole_loop, troubled_loop):
        assert len(verify_text(make()).splitlines()) <= 90


def test_of_many_points_the_smallest_and_the_largest_batch_of_each_context_are_shown() -> None:
    result = whole_loop()
    text = verify_text(replace(result, points=(*result.points, *map(replace, result.points[:6]))))
    rows = [line.split()[:3] for line in text.splitlines() if line.startswith(("decode   ", "prefill   "))]
    assert [row[1:] for row in rows if row[0] == "prefill"] == [["1", "128"], ["1", "1,024"]]
    assert {tuple(row[1:]) for row in rows if row[0] == "decode"} == {
        ("1", "128"),
        ("4", "128"),
        ("1", "1,024"),
        ("4", "1,024"),
    }
    assert "8 more points are in the report" in text


def test_the_closed_loop_has_its_fit_its_loads_its_capacity_and_its_memory() -> None:
    text = verify_text(whole_loop())
    parts = (
        "fit: step = time of its bytes",
        "held out: median error 4.20 %, p90 9.10 %",
        "below, 1.20/s",
        "capacity within",
        "memory: 4 of 4",
    )
    places = [text.index(words) for words in parts]
    assert places == sorted(places)
    row = next(line for line in text.splitlines() if line.startswith("near, 2.04/s   TTFT p99"))
    assert row.split()[-4:] == ["%", "±25", "%", "no"]
    assert "state confirmed" in " ".join(text.split())


def test_parts_that_gave_nothing_are_said_and_not_printed_as_zero() -> None:
    text = verify_text(nothing_came_of_it())
    assert "Was the load predicted? Not measured." in text
    assert "memory: the engine states none of 5 figures" in text
    assert " 0 s" not in text


def test_every_point_has_its_time_beside_its_bound() -> None:
    text = verify_text(sample_result())
    header = next(line for line in text.splitlines() if line.startswith("phase "))
    assert " ".join(header.split()) == "phase batch context time 95 % interval waves bound share limited by tokens/s"
    rows = [line for line in text.splitlines() if line.startswith(("decode   ", "prefill   "))]
    assert len(rows) == 8
    assert "62.0 %  memory" in rows[0]


def test_findings_stand_before_the_points() -> None:
    text = verify_text(with_findings())
    assert text.index("findings") < text.index("phase  ")
    assert "batch 8 at 128 tokens reached 134 % of its ceiling" in text
    assert "3 of 3 requests did not complete" in text
    assert "findings" not in verify_text(sample_result())


def test_the_engine_s_cache_figure_stands_beside_the_count() -> None:
    text = verify_text(sample_result())
    assert "90.00 MiB" in text
    assert "94,371,840" in text


def test_what_is_not_shown_is_said_to_be_in_the_report() -> None:
    assert "are in the report" in " ".join(verify_text(sample_result()).splitlines()[-2:])


def test_nobody_s_home_folder_is_named() -> None:
    for make in MAKERS:
        assert "ada" not in verify_text(make()).replace("a-model", "")
