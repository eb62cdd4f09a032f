"""One percentile, one interval, one measure of spread: every statistic in the package comes from here.

In:   raw values, in any order
Out:  plain numbers, or None where the sample is too small for an honest answer
Read next by: metrics, measure, compare.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inference_bench.errors import TooFewSamplesError


def quantile(values: Iterable[float], q: float) -> float:
    """The q-quantile of pooled raw values, by linear interpolation between order statistics.

    Formula:  with n sorted values and h = (n - 1) · q, x[floor h] + (h - floor h) · (x[floor h + 1] - x[floor h])
    Raises:   TooFewSamplesError for no values; ValueError for q outside 0..1
    Source:   Hyndman and Fan 1996, definition 7 (the default of NumPy and R)

    >>> quantile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.5
    """
    ordered = sorted(values)
    if not ordered:
        raise TooFewSamplesError("a percentile needs at least one value; there are none")
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"quantile {q} is outside 0..1")
    position = (len(ordered) - 1) * q
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


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
    if not (0.0 < q < 1.0 and 0.0 < confidence < 1.0):
        raise ValueError(f"quantile {q} and confidence {confidence} must lie inside 0..1")
    count = len(values)
    tail = (1.0 - confidence) / 2
    cumulative, low_rank, high_rank = 0.0, None, None
    for successes in range(count + 1):
        before = cumulative
        cumulative += _binomial_probability(count, successes, q)
        if before <= tail < cumulative:
            low_rank = successes
        if high_rank is None and cumulative >= 1.0 - tail:
            high_rank = successes + 1
    if not low_rank or high_rank is None or high_rank > count:
        return None
    ordered = sorted(values)
    return Interval(ordered[low_rank - 1], ordered[high_rank - 1], confidence)


def _binomial_probability(count: int, successes: int, q: float) -> float:
    log = math.lgamma(count + 1) - math.lgamma(successes + 1) - math.lgamma(count - successes + 1)
    return math.exp(log + successes * math.log(q) + (count - successes) * math.log1p(-q))
