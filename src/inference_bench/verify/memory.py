"""Is the memory that was counted the memory that an engine says it set aside? To the byte, cell, block and token.

In:   a server's identity and figures, the model it serves
Out:  MemoryRows, each our count beside the engine's; CacheCheck, llama.cpp's buffers all together
Leaves out: weights and working buffers; which memory a GPU has left for the cache, which its engine measures
Read next by: flow, memory_table (the same for several settings).

Ours is counted from the settings a server was started with, where this program started it, and from its own figures
otherwise. A size that an engine prints rounded agrees where our exact count would be printed as the same digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from inference_bench.accounting.allocation import INDEX_KEYS, STATE, EngineAllocation, LayerAllocation
from inference_bench.accounting.allocation.llama_cpp import DEFAULT_MICRO_BATCH, llama_cpp_allocation
from inference_bench.accounting.allocation.vllm import DEFAULT_IN_FLIGHT_TOKENS, VllmSettings, vllm_allocation
from inference_bench.accounting.cache import CacheFormat, count_cache
from inference_bench.engines.base import (
    LLAMA_CPP,
    VLLM,
    EngineFigures,
    EngineIdentity,
    KVBuffer,
    KVCacheKind,
    PrintedSize,
)
from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.formats import number_format
from inference_bench.facts.models import LayerType, ModelSpec
from inference_bench.units import format_count
from inference_bench.verify.closed_loop import MemoryRow
from inference_bench.verify.result import CacheCheck

_WINDOWED: Final = (LayerType.SLIDING_ATTENTION, LayerType.CHUNKED_ATTENTION)
_KIND_NAMES: Final = {
    KVCacheKind.FULL: "cache",
    KVCacheKind.SLIDING: "cache of the layers with a window",
    KVCacheKind.INDEX: "cache of the index keys",
}


def memory_rows(
    identity: EngineIdentity, figures: EngineFigures, model: ModelSpec, *, setting: str | None = None
) -> tuple[MemoryRow, ...]:
    """What one server says it set aside for the cache, beside our count; nothing where it says too little to count.

    Where:    `setting` names how it was started, where that is not plain from its figures
    """
    try:
        if identity.kind == LLAMA_CPP:
            return tuple(_llama_cpp_rows(identity, figures, model, setting))
        if identity.kind == VLLM:
            return tuple(_vllm_rows(identity, figures, model, setting))
    except (RequestError, UnknownNameError):
        return ()  # a design, or a format, whose layout is not counted
    return ()


# ── llama.cpp: cells in streams ────────────────────────────────────────────────────────────────────


class _Counted(NamedTuple):
    """llama.cpp's cache as it was counted, with the settings it was counted by."""

    allocation: EngineAllocation
    fmt: CacheFormat
    context_tokens: int
    num_slots: int


def _count_llama_cpp(identity: EngineIdentity, figures: EngineFigures, model: ModelSpec) -> _Counted | None:
    """Our count by the settings of a start, else by the server's own figures; None where neither says enough.

    Raises:   RequestError, UnknownNameError for a design or a format whose layout is not counted
    """
    asked = identity.flags
    total, slots = identity.flag_count("context_tokens_total") or figures.context_tokens_total, figures.num_slots
    fmt = _format(
        _text(asked, "cache_type_k") or figures.cache_type_k, _text(asked, "cache_type_v") or figures.cache_type_v
    )
    if fmt is None or total is None or slots is None or not figures.kv_buffers + figures.state_buffers:
        return None
    ours = llama_cpp_allocation(
        model,
        fmt,
        total,
        slots,
        unified=bool(asked.get("kv_unified", figures.kv_unified)),
        micro_batch=identity.flag_count("max_micro_batch_tokens") or figures.micro_batch or DEFAULT_MICRO_BATCH,
        full_size_window=bool(asked.get("swa_full", False)),
        flash_attention=figures.flash_attention is not False,
    )
    return _Counted(ours, fmt, total, slots)


