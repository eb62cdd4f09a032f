from __future__ import annotations

import pytest

from inference_bench.accounting.weights import count_weights, weight_plan
from inference_bench.accounting.work import StepWork, count_step_work, decode_batch
from inference_bench.compare import (
    ComparedPoint,
    MeasuredPoint,
    Phase,
    Verdict,
    batch_lines,
    compare_point,
    fit_line,
    read_gap,
)
from inference_bench.roofline import Roof
from shapes import cache_in, reference_model

CEILING = Roof(1e12, 165e12, "bf16")


def work(batch: int) -> StepWork:
    model = reference_model()
    return count_step_work(
        model, count_weights(model, weight_plan("int4-g128")), cache_in("bf16"), decode_batch(5000, batch)
    )


def compared(batch: int, seconds: float, ceiling: Roof = CEILING) -> ComparedPoint:
    measured = MeasuredPoint(Phase.DECODE, batch, 5000, 5000, seconds, 10, None, None)
    return compare_point(measured, work(batch), ceiling)


def test_half_the_ceilings_rate_is_half_the_bound() -> None:
    point = compared(1, 2 * work(1).num_bytes / 1e12)
    assert point.fraction_of_bound == pytest.approx(0.5)
    assert point.mbu == pytest.approx(0.5)
    assert point.verdict is Verdict.BELOW
    assert point.measured_tokens_per_s == pytest.approx((point.bound_tokens_per_s or 0) / 2)


def test_a_measurement_faster_than_its_bound_is_a_finding_and_not_clamped() -> None:
    point = compared(1, work(1).num_bytes / 1e12 / 1.25)
    assert point.verdict is Verdict.ABOVE
    assert point.fraction_of_bound == pytest.approx(1.25)
    assert any("above the ceiling" in sentence for sentence in read_gap([point]))


def test_without_a_known_ceiling_there_is_no_fraction() -> None:
    point = compared(1, 0.01, Roof(None, None, None))
    assert (point.fraction_of_bound, point.mbu, point.mfu, point.verdict) == (None, None, None, Verdict.UNKNOWN)
    assert "No ceiling is known" in read_gap([point])[0]


def test_a_line_through_two_points_is_that_line() -> None:
    assert fit_line([1.0, 3.0], [10.0, 14.0]) == pytest.approx((8.0, 2.0))


def test_the_batch_line_separates_shared_from_per_sequence_time() -> None:
    points = [compared(batch, 0.010 + 0.002 * batch) for batch in (1, 2, 4)]
    (line,) = batch_lines(points)
    assert (line.fixed_s, line.per_sequence_s) == pytest.approx((0.010, 0.002))
    # the bound grows by the cache of one sequence, 5001 positions and a row of the table, over the bandwidth
    assert line.bound_per_sequence_s == pytest.approx((147_456 * 5001 + 8192) / 1e12)
    assert "close to free" in read_gap(points)[-1]


def test_step_times_off_a_rising_line_are_not_explained() -> None:
    points = [compared(1, 0.050), compared(2, 0.024), compared(4, 0.038)]
    (line,) = batch_lines(points)
    assert not line.is_telling
    assert "cannot be told apart" in read_gap(points)[-1]


def test_a_single_point_is_not_a_range() -> None:
    assert "between" not in read_gap([compared(1, 0.05)])[0]


def test_one_batch_alone_gives_no_line() -> None:
    assert batch_lines([compared(4, 0.02), compared(4, 0.021)]) == ()


def test_no_points_give_no_sentences() -> None:
    assert read_gap([]) == ()
