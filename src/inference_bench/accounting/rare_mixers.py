"""What the rare mixers take: their weights, what they keep of a sequence, and the work of a step.

In:   a mixer of facts/mixers.py
Out:  WeightShape, Kept and State rows, FLOPs
Leaves out: grouped-query attention, which params.py, cache.py and work.py count themselves
Read next by: params, cache, work; loaded only for models that have such a mixer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from inference_bench.accounting.cache import Kept, State, count_kept
from inference_bench.accounting.params import WeightShape, attention_weights, matrix, vector
from inference_bench.facts import mixers as m
from inference_bench.facts.models import TensorRole

_ATTENTION: Final = TensorRole.ATTENTION
_STATE: Final = TensorRole.STATE_SPACE
_NORM: Final = TensorRole.NORM


# --- what is kept -------------------------------------------------------------------------------------------------


def kept(mixer: m.RareMixer) -> tuple[Kept, ...]:
    """Rows one layer keeps for the positions of a sequence.

    Formula:  latent: kv_lora_rank + rope values a position, and index_head_dim where there is an indexer;
              compressed: min(t, W) rows of H, floor(t / ratio) more, and as many index keys; recurrent: none
    """
    if isinstance(mixer, m.LatentAttention):
        latent = Kept(mixer.kv_lora_rank + mixer.qk_rope_head_dim)
        return (latent, Kept(mixer.indexer.head_dim)) if mixer.indexer else (latent,)
    if isinstance(mixer, m.IndexedAttention):
        return (*count_kept(mixer.attention), Kept(mixer.indexer.head_dim))
    if isinstance(mixer, m.CompressedAttention):
        rows = [Kept(mixer.head_dim, False, mixer.sliding_window)]
        if mixer.compress_ratio:
            rows.append(Kept(mixer.head_dim, stride=mixer.compress_ratio))
            if mixer.indexer:
                rows.append(Kept(mixer.indexer.head_dim, stride=mixer.compress_ratio))
        return tuple(rows)
    return ()


def state(mixer: m.RareMixer) -> State | None:
    """The fixed state one layer keeps of a sequence.

    Formula:  linear attention: V heads · dk · dv; Mamba: channels · state; Mamba-2: heads · head_dim · state;
              each with the history of its convolution
    """
    if isinstance(mixer, m.LinearAttention):
        elements = mixer.num_value_heads * mixer.key_head_dim * mixer.value_head_dim
        return State(mixer.conv_channels, mixer.conv_kernel, elements, mixer.per_channel_decay)
    if isinstance(mixer, m.Mamba):
        return State(mixer.intermediate_size, mixer.conv_kernel, mixer.intermediate_size * mixer.state_size)
    if isinstance(mixer, m.Mamba2):
        return State(mixer.conv_channels, mixer.conv_kernel, mixer.intermediate_size * mixer.state_size)
    if isinstance(mixer, m.ShortConvolution):
        return State(mixer.channels, mixer.conv_kernel, 0)
    if isinstance(mixer, m.Recurrence):
        return State(mixer.conv_channels, mixer.conv_columns + 1, mixer.recurrent_elements)
    return None


def cross_rows(mixer: m.RareMixer) -> tuple[int, int] | None:
    """Encoder positions one cross-attention layer keeps, and the values of one row of keys."""
    if not isinstance(mixer, m.CrossAttention):
        return None
    return mixer.encoder_tokens or 0, mixer.attention.num_key_value_heads * mixer.attention.head_dim


# --- weights ------------------------------------------------------------------------------------------------------


def weights(mixer: m.RareMixer, hidden_size: int) -> tuple[WeightShape, ...]:
    """The tensors of one layer's mixer."""
    counter: Callable[[Any, int], tuple[WeightShape, ...]] = _WEIGHTS[type(mixer)]
    return counter(mixer, hidden_size)


