"""The proxy that fails on purpose: what it hands on, what it writes down, and what it leaves open."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from inference_bench.errors import ServerStartError
from inference_bench.measure.target import Endpoint, Target, parse_address
from inference_bench.operate.client import Client, Policy, Request, Upstream
from inference_bench.operate.drill.proxy import DeliveryEnd, FaultProxy
from inference_bench.operate.drill.servers import Foreign
from inference_bench.operate.drill.stage import Site
from inference_bench.operate.drill.traffic import Asking
from inference_bench.operate.drill.wire import piece_of
from operate.drill.fakes import TEXT, TruthEngine

PATIENCE_S = 10.0


@pytest.fixture(scope="module")
def engine() -> Iterator[TruthEngine]:
    running = TruthEngine()
    try:
        yield running
    finally:
        running.stop()


def client_of(proxy: FaultProxy) -> Client:
    return Client([Upstream("proxy", Target(proxy.url, endpoint=Endpoint.CHAT))], Policy(tries_each=1))


def ask(num_tokens: int = 8) -> Request:
    return Request({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": num_tokens}, request_id="mine")


def test_without_a_fault_the_answer_is_the_servers_and_is_written_down_by_its_key(engine: TruthEngine) -> None:
    async def work() -> None:
        proxy = FaultProxy("proxy", parse_address(engine.base_url), time.perf_counter)
        await proxy.open()
        done = await client_of(proxy).complete(ask())
        await proxy.shut()
        (delivery,) = proxy.deliveries
        assert (done.text, delivery.text) == (TEXT, TEXT)
        assert (delivery.key, delivery.end, delivery.status, delivery.num_events) == ("mine", DeliveryEnd.WHOLE, 200, 8)
        assert "a a" not in repr(delivery)

    asyncio.run(work())


def test_a_client_that_leaves_ends_the_servers_work(engine: TruthEngine) -> None:
    async def work() -> None:
        proxy = FaultProxy("proxy", parse_address(engine.base_url), time.perf_counter)
        await proxy.open()
        async with client_of(proxy).stream(ask(5000)) as reply:
            async for _ in reply:
                break
        until_s = time.monotonic() + PATIENCE_S
        while proxy.deliveries[0].ended_s is None:
            assert time.monotonic() < until_s
            await asyncio.sleep(0.01)
        await proxy.shut()
        assert proxy.deliveries[0].end is DeliveryEnd.LEFT

    asyncio.run(work())
    until_s = time.monotonic() + PATIENCE_S
    while (entry := engine.log()[-1])["ended_ns"] is None:
        assert time.monotonic() < until_s
        time.sleep(0.02)
    assert not entry["is_whole"]


def test_a_port_that_somebody_else_took_meanwhile_is_said(engine: TruthEngine) -> None:
    async def work() -> None:
        proxy = FaultProxy("proxy", parse_address(engine.base_url), time.perf_counter)
        await proxy.open()
        port = parse_address(proxy.url).port
        await proxy.shut()
        with socket.socket() as other:
            other.bind(("127.0.0.1", port))
            other.listen()
            with pytest.raises(ServerStartError, match=f"cannot listen at port {port}"):
                await proxy.open()

    asyncio.run(work())


def test_a_server_that_is_gone_is_a_connection_that_breaks() -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            gone = parse_address(f"http://127.0.0.1:{listener.getsockname()[1]}")
        proxy = FaultProxy("proxy", gone, time.perf_counter)
        await proxy.open()
        client = client_of(proxy)
        with pytest.raises(Exception, match="nobody answered"):
            await client.complete(ask())
        await proxy.shut()
        assert proxy.deliveries[0].end is DeliveryEnd.LOST

    asyncio.run(work())


@pytest.mark.parametrize(
    ("event", "text", "is_end"),
    [
        (b'data: {"choices": [{"delta": {"content": "one"}}]}\n\n', "one", False),
        (b'data: {"choices": [{"text": "one", "finish_reason": "length"}]}\n\n', "one", True),
        (b'data: {"choices": []}\n\n', "", False),
        (b"data: [DONE]\n\n", "", False),
        (b": comment\n\n", "", False),
        (b'data: {"choices": [{"delta": null}]}\n\n', "", False),
    ],
)
def test_text_is_read_from_events_of_either_route_and_from_nothing_else(event: bytes, text: str, is_end: bool) -> None:
    piece = piece_of(event)
    assert (piece.text, piece.is_end) == (text, is_end)
    assert "one" not in repr(replace(piece))


def test_a_route_of_the_servers_own_is_asked_through_the_proxy_as_well() -> None:
    target = Target("http://127.0.0.1:1/api/v3/chat/completions", endpoint=Endpoint.CHAT)
    site = Site({"primary": Foreign(target.address)}, {"primary": target}, Asking.usual(8), 8)
    asked = site.upstream("primary", f"http://127.0.0.1:2{target.address.base_path}").target
    assert f"{asked.address.base_path}{asked.path}" == "/api/v3/chat/completions"
