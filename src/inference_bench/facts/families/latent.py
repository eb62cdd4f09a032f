"""Multi-head latent attention: DeepSeek and the models built like it, with and without an index.

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
    few,
    hidden_size_of,
    num_heads_of,
    num_layers_of,
    prediction_layers,
    repeated,
)
from inference_bench.facts.fields import Fields, shown
from inference_bench.facts.mixers import Indexer, LatentAttention
from inference_bench.facts.models import FeedForward, Layer, MixtureOfExperts

_DENSE_ONLY: Final = ("minicpm3", "youtu")
_ALWAYS_INDEXED: Final = ("deepseek_v32", "glm_moe_dsa")
_TIED: Final = ("minicpm3", "youtu")
_FIRST_DENSE: Final = {"deepseek_v3": 3, "deepseek_v32": 3, "kimi_k2": 3, "glm_moe_dsa": 3, "glm4_moe_lite": 1}


def build(model_type: str, fields: Fields, _top: Fields) -> Design:
    """The design of a decoder whose every layer has latent attention."""
    if model_type == "longcat_flash":
        return _longcat(fields)
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    attention = latent_attention(fields, hidden_size)
    indexed = _indexed_layers(model_type, fields, num_layers)
    indexer = read_indexer(fields, attention) if any(indexed) else None
    top_k = indexer.top_k if indexer else None
    blocks = _blocks(model_type, fields, num_layers)

    def layer(index: int) -> Layer:
        own = replace(attention, indexer=indexer if indexed[index] else None, top_k=top_k)
        return Layer((own,), blocks[index], 2 * hidden_size)

    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=repeated(layer, num_layers),
        num_key_value_heads=usual_heads(fields, hidden_size)[0],
        head_dim=usual_heads(fields, hidden_size)[1],
        final_norm_params=hidden_size,
        tied_by_default=model_type in _TIED,
        prediction_layers=prediction_layers(fields, hidden_size, layer(num_layers - 1)),
    )


def usual_heads(fields: Fields, hidden_size: int) -> tuple[int, int | None]:
    """What the usual formula multiplies for a model with latents: the config's heads, and hidden size / heads."""
    heads = num_heads_of(fields)
    kv_heads = fields.integer("num_key_value_heads", default=heads)
    return kv_heads, fields.optional_integer("head_dim") or hidden_size // heads or None


def latent_attention(fields: Fields, hidden_size: int) -> LatentAttention:
    """The latent attention a config describes; a null q_lora_rank means queries are not compressed."""
    heads = num_heads_of(fields)
    fields.mark("qk_head_dim", "num_key_value_heads")
    if "q_lora_rank" not in fields.values:
        raise fields.refuse(
            "q_lora_rank is absent; null says that queries are not compressed, a number how much they are"
        )
    return LatentAttention(
        num_attention_heads=heads,
        q_lora_rank=fields.optional_integer("q_lora_rank"),
        kv_lora_rank=fields.integer("kv_lora_rank"),
        qk_nope_head_dim=fields.integer("qk_nope_head_dim"),
        qk_rope_head_dim=fields.integer("qk_rope_head_dim"),
        v_head_dim=fields.integer("v_head_dim", default=hidden_size // heads or 1),
        bias=fields.boolean("attention_bias", False),
    )


def read_indexer(fields: Fields, attention: LatentAttention) -> Indexer:
    """The index of DeepSeek sparse attention: its queries come from the compressed ones."""
    size = fields.integer("index_head_dim", default=128)
    if attention.q_lora_rank is None:
        raise fields.refuse("an index needs q_lora_rank; it is null")
    return Indexer(
        num_heads=fields.integer("index_n_heads"),
        head_dim=size,
        top_k=fields.integer("index_topk", default=2048),
        query_size=attention.q_lora_rank,
        norm_params=2 * size,
    )


def _indexed_layers(model_type: str, fields: Fields, num_layers: int) -> tuple[bool, ...]:
    """Layers that keep index keys of their own; the others reuse the choice of one before them."""
    if model_type not in _ALWAYS_INDEXED and "index_topk" not in fields:
        return (False,) * num_layers
    kinds = fields.per_layer("layer_types", num_layers)
    if kinds is not None and set(kinds) - {"indexed_attention", "deepseek_sparse_attention", "full_attention"}:
        raise fields.refuse(f"layer_types {shown(sorted(set(kinds)))} are not counted yet")
    kinds = fields.per_layer("indexer_types", num_layers)
    pattern = fields.values.get("index_topk_pattern")
    if kinds is None and pattern is not None:
        letters = {"F": "full", "S": "shared"}
        if not isinstance(pattern, str) or set(pattern) - set(letters) or len(pattern) != num_layers:
            raise fields.refuse(f"index_topk_pattern is {shown(pattern)}; a letter F or S for each layer is needed")
        kinds = tuple(letters[letter] for letter in pattern)
    if kinds is not None:
        if set(kinds) - {"full", "shared"}:
            raise fields.refuse(f"indexer_types {shown(sorted(set(kinds)))} are not counted yet")
        return tuple(kind == "full" for kind in kinds)
    period = fields.integer("index_topk_freq", default=1)
    offset = fields.integer("index_skip_topk_offset", default=2, minimum=0)
    return tuple(max(index - offset + 1, 0) % period == 0 for index in range(num_layers))


def _blocks(model_type: str, fields: Fields, num_layers: int) -> tuple[Block, ...]:
    if model_type in _DENSE_ONLY:
        bias = model_type == "minicpm3" and fields.boolean("mlp_bias", False)
        return (FeedForward(fields.integer("intermediate_size"), bias=bias),) * num_layers
    sparse = moe.after_first_dense(_FIRST_DENSE.get(model_type, 0))(fields, num_layers)
    fields.mark("num_experts", "num_local_experts")
    mixture: Block = moe.with_shared_count(fields)
    dense = None if all(sparse) else FeedForward(fields.integer("intermediate_size"))
    return tuple(mixture if is_sparse else dense for is_sparse in sparse)


def _longcat(fields: Fields) -> Design:
    """LongCat-Flash: two latent attentions and two dense blocks a layer, with one mixture of experts beside them."""
    hidden_size = hidden_size_of(fields)
    num_layers = few(fields, "num_layers", fields.integer("num_layers", "num_hidden_layers"))
    attention = latent_attention(fields, hidden_size)
    experts = fields.integer("n_routed_experts")
    outputs = experts + fields.integer("zero_expert_num", default=0, minimum=0)
    block = MixtureOfExperts(
        experts,
        moe.chosen(fields, experts),
        fields.integer("expert_ffn_hidden_size"),
        num_router_outputs=outputs,
        dense=FeedForward(2 * fields.integer("ffn_hidden_size")),
    )
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=repeated(lambda _: Layer((attention, attention), block, 4 * hidden_size), num_layers),
        num_key_value_heads=usual_heads(fields, hidden_size)[0],
        head_dim=usual_heads(fields, hidden_size)[1],
        final_norm_params=hidden_size,
        assumptions=[
            "of the experts a token chooses, those without weights take no work: the figures count all as real"
        ],
    )
