"""Start any engine by its name, with one set of settings; what an engine does not take is refused by name.

In:   an engine's name, a model, EngineSettings
Out:  a StartedServer
Leaves out: how each engine is started (llama_cpp, vllm, sglang)
Read next by: verify.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from inference_bench.engines.base import LLAMA_CPP, SGLANG, VLLM, FlagValue, Progress
from inference_bench.engines.folder_server import Launch
from inference_bench.engines.llama_cpp import HostConfig, LlamaCppServer, check_llama_cpp
from inference_bench.engines.model_files import ModelFiles
from inference_bench.engines.sglang import STARTUP_TIMEOUT_S as SGLANG_STARTUP_S
from inference_bench.engines.sglang import SglangConfig, SglangServer, check_sglang, find_sglang
from inference_bench.engines.startup import StartedServer
from inference_bench.engines.vllm import STARTUP_TIMEOUT_S as VLLM_STARTUP_S
from inference_bench.engines.vllm import VllmConfig, VllmServer, check_vllm, find_vllm
from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.measure.machine_identity import identify_machine

ENGINES: Final = (LLAMA_CPP, VLLM, SGLANG)
_DEFAULT_SLOTS: Final = 4


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How an engine is asked to be started; None leaves a setting to the engine.

    Where:    `context_tokens` is the longest one sequence may become, prompt and answer; `num_slots` how many are computed at
              once; `cache_type_k` and `cache_type_v` the formats of the cache in the engine's own words; `cache_bytes` and
              `memory_fraction` what it sets aside, in bytes for the cache or as a share of a device for everything;
              `token_budget` the most tokens of a step, `micro_batch` how many of them are computed together; `venv` where the
              engine is installed, `flags` its own settings by its own names
    """

    context_tokens: int | None = None
    num_slots: int | None = None
    num_threads: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    kv_unified: bool | None = None
    flash_attention: bool | None = None
    block_tokens: int | None = None
    cache_bytes: int | None = None
    memory_fraction: float | None = None
    token_budget: int | None = None
    micro_batch: int | None = None
    prefix_cache: bool | None = None
    dtype: str | None = None
    port: int | None = None
    venv: Path | None = None
    flags: Mapping[str, FlagValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Start:
    """Everything about a start that is not a setting of the engine."""

    model_path: Path
    log_path: Path
    progress: Progress | None
    model_files: ModelFiles | None


def start_engine(
    name: str,
    model_path: Path,
    settings: EngineSettings | None = None,
    *,
    log_path: Path,
    progress: Progress | None = None,
    model_files: ModelFiles | None = None,
) -> StartedServer:
    """A server of that engine on this machine, which has answered with one token.

    Where:    llama.cpp serves a .gguf file, the others a folder as Transformers writes it; `model_files` spares reading the
              files through if their hashes are known
    Raises:   UnknownNameError; RequestError for a setting that this engine does not take, with its name; MissingExtraError,
              ServerStartError, StorageError
    """
    if name not in _STARTERS:
        raise UnknownNameError(f"no engine {name!r} can be started; engines: {', '.join(ENGINES)}")
    settings = settings or EngineSettings()
    _refuse_untaken(name, settings)
    return _STARTERS[name](settings, _Start(model_path, log_path, progress, model_files))


def check_start(name: str, model_path: Path, settings: EngineSettings) -> None:
    """Refuse at once what `start_engine` would refuse before it starts anything.

    Raises:   UnknownNameError; RequestError for a setting that this engine does not take, with its name; MissingExtraError
    """
    check_installed(name, settings.venv)
    _refuse_untaken(name, settings)
    if name == LLAMA_CPP:
        check_llama_cpp(_llama_cpp_config(settings, model_path))
    elif name == VLLM:
        check_vllm(_vllm_config(settings, model_path))
    else:
        check_sglang(_sglang_config(settings, model_path))


def check_installed(name: str, venv: Path | None = None) -> None:
    """Refuse an engine that is not there.

    Raises:   UnknownNameError; MissingExtraError
    """
    if name not in _STARTERS:
        raise UnknownNameError(f"no engine {name[:60]!r} can be started; engines: {', '.join(ENGINES)}")
    if name == VLLM:
        find_vllm(venv)
    elif name == SGLANG:
        find_sglang(venv)


_EVERY: Final = frozenset(
    ("context_tokens", "num_slots", "cache_type_k", "cache_type_v", "prefix_cache", "port", "flags")
)
_TAKEN: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        LLAMA_CPP: _EVERY | {"num_threads", "kv_unified", "flash_attention", "token_budget", "micro_batch"},
        VLLM: _EVERY
        | {"num_threads", "block_tokens", "cache_bytes", "memory_fraction", "token_budget", "dtype", "venv"},
        SGLANG: _EVERY | {"block_tokens", "memory_fraction", "token_budget", "dtype", "venv"},
    }
)


