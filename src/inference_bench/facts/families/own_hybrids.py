"""Hybrids of their own kind: Zamba 2 with transformer blocks that layers share, LFM2 with short convolutions.

In:   Fields of the text part
Out:  Design
Read next by: config.py.
"""

from __future__ import annotations

from dataclasses import replace

from inference_bench.facts.families import experts as moe
from inference_bench.facts.families.base import (
    Block,
    Design,
    divided,
    hidden_size_of,
    key_value_heads_of,
    num_heads_of,
    num_layers_of,
    plain_attention,
    repeated,
    unknown_kind,
)
from inference_bench.facts.families.state_space import MAMBA_NAMES, hybrid_design
from inference_bench.facts.fields import Fields, shown
from inference_bench.facts.mixers import Mamba2, ShortConvolution
from inference_bench.facts.models import Attention, FeedForward, Layer, Mixer, Part, QueryKeyNorm


def build(model_type: str, fields: Fields, _top: Fields) -> Design:
    """The design of one of these hybrids."""
    return _zamba2(fields) if model_type == "zamba2" else _lfm2(fields)


def _zamba2(fields: Fields) -> Design:
    """Zamba 2: Mamba-2 layers, some of which first run one of a few shared transformer blocks."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    kinds = _zamba_kinds(fields, num_layers)
    heads = num_heads_of(fields)
    kv_heads = key_value_heads_of(fields, heads)
    size = fields.optional_integer("attention_head_dim") or divided(fields, "twice hidden_size", 2 * hidden_size, heads)
    width = fields.integer("intermediate_size", default=4 * hidden_size)
    if fields.boolean("use_shared_attention_adapter", False) or fields.boolean("add_bias_linear", False):
        raise fields.refuse("attention adapters and biases of Zamba 2 are not counted yet")
    inner = fields.integer("mamba_expand", default=2) * hidden_size
    num_mamba_heads = fields.integer("n_mamba_heads", default=8)
    mamba = Mamba2(
        num_heads=num_mamba_heads,
        head_dim=divided(fields, "the Mamba width", inner, num_mamba_heads),
        state_size=fields.integer("mamba_d_state", default=64),
        n_groups=fields.integer("mamba_ngroups", default=1),
        conv_kernel=fields.integer("mamba_d_conv", default=4),
        conv_bias=True,  # whatever use_conv_bias says
        bias=False,
    )
    fields.mark("use_conv_bias")
    if not fields.boolean("tie_word_embeddings", True):
        raise fields.refuse("tie_word_embeddings is false, which unties the shared blocks too; not counted yet")
    hybrids, rank = kinds.count("hybrid"), fields.integer("adapter_rank", default=128)
    blocks = fields.integer("num_mem_blocks", default=1)
    # the block's weights stand once in `parts`; what each layer adds of its own is a projection and an adapter
    attention = Attention(heads, kv_heads, size, projects_key_value=False, input_size=0, output_size=0)
    wide = 2 * hidden_size
    shared = heads * size * wide + 2 * kv_heads * size * wide + heads * size * hidden_size
    shared += 3 * hidden_size * width + wide + hidden_size
    adapter = (
        hybrids * rank * (hidden_size + 2 * width)
    )  # every block holds an adapter for every hybrid layer it serves
    plain = Layer((mamba,), None, hidden_size)
    both = Layer((attention, mamba), None, hidden_size, hidden_size * hidden_size)
    parts = (
        Part(
            "shared transformer blocks",
            min(blocks, hybrids) * shared,
            uses=max(1, hybrids // max(1, min(blocks, hybrids))),
        ),
        Part("adapters of the shared blocks", adapter),
    )
    layers = tuple(both if kind == "hybrid" else plain for kind in kinds)
    design = hybrid_design(
        fields, hidden_size, layers, replace(attention, input_size=None, output_size=None), tied=True
    )
    design.parts = parts if hybrids else ()
    return design


def _zamba_kinds(fields: Fields, num_layers: int) -> tuple[str, ...]:
    kinds = fields.per_layer("layers_block_type", num_layers)
    listed = fields.integers("hybrid_layer_ids")
    fields.mark("layer_types", "kv_channels", "num_query_groups", "attention_hidden_size", "mamba_headdim")
    if kinds is None and listed is not None:
        kinds = tuple("hybrid" if index in set(listed) else "mamba" for index in range(num_layers))
    if kinds is None:
        raise fields.refuse("there is no layers_block_type; it is needed to count this model")
    for kind in kinds:
        if kind not in {"hybrid": "", **MAMBA_NAMES}:
            raise unknown_kind(fields, "layers_block_type", kind, ("mamba", "hybrid"))
    return kinds


def _lfm2(fields: Fields) -> Design:
    """LFM2: short convolutions, with attention in some layers."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    kinds = fields.per_layer("layer_types", num_layers)
    attending = fields.integers("full_attn_idxs")
    if kinds is None:
        if attending is None:
            raise fields.refuse("there is neither layer_types nor full_attn_idxs; one is needed to count this model")
        kinds = tuple("full_attention" if index in set(attending) else "conv" for index in range(num_layers))
    for kind in kinds:
        if kind not in ("full_attention", "conv"):
            raise unknown_kind(fields, "layer_types", kind, ("full_attention", "conv"))
    attention = replace(plain_attention(fields, hidden_size), query_key_norm=QueryKeyNorm.PER_HEAD)
    kernel = fields.integer("conv_L_cache", default=3)
    conv = ShortConvolution(hidden_size, kernel, fields.boolean("conv_bias", False))
    blocks = _lfm2_blocks(fields, num_layers)

    def layer(index: int) -> Layer:
        mixer: Mixer = attention if kinds[index] == "full_attention" else conv
        return Layer((mixer,), blocks[index], 2 * hidden_size)

    design = hybrid_design(fields, hidden_size, repeated(layer, num_layers), attention, tied=True)
    if "tie_embedding" in fields:
        design.tied = fields.boolean("tie_embedding", True)
    return design


def _lfm2_blocks(fields: Fields, num_layers: int) -> tuple[Block, ...]:
    """Dense blocks, whose width may be adjusted to two thirds; LFM2-MoE has experts after the first few."""
    width = fields.integer("block_ff_dim", "intermediate_size", default=12288)
    if "num_experts" in fields:
        first = fields.integer("num_dense_layers", default=2, minimum=0)
        mixture: Block = moe.routed(fields)
        return tuple(mixture if index >= first else FeedForward(width) for index in range(num_layers))
    if fields.boolean("block_auto_adjust_ff_dim", True):
        multiple = fields.integer("block_multiple_of", default=256)
        factor = fields.values.get("block_ffn_dim_multiplier", 1.0)
        fields.mark("block_ffn_dim_multiplier")
        if factor is not None and (
            isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 100
        ):
            raise fields.refuse(f"block_ffn_dim_multiplier is {shown(factor)}; a number above zero is needed")
        width = int((1.0 if factor is None else factor) * int(2 * width / 3))
        width = multiple * -(-width // multiple)
    return (FeedForward(width),) * num_layers
