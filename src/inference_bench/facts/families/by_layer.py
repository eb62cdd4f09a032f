"""Attention decoders that describe each layer on its own: Nemotron-NAS (DeciLM), Step 3, Step 3.5 and 3.7.

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
    checked_key_value_heads,
    head_dim_of,
    hidden_size_of,
    num_heads_of,
    num_layers_of,
    repeated,
)
from inference_bench.facts.families.windows import no_window, windows_of
from inference_bench.facts.fields import Fields, shown
from inference_bench.facts.models import (
    Attention,
    FeedForward,
    Layer,
    Mixer,
    MixtureOfExperts,
    OutputGate,
    QueryKeyNorm,
)

_WIDTH_MULTIPLE: Final = 256


def build(model_type: str, fields: Fields, _top: Fields) -> Design:
    """The design of one of these architectures."""
    if model_type in ("nemotron-nas", "deci"):
        return _nemotron_nas(fields)
    return _step3(fields) if model_type == "step3_text" else _step3_flash(fields)


# --- Nemotron-NAS ----------------------------------------------------------------------------------------------------


def _nemotron_nas(fields: Fields) -> Design:
    """Nemotron-NAS: block_configs say for each layer which attention and which width it has, or that it has none."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    heads = num_heads_of(fields)
    size = head_dim_of(fields, hidden_size, heads)
    bias, mlp_bias = fields.boolean("attention_bias", False), fields.boolean("mlp_bias", False)
    blocks = _sections(fields, "block_configs", num_layers)
    layers, kv_heads = [], []
    for block in blocks:
        attention = block.section("attention") or Fields({"no_op": True}, block.what)
        ffn = block.section("ffn") or Fields({"no_op": True}, block.what)
        mixer, linear = _nas_attention(attention, heads, size, bias)
        dense, other = _nas_feed_forward(ffn, hidden_size, mlp_bias)
        norms = sum(not section.boolean("no_op", False) for section in (attention, ffn))
        linears = (linear + other) * hidden_size * hidden_size
        layers.append(Layer((mixer,) if mixer else (), dense, norms * hidden_size, linears))
        if isinstance(mixer, Attention):
            kv_heads.append(mixer.num_key_value_heads)
    usual = fields.optional_integer("num_key_value_heads") or (kv_heads[0] if kv_heads else None)
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=repeated(lambda index: layers[index], num_layers),
        num_key_value_heads=usual,
        head_dim=size,
        final_norm_params=hidden_size,
    )


def _sections(fields: Fields, key: str, num_layers: int) -> tuple[Fields, ...]:
    """A list of objects, one for each layer."""
    fields.mark(key)
    items = fields.values.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise fields.refuse(f"{key} is {shown(items)}; a list of objects is needed")
    if len(items) != num_layers:
        raise fields.refuse(f"{key} has {len(items)} entries for num_hidden_layers {num_layers}")
    return tuple(Fields(item, f"{fields.what} {key}") for item in items)


