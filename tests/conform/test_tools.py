"""Other tools' result files, in the shape their documentation shows, and the running of a command that stands for one."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest

from inference_bench.conform import tools
from inference_bench.conform.oracle import NOT_COMPLETED, Observed
from inference_bench.conform.table import case_named
from inference_bench.conform.tools import (
    TOKENIZER_VARIABLE,
    TOOLS,
    Tool,
    read_aiperf,
    read_bench_serving,
    read_guidellm,
)
from inference_bench.errors import MeasurementError

RIGHT = Observed("completed", 8, ttft_s=0.06, tpot_s=0.02)
SERVING = {
    "completed": 2,
    "total_output_tokens": 16,
    "mean_ttft_ms": 60.0,
    "mean_tpot_ms": 20.0,
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
    "request_latency": {"unit": "ms", "avg": 200.0},
}


def test_result_files_are_read() -> None:
    assert read_bench_serving(SERVING) == RIGHT
    assert read_guidellm(GUIDELLM) == RIGHT
    assert read_aiperf(AIPERF) == RIGHT


@pytest.mark.parametrize("read", [read_bench_serving, read_guidellm, read_aiperf])
def test_files_without_successes_are_no_success(read: object) -> None:
    assert callable(read)
    for found in ({}, {"completed": 0}, {"completed": 1}, {"benchmarks": []}, {"request_count": None}):
        assert read(found) == Observed(NOT_COMPLETED)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Tool:
    program = folder / "vllm"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv(TOKENIZER_VARIABLE, "/a/tokenizer")
    return next(tool for tool in TOOLS if tool.name == "vllm")


def test_a_tool_is_run_and_its_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    tool = install(tmp_path, monkeypatch, f"echo \"$@\" > {asked}; echo '{json.dumps(SERVING)}' > result.json")
    assert tool.why_absent() is None
    assert tool.run(case_named("control"), "http://127.0.0.1:1/control") == RIGHT
    words = asked.read_text().split()
    assert words[:2] == ["bench", "serve"]
    assert "http://127.0.0.1:1/control" in words
    assert "/v1/chat/completions" in words


def test_a_tool_without_a_result_completed_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = install(tmp_path, monkeypatch, "exit 3")
    assert tool.run(case_named("control"), "http://127.0.0.1:1/control") == Observed(NOT_COMPLETED)


def test_a_tool_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child"
    tool = install(tmp_path, monkeypatch, f"sleep 60 & echo $! > {child}; wait")
    monkeypatch.setattr(tools, "_LIMIT_S", 0.5)
    with pytest.raises(MeasurementError, match="did not end within"):
        tool.run(case_named("control"), "http://127.0.0.1:1/control")
    deadline_s = time.monotonic() + 5
    status = Path(f"/proc/{child.read_text().strip()}/stat")
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_a_tool_that_is_not_here_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = install(tmp_path, monkeypatch, "exit 0")
    monkeypatch.delenv(TOKENIZER_VARIABLE)
    assert TOKENIZER_VARIABLE in str(tool.why_absent())
    monkeypatch.setenv("PATH", "")
    assert tool.why_absent() == "not installed"


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_command_names_the_server_the_model_the_tokenizer_and_the_count(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKENIZER_VARIABLE, "/a/tokenizer")
    words = tool.command("http://127.0.0.1:1/control", "/v1/chat/completions", Path("/tmp/x/result.json"))
    said = " ".join(words)
    assert all(
        word in said for word in ("http://127.0.0.1:1/control", "conform", f"{tools.NUM_REQUESTS}", "/a/tokenizer")
    )
