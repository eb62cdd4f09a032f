"""What a log says of the server that wrote it: model, machine, limits, blocks of its cache.

In:   the log's meta.json as it was parsed, and the names of its folders
Out:  LogMeta; None wherever it says nothing
Leaves out: what the names mean here (served_log)
Read next by: log, served_log.

Tools put the same setting in different places, so a key is looked for at every depth, nearest the top first.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_MODEL: Final = ("model", "model_name", "model_id", "served_model_name", "model_tag")
_HARDWARE: Final = (
    *(
        "hardware",
        "accelerator_name",
        "accelerator",
        "gpu_name",
        "gpu",
        "device_name",
        "gpu_model",
        "device",
        "machine",
    ),
    *("name",),
)
_HARDWARE_SECTIONS: Final = ("hardware", "accelerator", "gpu", "device", "machine")
_BLOCKS: Final = (
    *("num_gpu_blocks", "num_gpu_blocks_override", "num_kv_blocks", "kv_blocks", "kv_cache_blocks", "gpu_blocks"),
    *("num_blocks", "total_blocks", "cache_blocks"),
)
_CACHE_TOKENS: Final = ("num_kv_tokens", "kv_cache_tokens", "kv_tokens", "max_total_num_tokens", "gpu_kv_cache_tokens")
_PREEMPTIONS: Final = ("num_preemptions", "preemptions", "preemption_count", "total_preemptions", "num_preempted")
_MOST_DEPTH: Final = 12
_UNKNOWN_WORDS: Final = frozenset({"", "auto", "none", "cuda", "cpu", "gpu", "default"})


@dataclass(frozen=True, slots=True)
class LogMeta:
    """What the log says of its server.

    Where:  models and machines are the names under which either may be known, likeliest first; preemptions are as counted
            by the engine
    """

    models: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    engine: str = "vllm"
    engine_version: str | None = None
    max_running: int | None = None
    token_budget: int | None = None
    tensor_parallel: int | None = None
    data_parallel: int | None = None
    expert_parallel: bool = False
    weight_format: str | None = None
    cache_format: str | None = None
    num_blocks: int | None = None
    block_size: int | None = None
    memory_share: float | None = None
    preemptions: int | None = None
    prefix_cache: bool | None = None


def read_meta(values: Mapping[str, Any], folders: Sequence[str] = ()) -> LogMeta:
    """The settings in a parsed meta.json, wherever they stand, and in the names of the log's folders, nearest first."""
    blocks = _count(values, _BLOCKS)
    block_size = _count(values, ("block_size", "kv_block_size", "page_size"))
    tokens = _count(values, _CACHE_TOKENS)
    if blocks is None and tokens is not None:
        blocks = tokens // (block_size or 16)
    engine, version = _engine(values)
    return LogMeta(
        models=tuple(_names(_text(values, _MODEL), folders)),
        machines=tuple(_names(_machine(values), folders)),
        engine=engine,
        engine_version=version,
        max_running=_count(
            values, ("max_num_seqs", "max_running_requests", "max_num_running", "max_batch_size", "n_parallel")
        ),
        token_budget=_count(
            values,
            ("max_num_scheduled_tokens", "max_num_batched_tokens", "chunked_prefill_size", "token_budget", "n_batch"),
        ),
        tensor_parallel=_count(values, ("tensor_parallel_size", "tensor_parallel", "tp_size", "tp")),
        data_parallel=_count(values, ("data_parallel_size", "data_parallel", "dp_size", "dp")),
        expert_parallel=_flag(values, ("enable_expert_parallel", "expert_parallel")) is True,
        weight_format=_text(values, ("quantization", "weight_format")),
        cache_format=_text(values, ("kv_cache_dtype", "cache_dtype")),
        num_blocks=blocks,
        block_size=block_size,
        memory_share=_number(values, ("gpu_memory_utilization", "mem_fraction_static")),
        preemptions=_count(values, _PREEMPTIONS, least=0),
        prefix_cache=_flag(values, ("enable_prefix_caching", "prefix_caching", "prefix_cache")),
    )


def _engine(values: Mapping[str, Any]) -> tuple[str, str | None]:
    for engine in ("vllm", "sglang"):
        version = _text(values, (f"{engine}_version",))
        if version is not None:
            return engine, version
    return _text(values, ("engine", "engine_name", "backend")) or "vllm", _text(values, ("engine_version",))


def _machine(values: Mapping[str, Any]) -> str | None:
    """The accelerator, by a key of its own or the name inside such a section."""
    for section in _HARDWARE_SECTIONS:
        inside = next((value for value in _found(values, section) if isinstance(value, Mapping)), None)
        if inside is not None and (name := _text(inside, _HARDWARE)) is not None:
            return name
    return _text(values, _HARDWARE[:-1])


def _names(stated: str | None, folders: Sequence[str]) -> Iterator[str]:
    """What a model or machine may be called: as stated, the last part of it, and the parts of the folders' names."""
    if stated is not None:
        yield stated
        yield stated.rstrip("/").rsplit("/", 1)[-1]
        yield re.sub(r"^(nvidia|amd|intel)\s+", "", stated, flags=re.IGNORECASE)
    for folder in folders:
        yield folder
        for part in re.split(r"[_\s]+|--", folder):
            yield part
            yield re.sub(r"^\d+x[-_ ]?|[-_ ]?x\d+$|[-_ ]?tp\d+$", "", part, flags=re.IGNORECASE)


def _found(values: Mapping[str, Any], key: str) -> Iterator[Any]:
    """Every value under a key, those nearest the top first."""
    waiting = deque([(values, 0)])
    while waiting:
        section, depth = waiting.popleft()
        if key in section:
            yield section[key]
        if depth < _MOST_DEPTH:
            waiting.extend((inner, depth + 1) for inner in section.values() if isinstance(inner, Mapping))


def _text(values: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    for key in keys:
        for value in _found(values, key):
            if isinstance(value, str) and value.strip().casefold() not in _UNKNOWN_WORDS:
                return value.strip()
    return None


def _flag(values: Mapping[str, Any], keys: Sequence[str]) -> bool | None:
    return next((value for key in keys for value in _found(values, key) if isinstance(value, bool)), None)


def _number(values: Mapping[str, Any], keys: Sequence[str]) -> float | None:
    for key in keys:
        for value in _found(values, key):
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
                return float(value)
    return None


def _count(values: Mapping[str, Any], keys: Sequence[str], least: int = 1) -> int | None:
    for key in keys:
        for value in _found(values, key):
            if isinstance(value, int) and not isinstance(value, bool) and value >= least:
                return value
    return None
