"""How long does one call take? Raw values, warm-ups apart, each value well above the clock's resolution.

In:   a call without arguments, and a stopwatch: something that times a number of those calls in a row
Out:  RawTiming: seconds per call, every value kept
Leaves out: what the call did, and any judgement of the spread; the reader has the raw values.
Read next by: machine_kernels and gpu, which turn the times into rates.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from inference_bench.errors import MeasurementError
from inference_bench.stats import median, relative_spread

Clock = Callable[[], float]
Call = Callable[[], object]
Stopwatch = Callable[[Call, int], float]  # (call, times in a row) -> seconds for all of them

MIN_VALUE_S = 0.005  # every clock this runs on resolves a microsecond or better
_MAX_INNER_LOOPS = 1 << 20  # with MIN_VALUE_S, five nanoseconds a call: no Python call is that short


@dataclass(frozen=True, slots=True)
class RawTiming:
    """Seconds per call, as timed; a value is the mean over `inner_loops` calls in a row.

    Where:    warmup_values_s came first and count for nothing; the run that sets the loop count is among them
    Unit:     seconds per call
    """

    values_s: tuple[float, ...]
    warmup_values_s: tuple[float, ...]
    inner_loops: int

    @property
    def median_s(self) -> float:
        """The middle value."""
        return median(self.values_s)

    @property
    def spread_fraction(self) -> float | None:
        """Half the interquartile range over the median; None below four values."""
        return relative_spread(self.values_s)


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often to time a call: up to num_values, fewer when budget_s is spent, never below min_values."""

    num_values: int = 9
    min_values: int = 4
    num_warmups: int = 1
    min_value_s: float = MIN_VALUE_S
    budget_s: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.min_values <= self.num_values or self.num_warmups < 0 or self.min_value_s <= 0:
            raise ValueError(f"{self} cannot be timed: need 1 <= min_values <= num_values and a positive min_value_s")


def wall_clock(clock: Clock = time.perf_counter) -> Stopwatch:
    """A stopwatch that reads `clock` before the first call and after the last."""

    def elapsed_s(call: Call, num_calls: int) -> float:
        started = clock()
        for _ in range(num_calls):
            call()
        return clock() - started

    return elapsed_s


def time_calls(call: Call, repeats: Repeats | None = None, stopwatch: Stopwatch | None = None) -> RawTiming:
    """Warm up, choose how many calls make one value, then time values until enough are held.

    Where:    after the cold warm-ups the loop count doubles until one value lasts `repeats.min_value_s`; those
              tries count as warm-ups too
    Unit:     seconds per call
    Ignores:  the cost of the loop itself (tens of nanoseconds a call)
    Raises:   MeasurementError if the clock does not advance
    """
    repeats = repeats or Repeats()
    stopwatch = stopwatch or wall_clock()
    warmups = [_Run(1, stopwatch(call, 1)) for _ in range(repeats.num_warmups)]
    warmups += _calibrate(call, repeats.min_value_s, stopwatch)
    inner_loops = warmups[-1].num_calls
    spent_s = sum(run.elapsed_s for run in warmups)
    values_s: list[float] = []
    while len(values_s) < repeats.num_values:
        elapsed_s = stopwatch(call, inner_loops)
        values_s.append(elapsed_s / inner_loops)
        spent_s += elapsed_s
        is_next_too_late = repeats.budget_s is not None and spent_s + elapsed_s > repeats.budget_s
        if is_next_too_late and len(values_s) >= repeats.min_values:
            break
    return RawTiming(tuple(values_s), tuple(run.elapsed_s / run.num_calls for run in warmups), inner_loops)


@dataclass(frozen=True, slots=True)
class _Run:
    num_calls: int
    elapsed_s: float


def _calibrate(call: Call, min_value_s: float, stopwatch: Stopwatch) -> list[_Run]:
    """Runs of 1, 2, 4, ... calls up to the first that lasts long enough."""
    runs = [_Run(1, stopwatch(call, 1))]
    while runs[-1].elapsed_s < min_value_s:
        num_calls = 2 * runs[-1].num_calls
        if num_calls > _MAX_INNER_LOOPS:
            raise MeasurementError(
                f"{runs[-1].num_calls} calls in a row took {runs[-1].elapsed_s} s, less than {min_value_s} s: "
                "the clock stands still or the call does nothing"
            )
        runs.append(_Run(num_calls, stopwatch(call, num_calls)))
    return runs
