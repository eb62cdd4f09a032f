"""A real llama.cpp server on the real embedded model: its figures against hand-derived ones, and it never stays behind.

SmolLM2-135M has 30 layers and 3 KV heads of 64, so 2 · 30 · 3 · 64 = 11,520 cache elements a token: 23,040 bytes
at f16, 12,240 at q8_0 (34 bytes for 32).
llama.cpp gives each slot its share of the context, rounded up to a multiple of 256.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_bench.engines.answers import ask_server
from inference_bench.engines.attach import attach
from inference_bench.engines.embedded_model import EmbeddedModel, ensure_embedded_model
from inference_bench.engines.llama_cpp import HostConfig, LlamaCppServer
from inference_bench.errors import ServerError, ServerStartError
from inference_bench.measure.target import Target

pytestmark = pytest.mark.real_engine
pytest.importorskip("xllamacpp")

STARTUP_TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def model() -> EmbeddedModel:
    return ensure_embedded_model()


@pytest.fixture(scope="module")
def log_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine") / "server.log"


@pytest.fixture(scope="module")
def server(model: EmbeddedModel, log_path: Path) -> Iterator[LlamaCppServer]:
    with start(model, log_path) as running:
        yield running


def start(model: EmbeddedModel, log_path: Path, **changes: Any) -> LlamaCppServer:
    settings = {"context_tokens_total": 4096, "num_slots": 4, "num_threads": 1, **changes}
    config = HostConfig(str(model.path), model.path.stem, **settings)
    return LlamaCppServer.start(
        config, log_path=log_path, startup_timeout_s=STARTUP_TIMEOUT_S, model_sha256=model.sha256
    )


def complete(server: LlamaCppServer, **request: Any) -> Any:
    body = {"max_tokens": 8, "temperature": 0, "ignore_eos": True, "cache_prompt": False, **request}
    return ask_server(Target(server.base_url), "/v1/completions", STARTUP_TIMEOUT_S, body)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that only waits to be collected has."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"


def wait_until_gone(pid: int) -> bool:
    until = time.monotonic() + 30
    while not (gone := is_gone(pid)) and time.monotonic() < until:
        time.sleep(0.02)
    return gone


def test_the_model_answers_once_the_server_is_said_to_run(server: LlamaCppServer) -> None:
    reply = complete(server, prompt="The capital of France is", max_tokens=1)
    assert reply["choices"][0]["text"] == " Paris"  # the same in two other engines
    assert server.is_running()


@pytest.mark.parametrize("prompt", ["The capital of France is", [504, 3575, 282, 4649, 314]], ids=["text", "tokens"])
def test_a_prompt_may_be_text_or_token_numbers_and_lengths_are_exact(server: LlamaCppServer, prompt: object) -> None:
    reply = complete(server, prompt=prompt, max_tokens=5)
    assert reply["usage"]["prompt_tokens"] == 5
    assert (reply["usage"]["completion_tokens"], reply["choices"][0]["finish_reason"]) == (5, "length")
    assert reply["timings"]["cache_n"] == 0


def test_a_repeated_prompt_is_not_answered_from_a_cache_unless_asked_for(server: LlamaCppServer) -> None:
    request = {"prompt": "One two three four five six seven eight", "max_tokens": 1}
    cached = []
    for asked in ({}, {}, {"cache_prompt": True}):
        body = {**request, **asked}
        reply = ask_server(Target(server.base_url), "/v1/completions", STARTUP_TIMEOUT_S, body)
        cached.append(reply["timings"]["cache_n"] > 0)
    assert cached == [False, False, True]


def test_the_identity_names_the_engine_its_package_and_the_file_by_hash(
    server: LlamaCppServer, model: EmbeddedModel
) -> None:
    identity = server.identity
    assert (identity.name, identity.model_sha256) == ("llama.cpp", model.sha256)
    assert identity.version is not None
    assert identity.version.startswith("xllamacpp 20")
    assert identity.flags["num_threads"] == 1
    assert identity.flags["prompt_caching"] is False


def test_a_running_server_can_be_attached_to_and_reports_the_same_figures(server: LlamaCppServer) -> None:
    attached = attach(f"{server.base_url}/v1")
    assert attached.identity.name == "llama.cpp"
    for name in ("num_slots", "context_tokens_per_slot", "n_ctx_train", "num_params", "model_bytes"):
        assert getattr(attached.figures, name) == getattr(server.figures, name) is not None
    attached.stop()
    assert server.is_running()


def test_what_is_asked_and_answered_never_reaches_the_log(server: LlamaCppServer, log_path: Path) -> None:
    text = complete(server, prompt="Zanzibar quagmire is the password, and the answer is")["choices"][0]["text"]
    log = log_path.read_text(errors="replace")
    assert "llama_kv_cache: size" in log
    assert "Zanzibar" not in log
    assert "quagmire" not in log
    assert text.strip()
    assert text not in log


def test_a_port_in_use_is_said_in_one_line(server: LlamaCppServer, model: EmbeddedModel, tmp_path: Path) -> None:
    port = int(server.base_url.rpartition(":")[2])
    config = HostConfig(str(model.path), "m", context_tokens_total=512, num_slots=1, num_threads=1, port=port)
    with pytest.raises(ServerStartError, match="another program uses that port") as caught:
        LlamaCppServer.start(config, log_path=tmp_path / "log", model_sha256=model.sha256)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "cells", "printed", "exact_bytes"),
    [
        ({}, 1024, "90.00", 4096 * 23_040),
        ({"context_tokens_total": 4100}, 1280, "112.50", 5120 * 23_040),
        ({"cache_type_k": "q8_0", "cache_type_v": "q8_0"}, 1024, "47.81", 4096 * 12_240),
    ],
    ids=["f16", "a context that does not divide", "q8_0"],
)
def test_the_engine_allocates_the_cells_and_bytes_that_its_rules_say(
    model: EmbeddedModel, tmp_path: Path, changes: dict[str, Any], cells: int, printed: str, exact_bytes: int
) -> None:
    with start(model, tmp_path / "log", **changes) as running:
        figures = running.figures
        assert (running.cpu_s() or 0.0) > 0
    (buffer,) = figures.kv_buffers
    assert (buffer.cells, buffer.num_streams, buffer.layers) == (cells, 4, 30)
    assert (buffer.size.text, figures.kv_printed) == (printed, f"{printed} MiB")
    assert buffer.size.agrees_with(exact_bytes)
    assert (figures.context_tokens_total, figures.context_tokens_per_slot) == (4 * cells, cells)
    assert (figures.num_params, figures.model_bytes) == (134_515_008, 96_576_768)
    assert figures.model_buffers[0].size.agrees_with(96_576_768)
    assert figures.flash_attention is True
    assert (figures.token_budget, figures.micro_batch, figures.num_threads) == (2048, 512, 1)
    assert (figures.prefix_cache, figures.speculation, figures.quantization) == (False, "none", "Q4_1")
    assert running.identity.model_files == {Path(model.path).name: model.sha256}
    assert wait_until_gone(running.pid)


def test_the_server_is_gone_after_an_error_inside_the_block(model: EmbeddedModel, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), start(model, tmp_path / "log") as running:
        raise ZeroDivisionError
    assert is_gone(running.pid)
    assert not running.is_running()


def test_a_server_that_is_killed_is_reported_dead_and_stopping_it_is_harmless(
    model: EmbeddedModel, tmp_path: Path
) -> None:
    with start(model, tmp_path / "log") as running:
        os.kill(running.pid, signal.SIGKILL)
        until = time.monotonic() + 30
        while running.is_running() and time.monotonic() < until:
            time.sleep(0.02)
        assert not running.is_running()
        assert "SIGKILL" in running.describe_end()
        with pytest.raises(ServerError):
            complete(running, prompt="x")


PARENT = """
import os, sys, time
from pathlib import Path
from inference_bench.engines import llama_cpp

