"""The receiving side of one connection where the kernel says when bytes came: recvmsg on a socket of our own.

In:   a connected socket that was asked for stamps, and a TLS context where the address is https
Out:  the same as wire.AsyncioWire: the reads in order, each with the time it stands for
Leaves out: asking for stamps and what they mean (kernel_stamps), when the socket is read (read_rounds)

A round of reads calls, and what it brings is appended; mapping the stamps waits until somebody takes the reads. What came
last of a reply is therefore seen up to a gathering time late, which is not in its stamp. TLS is fed from memory as its
bytes come, so that its records are stamped as they come from the wire.
Read next by: http1.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

from inference_bench.measure.kernel_stamps import STAMP_BYTES, parse_stamp_ns
from inference_bench.measure.read_rounds import SHORT_S, ReadRounds, Round
from inference_bench.measure.wire import FailureKind, Read, Timeouts, Wire, describe_error, is_readable, may_be_end
from inference_bench.units import GIGA, KIBI

KERNEL_READ_BYTES: Final = 8 * KIBI  # Python allocates it for every call; 256 KiB would double the cost of a token

_new: Final = tuple.__new__  # makes a named tuple in a third of the time: there is one for every read
_NOT_NOW: Final = (BlockingIOError, InterruptedError)
_SHORT_NS: Final = round(SHORT_S * GIGA)
_EVENT: Final = b"data:"
_MOST_FORGIVEN: Final = 3  # of the last reads of a reply: its reason to end, its counts, its last token

# what is kept of a read: its round, whether it left nothing behind, what it brought, and the kernel's stamp
_Arrival: TypeAlias = tuple[Round, bool, bytes, int | None]


class _Tls:
    """TLS over bytes in memory.

    Where:    is_over says that the other side has ended the session; it may wait long before it closes the connection
    """

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self.is_over = False
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
        with suppress(ssl.SSLWantReadError):
            while part := self._session.read(KERNEL_READ_BYTES):
                plain += part
            self.is_over = True
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

    def __init__(self, clock: Callable[[], float], timeouts: Timeouts, max_bytes: int, rounds: ReadRounds) -> None:
        super().__init__(clock, timeouts, max_bytes)
        self._rounds = rounds
        self._arrived: list[_Arrival] = []
        self._drained_s = self._latest_s = clock()
        self._stamp_ns = 0
        self._num_short = 0  # how many of the last reads in a row brought events close to each other
        self._socket: socket.socket | None = None
        self._unsent = bytearray()
        self._tls: _Tls | None = None

    @property
    def gather_s(self) -> float:
        """The longest that reads were let gather."""
        return self._rounds.gathering.longest_s

    async def start(self, connection: socket.socket, context: ssl.SSLContext | None, host: str) -> None:
        """Take over a connected socket, and shake hands where there is TLS.

        Raises:   OSError, of which ssl.SSLError is one
        """
        self._socket = connection
        self._rounds.join(connection, self._read)
        self._begin()
        if context is not None:
            tls = _Tls(context, host)
            self._rounds.hurry(1)
            try:
                await self._shake_hands(tls)
            finally:
                self._rounds.hurry(-1)
            self._tls = tls

    async def _shake_hands(self, tls: _Tls) -> None:
        while not tls.shake_hands():
            self._put(tls.take_outgoing())
            while not (reads := self.take()):
                if self.failure is not None:
                    raise self.failure
                if self.closed.is_set():
                    raise ConnectionResetError(errno.ECONNRESET, "closed during the TLS handshake")
                await self.wait()
            for read in reads:
                tls.feed(read.data)
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

    def take(self) -> list[Read]:
        """The reads that wait, in order, each at the kernel's time where that can be believed."""
        arrived, self._arrived = self._arrived, []
        self._note_taken()
        reads: list[Read] = []
        latest_s, drained_s = self._latest_s, self._drained_s
        for now, is_drained, data, stamp_ns in arrived:
            view = now.view
            stamp_s = None if stamp_ns is None else view.map(stamp_ns)
            read_s = view.read_s
            latest_s = max(latest_s, read_s if stamp_s is None else stamp_s)
            if data:
                reads.append(_new(Read, (latest_s, data, read_s, drained_s, stamp_s is not None)))
            if is_drained:
                drained_s = now.begin_s
        self._latest_s, self._drained_s = latest_s, drained_s
        return reads

    def _read(self, now: Round) -> None:
        """The socket has something: keep it."""
        if self._socket is None:
            return
        try:
            data, ancillary, _, _ = self._socket.recvmsg(KERNEL_READ_BYTES, STAMP_BYTES)
        except _NOT_NOW:
            return
        except OSError as error:
            self._close(error)
            return
        if not data:
            self._close(None)
            return
        is_drained = len(data) < KERNEL_READ_BYTES
        if self._tls is not None:
            data = self._decrypt(self._tls, data)
        stamp_ns = parse_stamp_ns(ancillary)
        self._arrived.append((now, is_drained, data, stamp_ns))
        self._count(data, now.begin_s)
        if self._piles_up:
            self._judge(now, data, stamp_ns or 0)
        if self._tls is not None and self._tls.is_over:
            self._close(None)

    def _judge(self, now: Round, data: bytes, stamp_ns: int) -> None:
        """Tell the round of events close to each other; those at the end of a reply do not count."""
        last_ns, self._stamp_ns = self._stamp_ns, stamp_ns
        if stamp_ns - last_ns >= _SHORT_NS and data.count(_EVENT) < 2:
            self._num_short = 0
        elif may_be_end(data):
            now.num_short -= min(self._num_short, _MOST_FORGIVEN)
            self._num_short = 0
        else:
            now.num_short += 1
            self._num_short += 1

    def _decrypt(self, tls: _Tls, data: bytes) -> bytes:
        try:
            tls.feed(data)
            plain = tls.decrypt()
        except ssl.SSLError as error:
            self._fail(FailureKind.LOST, f"the connection was lost ({describe_error(error)})")
            return b""
        self._put(tls.take_outgoing())
        return plain

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

    def _is_clear(self) -> bool:
        if self._socket is None or self._arrived or self._unsent:
            return False
        return not is_readable(self._socket.fileno())

    def _begin_anew(self, now_s: float) -> None:
        self._drained_s = self._latest_s = now_s
        self._stamp_ns = self._num_short = 0
        self._rounds.compare_clocks()

    def _close(self, error: OSError | None) -> None:
        if self._socket is not None:
            connection, self._socket = self._socket, None
            self._rounds.leave(connection)
            if self._unsent:
                asyncio.get_running_loop().remove_writer(connection)
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
