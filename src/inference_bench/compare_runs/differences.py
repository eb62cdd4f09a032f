"""How far apart are two runs, figure by figure, and is that more than chance?

In:   records of the same requests in two runs, or two measured points
Out:  Difference: both values, the change, and an interval of the change
Leaves out: why they differ
Read next by: flow, shadow, evidence, report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from inference_bench.compare_runs.resampling import Values, interval_of, quantile_change, resample
from inference_bench.compare_runs.side import SidePoint
from inference_bench.metrics import chunk_gaps_s, e2e_s, output_tokens_per_s, tpot_s, ttft_s
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.stats import Interval

CONFIDENCE: Final = 0.95
LEAST_SAMPLES: Final = 8  # of either side, below which no interval is given
NUM_PAIRS: Final = 400  # of resampled runs
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


_TIMES: Final[Mapping[str, Callable[[RequestRecord], float | None]]] = {"ttft": ttft_s, "tpot": tpot_s, "e2e": e2e_s}
_SHOWN: Final[Mapping[str, tuple[float, ...]]] = {
    "ttft": (0.5, 0.9, 0.99),
    "tpot": (0.5,),
    "itl": (0.5, 0.99),
    "e2e": (0.5, 0.99),
}


def values_of(records: Sequence[RequestRecord], time: str) -> Values:
    """What requests bring to a time, such as ttft."""
    return Values.of([_times_of(record, time) for record in records])


def _times_of(record: RequestRecord, time: str) -> Sequence[float]:
    """What one brings: one that failed is longer than any, and has no pauses; a cancelled one says nothing."""
    if record.status is RequestStatus.CANCELLED:
        return ()
    is_done = record.status is RequestStatus.COMPLETED
    if time == "itl":
        gaps = chunk_gaps_s(record) if is_done else ()
        return gaps[:: max(1, len(gaps) // _MOST_GAPS)]
    value = _TIMES[time](record) if is_done else math.inf
    return () if value is None else (value,)


def finite(value: float | None) -> float | None:
    """None of what is longer than any time."""
    return value if value is not None and math.isfinite(value) else None


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
        *_of_times(mine, theirs, seed),
        Difference("output_tokens_per_s", rates[0], rates[1], None, counts, Better.HIGHER),
        Difference("completed_fraction", done[0], done[1], None, counts, Better.HIGHER),
    )


def _share_completed(records: Sequence[RequestRecord]) -> float | None:
    done = sum(record.status is RequestStatus.COMPLETED for record in records)
    return done / len(records) if records else None


def _of_times(mine: Sequence[RequestRecord], theirs: Sequence[RequestRecord], seed: int) -> Iterator[Difference]:
    """Each percentile of both; of sides that are not as long, the intervals are of as many requests as the shorter has."""
    count = min(len(mine), len(theirs))
    figures = [(time, q) for time, fractions in _SHOWN.items() for q in fractions]
    whole = {time: (values_of(mine, time), values_of(theirs, time)) for time in _SHOWN}
    alike = {time: (values_of(mine[:count], time), values_of(theirs[:count], time)) for time in _SHOWN}
    drawn = resample([quantile_change(*alike[time], q) for time, q in figures], count, (1, 1), seed, NUM_PAIRS)
    for (time, q), changes in zip(figures, drawn, strict=True):
        first, second = whole[time]
        counts = len(first.values), len(second.values)
        interval = None if min(counts) < LEAST_SAMPLES else _bounded(interval_of(changes, CONFIDENCE, NUM_PAIRS))
        name = f"{time}_p{round(100 * q)}_s"
        yield Difference(name, finite(first.quantile(q)), finite(second.quantile(q)), interval, counts)


def _bounded(interval: Interval | None) -> Interval | None:
    """None where an end is longer than any time."""
    return None if interval is None or math.isinf(interval.low) or math.isinf(interval.high) else interval


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
