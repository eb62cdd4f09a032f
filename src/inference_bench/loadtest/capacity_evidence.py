"""How sure are we that a rate keeps its promise, when misses come in clusters?

In:   how many requests missed at a rate, and which of them
Out:  log evidence that may be looked at after every run; how clustered misses are; where the share is crossed
Leaves out: which rate is run next (capacity_search)
Read next by: capacity_search.

Requests of one run share a queue: where one misses, its neighbours do. n of them then say as much as n / d independent
ones, d the index of dispersion of the misses over long stretches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

_BETTER: Final = (0.1, 0.3, 0.5, 0.65, 0.78, 0.88, 0.94)  # odds of a miss over the allowed ones, for a rate that passes
_WORSE: Final = (1.07, 1.14, 1.3, 1.5, 2.0, 3.5, 10.0)
_SHORTEST: Final = 16  # requests in a stretch
_STRETCHES_IN_RUN: Final = 2
_FEWEST_STRETCHES: Final = 20
_FEWEST_MISSES: Final = 20
UNKNOWN_DISPERSION: Final = 8.0  # the dispersion that is assumed while too few misses were seen
_NEAR: Final = (0.2, 5.0)  # shares of misses over the allowed one: those rates are asked first how clustered they are
_FAR: Final = (0.02, 50.0)
_MOST_MISSES: Final = 0.5  # of the requests of a rate that is asked
_SLOPES: Final = (2.0, 3.0, 4.5, 6.5, 10.0, 15.0, 22.0, 35.0, 60.0)
_USUAL_SLOPE: Final = 10.0
_SLOPE_SPREAD: Final = 1.0
_HALVINGS: Final = 30
_MOST_LOG_ODDS: Final = 30.0


class Counted(NamedTuple):
    """Misses at a rate."""

    rate: float
    num_misses: int
    num_requests: int


def log_evidence(counted: Counted, allowed: float, dispersion: float, side: int) -> float:
    """How much likelier the counts are when requests miss less (side -1) or more (side 1) than allowed.

    Formula:  ln mean over p of [(p / m)^s · ((1 - p) / (1 - m))^(n - s)]^(1 / d)
    Where:    s misses of n requests, m allowed, d dispersion, p several better or worse shares. While the claim is false its
              chance of ever reaching ln(1 / a), however often one looks, is at most a
    Source:   Ville 1939; Robbins 1970, Statistical methods related to the law of the iterated logarithm; the power 1 / d is
              quasi-likelihood (Wedderburn 1974)
    """
    _, num_misses, num_requests = counted
    logs = []
    for factor in _BETTER if side < 0 else _WORSE:
        odds = factor * allowed / (1 - allowed)
        share = odds / (1 + odds)
        better, worse = math.log((1 - share) / (1 - allowed)), math.log(share / allowed)
        logs.append((num_misses * worse + (num_requests - num_misses) * better) / dispersion)
    most = max(logs)
    return most + math.log(sum(math.exp(value - most) for value in logs) / len(logs))


class Stretch(NamedTuple):
    """How the misses of one run fall into stretches of one length."""

    num_stretches: int
    num_misses: int
    num_squares: int


class RunMisses(NamedTuple):
    """The misses of one run, as the dispersion wants them: stretches of 16 requests, 32, and so on."""

    num_misses: int
    num_requests: int
    stretches: tuple[Stretch, ...]


def count_run(misses: bytes) -> RunMisses:
    """What is kept of a run; the largest stretch is a quarter of it."""
    sums = [sum(misses[at : at + _SHORTEST]) for at in range(0, len(misses) - _SHORTEST + 1, _SHORTEST)]
    stretches = []
    while len(sums) >= _STRETCHES_IN_RUN:
        stretches.append(Stretch(len(sums), sum(sums), sum(count * count for count in sums)))
        sums = [sums[at] + sums[at + 1] for at in range(0, len(sums) - 1, 2)]
    return RunMisses(sum(misses), len(misses), tuple(stretches))


def dispersion_of(rates: Sequence[Sequence[RunMisses]], allowed: float) -> float:
    """By how much the number of misses varies more than that of independent ones, over long stretches of requests.

    Formula:  v(b) = sum (s - b p)² / sum b p (1 - p), stretches of b requests with s misses; the largest v, or 2 v(2b) - v(b)
              of the longest, which takes off what stretches owe to their ends
    Where:    each rate gives its runs; p is the share of its rate. Rates near the allowed share are asked; where they
              have too few misses, those farther off, where misses cluster more; at least 1
    Source:   batch means: Law and Kelton, Simulation Modeling and Analysis, chapter 9
    """
    for least, most in (_NEAR, _FAR):
        kept = [runs for runs in rates if least * allowed <= _share(runs) <= min(most * allowed, _MOST_MISSES)]
        if sum(run.num_misses for runs in kept for run in runs) >= _FEWEST_MISSES:
            return _dispersion(kept)
    return UNKNOWN_DISPERSION


def _share(runs: Sequence[RunMisses]) -> float:
    return sum(run.num_misses for run in runs) / max(1, sum(run.num_requests for run in runs))


def _dispersion(rates: Sequence[Sequence[RunMisses]]) -> float:
    found, last, level = 1.0, 1.0, 0
    while (ratio := _ratio_at(rates, level)) is not None:
        found = max(found, ratio, 2 * ratio - last)
        last, level = ratio, level + 1
    return found if level else UNKNOWN_DISPERSION


def _ratio_at(rates: Sequence[Sequence[RunMisses]], level: int) -> float | None:
    """The ratio v at one length; None where runs hold too few stretches of it."""
    length = _SHORTEST << level
    squares = expected = 0.0
    num_stretches = num_rates = 0
    for runs in rates:
        share = _share(runs)
        found = [run.stretches[level] for run in runs if len(run.stretches) > level]
        for stretch in found:
            mean = length * share
            squares += stretch.num_squares - 2 * mean * stretch.num_misses + stretch.num_stretches * mean * mean
            expected += stretch.num_stretches * mean * (1 - share)
            num_stretches += stretch.num_stretches
        num_rates += bool(found)
    if num_stretches < max(_FEWEST_STRETCHES, 2 * num_rates) or expected <= 0:
        return None
    return squares / expected * num_stretches / (num_stretches - num_rates)


def crossing_of(counted: Sequence[Counted], allowed: float, dispersion: float, low: float, high: float) -> float:
    """The rate at which the share of misses most likely crosses the allowed one.

    Formula:  log odds of a miss = log odds allowed + b ln(rate / crossing): the likeliest crossing, for the likeliest of
              several slopes b, with ln b normal about ln 10
    Where:    between low and high. It says only where to look next; no verdict rests on it
    """
    known = [each for each in counted if each.num_requests]
    goal = math.log(allowed / (1 - allowed))

    def likeliest(slope: float) -> tuple[float, float]:
        ends = math.log(low), math.log(high)
        for _ in range(_HALVINGS):
            middle = sum(ends) / 2
            ends = (ends[0], middle) if _surplus(known, goal, slope, middle) > 0 else (middle, ends[1])
        doubt = (math.log(slope / _USUAL_SLOPE) / _SLOPE_SPREAD) ** 2 / 2
        return _log_likelihood(known, goal, slope, ends[0]) / dispersion - doubt, ends[0]

    return math.exp(max(map(likeliest, _SLOPES))[1])


def _surplus(counted: Sequence[Counted], goal: float, slope: float, crossing: float) -> float:
    """Misses beyond those expected with this crossing: above 0 where it must lie lower."""
    return sum(
        num_misses - num_requests * _share_at(goal + slope * (math.log(rate) - crossing))
        for rate, num_misses, num_requests in counted
    )


def _log_likelihood(counted: Sequence[Counted], goal: float, slope: float, crossing: float) -> float:
    total = 0.0
    for rate, num_misses, num_requests in counted:
        share = _share_at(goal + slope * (math.log(rate) - crossing))
        total += num_misses * math.log(share) + (num_requests - num_misses) * math.log1p(-share)
    return total


def _share_at(log_odds: float) -> float:
    return 1 / (1 + math.exp(-max(-_MOST_LOG_ODDS, min(_MOST_LOG_ODDS, log_odds))))
