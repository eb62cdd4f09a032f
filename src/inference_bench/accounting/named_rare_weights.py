"""The matrices of the rarer mixers by name: latent attention, indexed attention, the gated delta rule.

In:   a mixer of facts/mixers.py and the matrices params.py counts for it
Out:  Weight rows
Leaves out: names where a design has no common one; those go by running numbers, with the shapes that were counted
Read next by: named_weights; loaded only for models that have such a mixer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.accounting.named_weights import Weight, name_attention
from inference_bench.accounting.params import WeightShape
from inference_bench.facts import mixers as m
from inference_bench.facts.models import Mixer, TensorRole

_ROLE: Final = TensorRole.ATTENTION


def name_mixer(mixer: Mixer, hidden_size: int, shapes: Sequence[WeightShape]) -> tuple[Weight, ...]:
    """The matrices of one mixer; running numbers where names would not cover what was counted."""
    named: Sequence[Weight] = ()
    if isinstance(mixer, m.LatentAttention):
        named = tuple(_latent(mixer, hidden_size))
    elif isinstance(mixer, m.IndexedAttention):
        named = (*name_attention(mixer.attention, hidden_size), *_indexer(mixer.indexer, hidden_size))
    elif isinstance(mixer, m.CrossAttention) and mixer.encoder_size == hidden_size:
        named = tuple(name_attention(mixer.attention, hidden_size, "encoder_attn", "cross_attn"))
    elif isinstance(mixer, m.LinearAttention):
        named = tuple(_gated_delta(mixer, hidden_size))
    if sum(weight.num_params for weight in named) == sum(shape.num_params for shape in shapes):
        return tuple(named)
    return tuple(
        Weight(f"mixer.{index}", f"mixer_{index}", shape.role, shape.rows, shape.columns, shape.copies)
        for index, shape in enumerate(shapes)
    )


def _latent(mixer: m.LatentAttention, hidden_size: int) -> Iterator[Weight]:
    """Down and up projections of multi-head latent attention."""
    heads, rank = mixer.num_attention_heads, mixer.kv_lora_rank
    query_width = heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim)
    if mixer.q_lora_rank is None:
        yield Weight("self_attn.q_proj", "attn_q", _ROLE, query_width, hidden_size)
    else:
        yield Weight("self_attn.q_a_proj", "attn_q_a", _ROLE, mixer.q_lora_rank, hidden_size)
        yield Weight("self_attn.q_b_proj", "attn_q_b", _ROLE, query_width, mixer.q_lora_rank)
    yield Weight("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", _ROLE, rank + mixer.qk_rope_head_dim, hidden_size)
    yield Weight("self_attn.kv_b_proj", "attn_kv_b", _ROLE, heads * (mixer.qk_nope_head_dim + mixer.v_head_dim), rank)
    yield Weight("self_attn.o_proj", "attn_output", _ROLE, hidden_size, heads * mixer.v_head_dim)
    if mixer.gate_size:
        yield Weight("self_attn.g_proj", "attn_gate", _ROLE, mixer.gate_size, hidden_size)
    if mixer.indexer is not None:
        yield from _indexer(mixer.indexer, hidden_size)


def _indexer(indexer: m.Indexer, hidden_size: int) -> Iterator[Weight]:
    query_width = indexer.num_heads * indexer.head_dim
    yield Weight("self_attn.indexer.wq_b", "indexer.attn_q_b", _ROLE, query_width, indexer.query_size)
    yield Weight("self_attn.indexer.wk", "indexer.attn_k", _ROLE, indexer.head_dim, hidden_size)
    if indexer.head_weights:
        yield Weight("self_attn.indexer.weights_proj", "indexer.proj", _ROLE, indexer.num_heads, hidden_size)


def _gated_delta(mixer: m.LinearAttention, hidden_size: int) -> Iterator[Weight]:
    """Queries, keys and values; an output gate; write strength and decay of each head; output."""
    keys = mixer.num_key_heads * mixer.key_head_dim
    values = mixer.num_value_heads * mixer.value_head_dim
    role = TensorRole.STATE_SPACE
    yield Weight("linear_attn.in_proj_qkv", "attn_qkv", role, 2 * keys + values, hidden_size)
    yield Weight("linear_attn.in_proj_z", "attn_gate", role, values, hidden_size)
    yield Weight("linear_attn.in_proj_ba", "ssm_ba", role, 2 * mixer.num_value_heads, hidden_size)
    yield Weight("linear_attn.out_proj", "ssm_out", role, hidden_size, values)