def _llama_cpp_rows(
    identity: EngineIdentity, figures: EngineFigures, model: ModelSpec, setting: str | None
) -> Iterator[MemoryRow]:
    counted = _count_llama_cpp(identity, figures, model)
    if counted is None:
        return
    ours, fmt, total, slots = counted
    unified = "one shared by all" if figures.kv_unified else "one for each"
    named = setting or f"{format_count(total)} tokens on {slots} slots, cache {unified}, {fmt.name}"
    extra = max((layer.cells * layer.streams for layer in ours.layers if layer.holds != STATE), default=total) - total
    more = f": {format_count(extra)} cells more than the {format_count(total)} tokens asked for" if extra > 0 else ""
    cells = _Rows(LLAMA_CPP, named, f"{ours.rule}{more}")
    printed = {buffer.kind: buffer for buffer in figures.kv_buffers if buffer.layers}
    for kind, buffer in printed.items():
        yield from _buffer_rows(cells, _KIND_NAMES[kind], buffer, _layers_of(ours, kind, printed))
    for state in figures.state_buffers:
        yield cells.of_size("recurrent states", ours.state_bytes, state.size)
    if figures.context_tokens_per_slot is not None:
        yield cells.of_count(
            "context of a slot", "tokens", ours.context_tokens_per_sequence, figures.context_tokens_per_slot
        )


def _buffer_rows(rows: _Rows, name: str, buffer: KVBuffer, layers: Sequence[LayerAllocation]) -> Iterator[MemoryRow]:
    yield rows.of_size(name, sum(layer.num_bytes for layer in layers), buffer.size)
    cells = max((layer.cells * layer.streams for layer in layers), default=0)
    yield rows.of_count(name, "cells", cells, buffer.total_cells)


def _layers_of(
    ours: EngineAllocation, kind: KVCacheKind, printed: Mapping[KVCacheKind, KVBuffer]
) -> list[LayerAllocation]:
    """The layers whose cells lie in the engine's cache of one kind."""
    has_sliding = KVCacheKind.SLIDING in printed
    return [layer for layer in ours.layers if layer.holds != STATE and _cache_kind(layer, has_sliding) is kind]


def _cache_kind(layer: LayerAllocation, has_sliding: bool) -> KVCacheKind:
    """Which of llama.cpp's caches a layer lies in; layers with a window share the full one where there is no other."""
    if layer.holds == INDEX_KEYS:
        return KVCacheKind.INDEX
    return KVCacheKind.SLIDING if has_sliding and layer.layer_type in _WINDOWED else KVCacheKind.FULL


