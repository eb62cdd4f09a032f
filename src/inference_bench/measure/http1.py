"""How bytes get to a server and back: one HTTP/1.1 exchange on one connection, every read stamped first.

In:   an address, a request, a clock and limits
Out:  the status line, then pieces of the body with the time each arrived, and who says so
Leaves out: what the bytes mean (openai_stream), redirects, proxies, compression, keeping connections (operate/client)

What `open_exchange` opens serves one request: llama.cpp closes it after an event stream anyway, and a reused one would
time a different thing from one request to the next. TCP_NODELAY is set on it. The kernel stamps what arrives where it can
(kernel_wire), otherwise this program does before any parsing (wire). The name of the server is looked up once, not once
a request.
Read next by: sender.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from inference_bench.errors import RequestError
from inference_bench.measure.framing import MAX_HEADER_BYTES, ReplyReader
from inference_bench.measure.framing import Head as Head
from inference_bench.measure.kernel_stamps import StampSource, ask_for_stamps
from inference_bench.measure.kernel_wire import KernelWire
from inference_bench.measure.read_rounds import ReadRounds
from inference_bench.measure.target import Address
from inference_bench.measure.wire import AsyncioWire, Read, Wire, describe_error
from inference_bench.measure.wire import ExchangeError as ExchangeError
from inference_bench.measure.wire import FailureKind as FailureKind
from inference_bench.measure.wire import Timeouts as Timeouts
from inference_bench.units import MEBI

_Place: TypeAlias = tuple[socket.AddressFamily, Any]  # a socket address, in the form of its family

_FIELD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\r\n\x00]*")
_PATH: Final = re.compile(r"/[!-~]*")
_new: Final = tuple.__new__  # makes a named tuple in a third of the time: there is one for every read
_STARTED: Final = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN})


class RunClock:
    """Seconds since the run began, on the monotonic clock that is compared nowhere else."""

    def __init__(self) -> None:
        self._begin_s = time.perf_counter()

    def __call__(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._begin_s


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a server may send before it is cut off."""

    max_header_bytes: int = MAX_HEADER_BYTES
    max_reply_bytes: int = 256 * MEBI


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request; Host, Content-Length and Connection are added."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class Part(NamedTuple):
    """The piece of a reply's body that one read brought, in whole or in part.

    Where:    time_s is the kernel's receive stamp where is_kernel, else when the read returned (read_s).
              Nothing of the read had come at drained_s. is_whole: the read ended with a line, so that its stamp is that
              of the last line
    """

    time_s: float
    data: bytes
    read_s: float
    drained_s: float
    is_kernel: bool
    is_whole: bool


