"""Other tools' result files, in the shape their documentation shows, and the running of a command that stands for one."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import inference_bench
from inference_bench.conform import tools
from inference_bench.conform.oracle import NOT_COMPLETED, Observed
from inference_bench.conform.table import case_named
from inference_bench.conform.tokenizer import write_tokenizer
from inference_bench.conform.tool_commands import ToolRun
from inference_bench.conform.tool_places import place_variable
from inference_bench.conform.tool_results import read_aiperf, read_bench_serving, read_guidellm
from inference_bench.conform.tools import TOOLS, Tool
from inference_bench.errors import MeasurementError

PATIENCE_S = 20
URL = "http://127.0.0.1:1/control"
RIGHT = Observed("completed", 8, ttft_s=0.06, tpot_s=0.02, gap_mean_s=0.025)
SERVING = {
    "completed": 2,
    "total_output_tokens": 16,
    "mean_ttft_ms": 60.0,
    "mean_tpot_ms": 20.0,
    "mean_itl_ms": 25.0,
    "mean_e2e_latency_ms": 200.0,
}


def of(mean: float) -> dict[str, object]:
    return {"successful": {"mean": mean}}


GUIDELLM = {
    "benchmarks": [
        {
            "metrics": {
                "request_totals": {"successful": 2, "errored": 0},
                "output_token_count": of(8.0),
                "time_to_first_token_ms": of(60.0),
                "inter_token_latency_ms": of(20.0),
                "request_latency": of(0.2),
            }
        }
    ]
}
AIPERF = {
    "request_count": {"unit": "requests", "avg": 2},
    "output_sequence_length": {"unit": "tokens", "avg": 8.0},
    "time_to_first_token": {"unit": "ms", "avg": 60.0},
    "inter_token_latency": {"unit": "ms", "avg": 20.0},
    "inter_chunk_latency": {"unit": "ms", "avg": 25.0},
    "request_latency": {"unit": "ms", "avg": 200.0},
}


@pytest.fixture(autouse=True)
def no_tool_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for tool in TOOLS:
        monkeypatch.delenv(place_variable(tool.package), raising=False)


def tool_named(name: str) -> Tool:
    return next(tool for tool in TOOLS if tool.name == name)


def test_result_files_are_read() -> None:
    assert read_bench_serving(SERVING, 2) == RIGHT
    assert read_guidellm(GUIDELLM, 2) == Observed("completed", 8, ttft_s=0.06, tpot_s=0.02)
    assert read_aiperf(AIPERF, 2) == RIGHT


@pytest.mark.parametrize("read", [read_bench_serving, read_guidellm, read_aiperf])
def test_files_without_enough_successes_are_no_success(read: object) -> None:
    assert callable(read)
    for found in ({}, {"completed": 0}, {"completed": 1}, {"benchmarks": []}, {"request_count": None}):
        assert read(found, 2) == Observed(NOT_COMPLETED)
    assert read_bench_serving(SERVING, 3) == Observed(NOT_COMPLETED)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Tool:
    """A program called vllm in a virtual environment that is named for it."""
    program = folder / "venv" / "bin" / "vllm"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("INFERENCE_BENCH_VLLM", str(folder / "venv"))
    return tool_named("vllm")


def test_a_tool_is_run_and_its_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    tool = install(
        tmp_path,
        monkeypatch,
        f"ls tokenizer > {asked}; echo \"$@\" >> {asked}; echo '{json.dumps(SERVING)}' > result.json",
    )
    assert tool.why_absent() is None
    assert tool.run(case_named("control"), URL) == RIGHT
    words = asked.read_text().split()
    assert words[:5] == ["config.json", "tokenizer.json", "tokenizer_config.json", "bench", "serve"]
    assert URL in words
    assert "/v1/chat/completions" in words


def test_a_tool_without_a_result_completed_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = install(tmp_path, monkeypatch, "exit 3")
    assert tool.run(case_named("control"), URL) == Observed(NOT_COMPLETED)


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pids: Sequence[int]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while left := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < deadline_s, left
        time.sleep(0.02)


def pids_in(file: Path, count: int) -> list[int]:
    """The processes whose numbers a script has written down, once it has written so many."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not file.exists() or len(file.read_text().split()) < count:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    return [int(word) for word in file.read_text().split()]


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a tool writes its number, that of a child and that of one that leaves its group; it never ends by itself."""
    file = tmp_path / "pids"
    install(
        tmp_path,
        monkeypatch,
        f"echo $$ >> {file}; sleep 300 & echo $! >> {file}; setsid sh -c 'echo $$ >> {file}; exec sleep 300' & wait",
    )
    yield file
    for pid in map(int, file.read_text().split() if file.exists() else []):
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads processes from /proc")


@needs_proc
def test_a_tool_that_hangs_is_ended_with_all_its_children(hanging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_LIMIT_S", 1.0)
    with pytest.raises(MeasurementError, match="did not end within 1 s"):
        tool_named("vllm").run(case_named("control"), URL)
    wait_until_gone(pids_in(hanging, 3))


@needs_proc
@pytest.mark.parametrize(
    "signals",
    [
        [signal.SIGTERM],
        [signal.SIGINT],
        [signal.SIGINT, signal.SIGINT],
        [signal.SIGTERM, signal.SIGTERM],
        [signal.SIGKILL],
    ],
    ids=["SIGTERM", "Ctrl-C", "Ctrl-C twice", "SIGTERM twice", "SIGKILL"],
)
def test_a_signal_ends_the_tool_in_flight_and_all_else(hanging: Path, signals: list[signal.Signals]) -> None:
    source = str(Path(inference_bench.__file__).parents[1])
    command = [sys.executable, "-m", "inference_bench", "conform", "vllm", "--case", "control"]
    places = {"PYTHONPATH": source, "TMPDIR": str(hanging.parent)}  # a process that is killed leaves its folder
    with subprocess.Popen(
        command, env={**os.environ, **places}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        pids = pids_in(hanging, 3)
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        assert len(children) == 2, "the truth server, and the keeper of the tool"
        for kind in signals:
            running.send_signal(kind)
        assert running.wait(PATIENCE_S) != 0
    wait_until_gone([*pids, *map(int, children)])


def test_a_tool_that_is_not_here_says_how_to_name_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = install(tmp_path, monkeypatch, "exit 0")
    monkeypatch.setenv("INFERENCE_BENCH_VLLM", str(tmp_path / "elsewhere"))
    assert tool.why_absent() == f"not in {tmp_path / 'elsewhere'}"
    monkeypatch.delenv("INFERENCE_BENCH_VLLM")
    monkeypatch.setenv("PATH", "")
    assert tool.why_absent() == "not installed; INFERENCE_BENCH_VLLM names its virtual environment"


def test_a_program_on_the_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = install(tmp_path, monkeypatch, "exit 0")
    monkeypatch.delenv("INFERENCE_BENCH_VLLM")
    monkeypatch.setenv("PATH", str(tmp_path / "venv" / "bin"))
    assert tool.find("vllm") == [str(tmp_path / "venv" / "bin" / "vllm")]


def test_compiled_clients_are_found_inside_their_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    python, rust, extension = (
        tmp_path / "bin" / "python",
        packages / "vllm" / "vllm-rs",
        packages / "sglang" / "srt" / "rust_extensions" / "_bench.cpython-311.so",
    )
    for file in (python, rust, extension):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o755)
    for package in ("vllm", "sglang"):
        monkeypatch.setenv(place_variable(package), str(tmp_path))
    assert tool_named("vllm-rs").find("vllm") == [str(rust)]
    assert tool_named("sglang").find("sglang") is None
    (first, host, last) = tool_named("sglang-rs").find("sglang") or []
    assert (first, Path(host).name, last) == (str(python), "sglang_host.py", str(extension))


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_command_names_the_server_the_model_the_tokenizer_and_the_counts(tool: Tool, tmp_path: Path) -> None:
    words = tool.command(ToolRun(URL, tmp_path / "result.json", tmp_path / "tokens", 37, 91, 23))
    said = " ".join(words)
    assert all(word in said for word in (URL, "conform", "37", "91", "23", str(tmp_path / "tokens")))


def test_the_tokenizer_is_one_token_for_the_servers_word_and_one_for_any_other_byte(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    write_tokenizer(tmp_path)
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert len(tokenizer.encode(" a" * 8).ids) == 8
    every = "".join(map(chr, range(0x250))) + "\N{LLAMA}"
    assert tokenizer.decode(tokenizer.encode(every).ids) == every
    assert len(tokenizer.encode("\N{LLAMA}").ids) == 4
