"""What an engine allocates for the cache: its own rounding rules on top of the logical count.

In:   ModelSpec, CacheFormat, and the settings the engine was started with
Out:  EngineAllocation: cells and bytes, with the rule that explains the difference to the logical count
Leaves out: compute buffers and the runtime itself
Read next by: predict.fit, verify (which compares it with the engine's own log).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from inference_bench.accounting.cache import CacheFormat, count_position_bytes
from inference_bench.errors import RequestError
from inference_bench.facts.models import LayerType, ModelSpec

_LLAMA_CPP_PADDING: Final = 256
LLAMA_CPP_MICRO_BATCH: Final = 512


@dataclass(frozen=True, slots=True)
class LayerAllocation:
    """What the layers of one type get: so many cells in each of so many streams."""

    layer_type: LayerType
    count: int
    cells: int
    streams: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class EngineAllocation:
    """The cache as one engine lays it out, and why it is not the logical count."""

    engine: str
    num_bytes: int
    layers: tuple[LayerAllocation, ...]
    rule: str
    context_tokens_per_sequence: int


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def llama_cpp_allocation(
    model: ModelSpec,
    fmt: CacheFormat,
    context_tokens_total: int,
    num_slots: int,
    *,
    unified: bool = False,
    micro_batch: int = LLAMA_CPP_MICRO_BATCH,
    full_size_window: bool = False,
) -> EngineAllocation:
    """The KV buffers llama.cpp allocates for a server with so many slots over one total context.

    Formula:  cells of a full layer = ceil256(n_ctx / slots) in each slot's stream, or ceil256(n_ctx) in one unified
              stream; cells of a sliding layer = min of that and ceil256(W · (slots if unified) + micro batch);
              bytes = cells · streams · layers · (row of keys + row of values)
    Unit:     bytes, exact
    Raises:   RequestError for an empty context or no slots
    Source:   llama.cpp src/llama-context.cpp and src/llama-kv-cache-iswa.cpp, 2026-10; checked against its log
    """
    if context_tokens_total < 1 or num_slots < 1:
        raise RequestError(f"context {context_tokens_total} and slots {num_slots} must be at least 1")
    streams = 1 if unified else num_slots
    full_cells = _round_up(-(-context_tokens_total // streams), _LLAMA_CPP_PADDING)
    layers = []
    for attention, count in model.attention_groups():
        cells = full_cells
        if attention.sliding_window is not None and not full_size_window:
            wanted = attention.sliding_window * (num_slots if unified else 1) + micro_batch
            cells = min(full_cells, _round_up(wanted, _LLAMA_CPP_PADDING))
        total = cells * streams * count * count_position_bytes(attention, fmt)
        layers.append(LayerAllocation(attention.layer_type, count, cells, streams, total))
    return EngineAllocation(
        engine="llama.cpp",
        num_bytes=sum(layer.num_bytes for layer in layers),
        layers=tuple(layers),
        rule=(
            f"llama.cpp rounds the cells of each of {streams} stream(s) up to {_LLAMA_CPP_PADDING} and gives a sliding "
            f"layer its window plus the micro batch of {micro_batch}"
        ),
        context_tokens_per_sequence=full_cells,
    )


def vllm_allocation(
    model: ModelSpec, fmt: CacheFormat, context_tokens: int, sequences: int, block_size: int = 16
) -> EngineAllocation:
    """The blocks vLLM takes for so many sequences of one length, for models whose layers are all alike.

    Formula:  ceil(t / block) blocks a sequence, each block · bytes of one position in every layer
    Unit:     bytes, exact
    Raises:   RequestError for a model that mixes layer types, whose page unification is not counted yet
    Source:   vLLM 0.32 vllm/v1/kv_cache_interface.py
    """
    groups = model.attention_groups()
    if len(groups) != 1 or groups[0][0].sliding_window is not None:
        raise RequestError(f"vLLM's page layout for {model.name}, which has sliding layers, is not counted yet")
    attention, count = groups[0]
    tokens = _round_up(context_tokens, block_size)
    total = sequences * tokens * count * count_position_bytes(attention, fmt)
    return EngineAllocation(
        engine="vllm",
        num_bytes=total,
        layers=(LayerAllocation(attention.layer_type, count, tokens, sequences, total),),
        rule=f"vLLM takes whole blocks of {block_size} tokens for each sequence",
        context_tokens_per_sequence=tokens,
    )
