"""Failures at +∞: percentiles over all requests, worked by hand."""

from __future__ import annotations

from inference_bench.failure_view import BoundedTime, failure_percentiles
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage


def pair(
    status: RequestStatus, time_s: float | None = None, waited_s: float = 1.0
) -> tuple[RequestRecord, float | None]:
    return RequestRecord("r", Origin.MEASURED, Stage.MEASURE, status, 2.0, 2.0, 2.0 + waited_s), time_s


COMPLETED = [pair(RequestStatus.COMPLETED, float(time_s)) for time_s in range(1, 10)]


def test_without_failures_they_are_the_usual_percentiles() -> None:
    found = failure_percentiles(COMPLETED)
    assert found is not None
    assert (found.p50, found.p90) == (BoundedTime(5.0), BoundedTime(8.2))  # positions 4 and 7.2 of 0 to 8
    assert (found.count, found.num_timed_out, found.num_failed) == (9, 0, 0)


def test_a_percentile_that_touches_a_time_out_is_longer_than_it_was_waited_for() -> None:
    found = failure_percentiles([*COMPLETED, pair(RequestStatus.TIMED_OUT, None, 30.0)])
    assert found is not None
    assert (found.p50, found.p90, found.p99) == (BoundedTime(5.5), BoundedTime(None, 30.0), BoundedTime(None, 30.0))
    assert (found.count, found.num_timed_out) == (10, 1)


def test_one_that_touches_another_failure_never_comes() -> None:
    # 9 times, one time-out, 2 failures: positions 5.5, 9.9 and 10.89 of 0 to 11
    ends = [pair(RequestStatus.TIMED_OUT, None, 30.0), pair(RequestStatus.REJECTED), pair(RequestStatus.TRUNCATED, 0.5)]
    found = failure_percentiles([*ends, *COMPLETED])
    assert found is not None
    assert (found.p50, found.p90, found.p99) == (BoundedTime(6.5), BoundedTime(None, None), BoundedTime(None, None))


def test_a_quick_failure_makes_no_percentile_better() -> None:
    slow = [pair(RequestStatus.COMPLETED, 9.0), pair(RequestStatus.FAILED, 0.001), pair(RequestStatus.FAILED, 0.001)]
    found = failure_percentiles(slow)
    assert found is not None
    assert found.p50 == BoundedTime(None, None)


def test_what_this_program_cancelled_and_what_has_no_such_time_is_left_out() -> None:
    rest = [pair(RequestStatus.CANCELLED), pair(RequestStatus.COMPLETED)]
    assert failure_percentiles(rest) is None
    found = failure_percentiles([*rest, pair(RequestStatus.COMPLETED, 3.0)])
    assert found is not None
    assert (found.count, found.p99) == (1, BoundedTime(3.0))
