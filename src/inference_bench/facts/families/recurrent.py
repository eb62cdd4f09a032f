"""Recurrent models that are neither attention nor state-space layers: RecurrentGemma, RWKV-4 and RWKV-5.

In:   Fields of the config
Out:  Design
Read next by: config.py.
"""

from __future__ import annotations

from typing import Final

from inference_bench.facts.families.base import (
    Design,
    divided,
    hidden_size_of,
    key_value_heads_of,
    num_heads_of,
    num_layers_of,
    repeated,
    unknown_kind,
)
from inference_bench.facts.fields import Fields
from inference_bench.facts.mixers import Recurrence
from inference_bench.facts.models import Attention, FeedForward, Layer, Mixer, Part

_GRIFFIN_KINDS: Final = ("recurrent", "attention")


def build(model_type: str, fields: Fields, _top: Fields) -> Design:
    """The design of a recurrent model."""
    if model_type == "recurrent_gemma":
        return _recurrent_gemma(fields)
    return _rwkv(fields, with_matrix_state=model_type == "rwkv5")


def _recurrent_gemma(fields: Fields) -> Design:
    """RecurrentGemma: gated linear recurrences with a short convolution, and every third layer a window."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    width = fields.integer("lru_width", default=hidden_size)
    heads = num_heads_of(fields)
    kernel = fields.integer("conv1d_width", default=4)
    fields.mark("head_dim", "_block_types", "layers_block_type")
    kinds = fields.strings("block_types") or fields.strings("_block_types") or ("recurrent", "recurrent", "attention")
    for kind in kinds:
        if kind not in _GRIFFIN_KINDS:
            raise unknown_kind(fields, "block_types", kind, _GRIFFIN_KINDS)
    bias = fields.boolean("attention_bias", False)
    attention = Attention(
        heads,
        key_value_heads_of(fields, heads),
        divided(fields, "hidden_size", hidden_size, heads),
        fields.integer("attention_window_size", default=2048),
        query_bias=bias,
        key_bias=bias,
        value_bias=bias,
        output_bias=True,
    )
    block_width = divided(fields, "lru_width", width, heads)
    recurrence = Recurrence(
        conv_channels=width,
        conv_columns=kernel - 1,
        recurrent_elements=width,
        matrix_params=3 * hidden_size * width + 2 * heads * block_width * block_width,
        vector_params=2 * width + hidden_size + width * (kernel + 1) + width + 2 * width,
        state_flops=4,
    )
    inner = fields.integer("intermediate_size")
    block = FeedForward(inner // 2, bias=True)

    def layer(index: int) -> Layer:
        mixer: Mixer = recurrence if kinds[index % len(kinds)] == "recurrent" else attention
        return Layer((mixer,), block, 2 * hidden_size)

    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=repeated(layer, num_layers),
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        final_norm_params=hidden_size,
        tied_by_default=True,
    )


def _rwkv(fields: Fields, with_matrix_state: bool) -> Design:
    """RWKV: a time-mixing and a channel-mixing block, each of which remembers the token before.

    Where:  RWKV-4 keeps three numbers a channel (numerator, denominator, maximum), RWKV-5 one matrix a head
    """
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    width = fields.integer("attention_hidden_size", default=hidden_size)
    fields.mark("attention_hidden_size", "num_attention_heads", "num_key_value_heads", "head_size_divisor")
    if with_matrix_state:
        head_size = fields.integer("head_size", default=64)
        heads = divided(fields, "attention_hidden_size", width, head_size)
        inner = fields.integer("intermediate_size", default=int(hidden_size * 3.5) // 32 * 32)
        mixer = Recurrence(
            conv_channels=2 * hidden_size,
            conv_columns=1,
            recurrent_elements=heads * head_size * head_size,
            matrix_params=5 * hidden_size * width,
            vector_params=4 * hidden_size + 2 * width + 2 * width,
            state_flops=4,
        )
    else:
        inner = fields.integer("intermediate_size", default=4 * hidden_size)
        mixer = Recurrence(
            conv_channels=2 * hidden_size,
            conv_columns=1,
            recurrent_elements=3 * width,
            matrix_params=4 * hidden_size * width,
            vector_params=3 * hidden_size + 2 * width,
            state_flops=4,
        )
    # channel mixing: key and value of the feed-forward width, a receptance of the hidden size, two mixing vectors
    other = hidden_size * hidden_size + 2 * hidden_size
    layer = Layer((mixer,), FeedForward(inner, gated=False), 4 * hidden_size, other)
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=(layer,) * num_layers,
        num_key_value_heads=None,
        head_dim=None,
        final_norm_params=2 * hidden_size,
        parts=(Part("norm before the first layer", 2 * hidden_size),),
        max_positions=fields.optional_integer("context_length"),
    )
