"""What the KV cache takes, layer type by layer type, beside what the usual formula says.

In:   ModelSpec, a cache format for keys and one for values, a context length, a number of sequences
Out:  CacheCount: exact logical bytes, the naive figure, and the factor between them
Leaves out: what an engine allocates on top (blocks, padding, its own window cells): see allocation.py
Read next by: work, allocation, predict.

The cache is a property of the layer types, not of the layer count: a full layer keeps every position, a sliding
layer with window W keeps min(t, W).
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.errors import RequestError
from inference_bench.facts.formats import NumberFormat
from inference_bench.facts.models import Attention, LayerType, ModelSpec


@dataclass(frozen=True, slots=True)
class CacheFormat:
    """How keys and values are stored; usually alike."""

    keys: NumberFormat
    values: NumberFormat

    @property
    def name(self) -> str:
        """One name when both are alike, "keys/values" otherwise."""
        return self.keys.name if self.keys == self.values else f"{self.keys.name}/{self.values.name}"


@dataclass(frozen=True, slots=True)
class LayerCache:
    """The cache of all layers of one kind, over all sequences."""

    layer_type: LayerType
    count: int
    sliding_window: int | None
    positions: int
    bytes_per_position: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class CacheCount:
    """The cache of so many sequences at one context length.

    Where:  bytes depend on the context; state_bytes do not (none of the designs counted so far has such a state);
            next_token_bytes is the slope: what one more token adds to one sequence at this length
    Unit:   bytes, exact
    """

    context_tokens: int
    sequences: int
    number_format: str
    layers: tuple[LayerCache, ...]
    num_bytes: int
    state_bytes: int
    naive_bytes: int
    next_token_bytes: int

    @property
    def naive_factor(self) -> float | None:
        """How many times too much the usual formula says; None where there is nothing to compare."""
        return self.naive_bytes / self.num_bytes if self.num_bytes else None


def count_kept_positions(attention: Attention, context_tokens: int) -> int:
    """Positions one layer keeps of a context: all of them, or the last `sliding_window`.

    Formula:  min(t, W)
    """
    window = attention.sliding_window
    return context_tokens if window is None else min(context_tokens, window)


def count_position_bytes(attention: Attention, fmt: CacheFormat) -> int:
    """Bytes one position takes in one layer.

    Formula:  K·H values as keys and K·H as values, each row in whole blocks of its format
    Shape:    one layer's cache is [2, num_tokens, K, H]
    Unit:     bytes, exact
    """
    row = attention.num_key_value_heads * attention.head_dim
    return fmt.keys.count_bytes(row) + fmt.values.count_bytes(row)


def count_kv_bytes_per_token(model: ModelSpec, fmt: CacheFormat, context_tokens: int = 0) -> int:
    """Bytes of KV cache that one more token adds to one sequence of `context_tokens`, over the layers that still grow.

    Formula:  Σ over layers with t < W (or no window) of 2 · K · H · bits / 8
    Unit:     bytes, exact                         Ignores: block padding (see allocation.py)
    Source:   Pope et al. 2022, Efficiently Scaling Transformer Inference, section 2.1, per layer
    """
    return sum(
        count * count_position_bytes(attention, fmt)
        for attention, count in model.attention_groups()
        if attention.sliding_window is None or context_tokens < attention.sliding_window
    )


def count_cache(model: ModelSpec, fmt: CacheFormat, context_tokens: int, sequences: int = 1) -> CacheCount:
    """The cache of `sequences` sequences of `context_tokens` each, by layer type.

    Formula:  B · Σ layers min(t, W) · bytes per position
    Unit:     bytes, exact                         Ignores: block padding (see allocation.py)
    Raises:   RequestError for a negative length or count
    """
    if context_tokens < 0 or sequences < 0:
        raise RequestError(f"context {context_tokens} and sequences {sequences} must not be negative")
    layers = []
    for attention, count in model.attention_groups():
        positions = count_kept_positions(attention, context_tokens)
        per_position = count_position_bytes(attention, fmt)
        total = sequences * count * positions * per_position
        layers.append(LayerCache(attention.layer_type, count, attention.sliding_window, positions, per_position, total))
    return CacheCount(
        context_tokens=context_tokens,
        sequences=sequences,
        number_format=fmt.name,
        layers=tuple(layers),
        num_bytes=sum(layer.num_bytes for layer in layers),
        state_bytes=0,
        naive_bytes=sequences * count_naive_kv_bytes(model, fmt, context_tokens),
        next_token_bytes=count_kv_bytes_per_token(model, fmt, context_tokens),
    )


def count_naive_kv_bytes(model: ModelSpec, fmt: CacheFormat, context_tokens: int) -> int:
    """What the usual formula says: every layer charged for the whole context.

    Formula:  2 · L · K · H · b · t, with the config's top-level K and H
    Unit:     bytes of one sequence
    """
    row = model.num_key_value_heads * model.head_dim
    return model.num_hidden_layers * context_tokens * (fmt.keys.count_bytes(row) + fmt.values.count_bytes(row))
