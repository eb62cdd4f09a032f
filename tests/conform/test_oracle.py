"""The oracle by itself: what it imports, and answers worked by hand from a log."""

from __future__ import annotations

import subprocess
import sys

import pytest

from inference_bench.conform.oracle import Observed, compare, known_names, right_answer
from inference_bench.conform.script import CASES
from inference_bench.conform.table import ALL_CASES

MS = 1_000_000


@pytest.mark.parametrize("module", ["oracle", "server", "truth_host", "table"])
def test_truth_shares_no_code_with_the_client(module: str) -> None:
    code = f"import sys, inference_bench.conform.{module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    ours = {name for name in loaded if name.startswith("inference_bench.")}
    assert f"inference_bench.conform.{module}" in ours
    assert not [name for name in ours if name.startswith(("inference_bench.measure", "inference_bench.metrics", "h11"))]
    assert "inference_bench.records" not in ours


def test_every_answer_belongs_to_a_case() -> None:
    assert {case.name for case in ALL_CASES} == set(CASES)
    assert ALL_CASES[0].name == "control"
    assert set(known_names()) <= set(CASES)


def entry(*sends: tuple[int, list[int]], ended_ms: int | None = 500, whole: bool = True) -> dict[str, object]:
    return {
        "accepted_ns": 1000 * MS,
        "sends": [((1000 + at_ms) * MS, number, chunks) for number, (at_ms, chunks) in enumerate(sends)],
        "ended_ns": None if ended_ms is None else (1000 + ended_ms) * MS,
        "is_whole": whole,
    }


def test_times_are_those_of_the_chunks_with_text() -> None:
    log = [entry((0, []), (100, [1]), (140, [1, 1]), (160, [1]), (400, []))]
    answer = right_answer("control", log)
    assert answer.ttft_s == pytest.approx(0.1)
    assert answer.e2e_s == pytest.approx(0.16)
    assert answer.close_s == pytest.approx(0.5)
    assert answer.gap_mean_s == pytest.approx(0.06 / 3)
    assert answer.tpot_s == pytest.approx(0.06 / 7)  # eight tokens, by the case


def test_several_requests_are_averaged() -> None:
    answer = right_answer("control", [entry((100, [1])), entry((200, [1]))])
    assert answer.requests == 2
    assert answer.ttft_s == pytest.approx(0.15)


def test_no_tpot_where_the_first_chunk_has_several_tokens_and_no_close_where_none_is_due() -> None:
    assert right_answer("several_tokens_a_chunk", [entry((10, [3]), (20, [1]), (30, [5]))]).tpot_s is None
    assert right_answer("never_finishes", [entry((10, [1]), whole=True)]).close_s is None
    assert right_answer("control", [entry((10, [1]), whole=False)]).close_s is None


def test_no_pauses_where_it_is_a_matter_of_definition_which_there_are() -> None:
    log = [entry((100, [1]), (120, []), (140, [1]), (160, [1]))]
    answer = right_answer("empty_tokens", log)
    assert answer.gap_mean_s is None
    assert answer.tpot_s == pytest.approx(0.06 / 7)
    assert compare(answer, Observed("completed", 8, 6, ttft_s=0.1, gap_mean_s=0.02, tpot_s=0.06 / 7)) == ()


def test_tolerances_are_five_per_cent_or_the_least() -> None:
    answer = right_answer("control", [entry((1000, [1]), (1100, [1]), ended_ms=1200)])
    assert compare(answer, Observed("completed", 8, ttft_s=1.049)) == ()
    assert compare(answer, Observed("completed", 8, ttft_s=1.051)) == ("ttft_s",)
    assert compare(answer, Observed("completed", 8, gap_mean_s=0.1049)) == ()
    assert compare(answer, Observed("completed", 8, gap_mean_s=0.094)) == ("gap_mean_s",)


def test_tools_that_know_success_alone_are_held_to_success_alone() -> None:
    log = [entry((10, [1]))]
    assert compare(right_answer("ends_midway", log), Observed("not completed")) == ()
    assert compare(right_answer("control", log), Observed("not completed")) == ("status",)
    assert compare(right_answer("ends_midway", log), Observed("completed", 8)) == ("status", "tokens")


def test_a_broken_connection_is_told_from_a_stream_that_ended() -> None:
    answer = right_answer("reset_midway", [entry((10, [1]))])
    assert compare(answer, Observed("truncated", chunks=4, ending="ended")) == ("ending",)
    assert compare(answer, Observed("truncated", chunks=4, ending="lost")) == ()
