"""What a log says of the server that wrote it: model, machine, limits, blocks of its cache.

In:   the log's meta.json as it was parsed, and the names of its folders
Out:  LogMeta; None wherever it says nothing
Leaves out: what the names mean here (log_names, served_log)
Read next by: log, served_log.

Tools put the same setting in different places, so a key is looked for at every depth, nearest the top first. A number that
cannot be is refused; 0 and -1 are how engines write that a limit is not set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from inference_bench.calibrate.log_names import devices_named, machine_names, model_names
from inference_bench.errors import MeasurementTableError
from inference_bench.facts.fields import shown

PREEMPTIONS: Final = (
    *("num_preemptions", "preemptions", "preemption_count", "total_preemptions", "num_preemptions_total"),
    *("preemptions_total", "num_preempted", "preempted", "vllm:num_preemptions_total", "vllm:num_preemptions"),
)
MOST_PREEMPTIONS: Final = 1 << 40
_MODEL: Final = ("model", "model_name", "model_id", "model_path", "served_model_name", "model_tag")
_HARDWARE: Final = (
    *("hardware", "accelerator_name", "accelerator", "gpu_name", "gpu", "device_name", "gpu_model", "gpu_type"),
    *("device", "machine", "name"),
)
_HARDWARE_SECTIONS: Final = ("hardware", "accelerator", "gpu", "device", "machine")
_BLOCKS: Final = (
    *("num_gpu_blocks", "num_gpu_blocks_override", "num_kv_blocks", "kv_blocks", "kv_cache_blocks", "gpu_blocks"),
    *("num_blocks", "total_blocks", "cache_blocks"),
)
_CACHE_TOKENS: Final = ("num_kv_tokens", "kv_cache_tokens", "kv_tokens", "max_total_num_tokens", "gpu_kv_cache_tokens")
_RUNNING: Final = ("max_num_seqs", "max_running_requests", "max_num_running", "max_batch_size", "n_parallel")
_BUDGET: Final = (
    *("max_num_scheduled_tokens", "max_num_batched_tokens", "chunked_prefill_size", "token_budget", "n_batch"),
)
_MOST_DEPTH: Final = 12
_MOST_DEVICES: Final = 1 << 16
_MOST_COUNT: Final = 1 << 40
_MOST_BLOCK: Final = 1 << 20  # positions of a block; engines' own are 1 to a few thousand
_NOT_SET: Final = (0, -1)
_UNKNOWN_WORDS: Final = frozenset({"", "auto", "none", "null", "cuda", "cpu", "gpu", "default"})


@dataclass(frozen=True, slots=True)
class LogMeta:
    """What the log says of its server.

    Where:  models and machines are the names under which either may be known, likeliest first; named_devices is
            what the name of a folder says; preemptions are as counted by the engine
    """

    models: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    engine: str = "vllm"
    engine_version: str | None = None
    max_running: int | None = None
    token_budget: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    expert_parallel: bool = False
    weight_format: str | None = None
    cache_format: str | None = None
    num_blocks: int | None = None
    block_size: int | None = None
    memory_share: float | None = None
    preemptions: int | None = None
    prefix_cache: bool | None = None
    named_devices: int | None = None


def read_meta(values: Mapping[str, Any], folders: Sequence[str] = (), what: str = "meta.json") -> LogMeta:
    """The settings in a parsed meta.json, wherever they stand, and in the names of the log's folders, nearest first.

    Where:   what names the file in messages
    Raises:  MeasurementTableError naming a setting that cannot be
    """
    said = _Settings(values, what)
    blocks = said.count(_BLOCKS)
    block_size = said.count(("block_size", "kv_block_size", "page_size"), most=_MOST_BLOCK)
    tokens = said.count(_CACHE_TOKENS)
    if blocks is None and tokens is not None:
        blocks = tokens // (block_size or 16)
    engine, version = _engine(said)
    return LogMeta(
        models=tuple(dict.fromkeys(model_names(said.text(_MODEL), folders))),
        machines=tuple(dict.fromkeys(machine_names(_machine(said), folders))),
        engine=engine,
        engine_version=version,
        max_running=said.count(_RUNNING),
        token_budget=said.count(_BUDGET),
        tensor_parallel=said.count(("tensor_parallel_size", "tensor_parallel", "tp_size", "tp"), most=_MOST_DEVICES),
        pipeline_parallel=said.count(("pipeline_parallel_size", "pipeline_parallel", "pp_size"), most=_MOST_DEVICES),
        data_parallel=said.count(("data_parallel_size", "data_parallel", "dp_size", "dp"), most=_MOST_DEVICES),
        expert_parallel=said.flag(("enable_expert_parallel", "expert_parallel")) is True,
        weight_format=said.text(("quantization", "weight_format")),
        cache_format=said.text(("kv_cache_dtype", "cache_dtype")),
        num_blocks=blocks,
        block_size=block_size,
        memory_share=said.share(("gpu_memory_utilization", "mem_fraction_static")),
        preemptions=said.count(PREEMPTIONS, least=0),
        prefix_cache=said.flag(("enable_prefix_caching", "prefix_caching", "prefix_cache")),
        named_devices=devices_named(folders),
    )


def _engine(said: _Settings) -> tuple[str, str | None]:
    for engine in ("vllm", "sglang"):
        version = said.text((f"{engine}_version",))
        if version is not None:
            return engine, version
    return said.text(("engine", "engine_name", "backend")) or "vllm", said.text(("engine_version",))


def _machine(said: _Settings) -> str | None:
    """The accelerator, by a key of its own or the name inside such a section."""
    for section in _HARDWARE_SECTIONS:
        inside = next((value for value in said.found(section) if isinstance(value, Mapping)), None)
        if inside is not None and (name := _Settings(inside, said.what).text(_HARDWARE)) is not None:
            return name
    return said.text(_HARDWARE[:-1])


@dataclass(frozen=True, slots=True)
class _Settings:
    """A parsed file, in which keys are looked for at every depth."""

    values: Mapping[str, Any]
    what: str

    def found(self, key: str) -> Iterator[Any]:
        """Every value under a key, those nearest the top first."""
        waiting = deque([(self.values, 0)])
        while waiting:
            section, depth = waiting.popleft()
            if key in section:
                yield section[key]
            if depth < _MOST_DEPTH:
                waiting.extend((inner, depth + 1) for inner in section.values() if isinstance(inner, Mapping))

    def text(self, keys: Sequence[str]) -> str | None:
        """The first text that says something."""
        for key in keys:
            for value in self.found(key):
                if isinstance(value, str) and value.strip().casefold() not in _UNKNOWN_WORDS:
                    return value.strip()
        return None

    def flag(self, keys: Sequence[str]) -> bool | None:
        """The first yes or no."""
        return next((value for key in keys for value in self.found(key) if isinstance(value, bool)), None)

    def share(self, keys: Sequence[str]) -> float | None:
        """The first share.

        Raises:  MeasurementTableError for a number that is none
        """
        for key, value in self._numbers(keys):
            if not 0 < value <= 1:
                raise self._refused(key, value, "a share above 0 and at most 1")
            return float(value)
        return None

    def count(self, keys: Sequence[str], least: int = 1, most: int = _MOST_COUNT) -> int | None:
        """The first whole number that is set.

        Raises:  MeasurementTableError for a number that cannot be
        """
        for key, value in self._numbers(keys):
            if least > 0 and value in _NOT_SET:
                continue
            if not least <= value <= most or value != int(value):
                raise self._refused(key, value, f"a whole number from {least} to {most}")
            return int(value)
        return None

    def _numbers(self, keys: Sequence[str]) -> Iterator[tuple[str, int | float]]:
        """Numbers under some keys, also those that were written as text."""
        for key in keys:
            for value in self.found(key):
                if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
                    yield key, int(value)
                elif isinstance(value, int | float) and not isinstance(value, bool):
                    yield key, value

    def _refused(self, key: str, value: object, needed: str) -> MeasurementTableError:
        return MeasurementTableError(f"{self.what}: {key} is {shown(value)}; {needed} is needed")
