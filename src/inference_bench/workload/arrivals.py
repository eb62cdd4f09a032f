"""When are the requests sent: in turn with the answers, or on a schedule of their own.

In:   a rate and how even the arrivals are, or times
Out:  ClosedLoop or OpenLoop; arrival processes, each of which knows its own mean rate
Leaves out: how long the requests are (lengths), and how even a schedule really is (burstiness)
Read next by: arrival_forms, generate, measure.load, simulate.

A closed loop waits for answers, so a slow server is asked less often; an open loop does not wait. They answer different
questions and are never taken for one another. A process draws from one generator that it is given, so that a seed
fixes the schedule.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from random import Random
from typing import Final, Protocol, Self

from inference_bench.errors import RequestError
from inference_bench.units import TERA
from inference_bench.workload.checks import (
    MOST_SPAN_S,
    require_count,
    require_fraction,
    require_not_negative,
    require_positive,
)

_CV_RANGE: Final = (0.01, 100.0)
MOST_SCHEDULED_RATE: Final = float(TERA)  # requests/s that times may stand for: bursts, and draws of a high rate
_MOST_SILENT: Final = 100_000  # periods without an arrival, one after the other
_PER_SECOND: Final = "requests/s"


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """So many requests at once; the next is sent as soon as one ends, or think_s after it.

    Unit:     think_s in seconds
    Ignores:  how fast users would have sent: a slow server is asked less often
    Raises:   RequestError for a number below one, or a think time that is negative or not finite
    """

    concurrency: int
    num_requests: int
    think_s: float = 0.0

    def __post_init__(self) -> None:
        require_count(self.concurrency, "concurrency")
        require_count(self.num_requests, "number of requests")
        require_not_negative(self.think_s, "think time", "s")
        if self.thinking_s > MOST_SPAN_S:
            raise RequestError(
                f"{self.num_requests} requests of {self.concurrency} users with {self.think_s:g} s between them take "
                f"{self.thinking_s:g} s of thinking alone; a run lasts {MOST_SPAN_S:g} s at most"
            )

    @property
    def thinking_s(self) -> float:
        """How long the run lasts where every answer comes at once.

        Formula:  think time · (requests a user - 1)
        Unit:     seconds
        """
        return self.think_s * ((self.num_requests - 1) // self.concurrency)

    def __len__(self) -> int:
        return self.num_requests


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests sent at given times, whether or not earlier ones were answered.

    Where:    times_s counts from the start of the run; process says where they come from, in words; nominal_rate is
              what was asked for, None where nothing was (a replay); drawn_from is the process itself where the times
              are draws of one and nothing else, by which a run's sends are judged
    Unit:     seconds, requests per second
    Raises:   RequestError for no time, or one that is not finite, negative, or before the one in front of it; for times so
              far apart that a clock would lose a step, or so close that there is no rate
    """

    times_s: array[float]
    process: str
    nominal_rate: float | None = None
    drawn_from: Arrivals | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.times_s:
            raise RequestError("the schedule has no arrival time; give at least one")
        if self.nominal_rate is not None:
            require_positive(self.nominal_rate, "nominal rate", _PER_SECOND)
        if not all(map(math.isfinite, self.times_s)):
            index = next(index for index, time_s in enumerate(self.times_s) if not math.isfinite(time_s))
            raise RequestError(f"arrival {index} (counted from 0) is at {self.times_s[index]} s; give finite times")
        if self.times_s[0] < 0:
            raise RequestError(f"the first arrival is at {self.times_s[0]} s; times start at 0 or later")
        if list(self.times_s) != sorted(self.times_s):
            _refuse_backward(self.times_s)
        _refuse_span(self.times_s)

    def __len__(self) -> int:
        return len(self.times_s)

    @property
    def realised_rate(self) -> float | None:
        """How many requests a second the schedule really holds.

        Formula:  number of requests / time of the last arrival
        Unit:     requests per second; None when all arrive at 0
        """
        last_s = self.times_s[-1]
        rate = len(self.times_s) / last_s if last_s > 0 else math.inf
        return rate if math.isfinite(rate) else None


