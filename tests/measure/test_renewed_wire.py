"""One connection for one reply after another: each has its own stamps and counts, and nothing is left of the one before."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from inference_bench.measure.framing import ReplyReader
from inference_bench.measure.http1 import Dialer, Exchange, Timeouts
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.target import Target
from inference_bench.measure.wire import Read, Wire

from .test_kernel_wire import least_s, needs_stamps

QUICK = Timeouts(connect_s=5.0, idle_s=5.0, total_s=20.0)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
REPLY = HEAD + b"Content-Length: 4\r\n\r\nabc\n"
BOTH = pytest.mark.parametrize("stamps", StampSource)


@contextmanager
def server(
    answer: Callable[[socket.socket, list[float]], None], folder: Path | None = None
) -> Iterator[tuple[str, list[float]]]:
    """One connection in a thread, and when it sent what."""
    sent_s: list[float] = []

    def serve() -> None:
        with suppress(OSError):
            plain, _ = listener.accept()
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.settimeout(20)
            with plain if context is None else context.wrap_socket(plain, server_side=True) as connection:
                answer(connection, sent_s)

    context = None
    if folder is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{'https' if folder else 'http'}://127.0.0.1:{listener.getsockname()[1]}", sent_s
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)


def again_and_again(connection: socket.socket, sent_s: list[float]) -> None:
    while connection.recv(65536):
        time.sleep(0.05)
        sent_s.append(time.perf_counter())
        connection.sendall(REPLY)


async def connect(url: str, stamps: StampSource, max_bytes: int = 100_000) -> Wire:
    return await Dialer(Target(url).address, stamps).connect(time.perf_counter, QUICK, max_bytes)


async def read_reply(wire: Wire) -> list[Read]:
    reads: list[Read] = []
    while sum(len(read.data) for read in reads) < len(REPLY):
        await wire.wait()
        reads += wire.take()
        assert wire.failure is None
    return reads


@BOTH
def test_the_stamps_of_each_reply_begin_anew(stamps: StampSource) -> None:
    async def work(url: str, sent_s: list[float]) -> None:
        wire = await connect(url, stamps, max_bytes=len(REPLY))
        for number in range(4):
            begin_s = time.perf_counter()
            if number:
                assert wire.renew(QUICK, len(REPLY))
            wire.send(b"x")
            reads = await read_reply(wire)
            assert b"".join(read.data for read in reads) == REPLY
            assert reads[0].drained_s <= sent_s[number]
            assert not number or begin_s <= reads[0].drained_s
            assert all(sent_s[number] - 1e-4 <= read.time_s <= read.read_s + 1e-9 for read in reads)
            assert wire.is_renewed is (number > 0)
            wire.rest(lambda _: None)
            await asyncio.sleep(0.1)
        await wire.close()

    with server(again_and_again) as (url, sent_s):
        asyncio.run(work(url, sent_s))


@needs_stamps
def test_the_kernels_stamps_are_right_after_a_rest_while_the_reader_stalls() -> None:
    async def work(url: str, sent_s: list[float]) -> float:
        wire = await connect(url, StampSource.KERNEL)
        wire.send(b"x")
        await read_reply(wire)
        wire.rest(lambda _: None)
        await asyncio.sleep(0.2)
        assert wire.renew(QUICK, 1000)
        wire.send(b"x")
        time.sleep(0.15)  # the reply comes meanwhile
        (read,) = await read_reply(wire)
        await wire.close()
        assert read.is_kernel
        assert read.read_s - sent_s[1] > 0.05
        return read.time_s - sent_s[1]

    def late_s() -> float:
        with server(again_and_again) as (url, sent_s):
            return asyncio.run(work(url, sent_s))

    assert -1e-4 <= least_s(late_s, 0.008) < 0.008


@BOTH
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_while_it_rests_whatever_comes_and_the_end_are_told_and_it_cannot_be_renewed(
    stamps: StampSource, scheme: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    goes_on = threading.Event()

    def answer(connection: socket.socket, sent_s: list[float]) -> None:
        again = connection.recv(1)
        connection.sendall(REPLY)
        goes_on.wait(10)
        connection.sendall(again)

    async def work(url: str) -> None:
        told: list[bool] = []
        wire = await connect(url, stamps)
        wire.send(b"x")
        await read_reply(wire)
        wire.rest(lambda wire: told.append(wire.is_over))
        goes_on.set()
        async with asyncio.timeout(10):
            await wire.closed.wait()
        assert told[0] is False
        assert told[-1] is True
        assert not wire.renew(QUICK, 1000)

    with server(answer, certificate if scheme == "https" else None) as (url, _):
        asyncio.run(work(url))


@BOTH
def test_a_wire_with_something_unsent_or_unread_cannot_be_renewed(stamps: StampSource) -> None:
    goes_on = threading.Event()

    def answer(connection: socket.socket, sent_s: list[float]) -> None:
        connection.recv(1)
        connection.sendall(REPLY)
        goes_on.wait(10)

    async def unsent(url: str) -> None:
        wire = await connect(url, stamps)
        wire.send(b"x" * 30_000_000)  # more than a socket holds, and the server answers before it has read it
        await read_reply(wire)
        assert not wire.renew(QUICK, 1000)
        await wire.close()
        goes_on.set()

    async def unread(url: str) -> None:
        wire = await connect(url, stamps)
        wire.send(b"x")
        time.sleep(0.1)
        assert not wire.renew(QUICK, 1000)
        await wire.close()
        goes_on.set()

    for work in (unsent, unread):
        goes_on.clear()
        with server(answer) as (url, _):
            asyncio.run(work(url))


@BOTH
def test_a_renewed_wire_has_limits_of_its_own_and_wakes_for_every_read(stamps: StampSource) -> None:
    def answer(connection: socket.socket, sent_s: list[float]) -> None:
        connection.recv(1)
        connection.sendall(REPLY)
        connection.recv(1)
        connection.sendall(b"data: x\n\n")
        connection.recv(1)

    async def work(url: str) -> None:
        wire = await connect(url, stamps)
        wire.let_pile_up()
        wire.send(b"x")
        async with asyncio.timeout(10):
            while not wire.take():
                await asyncio.sleep(0.01)
        wire.rest(lambda _: None)
        await asyncio.sleep(0.05)
        assert wire.renew(Timeouts(idle_s=0.2, total_s=20), 1000)
        wire.send(b"x")
        async with asyncio.timeout(10):
            await wire.wait()  # no end, and not much: one that lets reads pile up would go on waiting
        assert wire.take()
        async with asyncio.timeout(10):
            await wire.wait()
        assert "no byte came for 0.2 s" in str(wire.failure)

    with server(answer) as (url, _):
        asyncio.run(work(url))


@BOTH
def test_a_session_that_the_server_ends_is_the_end_although_the_connection_stays(
    stamps: StampSource, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))

    def answer(connection: socket.socket, sent_s: list[float]) -> None:
        assert isinstance(connection, ssl.SSLSocket)
        connection.recv(1)
        connection.sendall(HEAD + b"\r\nabc\n")  # as long as the connection is there
        with suppress(OSError):
            connection.unwrap()  # which waits for the client to end it as well
        connection.recv(1)

    async def work(url: str) -> None:
        wire = await connect(url, stamps)
        wire.send(b"x")
        exchange = Exchange(wire, ReplyReader())
        async with asyncio.timeout(5):
            await exchange.head()
            part = await exchange.next_part()
            assert part is None or part.data == b"abc\n"
            assert await exchange.next_part() is None
        await wire.close()

    with server(answer, certificate) as (url, _):
        asyncio.run(work(url))
