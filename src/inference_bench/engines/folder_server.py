"""What starting vLLM and SGLang have in common: a folder with a model, an environment of their own, a command with a port.

In:   FolderConfig, a Launch, and what is the engine's own: its command, its words, its environment
Out:  a process that has answered with one token, with its address and what it reported
Leaves out: settings and figures that one engine alone has (vllm, sglang)
Read next by: vllm, sglang.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from inference_bench.engines.answers import Asker, Report
from inference_bench.engines.attach import read_report
from inference_bench.engines.base import FlagValue, Progress
from inference_bench.engines.command_line import check_counts, check_flags, check_fraction
from inference_bench.engines.model_files import ModelFiles, hash_model
from inference_bench.engines.ports import LOOPBACK, choose_port
from inference_bench.engines.process import ServerProcess
from inference_bench.engines.startup import EngineWords, Startup
from inference_bench.errors import ServerStartError
from inference_bench.measure.target import Target

_ASK_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class FolderConfig:
    """How a server of a folder is set up; None leaves a setting to the engine.

    Where:    context_tokens is the longest one sequence may become; token_budget the most positions of a step; extra_flags are
              the engine's own, by name without dashes
    """

    folder: str
    model_name: str
    context_tokens: int | None = None
    dtype: str | None = None
    block_tokens: int | None = None
    cache_dtype: str | None = None
    memory_fraction: float | None = None
    max_running: int | None = None
    token_budget: int | None = None
    prefix_cache: bool | None = None
    extra_flags: Mapping[str, FlagValue] = field(default_factory=dict)

    def check(self, engine: str, own_flags: frozenset[str], counts: Mapping[str, int | None]) -> None:
        """Refuse what no such engine can be started with; counts are the engine's further ones.

        Raises:   RequestError
        """
        shared = ("context_tokens", "block_tokens", "max_running", "token_budget")
        check_counts(engine, {**{name: getattr(self, name) for name in shared}, **counts})
        check_fraction(self.memory_fraction)
        check_flags(engine, self.extra_flags, own_flags)


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything about a start that is not a setting of the engine.

    Where:    model_files spares reading the files through if their hashes are known
    Unit:     seconds
    """

    log_path: Path
    timeout_s: float
    port: int | None = None
    progress: Progress | None = None
    model_files: ModelFiles | None = None


class Answered(NamedTuple):
    """A server that has answered with one token."""

    process: ServerProcess
    base_url: str
    files: ModelFiles
    report: Report
    startup: Startup


@contextmanager
def answering(
    config: FolderConfig,
    launch: Launch,
    words: EngineWords,
    said: str,
    command_at: Callable[[int], list[str]],
    environment: Mapping[str, str],
) -> Iterator[Answered]:
    """A server that has answered; on any error in the block, Ctrl-C included, all its processes are ended.

    Where:    said is what the person is told meanwhile
    Raises:   ServerStartError, StorageError for the log
    """
    files = launch.model_files or hash_model(Path(config.folder), launch.progress)
    if files is None:
        raise ServerStartError(
            f"{config.folder} is no folder with a model that {words.name} can serve; it needs config.json and .safetensors files"
        )
    port = choose_port(launch.port)
    process = ServerProcess.keep(command_at(port), log_path=launch.log_path, env=environment)
    try:
        deadline_s = time.monotonic() + launch.timeout_s
        startup = Startup(words, config.folder, process, launch.log_path, deadline_s, launch.progress)
        startup.say(said)
        base_url = f"http://{LOOPBACK}:{port}"
        startup.wait_answer(base_url, config.model_name)
        yield Answered(process, base_url, files, read_report(Asker(Target(base_url), _ASK_S)), startup)
    except BaseException:
        process.stop()
        raise
