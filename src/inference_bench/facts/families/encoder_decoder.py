"""Decoders with cross-attention: Whisper, T5, and Llama 3.2 Vision.

In:   Fields of the config, or of its text part
Out:  Design, with the encoder's layers where the model has an encoder of its own
Read next by: config.py.
"""

from __future__ import annotations

from dataclasses import replace

from inference_bench.facts.families.base import (
    Design,
    divided,
    few,
    hidden_size_of,
    num_layers_of,
    plain_attention,
    repeated,
)
from inference_bench.facts.fields import Fields
from inference_bench.facts.mixers import CrossAttention
from inference_bench.facts.models import Attention, FeedForward, Layer, Part, QueryKeyNorm


def build(model_type: str, fields: Fields, top: Fields) -> Design:
    """The design of a decoder that also attends an encoder's output."""
    if model_type == "whisper":
        return _whisper(fields)
    return _t5(fields) if model_type == "t5" else _mllama(fields, top)


def _whisper(fields: Fields) -> Design:
    """Whisper: layer norms with bias, biases on all projections but the keys, learned positions on both sides."""
    size = fields.integer("d_model")
    fields.mark("is_encoder_decoder", "num_hidden_layers")
    mel, sources = fields.integer("num_mel_bins", default=80), fields.integer("max_source_positions", default=1500)
    targets = fields.integer("max_target_positions", default=448)
    decoder = _whisper_attention(fields, "decoder_attention_heads", size)
    cross = CrossAttention(decoder, size, sources)
    norm, num_layers = 2 * size, fields.integer("decoder_layers")
    block = FeedForward(fields.integer("decoder_ffn_dim"), gated=False, bias=True)
    encoder = Layer(
        (_whisper_attention(fields, "encoder_attention_heads", size),),
        FeedForward(fields.integer("encoder_ffn_dim"), gated=False, bias=True),
        2 * norm,
    )
    front = size * mel * 3 + size + size * size * 3 + size
    return Design(
        hidden_size=size,
        vocab_size=fields.integer("vocab_size"),
        layers=(Layer((decoder, cross), block, 3 * norm),) * few(fields, "decoder_layers", num_layers),
        num_key_value_heads=decoder.num_key_value_heads,
        head_dim=decoder.head_dim,
        final_norm_params=norm,
        tied_by_default=True,
        parts=(
            Part("audio front end", front + sources * size + norm, tower=True),
            Part("position embeddings", targets * size, row_values=size),
        ),
        encoder_layers=(encoder,) * few(fields, "encoder_layers", fields.integer("encoder_layers")),
        max_positions=targets,
    )


def _whisper_attention(fields: Fields, heads_key: str, size: int) -> Attention:
    heads = fields.integer(heads_key)
    return Attention(
        heads, heads, divided(fields, "d_model", size, heads), query_bias=True, value_bias=True, output_bias=True
    )


def _t5(fields: Fields) -> Design:
    """T5: no biases, relative positions in the first layer of each side, gated or plain feed-forward."""
    size, heads = fields.integer("d_model"), fields.integer("num_heads")
    num_layers = num_layers_of(fields)
    fields.mark("is_encoder_decoder")
    num_decoder = few(fields, "num_decoder_layers", fields.integer("num_decoder_layers", default=num_layers))
    attention = Attention(heads, heads, fields.integer("d_kv"))
    gated = (fields.string("feed_forward_proj") or "relu").startswith("gated")
    block = FeedForward(fields.integer("d_ff"), gated=gated)
    buckets = fields.integer("relative_attention_num_buckets", default=32) * heads
    return Design(
        hidden_size=size,
        vocab_size=fields.integer("vocab_size"),
        layers=(Layer((attention, CrossAttention(attention, size, None)), block, 3 * size),) * num_decoder,
        num_key_value_heads=heads,
        head_dim=attention.head_dim,
        final_norm_params=size,
        tied=True,
        parts=(Part("relative positions", 2 * buckets), Part("encoder norm", size)),
        encoder_layers=(Layer((attention,), block, 2 * size),) * num_layers,
        assumptions=[
            "keys and values of the encoder's output are not in the cache figures: the config does not bound its length"
        ],
    )


def _mllama(fields: Fields, top: Fields) -> Design:
    """Llama 3.2 Vision: some layers attend the image's tokens instead of the text's."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    crossing = set(fields.integers("cross_attention_layers") or ())
    attention = plain_attention(fields, hidden_size)
    normed = replace(attention, query_key_norm=QueryKeyNorm.PER_HEAD)
    cross = CrossAttention(normed, hidden_size, _image_tokens(top))
    block = FeedForward(fields.integer("intermediate_size"))

    def layer(index: int) -> Layer:
        if index in crossing:
            return Layer((cross,), block, 2 * hidden_size, other_params=2)
        return Layer((attention,), block, 2 * hidden_size)

    vocab_size = fields.integer("vocab_size")
    return Design(
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        layers=repeated(layer, num_layers),
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        final_norm_params=hidden_size,
        parts=(Part("embedding rows of the image tokens", 8 * hidden_size, lookup=True, row_values=hidden_size),),
        assumptions=[
            "cross-attention layers are counted for one image of the most tiles; text layers keep the text alone"
        ],
    )


def _image_tokens(top: Fields) -> int | None:
    """Tokens of one image of the most tiles: each tile's patches and one class token."""
    vision = top.section("vision_config")
    if vision is None:
        return None
    side = vision.integer("image_size", default=448) // vision.integer("patch_size", default=14)
    return vision.integer("max_num_tiles", default=4) * (side * side + 1)