log_path = Path(sys.argv[2])
def tell_and_wait(server):
    print(server.pid, flush=True)
    time.sleep(600)
"""
INSIDE_THE_BLOCK = """
config = llama_cpp.HostConfig(sys.argv[1], "m", context_tokens_total=512, num_slots=1, num_threads=1)
with llama_cpp.LlamaCppServer.start(config, log_path=log_path, model_sha256="known") as server:
    tell_and_wait(server)
"""
STUCK_INSIDE_THE_ENGINE = """
model = sys.argv[2] + ".pipe"
os.mkfifo(model)  # reading it waits for ever, in the engine's own code
config = llama_cpp.HostConfig(model, "m", context_tokens_total=512, num_slots=1, num_threads=1)
command, env = llama_cpp._command(config), llama_cpp._environment()
server = llama_cpp.ServerProcess(command, log_path=log_path, env=env)
while b"loading model" not in log_path.read_bytes():
    time.sleep(0.02)
tell_and_wait(server)
"""
ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it ends when the load is over")


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(INSIDE_THE_BLOCK, id="running"),
        pytest.param(STUCK_INSIDE_THE_ENGINE, id="stuck while loading", marks=ONLY_LINUX),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_server_outlives_the_program_that_started_it(
    model: EmbeddedModel, tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", PARENT + moment, str(model.path), str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        try:
            assert not is_gone(pid)
            parent.send_signal(number)
            assert parent.wait(60) == -number
            assert wait_until_gone(pid)
        finally:
            parent.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def broken_models(folder: Path, whole: Path) -> dict[str, Path]:
    with whole.open("rb") as file:
        head = file.read(3_000_000)
    paths = {"not a model": folder / "notes.txt", "cut short": folder / "cut.gguf"}
    paths["not a model"].write_text("not a model at all")
    paths["cut short"].write_bytes(head)
    return paths


@pytest.mark.parametrize("name", ["not a model", "cut short"])
def test_a_file_that_is_no_whole_model_is_said_in_one_line(model: EmbeddedModel, tmp_path: Path, name: str) -> None:
    path = broken_models(tmp_path, model.path)[name]
    with pytest.raises(ServerStartError, match="not a whole GGUF model") as caught:
        LlamaCppServer.start(HostConfig(str(path), "m", 512, 1, 1), log_path=tmp_path / "log")
    assert "\n" not in str(caught.value)


def test_quantised_values_without_flash_attention_are_said_in_one_line(model: EmbeddedModel, tmp_path: Path) -> None:
    config = HostConfig(str(model.path), "m", 512, 1, 1, cache_type_v="q8_0", flash_attention=False)
    with pytest.raises(ServerStartError, match="quantized V cache requires flash_attn") as caught:
        LlamaCppServer.start(config, log_path=tmp_path / "log", model_sha256=model.sha256)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="the memory limit is set on Linux")
def test_a_context_larger_than_the_memory_is_refused_at_once(model: EmbeddedModel, tmp_path: Path) -> None:
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with pytest.raises(ServerStartError, match=r"insufficient memory.*use a shorter context") as caught:
        start(model, tmp_path / "log", context_tokens_total=2 * memory_bytes // 23_040, num_slots=1)
    assert "\n" not in str(caught.value)


def test_a_server_that_is_not_ready_in_time_is_ended_and_said_in_one_line(model: EmbeddedModel, tmp_path: Path) -> None:
    config = HostConfig(str(model.path), "m", 512, 1, 1)
    with pytest.raises(ServerStartError, match="in time") as caught:
        LlamaCppServer.start(config, log_path=tmp_path / "log", startup_timeout_s=0.01, model_sha256=model.sha256)
    assert "\n" not in str(caught.value)
