"""What the cache takes, layer type by layer type, beside what the usual formula says.

In:   ModelSpec, a cache format for keys and one for values, a context length, a number of sequences
Out:  CacheCount: exact logical bytes, the naive figure, and the factor between them
Leaves out: what an engine allocates on top (blocks, padding, its own window cells): see allocation.py
Read next by: work, allocation, predict.

The cache is a property of the layer types, not of the layer count: a full layer keeps every position, a sliding
layer with window W keeps min(t, W), a recurrent layer keeps the same state at any length.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from inference_bench.errors import RequestError
from inference_bench.facts.formats import NumberFormat
from inference_bench.facts.models import Attention, LayerType, Mixer, ModelSpec

MAX_CONTEXT_TOKENS: Final = 1 << 40
MAX_SEQUENCES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class CacheFormat:
    """How keys and values are stored; usually alike. Latents and index keys are stored as keys are."""

    keys: NumberFormat
    values: NumberFormat

    @property
    def name(self) -> str:
        """One name when both are alike, "keys/values" otherwise."""
        return self.keys.name if self.keys == self.values else f"{self.keys.name}/{self.values.name}"


class Kept(NamedTuple):
    """Vectors one layer keeps of a sequence: a row of so many values for each position it still needs.

    Formula:  min(t, limit) rows, or floor(t / stride) where several positions become one row
    Where:    as_values tells which of the two cache formats stores them; limit None is every position
    """

    row_values: int
    as_values: bool = False
    limit: int | None = None
    stride: int = 1

    def count_rows(self, context_tokens: int) -> int:
        """Rows kept of a context."""
        rows = context_tokens // self.stride
        return rows if self.limit is None else min(rows, self.limit)

    def row_bytes(self, fmt: CacheFormat) -> int:
        """Bytes of one row, in whole blocks of its format."""
        return (fmt.values if self.as_values else fmt.keys).count_bytes(self.row_values)


class State(NamedTuple):
    """What a recurrent layer keeps of a sequence, whatever its length.

    Where:  a convolution of length conv_kernel needs the last conv_kernel - 1 columns of conv_channels values
    """

    conv_channels: int
    conv_kernel: int
    recurrent_elements: int
    always_float32: bool = False


class StateFormat(NamedTuple):
    """How an engine stores recurrent states.

    Where:  recurrent_bits None is what the config says, or default_bits where it says nothing
    """

    name: str
    conv_bits: int = 16
    recurrent_bits: int | None = None
    default_bits: int = 32
    whole_kernel: bool = False

    def count_bytes(self, state: State, config_bits: int | None) -> int:
        """Bytes of one layer's state for one sequence.

        Formula:  channels · (kernel - 1) · conv bits / 8 + elements · recurrent bits / 8
        """
        columns = state.conv_kernel - (0 if self.whole_kernel else 1) if state.conv_channels else 0
        bits = self.recurrent_bits or (32 if state.always_float32 else config_bits) or self.default_bits
        return (state.conv_channels * columns * self.conv_bits + state.recurrent_elements * bits) // 8


LOGICAL_STATE: Final = StateFormat("convolution history of kernel - 1 columns in 16 bits, recurrent state in float32")
STATE_FORMATS: Final = {
    "none": LOGICAL_STATE,
    "llama.cpp": StateFormat("llama.cpp: both in float32", conv_bits=32, recurrent_bits=32),
    "vllm": StateFormat("vLLM: both in the model's 16-bit type unless the config names float32", default_bits=16),
    "sglang": StateFormat("SGLang: convolution in 16 bits, recurrent state in float32", recurrent_bits=32),
    "transformers": StateFormat(
        "Transformers: all kernel columns, both in the model's 16-bit type", 16, None, 16, True
    ),
}


@dataclass(frozen=True, slots=True)
class LayerCache:
    """The cache of all layers of one kind, over all sequences.

    Where:  positions are the rows one layer keeps of one sequence; bytes_per_position is None where the rows differ;
            sliding_window is the most positions it keeps (a chunk's length for chunked attention)
    """

    layer_type: LayerType
    count: int
    sliding_window: int | None
    positions: int
    bytes_per_position: int | None
    num_bytes: int
    state_bytes: int = 0
    cross_attention_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CacheCount:
    """The cache of so many sequences at one context length.

    Where:  bytes depend on the context; state_bytes and cross_attention_bytes do not;
            next_token_bytes is what one more token adds to one sequence at this length, mean_token_bytes the same on
            average where rows stand for several positions; slope_changes are the lengths at which that drops;
            naive_bytes is None where the usual formula has nothing to multiply
    Unit:   bytes, exact
    """

    context_tokens: int
    sequences: int
    number_format: str
    layers: tuple[LayerCache, ...]
    num_bytes: int
    state_bytes: int
    naive_bytes: int | None
    next_token_bytes: int
    mean_token_bytes: Fraction = Fraction(0)
    slope_changes: tuple[int, ...] = ()
    cross_attention_bytes: int = 0
    state_format: str = LOGICAL_STATE.name

    @property
    def total_bytes(self) -> int:
        """Everything kept for the sequences: what grows, the fixed state, and the encoder's keys and values."""
        return self.num_bytes + self.state_bytes + self.cross_attention_bytes

    @property
    def fixed_bytes_per_sequence(self) -> int:
        """The intercept: what a sequence takes before its first token."""
        return (self.state_bytes + self.cross_attention_bytes) // self.sequences if self.sequences else 0

    @property
    def naive_factor(self) -> float | None:
        """How many times too much the usual formula says; None where there is nothing to compare."""
        true = self.total_bytes
        return self.naive_bytes / true if true and self.naive_bytes else None


def count_kept(mixer: Mixer) -> tuple[Kept, ...]:
    """What one layer's mixer keeps for the positions of a sequence."""
    if isinstance(mixer, Attention):
        if mixer.shared_kv_from is not None:
            return ()
        rows, limit = mixer.num_key_value_heads, mixer.max_positions
        return (Kept(rows * mixer.head_dim, False, limit), Kept(rows * mixer.value_width, True, limit))
    from inference_bench.accounting import rare_mixers

    return rare_mixers.kept(mixer)


def count_state(mixer: Mixer) -> State | None:
    """The fixed state one layer's mixer keeps, if it keeps one."""
    if isinstance(mixer, Attention):
        return None
    from inference_bench.accounting import rare_mixers

    return rare_mixers.state(mixer)


def count_cross_rows(mixer: Mixer) -> tuple[int, int] | None:
    """Encoder positions one layer keeps, and the key and value heads' width; None for anything but cross-attention."""
    if isinstance(mixer, Attention):
        return None
    from inference_bench.accounting import rare_mixers

    return rare_mixers.cross_rows(mixer)


def count_position_bytes(mixer: Mixer, fmt: CacheFormat) -> int:
    """Bytes one position takes in one layer that keeps a row of everything for each position.

    Formula:  K·H values as keys and K·H as values, each row in whole blocks of its format
    Shape:    one layer's cache is [2, num_tokens, K, H]
    Unit:     bytes, exact
    """
    return sum(kept.row_bytes(fmt) for kept in count_kept(mixer) if kept.stride == 1)


def count_kv_bytes_per_token(model: ModelSpec, fmt: CacheFormat, context_tokens: int = 0) -> int:
    """Bytes of cache that one more token adds to one sequence of `context_tokens`, over the layers that still grow.

    Formula:  Σ over layers with t < W (or no window) of 2 · K · H · bits / 8
    Unit:     bytes, exact                         Ignores: block padding (see allocation.py)
    Source:   Pope et al. 2022, Efficiently Scaling Transformer Inference, section 2.1, per layer
    """
    return sum(
        count * kept.row_bytes(fmt) * (kept.count_rows(context_tokens + 1) - kept.count_rows(context_tokens))
        for mixer, count in model.mixer_groups()
        for kept in count_kept(mixer)
    )


def count_cache(
    model: ModelSpec,
    fmt: CacheFormat,
    context_tokens: int,
    sequences: int = 1,
    state_format: StateFormat = LOGICAL_STATE,
) -> CacheCount:
    """The cache of `sequences` sequences of `context_tokens` each, by layer type.

    Formula:  B · Σ layers rows(t) · bytes of a row, plus B · Σ layers fixed state
    Unit:     bytes, exact
    Ignores:  block padding (see allocation.py); the unfinished group a compressing layer buffers
    Raises:   RequestError for a negative or absurd length or count
    """
    if not (0 <= context_tokens <= MAX_CONTEXT_TOKENS and 0 <= sequences <= MAX_SEQUENCES):
        raise RequestError(
            f"context {context_tokens} and sequences {sequences} must lie in 0..{MAX_CONTEXT_TOKENS} and 0..{MAX_SEQUENCES}"
        )
    groups = [(mixer, count_kept(mixer), count) for mixer, count in model.mixer_groups()]
    rows = tuple(
        _layer_cache(mixer, kept, count, model.state_bits, fmt, context_tokens, sequences, state_format)
        for mixer, kept, count in groups
    )
    layers = _merged(rows, _layers_without_mixer(model))
    naive = count_naive_kv_bytes(model, fmt, context_tokens)
    return CacheCount(
        context_tokens=context_tokens,
        sequences=sequences,
        number_format=fmt.name,
        layers=layers,
        num_bytes=sum(layer.num_bytes for layer in layers),
        state_bytes=sum(layer.state_bytes for layer in layers),
        naive_bytes=None if naive is None else sequences * naive,
        next_token_bytes=count_kv_bytes_per_token(model, fmt, context_tokens),
        mean_token_bytes=sum(
            (Fraction(count * part.row_bytes(fmt), part.stride) for part, count in _growing(groups, context_tokens)),
            Fraction(0),
        ),
        slope_changes=tuple(sorted({part.limit * part.stride for _, kept, _ in groups for part in kept if part.limit})),
        cross_attention_bytes=sum(layer.cross_attention_bytes for layer in layers),
        state_format=state_format.name,
    )


def _growing(groups: Iterable[tuple[Mixer, tuple[Kept, ...], int]], context_tokens: int) -> Iterable[tuple[Kept, int]]:
    for _, kept, count in groups:
        for part in kept:
            if part.limit is None or context_tokens // part.stride < part.limit:
                yield part, count


def _layer_cache(
    mixer: Mixer,
    kept: tuple[Kept, ...],
    count: int,
    state_bits: int | None,
    fmt: CacheFormat,
    context_tokens: int,
    sequences: int,
    state_format: StateFormat,
) -> LayerCache:
    """The cache of `count` layers that have one mixer."""
    state, cross = count_state(mixer), count_cross_rows(mixer)
    layers = sequences * count
    alike = len({(part.limit, part.stride) for part in kept}) == 1
    return LayerCache(
        layer_type=mixer.layer_type,
        count=count,
        sliding_window=next((part.limit for part in kept if part.limit is not None), None),
        positions=sum({(part.limit, part.stride): part.count_rows(context_tokens) for part in kept}.values()),
        bytes_per_position=sum(part.row_bytes(fmt) for part in kept) if alike or not kept else None,
        num_bytes=layers * sum(part.count_rows(context_tokens) * part.row_bytes(fmt) for part in kept),
        state_bytes=layers * state_format.count_bytes(state, state_bits) if state else 0,
        cross_attention_bytes=layers * _cross_bytes(cross, fmt) if cross else 0,
    )


def _cross_bytes(cross: tuple[int, int], fmt: CacheFormat) -> int:
    positions, row = cross
    return positions * (fmt.keys.count_bytes(row) + fmt.values.count_bytes(row))


def _layers_without_mixer(model: ModelSpec) -> int:
    return sum(count for layer, count in model.layer_groups() if not layer.mixers)


def _merged(rows: Iterable[LayerCache], num_without_mixer: int) -> tuple[LayerCache, ...]:
    """Rows that keep the same become one: layers differ in more than their cache."""
    from dataclasses import replace

    merged: dict[tuple[object, ...], LayerCache] = {}
    for row in rows:
        per_layer = tuple(value // row.count for value in (row.num_bytes, row.state_bytes, row.cross_attention_bytes))
        key = (row.layer_type, row.sliding_window, row.bytes_per_position, per_layer)
        known = merged.get(key)
        merged[key] = (
            row
            if known is None
            else replace(
                row,
                count=known.count + row.count,
                num_bytes=known.num_bytes + row.num_bytes,
                state_bytes=known.state_bytes + row.state_bytes,
                cross_attention_bytes=known.cross_attention_bytes + row.cross_attention_bytes,
            )
        )
    layers = list(merged.values())
    if num_without_mixer:
        layers.append(LayerCache(LayerType.NO_CACHE, num_without_mixer, None, 0, 0, 0))
    return tuple(layers)


def count_naive_kv_bytes(model: ModelSpec, fmt: CacheFormat, context_tokens: int) -> int | None:
    """What the usual formula says: every layer charged for the whole context.

    Formula:  2 · L · K · H · b · t, with the config's top-level K and H (hidden size / heads where it has no head_dim)
    Unit:     bytes of one sequence; None where the config has no such values (a model without attention)
    """
    if model.num_key_value_heads is None or model.head_dim is None:
        return None
    row = model.num_key_value_heads * model.head_dim
    return model.num_hidden_layers * context_tokens * (fmt.keys.count_bytes(row) + fmt.values.count_bytes(row))
