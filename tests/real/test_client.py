"""The resilient client in front of the real engine: it answers, it is left and forgets, it dies and is replaced."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference_bench.engines.embedded_model import EmbeddedModel, ensure_embedded_model
from inference_bench.engines.llama_cpp import HostConfig, LlamaCppServer
from inference_bench.measure.target import Endpoint, Target
from inference_bench.operate.answers import Answer, AttemptEnd
from inference_bench.operate.client import Client, Interrupted, Policy, Request, RequestFailed, Upstream
from inference_bench.records import RequestStatus

pytestmark = pytest.mark.real_engine
pytest.importorskip("xllamacpp")


@pytest.fixture(scope="module")
def model() -> EmbeddedModel:
    return ensure_embedded_model()


@pytest.fixture(scope="module")
def server(model: EmbeddedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppServer]:
    with start(model, tmp_path_factory.mktemp("client") / "engine.log") as running:
        yield running


def start(model: EmbeddedModel, log_path: Path) -> LlamaCppServer:
    config = HostConfig(str(model.path), model.path.stem, context_tokens_total=4096, num_slots=2, num_threads=1)
    return LlamaCppServer.start(config, log_path=log_path, startup_timeout_s=120, model_sha256=model.sha256)


def upstream(name: str, url: str) -> Upstream:
    return Upstream(name, Target(url, endpoint=Endpoint.CHAT))


def ask(max_tokens: int, **more: str) -> Request:
    fields = {
        "messages": [{"role": "user", "content": "Count from one to a hundred, in words."}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    return Request(fields, **more)


def test_counts_and_text_are_the_engines_by_either_way_of_asking(server: LlamaCppServer) -> None:
    async def work() -> None:
        client = Client([upstream("engine", server.base_url)])
        done = await client.complete(ask(16))
        async with client.stream(ask(16)) as reply:
            text = "".join([piece.text async for piece in reply])
        assert text == done.text != ""
        for answer in (done.answer, reply.answer):
            assert (answer.output_tokens, answer.finish_reason, answer.is_lower_bound) == (16, "length", False)
            assert answer.prompt_tokens is not None
            assert answer.prompt_tokens > 10
            assert answer.answered_by is not None
            assert answer.answered_by.model
            assert answer.ttft_s is not None
            assert 0 < answer.ttft_s < answer.e2e_s

    asyncio.run(work())


def test_a_request_that_is_left_frees_the_engines_slot(server: LlamaCppServer) -> None:
    async def work() -> None:
        client = Client([upstream("engine", server.base_url)], Policy(budget_s=60))
        begin_s = time.monotonic()
        for _ in range(4):  # twice the slots, each asked for far more than there is time for
            async with client.stream(ask(3000)) as reply:
                async for _ in reply:
                    break
            assert reply.answer.status is RequestStatus.CANCELLED
        done = await client.complete(ask(4))
        assert done.answer.output_tokens == 4
        assert time.monotonic() - begin_s < 30  # 3000 tokens take longer than that, on one thread

    asyncio.run(work())


def test_a_prompt_beyond_the_context_is_the_callers_mistake_and_is_asked_once(server: LlamaCppServer) -> None:
    async def work() -> None:
        client = Client([upstream("engine", server.base_url), upstream("other", server.base_url)])
        with pytest.raises(RequestFailed) as caught:
            await client.complete(Request({"messages": [{"role": "user", "content": "word " * 6000}], "max_tokens": 4}))
        assert [attempt.end for attempt in caught.value.answer.attempts] == [AttemptEnd.BAD_REQUEST]
        assert "context" in str(caught.value)
        assert "word word" not in str(caught.value)

    asyncio.run(work())


def test_a_killed_engine_interrupts_once_and_the_next_request_falls_back(
    server: LlamaCppServer, model: EmbeddedModel, tmp_path: Path
) -> None:
    answers: list[Answer] = []

    async def work(doomed: LlamaCppServer) -> None:
        client = Client(
            [upstream("doomed", doomed.base_url), upstream("engine", server.base_url)],
            Policy(tries_each=2),
            recorder=answers.append,
        )

        async def ask_and_kill() -> None:
            async with client.stream(ask(2000)) as reply:
                async for _ in reply:
                    os.kill(doomed.pid, signal.SIGKILL)

        with pytest.raises(Interrupted) as caught:
            await ask_and_kill()
        assert caught.value.text
        done = await client.complete(ask(4))
        assert done.answer.is_fallback
        assert done.answer.answered_by is not None
        assert done.answer.answered_by.name == "engine"

    with start(model, tmp_path / "doomed.log") as doomed:
        asyncio.run(work(doomed))
    first, second = answers
    assert [attempt.end for attempt in first.attempts] == [AttemptEnd.INTERRUPTED]
    assert first.output_tokens is not None
    assert [attempt.end for attempt in second.attempts] == [AttemptEnd.NOT_REACHED] * 2 + [AttemptEnd.COMPLETED]


def test_a_dead_address_before_the_engine_costs_little(server: LlamaCppServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def work() -> None:
        client = Client([upstream("dead", dead), upstream("engine", server.base_url)], Policy(tries_each=1))
        done = await client.complete(ask(4))
        assert done.answer.is_fallback
        assert done.answer.attempts[1].started_s < 1

    asyncio.run(work())
