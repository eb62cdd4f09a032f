"""How much would a figure differ if the same runs were made again? Runs and blocks of requests drawn with replacement.

In:   two Pools; what each request brings to a figure
Out:  the worsening of every resampled pair of sides, and intervals of it
Leaves out: which figures, and what they mean (differences, evidence)
Read next by: differences, evidence.

Blocks of about √n neighbouring requests are drawn, because a slow spell hits neighbours alike; the same ones of every run, because
all had the same load. Of a side with several runs the runs are drawn too: what differs from run to run of one server is then in
the interval, though two or three runs show it too small. One run a side shows none of it.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import accumulate
from typing import Any, Final

from inference_bench.stats import Interval, sorted_quantile

RESAMPLES: Final = 2000
_MANY: Final = 4000  # values from which NumPy's sums are worth its import
_LEAST_TOLD: Final = 0.5  # share of the resampled pairs that must say something


@dataclass(frozen=True, slots=True)
class Weights:
    """How often each request of a side was drawn, run by run."""

    baseline: Sequence[int]
    canary: Sequence[int]


@dataclass(frozen=True, slots=True)
class Values:
    """What the requests of a side bring to one figure, in order of size.

    Where:  owners say whose each is; a request that failed brings infinity
    """

    values: Sequence[float] = field(repr=False)
    owners: Sequence[int] = field(repr=False)

    @classmethod
    def of(cls, each: Sequence[Sequence[float]]) -> Values:
        """Those of each request."""
        pairs = sorted((value, owner) for owner, values in enumerate(each) for value in values)
        return cls([value for value, _ in pairs], _as_index([owner for _, owner in pairs]))

    def quantile(self, q: float) -> float | None:
        """That of all of them; infinite where it touches a request that failed, None of nothing."""
        return self._at(list(range(1, len(self.values) + 1)), q) if self.values else None

    def weighted_quantile(self, weights: Sequence[int], q: float) -> float | None:
        """That of a resample, in which each request stands as often as it was drawn."""
        upto = _sums(weights, self.owners)
        return self._at(upto, q) if len(upto) and upto[-1] else None

    def _at(self, upto: Sequence[int], q: float) -> float:
        position = (int(upto[-1]) - 1) * q
        rank = math.floor(position)
        low, high = (self.values[_place(upto, at)] for at in (rank, min(rank + 1, int(upto[-1]) - 1)))
        if low == high or position == rank:
            return low
        return low + (position - rank) * (high - low)


def _as_index(owners: list[int]) -> Any:
    """As NumPy's own where there are many and it is installed: sums over them are then quick."""
    if len(owners) < _MANY or find_spec("numpy") is None:
        return owners
    import numpy as np

    return np.asarray(owners, dtype=np.int64)


def _sums(weights: Sequence[int], owners: Any) -> Any:
    if isinstance(owners, list):
        return list(accumulate(map(weights.__getitem__, owners)))
    import numpy as np

    return np.cumsum(np.asarray(weights, dtype=np.int64)[owners])


def _place(upto: Any, rank: int) -> int:
    return bisect_right(upto, rank) if isinstance(upto, list) else int(upto.searchsorted(rank, side="right"))


Estimate = Callable[[Weights], float | None]  # what a resampled pair of sides says of one figure


def resample(
    estimates: Sequence[Estimate], num_each: int, num_runs: tuple[int, int], seed: int = 0, resamples: int = RESAMPLES
) -> list[list[float]]:
    """What each figure is in every resampled pair of sides that says something of it; all see the same ones."""
    found: list[list[float]] = [[] for _ in estimates]
    for weights in _drawn(num_each, num_runs, seed, resamples):
        for estimate, values in zip(estimates, found, strict=True):
            value = estimate(weights)
            if value is not None:
                values.append(value)
    return found


