"""From a process that was just started to a server that has answered with a token, or one line that says why not.

In:   a ServerProcess, its log, and what its engine's log looks like
Out:  Startup, which waits; StartedServer, which runs and ends with the block
Leaves out: commands and settings (llama_cpp, vllm, sglang), what a log says (llama_cpp_log, vllm_log)
Read next by: llama_cpp, vllm, sglang.

Ready means that one token came back. An open port, a health page and a list of models all come from processes that may not
have the model: an engine that dies on its first request has answered all of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inference_bench.engines.answers import ask_server, inside, whole_number
from inference_bench.engines.base import EngineFigures, EngineIdentity, Progress, RunningServer
from inference_bench.engines.process import ServerProcess
from inference_bench.errors import ServerError, ServerStartError
from inference_bench.measure.target import Target
from inference_bench.units import MEBI

_POLL_S: Final = 0.1
_MAX_LOG_BYTES: Final = 32 * MEBI
_SLOW_ANSWER_S: Final = 60.0  # of one try: a fresh one finds out whether the process still lives


class StartedServer(RunningServer):
    """A server that this program started and will stop."""

    def __init__(self, process: ServerProcess, base_url: str, identity: EngineIdentity, figures: EngineFigures) -> None:
        self.base_url = base_url
        self.identity = identity
        self.figures = figures
        self._process = process

    @property
    def pid(self) -> int:
        """The number of the server's first process."""
        return self._process.pid

    def is_running(self) -> bool:
        """Whether the server's process has not ended."""
        return self._process.is_running()

    def describe_end(self) -> str:
        """How the server's process ended, in words."""
        return self._process.describe_end()

    def cpu_s(self) -> float | None:
        """Processor time that the server's processes took until now, in seconds; None where the system does not show it."""
        return self._process.cpu_s()

    def stop(self) -> None:
        """End the server's processes and wait until they are gone."""
        self._process.stop()


@dataclass(frozen=True, slots=True)
class EngineWords:
    """How one engine speaks of its failures.

    Where:    find_failure finds the line of a log that says why a start failed; advice is what to do about such lines
    """

    name: str
    find_failure: Callable[[str], str | None]
    advice: Sequence[tuple[re.Pattern[str], str]]


@dataclass(frozen=True, slots=True)
class Startup:
    """One attempt to bring a server up, until it answers or the time is over."""

    words: EngineWords
    model_path: str
    process: ServerProcess
    log_path: Path
    deadline_s: float
    progress: Progress | None

    def say(self, text: str) -> None:
        """Tell whoever listens what is happening now."""
        if self.progress is not None:
            self.progress(text)

    def wait_answer(self, base_url: str, model: str | None = None) -> None:
        """Return when one token came back.

        Where:    the first process to listen has a port; another's reply to it would not know our name of the model
        Raises:   ServerStartError
        """
        self.say("waiting for the first token")
        request = {"prompt": "Hello", "max_tokens": 1, "ignore_eos": True, "cache_prompt": False}
        if model is not None:
            request["model"] = model
        while True:
            problem = self._try_answer(base_url, request)
            if problem is None:
                return
            if not self.process.is_running():
                raise self.failure(self.cause())
            if self.left_s() <= 0:
                raise self.failure(f"the model did not answer in time ({problem})")
            time.sleep(_POLL_S)

    def _try_answer(self, base_url: str, request: dict[str, object]) -> str | None:
        """None if a token came back, else what came instead."""
        try:
            timeout_s = max(min(self.left_s(), _SLOW_ANSWER_S), _POLL_S)
            reply = ask_server(Target(base_url), "/v1/completions", timeout_s, request)
        except ServerError as error:
            return str(error)
        has_token = whole_number(inside(reply, "usage", "completion_tokens")) is not None
        return None if has_token else "the reply holds no token"

    def left_s(self) -> float:
        """Seconds until the start has taken too long."""
        return max(0.0, self.deadline_s - time.monotonic())

    def read_log(self) -> str:
        """What the server has written so far, or the beginning of a log beyond reason."""
        with self.log_path.open("rb") as file:
            return file.read(_MAX_LOG_BYTES).decode("utf-8", "replace")

    def wait_in_log(self, text: str, timeout_s: float) -> str:
        """The log once a text stands in it, or as it is after so long; engines write it from threads of their own."""
        until_s = time.monotonic() + timeout_s
        while text not in (log := self.read_log()) and time.monotonic() < until_s:
            time.sleep(_POLL_S)
        return log

    def cause(self) -> str:
        """Why the process ended, in its own words and the system's."""
        return f"{self.words.find_failure(self.read_log()) or 'its log is empty'} ({self.process.describe_end()})"

    def failure(self, cause: str) -> ServerStartError:
        """The error of a start that failed, with what to do about it where that is known."""
        advice = next((f"; {advice}" for pattern, advice in self.words.advice if pattern.search(cause)), "")
        return ServerStartError(
            f"{self.words.name} could not serve {self.model_path}: {cause}{advice}; log: {self.log_path}"
        )
