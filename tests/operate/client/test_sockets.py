"""The same client over real sockets: what the server sees of it, and that nothing stays open."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from inference_bench.measure.target import Endpoint, Target
from inference_bench.operate.answers import Answer, AttemptEnd
from inference_bench.operate.client import Client, Interrupted, Policy, RequestFailed, Upstream
from inference_bench.records import RequestStatus
from operate.client.world import DONE, FINISH, STREAM_HEAD, ask, token

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Streams:
    """A server that streams for ever, and says when its handler has ended because the client went away."""

    def __init__(self) -> None:
        self.num_begun = 0
        self.ended = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_begun += 1
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(STREAM_HEAD)
            while True:
                writer.write(token("word "))
                await writer.drain()
                await asyncio.sleep(0.005)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self.ended.set()


@asynccontextmanager
async def serving(handle: Handler) -> AsyncIterator[str]:
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


def upstream(name: str, url: str) -> Upstream:
    return Upstream(name, Target(url, endpoint=Endpoint.CHAT))


def num_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def read(client: Client, kind: str, num_pieces: int | None = None) -> Answer:
    if kind == "complete":
        return (await client.complete(ask())).answer
    async with client.stream(ask()) as reply:
        place = 0
        async for _ in reply:
            place += 1
            if place == num_pieces:
                break
    return reply.answer


@pytest.mark.parametrize("kind", ["complete", "stream"])
def test_a_cancelled_request_ends_the_servers_handler(kind: str) -> None:
    async def work() -> None:
        streams, answers = Streams(), list[Answer]()
        async with serving(streams.handle) as url:
            client = Client([upstream("a", url)], recorder=answers.append)
            task = asyncio.create_task(read(client, kind))
            while not streams.num_begun:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(streams.ended.wait(), 5)
        assert [answer.status for answer in answers] == [RequestStatus.CANCELLED]
        assert streams.num_begun == 1

    asyncio.run(work())


@pytest.mark.parametrize(("policy", "num_pieces"), [(Policy(), 2), (Policy(budget_s=0.2), None)])
def test_leaving_early_and_running_out_of_budget_end_the_servers_handler_too(
    policy: Policy, num_pieces: int | None
) -> None:
    async def work() -> None:
        streams, answers = Streams(), list[Answer]()
        async with serving(streams.handle) as url:
            client = Client([upstream("a", url)], policy, recorder=answers.append)
            with suppress(Interrupted):
                await read(client, "stream", num_pieces)
            await asyncio.wait_for(streams.ended.wait(), 5)
        assert answers[0].status is (RequestStatus.CANCELLED if num_pieces else RequestStatus.TIMED_OUT)

    asyncio.run(work())


def test_the_loser_of_a_hedge_is_told() -> None:
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client goes away
        writer.close()
        ended.set()

    async def quick(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(STREAM_HEAD + token("quick") + FINISH + DONE)
        writer.close()

    async def work() -> None:
        async with serving(silent) as slow_url, serving(quick) as url:
            client = Client([upstream("slow", slow_url), upstream("quick", url)], Policy(hedge_after_s=0.02))
            done = await client.complete(ask())
            await asyncio.wait_for(ended.wait(), 5)
        assert done.text == "quick"
        assert [attempt.end for attempt in done.answer.attempts] == [AttemptEnd.CANCELLED, AttemptEnd.COMPLETED]

    asyncio.run(work())


def test_a_port_that_nobody_listens_on_falls_back() -> None:
    async def quick(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(STREAM_HEAD + token("here") + FINISH + DONE)
        writer.close()

    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            dead = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with serving(quick) as url:
            client = Client([upstream("dead", dead), upstream("live", url)], Policy(tries_each=1))
            done = await client.complete(ask())
            assert done.answer.is_fallback
            assert done.answer.attempts[0].end is AttemptEnd.NOT_REACHED
            assert "connection refused" in str(done.answer.attempts[0].error)

    asyncio.run(work())


def test_a_server_that_accepts_and_says_nothing_costs_no_more_than_the_budget() -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=8) as listener:
            client = Client([upstream("a", f"http://127.0.0.1:{listener.getsockname()[1]}")], Policy(budget_s=0.3))
            loop = asyncio.get_running_loop()
            begin_s = loop.time()
            with pytest.raises(RequestFailed, match=r"no token within 0\.\d+ s"):
                await client.complete(ask())
            assert loop.time() - begin_s < 3

    asyncio.run(work())


def test_no_socket_stays_open_however_requests_end() -> None:
    async def work() -> None:
        num_before = num_open_files()
        streams = Streams()
        async with serving(streams.handle) as url:
            client = Client([upstream("a", url)], Policy(budget_s=0.1))
            await asyncio.gather(*(read(client, kind) for kind in ("complete", "stream") * 5), return_exceptions=True)
        async with asyncio.timeout(5):
            while num_open_files() > num_before:
                await asyncio.sleep(0.01)

    asyncio.run(work())
