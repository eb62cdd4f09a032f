"""The llama.cpp engine: start one that answers, ask one that runs already who it is, and stop what was started.

In:   a .gguf file and the size of the context, or the address of a server
Out:  a RunningServer with its identity, its own figures, and where each was read
Leaves out: load, timing and what the figures should be; the server's setup (llama_cpp_host) and its log (llama_cpp_log)
Read next by: verify.

Ready means that one token came back, not that a port is open.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import inference_bench
from inference_bench.engines import llama_cpp_host
from inference_bench.engines.base import EngineFigures, EngineIdentity, Progress, RunningServer
from inference_bench.engines.llama_cpp_host import HostConfig
from inference_bench.engines.llama_cpp_log import find_failure, find_last_line, parse_llama_cpp_log
from inference_bench.engines.llama_cpp_report import ServerReport, ask_server, inside, whole_number
from inference_bench.engines.process import ServerProcess
from inference_bench.errors import MissingExtraError, RequestError, ServerError, ServerStartError, UnknownNameError
from inference_bench.measure.files import sha256_of_file
from inference_bench.measure.target import ApiKey, Target

__all__ = [
    "KV_CACHE_TYPES",
    "AttachedServer",
    "HostConfig",
    "LlamaCppServer",
    "attach",
    "parse_llama_cpp_log",
    "start_llama_cpp",
]

KV_CACHE_TYPES: Final = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
"""Number formats that llama.cpp takes for keys and values (its common/arg.cpp, kv_cache_types)."""

_MAX_COUNT: Final = (1 << 31) - 1  # llama.cpp keeps these in 32 signed bits
_STARTUP_TIMEOUT_S: Final = 180.0
_ASK_S: Final = 10.0
_POLL_S: Final = 0.1
_LOG_SETTLES_S: Final = 2.0
_ADVICE: Final = (
    (re.compile("quantized V cache"), "use a value cache of f16, or let flash attention on"),
    (
        re.compile("insufficient memory|bad_alloc|failed to allocate"),
        "use a shorter context, fewer slots or a smaller cache type",
    ),
    (re.compile("couldn't bind"), "another program uses that port; let the system choose one"),
    (re.compile("invalid magic|file bounds|failed to read"), "the file is not a whole GGUF model; fetch it again"),
)


def start_llama_cpp(
    model_path: Path,
    *,
    context_tokens_total: int | None,
    num_slots: int,
    num_threads: int,
    log_path: Path,
    cache_type_k: str = "f16",
    cache_type_v: str = "f16",
    startup_timeout_s: float = _STARTUP_TIMEOUT_S,
    progress: Progress | None = None,
    model_sha256: str | None = None,
) -> LlamaCppServer:
    """A llama.cpp server on this machine that has answered with one token; `LlamaCppServer.start` has more settings.

    Where:    `context_tokens_total` is shared out over `num_slots`, or None for the length the model was trained for;
              `model_sha256` spares reading the file if it is known
    Raises:   ServerStartError; MissingExtraError; RequestError for a setting that cannot be; StorageError for the log
    """
    config = HostConfig(
        model_path=str(model_path),
        model_name=model_path.stem,
        context_tokens_total=context_tokens_total,
        num_slots=num_slots,
        num_threads=num_threads,
        cache_type_k=cache_type_k,
        cache_type_v=cache_type_v,
    )
    return LlamaCppServer.start(
        config,
        log_path=log_path,
        startup_timeout_s=startup_timeout_s,
        progress=progress,
        model_sha256=model_sha256,
    )


class LlamaCppServer(RunningServer):
    """A llama.cpp server that this program started and will stop."""

    def __init__(self, process: ServerProcess, base_url: str, identity: EngineIdentity, figures: EngineFigures) -> None:
        self.base_url = base_url
        self.identity = identity
        self.figures = figures
        self._process = process

    @classmethod
    def start(
        cls,
        config: HostConfig,
        *,
        log_path: Path,
        startup_timeout_s: float = _STARTUP_TIMEOUT_S,
        progress: Progress | None = None,
        model_sha256: str | None = None,
    ) -> LlamaCppServer:
        """Start the process, wait until the model answers, and read what it says about itself.

        Raises:   as `start_llama_cpp`; on any error, Ctrl-C included, the process is ended first
        """
        _check(config)
        digest = model_sha256 or sha256_of_file(Path(config.model_path))
        process = ServerProcess(_command(config), log_path=log_path, env=_environment())
        try:
            startup = _Startup(config, process, log_path, time.monotonic() + startup_timeout_s, progress)
            base_url = startup.wait_address()
            startup.wait_answer(base_url)
            report = ServerReport.read(Target(base_url), _ASK_S)
            figures = parse_llama_cpp_log(startup.read_settled_log()).filled_from(report.figures())
            return cls(process, base_url, _started_identity(config, digest, report), figures)
        except BaseException:
            process.stop()
            raise

    @property
    def pid(self) -> int:
        """The number of the server's process."""
        return self._process.pid

    def is_running(self) -> bool:
        """Whether the server's process has not ended."""
        return self._process.is_running()

    def describe_end(self) -> str:
        """How the server's process ended, in words."""
        return self._process.describe_end()

    def stop(self) -> None:
        """End the process and wait until it is gone."""
        self._process.stop()