def _nas_attention(section: Fields, heads: int, size: int, bias: bool) -> tuple[Mixer | None, int]:
    """A layer's attention, and how many linear layers stand in its place."""
    if section.boolean("no_op", False):
        return None, 0
    if section.boolean("replace_with_linear", False):
        return None, 1
    if section.values.get("num_sink_tokens") or section.values.get("sparsify"):
        raise section.refuse("sink tokens and sparsified attention are not counted yet")
    group = section.integer("n_heads_in_group")
    if heads % group:
        raise section.refuse(f"n_heads_in_group {group} does not divide num_attention_heads {heads}")
    window = section.optional_integer("window_length")
    attention = Attention(heads, heads // group, size, window)
    return replace(attention, query_bias=bias, key_bias=bias, value_bias=bias, output_bias=bias), 0


def _nas_feed_forward(section: Fields, hidden_size: int, bias: bool) -> tuple[FeedForward | None, int]:
    """A layer's feed-forward block, and how many linear layers stand in its place.

    Formula:  F = ffn_mult · 2·D / 3, rounded down to a whole number and up to a multiple of 256
    """
    if section.boolean("no_op", False):
        return None, 0
    if section.boolean("replace_with_linear", False):
        return None, 1
    factor = section.values.get("ffn_mult")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1000:
        raise section.refuse(f"ffn_mult is {shown(factor)}; a number above zero is needed")
    width = int(2 * factor * hidden_size / 3)
    return FeedForward(max(1, -(-width // _WIDTH_MULTIPLE)) * _WIDTH_MULTIPLE, bias=bias), 0


# --- Step ------------------------------------------------------------------------------------------------------------


def _step_sparse(fields: Fields, num_layers: int, default: int = 0) -> tuple[bool, ...]:
    """The layers of moe_layers_enum, a text such as "4,5,6", or all after first_k_dense_replace."""
    listed = fields.values.get("moe_layers_enum")
    fields.mark("moe_layers_enum", "first_k_dense_replace", "moe_layer_offset", "moe_every_n_layer")
    if listed is None:
        return moe.after_first_dense(default)(fields, num_layers)
    if isinstance(listed, str):
        pieces = [piece.strip() for piece in listed.split(",") if piece.strip()]
        if not all(piece.isdecimal() and len(piece) < 6 for piece in pieces):
            raise fields.refuse(f"moe_layers_enum is {shown(listed)}; layer numbers are needed")
        chosen = {int(piece) for piece in pieces}
    else:
        chosen = set(fields.integers("moe_layers_enum") or ())
    return tuple(index in chosen for index in range(num_layers))


def _step_experts(fields: Fields) -> MixtureOfExperts:
    num_experts = fields.integer("moe_num_experts", "n_routed_experts", "num_experts")
    chosen = fields.integer("moe_top_k", "num_experts_per_tok")
    if chosen > num_experts:
        raise fields.refuse(f"{chosen} experts a token of {num_experts} cannot be chosen")
    fields.mark("n_shared_experts", "num_experts", "num_experts_per_tok", "num_local_experts", "n_routed_experts")
    shared = fields.integer("share_expert_dim", "share_expert_dims", default=0, minimum=0)
    width = fields.integer("moe_intermediate_size")
    return MixtureOfExperts(num_experts, chosen, width, shared_intermediate_size=shared)


def _step3(fields: Fields) -> Design:
    """Step 3: queries through a low rank shared by all heads, one key and value head."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    heads = num_heads_of(fields)
    size = head_dim_of(fields, hidden_size, heads)
    kv_heads = checked_key_value_heads(
        fields, heads, fields.integer("num_attention_groups", "num_key_value_heads", default=1)
    )
    rank = fields.integer("share_q_dim")
    # the attention below counts queries, keys and values from the rank; the matrix down to it, its norm and what keys
    # and values take from the hidden size beyond that are counted beside it
    attention = Attention(heads, kv_heads, size, input_size=rank)
    extra = hidden_size * rank + rank + 2 * kv_heads * size * (hidden_size - rank)
    sparse = _step_sparse(fields, num_layers)
    mixture: Block = _step_experts(fields)
    dense: Block = None if all(sparse) else FeedForward(fields.integer("intermediate_size"))
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=repeated(
            lambda index: Layer((attention,), mixture if sparse[index] else dense, 2 * hidden_size, extra), num_layers
        ),
        num_key_value_heads=kv_heads,
        head_dim=size,
        final_norm_params=hidden_size,
    )


def _step3_flash(fields: Fields) -> Design:
    """Step 3.5 and 3.7 Flash: windows with heads of their own, a gate for each head, experts after three layers."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    for key in ("layer_types", "mlp_layer_types"):
        kinds = fields.strings(key)
        if kinds is not None and len(kinds) > num_layers:  # the rest are the prediction layers'
            fields.values = {**fields.values, key: list(kinds[:num_layers])}
    windows = windows_of(fields, num_layers, no_window)
    full, local = _step_attention(fields, hidden_size), _step_local(fields, hidden_size)
    sparse = _step_sparse(fields, num_layers, default=3)
    mixture: Block = _step_experts(fields)
    dense: Block = None if all(sparse) else FeedForward(fields.integer("intermediate_size"))

    def layer(index: int) -> Layer:
        window = windows[index]
        attention = full if window is None else replace(local, sliding_window=window)
        return Layer((attention,), mixture if sparse[index] else dense, 2 * hidden_size)

    fields.mark("num_nextn_predict_layers", "sink", "partial_rotary_factors", "sparse_attention_config")
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=repeated(layer, num_layers),
        num_key_value_heads=full.num_key_value_heads,
        head_dim=full.head_dim,
        final_norm_params=hidden_size,
    )


def _step_local(fields: Fields, hidden_size: int) -> Attention:
    """The attention of the windows: attention_other_setting, or num_sliding_attention_heads, or the same."""
    other = fields.section("attention_other_setting")
    if other is not None:
        return _step_attention(Fields({**fields.values, **other.values}, other.what), hidden_size)
    heads = fields.optional_integer("num_sliding_attention_heads")
    if heads is None:
        return _step_attention(fields, hidden_size)
    return _step_attention(Fields({**fields.values, "num_attention_heads": heads}, fields.what), hidden_size)


def _step_attention(section: Fields, hidden_size: int) -> Attention:
    heads, bias = num_heads_of(section), section.boolean("attention_bias", False)
    gated = section.boolean("use_head_wise_attn_gate", True)
    kv_heads = section.integer("num_attention_groups", "num_key_value_heads", default=heads)
    size = head_dim_of(section, hidden_size, heads)
    return Attention(
        heads,
        checked_key_value_heads(section, heads, kv_heads),
        size,
        query_bias=bias,
        key_bias=bias,
        value_bias=bias,
        output_bias=bias,
        query_key_norm=QueryKeyNorm.PER_HEAD,
        output_gate=OutputGate.PER_HEAD if gated else OutputGate.NONE,
    )
