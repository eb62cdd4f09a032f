"""DeepSeek-V4: a window of recent positions, and older ones compressed by a ratio that differs by layer.

In:   Fields of the text part
Out:  Design
Read next by: config.py.
"""

from __future__ import annotations

from typing import Final

from inference_bench.facts.families import experts as moe
from inference_bench.facts.families.base import Design, hidden_size_of, num_heads_of, num_layers_of, repeated
from inference_bench.facts.fields import Fields
from inference_bench.facts.mixers import CompressedAttention, Indexer
from inference_bench.facts.models import Layer, Part

_SPARSE: Final = "compressed_sparse_attention"
_HEAVY: Final = "heavily_compressed_attention"
_WINDOW: Final = "sliding_attention"
_RATIO_OF: Final = {_SPARSE: 4, _HEAVY: 128, _WINDOW: 0}


def build(_model_type: str, fields: Fields, _top: Fields) -> Design:
    """The design of DeepSeek-V4."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    ratios = _ratios(fields, num_layers)
    fields.mark("qk_rope_head_dim", "n_shared_experts", "mlp_layer_types", "num_nextn_predict_layers")
    block = moe.with_shared_count(fields)
    streams = fields.integer("hc_mult", default=4)
    # of the experts only the shared one has biases
    biases = 2 * block.shared_intermediate_size + hidden_size if fields.boolean("mlp_bias", False) else 0

    def layer(index: int) -> Layer:
        return Layer(
            (_attention(fields, ratios[index]),),
            block,
            2 * hidden_size,
            2 * _hyper_connection((2 + streams) * streams, streams * hidden_size, 3) + biases,
        )

    head = _hyper_connection(streams, streams * hidden_size, 1)
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=repeated(layer, num_layers),
        num_key_value_heads=fields.integer("num_key_value_heads", default=1),
        head_dim=fields.integer("head_dim", default=512),
        final_norm_params=hidden_size,
        parts=(Part("hyper-connection head", head),),
    )


def _hyper_connection(outputs: int, inputs: int, scales: int) -> int:
    """Values of one mixing of the residual streams: a matrix, its offset and its scales."""
    return outputs * inputs + outputs + scales


def _ratios(fields: Fields, num_layers: int) -> tuple[int, ...]:
    """The compression ratio of each layer, 0 for the window alone; a prediction layer's at the end is not a layer's."""
    kinds = fields.per_layer("layer_types", num_layers)
    listed = fields.integers("compress_ratios")
    if kinds is not None:
        unknown = set(kinds) - set(_RATIO_OF)
        if unknown:
            raise fields.refuse(f"layer_types {sorted(unknown)} are not counted yet; counted: {', '.join(_RATIO_OF)}")
        rates = fields.section("compress_rates")
        own = {
            kind: rates.integer(kind, default=ratio) if rates and ratio else ratio for kind, ratio in _RATIO_OF.items()
        }
        return tuple(own[kind] for kind in kinds)
    if listed is None:
        raise fields.refuse("there is neither compress_ratios nor layer_types; one is needed to count this model")
    if len(listed) < num_layers:
        raise fields.refuse(f"compress_ratios has {len(listed)} entries for num_hidden_layers {num_layers}")
    if set(listed) - {0, 4, 128}:
        raise fields.refuse(f"compress_ratios {sorted(set(listed))} are not counted yet; counted: 0, 4, 128")
    return listed[:num_layers]


def _attention(fields: Fields, ratio: int) -> CompressedAttention:
    heads, rank = num_heads_of(fields), fields.integer("q_lora_rank")
    size = fields.integer("index_head_dim", default=128)
    top_k, index_heads = fields.integer("index_topk", default=512), fields.integer("index_n_heads", default=64)
    width, groups = fields.integer("head_dim", default=512), fields.integer("o_groups")
    if heads * width % groups:
        raise fields.refuse(f"{heads} heads of {width} are not a multiple of o_groups {groups}")
    sparse = ratio not in (0, 128)
    return CompressedAttention(
        num_attention_heads=heads,
        head_dim=width,
        q_lora_rank=rank,
        sliding_window=fields.integer("sliding_window", default=128),
        compress_ratio=ratio or None,
        o_groups=groups,
        o_lora_rank=fields.integer("o_lora_rank"),
        overlapping=sparse,
        indexer=Indexer(index_heads, size, top_k, rank, size) if sparse else None,
    )
