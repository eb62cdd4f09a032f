"""Other load generators as commands: run where they are installed, and their result files read.

In:   a case and the address where it is served; or a whole ToolRun, for a benchmark
Out:  an Observed
Leaves out: what is right (oracle); installing anything
Read next by: suite.

None of them is a dependency, and none is tested here but by examples of its result file; docs/conformance.md has what
came of running them. A tool is kept by a process of its own (tool_host), with which it ends however this one does.
All of them want a tokenizer to make prompts; they are given one that is written for the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from inference_bench.conform import tool_commands, tool_places, tool_results
from inference_bench.conform.oracle import NOT_COMPLETED, Observed
from inference_bench.conform.script import TOKENS, Case
from inference_bench.conform.tokenizer import write_tokenizer
from inference_bench.conform.tool_commands import ToolRun
from inference_bench.conform.tool_host import OUT_OF_TIME
from inference_bench.errors import MeasurementError

NUM_REQUESTS: Final = 2

_LIMIT_S: Final = 60.0
_HOST: Final = Path(__file__).with_name("tool_host.py")
_ENDS_WITHIN_S: Final = 10.0
_UNTOLD: Final = {"HF_HUB_DISABLE_TELEMETRY": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
_OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True, slots=True)
class Tool:
    """An external client: its package, where it is, its command, and how its result file is read.

    Where:    goes_offline is whether it takes a tokenizer's folder when the hub is said to be out of reach, and so
              does not wait for it
    """

    name: str
    package: str
    find: Callable[[str], list[str] | None]
    command: Callable[[ToolRun], list[str]]
    read: Callable[[Mapping[str, Any], int], Observed]
    goes_offline: bool = True

    def why_absent(self) -> str | None:
        """Why it cannot run here; None when it can."""
        if self.find(self.package) is not None:
            return None
        variable = tool_places.place_variable(self.package)
        place = os.environ.get(variable)
        return f"not installed; {variable} names its virtual environment" if place is None else f"not in {place}"

    def run(self, case: Case, url: str) -> Observed:
        """A few requests one after another; a tool that ends without a result file did not complete any.

        Raises:   MeasurementError when it does not end in time
        """
        with tempfile.TemporaryDirectory(prefix="conform-", ignore_cleanup_errors=True) as folder:
            file = Path(folder) / "result.json"
            ask = ToolRun(
                url,
                file,
                Path(folder) / "tokenizer",
                NUM_REQUESTS,
                TOKENS,
                is_chat=case.is_chat,
                timeout_s=case.timeout_s,
            )
            self.send(ask)
            return self.read_from(file, NUM_REQUESTS)

    def read_from(self, file: Path, num_requests: int) -> Observed:
        """What it said; not completed where it left no file."""
        found = tool_results.read_result(file)
        return Observed(NOT_COMPLETED) if found is None else self.read(found, num_requests)

    def send(self, ask: ToolRun, limit_s: float | None = None) -> None:
        """Run the tool to its end, in the folder of the result.

        Raises:   MeasurementError when it does not end in time
        """
        program = self.find(self.package)
        if program is None:
            raise MeasurementError(f"{self.name} is {self.why_absent()}")
        ask.tokenizer.mkdir(exist_ok=True)
        write_tokenizer(ask.tokenizer)
        limit_s = _LIMIT_S if limit_s is None else limit_s
        alone = {**_UNTOLD, **(_OFFLINE if self.goes_offline else {})}
        if _keep([*program, *self.command(ask)], ask.file.parent, alone, limit_s) == OUT_OF_TIME:
            raise MeasurementError(f"{self.name} did not end within {limit_s:g} s")


def _keep(command: list[str], folder: Path, environment: Mapping[str, str], limit_s: float) -> int:
    """Run a command under a keeper, which ends it with all its children when this call ends, in whatever way."""
    keeper = subprocess.Popen(
        [sys.executable, "-I", str(_HOST), f"{limit_s}", *command],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return keeper.wait()
    finally:
        if keeper.stdin is not None:
            keeper.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            keeper.wait(_ENDS_WITHIN_S)


TOOLS: Final = (
    Tool("vllm", "vllm", tool_places.find_program, tool_commands.vllm_command, tool_results.read_bench_serving),
    Tool("vllm-rs", "vllm", tool_places.find_vllm_rust, tool_commands.vllm_command, tool_results.read_bench_serving),
    Tool("sglang", "sglang", tool_places.find_sglang, tool_commands.sglang_command, tool_results.read_bench_serving),
    Tool(
        "sglang-rs",
        "sglang",
        tool_places.find_sglang_rust,
        tool_commands.sglang_command,
        tool_results.read_bench_serving,
    ),
    Tool("guidellm", "guidellm", tool_places.find_program, tool_commands.guidellm_command, tool_results.read_guidellm),
    Tool(
        "aiperf",
        "aiperf",
        tool_places.find_program,
        tool_commands.aiperf_command,
        tool_results.read_aiperf,
        goes_offline=False,
    ),
)
