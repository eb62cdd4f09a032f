"""The recorder behind the client in front of the real engine: what is recorded is what the engine counted, and no word of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference_bench.engines.embedded_model import ensure_embedded_model
from inference_bench.engines.llama_cpp import HostConfig, LlamaCppServer
from inference_bench.measure.target import Endpoint, Target
from inference_bench.operate.client import Client, Policy, Request, RequestFailed, Upstream
from inference_bench.operate.ledger import Recorder
from inference_bench.operate.ledger.flow import keep_ledger
from inference_bench.operate.ledger.money import Prices
from inference_bench.operate.ledger.totals import By

pytestmark = pytest.mark.real_engine
pytest.importorskip("xllamacpp")

WORD = "xylophones"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppServer]:
    model = ensure_embedded_model()
    config = HostConfig(str(model.path), model.path.stem, context_tokens_total=4096, num_slots=2, num_threads=1)
    log_path = tmp_path_factory.mktemp("ledger") / "engine.log"
    with LlamaCppServer.start(config, log_path=log_path, startup_timeout_s=120, model_sha256=model.sha256) as running:
        yield running


def ask(max_tokens: int, application: str) -> Request:
    fields = {
        "messages": [{"role": "user", "content": f"Count {WORD} from one to a hundred, in words."}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": True,  # the server was started without
    }
    return Request(fields, application=application, team="core")


def test_the_ledger_of_a_real_engine_has_every_token_it_counted_and_no_word(
    server: LlamaCppServer, tmp_path: Path
) -> None:
    folder = tmp_path / "records"
    dead = Upstream("dead", Target("http://127.0.0.1:1", endpoint=Endpoint.CHAT))
    engine = Upstream("engine", Target(server.base_url, endpoint=Endpoint.CHAT))

    async def work(recorder: Recorder) -> tuple[int, list[tuple[int, int]]]:
        counted, prompts = 0, []
        client = Client([dead, engine], Policy(budget_s=60), recorder=recorder)
        for application in ("chat", "chat", "search"):
            answer = (await client.complete(ask(16, application))).answer
            counted += answer.output_tokens or 0
            prompts.append((answer.prompt_tokens or 0, answer.cached_prompt_tokens or 0))
        async with client.stream(ask(400, "chat")) as reply:
            async for _ in reply:
                break
        with pytest.raises(RequestFailed):
            await Client([dead], Policy(budget_s=5), recorder=recorder).complete(ask(16, "search"))
        assert client.num_unrecorded == 0
        return counted, prompts

    with Recorder(folder, applications=("chat", "search"), teams=("core",), unlisted="refuse") as recorder:
        counted, prompts = asyncio.run(work(recorder))
    ledger = keep_ledger([folder], Prices(usd_per_hour=1.0), by=(By.APPLICATION, By.ENDPOINT))
    sums = ledger.sums
    assert counted == 48
    assert (sums.num_requests, sums.num_completed, sums.num_fallback) == (5, 3, 4)
    assert (sums.completed_output_tokens, sums.useful_output_tokens) == (counted, counted)
    length = prompts[0][0]
    assert prompts == [(length, 0), (length, length - 1), (length, length - 1)]
    assert (sums.input_tokens, sums.cached_input_tokens) == (3 * length, 2 * (length - 1))
    assert sums.computed_output_tokens > counted  # the one that was left had begun
    assert sums.num_without_input == 1  # of the one that was left, whose usage never came
    apart = {by: {group.name: group.sums for group in groups} for by, groups in ledger.groups.items()}
    assert {name: each.num_requests for name, each in apart[By.APPLICATION].items()} == {"chat": 3, "search": 2}
    assert apart[By.ENDPOINT]["dead"].computed_output_tokens == 0
    assert apart[By.ENDPOINT]["dead"].num_failed_attempts >= 1
    assert WORD not in "".join(path.read_text() for path in folder.iterdir())