def _latent(mixer: m.LatentAttention, hidden_size: int) -> tuple[WeightShape, ...]:
    """Down and up projections of multi-head latent attention.

    Formula:  D·r_q + r_q·N·(nope + rope) (or D·N·(nope + rope)) + D·(r + rope) + r·N·(nope + v) + N·v·D
    """
    n, rank = mixer.num_attention_heads, mixer.kv_lora_rank
    query_width = n * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim)
    shapes = [
        matrix(_ATTENTION, rank + mixer.qk_rope_head_dim, hidden_size),
        matrix(_ATTENTION, n * (mixer.qk_nope_head_dim + mixer.v_head_dim), rank),
        matrix(_ATTENTION, hidden_size, n * mixer.v_head_dim),
        matrix(_ATTENTION, mixer.gate_size, hidden_size),
        vector(_NORM, rank if mixer.norms else 0),
    ]
    if mixer.q_lora_rank is None:
        shapes.append(matrix(_ATTENTION, query_width, hidden_size))
    else:
        shapes += [
            matrix(_ATTENTION, mixer.q_lora_rank, hidden_size),
            matrix(_ATTENTION, query_width, mixer.q_lora_rank),
            vector(_NORM, mixer.q_lora_rank if mixer.norms else 0),
        ]
    if mixer.bias:
        inner = 0 if mixer.q_lora_rank is None else mixer.q_lora_rank
        shapes += [vector(_ATTENTION, size) for size in (inner, rank + mixer.qk_rope_head_dim, hidden_size)]
    return (*shapes, *_indexer(mixer.indexer, hidden_size))


def _indexer(indexer: m.Indexer | None, hidden_size: int) -> tuple[WeightShape, ...]:
    if indexer is None:
        return ()
    return (
        matrix(_ATTENTION, indexer.num_heads * indexer.head_dim, indexer.query_size),
        matrix(_ATTENTION, indexer.head_dim, hidden_size),
        matrix(_ATTENTION, indexer.num_heads if indexer.head_weights else 0, hidden_size),
        vector(_NORM, indexer.norm_params),
    )


def _indexed(mixer: m.IndexedAttention, hidden_size: int) -> tuple[WeightShape, ...]:
    return (*attention_weights(mixer.attention, hidden_size), *_indexer(mixer.indexer, hidden_size))


