"""How long did requests take, those that failed included: a second view beside the percentiles of completed ones.

In:   for each request its time, or how it failed
Out:  FailurePercentiles, in which a failure takes for ever and a time-out longer than it was waited for
Leaves out: which requests there are and what their time is (metrics)
Read next by: metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.stats import sorted_quantile


@dataclass(frozen=True, slots=True)
class BoundedTime:
    """A time, or what is known of one that did not come to its end.

    Where:    value_s is the time; None where the request did not complete: then it is longer than above_s, and
              above_s is None where it will never come
    Unit:     seconds
    """

    value_s: float | None
    above_s: float | None = None


@dataclass(frozen=True, slots=True)
class FailurePercentiles:
    """Percentiles over all requests, each that failed at +∞.

    Where:    time-outs lie above all times that were measured, and below the other failures
    """

    p50: BoundedTime
    p90: BoundedTime
    p99: BoundedTime
    count: int
    num_timed_out: int
    num_failed: int


def failure_percentiles(pairs: Iterable[tuple[RequestRecord, float | None]]) -> FailurePercentiles | None:
    """Percentiles over all requests, of which each comes with its time; None when there is none.

    Formula:  linear interpolation between order statistics, as `stats.quantile`; +∞ where it touches a failure
    Where:    requests that this program cancelled are left out, and completed ones without such a time
    """
    times_s: list[float] = []
    waited_s: list[float] = []
    num_failed = 0
    for record, time_s in pairs:
        match record.status:
            case RequestStatus.COMPLETED:
                times_s += () if time_s is None else (time_s,)
            case RequestStatus.TIMED_OUT:
                waited_s.append(record.end_s - record.planned_s)
            case RequestStatus.CANCELLED:
                pass
            case _:
                num_failed += 1
    count = len(times_s) + len(waited_s) + num_failed
    if not count:
        return None
    times_s.sort()
    least_waited_s = min(waited_s, default=None)
    p50, p90, p99 = (_point(q, times_s, least_waited_s, len(waited_s), count) for q in (0.5, 0.9, 0.99))
    return FailurePercentiles(p50, p90, p99, count, len(waited_s), num_failed)


def _point(q: float, times_s: list[float], waited_s: float | None, num_waited: int, count: int) -> BoundedTime:
    position = (count - 1) * q
    last = math.ceil(position)
    if last < len(times_s):
        return BoundedTime(sorted_quantile(times_s, position / (len(times_s) - 1)) if len(times_s) > 1 else times_s[0])
    return BoundedTime(None, waited_s if last < len(times_s) + num_waited else None)
