"""A server that fails when it is told to: a proxy on the loopback interface, which writes down what it handed on.

In:   the address of a real server; a Fault, which may change at any moment
Out:  an address for the client; Delivery for each attempt that arrived: whose it was, what it was given, how it ended
Leaves out: when to fail (scenarios), what to make of the deliveries (accounting)
Read next by: stage, soak.

Its book is kept apart from the client's: by the idempotency key of each attempt, with a parser of its own. Proxies of others were looked
at: they break connections, and know nothing of requests, statuses and tokens (docs/drill.md).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from inference_bench.errors import ServerStartError
from inference_bench.measure.target import Address
from inference_bench.operate.drill.faults import (
    GARBAGE_EVENT,
    LAST_CHUNK,
    STREAM_HEAD,
    Fault,
    FaultKind,
    as_chunk,
    refusal_of,
)
from inference_bench.operate.drill.wire import Asked, Said, body_parts, events, piece_of, read_asked, read_said

HOST: Final = "127.0.0.1"
KEY_HEADER: Final = "Idempotency-Key"
_RESET: Final = struct.pack("ii", 1, 0)  # a socket that lingers for no time resets its connection
_BROKEN: Final = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)


class DeliveryEnd(StrEnum):
    """How one attempt ended, as the proxy saw it."""

    WHOLE = "whole"  # the reason to end was handed on
    PART = "part"  # the server's stream ended before that
    REFUSED = "refused"  # a status other than 200
    BROKEN = "broken"  # by the fault
    LEFT = "left"  # the client closed the connection
    LOST = "lost"  # the server was not there, or broke the connection


@dataclass(slots=True)
class Delivery:
    """One attempt that arrived. Unit: seconds of the drill's clock.

    Where:    num_asked is its place among this proxy's; text is what was handed on
    """

    key: str
    endpoint: str
    num_asked: int
    at_s: float
    retry_after_s: float | None = None
    ended_s: float | None = None
    status: int | None = None
    end: DeliveryEnd = DeliveryEnd.LOST
    is_whole: bool = False
    text: str = field(default="", repr=False)
    num_events: int = 0


class FaultProxy:
    """One server's; `fault` is what is wrong with it now, None while nothing is."""

    def __init__(self, name: str, address: Address, clock: Callable[[], float]) -> None:
        self.name = name
        self.fault: Fault | None = None
        self.deliveries: list[Delivery] = []
        self._address, self._clock = address, clock
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._port = 0

    @property
    def url(self) -> str:
        """Where the client asks."""
        return f"http://{HOST}:{self._port}{self._address.base_path}"

    def retarget(self, address: Address) -> None:
        """The server listens elsewhere now."""
        self._address = address

    async def open(self) -> None:
        """Listen; at the same port as before, where there was one.

        Raises:   ServerStartError where another program has taken it
        """
        try:
            self._server = await asyncio.start_server(self._accept, HOST, self._port, reuse_address=True)
        except OSError as error:
            raise ServerStartError(
                f"the proxy before {self.name} cannot listen at port {self._port} of {HOST}: "
                f"{error.strerror or error}; end what uses it, or run the drill again for another port"
            ) from None
        self._port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Refuse connections from now on, and break those that are open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or self._server is None:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (*_BROKEN, asyncio.CancelledError):  # the client went, or this proxy is being shut: the end of this task
            _reset(writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await read_asked(reader)
        delivery = Delivery(asked.header(KEY_HEADER) or "", self.name, len(self.deliveries), self._clock())
        self.deliveries.append(delivery)
        work = asyncio.create_task(self._answer(asked, writer, delivery))
        gone = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            else:
                delivery.end = DeliveryEnd.LEFT
        finally:
            delivery.ended_s = self._clock()
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter, delivery: Delivery) -> None:
        fault = self.fault
        if fault is not None and (reply := refusal_of(fault)) is not None:
            delivery.end, delivery.status = DeliveryEnd.REFUSED, int(reply[9:12])
            delivery.retry_after_s = fault.retry_after_s or None
            writer.write(reply)
            await writer.drain()
            return
        if fault is not None and fault.kind is FaultKind.GARBAGE and delivery.num_asked % 2 == 0:
            delivery.end, delivery.status = DeliveryEnd.BROKEN, 200
            writer.write(STREAM_HEAD + as_chunk(GARBAGE_EVENT) + LAST_CHUNK)
            await writer.drain()
            return
        try:
            server_reader, server_writer = await self._connect()
        except OSError:
            _reset(writer)
            return
        try:
            server_writer.write(asked.for_host(self._address.host_header))
            await server_writer.drain()
            await self._hand_on(server_reader, writer, delivery, fault)
        except _BROKEN:
            _reset(writer)
        finally:
            server_writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context() if self._address.scheme == "https" else None
        return await asyncio.open_connection(self._address.host, self._address.port, ssl=context)

    async def _hand_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delivery: Delivery, fault: Fault | None
    ) -> None:
        said = await read_said(reader)
        delivery.status = said.status
        if not said.is_stream:
            await _hand_on_whole(reader, writer, said)
            delivery.end = DeliveryEnd.REFUSED
            return
        writer.write(STREAM_HEAD)
        async for event in events(reader, said):
            piece = piece_of(event)
            if piece.text and fault is not None and not await self._let_pass(fault, writer, delivery):
                return
            writer.write(as_chunk(event))
            await writer.drain()
            delivery.text += piece.text
            delivery.num_events += 1 if piece.text else 0
            if piece.is_end:
                delivery.is_whole, delivery.end = True, DeliveryEnd.WHOLE
        writer.write(LAST_CHUNK)
        await writer.drain()
        delivery.end = DeliveryEnd.WHOLE if delivery.is_whole else DeliveryEnd.PART

    async def _let_pass(self, fault: Fault, writer: asyncio.StreamWriter, delivery: Delivery) -> bool:
        """Whether a piece of text is handed on; where not, the reply is over."""
        if fault.kind is FaultKind.SLOW_FIRST:
            if not delivery.num_events:
                await asyncio.sleep(fault.delay_s)
            return True
        if delivery.num_events < fault.after_events:
            return True
        delivery.end = DeliveryEnd.BROKEN
        if fault.kind is FaultKind.STALL:
            await asyncio.Event().wait()  # until the client goes, or the proxy is shut
        if fault.kind is FaultKind.RESET:
            _reset(writer)
        elif fault.kind is FaultKind.GARBAGE:
            writer.write(as_chunk(GARBAGE_EVENT) + LAST_CHUNK)
            await writer.drain()
        return False


async def _hand_on_whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: Said) -> None:
    """A reply that is no stream, such as an error of the server's own."""
    body = b"".join([part async for part in body_parts(reader, said)])
    own = (b"transfer-encoding:", b"content-length:", b"connection:")
    kept = [line for line in said.lines if not line.lower().startswith(own)]
    writer.write(b"\r\n".join([*kept, b"Content-Length: %d" % len(body), b"Connection: close", b"", body]))
    await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End the connection with a reset, as a process that dies does."""
    found = writer.get_extra_info("socket")
    if found is not None:
        with suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
