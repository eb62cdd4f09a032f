"""The memory of engines under many settings: each started, asked, and held to our count.

In:   MemoryCases, the models to serve, a folder for the logs
Out:  MemoryTable: the rows of all of them, and what an engine refused in its own words
Leaves out: how a row is counted (memory)
Read next by: scripts/memory_table.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from inference_bench.engines.base import Progress
from inference_bench.engines.model_files import hash_model
from inference_bench.engines.start import EngineSettings, start_engine
from inference_bench.errors import RequestError, ServerStartError
from inference_bench.facts.models import ModelSpec
from inference_bench.units import GIBI, MEBI
from inference_bench.verify.closed_loop import MemoryRow
from inference_bench.verify.memory import memory_rows


@dataclass(frozen=True, slots=True)
class MemoryCase:
    """One setting of one engine, and what it is called."""

    engine: str
    setting: str
    settings: EngineSettings


@dataclass(frozen=True, slots=True)
class Refusal:
    """A setting that an engine would not start with, and why, in its own words."""

    case: MemoryCase
    words: str


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """The rows of several settings."""

    rows: tuple[MemoryRow, ...]
    refused: tuple[Refusal, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether every figure that an engine stated is the one that was counted, and there is one."""
        stated = [row for row in self.rows if row.difference is not None]
        return bool(stated) and all(row.agrees for row in stated)


def memory_table(
    cases: Iterable[MemoryCase],
    models: Mapping[str, Path],
    model: ModelSpec,
    log_folder: Path,
    progress: Progress | None = None,
) -> MemoryTable:
    """Start an engine with each setting, one after the other, and hold what it says to our count.

    Where:    models maps an engine's name to what it serves, all of them the same model
    Raises:   RequestError for an engine without a model, MissingExtraError, StorageError
    """
    say = progress or (lambda _text: None)
    rows: list[MemoryRow] = []
    refused: list[Refusal] = []
    hashes = {name: hash_model(path, progress) for name, path in models.items()}
    for number, case in enumerate(cases):
        if case.engine not in models:
            raise RequestError(
                f"there is no model for {case.engine}; models are given for {', '.join(models) or 'none'}"
            )
        say(f"{case.engine}: {case.setting}")
        log_path = log_folder / f"memory-{number}.log"
        try:
            with start_engine(
                case.engine, models[case.engine], case.settings, log_path=log_path, model_files=hashes[case.engine]
            ) as server:
                rows += memory_rows(server.identity, server.figures, model, setting=case.setting)
        except ServerStartError as error:
            refused.append(Refusal(case, _own_words(str(error))))
    return MemoryTable(tuple(rows), tuple(refused))


def _own_words(message: str) -> str:
    """The engine's part of a message: without the path of the model before it and that of the log after it."""
    return message.partition(": ")[2].rpartition("; log: ")[0]


def _llama_cpp(setting: str, context_tokens: int, num_slots: int) -> MemoryCase:
    settings = EngineSettings(context_tokens=context_tokens, num_slots=num_slots, num_threads=1)
    return MemoryCase("llama.cpp", setting, settings)


def _with(case: MemoryCase, change: Callable[[EngineSettings], EngineSettings]) -> MemoryCase:
    return replace(case, settings=change(case.settings))


def _stored(case: MemoryCase, keys: str, values: str) -> MemoryCase:
    return _with(case, lambda settings: replace(settings, cache_type_k=keys, cache_type_v=values))


LLAMA_CPP_CASES: Final = (
    _llama_cpp("1 slot of 4,096 tokens, f16", 4096, 1),
    _llama_cpp("4 slots of 1,024 tokens, f16", 1024, 4),
    _llama_cpp("4 slots of 1,025 tokens, f16", 1025, 4),
    _with(
        _llama_cpp("4 slots of 1,025 tokens in one cache, f16", 1025, 4),
        lambda settings: replace(settings, kv_unified=True),
    ),
    _stored(_llama_cpp("3 slots of 700 tokens, f32", 700, 3), "f32", "f32"),
    _stored(_llama_cpp("4 slots of 1,024 tokens, q8_0", 1024, 4), "q8_0", "q8_0"),
    _stored(_llama_cpp("4 slots of 1,024 tokens, q4_0", 1024, 4), "q4_0", "q4_0"),
    _stored(_llama_cpp("2 slots of 2,000 tokens, q8_0 keys and q4_0 values", 2000, 2), "q8_0", "q4_0"),
    _with(
        _stored(_llama_cpp("4 slots of 1,024 tokens, q8_0 without flash attention", 1024, 4), "q8_0", "q8_0"),
        lambda settings: replace(settings, flash_attention=False),
    ),
)
"""What the embedded engine is held to, a second each."""


def _vllm(setting: str, dtype: str, cache_bytes: int, block_tokens: int | None, context_tokens: int) -> MemoryCase:
    settings = EngineSettings(
        context_tokens=context_tokens, dtype=dtype, cache_bytes=cache_bytes, block_tokens=block_tokens
    )
    return MemoryCase("vllm", setting, settings)


VLLM_CASES: Final = (
    _vllm("1 GiB, float32, its own blocks, 2,048 tokens", "float32", GIBI, None, 2048),
    _vllm("1 GiB, bfloat16, blocks of 16, 2,048 tokens", "bfloat16", GIBI, 16, 2048),
    _vllm("2 GiB, float32, blocks of 32, 2,000 tokens", "float32", 2 * GIBI, 32, 2000),
    _vllm("700 MiB, bfloat16, blocks of 64, 8,192 tokens", "bfloat16", 700 * MEBI, 64, 8192),
    _vllm("300 MiB, float32, blocks of 128, 8,192 tokens", "float32", 300 * MEBI, 128, 8192),
    _with(
        _vllm("1 GiB, fp8, its own blocks, 2,048 tokens", "bfloat16", GIBI, None, 2048),
        lambda settings: replace(settings, cache_type_k="fp8", cache_type_v="fp8"),
    ),
)
"""What vLLM on a CPU is held to, most of a minute each; what it refuses is part of the table."""
