"""The SGLang engine: start its server from a virtual environment of its own, wait for a token, identify it, stop all of it.

In:   a folder with a model, the environment that SGLang is installed in, and settings
Out:  a StartedServer with its identity, its own figures, and where each was read
Leaves out: load and timing; its answers (sglang_report)
Read next by: start.

Not run anywhere yet: SGLang needs a GPU, or a CPU with AMX. The command is built from the arguments of its public source, and
what it answers is tested on transcripts made by hand from that source and its documentation.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from inference_bench.engines.attach import read_report
from inference_bench.engines.base import EngineIdentity, FlagValue, Progress
from inference_bench.engines.command_line import as_options, check_counts, check_flags, check_fraction
from inference_bench.engines.environments import engine_environment, find_environment, python_of
from inference_bench.engines.model_files import ModelFiles, hash_model
from inference_bench.engines.ports import LOOPBACK, choose_port
from inference_bench.engines.process import ServerProcess
from inference_bench.engines.startup import EngineWords, StartedServer, Startup
from inference_bench.engines.vllm_log import find_python_failure
from inference_bench.errors import MissingExtraError, ServerStartError
from inference_bench.measure.target import Target

VENV_VARIABLE: Final = "INFERENCE_BENCH_SGLANG"
DEFAULT_VENV: Final = ".venv-sglang"

_STARTUP_TIMEOUT_S: Final = 900.0
_ASK_S: Final = 10.0
_OWN_FLAGS: Final = frozenset(("host", "port", "served-model-name", "model-path", "api-key", "admin-api-key"))
_ADVICE: Final = (
    (
        re.compile("out of memory|Not enough memory"),
        "ask for a shorter context, or give it another share of the memory",
    ),
    (re.compile("unrecognized arguments"), "this version of SGLang has no such setting"),
    (re.compile("[Aa]ddress already in use"), "another program uses that port; let one be chosen"),
)
_WORDS: Final = EngineWords("sglang", find_python_failure, _ADVICE)


@dataclass(frozen=True, slots=True)
class SglangConfig:
    """How one SGLang server is set up; None leaves a setting to SGLang.

    Where:    `kv_tokens` is its max_total_tokens, `memory_fraction` its mem_fraction_static, `block_tokens` its page size,
              `token_budget` its chunked_prefill_size; `extra_flags` are its own, by name without dashes
    """

    folder: str
    model_name: str
    context_tokens: int | None = None
    dtype: str | None = None
    block_tokens: int | None = None
    kv_tokens: int | None = None
    cache_dtype: str | None = None
    memory_fraction: float | None = None
    max_running: int | None = None
    token_budget: int | None = None
    prefix_cache: bool | None = None
    extra_flags: Mapping[str, FlagValue] = field(default_factory=dict)

    def options(self) -> Iterator[tuple[str, FlagValue]]:
        """Its settings under SGLang's own names."""
        yield "context-length", self.context_tokens
        yield "dtype", self.dtype
        yield "page-size", self.block_tokens
        yield "max-total-tokens", self.kv_tokens
        yield "kv-cache-dtype", self.cache_dtype
        yield "mem-fraction-static", None if self.memory_fraction is None else str(self.memory_fraction)
        yield "max-running-requests", self.max_running
        yield "chunked-prefill-size", self.token_budget
        yield "disable-radix-cache", True if self.prefix_cache is False else None
        yield from self.extra_flags.items()


class SglangServer(StartedServer):
    """An SGLang server that this program started and will stop, with all its processes."""

    @classmethod
    def start(
        cls,
        config: SglangConfig,
        venv: Path,
        *,
        log_path: Path,
        port: int | None = None,
        startup_timeout_s: float = _STARTUP_TIMEOUT_S,
        progress: Progress | None = None,
        model_files: ModelFiles | None = None,
    ) -> SglangServer:
        """Start the processes, wait until the model answers, and read what it says about itself.

        Raises:   ServerStartError; RequestError for a setting that cannot be; StorageError for the log; on any error,
                  Ctrl-C included, the processes are ended first
        """
        check_sglang(config)
        files = model_files or hash_model(Path(config.folder), progress)
        if files is None:
            raise ServerStartError(
                f"{config.folder} is no folder with a model; it needs config.json and .safetensors files"
            )
        chosen = choose_port(port)
        process = ServerProcess.keep(sglang_command(config, venv, chosen), log_path=log_path, env=engine_environment())
        try:
            deadline_s = time.monotonic() + startup_timeout_s
            startup = Startup(_WORDS, config.folder, process, log_path, deadline_s, progress)
            startup.say(f"SGLang loads {config.model_name}")
            base_url = f"http://{LOOPBACK}:{chosen}"
            startup.wait_answer(base_url, config.model_name)
            report = read_report(Target(base_url), _ASK_S)
            return cls(process, base_url, _started_identity(config, files, report.identity), report.figures)
        except BaseException:
            process.stop()
            raise


def find_sglang(venv: Path | None = None) -> Path:
    """The virtual environment that SGLang is installed in.

    Where:    the one that was named, or the variable INFERENCE_BENCH_SGLANG, or .venv-sglang in this folder
    Raises:   MissingExtraError where there is none
    """
    found = find_environment(venv, VENV_VARIABLE, DEFAULT_VENV)
    if not python_of(found).is_file():
        raise MissingExtraError(
            f"SGLang needs a virtual environment of its own on a machine with a GPU, and there is none at {found}; make one "
            "with: python -m venv, then pip install sglang"
        )
    return found


def check_sglang(config: SglangConfig) -> None:
    """Refuse what the engine cannot be started with, before anything is.

    Raises:   RequestError
    """
    counts = {
        "context_tokens": config.context_tokens,
        "block_tokens": config.block_tokens,
        "kv_tokens": config.kv_tokens,
        "max_running": config.max_running,
        "token_budget": config.token_budget,
    }
    check_counts("SGLang", counts)
    check_fraction(config.memory_fraction)
    check_flags("SGLang", config.extra_flags, _OWN_FLAGS)


def sglang_command(config: SglangConfig, venv: Path, port: int) -> list[str]:
    """The command that serves a model, on the loopback interface only.

    Source:   SGLang 0.5 python/sglang/launch_server.py, python/sglang/srt/server_args.py
    """
    command = [str(python_of(venv)), "-P", "-m", "sglang.launch_server", "--model-path", config.folder]
    command += ["--host", LOOPBACK, "--port", str(port), "--served-model-name", config.model_name, "--enable-metrics"]
    return [*command, *as_options(config.options(), negated=None)]


def _started_identity(config: SglangConfig, files: ModelFiles, reported: EngineIdentity) -> EngineIdentity:
    return EngineIdentity(
        name="sglang",
        source="started by this program",
        version=None if reported.version is None else f"sglang {reported.version}",
        build=reported.build,
        model_name=config.model_name,
        model_path=config.folder,
        model_sha256=files.sha256,
        flags={**reported.flags, **{name: value for name, value in config.options() if value is not None}},
        model_files=files.by_name,
    )
