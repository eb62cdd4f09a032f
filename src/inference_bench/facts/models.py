"""What a model is made of: its shape, layer by layer, and the tensors of its file when there is one.

In:   nothing; immutable values built by config.py (from a config.json) or gguf_model.py (from a GGUF header)
Out:  ModelSpec, whose `layers` say what each layer keeps in the cache: the cache is a property of the layer
      types, not of the layer count
Leaves out: positions, activations and everything else that changes neither a count nor a byte; the mixers that few
      models have are in mixers.py
Read next by: accounting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from inference_bench.facts.formats import NumberFormat
from inference_bench.facts.source import Source

if TYPE_CHECKING:
    from inference_bench.facts.mixers import RareMixer


class LayerType(StrEnum):
    """What a layer keeps of the tokens it has seen; the names Hugging Face configs use, where they have one."""

    FULL_ATTENTION = "full_attention"
    SLIDING_ATTENTION = "sliding_attention"
    CHUNKED_ATTENTION = "chunked_attention"
    LATENT_ATTENTION = "latent_attention"
    COMPRESSED_ATTENTION = "compressed_attention"
    CROSS_ATTENTION = "cross_attention"
    LINEAR_ATTENTION = "linear_attention"
    MAMBA = "mamba"
    MAMBA2 = "mamba2"
    CONVOLUTION = "conv"
    RECURRENT = "recurrent"
    NO_CACHE = "no_cache"


class QueryKeyNorm(StrEnum):
    """How queries and keys are normalised; decides how many parameters that takes."""

    NONE = "none"
    PER_HEAD = "per_head"  # one vector of H shared by all heads, for queries and for keys
    PER_HEAD_WITH_BIAS = "per_head_with_bias"
    PER_WIDTH = "per_width"  # vectors of N·H and K·H


class OutputGate(StrEnum):
    """A learned gate on the attention output, before the output projection."""

    NONE = "none"
    PER_VALUE = "per_value"  # D × N·H
    PER_HEAD = "per_head"  # D × N


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention: multi-head when K = N, multi-query when K = 1.

    Where:  N num_attention_heads, K num_key_value_heads, H head_dim (never assumed to be D / N), values of
            value_head_dim (None: as the keys); sliding_window is the most positions a token attends, itself included,
            and attention_chunk the length of the blocks it stays in; None is all of them;
            shared_kv_from is the layer whose keys and values it reads instead of keeping its own, and
            projects_key_value whether it has the matrices for them all the same; a layer without value_projection
            uses its keys as values
    """

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    sliding_window: int | None = None
    attention_chunk: int | None = None
    value_head_dim: int | None = None
    query_bias: bool = False
    key_bias: bool = False
    value_bias: bool = False
    output_bias: bool = False
    query_key_norm: QueryKeyNorm = QueryKeyNorm.NONE
    output_gate: OutputGate = OutputGate.NONE
    sinks: bool = False
    shared_kv_from: int | None = None
    projects_key_value: bool = True
    value_projection: bool = True
    input_size: int | None = None  # where the block reads another width than the hidden size
    output_size: int | None = None

    @property
    def layer_type(self) -> LayerType:
        """The name Hugging Face configs use for it; a layer that reads another's cache keeps none."""
        if self.shared_kv_from is not None:
            return LayerType.NO_CACHE
        if self.attention_chunk is not None:
            return LayerType.CHUNKED_ATTENTION
        return LayerType.FULL_ATTENTION if self.sliding_window is None else LayerType.SLIDING_ATTENTION

    @property
    def value_width(self) -> int:
        """H of one value head."""
        return self.head_dim if self.value_head_dim is None else self.value_head_dim

    @property
    def max_positions(self) -> int | None:
        """The most positions that are ever needed; None is all of them."""
        return self.sliding_window if self.attention_chunk is None else self.attention_chunk


Mixer: TypeAlias = "Attention | RareMixer"


