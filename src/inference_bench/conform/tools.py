"""Other load generators as commands: run where they are installed, and their result files read.

In:   a case and the address where it is served
Out:  an Observed: success or not, tokens, and mean TTFT and TPOT of the successful requests
Leaves out: what is right (oracle); installing anything; E2E, which some run to the last token and some to the close
Read next by: suite.

None of them is a dependency, and none is tested here but by examples of its result file. The commands of GuideLLM 0.8.1
and AIPerf 0.13.0 were run through this suite once (docs/conformance.md); those of vLLM 0.33 and SGLang 0.5.23 follow
their documentation and were not run here. All four want a tokenizer to make prompts: its folder is named by
INFERENCE_BENCH_TOKENIZER. AIPerf is told to count tokens as the server does; by default it counts its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from inference_bench.conform.oracle import COMPLETED, NOT_COMPLETED, Observed
from inference_bench.conform.script import TOKENS, Case
from inference_bench.errors import MeasurementError
from inference_bench.units import KILO

NUM_REQUESTS: Final = 2
TOKENIZER_VARIABLE: Final = "INFERENCE_BENCH_TOKENIZER"

_LIMIT_S: Final = 180.0
_PROMPT: Final = "16"

Command = Callable[[str, str, Path], list[str]]  # the address, the route, the result file


@dataclass(frozen=True, slots=True)
class Tool:
    """An external client: its command, and how its result file is read."""

    name: str
    program: str
    command: Command
    read: Callable[[Mapping[str, Any]], Observed]
    module: str | None = None  # where it is run as a Python module instead of a program

    def why_absent(self) -> str | None:
        """Why it cannot run here; None when it can."""
        if self._found() is None:
            return "not installed"
        return None if os.environ.get(TOKENIZER_VARIABLE) else f"no tokenizer; set {TOKENIZER_VARIABLE}"

    def run(self, case: Case, url: str) -> Observed:
        """A few requests one after another; a tool that ends without a result file did not complete any.

        Raises:   MeasurementError when it does not end in time
        """
        with tempfile.TemporaryDirectory(prefix="conform-") as folder:
            file = Path(folder) / "result.json"
            route = "/v1/chat/completions" if case.is_chat else "/v1/completions"
            _run_to_its_end([*(self._found() or [self.program]), *self.command(url, route, file)], folder)
            found = _read_result(file)
        return Observed(NOT_COMPLETED) if found is None else self.read(found)

    def _found(self) -> list[str] | None:
        if self.module is None:
            path = shutil.which(self.program)
            return None if path is None else [path]
        from importlib.util import find_spec

        return None if find_spec(self.module.partition(".")[0]) is None else [sys.executable, "-m", self.module]


def _run_to_its_end(command: list[str], folder: str) -> None:
    """Run a tool in a process group of its own, all of which ends with this call, however it ends."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise MeasurementError(f"{command[0]} did not end within {_LIMIT_S:g} s") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read_result(file: Path) -> Mapping[str, Any] | None:
    """The result file's last line or whole; None when there is none."""
    found = file if file.exists() else next(file.parent.rglob("profile_export_aiperf.json"), None)
    if found is None:
        return None
    text = found.read_text(encoding="utf-8").strip()
    for candidate in (text, text.rpartition("\n")[2]):
        with suppress(ValueError):
            value = json.loads(candidate)
            return value if isinstance(value, dict) else None
    return None


def _tokenizer() -> str:
    return os.environ.get(TOKENIZER_VARIABLE, "")


def _vllm_command(url: str, route: str, file: Path) -> list[str]:
    backend = "openai-chat" if "chat" in route else "openai"
    return [
        *("bench", "serve", "--backend", backend, "--base-url", url, "--endpoint", route),
        *("--model", "conform", "--tokenizer", _tokenizer(), "--dataset-name", "random"),
        *("--random-input-len", _PROMPT, "--random-output-len", str(TOKENS)),
        *("--num-prompts", str(NUM_REQUESTS), "--max-concurrency", "1", "--ready-check-timeout-sec", "0"),
        *("--save-result", "--result-dir", str(file.parent), "--result-filename", file.name),
    ]


