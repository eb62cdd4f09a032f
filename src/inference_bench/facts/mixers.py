"""The sequence mixers that few models have: latent attention, linear attention, state-space layers and their kin.

In:   nothing; immutable values that config.py builds
Out:  one class for each design, in the words of its config
Leaves out: what each takes; accounting/rare_mixers.py counts it. Kept apart from models.py so that a plain decoder
      never loads it
Read next by: accounting.rare_mixers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from inference_bench.facts.models import Attention, LayerType


@dataclass(frozen=True, slots=True)
class Indexer:
    """A small attention that picks the positions the layer attends, with a key of its own for each position.

    Where:  query_size is the width its queries are made from; norm_params are those of its key norm
    """

    num_heads: int
    head_dim: int
    top_k: int
    query_size: int
    norm_params: int
    block_size: int = 1  # positions picked together
    head_weights: bool = True  # a learned weight for each head


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention: one compressed vector for keys and values, and one rotary key, for all heads.

    Where:  q_lora_rank is None where queries are not compressed; indexer is None where every position is attended
    """

    num_attention_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    bias: bool = False
    indexer: Indexer | None = None
    norms: bool = True
    gate_size: int = 0  # outputs of a gate on the attention output; 0 is none
    top_k: int | None = None  # positions attended, by an index this layer or one before it keeps

    @property
    def layer_type(self) -> LayerType:
        """The name of the cache it keeps."""
        return LayerType.LATENT_ATTENTION


@dataclass(frozen=True, slots=True)
class IndexedAttention:
    """Grouped-query attention over the positions an indexer picks."""

    attention: Attention
    indexer: Indexer

    @property
    def layer_type(self) -> LayerType:
        """The name of the cache it keeps."""
        return self.attention.layer_type


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """Attention over a window of recent positions and over older ones compressed by a fixed ratio, keys = values.

    Where:  compress_ratio positions become one vector of head_dim; None keeps the window alone; with an indexer each
            query attends its top_k of them
    """

    num_attention_heads: int
    head_dim: int
    q_lora_rank: int
    sliding_window: int
    compress_ratio: int | None
    o_groups: int
    o_lora_rank: int
    overlapping: bool  # two series are compressed, one for each neighbouring window
    indexer: Indexer | None = None

    @property
    def layer_type(self) -> LayerType:
        """The name of the cache it keeps."""
        return LayerType.COMPRESSED_ATTENTION if self.compress_ratio else LayerType.SLIDING_ATTENTION


@dataclass(frozen=True, slots=True)
class CrossAttention:
    """Attention over an encoder's output, whose keys and values are computed once for each sequence.

    Where:  encoder_tokens is how many positions the encoder gives; None where that depends on the input
    """

    attention: Attention
    encoder_size: int
    encoder_tokens: int | None

    @property
    def layer_type(self) -> LayerType:
        """The name of the cache it keeps."""
        return LayerType.CROSS_ATTENTION


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Attention whose past is one matrix for each value head: gated delta, Kimi delta and lightning attention.

    Where:  conv_kernel is the length of the short convolution over queries, keys and values (0 none);
            params and norm_params are the values of its matrices and vectors, which differ by design;
            state_flops are those of one update and read of one element of the state
    """

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    matrix_params: int
    vector_params: int
    state_flops: int
    per_channel_decay: bool = False

    @property
    def layer_type(self) -> LayerType:
        """The name Hugging Face configs use for it."""
        return LayerType.LINEAR_ATTENTION

    @property
    def conv_channels(self) -> int:
        """Channels the convolution keeps history for: queries, keys and values."""
        width = 2 * self.num_key_heads * self.key_head_dim + self.num_value_heads * self.value_head_dim
        return width if self.conv_kernel else 0


@dataclass(frozen=True, slots=True)
class Mamba:
    """A selective state-space layer: state_size numbers for each of intermediate_size channels.

    Where:  inner_norms says whether the step, input and output maps are normalised with learned weights
    """

    intermediate_size: int
    state_size: int
    conv_kernel: int
    time_step_rank: int
    conv_bias: bool
    bias: bool
    inner_norms: bool = False
    num_heads: int = 1  # Zamba: heads with maps of their own

    @property
    def layer_type(self) -> LayerType:
        """The name Hugging Face configs use for it."""
        return LayerType.MAMBA


@dataclass(frozen=True, slots=True)
class Mamba2:
    """A state-space layer with scalar decay: state_size by head_dim numbers for each head."""

    num_heads: int
    head_dim: int
    state_size: int
    n_groups: int
    conv_kernel: int
    conv_bias: bool
    bias: bool
    gated_norm: bool = True

    @property
    def layer_type(self) -> LayerType:
        """The name Hugging Face configs use for it."""
        return LayerType.MAMBA2

    @property
    def intermediate_size(self) -> int:
        """Channels of all heads."""
        return self.num_heads * self.head_dim

    @property
    def conv_channels(self) -> int:
        """Channels the convolution keeps history for: the heads, and the input and output maps of each group."""
        return self.intermediate_size + 2 * self.n_groups * self.state_size


@dataclass(frozen=True, slots=True)
class ShortConvolution:
    """A gated convolution over the last few positions (LFM2)."""

    channels: int
    conv_kernel: int
    bias: bool

    @property
    def layer_type(self) -> LayerType:
        """The name Hugging Face configs use for it."""
        return LayerType.CONVOLUTION


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurrent block that is none of the above (RWKV, RG-LRU): fixed history columns and a fixed state.

    Where:  conv_columns of conv_channels values, and recurrent_elements values
    """

    conv_channels: int
    conv_columns: int
    recurrent_elements: int
    matrix_params: int
    vector_params: int
    state_flops: int

    @property
    def layer_type(self) -> LayerType:
        """The name of the state it keeps."""
        return LayerType.RECURRENT


RareMixer: TypeAlias = (
    LatentAttention
    | IndexedAttention
    | CompressedAttention
    | CrossAttention
    | LinearAttention
    | Mamba
    | Mamba2
    | ShortConvolution
    | Recurrence
)
