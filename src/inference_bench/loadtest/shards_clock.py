"""What time is it over there: another process's clock against this one, from messages to it and back.

In:   a function that asks the other for its clock
Out:  ClockCheck: the offset, how far it may be wrong, and whether the two clocks may be one
Leaves out: clocks that drift apart during a run: a part in a million or so, a millisecond in a quarter of an hour
Read next by: shards, ray_shards.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from inference_bench.errors import MeasurementError

_PINGS: Final = 16


@dataclass(frozen=True, slots=True)
class ClockCheck:
    """How another clock stands against this one.

    Where:    offset is to be added to the other's time to have this one's; is_shared: both read one clock, and the offset is 0
    Unit:     seconds
    """

    offset_s: float
    bound_s: float
    is_shared: bool


def check_clock(ask: Callable[[], float], *, same_machine: bool) -> ClockCheck:
    """The offset that all questions and answers allow.

    Formula:  asked at a, answered with w, heard at b: a - w <= offset <= b - w; the middle of what is left, and half its width
    Where:    on one machine an interval that holds 0 says that the clock is the system's own, which all its processes read
    Source:   Cristian 1989, Probabilistic clock synchronization
    Raises:   MeasurementError where no offset fits all answers: one of the clocks was stepped
    """
    low_s, high_s = float("-inf"), float("inf")
    for _ in range(_PINGS):
        asked_s = time.perf_counter()
        there_s = ask()
        heard_s = time.perf_counter()
        low_s, high_s = max(low_s, asked_s - there_s), min(high_s, heard_s - there_s)
    if low_s > high_s:
        raise MeasurementError(
            "the clock of another process was stepped while it was compared; its times cannot be used"
        )
    bound_s = (high_s - low_s) / 2
    if same_machine and low_s <= 0 <= high_s:
        return ClockCheck(0.0, bound_s, is_shared=True)
    return ClockCheck((low_s + high_s) / 2, bound_s, is_shared=False)


def shift_of(clock: Callable[[], float]) -> float:
    """What to add to perf_counter to have this clock.

    Unit:     seconds
    """
    tries = []
    for _ in range(_PINGS):
        before_s, at_s, after_s = time.perf_counter(), clock(), time.perf_counter()
        tries.append((after_s - before_s, at_s - (before_s + after_s) / 2))
    return min(tries)[1]
