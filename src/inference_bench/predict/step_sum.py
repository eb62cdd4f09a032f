"""Sums of many steps whose work grows from one to the next, without pricing each of them.

In:   what step i costs, as a function of i, and how many steps
Out:  StepSum: seconds, how many steps were priced, and how closely the others were known
Leaves out: what a step is
Read next by: latency.

Over a growing context every arm of a bound is a straight line until a window fills, and a fitted model a smooth curve.
So a piece is summed in closed form, as the polynomial of degree 4 through five of its steps, if that polynomial also
gives its other samples; otherwise the piece is halved, and a short one is summed term by term. Where a cost has too many
corners to follow (a cache that grows a row every few tokens) the tolerance widens tenfold with each `_PATIENCE` prices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from inference_bench.errors import RequestError

CLOSE_TOLERANCE: Final = 1e-10
_CLOSE_PRICES: Final = 1300
_PATIENCE: Final = 100
_WIDENINGS: Final = 6  # up to 1e-4
_MOST_PRICES: Final = 1_000_000
_TERM_BY_TERM: Final = 16
_SAMPLES: Final = (0.0711, 0.1618, 0.3819, 0.6443, 0.8277, 0.9391)  # between the nodes, and in step with no period


@dataclass(frozen=True, slots=True)
class StepSum:
    """The time of many steps in a row.

    Where:  tolerance is the relative difference that a sampled step may have from its price; num_priced is how many
            steps were priced
    """

    seconds: float
    num_priced: int
    tolerance: float


def sum_steps(price: Callable[[int], float], num_steps: int) -> StepSum:
    """The sum of price(0) + ... + price(num_steps - 1).

    Unit:    seconds, within the tolerance it states
    Raises:  RequestError for a price that is not a finite time of zero or more, or a sum of too many corners
    """
    known = _Known(price)
    seconds = math.fsum(_pieces(known, 0, num_steps))
    return StepSum(seconds, len(known.prices), known.widest)


@dataclass(slots=True)
class _Known:
    """Prices asked for so far."""

    price: Callable[[int], float]
    prices: dict[int, float] = field(default_factory=dict)
    widest: float = CLOSE_TOLERANCE

    def __call__(self, index: int) -> float:
        if index not in self.prices:
            if len(self.prices) >= _MOST_PRICES:
                raise RequestError(f"more than {_MOST_PRICES} steps would have to be priced; ask for fewer tokens")
            self.prices[index] = checked_seconds(self.price(index))
        return self.prices[index]

    def tolerance(self) -> float:
        waited = max(0, len(self.prices) - _CLOSE_PRICES) // _PATIENCE
        return CLOSE_TOLERANCE * 10.0 ** min(waited, _WIDENINGS)


def checked_seconds(seconds: float) -> float:
    """A step's time.

    Raises:  RequestError unless it is finite and not negative
    """
    if not 0 <= seconds < math.inf:
        raise RequestError(f"a step of {seconds} s is no time; the model of step times must give a finite one")
    return seconds


def _pieces(known: _Known, start: int, count: int) -> list[float]:
    """Sums of pieces that together are steps start .. start + count - 1."""
    found: list[float] = []
    waiting = [(start, count)]
    while waiting:
        first, length = waiting.pop()
        if length <= _TERM_BY_TERM:
            found += [known(index) for index in range(first, first + length)]
            continue
        while length % 4 != 1:  # so that five nodes, evenly spaced, fall on steps
            length -= 1
            found.append(known(first + length))
        smooth = _smooth_sum(known, first, length)
        if smooth is None:
            waiting += [(first + length // 2, length - length // 2), (first, length // 2)]
        else:
            found.append(smooth)
    return found


def _smooth_sum(known: _Known, first: int, length: int) -> float | None:
    """The piece in closed form, or None where a sample is off the polynomial.

    Formula:  n·e0 + n(n+1)/(3(n-1))·e2 + n(n+1)(3n²-7)/(15(n-1)³)·e4, e the even part in x = -1..1
    """
    last = length - 1
    low, left, middle, right, high = (known(first + last * quarter // 4) for quarter in range(5))
    half, whole = (right + left) / 2 - middle, (high + low) / 2 - middle
    even = (middle, (16 * half - whole) / 3, (4 * whole - 16 * half) / 3)
    half, whole = (right - left) / 2, (high - low) / 2
    odd = (8 * half - whole) / 3, (4 * whole - 8 * half) / 3
    tolerance = known.tolerance()
    for share in _SAMPLES:
        step = round(share * last)
        x = 2 * step / last - 1
        expected = even[0] + x * (odd[0] + x * (even[1] + x * (odd[1] + x * even[2])))
        actual = known(first + step)
        if abs(expected - actual) > tolerance * actual:
            return None
    known.widest = max(known.widest, tolerance)
    second = length * (length + 1) / (3 * last)
    fourth = second * (3 * length**2 - 7) / (5 * last**2)
    return length * even[0] + second * even[1] + fourth * even[2]
