"""Gemma 3n and Gemma 4: layers that read another layer's cache, wider heads in full layers, per-layer inputs.

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
    hidden_size_of,
    key_value_heads_of,
    num_heads_of,
    num_layers_of,
    repeated,
)
from inference_bench.facts.families.windows import every_nth_is_full, windows_of
from inference_bench.facts.fields import Fields
from inference_bench.facts.models import Attention, FeedForward, Layer, MixtureOfExperts, Part, QueryKeyNorm


def build(model_type: str, fields: Fields, _top: Fields) -> Design:
    """The design of Gemma 3n or Gemma 4."""
    return _gemma3n(fields) if model_type == "gemma3n_text" else _gemma4(fields)


def owners(windows: tuple[int | None, ...], num_shared: int) -> tuple[int | None, ...]:
    """For each layer the one whose keys and values it reads: the last of its kind before the shared layers begin."""
    first_shared = len(windows) - num_shared
    last_of_kind = {window is None: index for index, window in enumerate(windows[:first_shared])}
    return tuple(
        None if index < first_shared else last_of_kind.get(window is None) for index, window in enumerate(windows)
    )


def _shared_from(fields: Fields, windows: tuple[int | None, ...]) -> tuple[int | None, ...]:
    num_layers = len(windows)
    num_shared = fields.integer("num_kv_shared_layers", default=0, minimum=0)
    if num_shared >= num_layers:
        raise fields.refuse(f"num_kv_shared_layers {num_shared} leaves no layer of {num_layers} that keeps a cache")
    shared = owners(windows, num_shared)
    if None in shared[num_layers - num_shared :]:
        raise fields.refuse("a layer that shares its cache has no layer of its kind to share it with")
    return shared


def _attention(fields: Fields) -> Attention:
    heads, bias = num_heads_of(fields), fields.boolean("attention_bias", False)
    return Attention(
        heads,
        key_value_heads_of(fields, heads),
        fields.integer("head_dim", default=256),
        query_bias=bias,
        key_bias=bias,
        value_bias=bias,
        output_bias=bias,
        query_key_norm=QueryKeyNorm.PER_HEAD,
    )


def _per_layer_inputs(fields: Fields, hidden_size: int, num_layers: int, size: int) -> tuple[Part, ...]:
    """The second embedding table, of which every layer reads its own slice, and its projection."""
    if not size:
        fields.mark("vocab_size_per_layer_input")
        return ()
    rows, width = fields.integer("vocab_size_per_layer_input", default=262144), num_layers * size
    return (
        Part("per-layer embeddings", rows * width, lookup=True, row_values=width),
        Part("per-layer input projection", width * hidden_size + size),
    )


def _widths(fields: Fields, num_layers: int) -> tuple[int, ...]:
    """One feed-forward width, or one for each layer."""
    if isinstance(fields.values.get("intermediate_size"), list):
        widths = fields.integers("intermediate_size", minimum=1) or ()
        if len(widths) != num_layers:
            raise fields.refuse(f"intermediate_size has {len(widths)} entries for num_hidden_layers {num_layers}")
        return widths
    return (fields.integer("intermediate_size"),) * num_layers


def _gemma3n(fields: Fields) -> Design:
    """Gemma 3n: four parallel residual streams, a low-rank residual block, per-layer inputs."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    windows = windows_of(fields, num_layers, every_nth_is_full(512, 5))
    shared, widths, attention = (
        _shared_from(fields, windows),
        _widths(fields, num_layers),
        _attention(fields),
    )
    streams, rank = fields.integer("altup_num_inputs", default=4), fields.integer("laurel_rank", default=64)
    size = fields.integer("hidden_size_per_layer_input", default=256, minimum=0)
    predict = hidden_size * (1 + streams + 1) + streams**2 + streams**3
    others = predict + 2 * rank * hidden_size + 2 * size * hidden_size

    def layer(index: int) -> Layer:
        owner = shared[index]
        own = replace(attention, sliding_window=windows[index], shared_kv_from=owner, projects_key_value=owner is None)
        return Layer((own,), FeedForward(widths[index]), 6 * hidden_size, others)

    streams_part = Part("residual stream projections", 2 * (streams - 1) * hidden_size * hidden_size)
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=repeated(layer, num_layers),
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        final_norm_params=hidden_size,
        tied_by_default=True,
        parts=(*_per_layer_inputs(fields, hidden_size, num_layers, size), streams_part),
    )


def _gemma4(fields: Fields) -> Design:
    """Gemma 4: full layers with wider heads, optionally K = V, shared caches, and experts beside a dense block."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    windows = windows_of(fields, num_layers, every_nth_is_full(512, 6))
    if windows[-1] is not None:
        windows = (*windows[:-1], None)  # the class forces the last layer to attend fully
    shared, local = _shared_from(fields, windows), _attention(fields)
    key_is_value = fields.boolean("attention_k_eq_v", False)
    full_heads = fields.optional_integer("num_global_key_value_heads") if key_is_value else None
    fields.mark("num_global_key_value_heads", "global_head_dim")
    full = replace(
        local,
        num_key_value_heads=full_heads or local.num_key_value_heads,
        head_dim=fields.integer("global_head_dim", default=512),
        value_projection=not key_is_value,
    )
    size = fields.integer("hidden_size_per_layer_input", default=256, minimum=0)
    double = fields.boolean("use_double_wide_mlp", False)
    width, with_experts = fields.integer("intermediate_size"), fields.boolean("enable_moe_block", False)
    fields.mark("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size")
    norms = 4 + (3 if with_experts else 0) + (1 if size else 0)

    def layer(index: int) -> Layer:
        owner, window = shared[index], windows[index]
        attention = replace(full if window is None else local, sliding_window=window)
        attention = replace(attention, shared_kv_from=owner, projects_key_value=owner is None)
        dense = FeedForward(2 * width if double and owner is not None else width)
        block: Block = _experts(fields, hidden_size, dense) if with_experts else dense
        return Layer((attention,), block, norms * hidden_size, 2 * size * hidden_size)

    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=repeated(layer, num_layers),
        num_key_value_heads=local.num_key_value_heads,
        head_dim=local.head_dim,
        final_norm_params=hidden_size,
        tied_by_default=True,
        parts=_per_layer_inputs(fields, hidden_size, num_layers, size),
    )


def _experts(fields: Fields, hidden_size: int, dense: FeedForward) -> MixtureOfExperts:
    """Experts beside the dense block; the router has a scale for its input and one for each expert."""
    num_experts = fields.integer("num_experts")
    return MixtureOfExperts(
        num_experts,
        moe.chosen(fields, num_experts),
        fields.integer("moe_intermediate_size", "expert_intermediate_size"),
        dense=dense,
        router_params=num_experts * hidden_size + hidden_size + num_experts,
    )
