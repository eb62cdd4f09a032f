"""One percentile, one interval, one measure of spread: every statistic in the package comes from here.

In:   raw values, in any order
Out:  plain numbers, or None where the sample is too small for an honest answer
Read next by: metrics, measure, compare.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from inference_bench.errors import TooFewSamplesError

_MANY: Final = 250_000  # values from which NumPy's sort is worth its import, which starts threads


def ordered(values: Iterable[float]) -> Sequence[float]:
    """The values in order, by NumPy where there are many and it is installed; the same numbers either way.

    Where:    what `sorted_quantile` and `sorted_quantile_interval` take; an array is put in order where it stands
    """
    if not isinstance(values, array):
        values = array("d", values)
    if len(values) >= _MANY:
        try:
            import numpy as np
        except ImportError:
            return sorted(values)
        np.frombuffer(values, dtype=np.float64).sort()
        return values
    return sorted(values)


def quantile(values: Iterable[float], q: float) -> float:
    """The q-quantile of pooled raw values, by linear interpolation between order statistics.

    Formula:  with n sorted values and h = (n - 1) · q, x[floor h] + (h - floor h) · (x[floor h + 1] - x[floor h])
    Raises:   TooFewSamplesError for no values; ValueError for q outside 0..1
    Source:   Hyndman and Fan 1996, definition 7 (the default of NumPy and R)

    >>> quantile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.5
    """
    return sorted_quantile(sorted(values), q)


def sorted_quantile(ordered: Sequence[float], q: float) -> float:
    """The same of values that are in order already.

    Raises:   TooFewSamplesError for no values; ValueError for q outside 0..1
    """
    if not ordered:
        raise TooFewSamplesError("a percentile needs at least one value; there are none")
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"quantile {q} is outside 0..1")
    position = (len(ordered) - 1) * q
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def weighted_quantiles(values: Sequence[float], counts: Sequence[int], fractions: Iterable[float]) -> tuple[float, ...]:
    """The quantiles of pooled values of which each occurred so many times, as if they were written out.

    Formula:  as `quantile`, over the values in order, each repeated as often as it was counted
    Raises:   TooFewSamplesError for no values; ValueError for a quantile outside 0..1

    >>> weighted_quantiles([2.0, 1.0], [1, 3], (0.5, 1.0))
    (1.0, 2.0)
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    upto = list(accumulate(counts[at] for at in order))
    if not upto or not upto[-1]:
        raise TooFewSamplesError("a percentile needs at least one value; there are none")
    found = []
    for q in fractions:
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"quantile {q} is outside 0..1")
        position = (upto[-1] - 1) * q
        below = math.floor(position)
        ranks = below, min(below + 1, upto[-1] - 1)
        low, high = (values[order[bisect_right(upto, rank)]] for rank in ranks)
        found.append(low + (position - below) * (high - low))
    return tuple(found)


# two-sided 95 % points of Student's t by degrees of freedom; beyond the last, the normal's
_T_95: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
                2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)  # fmt: skip
_NORMAL_95: Final = 1.959964


def mean_interval(values: Sequence[float]) -> Interval | None:
    """A 95 % interval for the mean of independent values; None below two.

    Formula:  mean ± t(n - 1) · s / √n
    Ignores:  that values may not be normal
    Source:   Student 1908, The probable error of a mean; the table is that of any handbook
    """
    if len(values) < 2:
        return None
    freedom = len(values) - 1
    t = _T_95[freedom - 1] if freedom <= len(_T_95) else _NORMAL_95
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / freedom)
    half = t * spread / math.sqrt(len(values))
    return Interval(mean - half, mean + half, 0.95)


def proportion_interval(num_successes: int, num_trials: int) -> Interval | None:
    """A 95 % interval for a proportion; None without trials.

    Formula:  (p + z²/2n ± z · √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)
    Ignores:  dependence between trials
    Raises:   ValueError for successes outside 0..trials
    Source:   Wilson 1927, Probable inference, the law of succession, and statistical inference

    >>> round(proportion_interval(0, 10).high, 3), round(proportion_interval(10, 10).low, 3)
    (0.278, 0.722)
    """
    if num_trials < 1:
        return None
    if not 0 <= num_successes <= num_trials:
        raise ValueError(f"{num_successes} successes of {num_trials} trials cannot be")
    return wilson_interval(num_successes, num_trials, _NORMAL_95, 0.95)


def wilson_interval(num_successes: float, num_trials: float, z: float, confidence: float) -> Interval:
    """The same at any confidence, of counts that need not be whole; z is the normal's two-sided point of it."""
    share, z_squared = num_successes / num_trials, z * z
    middle = share + z_squared / (2 * num_trials)
    half = z * math.sqrt(share * (1 - share) / num_trials + z_squared / (4 * num_trials**2))
    scale = 1 + z_squared / num_trials
    return Interval(max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale), confidence)


def median(values: Iterable[float]) -> float:
    """The middle value; see `quantile`."""
    return quantile(values, 0.5)


def relative_spread(values: Sequence[float]) -> float | None:
    """Half the interquartile range as a fraction of the median; None below four values or at median 0.

    Formula:  (q75 - q25) / (2 · median)
    Unit:     fraction
    """
    if len(values) < 4 or (middle := median(values)) == 0:
        return None
    return (quantile(values, 0.75) - quantile(values, 0.25)) / (2 * abs(middle))


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided interval and the confidence it was built for."""

    low: float
    high: float
    confidence: float


def quantile_interval(values: Sequence[float], q: float, confidence: float = 0.95) -> Interval | None:
    """A distribution-free interval for a quantile, between two order statistics of the sample.

    Formula:  the tightest symmetric ranks r < s with P(r <= Binomial(n, q) < s) >= confidence
    Ignores:  dependence between samples
    Raises:   ValueError for q or confidence outside 0..1
    Source:   David and Nagaraja, Order Statistics, 3rd ed., section 7.1

    Returns None when the sample is too small for that confidence: five values cannot bound a median
    at 95 %, and 200 cannot bound a p99.
    """
    return sorted_quantile_interval(sorted(values), q, confidence)


def sorted_quantile_interval(ordered: Sequence[float], q: float, confidence: float = 0.95) -> Interval | None:
    """The same of values that are in order already.

    Raises:   ValueError for q or confidence outside 0..1
    """
    if not (0.0 < q < 1.0 and 0.0 < confidence < 1.0):
        raise ValueError(f"quantile {q} and confidence {confidence} must lie inside 0..1")
    count = len(ordered)
    tail = (1.0 - confidence) / 2
    cumulative, low_rank, high_rank = 0.0, None, None
    for successes in range(_least_successes(count, q), count + 1):
        before = cumulative
        cumulative += _binomial_probability(count, successes, q)
        if before <= tail < cumulative:
            low_rank = successes
        if cumulative >= 1.0 - tail:
            high_rank = successes + 1
            break
    if not low_rank or high_rank is None or high_rank > count:
        return None
    return Interval(ordered[low_rank - 1], ordered[high_rank - 1], confidence)


def _least_successes(count: int, q: float) -> int:
    """Where a binomial begins to matter: below it lies less than 1e-15, what rounding takes anyway."""
    return max(0, math.floor(count * q - 12 * math.sqrt(count * q * (1 - q)) - 20))


def _binomial_probability(count: int, successes: int, q: float) -> float:
    log = math.lgamma(count + 1) - math.lgamma(successes + 1) - math.lgamma(count - successes + 1)
    return math.exp(log + successes * math.log(q) + (count - successes) * math.log1p(-q))
