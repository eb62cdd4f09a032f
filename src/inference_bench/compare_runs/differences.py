"""How far apart are two runs, figure by figure, and is that more than chance?

In:   records of the same requests in two runs, or two measured points
Out:  Difference: both values, the change, and an interval of the change
Leaves out: why they differ
Read next by: flow, report.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from inference_bench.compare_runs.side import SidePoint
from inference_bench.metrics import chunk_gaps_s, e2e_s, output_tokens_per_s, tpot_s, ttft_s
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.stats import Interval, sorted_quantile

CONFIDENCE: Final = 0.95
LEAST_SAMPLES: Final = 8  # of either side, below which no interval is given
_RESAMPLES: Final = 400
_MOST_GAPS: Final = 40  # of a request: its pauses are much alike


class Better(StrEnum):
    """Which direction is the good one."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure in both runs.

    Formula:  change = second / first - 1
    Where:    a percentile holds every request, one that failed as longer than any time: None where it touches such a one;
              interval holds the change with 95 %, None where the samples are too few or nothing bounds it; counts are the
              samples behind each value
    Unit:     by the name: _s seconds, _per_s a rate, _fraction 0 to 1
    """

    name: str
    first: float | None
    second: float | None
    interval: Interval | None
    counts: tuple[int, int]
    better: Better = Better.LOWER

    @property
    def change(self) -> float | None:
        """Signed, as a fraction of the first; None where either is not known, or the first is 0."""
        return None if self.first is None or self.second is None or not self.first else self.second / self.first - 1

    @property
    def is_clear(self) -> bool | None:
        """Whether the interval leaves out no change at all; None without one."""
        return None if self.interval is None else not self.interval.low <= 0 <= self.interval.high

    @property
    def is_improvement(self) -> bool | None:
        """Whether the second is clearly better (True) or clearly worse (False); None where the runs do not tell."""
        if not self.is_clear or self.change is None:
            return None
        return (self.change < 0) is (self.better is Better.LOWER)


Values = Callable[[RequestRecord], Sequence[float]]


def _one(value: Callable[[RequestRecord], float | None]) -> Values:
    def values(record: RequestRecord) -> Sequence[float]:
        found = value(record)
        return () if found is None else (found,)

    return values


def _gaps(record: RequestRecord) -> Sequence[float]:
    gaps = chunk_gaps_s(record)
    return gaps[:: max(1, len(gaps) // _MOST_GAPS)] if len(gaps) > _MOST_GAPS else gaps


_FIGURES: Final[tuple[tuple[str, Values, float], ...]] = (
    *((f"ttft_p{round(100 * q)}_s", _one(ttft_s), q) for q in (0.5, 0.9, 0.99)),
    ("tpot_p50_s", _one(tpot_s), 0.5),
    *((f"itl_p{round(100 * q)}_s", _gaps, q) for q in (0.5, 0.99)),
    *((f"e2e_p{round(100 * q)}_s", _one(e2e_s), q) for q in (0.5, 0.99)),
)


def differences(
    first: Sequence[RequestRecord], second: Sequence[RequestRecord], seed: int = 0
) -> tuple[Difference, ...]:
    """The figures of the same requests in two runs.

    Formula:  intervals from 400 pairs of resampled runs: contiguous blocks of about sqrt(n) requests in the order they were
              planned, drawn with replacement, the same blocks of both runs
    Where:    blocks, because a slow spell or a queue hits neighbours alike; the same ones, because both runs had the same load
    Ignores:  what differs between runs of one and the same server: two runs cannot say, so repeat them
    """
    mine, theirs = (sorted(side, key=lambda record: (record.index or 0, record.planned_s)) for side in (first, second))
    done = tuple(_share_completed(side) for side in (mine, theirs))
    rates = tuple(output_tokens_per_s(side) for side in (mine, theirs))
    counts = (len(mine), len(theirs))
    return (
        *(_of_figure(name, values, q, mine, theirs, seed) for name, values, q in _FIGURES),
        Difference("output_tokens_per_s", rates[0], rates[1], None, counts, Better.HIGHER),
        Difference("completed_fraction", done[0], done[1], None, counts, Better.HIGHER),
    )


def _share_completed(records: Sequence[RequestRecord]) -> float | None:
    done = sum(record.status is RequestStatus.COMPLETED for record in records)
    return done / len(records) if records else None


def _of_figure(
    name: str,
    values: Values,
    q: float,
    mine: Sequence[RequestRecord],
    theirs: Sequence[RequestRecord],
    seed: int,
) -> Difference:
    is_a_request = values is not _gaps
    sides = [[_values_of(record, values, is_a_request) for record in side] for side in (mine, theirs)]
    pooled = [[value for each in side for value in each] for side in sides]
    first, second = (_quantile(side, q) for side in pooled)
    counts = (len(pooled[0]), len(pooled[1]))
    interval = None if min(counts) < LEAST_SAMPLES else _interval(sides[0], sides[1], q, seed)
    return Difference(name, first, second, interval, counts)


def _values_of(record: RequestRecord, values: Values, is_a_request: bool) -> Sequence[float]:
    """What a request brings to a figure: its times, or of one that failed a time that is longer than any."""
    if record.status is RequestStatus.COMPLETED:
        return values(record)
    return (math.inf,) if is_a_request and record.status is not RequestStatus.CANCELLED else ()


def _quantile(values: Sequence[float], q: float) -> float | None:
    """A quantile of what may hold requests at infinity; None where it touches one of them, or there is nothing."""
    known = sorted(value for value in values if value < math.inf)
    if math.ceil((len(values) - 1) * q) >= len(known):
        return None
    return sorted_quantile([*known, *known[-1:] * (len(values) - len(known))], q)


def _interval(
    mine: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]], q: float, seed: int
) -> Interval | None:
    """Where the change lies in 95 % of resampled pairs of runs."""
    draws = random.Random(seed)
    count = min(len(mine), len(theirs))
    length = max(1, round(math.sqrt(count)))
    starts = range(0, max(1, count - length + 1))
    changes: list[float] = []
    for _ in range(_RESAMPLES):
        blocks = [draws.choice(starts) for _ in range(-(-count // length))]
        kept = [index for begin in blocks for index in range(begin, begin + length)]
        before, after = (_quantile([value for index in kept for value in side[index]], q) for side in (mine, theirs))
        if before is None and after is not None:
            changes.append(-1.0)  # from longer than any time
        elif before:
            changes.append(math.inf if after is None else after / before - 1)
    tail = (1 - CONFIDENCE) / 2
    low, high = (_quantile(changes, share) for share in (tail, 1 - tail))
    is_told = low is not None and high is not None and 2 * len(changes) >= _RESAMPLES
    return Interval(low, high, CONFIDENCE) if low is not None and high is not None and is_told else None


def point_difference(first: SidePoint, second: SidePoint) -> Difference:
    """A measured step in both runs.

    Formula:  interval from low2 / high1 - 1 to high2 / low1 - 1, of both medians' own intervals
    Ignores:  that both ends at once are rarer than 5 %: the interval is rather too wide
    """
    mine, theirs = first.interval, second.interval
    interval = None
    if mine is not None and theirs is not None:
        confidence = min(mine.confidence, theirs.confidence)
        interval = Interval(theirs.low / mine.high - 1, theirs.high / mine.low - 1, confidence)
    name = f"{first.phase}, batch {first.batch}, {first.context_tokens} tokens"
    return Difference(name, first.seconds, second.seconds, interval, (1, 1))
