"""Kept connections over real sockets, by both ways to receive, with and without TLS."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from inference_bench.measure.http1 import Dialer
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.target import Address, Endpoint, Target
from inference_bench.operate.answers import AttemptEnd
from inference_bench.operate.client import Client, Policy, Upstream
from operate.client.world import CHUNKED_HEAD, END, LAST_CHUNK, ask, chunk, token

REPLY = chunk(token("word ") + END) + LAST_CHUNK
BOTH_STAMPS = pytest.mark.parametrize("stamps", StampSource)
PLAIN_AND_TLS = pytest.mark.parametrize("scheme", ["http", "https"])


class Keeping:
    """Answers request after request on each connection. Where: closes_at is the number of the request that it closes without a word."""

    def __init__(self, closes_at: int = 0, closes_after_s: float | None = None) -> None:
        self.closes_at, self.closes_after_s = closes_at, closes_after_s
        self.num_connections = self.num_requests = self.num_open = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        self.num_open += 1
        try:
            while True:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), self.closes_after_s)
                length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
                await reader.readexactly(int(length.split(b":")[1]))
                self.num_requests += 1
                if self.num_requests == self.closes_at:
                    break
                for part in (
                    CHUNKED_HEAD,
                    REPLY[:-5],
                    REPLY[-5:],
                ):  # the last chunk on its own, as most servers send it
                    writer.write(part)
                    await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            self.num_open -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def serving(keeping: Keeping, folder: Path | None) -> AsyncIterator[str]:
    context = None
    if folder is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    server = await asyncio.start_server(keeping.handle, "127.0.0.1", 0, ssl=context)
    try:
        yield f"{'https' if folder else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


@pytest.fixture
def folder(scheme: str, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Path | None:
    """Where the certificate is, and trusted; None without TLS."""
    if scheme == "http":
        return None
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    return certificate


def dial_by(stamps: StampSource) -> Callable[[Address], Dialer]:
    return lambda address: Dialer(address, stamps)


def client_of(url: str, stamps: StampSource, policy: Policy) -> Client:
    return Client([Upstream("a", Target(url, endpoint=Endpoint.CHAT))], policy, dial=dial_by(stamps))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


@BOTH_STAMPS
@PLAIN_AND_TLS
@pytest.mark.parametrize("keep_alive_s", [60, 0])
def test_a_server_sees_one_connection_and_one_handshake_for_many_requests(
    stamps: StampSource, folder: Path | None, keep_alive_s: float
) -> None:
    async def work() -> None:
        keeping, num_before = Keeping(), len(os.listdir("/proc/self/fd"))
        async with serving(keeping, folder) as url:
            async with client_of(url, stamps, Policy(keep_alive_s=keep_alive_s)) as client:
                for number in range(6):
                    done = await client.complete(ask())
                    assert (done.text, len(done.answer.attempts)) == ("word ", 1)
                    await asyncio.sleep(0.05)  # the last chunk comes after [DONE]
                    assert keeping.num_connections == (1 if keep_alive_s else number + 1)
                assert keeping.num_open == (1 if keep_alive_s else 0)
            await until(lambda: not keeping.num_open)
        await until(lambda: len(os.listdir("/proc/self/fd")) <= num_before)

    asyncio.run(work())


@BOTH_STAMPS
@PLAIN_AND_TLS
def test_a_connection_that_a_server_closes_while_idle_is_dropped(stamps: StampSource, folder: Path | None) -> None:
    async def work() -> None:
        keeping = Keeping(closes_after_s=0.1)
        async with serving(keeping, folder) as url, client_of(url, stamps, Policy(keep_alive_s=60)) as client:
            await client.complete(ask())
            await until(lambda: not keeping.num_open)
            await asyncio.sleep(0.1)
            assert len((await client.complete(ask())).answer.attempts) == 1
            assert keeping.num_connections == 2

    asyncio.run(work())


@BOTH_STAMPS
@PLAIN_AND_TLS
def test_one_that_a_server_closes_as_it_is_used_costs_nobody_an_answer(
    stamps: StampSource, folder: Path | None
) -> None:
    async def work() -> None:
        keeping = Keeping(closes_at=2)
        policy = Policy(keep_alive_s=60, tries_each=1, most_attempts=1)
        async with serving(keeping, folder) as url, client_of(url, stamps, policy) as client:
            await client.complete(ask())
            await asyncio.sleep(0.05)
            done = await client.complete(ask())
            assert [attempt.end for attempt in done.answer.attempts] == [AttemptEnd.NOT_REACHED, AttemptEnd.COMPLETED]
            assert "a kept connection had been closed" in str(done.answer.attempts[0].error)
            assert keeping.num_connections == 2

    asyncio.run(work())


@BOTH_STAMPS
@PLAIN_AND_TLS
def test_an_idle_connection_is_closed_after_its_time(stamps: StampSource, folder: Path | None) -> None:
    async def work() -> None:
        keeping = Keeping()
        async with serving(keeping, folder) as url:
            client = client_of(url, stamps, Policy(keep_alive_s=0.2))
            await client.complete(ask())
            assert keeping.num_open == 1
            await until(lambda: not keeping.num_open)

    asyncio.run(work())


@contextmanager
def says_more_later(more: bytes) -> Iterator[tuple[str, list[int]]]:
    """A server in a thread; its first connection has `more`, or ends, a moment after its reply."""
    seen: list[int] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                seen.append(0)
                threading.Thread(target=answer, args=(connection, len(seen) - 1), daemon=True).start()

    def answer(connection: socket.socket, number: int) -> None:
        with connection, suppress(OSError):
            while connection.recv(65536):
                seen[number] += 1
                connection.sendall(CHUNKED_HEAD + REPLY)
                if not number:
                    time.sleep(0.1)
                    connection.sendall(more)
                    if not more:
                        return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", seen
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


@BOTH_STAMPS
@pytest.mark.parametrize("more", [CHUNKED_HEAD + REPLY.replace(b"word", b"fake"), b""])
def test_what_came_while_idle_is_seen_before_the_connection_is_used_although_nothing_was_read_yet(
    stamps: StampSource, more: bytes
) -> None:
    async def work() -> None:
        with says_more_later(more) as (url, seen):
            async with client_of(url, stamps, Policy(keep_alive_s=60)) as client:
                assert (await client.complete(ask())).text == "word "
                time.sleep(0.5)  # the event loop stands still, as in a busy program
                done = await client.complete(ask())
                assert (done.text, len(done.answer.attempts)) == ("word ", 1)
                assert seen == [1, 1]

    asyncio.run(work())
