"""The cache of llama.cpp: cells in streams, sliding caches of their own, and float32 rows of recurrent state.

In:   ModelSpec, CacheFormat, the total context and the number of slots a server is started with
Out:  EngineAllocation, equal to the sizes the server prints
Leaves out: the compute buffers, copies of prompts kept on the side, a draft model's cache
Read next by: predict.fit, verify.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from inference_bench.accounting.allocation import (
    INDEX_KEYS,
    KEYS_AND_VALUES,
    LATENTS,
    STATE,
    EngineAllocation,
    LayerAllocation,
    round_up,
)
from inference_bench.accounting.cache import STATE_FORMATS, CacheFormat, count_state
from inference_bench.errors import RequestError
from inference_bench.facts.formats import NumberFormat
from inference_bench.facts.models import Attention, LayerType, Mixer, ModelSpec

_PADDING: Final = 256
DEFAULT_MICRO_BATCH: Final = 512

# Architectures whose windows (or chunks) llama.cpp gives a cache of their own, and those in which it keeps the whole
# context and only masks it. Whether another one has a cache of its own is not known, and is refused.
_WINDOWED: Final = frozenset(
    {
        "cohere2",
        "exaone4",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gemma3n",
        "gemma3n_text",
        "gemma4",
        "gemma4_text",
        "gpt_oss",
        "llama4",
        "llama4_text",
        "mimo_v2",
        "mimo_v2_flash",
        "olmo3",
    }
)
_UNWINDOWED: Final = frozenset(
    {
        "llama",
        "ministral3",
        "mistral",
        "mistral3",
        "mixtral",
        "phi3",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "starcoder2",
    }
)
_RECURRENT: Final = frozenset(
    {
        "falcon_h1",
        "falcon_mamba",
        "granitemoehybrid",
        "jamba",
        "kimi_linear",
        "lfm2",
        "lfm2_moe",
        "mamba",
        "mamba2",
        "nemotron_h",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
    }
)
_BUILT_IN_WINDOWS: Final = {"llama4": 8192, "llama4_text": 8192}  # whatever the model says


class _Cells(NamedTuple):
    """How many cells each kind of layer gets, and in how many streams."""

    full: int
    micro_batch: int
    streams: int
    num_slots: int
    full_size_window: bool

    def count(self, window: int | None) -> int:
        """Cells of one stream for a layer that attends so many positions.

        Formula:  ceil256(min(full, W · (slots where they share a stream) + micro batch))
        """
        if window is None or self.full_size_window:
            return self.full
        sequences = self.num_slots if self.streams == 1 else 1
        return round_up(min(self.full, window * sequences + self.micro_batch), _PADDING)

    def row(self, layer_type: LayerType, count: int, kept: int, cell_bytes: int, holds: str) -> LayerAllocation:
        """So many layers of so many cells in every stream."""
        total = count * kept * self.streams * cell_bytes
        return LayerAllocation(layer_type, count, kept, self.streams, total, holds)


class _Row(NamedTuple):
    """What one cell of one layer holds: values as keys, and values as values."""

    key_values: int
    value_values: int
    window: int | None
    holds: str


def llama_cpp_allocation(
    model: ModelSpec,
    fmt: CacheFormat,
    context_tokens_total: int,
    num_slots: int,
    *,
    unified: bool = False,
    micro_batch: int = DEFAULT_MICRO_BATCH,
    full_size_window: bool = False,
    flash_attention: bool = True,
) -> EngineAllocation:
    """The cache buffers llama.cpp allocates for a server with so many slots over one total context.

    Formula:  cells of a full layer = ceil256(n_ctx / slots) in each slot's stream, or ceil256(n_ctx) in one unified
              stream; cells of a sliding layer = ceil256(min of that and W · (slots if unified) + micro batch);
              bytes = cells · streams · (row of keys + row of values), latent layers keep keys only, and a recurrent
              layer one float32 row of (kernel - 1) · channels + state a slot
    Where:    without flash attention values are stored transposed, and every layer gets the widest value row, one
              without attention too
    Unit:     bytes, exact
    Raises:   RequestError for an empty context, no slots, a block format that does not divide a head, or a design
              whose cache llama.cpp lays out in a way that is not counted
    Source:   llama.cpp src/llama-context.cpp, llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-kv-cache-dsa.cpp,
              llama-memory-recurrent.cpp and llama-hparams.cpp, 2026-10; checked against the log of a real server
    """
    if context_tokens_total < 1 or num_slots < 1 or micro_batch < 1:
        raise RequestError(
            f"context {context_tokens_total}, slots {num_slots} and micro batch {micro_batch} must be at least 1"
        )
    streams = 1 if unified else num_slots
    full = round_up(-(-context_tokens_total // streams), _PADDING)
    cells = _Cells(full, micro_batch, streams, num_slots, full_size_window)
    layers = tuple(_layer_rows(model, fmt, cells, flash_attention))
    return EngineAllocation(
        engine="llama.cpp",
        num_bytes=sum(layer.num_bytes for layer in layers),
        layers=layers,
        rule=_rule(model, cells, layers),
        context_tokens_per_sequence=full,
    )


def _layer_rows(model: ModelSpec, fmt: CacheFormat, cells: _Cells, flash_attention: bool) -> Iterator[LayerAllocation]:
    """One row for each kind of layer and for what it keeps."""
    groups = [(mixer, count, tuple(_rows(model, mixer))) for mixer, count in model.mixer_groups()]
    widest = 0 if flash_attention else max((row.value_values for *_, rows in groups for row in rows), default=0)
    for mixer, count, rows in groups:
        _check_blocks(model, mixer, fmt)
        for row in rows:
            values = max(row.value_values, widest) if row.holds == KEYS_AND_VALUES else 0
            each = fmt.keys.count_bytes(row.key_values) + fmt.values.count_bytes(values)
            yield cells.row(mixer.layer_type, count, cells.count(row.window), each, row.holds)
        state = count_state(mixer)
        if state is not None:
            each = STATE_FORMATS["llama.cpp"].count_bytes(state, None)
            total = count * cells.num_slots * each
            yield LayerAllocation(mixer.layer_type, count, cells.num_slots, 1, total, STATE)
    empty = sum(count for layer, count in model.layer_groups() if not layer.mixers)
    if widest and empty and model.model_type not in _RECURRENT:
        yield cells.row(LayerType.NO_CACHE, empty, cells.full, fmt.values.count_bytes(widest), KEYS_AND_VALUES)


def _rows(model: ModelSpec, mixer: Mixer) -> Iterator[_Row]:
    """The rows a cell of one layer with this mixer holds."""
    if type(mixer) is Attention:
        if mixer.shared_kv_from is None:
            heads, window = mixer.num_key_value_heads, None
            if mixer.max_positions is not None and _keeps_window(model):
                window = _BUILT_IN_WINDOWS.get(model.model_type, mixer.max_positions)
            yield _Row(heads * mixer.head_dim, heads * mixer.value_width, window, KEYS_AND_VALUES)
        return
    from inference_bench.facts.mixers import LatentAttention

    if isinstance(mixer, LatentAttention):
        yield _Row(mixer.kv_lora_rank + mixer.qk_rope_head_dim, 0, None, LATENTS)
        if mixer.indexer is not None:
            yield _Row(mixer.indexer.head_dim, 0, None, INDEX_KEYS)
    elif count_state(mixer) is None or model.model_type not in _RECURRENT:
        raise RequestError(
            f"how llama.cpp lays out the {mixer.layer_type} of {model.name} ({model.model_type}) is not counted yet"
        )


def _keeps_window(model: ModelSpec) -> bool:
    if model.model_type in _WINDOWED:
        return True
    if model.model_type in _UNWINDOWED:
        return False
    raise RequestError(
        f"{model.name} has windows, and whether llama.cpp keeps a cache of their own for model type "
        f"{model.model_type!r} is not known"
    )


def _check_blocks(model: ModelSpec, mixer: Mixer, fmt: CacheFormat) -> None:
    """Refuse what the engine refuses: a quantised cache whose blocks do not divide a head."""
    if type(mixer) is Attention:
        widths: tuple[tuple[NumberFormat, int], ...] = (
            (fmt.keys, mixer.head_dim),
            (fmt.values, mixer.value_width),
        )
        for number, width in widths:
            if width % number.block_values:
                raise RequestError(
                    f"llama.cpp takes no {number.name} cache for {model.name}: its blocks of {number.block_values} do "
                    f"not divide a head of {width}"
                )


def _rule(model: ModelSpec, cells: _Cells, layers: tuple[LayerAllocation, ...]) -> str:
    said = [f"llama.cpp rounds the cells of each of {cells.streams} stream(s) up to {_PADDING}"]
    windowed = any(
        attention.max_positions is not None and attention.shared_kv_from is None
        for attention, _ in model.attention_groups()
    )
    if windowed and not _keeps_window(model):
        said.append("gives the layers with a window the whole context, which it only masks")
    elif windowed and cells.full_size_window:
        said.append("gives the layers with a window the whole context, as asked")
    elif windowed:
        said.append(f"gives a sliding layer its window plus the micro batch of {cells.micro_batch}")
    if any(layer.holds == LATENTS for layer in layers):
        said.append("keeps latents as keys without values")
    if any(layer.holds == STATE for layer in layers):
        said.append(f"keeps one row of float32 state for each of {cells.num_slots} slot(s)")
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
