"""When do requests arrive where the rate changes with time: a ramp, or steps.

In:   rates and how long they last
Out:  processes with the same face as those of a fixed rate (arrivals.Arrivals)
Leaves out: processes of a fixed mean rate (arrivals)
Read next by: arrival_forms, arrival_proof.

The rate changes with time and not with the number of requests. Requests are laid out on a clock on which they come at
one a unit, Poisson or evenly, and each is moved to the time at which that many were due: the exact inverse of the
cumulative rate, so there is no rejection and no drift.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.workload.checks import require_not_negative, require_positive

_PER_SECOND: Final = "requests/s"
_MOST_STEPS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Ramp:
    """A rate that changes linearly with time, and then stays.

    Formula:  λ(t) = a + (b - a) t / T up to T, then b; Λ(t) = a t + (b - a) t² / (2 T), then Λ(T) + b (t - T);
              request k arrives at Λ⁻¹(u_k), u_k the sum of k draws expovariate(1), or k itself where even
    Where:    a = from_rate, b = to_rate, T = span_s; is_even leaves nothing to chance
    Unit:     requests per second, seconds
    Raises:   RequestError for a rate that is negative or not finite, a to_rate or span of 0
    """

    from_rate: float
    to_rate: float
    span_s: float
    is_even: bool = False

    def __post_init__(self) -> None:
        require_not_negative(self.from_rate, "rate at the start of the ramp", _PER_SECOND)
        require_positive(self.to_rate, "rate at the end of the ramp", _PER_SECOND)
        require_positive(self.span_s, "duration of the ramp", "s")

    @property
    def name(self) -> str:
        """The process in words."""
        return (
            f"{_spacing(self.is_even)} ramp from {self.from_rate:g} to {self.to_rate:g} requests/s in {self.span_s:g} s"
        )

    @property
    def mean_rate(self) -> float:
        """Arrivals a second while the rate changes."""
        return (self.from_rate + self.to_rate) / 2

    @property
    def most_rate(self) -> float:
        """The highest rate there is."""
        return max(self.from_rate, self.to_rate)

    def count_by(self, time_s: float) -> float:
        """How many arrivals are expected by this time: the cumulative rate."""
        if time_s <= 0:
            return 0.0
        within_s = min(time_s, self.span_s)
        slope = (self.to_rate - self.from_rate) / self.span_s
        return self.from_rate * within_s + slope * within_s**2 / 2 + self.to_rate * (time_s - within_s)

    def time_of(self, count: float) -> float:
        """When so many arrivals are due: the inverse of `count_by`."""
        within = self.mean_rate * self.span_s
        if count >= within:
            return self.span_s + (count - within) / self.to_rate
        slope = (self.to_rate - self.from_rate) / self.span_s
        return 2 * count / (self.from_rate + math.sqrt(max(0.0, self.from_rate**2 + 2 * slope * count)))

    def times_s(self, rng: Random) -> Iterator[float]:
        """See `arrivals.Arrivals`."""
        return map(self.time_of, _counts(rng, self.is_even))

    def stretched(self, factor: float) -> Ramp:
        """See `arrivals.Arrivals`."""
        return replace(
            self, from_rate=self.from_rate / factor, to_rate=self.to_rate / factor, span_s=self.span_s * factor
        )


@dataclass(frozen=True, slots=True)
class Steps:
    """Rates that each hold for the same time; the last one stays.

    Formula:  request k arrives at Λ⁻¹(u_k), Λ the sum of rate times time; u_k as in `Ramp`
    Unit:     requests per second, seconds
    Raises:   RequestError for a rate that is negative or not finite, a last rate of 0, no rate, or a step of 0 s
    """

    rates: tuple[float, ...]
    step_s: float
    is_even: bool = False

    def __post_init__(self) -> None:
        if not 1 <= len(self.rates) <= _MOST_STEPS:
            raise RequestError(f"{len(self.rates)} rates are no steps; give 1 to {_MOST_STEPS}")
        for rate in self.rates:
            require_not_negative(rate, "rate of a step", _PER_SECOND)
        require_positive(self.rates[-1], "rate of the last step", _PER_SECOND)
        require_positive(self.step_s, "duration of a step", "s")

    @property
    def span_s(self) -> float:
        """How long all steps take.

        Unit:     seconds
        """
        return self.step_s * len(self.rates)

    @property
    def name(self) -> str:
        """The process in words."""
        first, last = self.rates[0], self.rates[-1]
        return f"{_spacing(self.is_even)} steps of {self.step_s:g} s, {len(self.rates)} from {first:g} to {last:g} requests/s"

    @property
    def mean_rate(self) -> float:
        """Arrivals a second over all steps."""
        return sum(self.rates) / len(self.rates)

    @property
    def most_rate(self) -> float:
        """The highest rate there is."""
        return max(self.rates)

    def count_by(self, time_s: float) -> float:
        """How many arrivals are expected by this time: the cumulative rate."""
        if time_s <= 0:
            return 0.0
        step = min(int(time_s / self.step_s), len(self.rates) - 1)
        return sum(self.rates[:step]) * self.step_s + self.rates[step] * (time_s - step * self.step_s)

    def times_s(self, rng: Random) -> Iterator[float]:
        """See `arrivals.Arrivals`."""
        dues = list(accumulate((rate * self.step_s for rate in self.rates), initial=0.0))
        step, last = 0, len(self.rates) - 1
        for count in _counts(rng, self.is_even):
            while step < last and count > dues[step + 1]:
                step += 1
            yield step * self.step_s + (count - dues[step]) / self.rates[step]

    def stretched(self, factor: float) -> Steps:
        """See `arrivals.Arrivals`."""
        return replace(self, rates=tuple(rate / factor for rate in self.rates), step_s=self.step_s * factor)


def _spacing(is_even: bool) -> str:
    return "even" if is_even else "poisson"


def _counts(rng: Random, is_even: bool) -> Iterator[float]:
    """The arrivals on the clock on which they come at one a unit."""
    count, draw = 0.0, rng.expovariate
    while True:
        count += 1.0 if is_even else draw(1.0)
        yield count
