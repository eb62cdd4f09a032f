"""Decoders that mix attention with linear attention: gated delta rule, Kimi delta attention, lightning attention.

In:   Fields of the text part
Out:  Design
Read next by: config.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from inference_bench.facts.families import experts as moe
from inference_bench.facts.families.base import (
    Block,
    Design,
    divided,
    few,
    head_dim_of,
    hidden_size_of,
    key_value_heads_of,
    num_heads_of,
    num_layers_of,
    repeated,
    state_bits_of,
    unknown_kind,
)
from inference_bench.facts.families.latent import latent_attention, usual_heads
from inference_bench.facts.fields import Fields
from inference_bench.facts.mixers import LinearAttention
from inference_bench.facts.models import Attention, FeedForward, Layer, Mixer, OutputGate, QueryKeyNorm

LINEAR: Final = "linear_attention"
FULL: Final = "full_attention"

GATED_DELTA_FLOPS: Final = 6  # read with the key, add the correction, read with the query: a multiply-add each
LIGHTNING_FLOPS: Final = 4  # add the outer product, read with the query


def build(model_type: str, fields: Fields, _top: Fields) -> Design:
    """The design of a hybrid of attention and linear attention."""
    return _BUILDERS[model_type](fields)


class _Mixers(NamedTuple):
    full: Mixer
    linear: Mixer


def _hybrid(
    mixers: _Mixers, kinds: tuple[str, ...], blocks: tuple[Block, ...], hidden_size: int, gate_bias: int = 0
) -> tuple[Layer, ...]:
    """Layers that differ by mixer and by block, with two norms each."""

    def layer(index: int) -> Layer:
        if kinds[index] == LINEAR:
            return Layer((mixers.linear,), blocks[index], 2 * hidden_size)
        return Layer((mixers.full,), blocks[index], 2 * hidden_size, gate_bias)

    return repeated(layer, len(kinds))


def _kinds(fields: Fields, num_layers: int, default: Callable[[int], bool]) -> tuple[str, ...]:
    """layer_types, or the class's own pattern where it is absent; `default` tells which layers attend fully."""
    kinds = fields.per_layer("layer_types", num_layers)
    fields.mark("full_attention_interval", "attn_type_list")
    if kinds is None:
        return tuple(FULL if default(index) else LINEAR for index in range(num_layers))
    for kind in kinds:
        if kind not in (LINEAR, FULL):
            raise unknown_kind(fields, "layer_types", kind, (LINEAR, FULL))
    return kinds


def _gated_attention(fields: Fields, hidden_size: int, default_head_dim: int) -> Attention:
    heads = num_heads_of(fields)
    bias = fields.boolean("attention_bias", False)
    gated = fields.boolean("attn_output_gate", True)
    return Attention(
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads_of(fields, heads, 2 if heads % 2 == 0 else None),
        head_dim=head_dim_of(fields, hidden_size, heads, default_head_dim),
        query_bias=bias,
        key_bias=bias,
        value_bias=bias,
        output_bias=bias,
        query_key_norm=QueryKeyNorm.PER_HEAD,
        output_gate=OutputGate.PER_VALUE if gated else OutputGate.NONE,
    )


def _gate_bias(attention: Attention) -> int:
    """Biases of the output gate, which is projected together with the queries."""
    gated = attention.query_bias and attention.output_gate is OutputGate.PER_VALUE
    return attention.num_attention_heads * attention.head_dim if gated else 0


def gated_delta(fields: Fields, hidden_size: int, **defaults: int) -> LinearAttention:
    """A gated delta layer.

    Formula:  D·(2·Kd + 2·Vd) for q, k, v and gate, D·2·n for decay and step, Vd·D out, (2·Kd + Vd)·kernel, and
              2·n + dv of decay, step bias and norm
    """
    key_heads = fields.integer("linear_num_key_heads", default=defaults.get("key_heads"))
    value_heads = fields.integer("linear_num_value_heads", default=defaults.get("value_heads"))
    key_dim = fields.integer("linear_key_head_dim", default=defaults.get("key_dim"))
    value_dim = fields.integer("linear_value_head_dim", default=defaults.get("value_dim"))
    kernel = fields.integer("linear_conv_kernel_dim", default=4)
    keys, values = key_heads * key_dim, value_heads * value_dim
    return LinearAttention(
        num_key_heads=key_heads,
        num_value_heads=value_heads,
        key_head_dim=key_dim,
        value_head_dim=value_dim,
        conv_kernel=kernel,
        matrix_params=hidden_size * (2 * keys + 3 * values + 2 * value_heads),
        vector_params=(2 * keys + values) * kernel + 2 * value_heads + value_dim,
        state_flops=GATED_DELTA_FLOPS,
    )


