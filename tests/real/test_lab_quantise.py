"""The quantise lab on the real model, as its page runs it."""

from __future__ import annotations

import pytest

from inference_bench.labs.checks import missed
from inference_bench.labs.quantise.result import MethodRow, QuantiseResult
from real.lab_pages import PAGE_TIMEOUT_S, run_page

pytestmark = [pytest.mark.labs, pytest.mark.timeout(PAGE_TIMEOUT_S)]


@pytest.fixture(scope="module")
def result() -> QuantiseResult:
    found: QuantiseResult = run_page("quantise")
    return found


def method(result: QuantiseResult, name: str) -> MethodRow:
    return next(row for row in result.methods if row.name.startswith(name))


def test_every_check_holds_and_the_network_came_back_after_each_method(result: QuantiseResult) -> None:
    assert missed(result.checks) == ()
    assert all(row.is_restored for row in result.methods)


def test_bytes_are_those_counted_by_hand(result: QuantiseResult) -> None:
    """Thirty blocks: matrices of 576 · (576 + 192 + 192 + 576 + 2 · 1536 + 1536) values; the rest of 134,515,008 stays in float32."""
    values = 30 * 576 * (576 + 192 + 192 + 576 + 2 * 1536 + 1536)
    kept = 4 * (134_515_008 - values)
    assert method(result, "float32").weight_bytes == 4 * 134_515_008
    assert method(result, "int4 group 64").weight_bytes == kept + values * 17 // 32  # 4.25 bits
    rows = 30 * (576 + 192 + 192 + 576 + 2 * 1536 + 576)
    assert method(result, "int8 channel").weight_bytes == kept + values + 2 * rows


def test_the_order_that_the_methods_papers_report(result: QuantiseResult) -> None:
    """Eight bits lose nothing; finer scales lose less than coarse ones, fitted rounding less than plain, smoothing less than none."""
    plain = result.float32_perplexity
    assert method(result, "int8 channel").perplexity == pytest.approx(plain, rel=0.02)
    assert plain * 1.02 < method(result, "int4 group 64").perplexity < method(result, "int4 channel").perplexity
    assert method(result, "GPTQ int4 group 64").perplexity < method(result, "int4 group 64").perplexity
    assert method(result, "AWQ int4 group 64").perplexity < method(result, "int4 group 64").perplexity
    assert method(result, "SmoothQuant 0.8").perplexity < method(result, "W8A8 static").perplexity


def test_float32_can_do_the_tasks_and_4_bits_a_channel_damage_them(result: QuantiseResult) -> None:
    plain, rough = method(result, "float32"), method(result, "int4 channel")
    assert plain.json_valid_fraction == 1.0
    assert (plain.exact_copy_fraction or 0) > 0.7
    assert (rough.exact_copy_fraction or 1) < 0.5


def test_the_largest_outliers_enter_the_down_projections(result: QuantiseResult) -> None:
    worst = max(result.outliers, key=lambda row: row.ratio or 0.0)
    assert worst.kind == "down_proj"
    assert (worst.ratio or 0.0) > 100


def test_calibration_ends_before_the_evaluation_begins(result: QuantiseResult) -> None:
    assert result.calibration_start_token + result.calibration_tokens <= result.evaluation_start_token
    assert result.scored_tokens == 511