class Dialer:
    """Connects to one server again and again; the name lookup and the TLS set-up are done once.

    Where:    `stamps` is who is to say when bytes arrive; what the platform or the socket refuses falls back to USER.
              All connections are of one event loop and have one clock
    """

    def __init__(self, address: Address, stamps: StampSource = StampSource.KERNEL) -> None:
        self.address = address
        self._stamps = stamps
        self._tls = ssl.create_default_context() if address.scheme == "https" else None
        self._places: tuple[_Place, ...] = ()
        self._rounds: ReadRounds | None = None

    async def connect(self, clock: Callable[[], float], timeouts: Timeouts, max_bytes: int) -> Wire:
        """A new connection.

        Raises:   ExchangeError
        """
        limit_s = min(timeouts.connect_s, timeouts.total_s)
        try:
            async with asyncio.timeout(limit_s):
                return await self._connect_any(clock, timeouts, max_bytes)
        except TimeoutError:
            message = f"could not connect to {self.address} within {limit_s:g} s"
            raise ExchangeError(FailureKind.TIMED_OUT, message) from None
        except OSError as error:
            message = f"could not connect to {self.address} ({describe_error(error)})"
            raise ExchangeError(FailureKind.UNREACHABLE, message) from None

    async def _connect_any(self, clock: Callable[[], float], timeouts: Timeouts, max_bytes: int) -> Wire:
        failure: OSError | None = None
        for place in self._places or await self._look_up():
            try:
                wire = await self._connect_to(place, clock, timeouts, max_bytes)
            except OSError as error:
                failure = failure or error
            else:
                self._places = (place, *(other for other in self._places if other != place))
                return wire
        raise failure or OSError("the name has no address")

    async def _connect_to(self, place: _Place, clock: Callable[[], float], timeouts: Timeouts, max_bytes: int) -> Wire:
        loop, host = asyncio.get_running_loop(), self.address.host
        connection = socket.socket(place[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
        is_stamped = self._stamps is StampSource.KERNEL and ask_for_stamps(connection)
        wire: KernelWire | AsyncioWire
        if is_stamped:
            self._rounds = self._rounds or ReadRounds(clock)
            wire = KernelWire(clock, timeouts, max_bytes, self._rounds)
        else:
            wire = AsyncioWire(clock, timeouts, max_bytes)
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await _connect(connection, place)
        except BaseException:
            connection.close()
            raise
        if isinstance(wire, AsyncioWire):
            name = host if self._tls else None
            await loop.create_connection(lambda: wire, sock=connection, ssl=self._tls, server_hostname=name)
            return wire
        try:
            await wire.start(connection, self._tls, host)
        except BaseException:
            await wire.close()
            raise
        return wire

    async def _look_up(self) -> tuple[_Place, ...]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self.address.host, self.address.port, type=socket.SOCK_STREAM)
        self._places = tuple(dict.fromkeys((entry[0], entry[4]) for entry in found))
        return self._places


async def _connect(connection: socket.socket, place: _Place) -> None:
    """Connect a socket that does not block; within one machine that has happened when the first call returns."""
    code = connection.connect_ex(place[1])
    if code in _STARTED and _is_connected(connection):
        return
    if code in _STARTED:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        loop.add_writer(connection, _settle, done)
        try:
            await done
        finally:
            loop.remove_writer(connection)
        code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


def _is_connected(connection: socket.socket) -> bool:
    try:
        connection.getpeername()
    except OSError:
        return False
    return True


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


class Exchange:
    """One request on its way: first `head`, then `next_part` until None, or `take_parts` until `is_over`.

    Where:    is_over says that the reply is complete and all of it was taken
    """

    def __init__(self, wire: Wire, reader: ReplyReader) -> None:
        self._wire, self._reader = wire, reader
        self._reads: deque[Read] = deque()
        self._first: Part | None = None  # what came together with the head
        self.is_over = False
        self.time_s = 0.0  # when the last read that was looked into arrived
        self.first_byte_s: float | None = None

    async def head(self) -> Head:
        """The status and the headers that matter.

        Raises:   ExchangeError
        """
        while self._reader.head is None:
            await self._wire.wait()
            try:
                self._first = next(self.take_parts(), None)
            except ExchangeError:  # what came before the failure comes first; it is raised again
                if self._reader.head is None:
                    raise
        return self._reader.head

    async def next_part(self) -> Part | None:
        """The next piece of the body; None at its end.

        Raises:   ExchangeError
        """
        while (part := next(self.take_parts(), None)) is None:
            if self.is_over:
                return None
            await self._wire.wait()
        return part

    @property
    def gather_s(self) -> float:
        """The longest that anything was let wait in the socket on purpose."""
        return self._wire.gather_s

    def let_pile_up(self) -> None:
        """From now on `wait` returns when the reply may be at its end, or much has arrived."""
        self._wire.let_pile_up()

    async def wait(self) -> None:
        """Until somebody should call `take_parts`."""
        await self._wire.wait()

    def wake(self) -> None:
        """End a `wait` that is going on."""
        self._wire.wake()

    def take_parts(self) -> Iterator[Part]:
        """The pieces that have arrived by now.

        Raises:   ExchangeError, after everything that arrived before the failure
        """
        if self._first is not None:
            first, self._first = self._first, None
            yield first
        reads, reader = self._reads, self._reader
        reads.extend(self._wire.take())
        while reads and reader.failure is None:
            time_s, data, read_s, drained_s, is_kernel = reads.popleft()
            self.time_s = time_s
            if self.first_byte_s is None:
                self.first_byte_s = time_s
            if body := reader.feed(data):
                yield _new(Part, (time_s, body, read_s, drained_s, is_kernel, data.endswith(b"\n")))
        if reader.failure is not None:
            raise reader.failure
        self.is_over = reader.is_complete or self._has_ended()

    def finish(self) -> bool | None:
        """Take in what is left, and hand none of it out: may another request follow? None while the end is still to come."""
        reader, reads = self._reader, self._reads
        reads.extend(self._wire.take())
        while reads:
            reader.feed(reads.popleft().data)
        if self._wire.is_over or not reader.keeps_connection:
            return False
        return True if reader.is_complete else None

    def _has_ended(self) -> bool:
        """Whether the connection has ended, and the reply with it."""
        if not self._wire.is_over:
            return False
        if self._wire.failure is not None:
            raise self._wire.failure
        self._reader.end()
        return True


@asynccontextmanager
async def open_exchange(
    dialer: Dialer,
    request: HttpRequest,
    clock: Callable[[], float],
    timeouts: Timeouts,
    limits: Limits,
) -> AsyncIterator[Exchange]:
    """Connect, send the request, and close the connection when the block ends, however it ends.

    Raises:   ExchangeError; RequestError for a request that cannot be written
    """
    data = _frame(dialer.address, request)
    wire = await dialer.connect(clock, timeouts, limits.max_reply_bytes)
    try:
        wire.send(data)
        yield Exchange(wire, ReplyReader(limits.max_header_bytes))
    finally:
        await wire.close()


def _frame(address: Address, request: HttpRequest) -> bytes:
    """The request as it goes over the wire.

    Raises:   RequestError for a header or path that would break out of its line
    """
    path = address.base_path + request.path
    lines = [f"Host: {address.host_header}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in request.headers]
    if request.body:
        lines.append(f"Content-Length: {len(request.body)}")
    if not _PATH.fullmatch(path) or not all(map(_FIELD.fullmatch, lines)):
        raise RequestError("the path or a header of the request holds characters that HTTP/1.1 does not allow there")
    try:
        return "\r\n".join([f"{request.method} {path} HTTP/1.1", *lines, "", ""]).encode("latin-1") + request.body
    except UnicodeEncodeError:
        raise RequestError("a header of the request holds characters outside latin-1") from None
