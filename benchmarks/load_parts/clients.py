"""Every client that the benchmark runs, as one call: send so many requests of so many tokens, and what that cost.

Each run is a process of its own; its processor time is that of the process and all its children, from the system's
account of ended children. Others are found as `inference-bench conform` finds them (docs/conformance.md), and httpx by
INFERENCE_BENCH_HTTPX, a virtual environment that has it.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference_bench.conform.tool_commands import ToolRun
from inference_bench.conform.tool_places import find_python_with
from inference_bench.conform.tools import TOOLS, Tool
from inference_bench.errors import MeasurementError
from load_parts.truth import environment

HERE = Path(__file__).parent
PATIENCE_S = 300.0
OWN, OWN_USER, COMMAND = "this client", "this client, own stamps", "`inference-bench load`"


@dataclass(frozen=True, slots=True)
class Work:
    """What a client is to do."""

    url: str
    requests: int
    tokens: int = 256
    streams: int = 64


@dataclass(frozen=True, slots=True)
class Client:
    """A name and a way to run it; absent says why it cannot be, is_slow that it takes long to start."""

    name: str
    run: Callable[[Work], None]
    absent: str | None = None
    is_slow: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run. Unit: seconds."""

    cpu_s: float
    wall_s: float


def cost_of(client: Client, work: Work) -> Cost:
    """Run it once, from start to end of its processes."""
    before, begin_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    client.run(work)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Cost(cpu_s, time.perf_counter() - begin_s)


def run_own(work: Work, stamps: str = "kernel", dump: Path | None = None, niceness: int = 0) -> dict[str, Any]:
    """Our client in a process of its own, and what it said of itself."""
    asked = {
        "url": work.url,
        "requests": work.requests,
        "tokens": work.tokens,
        "streams": work.streams,
        "stamps": stamps,
        "dump": None if dump is None else str(dump),
        "niceness": niceness,
    }
    try:
        found: dict[str, Any] = json.loads(_output([sys.executable, str(HERE / "own.py"), json.dumps(asked)]))
    except MeasurementError as error:
        raise SystemExit(str(error)) from None
    if found["failed"] or found["completed"] != work.requests:
        raise SystemExit(f"a request of this client failed: {found['failed']}")
    return found


def _output(command: list[str]) -> str:
    done = subprocess.run(
        command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S
    )
    if done.returncode:
        raise MeasurementError(f"it failed: {done.stderr[-300:].strip()}")
    return done.stdout


def load_command(work: Work, runs: str) -> list[str]:
    """The whole command, as a person types it."""
    return [
        *(
            sys.executable,
            "-m",
            "inference_bench",
            "load",
            work.url,
            "--concurrency",
            str(work.streams),
            "--runs",
            runs,
        ),
        *("--requests", str(work.requests), "--prompt-tokens", "16", "--output-tokens", str(work.tokens), "--json"),
    ]


def _run_command(work: Work) -> None:
    with tempfile.TemporaryDirectory() as runs:
        _output(load_command(work, runs))


def _reader(way: str, python: str | None) -> Client:
    def run(work: Work) -> None:
        numbers = map(str, (work.streams, work.requests, work.tokens))
        _output([python or sys.executable, str(HERE / "readers.py"), way, work.url, *numbers])

    names = {"plain": "a plain asyncio reader", "httpx": "an httpx loop"}
    return Client(names[way], run, "not installed" if python is None else None)


def _tool(tool: Tool) -> Client:
    def run(work: Work) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            file, tokenizer = Path(folder) / "result.json", Path(folder) / "tokenizer"
            tool.send(
                ToolRun(work.url, file, tokenizer, work.requests, work.tokens, work.streams, timeout_s=PATIENCE_S),
                PATIENCE_S,
            )
            if tool.read_from(file, work.requests).tokens != work.tokens:
                raise MeasurementError(f"{tool.name} did not receive all tokens")

    return Client(tool.name, run, tool.why_absent(), is_slow=not tool.name.endswith("-rs"))


def all_clients() -> tuple[Client, ...]:
    """Ours, the loops, the tools."""
    return (
        Client(OWN, lambda work: _ignore(run_own(work))),
        Client(OWN_USER, lambda work: _ignore(run_own(work, "user"))),
        Client(COMMAND, _run_command),
        _reader("plain", sys.executable),
        _reader("httpx", find_python_with("httpx")),
        *map(_tool, TOOLS),
    )


def _ignore(_found: object) -> None:
    return None