@dataclass(frozen=True, slots=True)
class FeedForward:
    """A dense feed-forward block: gate, up and down when `gated`, up and down otherwise."""

    intermediate_size: int
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """A feed-forward block of which each token uses a few experts.

    Where:  E num_experts of width intermediate_size, of which a token uses k experts_per_token; shared experts are used
            by every token (shared_intermediate_size is their summed width, 0 none) and may have a gate of D values;
            dense is a dense block beside the experts; num_router_outputs differs from E where the router also
            scores experts that hold no weights; latent_size is the width experts work in where that is not D
    """

    num_experts: int
    experts_per_token: int
    intermediate_size: int
    gated: bool = True
    bias: bool = False
    shared_intermediate_size: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    dense: FeedForward | None = None
    num_router_outputs: int | None = None
    latent_size: int | None = None
    router_params: int | None = None  # where the router is not one matrix of D × E
    shared_gated: bool | None = None  # where the shared expert is not built as the routed ones


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder block: its mixers (none, one, or several side by side), its feed-forward block, its norms.

    Where:  norm_params are the values of the norms around the block, those on queries and keys not included;
            other_params are the values of anything else (scalars, adapters, hyper-connections)
    """

    mixers: tuple[Mixer, ...]
    feed_forward: FeedForward | MixtureOfExperts | None
    norm_params: int
    other_params: int = 0

    @property
    def attention(self) -> Attention:
        """The layer's grouped-query attention.

        Raises:  LookupError for a layer that has none
        """
        for mixer in self.mixers:
            if isinstance(mixer, Attention):
                return mixer
        raise LookupError("this layer has no grouped-query attention")


class Part(NamedTuple):
    """Something beside the decoder layers that holds parameters.

    Where:  counted tells whether the language model's class holds it, so that it is in the total; a look-up table
            is read one row a token and multiplies nothing; row_values is the length of one stored row where that
            matters; weights that several layers share are used that many times a token; a tower runs once an input
    """

    name: str
    num_params: int
    counted: bool = True
    lookup: bool = False
    row_values: int | None = None
    uses: int = 1
    tower: bool = False


@dataclass(frozen=True)  # no slots: groups of layers are worked out once and kept
class ModelSpec:
    """The shape of a language model.

    Where:  num_key_value_heads and head_dim are the config's own top-level values, which the usual
            cache formula multiplies by the layer count (None where a config has no such thing); assumptions names what
            the config did not say; encoder_layers keep no cache; prediction_layers predict further tokens
            and are in no total; parts are towers, tables and heads beside the layers
    """

    name: str
    model_type: str
    hidden_size: int
    vocab_size: int
    num_key_value_heads: int | None
    head_dim: int | None
    layers: tuple[Layer, ...]
    tie_word_embeddings: bool
    max_position_embeddings: int | None
    final_norm_params: int
    source: Source
    stored_format: NumberFormat | None = None
    assumptions: tuple[str, ...] = ()
    encoder_layers: tuple[Layer, ...] = ()
    prediction_layers: tuple[Layer, ...] = ()
    parts: tuple[Part, ...] = ()
    head_bias: bool = False
    embedding_size: int | None = None  # the width of the tables where that is not hidden_size
    state_bits: int | None = None  # what the config says a recurrent state is stored in

    @property
    def num_hidden_layers(self) -> int:
        """L: how many decoder blocks there are."""
        return len(self.layers)

    @property
    def table_width(self) -> int:
        """Values of one row of the embedding table."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    def layer_groups(self) -> tuple[tuple[Layer, int], ...]:
        """Each distinct layer with how many there are, in order of first appearance."""
        return self._layer_groups

    @cached_property
    def _layer_groups(self) -> tuple[tuple[Layer, int], ...]:
        return _groups(self.layers)

    def mixer_groups(self) -> tuple[tuple[Mixer, int], ...]:
        """Each distinct mixer with the number of layers that have it, in order of first appearance."""
        return self._mixer_groups

    @cached_property
    def _mixer_groups(self) -> tuple[tuple[Mixer, int], ...]:
        counts: dict[Mixer, int] = {}
        for layer, count in self.layer_groups():
            for mixer in layer.mixers:
                counts[mixer] = counts.get(mixer, 0) + count
        return tuple(counts.items())

    def attention_groups(self) -> tuple[tuple[Attention, int], ...]:
        """Each distinct grouped-query attention with the number of layers that have it."""
        return tuple((mixer, count) for mixer, count in self.mixer_groups() if isinstance(mixer, Attention))


def _groups(layers: Iterable[Layer]) -> tuple[tuple[Layer, int], ...]:
    """Equal layers together; layers that are one object are never compared field by field."""
    by_id: dict[int, tuple[Layer, int]] = {}
    for layer in layers:
        known = by_id.get(id(layer))
        by_id[id(layer)] = (layer, 1 if known is None else known[1] + 1)
    counts: dict[Layer, int] = {}
    for layer, count in by_id.values():
        counts[layer] = counts.get(layer, 0) + count
    return tuple(counts.items())


class TensorRole(StrEnum):
    """What a stored tensor is for; traffic depends on it."""

    EMBEDDING = "embedding"
    HEAD = "head"
    ATTENTION = "attention"
    FEED_FORWARD = "feed_forward"
    EXPERT = "expert"
    SHARED_EXPERT = "shared_expert"
    ROUTER = "router"
    STATE_SPACE = "state_space"
    NORM = "norm"
    VISION = "vision"  # image and audio towers, which run once for an input
    LOOKUP = "lookup"  # tables beside the embedding of which a token reads one row
    DRAFT = "draft"  # multi-token-prediction layers, which plain decoding never reads
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a model file. Shape is rows by values per row, as stored."""

    name: str
    role: TensorRole
    num_values: int
    row_values: int
    number_format: NumberFormat

    @property
    def num_bytes(self) -> int:
        """Bytes the tensor takes in the file, exact."""
        return self.number_format.count_bytes(self.num_values, self.row_values)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model as the user named it: its shape, and its tensor table when it came from a weight file.

    Where:  config is the parsed config.json where there was one; it may say how the weights are quantised
    """

    spec: ModelSpec
    tensors: tuple[StoredTensor, ...] | None = None
    path: Path | None = None
    config: Mapping[str, Any] | None = None
