"""How many requests were in flight at once: a sweep over exact beginnings and ends.

In:   RequestRecords
Out:  Concurrency: the peak, and the mean over time
Read next by: proof, referee, report (exports).

Counting in buckets of a second makes two of one request that ends where the next begins; a sweep does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from inference_bench.records import RequestRecord


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How many requests were in flight.

    Formula:  mean = ∫ in flight dt / span; steady_mean the same from when the peak is first reached to the last send
    Unit:     requests; the mean over no time is None
    """

    peak: int
    mean: float | None
    steady_mean: float | None


def realised_concurrency(records: Sequence[RequestRecord]) -> Concurrency | None:
    """Requests in flight, each from its send to its end; None without a record."""
    if not records:
        return None
    changes = sorted([(record.sent_s, 1) for record in records] + [(record.end_s, -1) for record in records])
    levels: list[tuple[float, int]] = []  # an end comes before a beginning at the same time
    level = 0
    for time_s, change in changes:
        level += change
        levels.append((time_s, level))
    peak = max(max(level for _, level in levels), 1)
    reached_s = next((time_s for time_s, level in levels if level >= peak), levels[0][0])
    last_send_s = max(record.sent_s for record in records)
    return Concurrency(peak, _mean(levels, levels[0][0], levels[-1][0]), _mean(levels, reached_s, last_send_s))


def _mean(levels: Sequence[tuple[float, int]], begin_s: float, end_s: float) -> float | None:
    if end_s <= begin_s:
        return None
    held = sum(
        level * max(0.0, min(after, end_s) - max(before, begin_s)) for (before, level), (after, _) in pairwise(levels)
    )
    return held / (end_s - begin_s)
