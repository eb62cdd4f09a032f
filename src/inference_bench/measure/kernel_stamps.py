"""When did the bytes of a read reach this machine: the kernel's own receive stamps, put on the run's clock.

In:   a socket, the ancillary data of a read, samples of two clocks
Out:  a stamp in nanoseconds of the realtime clock, and seconds of the run's clock that it stands for
Leaves out: reading (see kernel_wire.py); hardware stamps of a network card, and stamps of what is sent

A program that is busy reads late, and a stamp taken by the program is late with it; the kernel's is not. It is the
stamp of the last segment that the read covers, on the realtime clock, which may be stepped while a run goes on. So both
clocks are sampled at the end of each round of reads, and a stamp is believed only where the two have run alike since
before it.
Read next by: read_rounds, kernel_wire.
"""

from __future__ import annotations

import math
import platform
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from inference_bench.units import GIGA

SO_TIMESTAMPNS: Final = 35  # asm-generic/socket.h; the type of the ancillary message has the same number
STAMP: Final = struct.Struct("@ll")  # struct timespec: seconds, nanoseconds
STAMP_BYTES: Final = 64  # room for one message with its header, on every platform
WIDEST_BRACKET_S: Final = 20e-6  # a wider one was interrupted, and says less than the one before it
STEP_S: Final = 100e-6  # clocks that part by more were set, not steered ...
STEER_FRACTION: Final = 1e-3  # ... or by more than this share of the time between; 500 ppm is the most a kernel slews

_new: Final = tuple.__new__  # makes a named tuple in a third of the time
_OTHER_NUMBERS: Final = ("sparc", "parisc")  # where the option has another number


class StampSource(StrEnum):
    """Who says when bytes arrived."""

    KERNEL = "kernel"
    USER = "user"  # this program, once it has read them


class Bracket(NamedTuple):
    """The realtime clock, read between two readings of the run's clock."""

    before_s: float
    realtime_ns: int
    after_s: float


Sample: TypeAlias = tuple[float, int, float]  # a Bracket, or the same without names: one is taken at every read


def ask_for_stamps(connection: socket.socket) -> bool:
    """Ask the kernel to stamp what this socket receives; False where it will not.

    Source:   Linux, Documentation/networking/timestamping.rst, SO_TIMESTAMPNS
    """
    if sys.platform != "linux" or platform.machine().startswith(_OTHER_NUMBERS) or not hasattr(connection, "recvmsg"):
        return False
    try:
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


@contextmanager
def keep_stamping() -> Iterator[None]:
    """Have the kernel go on stamping between connections: it begins a moment after the first socket asks for it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        ask_for_stamps(asking)
        yield


def parse_stamp_ns(ancillary: Sequence[tuple[int, int, bytes]]) -> int | None:
    """The receive stamp in a read's ancillary data; None where there is none.

    Unit:     nanoseconds of the realtime clock
    """
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) >= STAMP.size:
            seconds, nanoseconds = STAMP.unpack_from(data)
            return seconds * GIGA + nanoseconds  # type: ignore[no-any-return]
    return None


def take_bracket(clock: Callable[[], float], realtime_ns: Callable[[], int]) -> Bracket:
    """Both clocks now."""
    return Bracket(clock(), realtime_ns(), clock())


class ClockView(NamedTuple):
    """How the realtime clock stood to the run's clock when both were last sampled.

    Where:    read_s is just before that sample; stamps from steady_s up to latest_s are believed; the clock is ahead by
              ahead_s, counted from base_ns
    """

    read_s: float
    latest_s: float
    steady_s: float
    ahead_s: float
    base_ns: int

    def map(self, stamp_ns: int) -> float | None:
        """The stamp on the run's clock; None where a step of the realtime clock may lie between it and the sample.

        Formula:  stamp - (realtime - run clock), both sampled at the end of the read
        Where:    a stamp from before the clocks were known to agree, or from after the sample, is not believed; nor is
                  any while, since the last step, the clocks were only read with an interruption in between
        Unit:     seconds
        """
        time_s = (stamp_ns - self.base_ns) / GIGA - self.ahead_s
        if not self.steady_s <= time_s <= self.latest_s:
            return None
        return time_s if time_s < self.read_s else self.read_s


class ClockMap:
    """From the realtime clock to the run's clock, for stamps in the order of their reads.

    Where:    view is how the clocks stood at the last sample
    """

    def __init__(self, first: Bracket) -> None:
        self._base_ns = first.realtime_ns
        self._last_s = first.after_s
        self._low_s, self._high_s = -first.after_s, -first.before_s  # how far the realtime clock is ahead
        self._ahead_s = (self._low_s + self._high_s) / 2
        self._is_known = self._high_s - self._low_s <= WIDEST_BRACKET_S
        self._steady_since_s = first.before_s
        self.view = self._look(first)

    def see(self, bracket: Sample) -> None:
        """Take in a newer sample; clocks that have parted since the last one were stepped in between."""
        before_s, realtime_ns, after_s = bracket
        realtime_s = (realtime_ns - self._base_ns) / GIGA
        low_s, high_s = realtime_s - after_s, realtime_s - before_s
        slack_s = STEP_S + STEER_FRACTION * (after_s - self._last_s)
        least_s, most_s = self._low_s - slack_s, self._high_s + slack_s
        has_stepped, is_narrow = low_s > most_s or high_s < least_s, high_s - low_s <= WIDEST_BRACKET_S
        if has_stepped:
            self._steady_since_s = after_s
        if has_stepped or is_narrow:
            self._ahead_s, self._is_known = (low_s + high_s) / 2, is_narrow
        else:
            low_s, high_s = max(low_s, least_s), min(high_s, most_s)
            self._ahead_s = min(max(self._ahead_s, low_s), high_s)
        self._low_s, self._high_s, self._last_s = low_s, high_s, after_s
        self.view = self._look(bracket)

    def _look(self, bracket: Sample) -> ClockView:
        steady_s = self._steady_since_s if self._is_known else math.inf
        latest_s = bracket[2] + WIDEST_BRACKET_S
        return _new(ClockView, (bracket[0], latest_s, steady_s, self._ahead_s, self._base_ns))
