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
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from inference_bench.engines.base import EngineIdentity, FlagValue
from inference_bench.engines.command_line import as_options
from inference_bench.engines.environments import engine_environment, find_environment, python_of
from inference_bench.engines.folder_server import FolderConfig, Launch, answering
from inference_bench.engines.model_files import ModelFiles
from inference_bench.engines.ports import LOOPBACK
from inference_bench.engines.startup import EngineWords, StartedServer
from inference_bench.engines.vllm_log import find_python_failure
from inference_bench.errors import MissingExtraError

STARTUP_TIMEOUT_S: Final = 900.0
VENV_VARIABLE: Final = "INFERENCE_BENCH_SGLANG"
DEFAULT_VENV: Final = ".venv-sglang"

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
class SglangConfig(FolderConfig):
    """How one SGLang server is set up; None leaves a setting to SGLang.

    Where:    `kv_tokens` is its max_total_tokens, `memory_fraction` its mem_fraction_static, `block_tokens` its page size,
              `token_budget` its chunked_prefill_size
    """

    kv_tokens: int | None = None

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
    def start(cls, config: SglangConfig, venv: Path, launch: Launch) -> SglangServer:
        """Start the processes, wait until the model answers, and read what it says about itself.

        Raises:   ServerStartError; RequestError for a setting that cannot be; StorageError for the log
        """
        check_sglang(config)
        command = partial(sglang_command, config, venv)
        said = f"SGLang loads {config.model_name}"
        with answering(config, launch, _WORDS, said, command, engine_environment()) as (process, url, files, report, _):
            return cls(process, url, _started_identity(config, files, report.identity), report.figures)


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
    config.check("SGLang", _OWN_FLAGS, {"kv_tokens": config.kv_tokens})


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
