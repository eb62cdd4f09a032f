"""The llama.cpp engine: start one that answers, and stop it.

In:   a .gguf file and the size of the context
Out:  a StartedServer with its identity, its own figures, and where each was read
Leaves out: load, timing and what the figures should be; the server's setup (llama_cpp_host) and its log (llama_cpp_log)
Read next by: start, verify.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

import inference_bench
from inference_bench.engines import llama_cpp_host
from inference_bench.engines.answers import Asker
from inference_bench.engines.attach import read_report
from inference_bench.engines.base import EngineFigures, EngineIdentity, Progress
from inference_bench.engines.command_line import check_counts
from inference_bench.engines.llama_cpp_host import HostConfig
from inference_bench.engines.llama_cpp_log import find_failure, find_last_line, parse_llama_cpp_log
from inference_bench.engines.process import ServerProcess
from inference_bench.engines.startup import EngineWords, StartedServer, Startup
from inference_bench.errors import MissingExtraError, RequestError, ServerStartError, UnknownNameError
from inference_bench.measure.files import sha256_of_file
from inference_bench.measure.target import Target

__all__ = [
    "KV_CACHE_TYPES",
    "HostConfig",
    "LlamaCppServer",
    "parse_llama_cpp_log",
]

KV_CACHE_TYPES: Final = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
"""Number formats that llama.cpp takes for keys and values (its common/arg.cpp, kv_cache_types)."""

SPECULATIONS: Final = ("ngram_simple", "ngram_map_k", "ngram_map_k4v", "draft_simple")
"""How llama.cpp drafts (its common/common.h, common_speculative_type): from the context, or by a model of its own."""

MAX_SLOTS: Final = 256
"""Sequences that llama.cpp computes together (its src/llama-cparams.h, LLAMA_MAX_SEQ)."""

MAX_THREADS: Final = 512
"""Threads that it computes with (its ggml/include/ggml.h, GGML_MAX_N_THREADS)."""

_MAX_SPECULATED: Final = 512
_STARTUP_TIMEOUT_S: Final = 180.0
_ASK_S: Final = 10.0
_ENDS_S: Final = 0.1
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
_WORDS: Final = EngineWords("llama.cpp", find_failure, _ADVICE)


class LlamaCppServer(StartedServer):
    """A llama.cpp server that this program started and will stop."""

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

        Where:    `model_sha256` spares reading the file if it is known
        Raises:   ServerStartError; MissingExtraError; RequestError for a setting that cannot be; StorageError for the log; on
                  any error, Ctrl-C included, the process is ended first
        """
        check_llama_cpp(config)
        digest = model_sha256 or sha256_of_file(Path(config.model_path))
        process = ServerProcess(_command(config), log_path=log_path, env=_environment())
        try:
            deadline_s = time.monotonic() + startup_timeout_s
            startup = Startup(_WORDS, config.model_path, process, log_path, deadline_s, progress)
            base_url = _wait_address(startup, config.model_name)
            startup.wait_answer(base_url)
            report = read_report(Asker(Target(base_url), _ASK_S))
            log = startup.wait_in_log("listening on", _LOG_SETTLES_S)
            figures = parse_llama_cpp_log(log).filled_from(_settings_figures(config)).filled_from(report.figures)
            return cls(process, base_url, _started_identity(config, digest, report.identity.build), figures)
        except BaseException:
            process.stop()
            raise


def check_llama_cpp(config: HostConfig) -> None:
    """Refuse what the engine cannot be started with, before anything is.

    Raises:   MissingExtraError; ServerStartError for a file that is not there; UnknownNameError, RequestError for a setting
    """
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
    _check_speculation(config)
    check_counts("llama.cpp", {"num_slots": config.num_slots}, MAX_SLOTS)
    check_counts("llama.cpp", {"num_threads": config.num_threads}, MAX_THREADS)
    names = ("context_tokens_total", "max_batch_tokens", "max_micro_batch_tokens")
    check_counts("llama.cpp", {name: getattr(config, name) for name in names})


def _check_speculation(config: HostConfig) -> None:
    if config.speculation is None:
        return
    if config.speculation not in SPECULATIONS:
        raise UnknownNameError(
            f"speculation {config.speculation[:60]!r} is not one of llama.cpp's; use {', '.join(SPECULATIONS)}"
        )
    counts = {name: getattr(config, name) for name in ("speculation_tokens", "speculation_match_tokens")}
    check_counts("llama.cpp", counts, _MAX_SPECULATED)
    has_draft = config.speculation_draft_path is not None
    if has_draft != config.speculation.startswith("draft"):
        raise RequestError(
            f"speculation {config.speculation} {'takes no' if has_draft else 'needs a'} draft model; a draft model goes with draft_simple"
        )
    if has_draft and not Path(str(config.speculation_draft_path)).is_file():
        raise ServerStartError(
            f"there is no draft model at {config.speculation_draft_path}; give the path of a .gguf file"
        )


def _command(config: HostConfig) -> list[str]:
    return [sys.executable, "-P", "-m", llama_cpp_host.__name__, config.to_json()]


def knows_a_card() -> bool:
    """Whether the installed llama.cpp sees a graphics card; asked in a process of its own, as its drivers stay loaded.

    Ignores:  builds that see a card and are told to leave it alone
    """
    question = "import xllamacpp as x; print(any('CPU' not in str(d['type']) for d in x.get_device_info()))"
    try:
        command = [sys.executable, "-P", "-c", question]
        done = subprocess.run(command, capture_output=True, timeout=_ASK_S, env=_environment(), check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.stdout.strip().endswith(b"True")


def _environment() -> dict[str, str]:
    """The environment of this program, in which the child also finds this very copy of the package.

    Where:    GGML_NO_BACKTRACE keeps a failed check inside the engine from starting a debugger on its own process
    """
    root = str(Path(inference_bench.__file__).parent.parent)
    search = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": search, "GGML_NO_BACKTRACE": "1"}


def _wait_address(startup: Startup, model_name: str) -> str:
    """The address of the loaded server.

    Raises:   ServerStartError
    """
    startup.say(f"llama.cpp loads {model_name}")
    line = startup.process.wait_first_line(startup.left_s())
    if line is None:
        last = find_last_line(startup.read_log()) or "none"
        raise startup.failure(f"the model was not loaded in time; last log line: {last}")
    try:
        return str(json.loads(line)["address"])
    except ValueError:
        startup.process.wait_ended(_ENDS_S)
        raise startup.failure(startup.cause()) from None


def _settings_figures(config: HostConfig) -> EngineFigures:
    """What the server was started with and does not print."""
    read_from = dict.fromkeys(("prefix_cache", "num_threads", "speculation"), "the settings it was started with")
    return EngineFigures(
        prefix_cache=config.prompt_caching,
        num_threads=config.num_threads,
        speculation=config.speculation or "none",
        read_from=read_from,
    )


def _started_identity(config: HostConfig, model_sha256: str, build: str | None) -> EngineIdentity:
    settings = asdict(config)
    for elsewhere in ("model_path", "model_name", "port"):
        del settings[elsewhere]
    if config.speculation_draft_path is not None:
        settings["speculation_draft_path"] = Path(config.speculation_draft_path).name
    return EngineIdentity(
        name="llama.cpp",
        source="started by this program",
        version=f"xllamacpp {importlib.metadata.version('xllamacpp')}",
        build=build,
        model_name=config.model_name,
        model_path=config.model_path,
        model_sha256=model_sha256,
        flags=settings,
        model_files={Path(config.model_path).name: model_sha256},
    )