def check_cache(identity: EngineIdentity, figures: EngineFigures, model: ModelSpec) -> CacheCheck | None:
    """llama.cpp's own KV buffers, all together, against ours; None where it prints none, or they are not counted."""
    try:
        counted = _count_llama_cpp(identity, figures, model) if figures.kv_buffers else None
    except (RequestError, UnknownNameError):
        return None
    if counted is None:
        return None
    ours, slots = counted.allocation, counted.num_slots
    return CacheCheck(
        printed=" + ".join(filter(None, (figures.kv_printed, *(str(buffer.size) for buffer in figures.state_buffers)))),
        printed_cells=figures.kv_cells,
        predicted_bytes=ours.num_bytes,
        predicted_cells=max(layer.cells * layer.streams for layer in ours.layers),
        logical_bytes=count_cache(model, counted.fmt, counted.context_tokens // slots, slots).total_bytes,
        agrees=_agrees(ours, figures),
        rule=ours.rule,
    )


def _agrees(ours: EngineAllocation, figures: EngineFigures) -> bool:
    """Whether every buffer the engine printed is what our exact bytes would print as, and none is missing."""
    printed = {buffer.kind: buffer for buffer in figures.kv_buffers if buffer.layers}
    expected = {kind for kind in KVCacheKind if _layers_of(ours, kind, printed)}
    states = [buffer.size for buffer in figures.state_buffers]
    return (
        set(printed) == expected
        and all(
            buffer.size.agrees_with(sum(layer.num_bytes for layer in _layers_of(ours, kind, printed)))
            for kind, buffer in printed.items()
        )
        and len(states) == (1 if ours.state_bytes else 0)
        and all(size.agrees_with(ours.state_bytes) for size in states)
    )


# ── vLLM: blocks out of one pool ───────────────────────────────────────────────────────────────────


def _vllm_rows(
    identity: EngineIdentity, figures: EngineFigures, model: ModelSpec, setting: str | None
) -> Iterator[MemoryRow]:
    block = identity.flag_count("block-size") or figures.block_tokens
    length, least, most = figures.max_model_len, *_cache_range(identity, figures)
    fmt = _format(figures.cache_type_k, figures.cache_type_v)
    if fmt is None or block is None or length is None or least is None or most is None:
        return
    settings = VllmSettings(
        block_tokens=block,
        in_flight_tokens=figures.token_budget or DEFAULT_IN_FLIGHT_TOKENS,
        tensor_parallel=identity.flag_count("tensor-parallel-size") or 1,
    )
    ours = vllm_allocation(model, fmt, length, settings=settings)
    pool = ours.pool
    if pool is None:
        return
    fewest, blocks = pool.count_blocks(least), pool.count_blocks(most)
    if figures.num_blocks is not None and fewest <= figures.num_blocks <= blocks:
        blocks = figures.num_blocks  # what is printed rounded leaves several open
    left = most - blocks * pool.bytes_per_block
    rule = f"{ours.rule}; {format_count(pool.bytes_per_block)} bytes a block" + (
        f", {format_count(left)} bytes stay unused" if least == most else f", {format_count(fewest)} blocks at least"
    )
    named = setting or f"{format_count(most)} bytes in blocks of {block} tokens, {fmt.name}"
    rows = _Rows(VLLM, named, rule)
    yield rows.of_count("cache", "blocks", blocks, figures.num_blocks)
    per_request = f"{format_count(pool.admission_blocks)} blocks for a request of {format_count(length)} tokens"
    tokens = int(blocks / pool.admission_blocks * length)
    yield _Rows(VLLM, named, f"whole requests of the longest length: {per_request}").of_count(
        "cache", "tokens", tokens, figures.kv_tokens
    )


def _cache_range(identity: EngineIdentity, figures: EngineFigures) -> tuple[int | None, int | None]:
    """The least and the most bytes the cache was given: the same where they are known exactly."""
    exact = identity.flag_count("kv-cache-memory-bytes") or figures.cache_bytes
    return (exact, exact) if exact is not None else figures.cache_range_bytes or (None, None)


# ── rows ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one setting under one rule."""

    engine: str
    setting: str
    rule: str

    def of_size(self, what: str, predicted: int, printed: PrintedSize) -> MemoryRow:
        """Bytes beside a printed size."""
        difference = 0 if printed.agrees_with(predicted) else predicted - printed.nearest_bytes
        return MemoryRow(self.engine, self.setting, what, "bytes", predicted, str(printed), difference, self.rule)

    def of_count(self, what: str, unit: str, predicted: int, reported: int | None) -> MemoryRow:
        """A count beside a count."""
        difference = None if reported is None else predicted - reported
        shown = format_count(reported)
        return MemoryRow(self.engine, self.setting, what, unit, predicted, shown, difference, self.rule)


def _text(flags: Mapping[str, object], name: str) -> str | None:
    value = flags.get(name)
    return value if isinstance(value, str) else None


def _format(keys: str | None, values: str | None) -> CacheFormat | None:
    if keys is None or values is None:
        return None
    return CacheFormat(*(number_format("fp8" if name.startswith("fp8_e") else name) for name in (keys, values)))