def _qwen(fields: Fields, with_experts: bool) -> Design:
    """Qwen3-Next and Qwen3.5: every fourth layer attends, with an output gate as wide as the values."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    interval = fields.integer("full_attention_interval", default=4)
    kinds = _kinds(fields, num_layers, lambda index: (index + 1) % interval == 0)
    fields.mark(
        "sliding_window", "mlp_only_layers", "decoder_sparse_step", "num_experts", "shared_expert_intermediate_size"
    )
    if with_experts:
        sparse = moe.every_step_but_listed(fields, num_layers)
        mixture: Block = moe.with_gated_shared_width(fields)
        dense: Block = None if all(sparse) else FeedForward(fields.integer("intermediate_size"))
        blocks = tuple(mixture if is_sparse else dense for is_sparse in sparse)
    else:
        blocks = (FeedForward(fields.integer("intermediate_size")),) * num_layers
    attention = _gated_attention(fields, hidden_size, 256)
    mixers = _Mixers(attention, gated_delta(fields, hidden_size))
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=_hybrid(mixers, kinds, blocks, hidden_size, _gate_bias(attention)),
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        final_norm_params=hidden_size,
        state_bits=state_bits_of(fields),
        prediction_layers=_qwen_prediction(fields, attention, blocks[-1], hidden_size),
    )


def _qwen_prediction(fields: Fields, attention: Attention, block: Block, hidden_size: int) -> tuple[Layer, ...]:
    """The layers of mtp_num_hidden_layers: one projection of two widths for all, three norms."""
    count = few(fields, "mtp_num_hidden_layers", fields.integer("mtp_num_hidden_layers", default=0, minimum=0))
    gate_bias = _gate_bias(attention)
    shared = Layer((attention,), block, 2 * hidden_size, gate_bias)
    first = Layer((attention,), block, 5 * hidden_size, 2 * hidden_size * hidden_size + gate_bias)
    return (first, *(shared for _ in range(count - 1))) if count else ()


def _olmo_hybrid(fields: Fields) -> Design:
    """OLMo hybrid: gated delta layers with a full-width gate, attention with norms over the whole width."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    kinds = _kinds(fields, num_layers, lambda index: index % 4 == 3)
    heads, bias = num_heads_of(fields), fields.boolean("attention_bias", False)
    attention = Attention(
        heads,
        key_value_heads_of(fields, heads),
        head_dim_of(fields, hidden_size, heads),
        query_bias=bias,
        key_bias=bias,
        value_bias=bias,
        output_bias=bias,
        query_key_norm=QueryKeyNorm.PER_WIDTH,
    )
    key_dim = fields.integer("linear_key_head_dim", default=max(1, 3 * hidden_size // (4 * heads)))
    linear = gated_delta(
        fields, hidden_size, key_heads=heads, value_heads=heads, key_dim=key_dim, value_dim=2 * key_dim
    )
    blocks: tuple[Block, ...] = (FeedForward(fields.integer("intermediate_size")),) * num_layers
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=_hybrid(_Mixers(attention, linear), kinds, blocks, hidden_size),
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        final_norm_params=hidden_size,
        state_bits=state_bits_of(fields),
    )


def _kimi_linear(fields: Fields) -> Design:
    """Kimi Linear: Kimi delta attention, with latent attention every few layers."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    section = fields.section("linear_attn_config")
    linear = section or fields
    kinds = _kimi_kinds(fields, section, num_layers)
    if "q_lora_rank" not in fields.values:
        fields.values = {**fields.values, "q_lora_rank": None}
    heads = linear.integer("num_heads" if section else "linear_num_heads", default=32)
    size = linear.integer("head_dim" if section else "linear_head_dim", default=128)
    kernel = linear.integer("short_conv_kernel_size" if section else "linear_conv_kernel_dim", default=4)
    width = heads * size
    full_gate = linear.boolean("use_full_rank_gate", False)
    gates = (
        hidden_size * size + size * width
    )  # one low-rank pair: the forget gate, and the output gate unless it is full
    delta = LinearAttention(
        num_key_heads=heads,
        num_value_heads=heads,
        key_head_dim=size,
        value_head_dim=size,
        conv_kernel=kernel,
        matrix_params=hidden_size * (4 * width + heads) + gates + (hidden_size * width if full_gate else gates),
        vector_params=3 * width * kernel + width + heads + size,
        state_flops=GATED_DELTA_FLOPS,
        per_channel_decay=True,
    )
    sparse = moe.after_first_dense(1)(fields, num_layers)
    latent = fields.optional_integer("routed_expert_hidden_size")
    mixture: Block = replace(moe.with_shared_count(fields), latent_size=latent)
    dense: Block = FeedForward(fields.integer("intermediate_size")) if not all(sparse) else None
    blocks = tuple(mixture if is_sparse else dense for is_sparse in sparse)
    attention = latent_attention(fields, hidden_size)
    if fields.boolean("mla_use_output_gate", False):
        attention = replace(attention, gate_size=attention.num_attention_heads * attention.v_head_dim)
    design = _kimi_design(fields, _hybrid(_Mixers(attention, delta), kinds, blocks, hidden_size), hidden_size)
    if latent or full_gate or attention.gate_size:
        design.assumptions.append(
            "parameters beyond Kimi Linear's (a full gate of the values, experts in a latent width with two "
            "projections) are counted from the fields' names, residual attention is not: the total is near, not exact"
        )
    return design


def _kimi_design(fields: Fields, layers: tuple[Layer, ...], hidden_size: int) -> Design:
    kv_heads, head_dim = usual_heads(fields, hidden_size)
    fields.mark("attn_res_block_size", "latent_moe_use_norm", "mla_use_nope")
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=layers,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        final_norm_params=hidden_size,
        state_bits=state_bits_of(fields),
    )


def _kimi_kinds(fields: Fields, section: Fields | None, num_layers: int) -> tuple[str, ...]:
    """The layers that attend, counted from 1 in linear_attn_config."""
    full = section.integers("full_attn_layers") if section else None
    if full is None or "layer_types" in fields:
        return _kinds(fields, num_layers, lambda index: index > 0 and index % 4 == 0)
    linear = (section.integers("kda_layers") if section else None) or ()
    if sorted((*full, *linear)) != list(range(1, num_layers + 1)):
        raise fields.refuse(f"full_attn_layers and kda_layers do not cover the layers 1..{num_layers} once each")
    return tuple(FULL if index + 1 in set(full) else LINEAR for index in range(num_layers))


def _minimax(fields: Fields) -> Design:
    """MiniMax-Text-01 and M1: lightning attention, with softmax attention every few layers, experts everywhere."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    listed = fields.integers("attn_type_list")
    if listed is not None and len(listed) != num_layers:
        raise fields.refuse(f"attn_type_list has {len(listed)} entries for num_hidden_layers {num_layers}")
    if listed is not None and set(listed) - {0, 1}:
        raise fields.refuse(
            f"attn_type_list holds {sorted(set(listed))}; 0 is lightning attention, 1 softmax attention"
        )
    kinds = _kinds(fields, num_layers, lambda index: listed[index] == 1 if listed else (index + 1) % 2 == 1)
    heads = num_heads_of(fields)
    size = fields.optional_integer("head_dim") or divided(fields, "hidden_size", hidden_size, heads)
    width = heads * size
    attention = Attention(heads, key_value_heads_of(fields, heads), size, fields.optional_integer("sliding_window"))
    lightning = LinearAttention(
        num_key_heads=heads,
        num_value_heads=heads,
        key_head_dim=size,
        value_head_dim=size,
        conv_kernel=0,
        matrix_params=5 * hidden_size * width,
        vector_params=width,
        state_flops=LIGHTNING_FLOPS,
    )
    if fields.integer("shared_intermediate_size", default=0, minimum=0):
        raise fields.refuse("shared_intermediate_size is not counted for this architecture yet")
    block: Block = moe.routed(fields, "intermediate_size")
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=_hybrid(_Mixers(attention, lightning), kinds, (block,) * num_layers, hidden_size),
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=size,
        final_norm_params=hidden_size,
        state_bits=state_bits_of(fields),
    )


_BUILDERS: Final[dict[str, Callable[[Fields], Design]]] = {
    "qwen3_next": lambda fields: _qwen(fields, True),
    "qwen3_5_text": lambda fields: _qwen(fields, False),
    "qwen3_5_moe_text": lambda fields: _qwen(fields, True),
    "olmo_hybrid": _olmo_hybrid,
    "kimi_linear": _kimi_linear,
    "minimax": _minimax,
    "minimax_m1": _minimax,
    "minimax_text_01": _minimax,
}
