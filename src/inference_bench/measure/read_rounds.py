"""How are many sockets read at the cost of few wake-ups: together, and not at once where the kernel has stamped what came.

In:   sockets that ask the kernel for stamps, each with what reads it
Out:  a call for each socket that has something, in rounds: one wake-up and one sample of both clocks for all of them
Leaves out: reading (kernel_wire), what a stamp means (kernel_stamps)

To be woken costs several times what a read does. The kernel's stamp does not grow older by waiting, so where many slow
streams are read, what comes is let gather for a millisecond. Nothing is lost as long as no stream brings two events
within that time: Linux keeps only the last stamp of what waits together. So streams are watched: events close to each
other end the gathering at once, and many reads far apart have to be seen before it begins again. While somebody waits
for an answer before it can go on (a TLS handshake), nothing gathers.
Read next by: kernel_wire, http1.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Callable
from typing import Final, TypeAlias

from inference_bench.measure.kernel_stamps import ClockMap, ClockView, take_bracket

GATHER_S: Final = 0.001  # the shortest sleep of an event loop
SHORT_S: Final = 4 * GATHER_S  # events of one stream this close to each other leave too little room
DENSE_S: Final = GATHER_S / 2  # reads further apart than this on average have nobody to be read with
MOST_IN_ROUND: Final = 32  # sockets, so that the clocks are sampled close to every read

_COUNTED: Final = 64  # reads from one look at how dense they are to the next
_SHORT_COST: Final = 128  # reads far apart for each one that is not
_MOST_SCORE: Final = 1024
_TOO_MANY: Final = 512


class Round:
    """What the reads of one round have in common.

    Where:    begin_s is just before it: what comes later may not be in it; view is how both clocks stood at its end;
              num_short counts reads that brought events close to each other, less those of replies that have ended
    """

    __slots__ = ("begin_s", "num_short", "view")

    def __init__(self, begin_s: float, view: ClockView) -> None:
        self.begin_s, self.view, self.num_short = begin_s, view, 0


Reader: TypeAlias = Callable[[Round], None]


class Gathering:
    """For how long events are let gather: not at all until so many reads were far apart and dense.

    Where:    now_s is what is right now, longest_s the longest so far
    Unit:     seconds
    """

    def __init__(self, begin_s: float) -> None:
        self.now_s = self.longest_s = 0.0
        self._score = _MOST_SCORE
        self._is_dense = False
        self._num_reads, self._since_s = 0, begin_s

    def note(self, num_reads: int, num_short: int, time_s: float) -> None:
        """A round has ended; num_short of its reads had events close to each other, below 0 where earlier ones are forgiven."""
        self._num_reads += num_reads
        if self._num_reads >= _COUNTED:
            self._is_dense = time_s - self._since_s < self._num_reads * DENSE_S
            self._num_reads, self._since_s = 0, time_s
        self._score = min(_MOST_SCORE, max(0, self._score + num_short * _SHORT_COST - num_reads))
        if self._score > _TOO_MANY or not self._is_dense:
            self.now_s = 0.0
        elif not self._score:
            self.now_s = self.longest_s = GATHER_S


class ReadRounds:
    """The sockets of one load; those that are ready are read together."""

    def __init__(self, clock: Callable[[], float], realtime_ns: Callable[[], int] = time.time_ns) -> None:
        self.gathering = Gathering(clock())
        self._clock, self._realtime_ns = clock, realtime_ns
        self._clocks = ClockMap(take_bracket(clock, realtime_ns))
        self._readers: dict[int, Reader] = {}
        self._ready: select.epoll | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_watching = False
        self._num_urgent = 0

    def join(self, connection: socket.socket, read: Reader) -> None:
        """From now on call this when the socket has something."""
        self.compare_clocks()
        if self._ready is None:
            self._ready = select.epoll()
            self._watch()
        number = connection.fileno()
        self._ready.register(number, select.EPOLLIN)
        self._readers[number] = read

    def compare_clocks(self) -> None:
        """Somebody begins to wait: what comes is told by how the clocks stand from here on."""
        self._clocks.see(take_bracket(self._clock, self._realtime_ns))

    def leave(self, connection: socket.socket) -> None:
        """No more of this socket, which is still open; the last one takes everything along."""
        if self._ready is None or self._readers.pop(number := connection.fileno(), None) is None:
            return
        self._ready.unregister(number)
        if not self._readers:
            self._rest()
            self._ready.close()
            self._ready = None

    def hurry(self, change: int) -> None:
        """So many more (1) or fewer (-1) have to be read at once."""
        self._num_urgent += change
        if self._num_urgent and self._timer is not None:
            self._rest()
            self._watch()

    def _watch(self) -> None:
        if self._ready is not None and not self._is_watching:
            asyncio.get_running_loop().add_reader(self._ready.fileno(), self._on_ready)
            self._is_watching = True

    def _rest(self) -> None:
        """Neither watch nor wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ready is not None and self._is_watching:
            asyncio.get_running_loop().remove_reader(self._ready.fileno())
            self._is_watching = False

    def _on_ready(self) -> None:
        num_reads = self._read_round()
        if self.gathering.now_s and num_reads < MOST_IN_ROUND and not self._num_urgent and self._ready is not None:
            self._rest()
            self._timer = asyncio.get_running_loop().call_later(self.gathering.now_s, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        num_reads = 0
        try:
            num_reads = self._read_round()
        finally:
            if self._ready is not None:
                if 0 < num_reads < MOST_IN_ROUND and self.gathering.now_s and not self._num_urgent:
                    self._timer = asyncio.get_running_loop().call_later(self.gathering.now_s, self._on_time)
                else:
                    self._watch()

    def _read_round(self) -> int:
        """Read what is ready; how many sockets were."""
        if self._ready is None:
            return 0
        now = Round(self._clock(), self._clocks.view)
        ready, readers = self._ready.poll(0, MOST_IN_ROUND), self._readers
        try:
            for number, _ in ready:
                if (read := readers.get(number)) is not None:
                    read(now)
        finally:
            clock = self._clock
            self._clocks.see((clock(), self._realtime_ns(), clock()))
            now.view = self._clocks.view
        self.gathering.note(len(ready), now.num_short, now.begin_s)
        return len(ready)