def _refuse_untaken(name: str, settings: EngineSettings) -> None:
    unset = EngineSettings()
    for setting in (item.name for item in fields(settings)):
        value = getattr(settings, setting)
        if value != getattr(unset, setting) and setting not in _TAKEN[name]:
            raise RequestError(
                f"{name} takes no {setting} (asked for: {value}); it takes {', '.join(sorted(_TAKEN[name]))}"
            )


def _one_cache_type(name: str, settings: EngineSettings) -> str | None:
    """The format of keys and values, for engines that store them alike."""
    kinds = {kind for kind in (settings.cache_type_k, settings.cache_type_v) if kind is not None}
    if len(kinds) > 1:
        raise RequestError(
            f"{name} stores keys and values alike, not as {settings.cache_type_k} and {settings.cache_type_v}; give one format"
        )
    return next(iter(kinds), None)


def _start_llama_cpp(settings: EngineSettings, start: _Start) -> StartedServer:
    config = _llama_cpp_config(settings, start.model_path)
    digest = start.model_files.sha256 if start.model_files else None
    return LlamaCppServer.start(config, log_path=start.log_path, progress=start.progress, model_sha256=digest)


def _llama_cpp_config(settings: EngineSettings, model_path: Path) -> HostConfig:
    config = HostConfig(
        model_path=str(model_path),
        model_name=model_path.stem,
        context_tokens_total=None,
        num_slots=settings.num_slots or _DEFAULT_SLOTS,
        num_threads=settings.num_threads or identify_machine().num_usable_cores,
        port=settings.port,
    )
    if settings.context_tokens is not None:
        config = replace(config, context_tokens_total=settings.context_tokens * config.num_slots)
    given: dict[str, Any] = {
        "cache_type_k": settings.cache_type_k,
        "cache_type_v": settings.cache_type_v,
        "kv_unified": settings.kv_unified,
        "flash_attention": settings.flash_attention,
        "max_batch_tokens": settings.token_budget,
        "max_micro_batch_tokens": settings.micro_batch,
        "prompt_caching": settings.prefix_cache,
        **_llama_cpp_flags(settings.flags),
    }
    return replace(config, **{name: value for name, value in given.items() if value is not None})


_LLAMA_CPP_FLAGS: Final[Mapping[str, type]] = MappingProxyType(
    {
        "swa_full": bool,
        "speculation": str,
        "speculation_tokens": int,
        "speculation_match_tokens": int,
        "speculation_draft_path": str,
    }
)
_FLAG_WORDS: Final = MappingProxyType({bool: "on or off", str: "a text", int: "a whole number"})


def _llama_cpp_flags(flags: Mapping[str, FlagValue]) -> dict[str, FlagValue]:
    """The embedded server has no command line; of its other settings these are carried over."""
    for name, value in flags.items():
        if name not in _LLAMA_CPP_FLAGS or type(value) is not _LLAMA_CPP_FLAGS[name]:
            allowed = ", ".join(f"{known} ({_FLAG_WORDS[kind]})" for known, kind in _LLAMA_CPP_FLAGS.items())
            raise RequestError(f"the embedded llama.cpp takes no flag {name[:60]!r} with {value!r}; it takes {allowed}")
    return dict(flags)


def _launch(settings: EngineSettings, start: _Start, timeout_s: float) -> Launch:
    return Launch(start.log_path, timeout_s, settings.port, start.progress, start.model_files)


def _folder_values(name: str, settings: EngineSettings, model_path: Path) -> dict[str, Any]:
    """The settings of a FolderConfig, by the names it has for them."""
    return {
        "folder": str(model_path),
        "model_name": model_path.name,
        "context_tokens": settings.context_tokens,
        "dtype": settings.dtype,
        "block_tokens": settings.block_tokens,
        "cache_dtype": _one_cache_type(name, settings),
        "memory_fraction": settings.memory_fraction,
        "max_running": settings.num_slots,
        "token_budget": settings.token_budget,
        "prefix_cache": settings.prefix_cache,
        "extra_flags": settings.flags,
    }


def _start_vllm(settings: EngineSettings, start: _Start) -> StartedServer:
    config = _vllm_config(settings, start.model_path)
    return VllmServer.start(config, find_vllm(settings.venv), _launch(settings, start, VLLM_STARTUP_S))


def _vllm_config(settings: EngineSettings, model_path: Path) -> VllmConfig:
    shared = _folder_values(VLLM, settings, model_path)
    return VllmConfig(**shared, cache_bytes=settings.cache_bytes, num_threads=settings.num_threads)


def _start_sglang(settings: EngineSettings, start: _Start) -> StartedServer:
    config = _sglang_config(settings, start.model_path)
    return SglangServer.start(config, find_sglang(settings.venv), _launch(settings, start, SGLANG_STARTUP_S))


def _sglang_config(settings: EngineSettings, model_path: Path) -> SglangConfig:
    return SglangConfig(**_folder_values(SGLANG, settings, model_path))


_STARTERS: Final[Mapping[str, Callable[[EngineSettings, _Start], StartedServer]]] = MappingProxyType(
    {
        LLAMA_CPP: _start_llama_cpp,
        VLLM: _start_vllm,
        SGLANG: _start_sglang,
    }
)
