"""How bytes get to a server and back: one HTTP/1.1 exchange on one new connection, every read stamped first.

In:   an address, a request, a clock and limits
Out:  the status line, then pieces of the body with the time each was read from the socket
Leaves out: what the bytes mean (openai_stream), redirects, proxies, compression, connection reuse

A connection serves one request: llama.cpp closes it after an event stream anyway, and a reused one would time a
different thing from one request to the next. asyncio sets TCP_NODELAY on it. The stamp is taken when a read returns,
before any parsing; all sockets that are ready together are stamped before the first of them is parsed. The name of
the server is looked up once, not once a request. Framing is h11's.
Read next by: sender.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from inference_bench.errors import MissingExtraError, RequestError
from inference_bench.measure.target import Address
from inference_bench.units import KIBI, MEBI

try:
    import h11
except ImportError as error:
    raise MissingExtraError(
        "sending requests needs the package h11; install it with: pip install 'inference-bench[bench]'"
    ) from error

_MEDIA_TYPE: Final = re.compile(r"[a-z]{1,20}/[a-z.+-]{1,40}")  # any other might repeat a key, and is not kept
READ_BYTES: Final = 16 * KIBI  # small on purpose: asyncio's own 256 KiB buffer is allocated anew for every read


class RunClock:
    """Seconds since the run began, on the monotonic clock that is compared nowhere else."""

    def __init__(self) -> None:
        self._begin_s = time.perf_counter()

    def __call__(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._begin_s


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


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a server may send before it is cut off."""

    max_header_bytes: int = 64 * KIBI
    max_reply_bytes: int = 256 * MEBI


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
    """A piece of a reply's body and when the read that brought it returned."""

    time_s: float
    data: bytes


class Wire(asyncio.BufferedProtocol):
    """The receiving side of one connection: stamps and keeps reads, watches the time limits."""

    def __init__(self, clock: Callable[[], float], timeouts: Timeouts, max_bytes: int) -> None:
        self._clock, self._timeouts, self._max_bytes = clock, timeouts, max_bytes
        self._buffer = memoryview(bytearray(READ_BYTES))  # asyncio's TLS slices it, which would copy a bytearray
        self._reads: deque[tuple[float, bytes]] = deque()
        self._news = asyncio.Event()
        self._failure: ExchangeError | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._num_bytes = 0
        self._deadline_s = clock() + timeouts.total_s
        self._last_s = clock()
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands: start watching the time limits."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
        self._last_s = self._clock()
        self._watch()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the base class gives it this name)
        """Where the next read goes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """A read returned: stamp it, keep it, and wake whoever parses."""
        now_s = self._clock()
        self._reads.append((now_s, bytes(self._buffer[:nbytes])))
        self._last_s = now_s
        self._num_bytes += nbytes
        if self._num_bytes > self._max_bytes:
            self._fail(FailureKind.TOO_LARGE, f"the reply is larger than {self._max_bytes} bytes; gave up reading")
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone, in order (None) or not."""
        if self._timer is not None:
            self._timer.cancel()
        if exc is not None and self._failure is None:
            self._failure = ExchangeError(FailureKind.LOST, f"the connection was lost ({describe_error(exc)})")
        self._last_s = self._clock()
        self.closed.set()
        self._news.set()

    def send(self, data: bytes) -> None:
        """Hand the request to the socket."""
        if self._transport is not None:
            self._transport.write(data)

    async def next_read(self) -> tuple[float, bytes] | None:
        """The next read and when it returned; None once the server has closed in order.

        Raises:   ExchangeError, after everything that arrived before the failure was handed out
        """
        while not self._reads:
            if self._failure is not None:
                raise self._failure
            if self.closed.is_set():
                return None
            self._news.clear()
            await self._news.wait()
        return self._reads.popleft()

    async def close(self) -> None:
        """Drop the connection and wait until the socket is gone."""
        if self._transport is not None:
            self._transport.abort()
            await self.closed.wait()

    def _watch(self) -> None:
        now_s = self._clock()
        due_s = min(self._last_s + self._timeouts.idle_s, self._deadline_s)
        if now_s < due_s:
            self._timer = asyncio.get_running_loop().call_later(due_s - now_s, self._watch)
        elif now_s >= self._deadline_s:
            self._fail(FailureKind.TIMED_OUT, f"the reply was not finished within {self._timeouts.total_s:g} s")
        else:
            self._fail(FailureKind.TIMED_OUT, f"no byte came for {self._timeouts.idle_s:g} s")

    def _fail(self, kind: FailureKind, message: str) -> None:
        if self._failure is None:
            self._failure = ExchangeError(kind, message)
        if self._transport is not None:
            self._transport.abort()
        self._news.set()


class Dialer:
    """Connects to one server again and again; the name lookup and the TLS set-up are done once."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._tls = ssl.create_default_context() if address.scheme == "https" else None
        self._hosts: tuple[str, ...] = ()

    async def connect(self, wire: Wire, limit_s: float) -> None:
        """A new connection with `wire` at its end.

        Raises:   ExchangeError
        """
        try:
            async with asyncio.timeout(limit_s):
                await self._connect_any(wire)
        except TimeoutError:
            message = f"could not connect to {self.address} within {limit_s:g} s"
            raise ExchangeError(FailureKind.TIMED_OUT, message) from None
        except OSError as error:
            message = f"could not connect to {self.address} ({describe_error(error)})"
            raise ExchangeError(FailureKind.UNREACHABLE, message) from None

    async def _connect_any(self, wire: Wire) -> None:
        failure: OSError | None = None
        for host in self._hosts or await self._look_up():
            try:
                await asyncio.get_running_loop().create_connection(
                    lambda: wire,
                    host,
                    self.address.port,
                    ssl=self._tls,
                    server_hostname=self.address.host if self._tls else None,
                )
            except OSError as error:
                failure = failure or error
            else:
                self._hosts = (host, *(other for other in self._hosts if other != host))
                return
        raise failure or OSError("the name has no address")

    async def _look_up(self) -> tuple[str, ...]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self.address.host, self.address.port, type=socket.SOCK_STREAM)
        self._hosts = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
        return self._hosts


class Exchange:
    """One request on its way: first `head`, then `next_part` until None."""

    def __init__(self, wire: Wire, framing: h11.Connection) -> None:
        self._wire, self._framing = wire, framing
        self._at_end = False
        self.time_s = 0.0  # when the last read returned

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
        return Part(self.time_s, bytes(event.data)) if isinstance(event, h11.Data) else None

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
            self.time_s = read[0]
            self._framing.receive_data(read[1])


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
    wire = Wire(clock, timeouts, limits.max_reply_bytes)
    framing = h11.Connection(h11.CLIENT, max_incomplete_event_size=limits.max_header_bytes)
    try:
        await dialer.connect(wire, min(timeouts.connect_s, timeouts.total_s))
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