def _sglang_command(url: str, route: str, file: Path) -> list[str]:
    backend = "vllm-chat" if "chat" in route else "vllm"
    return [
        *("--backend", backend, "--base-url", url, "--model", "conform", "--tokenizer", _tokenizer()),
        *("--dataset-name", "random-ids", "--random-input-len", _PROMPT, "--random-output-len", str(TOKENS)),
        *("--num-prompts", str(NUM_REQUESTS), "--max-concurrency", "1", "--warmup-requests", "0"),
        *("--output-file", str(file)),
    ]


def _guidellm_command(url: str, route: str, file: Path) -> list[str]:
    return [
        *("run", "--backend", f"kind=openai_http,target={url},model=conform,request_format={route}"),
        *("--profile", "kind=synchronous", "--constraint", f"kind=max_requests,count={NUM_REQUESTS}"),
        *("--tokenizer", f"kind=hf_auto,model={_tokenizer()}"),
        *("--data", f"kind=synthetic_text,prompt_tokens={_PROMPT},output_tokens={TOKENS}"),
        *("--output", f"kind=json,path={file}", "--disable-console"),
    ]


def _aiperf_command(url: str, route: str, file: Path) -> list[str]:
    return [
        *("profile", "--url", url, "--endpoint-type", "chat" if "chat" in route else "completions", "--streaming"),
        *("--model", "conform", "--tokenizer", _tokenizer(), "--use-server-token-count", "--concurrency", "1"),
        *("--request-count", str(NUM_REQUESTS), "--isl", _PROMPT, "--osl", str(TOKENS)),
        *("--output-artifact-dir", str(file.parent)),
    ]


def _number(found: Mapping[str, Any], *path: str) -> float | None:
    value: Any = found
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _seconds(milliseconds: float | None) -> float | None:
    return milliseconds / KILO if milliseconds else None


def _observed(completed: float | None, tokens: float | None, ttft_ms: float | None, tpot_ms: float | None) -> Observed:
    if not completed or completed < NUM_REQUESTS:
        return Observed(NOT_COMPLETED)
    return Observed(
        COMPLETED,
        None if tokens is None else round(tokens),
        ttft_s=_seconds(ttft_ms),
        tpot_s=_seconds(tpot_ms),
    )


def read_bench_serving(found: Mapping[str, Any]) -> Observed:
    """The one JSON object of `vllm bench serve`, and of SGLang's bench_serving, whose fields are called alike."""
    completed, total = _number(found, "completed"), _number(found, "total_output_tokens")
    tokens = total / completed if completed and total is not None else None
    figures = (_number(found, f"mean_{name}_ms") for name in ("ttft", "tpot"))
    return _observed(completed, tokens, *figures)


def read_guidellm(found: Mapping[str, Any]) -> Observed:
    """The first benchmark of a GuideLLM report; its ITL is (last - first) / (n - 1), our TPOT."""
    listed = found.get("benchmarks")
    figures = listed[0].get("metrics", {}) if isinstance(listed, list) and listed else {}

    def mean(name: str) -> float | None:
        return _number(figures, name, "successful", "mean")

    completed = _number(figures, "request_totals", "successful")
    return _observed(
        completed,
        mean("output_token_count"),
        mean("time_to_first_token_ms"),
        mean("inter_token_latency_ms"),
    )


def read_aiperf(found: Mapping[str, Any]) -> Observed:
    """AIPerf's profile export; its inter_token_latency is our TPOT, and all its times are milliseconds."""
    names = ("request_count", "output_sequence_length", "time_to_first_token", "inter_token_latency")
    completed, tokens, ttft_ms, tpot_ms = (_number(found, name, "avg") for name in names)
    return _observed(completed, tokens, ttft_ms, tpot_ms)


TOOLS: Final = (
    Tool("vllm", "vllm", _vllm_command, read_bench_serving),
    Tool("sglang", "sglang", _sglang_command, read_bench_serving, module="sglang.bench_serving"),
    Tool("guidellm", "guidellm", _guidellm_command, read_guidellm),
    Tool("aiperf", "aiperf", _aiperf_command, read_aiperf),
)