def _compressed(mixer: m.CompressedAttention, hidden_size: int) -> tuple[WeightShape, ...]:
    """Queries through a low rank, one key = value vector, a grouped low-rank output, and the compressor."""
    n, width, ratio = mixer.num_attention_heads, mixer.head_dim, mixer.compress_ratio
    shapes = [
        matrix(_ATTENTION, mixer.q_lora_rank, hidden_size),
        matrix(_ATTENTION, n * width, mixer.q_lora_rank),
        matrix(_ATTENTION, width, hidden_size),
        matrix(_ATTENTION, mixer.o_groups * mixer.o_lora_rank, n * width // mixer.o_groups),
        matrix(_ATTENTION, hidden_size, mixer.o_groups * mixer.o_lora_rank),
        vector(_NORM, mixer.q_lora_rank + width),
        vector(_ATTENTION, n),  # one sink a head
    ]
    if ratio:
        series = 2 if mixer.overlapping else 1
        shapes += _compressor(width, series, ratio, hidden_size)
    if ratio and mixer.indexer:
        indexer = mixer.indexer
        shapes += _compressor(indexer.head_dim, 2, ratio, hidden_size)
        shapes += [
            matrix(_ATTENTION, indexer.num_heads * indexer.head_dim, indexer.query_size),
            matrix(_ATTENTION, indexer.num_heads, hidden_size),
        ]
    return tuple(shapes)


def _compressor(width: int, series: int, ratio: int, hidden_size: int) -> list[WeightShape]:
    return [
        matrix(_ATTENTION, series * width, hidden_size, 2),
        vector(_ATTENTION, ratio * series * width),
        vector(_NORM, width),
    ]


def _cross(mixer: m.CrossAttention, hidden_size: int) -> tuple[WeightShape, ...]:
    own = attention_weights(mixer.attention, hidden_size)
    if mixer.encoder_size == hidden_size:
        return own
    width = mixer.attention.num_key_value_heads * mixer.attention.head_dim
    return (*own, matrix(_ATTENTION, 2 * width, mixer.encoder_size - hidden_size))


def _linear(mixer: m.LinearAttention | m.Recurrence, hidden_size: int) -> tuple[WeightShape, ...]:
    rows, rest = divmod(mixer.matrix_params, hidden_size)
    return (
        matrix(_STATE, rows, hidden_size),
        matrix(_STATE, 1 if rest else 0, rest),
        vector(_NORM, mixer.vector_params),
    )


def _mamba(mixer: m.Mamba, hidden_size: int) -> tuple[WeightShape, ...]:
    """Input, step, input and output maps, and output of a selective state-space layer.

    Formula:  D·2I + I·(R + 2S) + R·I + I·D, convolution I·k, and I·(S + 2) of decay, skip and step bias
    """
    inner, size, rank = mixer.intermediate_size, mixer.state_size, mixer.time_step_rank
    return (
        matrix(_STATE, 2 * inner, hidden_size),
        matrix(_STATE, mixer.num_heads * (rank + 2 * size), inner // mixer.num_heads),
        matrix(_STATE, inner, rank),
        matrix(_STATE, hidden_size, inner),
        vector(_STATE, inner * (mixer.conv_kernel + size + 2 + int(mixer.conv_bias))),
        vector(_STATE, 2 * inner + hidden_size if mixer.bias else 0),
        vector(_NORM, rank + 2 * size if mixer.inner_norms else 0),
    )


def _mamba2(mixer: m.Mamba2, hidden_size: int) -> tuple[WeightShape, ...]:
    """Input and output of a Mamba-2 layer.

    Formula:  D·(2I + 2GS + n) + I·D, convolution (I + 2GS)·k, and 3n of decay, skip and step bias
    """
    inner, channels = mixer.intermediate_size, mixer.conv_channels
    width = inner + channels + mixer.num_heads
    return (
        matrix(_STATE, width, hidden_size),
        matrix(_STATE, hidden_size, inner),
        vector(_STATE, channels * (mixer.conv_kernel + int(mixer.conv_bias)) + 3 * mixer.num_heads),
        vector(_STATE, width + hidden_size if mixer.bias else 0),
        vector(_NORM, inner if mixer.gated_norm else 0),
    )


def _convolution(mixer: m.ShortConvolution, hidden_size: int) -> tuple[WeightShape, ...]:
    """A gated short convolution: D × 3C in, k taps a channel, C × D out."""
    size = mixer.channels
    return (
        matrix(_STATE, 3 * size, hidden_size),
        matrix(_STATE, hidden_size, size),
        vector(_STATE, size * mixer.conv_kernel + (4 * size + hidden_size if mixer.bias else 0)),
    )


_WEIGHTS: Final[dict[type, Callable[[Any, int], tuple[WeightShape, ...]]]] = {
    m.LatentAttention: _latent,
    m.IndexedAttention: _indexed,
    m.CompressedAttention: _compressed,
    m.CrossAttention: _cross,
    m.LinearAttention: _linear,
    m.Recurrence: _linear,
    m.Mamba: _mamba,
    m.Mamba2: _mamba2,
    m.ShortConvolution: _convolution,
}


# --- work ---------------------------------------------------------------------------------------------------------


def state_flops(mixer: m.RareMixer) -> int:
    """FLOPs a token takes to update and read one layer's state; the convolution's weights are counted as parameters.

    Formula:  elements of the state · FLOPs an element: 4 (one multiply-add to update, one to read), 6 where the update
              first reads the state (gated delta rule)
    """
    kept_state = state(mixer)
    if kept_state is None:
        return 0
    each = mixer.state_flops if isinstance(mixer, m.LinearAttention | m.Recurrence) else 4
    return each * kept_state.recurrent_elements
