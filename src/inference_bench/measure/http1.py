"""How bytes get to a server and back: one HTTP/1.1 exchange on one new connection, every read stamped first.

In:   an address, a request, a clock and limits
Out:  the status line, then pieces of the body with the time each arrived, and who says so
Leaves out: what the bytes mean (openai_stream), redirects, proxies, compression, connection reuse

A connection serves one request: llama.cpp closes it after an event stream anyway, and a reused one would time a
different thing from one request to the next. TCP_NODELAY is set on it. The kernel stamps what arrives where it can
(kernel_wire), otherwise this program does before any parsing (wire). The name of the server is looked up once, not once
a request. Framing is h11's.
Read next by: sender.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from inference_bench.errors import MissingExtraError
from inference_bench.measure.kernel_stamps import StampSource, ask_for_stamps
from inference_bench.measure.kernel_wire import KernelWire
from inference_bench.measure.target import Address
from inference_bench.measure.wire import AsyncioWire, Read, Wire, describe_error
from inference_bench.measure.wire import ExchangeError as ExchangeError
from inference_bench.measure.wire import FailureKind as FailureKind
from inference_bench.measure.wire import Timeouts as Timeouts
from inference_bench.units import KIBI, MEBI

try:
    import h11
except ImportError as error:
    raise MissingExtraError(
        "sending requests needs the package h11; install it with: pip install 'inference-bench[bench]'"
    ) from error

_Place: TypeAlias = tuple[socket.AddressFamily, Any]  # a socket address, in the form of its family

_MEDIA_TYPE: Final = re.compile(r"[a-z]{1,20}/[a-z.+-]{1,40}")  # any other might repeat a key, and is not kept


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

    max_header_bytes: int = 64 * KIBI
    max_reply_bytes: int = 256 * MEBI


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request; Host, Content-Length and Connection are added."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Head:
    """The part of a reply before its body. The content type is in lower case, without parameters."""

    status: int
    content_type: str
    content_encoding: str
    location: str


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a reply's body, and the read that brought its end.

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

    Where:    `stamps` is who is to say when bytes arrive; what the platform or the socket refuses falls back to USER
    """

    def __init__(self, address: Address, stamps: StampSource = StampSource.KERNEL) -> None:
        self.address = address
        self._stamps = stamps
        self._tls = ssl.create_default_context() if address.scheme == "https" else None
        self._places: tuple[_Place, ...] = ()

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
        wire = (KernelWire if is_stamped else AsyncioWire)(clock, timeouts, max_bytes)
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(connection, place[1])
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


class Exchange:
    """One request on its way: first `head`, then `next_part` until None."""

    def __init__(self, wire: Wire, framing: h11.Connection) -> None:
        self._wire, self._framing = wire, framing
        self._at_end = False
        self._read = Read(0.0, b"", 0.0, 0.0, False)
        self.first_byte_s: float | None = None

    @property
    def time_s(self) -> float:
        """When the last read arrived."""
        return self._read.time_s

    async def head(self) -> Head:
        """The status and the headers that matter.

        Raises:   ExchangeError
        """
        event = await self._next_event()
        if not isinstance(event, h11.Response):
            raise ExchangeError(FailureKind.BROKEN, "the reply has no status line")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        content_type = content_type if _MEDIA_TYPE.fullmatch(content_type) else ""
        encoding = headers.get("content-encoding", "identity").strip().lower()
        return Head(event.status_code, content_type, encoding, headers.get("location", ""))

    async def next_part(self) -> Part | None:
        """The next piece of the body; None at its end.

        Raises:   ExchangeError
        """
        event = await self._next_event()
        if not isinstance(event, h11.Data):
            return None
        time_s, data, read_s, drained_s, is_kernel = self._read
        return Part(time_s, bytes(event.data), read_s, drained_s, is_kernel, data.endswith(b"\n"))

    async def _next_event(self) -> h11.Event | None:
        while True:
            try:
                event = self._framing.next_event()
            except h11.RemoteProtocolError:
                if self._at_end:
                    raise ExchangeError(FailureKind.LOST, "the server closed the connection") from None
                raise ExchangeError(FailureKind.BROKEN, "the reply breaks the rules of HTTP/1.1") from None
            if event is h11.NEED_DATA:
                await self._receive()
            elif not isinstance(event, h11.InformationalResponse):
                return event if isinstance(event, h11.Response | h11.Data) else None

    async def _receive(self) -> None:
        read = await self._wire.next_read()
        if read is None:
            self._at_end = True
            self._framing.receive_data(b"")
        else:
            self._read = read
            self.first_byte_s = read.time_s if self.first_byte_s is None else self.first_byte_s
            self._framing.receive_data(read.data)


@asynccontextmanager
async def open_exchange(
    dialer: Dialer,
    request: HttpRequest,
    clock: Callable[[], float],
    timeouts: Timeouts,
    limits: Limits,
) -> AsyncIterator[Exchange]:
    """Connect, send the request, and close the connection when the block ends, however it ends.

    Raises:   ExchangeError
    """
    framing = h11.Connection(h11.CLIENT, max_incomplete_event_size=limits.max_header_bytes)
    wire = await dialer.connect(clock, timeouts, limits.max_reply_bytes)
    try:
        wire.send(_frame(framing, dialer.address, request))
        yield Exchange(wire, framing)
    finally:
        await wire.close()


def _frame(framing: h11.Connection, address: Address, request: HttpRequest) -> bytes:
    headers = [("Host", address.host_header), ("Connection", "close"), *request.headers]
    if request.body:
        headers.append(("Content-Length", str(len(request.body))))
    head = h11.Request(method=request.method, target=address.base_path + request.path, headers=headers)
    sent = (framing.send(head), framing.send(h11.Data(data=request.body)), framing.send(h11.EndOfMessage()))
    return b"".join(part or b"" for part in sent)
