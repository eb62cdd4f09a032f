"""What a model is made of: its shape, layer by layer, and the tensors of its file when there is one.

In:   nothing; immutable values built by config.py (from a config.json) or gguf_model.py (from a GGUF header)
Out:  ModelSpec, whose `layers` say what each layer keeps in the cache: the cache is a property of the layer
      types, not of the layer count
Leaves out: positions, activations and everything else that changes neither a count nor a byte
Read next by: accounting.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from inference_bench.facts.formats import NumberFormat
from inference_bench.facts.source import Source


class LayerType(StrEnum):
    """What a layer keeps of the tokens it has seen."""

    FULL_ATTENTION = "full_attention"
    SLIDING_ATTENTION = "sliding_attention"


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention: multi-head when K = N, multi-query when K = 1.

    Where:  N num_attention_heads, K num_key_value_heads, H head_dim (never assumed to be D / N);
            sliding_window is the most positions a token attends, itself included; None is all of them
    """

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    sliding_window: int | None = None
    query_key_value_bias: bool = False
    output_bias: bool = False
    query_key_norm: bool = False

    @property
    def layer_type(self) -> LayerType:
        """The name Hugging Face configs use for it."""
        return LayerType.FULL_ATTENTION if self.sliding_window is None else LayerType.SLIDING_ATTENTION


@dataclass(frozen=True, slots=True)
class FeedForward:
    """A dense feed-forward block: gate, up and down when `gated`, up and down otherwise."""

    intermediate_size: int
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder block."""

    attention: Attention
    feed_forward: FeedForward
    num_norms: int = 2


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The shape of a decoder-only language model.

    Where:  num_key_value_heads and head_dim are the config's own top-level values, which the usual
            cache formula multiplies by the layer count; assumptions names what the config did not say
    """

    name: str
    model_type: str
    hidden_size: int
    vocab_size: int
    num_key_value_heads: int
    head_dim: int
    layers: tuple[Layer, ...]
    tie_word_embeddings: bool
    max_position_embeddings: int | None
    norm_bias: bool
    source: Source
    stored_format: NumberFormat | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def num_hidden_layers(self) -> int:
        """L: how many decoder blocks there are."""
        return len(self.layers)

    def attention_groups(self) -> tuple[tuple[Attention, int], ...]:
        """Each distinct attention with the number of layers that have it, in order of first appearance."""
        return tuple(Counter(layer.attention for layer in self.layers).items())


class TensorRole(StrEnum):
    """What a stored tensor is for; traffic depends on it."""

    EMBEDDING = "embedding"
    HEAD = "head"
    ATTENTION = "attention"
    FEED_FORWARD = "feed_forward"
    NORM = "norm"
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
    """A model as the user named it: its shape, and its tensor table when it came from a weight file."""

    spec: ModelSpec
    tensors: tuple[StoredTensor, ...] | None = None
    path: Path | None = None
