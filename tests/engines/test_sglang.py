"""SGLang, which no machine here can run: its command, and answers made by hand from its public documentation and source."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.fake_server import FakeServer
from inference_bench.engines.attach import attach
from inference_bench.engines.folder_server import Launch
from inference_bench.engines.sglang import SglangConfig, SglangServer, find_sglang, sglang_command
from inference_bench.errors import MissingExtraError, RequestError, ServerStartError

# Made by hand after the answer that the documentation of SGLang 0.5 shows ("SGLang Native APIs", Get Server Info), with the
# fields read here and some that must not be: the real answer has about 300, the keys that it was started with among them.
STATE = {
    "model_path": "qwen/qwen2.5-0.5b-instruct",
    "last_gen_throughput": 129.33,
    "memory_usage": {"weight": 0.98, "kvcache": 0.23, "token_capacity": 20480, "graph": 0},
    "effective_max_running_requests_per_dp": 120,
}
SERVER_INFO: dict[str, Any] = {
    "model_path": "qwen/qwen2.5-0.5b-instruct",
    "context_length": None,
    "dtype": "auto",
    "quantization": None,
    "kv_cache_dtype": "auto",
    "mem_fraction_static": 0.836,
    "max_running_requests": 128,
    "max_total_tokens": 20480,
    "chunked_prefill_size": 8192,
    "max_prefill_tokens": 16384,
    "schedule_policy": "fcfs",
    "schedule_conservativeness": 1.0,
    "page_size": 1,
    "tp_size": 1,
    "pp_size": 1,
    "dp_size": 1,
    "api_key": "sk-server-secret",
    "admin_api_key": "sk-admin-secret",
    "attention_backend": "fa3",
    "speculative_algorithm": None,
    "disable_radix_cache": False,
    "disable_overlap_schedule": False,
    "enable_mixed_chunk": False,
    "disable_cuda_graph": False,
    "status": "ready",
    "max_total_num_tokens": 20480,
    "max_req_input_len": 20474,
    "internal_states": [STATE],
    "version": "0.5.9",
}
MODEL_INFO = {"model_path": "qwen/qwen2.5-0.5b-instruct", "is_generation": True, "weight_version": "default"}
PATIENCE_S = 120.0
MODELS = {"data": [{"id": "qwen/qwen2.5-0.5b-instruct", "owned_by": "sglang", "max_model_len": 32768}]}


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    fake.say("/v1/models", MODELS)
    yield fake
    fake.close()


def test_an_sglang_server_is_identified_with_the_figures_of_its_server_info(server: FakeServer) -> None:
    server.say("/server_info", SERVER_INFO)
    server.say("/model_info", MODEL_INFO)
    attached = attach(server.url)
    identity, figures = attached.identity, attached.figures
    assert (identity.name, identity.version) == ("sglang", "0.5.9")
    assert identity.model_path == identity.model_name == "qwen/qwen2.5-0.5b-instruct"
    assert (figures.kv_tokens, figures.block_tokens, figures.memory_fraction) == (20_480, 1, 0.836)
    assert (figures.max_running, figures.token_budget, figures.max_model_len) == (120, 8192, 32_768)
    assert (figures.prefix_cache, figures.speculation, figures.attention_backend) == (True, "none", "fa3")
    assert (figures.dtype, figures.cache_dtype, figures.quantization) == ("auto", "auto", None)
    assert figures.read_from["kv_tokens"] == "/server_info max_total_num_tokens"
    assert figures.read_from["max_running"] == "/server_info internal_states[0].effective_max_running_requests_per_dp"
    assert identity.flags["schedule_policy"] == "fcfs"
    assert identity.flags["schedule_conservativeness"] == "1.0"
    assert [path for method, path, *_ in server.requests] == ["/v1/models", "/server_info", "/model_info"]


def test_keys_that_a_server_was_started_with_are_kept_nowhere(server: FakeServer) -> None:
    server.say("/server_info", SERVER_INFO)
    attached = attach(server.url)
    assert "secret" not in repr((attached.identity, attached.figures))


def test_the_older_names_of_its_pages_are_asked_where_the_new_ones_are_not_there(server: FakeServer) -> None:
    server.say("/get_server_info", {**SERVER_INFO, "version": "0.5.3"})
    server.say("/get_model_info", {"model_path": "/models/own"})
    attached = attach(server.url)
    assert (attached.identity.version, attached.identity.model_path) == ("0.5.3", "/models/own")
    assert attached.figures.read_from["kv_tokens"] == "/get_server_info max_total_num_tokens"


def test_speculation_a_cache_without_prefixes_and_fp8_are_told(server: FakeServer) -> None:
    changed = {
        "speculative_algorithm": "EAGLE3",
        "disable_radix_cache": True,
        "kv_cache_dtype": "fp8_e5m2",
        "page_size": 64,
        "quantization": "awq",
    }
    server.say("/server_info", SERVER_INFO | changed)
    figures = attach(server.url).figures
    assert (figures.speculation, figures.prefix_cache) == ("EAGLE3", False)
    assert (figures.cache_type_k, figures.block_tokens, figures.quantization) == ("fp8_e5m2", 64, "awq")


def test_behind_a_proxy_that_gives_another_owner_it_is_known_by_its_server_info(server: FakeServer) -> None:
    server.say("/v1/models", {"data": [{"id": "m", "owned_by": "somebody"}]})
    server.say("/server_info", SERVER_INFO)
    assert attach(server.url).identity.name == "sglang"


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"internal_states": []},
        {"internal_states": [7], "max_total_num_tokens": -1, "page_size": "1", "mem_fraction_static": 7},
        {"internal_states": {"0": STATE}, "disable_radix_cache": "no", "version": ["0.5"]},
        {"max_running_requests": True, "chunked_prefill_size": 2**80, "mem_fraction_static": "lots"},
        [SERVER_INFO],
        "server",
    ],
)
def test_answers_of_the_wrong_shape_give_no_figure(server: FakeServer, info: Any) -> None:
    server.say("/server_info", info)
    attached = attach(server.url)
    assert (attached.identity.name, attached.identity.version) == ("sglang", None)
    assert set(attached.figures.read_from) == {"max_model_len", "context_tokens_per_slot"}


def test_every_setting_has_sglangs_own_name_and_the_server_listens_on_loopback_only(tmp_path: Path) -> None:
    config = SglangConfig(
        folder="/models/m",
        model_name="m",
        context_tokens=4096,
        dtype="bfloat16",
        block_tokens=64,
        kv_tokens=100_000,
        cache_dtype="fp8_e5m2",
        memory_fraction=0.8,
        max_running=64,
        token_budget=4096,
        prefix_cache=False,
        extra_flags={"tp-size": 2, "enable-mixed-chunk": True, "disable-cuda-graph": False},
    )
    command = sglang_command(config, tmp_path, 8123)
    assert command[1:10] == [
        "-P", "-m", "sglang.launch_server", "--model-path", "/models/m", "--host", "127.0.0.1", "--port", "8123",
    ]  # fmt: skip
    assert set(command[10:]) == {
        "--served-model-name",
        "m",
        "--enable-metrics",
        "--context-length=4096",
        "--dtype=bfloat16",
        "--page-size=64",
        "--max-total-tokens=100000",
        "--kv-cache-dtype=fp8_e5m2",
        "--mem-fraction-static=0.8",
        "--max-running-requests=64",
        "--chunked-prefill-size=4096",
        "--disable-radix-cache",
        "--tp-size=2",
        "--enable-mixed-chunk",
    }
    assert "--disable-radix-cache" not in sglang_command(SglangConfig("/m", "m", prefix_cache=True), tmp_path, 1)


def test_what_cannot_be_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    for config, error, message in (
        (SglangConfig(str(tmp_path), "m", max_running=0), RequestError, "max_running 0 is outside what SGLang takes"),
        (SglangConfig(str(tmp_path), "m", extra_flags={"api-key": "k"}), RequestError, "cannot be passed on"),
        (SglangConfig(str(tmp_path), "m"), ServerStartError, "is no folder with a model"),
    ):
        with pytest.raises(error, match=message):
            SglangServer.start(config, tmp_path, Launch(tmp_path / "log", PATIENCE_S))
    assert not (tmp_path / "log").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="paths of Unix")
def test_the_environment_is_named_or_beside_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INFERENCE_BENCH_SGLANG", raising=False)
    with pytest.raises(MissingExtraError, match=r"a machine with a GPU, and there is none at .*\.venv-sglang"):
        find_sglang()
    (tmp_path / ".venv-sglang" / "bin").mkdir(parents=True)
    (tmp_path / ".venv-sglang" / "bin" / "python").touch()
    assert find_sglang() == tmp_path / ".venv-sglang"


@pytest.mark.skipif(sys.platform == "win32", reason="processes of Unix")
def test_a_start_that_fails_is_told_in_the_engines_own_words(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!{sys.executable}\nraise RuntimeError('Not enough memory. Please try to increase it.')\n")
    python.chmod(0o755)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    with pytest.raises(
        ServerStartError, match=r"RuntimeError: Not enough memory.*another share of the memory"
    ) as caught:
        SglangServer.start(SglangConfig(str(tmp_path), "m"), tmp_path / "venv", Launch(tmp_path / "log", PATIENCE_S))
    assert "\n" not in str(caught.value)