def _refuse_backward(times_s: array[float]) -> None:
    index = next(index for index, (before, after) in enumerate(pairwise(times_s), start=1) if after < before)
    raise RequestError(
        f"arrival {index} (counted from 0) is at {times_s[index]} s, before the one in front of it at "
        f"{times_s[index - 1]} s; sort the arrivals by time"
    )


def _refuse_span(times_s: array[float]) -> None:
    last_s = times_s[-1]
    if last_s > MOST_SPAN_S:
        raise RequestError(
            f"the last arrival is at {last_s:g} s; times count from the start of the run and end at {MOST_SPAN_S:g} s at the "
            "latest, so that steps can be told apart: take the first from all times, or ask for a higher rate"
        )
    if 0 < last_s < len(times_s) / MOST_SCHEDULED_RATE:
        raise RequestError(
            f"the last of {len(times_s)} arrivals is at {last_s:g} s, which is no rate that can be kept: at most "
            f"{MOST_SCHEDULED_RATE:g} requests/s; let them all arrive at 0, or ask for a lower rate"
        )


class Arrivals(Protocol):
    """A process that says when requests arrive."""

    @property
    def name(self) -> str:
        """The process and its parameters, in words."""

    @property
    def mean_rate(self) -> float:
        """Arrivals a second in the long run, or while the rate of a ramp or of steps changes.

        Unit:     requests per second
        """

    def times_s(self, rng: Random) -> Iterator[float]:
        """Arrival times from 0 on, without end; each draws what it needs from `rng` when it is asked for.

        Unit:     seconds
        """

    def stretched(self, factor: float) -> Arrivals:
        """The process whose times are these times the factor."""


@dataclass(frozen=True, slots=True)
class _AtRate:
    """A process that is said by its rate."""

    rate: float

    def __post_init__(self) -> None:
        require_positive(self.rate, "rate", _PER_SECOND)

    @property
    def mean_rate(self) -> float:
        """Arrivals a second in the long run."""
        return self.rate

    def stretched(self, factor: float) -> Self:
        """See `Arrivals`."""
        return replace(self, rate=self.rate / factor)


@dataclass(frozen=True, slots=True)
class Poisson(_AtRate):
    """Arrivals that know nothing of each other: many users, each asking rarely.

    Formula:  gap = expovariate(rate)
    Raises:   RequestError for a rate that is not finite and above zero
    """

    @property
    def name(self) -> str:
        """The process in words."""
        return "poisson"

    def times_s(self, rng: Random) -> Iterator[float]:
        """See `Arrivals`."""
        now_s, draw, rate = 0.0, rng.expovariate, self.rate
        while True:
            now_s += draw(rate)
            yield now_s


@dataclass(frozen=True, slots=True)
class GammaArrivals(_AtRate):
    """Arrivals with gamma gaps: more even than Poisson below a coefficient of variation of 1, burstier above.

    Formula:  gap = gammavariate(1 / cv², cv² / rate), of mean 1 / rate and standard deviation cv / rate
    Raises:   RequestError for a rate that is not finite and above zero, or a cv outside 0.01 to 100
    """

    cv: float

    def __post_init__(self) -> None:
        _AtRate.__post_init__(self)
        require_positive(self.cv, "coefficient of variation of the gaps")
        low, high = _CV_RANGE
        if not low <= self.cv <= high:
            raise RequestError(
                f"the coefficient of variation of the gaps is {self.cv!r}; it must lie between {low} and {high:g} "
                "(constant arrivals have 0)"
            )

    @property
    def name(self) -> str:
        """The process in words."""
        return f"gamma with cv {self.cv:g}"

    def times_s(self, rng: Random) -> Iterator[float]:
        """See `Arrivals`."""
        now_s, draw = 0.0, rng.gammavariate
        shape, scale_s = 1 / self.cv**2, self.cv**2 / self.rate
        while True:
            now_s += draw(shape, scale_s)
            yield now_s


