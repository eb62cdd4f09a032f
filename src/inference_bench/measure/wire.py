"""The receiving side of one connection: every read stamped and kept, the time limits watched.

In:   a clock, limits, and the bytes that a socket brings
Out:  the reads in order, each with the time it stands for
Leaves out: what the bytes mean (http1, openai_stream), and asking the kernel when they came (kernel_wire)

Reads that nobody takes pile up; whoever waits is woken for each of them, or, once `let_pile_up` was called, for one that
may be the last of the reply, for much at once, and at the end. Parsing one read at a time costs as much again as
receiving it, and it keeps the next socket waiting.

A wire may serve one reply after another: between two it rests, without time limits, and tells at once of whatever comes.

`AsyncioWire` works everywhere: the stamp is taken when asyncio hands a read over, before any parsing; all sockets that
are ready together are stamped before the first of them is parsed.
Read next by: kernel_wire, http1.
"""

from __future__ import annotations

import asyncio
import math
import os
import select
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, cast

from inference_bench.errors import RequestError
from inference_bench.units import KIBI

READ_BYTES: Final = 16 * KIBI  # small on purpose: asyncio's own 256 KiB buffer is allocated anew for every read
MOST_WAITING_BYTES: Final = 64 * KIBI

_PLAIN_ENDS: Final = (b"}\n\n\r\n", b"}\n\n")  # of one event and no [DONE], in a chunk of its own or without chunks
_LAST_CHUNK: Final = b"0\r\n\r\n"
_DONE: Final = b"[DONE]"
_END_BYTES: Final = 48  # [DONE] and what may follow it
_LINE_END: Final = b"\n"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait: to be connected, for the next byte (the first one included), and for the whole request.

    Raises:   RequestError for a limit that is not above zero
    """

    connect_s: float = 10.0
    idle_s: float = 120.0
    total_s: float = 900.0

    def __post_init__(self) -> None:
        for what, limit_s in (("connect", self.connect_s), ("idle", self.idle_s), ("total", self.total_s)):
            if not (0 < limit_s < math.inf):
                raise RequestError(f"the {what} time limit is {limit_s} s; it must be above 0 and finite")


class FailureKind(StrEnum):
    """Why an exchange broke off."""

    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed_out"
    LOST = "lost"  # the connection ended before the reply did
    BROKEN = "broken"  # not HTTP/1.1
    TOO_LARGE = "too_large"


class ExchangeError(Exception):
    """An exchange broke off; stays inside `measure`, where it becomes a record or a ServerError."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Read(NamedTuple):
    """What one read brought.

    Where:    time_s is when it arrived: the kernel's stamp of its last segment, or else read_s, when the read returned.
              drained_s is a time at which nothing of it had arrived: the read before it had left nothing
    """

    time_s: float
    data: bytes
    read_s: float
    drained_s: float
    is_kernel: bool


