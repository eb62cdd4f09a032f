"""MiniMax-M3: grouped-query attention over blocks that an index picks, experts with a shared one beside them.

In:   Fields of the text part
Out:  Design
Read next by: config.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from inference_bench.facts.families import experts as moe
from inference_bench.facts.families.base import (
    Block,
    Design,
    hidden_size_of,
    num_layers_of,
    plain_attention,
    repeated,
    unknown_kind,
)
from inference_bench.facts.fields import Fields
from inference_bench.facts.mixers import IndexedAttention, Indexer
from inference_bench.facts.models import FeedForward, Layer, QueryKeyNorm

_SPARSE: Final = "minimax_m3_sparse"
_FULL: Final = "full_attention"


def build(_model_type: str, fields: Fields, _top: Fields) -> Design:
    """The design of MiniMax-M3's decoder."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    attention = replace(plain_attention(fields, hidden_size, 128), query_key_norm=QueryKeyNorm.PER_HEAD)
    section = fields.section("sparse_attention_config")
    picked = _picked(fields, section, num_layers)
    indexed = IndexedAttention(attention, _indexer(fields, section, hidden_size))
    sparse = _sparse_blocks(fields, num_layers)
    shared = fields.integer("shared_intermediate_size", default=3072, minimum=0)
    fields.mark(
        "n_shared_experts", "num_local_experts", "num_mtp_modules", "moe_intermediate_size", "first_k_dense_replace"
    )
    if fields.boolean("attention_output_gate", False):
        raise fields.refuse("attention_output_gate is true, which is not counted yet")
    mixture: Block = replace(moe.routed(fields, "intermediate_size"), shared_intermediate_size=shared)
    dense: Block = None if all(sparse) else FeedForward(fields.integer("dense_intermediate_size", default=12288))
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=repeated(
            lambda index: Layer(
                (indexed if picked[index] else attention,), mixture if sparse[index] else dense, 2 * hidden_size
            ),
            num_layers,
        ),
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        final_norm_params=hidden_size,
    )


def _picked(fields: Fields, section: Fields | None, num_layers: int) -> tuple[bool, ...]:
    """Layers whose positions an index picks: layer_types, or the flags of sparse_attention_freq."""
    kinds = fields.per_layer("layer_types", num_layers)
    if kinds is not None:
        for kind in kinds:
            if kind not in (_SPARSE, _FULL):
                raise unknown_kind(fields, "layer_types", kind, (_SPARSE, _FULL))
        return tuple(kind == _SPARSE for kind in kinds)
    if section is not None and "sparse_attention_freq" in section:
        return moe.listed(section, "sparse_attention_freq", num_layers)
    return (False,) * num_layers


def _indexer(fields: Fields, section: Fields | None, hidden_size: int) -> Indexer:
    """One key for every position, whatever the number of index queries."""

    def read(key: str, older: str, default: int) -> int:
        if section is not None and older in section:
            return section.integer(older)
        return fields.integer(key, default=default)

    size = read("index_head_dim", "sparse_index_dim", 128)
    return Indexer(
        num_heads=read("index_n_heads", "sparse_num_index_heads", 4),
        head_dim=size,
        top_k=read("index_topk_blocks", "sparse_topk_blocks", 16),
        query_size=hidden_size,
        norm_params=2 * size,
        block_size=read("index_block_size", "sparse_block_size", 128),
        head_weights=False,
    )


def _sparse_blocks(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    kinds = fields.per_layer("mlp_layer_types", num_layers)
    if kinds is not None:
        return moe.sparse_kinds(fields, kinds)
    if "moe_layer_freq" in fields:
        return moe.listed(fields, "moe_layer_freq", num_layers)
    return (True,) * num_layers
