"""Decoders with one grouped-query attention and one feed-forward block, dense or of experts, in every layer.

In:   Fields of a config whose model_type is in plain_rows.ROWS
Out:  Design
Leaves out: layers that keep anything but keys and values
Read next by: config.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from inference_bench.facts.families import windows as rules
from inference_bench.facts.families.base import (
    Block,
    Design,
    head_dim_of,
    hidden_size_of,
    key_value_heads_of,
    num_heads_of,
    num_layers_of,
    prediction_layers,
    repeated,
    unknown_kind,
)
from inference_bench.facts.families.plain_rows import ROWS, Plain
from inference_bench.facts.fields import Fields, shown
from inference_bench.facts.models import Attention, FeedForward, Layer, Part, QueryKeyNorm

_WIDTH_KEYS: Final = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")


def build(model_type: str, fields: Fields, _top: Fields) -> Design:
    """The design of a plain decoder."""
    row = ROWS[model_type]
    if model_type == "gpt2":
        row = _gpt2(row, fields)
    if model_type == "stablelm" and fields.boolean("use_parallel_residual", False):
        row = row._replace(num_norms=1)  # the block has no second norm then
    return build_row(row, fields)


def _gpt2(row: Plain, fields: Fields) -> Plain:
    """GPT-2, and SantaCoder as first released: GPT-2 with one key and value head for all queries."""
    kind = fields.string("attention_head_type")
    if kind not in (None, "multihead", "multiquery"):
        raise fields.refuse(f"attention_head_type is {shown(kind)}; counted: multihead, multiquery")
    return row._replace(key_value_heads=1) if kind == "multiquery" else row


def build_row(row: Plain, fields: Fields, attention: Attention | None = None) -> Design:
    """The design one row describes; a family that reads its heads in its own way gives the attention."""
    fields.mark(*row.understood)
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    attention = attention or _attention(row, fields, hidden_size)
    blocks = _blocks(row, fields, hidden_size, num_layers)
    bounds = _bounds(row, fields, num_layers)
    norm = hidden_size * row.norm_values
    layers = repeated(
        lambda index: Layer(
            (bounded(attention, bounds[index]),), blocks[index], row.num_norms * norm, row.other_params
        ),
        num_layers,
    )
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size", "padded_vocab_size"),
        layers=layers,
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        final_norm_params=norm,
        tied_by_default=row.tied,
        tied=True if row.always_tied else None,
        parts=_parts(row, fields, hidden_size),
        prediction_layers=prediction_layers(fields, hidden_size, layers[-1]),
        head_bias=row.head_bias or (row.head_bias_field is not None and fields.boolean(row.head_bias_field, False)),
    )


Bound = tuple[int | None, int | None]  # window, chunk


def _bounds(row: Plain, fields: Fields, num_layers: int) -> tuple[Bound, ...]:
    """Window and chunk of each layer; chunked attention is Llama 4's."""
    if "attention_chunk_size" not in fields.values:
        return tuple((window, None) for window in rules.windows_of(fields, num_layers, row.windows))
    chunk, kinds = fields.optional_integer("attention_chunk_size"), fields.per_layer("layer_types", num_layers)
    if kinds is not None:
        for kind in kinds:
            if kind not in ("full_attention", "chunked_attention"):
                raise unknown_kind(fields, "layer_types", kind, ("full_attention", "chunked_attention"))
        return tuple((None, chunk if kind == "chunked_attention" else None) for kind in kinds)
    with_rope = fields.integers("no_rope_layers")
    interval = fields.integer("no_rope_layer_interval", default=4)
    if not with_rope:
        with_rope = tuple(int((index + 1) % interval != 0) for index in range(num_layers))
    if len(with_rope) != num_layers:
        raise fields.refuse(f"no_rope_layers has {len(with_rope)} entries for num_hidden_layers {num_layers}")
    return tuple((None, chunk if flag else None) for flag in with_rope)


def bounded(attention: Attention, bound: Bound) -> Attention:
    """The attention with its window or chunk."""
    window, chunk = bound
    if window is None and chunk is None:
        return attention
    return replace(attention, sliding_window=window, attention_chunk=chunk)


def _attention(row: Plain, fields: Fields, hidden_size: int) -> Attention:
    num_heads = num_heads_of(fields)
    biased = row.biased
    if row.bias_field is not None and biased:
        biased = biased if fields.boolean(row.bias_field, row.bias_default) else ""
    norm = row.query_key_norm
    if row.query_key_norm_field and not fields.boolean(row.query_key_norm_field, row.query_key_norm_default):
        norm = QueryKeyNorm.NONE
    default_kv = row.key_value_heads if row.key_value_heads and num_heads % row.key_value_heads == 0 else None
    return Attention(
        num_attention_heads=num_heads,
        num_key_value_heads=key_value_heads_of(fields, num_heads, default_kv),
        head_dim=head_dim_of(fields, hidden_size, num_heads, row.head_dim),
        query_bias="q" in biased,
        key_bias="k" in biased,
        value_bias="v" in biased,
        output_bias="o" in biased
        or (row.output_bias_field is not None and fields.boolean(row.output_bias_field, False)),
        query_key_norm=norm,
        sinks=row.sinks,
        output_gate=row.output_gate,
    )


def _blocks(row: Plain, fields: Fields, hidden_size: int, num_layers: int) -> tuple[Block, ...]:
    if row.experts is None:
        return (_dense(row, fields, hidden_size, _WIDTH_KEYS),) * num_layers
    sparse = row.sparse(fields, num_layers)
    mixture: Block = row.experts(fields)
    keys = (row.dense_width,) if row.dense_width else _WIDTH_KEYS
    dense: Block = None if all(sparse) else _dense(row, fields, hidden_size, keys)
    fields.mark(*keys)
    return tuple(mixture if is_sparse else dense for is_sparse in sparse)


def _dense(row: Plain, fields: Fields, hidden_size: int, keys: tuple[str, ...]) -> FeedForward:
    default = None if row.width_in_hidden is None else row.width_in_hidden * hidden_size
    bias = fields.boolean(row.mlp_bias_field, row.mlp_bias) if row.mlp_bias_field else row.mlp_bias
    return FeedForward(fields.integer(*keys, default=default), row.gated, bias)


def _parts(row: Plain, fields: Fields, hidden_size: int) -> tuple[Part, ...]:
    parts = []
    if row.positions:
        rows = fields.integer(row.positions, "max_position_embeddings") + row.position_offset
        parts.append(Part("position embeddings", rows * hidden_size, row_values=hidden_size))
    if row.embedding_norm:
        parts.append(Part("embedding norm", hidden_size * row.norm_values))
    return tuple(parts)