@dataclass(frozen=True, slots=True)
class Constant(_AtRate):
    """Arrivals at equal gaps, without drift and without a draw.

    Formula:  request i, counted from 1, arrives at i / rate
    Raises:   RequestError for a rate that is not finite and above zero
    """

    @property
    def name(self) -> str:
        """The process in words."""
        return "constant"

    def times_s(self, rng: Random) -> Iterator[float]:  # noqa: ARG002 (every process is given one; this draws nothing)
        """See `Arrivals`; `rng` is not touched."""
        rate = self.rate
        return (number / rate for number in count(1))


@dataclass(frozen=True, slots=True)
class OnOff:
    """Bursts: Poisson arrivals at one rate while on and at another, usually none, while off.

    Formula:  mean rate = (rate_on · on_s + rate_off · off_s) / (on_s + off_s)
    Where:    on_s and off_s are mean durations; each period's duration is drawn from an exponential distribution, and
              the run starts in a period drawn by its share of time: a Markov-modulated Poisson process of two states
    Unit:     requests per second, seconds
    Raises:   RequestError for a rate_on, on_s or off_s that is not finite and above zero, or a negative rate_off
    """

    rate_on: float
    on_s: float
    off_s: float
    rate_off: float = 0.0

    def __post_init__(self) -> None:
        require_positive(self.rate_on, "rate while on", _PER_SECOND)
        require_positive(self.on_s, "mean duration of on periods", "s")
        require_positive(self.off_s, "mean duration of off periods", "s")
        require_not_negative(self.rate_off, "rate while off", _PER_SECOND)

    @classmethod
    def of_mean_rate(cls, rate: float, on_s: float, off_s: float, off_share: float = 0.0) -> OnOff:
        """Bursts whose mean rate is `rate`; off_share is the rate while off as a share of the rate while on.

        Raises:   RequestError
        """
        require_positive(rate, "rate", _PER_SECOND)
        require_positive(on_s, "mean duration of on periods", "s")
        require_positive(off_s, "mean duration of off periods", "s")
        require_fraction(off_share, "rate while off as a share of the rate while on")
        rate_on = rate * (on_s + off_s) / (on_s + off_share * off_s)
        return cls(rate_on, on_s, off_s, off_share * rate_on)

    @property
    def name(self) -> str:
        """The process in words."""
        off = f" at {self.rate_off:g}/s" if self.rate_off else ""
        return f"on-off: on {self.on_s:g} s at {self.rate_on:g}/s, off {self.off_s:g} s{off}"

    @property
    def mean_rate(self) -> float:
        """Arrivals a second in the long run."""
        return (self.rate_on * self.on_s + self.rate_off * self.off_s) / (self.on_s + self.off_s)

    def stretched(self, factor: float) -> OnOff:
        """See `Arrivals`."""
        return OnOff(self.rate_on / factor, self.on_s * factor, self.off_s * factor, self.rate_off / factor)

    def times_s(self, rng: Random) -> Iterator[float]:
        """See `Arrivals`.

        Raises:   RequestError where periods follow one another and none brings an arrival
        """
        now_s, is_on = 0.0, rng.random() * (self.on_s + self.off_s) < self.on_s
        silent = 0
        while True:
            end_s = now_s + rng.expovariate(1 / (self.on_s if is_on else self.off_s))
            rate = self.rate_on if is_on else self.rate_off
            while rate and (now_s := now_s + rng.expovariate(rate)) < end_s:
                silent = 0
                yield now_s
            now_s, is_on, silent = end_s, not is_on, silent + 1
            if silent >= _MOST_SILENT:
                raise RequestError(
                    f"{silent:,} periods in a row brought no request ({self.name}); give longer periods or a higher rate"
                )


def open_loop(times_s: Iterable[float], process: str = "given", nominal_rate: float | None = None) -> OpenLoop:
    """An open loop from times in any iterable; see `OpenLoop`."""
    return OpenLoop(array("d", times_s), process, nominal_rate)
