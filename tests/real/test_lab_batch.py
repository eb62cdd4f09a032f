"""The batch lab on the embedded model, as its page runs it."""

from __future__ import annotations

import pytest

from inference_bench.labs.batch.result import BatchResult, DtypeRun
from real.lab_pages import PAGE_TIMEOUT_S, run_page

pytestmark = [pytest.mark.labs, pytest.mark.timeout(PAGE_TIMEOUT_S)]


@pytest.fixture(scope="module")
def result() -> BatchResult:
    found = run_page("batch")
    assert isinstance(found, BatchResult)
    return found


@pytest.fixture(scope="module")
def float32(result: BatchResult) -> DtypeRun:
    assert result.runs[0].dtype == "float32"
    return result.runs[0]


def test_every_check_held(result: BatchResult) -> None:
    assert [check.name for check in result.checks if not check.is_met] == []
    assert len(result.checks) == 5


def test_the_logits_of_each_prompt_are_its_own_within_2e_4(float32: DtypeRun) -> None:
    assert [each.num_tokens for each in float32.agreements] == [5, 48]
    assert all(0 < each.max_difference < 2e-4 for each in float32.agreements)


def test_planted_faults_are_far_above_rounding(result: BatchResult) -> None:
    caught = [row for row in result.faults if row.is_expected]
    assert len(result.faults) == 6
    assert len(caught) == 5
    assert min(row.max_difference for row in caught) > 1.0


def test_a_step_of_one_sequence_reads_every_weight_once(float32: DtypeRun) -> None:
    point = float32.points[0]
    # 134,515,008 parameters of SmolLM2-135M in four bytes, and a cache of 46,080 bytes a position
    assert point.batch == 1
    cache = point.step_bytes - 4 * 134_515_008
    assert cache == 46_080 * (round(point.context_tokens) + 1)


def test_bfloat16_reads_half_and_differs_by_more(result: BatchResult, float32: DtypeRun) -> None:
    half = next(run for run in result.runs if run.dtype == "bfloat16")
    assert 2 * half.points[0].step_bytes == float32.points[0].step_bytes
    assert half.agreements[0].max_difference > 100 * float32.agreements[0].max_difference


def test_a_step_has_a_linear_call_for_each_layer_and_copies_its_whole_cache(float32: DtypeRun) -> None:
    for found in float32.breakdowns:
        calls = {part.name: part.num_calls for part in found.parts}
        assert calls["matrix products"] == found.num_linears == 211
        assert calls["cache made longer by copying"] == 60
        assert found.copied_cache_bytes > 2 * 46_080 * found.batch * found.context_tokens
