"""GuideLLM's statistics: how it summarises samples, events in time, and what is in flight.

In:   values with weights, events and intervals in seconds
Out:  dicts with the fields of its DistributionSummary
Leaves out: its confidence intervals, which are null: ours rest on other assumptions
Read next by: exports_guidellm.

Read in its source, version 0.8.1. Its percentile is the smallest value at which the weights reach that share, without
interpolation; times within a tenth of a millisecond are one; an empty distribution is all zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, TypeAlias

Weighted: TypeAlias = tuple[float, float]  # value or time, and its weight

_POINTS: Final = {
    "p001": 0.001, "p01": 0.01, "p05": 0.05, "p10": 0.1, "p25": 0.25, "p50": 0.5,
    "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999,
}  # fmt: skip
_MERGED_S: Final = 1e-4
_EPSILON: Final = 1e-6


def summary_of(values: Iterable[Weighted], count: int | None = None) -> dict[str, Any]:
    """The summary of values with weights; count is that of the weights where none is given."""
    pooled: dict[float, float] = {}
    weighed = list(values)
    for value, weight in sorted(weighed):
        pooled[value] = pooled.get(value, 0.0) + weight
    if count is None:
        count = round(math.fsum(weight for _, weight in weighed))
    kept = {value: weight for value, weight in pooled.items() if weight > 0}
    if not kept:
        return _summary([0.0], [1.0], count)
    total = math.fsum(kept.values())
    even = total <= _EPSILON
    return _summary(list(kept), [1 / len(kept) if even else weight / total for weight in kept.values()], count)


def _summary(values: Sequence[float], shares: Sequence[float], count: int) -> dict[str, Any]:
    mean = math.fsum(value * share for value, share in zip(values, shares, strict=True))
    variance = math.fsum((value - mean) ** 2 * share for value, share in zip(values, shares, strict=True))
    upto = list(accumulate(shares))
    percentiles = {name: _percentile(values, upto, point) for name, point in _POINTS.items()}
    return {
        "mean": mean,
        "median": percentiles["p50"],
        "mode": values[shares.index(max(shares))],
        "variance": variance,
        "std_dev": math.sqrt(variance),
        "min": values[0],
        "max": values[-1],
        "count": count,
        "total_sum": mean * count,
        "percentiles": percentiles,
        "pdf": None,
        "mean_ci": None,
        "percentile_cis": None,
    }


def _percentile(values: Sequence[float], upto: Sequence[float], point: float) -> float:
    return next((value for value, reached in zip(values, upto, strict=True) if reached >= point), values[-1])


def rate_of(events: Iterable[Weighted], begin_s: float, end_s: float) -> dict[str, Any]:
    """How often events came, over time: each has the time halfway to its neighbours to itself."""
    inside = [(time_s, weight) for time_s, weight in events if begin_s <= time_s <= end_s]
    merged = _merged([(begin_s, 0.0), *inside, (end_s, 0.0)])
    if len(merged) <= 1:
        return summary_of([], len(merged))
    times = [time_s for time_s, _ in merged]
    middles = [(before + after) / 2 for before, after in pairwise(times)]
    shares_s = [
        middles[0] - times[0],
        *(after - before for before, after in pairwise(middles)),
        max(times[-1] - middles[-1], _EPSILON),
    ]
    rates = [(weight / share_s, share_s) for (_, weight), share_s in zip(merged, shares_s, strict=True)]
    return summary_of(rates, round(math.fsum(weight for _, weight in merged)))


def concurrency_of(intervals: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> dict[str, Any]:
    """How many were in flight, over time."""
    count = len(intervals)
    changes = [(time_s, 1.0) for time_s, _ in intervals] + [(time_s, -1.0) for _, time_s in intervals]
    merged = [(time_s, change) for time_s, change in _merged(changes) if begin_s <= time_s <= end_s]
    if not merged:
        return summary_of([], count)
    steps = [(begin_s, 0.0), *merged, (end_s, 0.0)]
    levels = [max(0.0, level) for level in accumulate(change for _, change in steps)]
    held = [
        (level, max(0.0, after - before))
        for level, ((before, _), (after, _)) in zip(levels, pairwise(steps), strict=False)
    ]
    return summary_of(held if any(duration_s for _, duration_s in held) else [], count)


def _merged(events: Sequence[Weighted]) -> list[Weighted]:
    """Events in order; those within a tenth of a millisecond of the first of them are one."""
    merged: list[Weighted] = []
    for time_s, weight in sorted(events, key=lambda event: event[0]):
        if merged and time_s <= merged[-1][0] + _MERGED_S:
            merged[-1] = (merged[-1][0], merged[-1][1] + weight)
        else:
            merged.append((time_s, weight))
    return merged
