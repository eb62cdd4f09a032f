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
    assert any("above the ceiling" in sentence for sentence in read_gap([point], CEILING))


def test_without_a_known_ceiling_there_is_no_fraction() -> None:
    point = compared(1, 0.01, Roof(None, None, None))
    assert (point.fraction_of_bound, point.mbu, point.mfu, point.verdict) == (None, None, None, Verdict.UNKNOWN)
    assert "No ceiling is known" in read_gap([point], CEILING)[0]


def test_a_line_through_two_points_is_that_line() -> None:
    assert fit_line([1.0, 3.0], [10.0, 14.0]) == pytest.approx((8.0, 2.0))


def test_the_batch_line_separates_shared_from_per_sequence_time() -> None:
    points = [compared(batch, 0.010 + 0.002 * batch) for batch in (1, 2, 4)]
    (line,) = batch_lines(points, CEILING)
    assert (line.fixed_s, line.per_sequence_s) == pytest.approx((0.010, 0.002))
    # one sequence moves its cache, 5001 positions and a row of the table; the weights are read once
    assert line.bound_per_sequence_s == pytest.approx((147_456 * 5001 + 8192) / 1e12)
    weights = count_weights(reference_model(), weight_plan("int4-g128"))
    assert line.bound_fixed_s == pytest.approx((weights.total - weights.embedding) / 1e12)
    assert "close to free" in read_gap(points, CEILING)[-1]


def test_the_shared_part_is_one_read_of_the_weights_even_where_compute_limits_the_step() -> None:
    slow = Roof(1e12, 1e12, "bf16")
    (line,) = batch_lines([compared(batch, 0.1 * batch, slow) for batch in (1, 2, 4)], slow)
    weights = count_weights(reference_model(), weight_plan("int4-g128"))
    assert line.bound_fixed_s == pytest.approx((weights.total - weights.embedding) / 1e12)
    assert line.bound_per_sequence_s == pytest.approx(work(1).flops / 1e12)


def test_what_limits_is_said_batch_by_batch() -> None:
    ceiling = Roof(1e12, 5e12, "bf16")
    points = [compared(batch, 0.1, ceiling) for batch in (1, 64)]
    assert {point.bound.limited_by for point in points} == {"memory", "compute"}
    assert "memory at batch 1" in read_gap(points, ceiling)[0]
    assert "compute at batch 64" in read_gap(points, ceiling)[0]


def test_step_times_off_a_rising_line_are_not_explained() -> None:
    points = [compared(1, 0.050), compared(2, 0.024), compared(4, 0.038)]
    (line,) = batch_lines(points, CEILING)
    assert not line.is_telling
    assert "cannot be told apart" in read_gap(points, CEILING)[-1]


def test_a_single_point_is_not_a_range() -> None:
    assert "between" not in read_gap([compared(1, 0.05)], CEILING)[0]


def test_one_batch_alone_gives_no_line() -> None:
    assert batch_lines([compared(4, 0.02), compared(4, 0.021)], CEILING) == ()


def test_no_points_give_no_sentences() -> None:
    assert read_gap([], CEILING) == ()