def _drawn(num_each: int, num_runs: tuple[int, int], seed: int, resamples: int) -> Iterator[Weights]:
    draws = random.Random(seed)
    length = max(1, round(math.sqrt(num_each)))
    for _ in range(resamples):
        of_request = _times_of_requests(draws, num_each, length)
        yield Weights(*(_times_of_side(draws, count, of_request) for count in num_runs))


def _times_of_requests(draws: random.Random, count: int, length: int) -> list[int]:
    """How often each request lies in one of the blocks."""
    steps = [0] * (count + 1)
    starts = max(1, count - length + 1)
    for _ in range(-(-count // length)):
        begin = draws.randrange(starts)
        steps[begin] += 1
        steps[min(begin + length, count)] -= 1
    return list(accumulate(steps[:count]))


def _times_of_side(draws: random.Random, num_runs: int, of_request: list[int]) -> Any:
    if num_runs == 1:
        return _as_index(of_request)
    of_run = [0] * num_runs
    for _ in range(num_runs):
        of_run[draws.randrange(num_runs)] += 1
    return _as_index([times * each for times in of_run for each in of_request])


def relative_change(before: float | None, after: float | None) -> float | None:
    """After over before, less one; infinite where only the second is longer than any time, None where nothing is known."""
    if before is None or after is None or not before:
        return None
    if math.isinf(before):
        return None if math.isinf(after) else -1.0
    return math.inf if math.isinf(after) else after / before - 1


def quantile_change(baseline: Values, canary: Values, q: float) -> Estimate:
    """The change of a quantile."""

    def estimate(drawn: Weights) -> float | None:
        before, after = baseline.weighted_quantile(drawn.baseline, q), canary.weighted_quantile(drawn.canary, q)
        return relative_change(before, after)

    return estimate


@dataclass(frozen=True, slots=True)
class Share:
    """Which requests of a side count, and which of them ended one way."""

    all_of: Sequence[int] = field(repr=False)
    among: Sequence[int] = field(repr=False)

    @classmethod
    def of(cls, judged: Iterable[bool | None]) -> Share:
        """From what is said of each request: yes, no, or None for one that does not count."""
        found = list(judged)
        return cls(
            _as_index([index for index, each in enumerate(found) if each is not None]),
            _as_index([index for index, each in enumerate(found) if each]),
        )

    @property
    def counts(self) -> tuple[int, int]:
        """How many ended that way, of how many."""
        return len(self.among), len(self.all_of)

    @property
    def value(self) -> float | None:
        """The share; None of nothing."""
        return len(self.among) / len(self.all_of) if len(self.all_of) else None

    def weighted(self, weights: Sequence[int]) -> float | None:
        """That of a resample."""
        total = _sum(weights, self.all_of)
        return _sum(weights, self.among) / total if total else None


def share_change(baseline: Share, canary: Share) -> Estimate:
    """The difference of a share."""

    def estimate(drawn: Weights) -> float | None:
        before, after = baseline.weighted(drawn.baseline), canary.weighted(drawn.canary)
        return None if before is None or after is None else after - before

    return estimate


def _sum(weights: Any, chosen: Any) -> int:
    if isinstance(chosen, list) or isinstance(weights, list):
        return sum(map(weights.__getitem__, chosen))
    return int(weights[chosen].sum())


def interval_of(changes: Sequence[float], confidence: float, num_drawn: int) -> Interval | None:
    """The middle of the changes; None where too few of the resampled pairs say something.

    Where:  an end may be infinite
    """
    if len(changes) < max(2, _LEAST_TOLD * num_drawn):
        return None
    ordered = sorted(changes)
    tail = (1 - confidence) / 2
    ends = [_with_infinite(ordered, share) for share in (tail, 1 - tail)]
    return Interval(ends[0], ends[1], confidence)


def _with_infinite(ordered: Sequence[float], q: float) -> float:
    position = (len(ordered) - 1) * q
    low, high = ordered[math.floor(position)], ordered[math.ceil(position)]
    return high if math.isinf(high) or math.isinf(low) else sorted_quantile(ordered, q)