def _check(config: HostConfig) -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        raise MissingExtraError(
            "the embedded engine needs the package xllamacpp; install it with: pip install 'inference-bench[bench]'"
        )
    if not Path(config.model_path).is_file():
        raise ServerStartError(f"there is no model file at {config.model_path}; give the path of a .gguf file")
    for name, value in (("cache_type_k", config.cache_type_k), ("cache_type_v", config.cache_type_v)):
        if value not in KV_CACHE_TYPES:
            raise UnknownNameError(
                f"{name} {value!r} is not a cache format of llama.cpp; use {', '.join(KV_CACHE_TYPES)}"
            )
    counts = {"num_slots": config.num_slots, "num_threads": config.num_threads}
    if config.context_tokens_total is not None:
        counts["context_tokens_total"] = config.context_tokens_total
    for name, count in counts.items():
        if not 1 <= count <= _MAX_COUNT:
            raise RequestError(f"{name} {count} is outside what llama.cpp takes; give 1 to {_MAX_COUNT}")


def _command(config: HostConfig) -> list[str]:
    return [sys.executable, "-P", "-m", llama_cpp_host.__name__, config.to_json()]


def _environment() -> dict[str, str]:
    """The environment of this program, in which the child also finds this very copy of the package.

    Where:    GGML_NO_BACKTRACE keeps a failed check inside the engine from starting a debugger on its own process
    """
    root = str(Path(inference_bench.__file__).parent.parent)
    search = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": search, "GGML_NO_BACKTRACE": "1"}


@dataclass(frozen=True, slots=True)
class _Startup:
    """One attempt to bring a server up, until it answers or the time is over."""

    config: HostConfig
    process: ServerProcess
    log_path: Path
    deadline_s: float
    progress: Progress | None

    def wait_address(self) -> str:
        """The address of the loaded server."""
        if self.progress is not None:
            self.progress(f"llama.cpp loads {self.config.model_name}")
        line = self.process.wait_first_line(self._left_s())
        if line is None:
            raise self._failure(f"the model was not loaded in time; last log line: {self._last_line()}")
        try:
            return str(json.loads(line)["address"])
        except ValueError:
            self.process.wait_ended(_POLL_S)
            raise self._failure(self._cause()) from None

    def wait_answer(self, base_url: str) -> None:
        """Return when one token came back."""
        if self.progress is not None:
            self.progress("waiting for the first token")
        request = {"prompt": "Hello", "max_tokens": 1, "ignore_eos": True, "cache_prompt": False}
        while True:
            try:
                timeout_s = max(self._left_s(), _POLL_S)
                reply = ask_server(Target(base_url), "/v1/completions", timeout_s, request)
                if whole_number(inside(reply, "usage", "completion_tokens")) is not None:
                    return
                problem = "the reply holds no token"
            except ServerError as error:
                problem = str(error)
            if not self.process.is_running():
                raise self._failure(self._cause())
            if self._left_s() <= 0:
                raise self._failure(f"the model did not answer in time ({problem})")
            time.sleep(_POLL_S)

    def read_settled_log(self) -> str:
        """The log once the start is written out; the engine writes it from a thread of its own."""
        until_s = time.monotonic() + _LOG_SETTLES_S
        while "listening on" not in (text := self._log()) and time.monotonic() < until_s:
            time.sleep(_POLL_S)
        return text

    def _left_s(self) -> float:
        return max(0.0, self.deadline_s - time.monotonic())

    def _log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def _last_line(self) -> str:
        return find_last_line(self._log()) or "none"

    def _cause(self) -> str:
        return f"{find_failure(self._log()) or 'its log is empty'} ({self.process.describe_end()})"

    def _failure(self, cause: str) -> ServerStartError:
        advice = next((f"; {advice}" for pattern, advice in _ADVICE if pattern.search(cause)), "")
        return ServerStartError(
            f"llama.cpp could not serve {self.config.model_path}: {cause}{advice}; log: {self.log_path}"
        )


def _started_identity(config: HostConfig, model_sha256: str, report: ServerReport) -> EngineIdentity:
    settings = asdict(config)
    for elsewhere in ("model_path", "model_name", "port"):
        del settings[elsewhere]
    return EngineIdentity(
        name="llama.cpp",
        source="started by this program",
        version=f"xllamacpp {importlib.metadata.version('xllamacpp')}",
        build=report.build(),
        model_name=config.model_name,
        model_path=config.model_path,
        model_sha256=model_sha256,
        flags=settings,
    )


class AttachedServer(RunningServer):
    """A server that somebody else started; it is asked, and left running."""

    def __init__(self, target: Target, report: ServerReport) -> None:
        self.base_url = target.base_url
        self.identity = report.identity()
        self.figures = report.figures()
        self._target = target

    def is_running(self) -> bool:
        """Whether it answers now."""
        try:
            ServerReport.read(self._target, _ASK_S)
        except ServerError:
            return False
        return True

    def stop(self) -> None:
        """Nothing: it is not ours to end."""


def attach(base_url: str, *, api_key: ApiKey | None = None, timeout_s: float = _ASK_S) -> AttachedServer:
    """A server that runs already, identified by what it reports: llama.cpp, or any that lists its models.

    Raises:   RequestError for an address that is none; ServerError if nothing answers there, or not a model server
    """
    target = Target(base_url, api_key=api_key)
    return AttachedServer(target, ServerReport.read(target, timeout_s))
