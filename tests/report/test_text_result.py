from __future__ import annotations

from collections.abc import Callable

import pytest

from inference_bench.report.text import display_columns
from inference_bench.report.text_result import verify_text
from inference_bench.verify.result import VerifyResult
from report.sample import bare_result, hostile_result, no_ceiling_result, sample_result, with_findings

MAKERS = (sample_result, with_findings, bare_result, no_ceiling_result, hostile_result)


@pytest.mark.parametrize("make", MAKERS)
def test_the_text_fits_a_terminal_of_100_columns_and_holds_nothing_that_moves_the_cursor(
    make: Callable[[], VerifyResult],
) -> None:
    lines = verify_text(make()).splitlines()
    assert len(lines) > 20
    assert max(map(display_columns, lines)) <= 100
    assert all(line.isprintable() for line in lines)


def test_the_first_lines_answer_how_fast_and_how_close() -> None:
    head = verify_text(sample_result()).splitlines()[:4]
    assert head[0].startswith("SmolLM2-135M-Instruct.Q4_1 on AMD EPYC 7B13, 2 cores by llama.cpp")
    assert head[2].startswith("decode, batch 1")
    assert "measured" in head[2]
    assert "62.0 % of the ceiling" in head[2]


def test_every_point_has_its_time_beside_its_bound() -> None:
    text = verify_text(sample_result())
    header = next(line for line in text.splitlines() if line.startswith("phase "))
    assert " ".join(header.split()) == "phase batch context time 95 % interval waves bound share limited by tokens/s"
    rows = [line for line in text.splitlines() if line.startswith(("decode   ", "prefill   "))]
    assert len(rows) == 8
    assert "62.0 %  memory" in rows[0]


def test_findings_stand_before_the_reading() -> None:
    text = verify_text(with_findings())
    assert text.index("findings") < text.index("reading")
    assert "batch 8 at 128 tokens reached 134 % of its ceiling" in text
    assert "3 of 3 requests did not complete" in text
    assert "findings" not in verify_text(sample_result())


def test_the_engine_s_cache_figure_stands_beside_the_count() -> None:
    text = verify_text(sample_result())
    assert "90.00 MiB" in text
    assert "94,371,840" in text


def test_what_is_not_shown_is_said_to_be_in_the_report() -> None:
    assert (
        "in the report" in verify_text(sample_result()).splitlines()[-2] + verify_text(sample_result()).splitlines()[-1]
    )


def test_nobody_s_home_folder_is_named() -> None:
    for make in MAKERS:
        assert "ada" not in verify_text(make()).replace("a-model", "")