class Wire:
    """What the two ways to receive have in common: reads wait in order, and nothing is waited for too long.

    Where:    failure is how the connection broke off, None as long as it has not; is_renewed says that it has served before
    """

    def __init__(self, clock: Callable[[], float], timeouts: Timeouts, max_bytes: int) -> None:
        self._clock, self._timeouts, self._max_bytes = clock, timeouts, max_bytes
        self._news = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0  # when it looks next
        self._on_news: Callable[[Wire], None] | None = None  # who is told while this rests
        self._num_bytes = 0
        self._num_waiting_bytes = 0
        self._piles_up = self._was_cut = False
        self._deadline_s = clock() + timeouts.total_s
        self._last_s = clock()
        self.failure: ExchangeError | None = None
        self.is_renewed = False
        self.closed = asyncio.Event()

    def send(self, data: bytes) -> None:
        """Hand the request to the socket."""
        raise NotImplementedError

    def take(self) -> list[Read]:
        """The reads that wait, in order."""
        raise NotImplementedError

    def let_pile_up(self) -> None:
        """From now on do not wake whoever waits for every read."""
        self._piles_up = True

    @property
    def gather_s(self) -> float:
        """The longest that anything was let wait in the socket on purpose."""
        return 0.0

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.failure is not None or self.closed.is_set()

    async def wait(self) -> None:
        """Until there is something to take, or nothing more will come."""
        await self._news.wait()

    def wake(self) -> None:
        """Let whoever waits look again."""
        self._news.set()

    async def close(self) -> None:
        """Drop the connection and wait until the socket is gone."""
        raise NotImplementedError

    def rest(self, on_news: Callable[[Wire], None]) -> None:
        """From now on no time limit holds, and on_news is called for whatever comes, and at the end."""
        self._on_news, self._piles_up = on_news, False

    def renew(self, timeouts: Timeouts, max_bytes: int) -> bool:
        """Begin again, for another reply; False where the connection has ended, or has more than the replies so far."""
        if not self._is_clear():
            return False
        self._on_news, self.is_renewed = None, True
        self._timeouts, self._max_bytes = timeouts, max_bytes
        self._num_bytes = self._num_waiting_bytes = 0
        self._last_s = now_s = self._clock()
        self._deadline_s = now_s + timeouts.total_s
        due_s = now_s + min(timeouts.idle_s, timeouts.total_s)
        if self._timer is None or due_s < self._timer_s:  # otherwise the last reply's looks early enough, and goes on
            self._look_after(due_s, now_s)
        self._begin_anew(now_s)
        return True

    def drop(self) -> None:
        """Drop the connection without a word to whoever is told; `closed` says when the socket is gone."""
        self._on_news = None
        self._abort()

    def _abort(self) -> None:
        """Drop the connection."""
        raise NotImplementedError

    def _is_clear(self) -> bool:
        """Whether the connection stands, and nothing waits to be sent, taken or read."""
        raise NotImplementedError

    def _begin_anew(self, now_s: float) -> None:
        """Another reply begins: nothing of it has come."""
        raise NotImplementedError

    def _begin(self) -> None:
        """The connection stands: start watching the time limits."""
        self._last_s = self._clock()
        self._watch()

    def _count(self, data: bytes, now_s: float) -> None:
        """These bytes came; wake whoever parses, where they may be the last or there is much to parse."""
        self._last_s = now_s
        num_bytes = len(data)
        self._num_bytes += num_bytes
        self._num_waiting_bytes += num_bytes
        if self._num_bytes > self._max_bytes:
            self._fail(FailureKind.TOO_LARGE, f"the reply is larger than {self._max_bytes} bytes; gave up reading")
        was_cut, self._was_cut = self._was_cut, not data.endswith(_LINE_END)
        if (
            was_cut
            or not self._piles_up
            or self._num_waiting_bytes > MOST_WAITING_BYTES
            or (not data.endswith(_PLAIN_ENDS) and may_be_end(data))
        ):
            self._news.set()
        if self._on_news is not None:
            self._on_news(self)

    def _note_taken(self) -> None:
        self._num_waiting_bytes = 0
        if not self.is_over:
            self._news.clear()

    def _end(self, error: Exception | None) -> None:
        """The socket is gone, in order (None) or not."""
        if self._timer is not None:
            self._timer.cancel()
        if error is not None and self.failure is None:
            self.failure = ExchangeError(FailureKind.LOST, f"the connection was lost ({describe_error(error)})")
        self._last_s = self._clock()
        self.closed.set()
        self._news.set()
        if self._on_news is not None:
            self._on_news(self)

    def _watch(self) -> None:
        self._timer = None
        if self._on_news is not None:
            return
        now_s = self._clock()
        due_s = min(self._last_s + self._timeouts.idle_s, self._deadline_s)
        if now_s < due_s:
            self._look_after(due_s, now_s)
        elif now_s >= self._deadline_s:
            self._fail(FailureKind.TIMED_OUT, f"the reply was not finished within {self._timeouts.total_s:g} s")
        else:
            self._fail(FailureKind.TIMED_OUT, f"no byte came for {self._timeouts.idle_s:g} s")

    def _look_after(self, due_s: float, now_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = due_s
        self._timer = asyncio.get_running_loop().call_later(due_s - now_s, self._watch)

    def _fail(self, kind: FailureKind, message: str) -> None:
        if self.failure is None:
            self.failure = ExchangeError(kind, message)
        self._abort()
        self._news.set()


class AsyncioWire(Wire, asyncio.BufferedProtocol):
    """Reads through asyncio's own transport, stamped by this program."""

    def __init__(self, clock: Callable[[], float], timeouts: Timeouts, max_bytes: int) -> None:
        super().__init__(clock, timeouts, max_bytes)
        self._buffer = memoryview(bytearray(READ_BYTES))  # asyncio's TLS slices it, which would copy a bytearray
        self._reads: list[Read] = []
        self._drained_s = self._last_s
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of no asyncio class
        self._begin()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the base class gives it this name)
        """Where the next read goes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """A read returned: stamp it, keep it, and wake whoever parses."""
        now_s = self._clock()
        data = bytes(self._buffer[:nbytes])
        self._reads.append(Read(now_s, data, now_s, self._drained_s, False))
        self._drained_s = now_s if nbytes < READ_BYTES else self._drained_s
        self._count(data, now_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone, in order (None) or not."""
        self._end(exc)

    def send(self, data: bytes) -> None:
        """Hand the request to the socket."""
        if self._transport is not None:
            self._transport.write(data)

    async def close(self) -> None:
        """Drop the connection and wait until the socket is gone."""
        if self._transport is not None:
            self._transport.abort()
            await self.closed.wait()

    def take(self) -> list[Read]:
        """The reads that wait, in order."""
        reads, self._reads = self._reads, []
        self._note_taken()
        return reads

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _is_clear(self) -> bool:
        transport = self._transport
        if transport is None or transport.is_closing() or self._reads or transport.get_write_buffer_size():
            return False
        return not is_readable(transport.get_extra_info("socket").fileno())

    def _begin_anew(self, now_s: float) -> None:
        self._drained_s = now_s


def is_readable(number: int) -> bool:
    """Whether a socket has something, or has ended, by its file number."""
    if sys.platform == "win32":
        return bool(select.select([number], [], [], 0)[0])
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))


def may_be_end(data: bytes) -> bool:
    """Whether these bytes of an event stream look like the last ones."""
    return data.endswith(_LAST_CHUNK) or data.find(_DONE, -_END_BYTES) >= 0 or len(data) <= len(_LAST_CHUNK)


def describe_error(error: Exception) -> str:
    """Why a socket operation failed, in the system's own few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or 'no reason given'}"
    if isinstance(error, OSError) and error.errno is not None:
        known = os.strerror(error.errno) if error.errno > 0 else error.strerror
        return (known or "no reason given").lower()
    return type(error).__name__
