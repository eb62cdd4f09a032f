"""The receiving side of one connection where the kernel says when bytes came: recvmsg on a socket of our own.

In:   a connected socket that was asked for stamps, and a TLS context where the address is https
Out:  the same as wire.AsyncioWire: the reads in order, each with the time it stands for
Leaves out: asking for stamps and what they mean (kernel_stamps)

One callback reads, samples the clocks and appends; decrypting and mapping wait until somebody takes the read. TLS is fed
from memory, so that its records are stamped as they come from the wire.
Read next by: http1.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from inference_bench.measure.kernel_stamps import STAMP_BYTES, Bracket, ClockMap, parse_stamp_ns, take_bracket
from inference_bench.measure.wire import FailureKind, Read, Timeouts, Wire, describe_error
from inference_bench.units import KIBI

KERNEL_READ_BYTES: Final = 8 * KIBI  # Python allocates it for every call; 256 KiB would double the cost of a token

_NOT_NOW: Final = (BlockingIOError, InterruptedError)


class _Arrival(NamedTuple):
    """What the callback keeps of a read; nothing is decoded yet."""

    begin_s: float  # just before the read: what comes later may not be in it
    data: bytes
    ancillary: list[tuple[int, int, bytes]]
    bracket: Bracket


class _Tls:
    """TLS over bytes in memory."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def shake_hands(self) -> bool:
        """Go on with the handshake; False while it waits for bytes.

        Raises:   ssl.SSLError
        """
        with suppress(ssl.SSLWantReadError):
            self._session.do_handshake()
            return True
        return False

    def feed(self, data: bytes) -> None:
        """Bytes from the wire."""
        self._incoming.write(data)

    def decrypt(self) -> bytes:
        """What the bytes so far say; b"" while a record is incomplete, or the other side has ended the session.

        Raises:   ssl.SSLError
        """
        plain = bytearray()
        with suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while part := self._session.read(KERNEL_READ_BYTES):
                plain += part
        return bytes(plain)

    def encrypt(self, data: bytes) -> None:
        """Put this on the way out."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._session.write(rest) :]

    def take_outgoing(self) -> bytes:
        """What the wire is to carry now."""
        return self._outgoing.read()


class KernelWire(Wire):
    """Reads a socket of its own with the kernel's stamps.

    Where:    a read without a stamp, or across a step of the realtime clock, has this program's own
    """

    def __init__(
        self,
        clock: Callable[[], float],
        timeouts: Timeouts,
        max_bytes: int,
        realtime_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        super().__init__(clock, timeouts, max_bytes)
        self._realtime_ns = realtime_ns
        self._arrived: deque[_Arrival] = deque()
        self._clocks = ClockMap(first := take_bracket(clock, realtime_ns))
        self._drained_s = self._latest_s = first.before_s
        self._socket: socket.socket | None = None
        self._unsent = bytearray()
        self._tls: _Tls | None = None

    async def start(self, connection: socket.socket, context: ssl.SSLContext | None, host: str) -> None:
        """Take over a connected socket, and shake hands where there is TLS.

        Raises:   OSError, of which ssl.SSLError is one
        """
        self._socket = connection
        asyncio.get_running_loop().add_reader(connection, self._on_readable)
        self._begin()
        if context is not None:
            self._tls = _Tls(context, host)
            await self._shake_hands(self._tls)

    async def _shake_hands(self, tls: _Tls) -> None:
        while not tls.shake_hands():
            self._put(tls.take_outgoing())
            while not self._arrived:
                if self._failure is not None:
                    raise self._failure
                if self.closed.is_set():
                    raise ConnectionResetError(errno.ECONNRESET, "closed during the TLS handshake")
                self._news.clear()
                await self._news.wait()
            arrival = self._arrived.popleft()
            self._clocks.see(arrival.bracket)
            self._drained_s = arrival.begin_s
            tls.feed(arrival.data)
        self._put(tls.take_outgoing())

    def send(self, data: bytes) -> None:
        """Hand the request to the socket."""
        if self._tls is not None:
            self._tls.encrypt(data)
            data = self._tls.take_outgoing()
        self._put(data)

    async def close(self) -> None:
        """Drop the connection."""
        self._abort()

    def _on_readable(self) -> None:
        """The socket has something: read it, sample the clocks, keep both, and wake whoever parses."""
        if self._socket is None:
            return
        begin_s = self._clock()
        try:
            data, ancillary, _, _ = self._socket.recvmsg(KERNEL_READ_BYTES, STAMP_BYTES)
        except _NOT_NOW:
            return
        except OSError as error:
            self._close(error)
            return
        if data:
            bracket = take_bracket(self._clock, self._realtime_ns)
            self._arrived.append(_Arrival(begin_s, data, ancillary, bracket))
            self._count(len(data), bracket.before_s)
        else:
            self._close(None)

    def _take(self) -> Read | None:
        while self._arrived:
            read = self._stamped(self._arrived.popleft())
            if self._tls is None:
                return read
            try:
                self._tls.feed(read.data)
                plain = self._tls.decrypt()
            except ssl.SSLError as error:
                self._fail(FailureKind.LOST, f"the connection was lost ({describe_error(error)})")
                return None
            self._put(self._tls.take_outgoing())
            if plain:
                return read._replace(data=plain)
        return None

    def _stamped(self, arrival: _Arrival) -> Read:
        bracket, drained_s = arrival.bracket, self._drained_s
        self._clocks.see(bracket)
        stamp_ns = parse_stamp_ns(arrival.ancillary)
        stamp_s = None if stamp_ns is None else self._clocks.map(stamp_ns, bracket)
        self._latest_s = max(self._latest_s, bracket.before_s if stamp_s is None else stamp_s)
        if len(arrival.data) < KERNEL_READ_BYTES:
            self._drained_s = arrival.begin_s
        return Read(self._latest_s, arrival.data, bracket.before_s, drained_s, stamp_s is not None)

    def _put(self, data: bytes) -> None:
        """Send now what the socket takes, and the rest when it can."""
        if self._socket is None or not data:
            return
        num_sent = 0 if self._unsent else _send_some(self._socket, data)
        if num_sent < len(data):
            self._unsent += data[num_sent:]
            asyncio.get_running_loop().add_writer(self._socket, self._on_writable)

    def _on_writable(self) -> None:
        if self._socket is not None:
            del self._unsent[: _send_some(self._socket, self._unsent)]
            if not self._unsent:
                asyncio.get_running_loop().remove_writer(self._socket)

    def _abort(self) -> None:
        self._close(None)

    def _close(self, error: OSError | None) -> None:
        if self._socket is not None:
            connection, self._socket = self._socket, None
            loop = asyncio.get_running_loop()
            loop.remove_reader(connection)
            loop.remove_writer(connection)
            connection.close()
            self._end(error)


def _send_some(connection: socket.socket, data: bytes | bytearray) -> int:
    """How many bytes the socket took; all of them where the connection is gone, which shows when it is read."""
    try:
        return connection.send(data)
    except _NOT_NOW:
        return 0
    except OSError:
        return len(data)
