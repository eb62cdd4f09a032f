"""A Hugging Face config.json as a ModelSpec: which fields of which architecture mean what.

In:   the parsed object of a config.json
Out:  ModelSpec with one Layer per decoder block; what the file does not say and a default fills is named in
      `assumptions`
Leaves out: designs that are not counted yet; they are refused by name, never guessed
Read next by: accounting.

One row of `_FAMILIES` says what an architecture adds to the plain pre-norm decoder. The rules are those of the
Hugging Face Transformers 5.24 modelling and configuration files of each architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from inference_bench.errors import ModelConfigError, UnknownNameError
from inference_bench.facts.fields import Fields, shown
from inference_bench.facts.formats import NumberFormat, number_format
from inference_bench.facts.models import Attention, FeedForward, Layer, LayerType, ModelSpec
from inference_bench.facts.source import Source

MAX_LAYERS: Final = 4096

WindowRule = Callable[[Fields, int], tuple[int | None, ...]]


def _no_window(_fields: Fields, num_layers: int) -> tuple[int | None, ...]:
    return (None,) * num_layers


def _every_layer(fields: Fields, num_layers: int) -> tuple[int | None, ...]:
    return (fields.optional_integer("sliding_window"),) * num_layers


def _above_max_window_layers(fields: Fields, num_layers: int) -> tuple[int | None, ...]:
    window = fields.optional_integer("sliding_window") if fields.boolean("use_sliding_window", False) else None
    first = fields.integer("max_window_layers", default=num_layers, minimum=0)
    return tuple(window if index >= first else None for index in range(num_layers))


def _alternating(fields: Fields, num_layers: int) -> tuple[int | None, ...]:
    window = fields.integer("sliding_window", default=4096)
    return tuple(None if index % 2 else window for index in range(num_layers))


def _every_nth_is_full(fields: Fields, num_layers: int) -> tuple[int | None, ...]:
    window = fields.integer("sliding_window", default=4096)
    period = fields.integer("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return tuple(None if (index + 1) % period == 0 else window for index in range(num_layers))


@dataclass(frozen=True, slots=True)
class _Family:
    """What one architecture adds to the plain decoder, and its class defaults."""

    windows: WindowRule = _no_window
    always_query_key_value_bias: bool = False
    reads_attention_bias: bool = True  # the field switches biases on q, k, v and o
    reads_mlp_bias: bool = False
    query_key_norm: bool = False
    num_norms: int = 2
    tied_by_default: bool = False
    default_head_dim: int | None = None


_FAMILIES: Final[Mapping[str, _Family]] = {
    "llama": _Family(reads_mlp_bias=True),
    "mistral": _Family(windows=_every_layer, reads_attention_bias=False),
    "qwen2": _Family(windows=_above_max_window_layers, always_query_key_value_bias=True, reads_attention_bias=False),
    "qwen3": _Family(windows=_above_max_window_layers, query_key_norm=True, default_head_dim=128),
    "phi3": _Family(windows=_every_layer, reads_attention_bias=False),
    "gemma": _Family(tied_by_default=True, default_head_dim=256),
    "gemma2": _Family(windows=_alternating, num_norms=4, tied_by_default=True, default_head_dim=256),
    "gemma3_text": _Family(
        windows=_every_nth_is_full, query_key_norm=True, num_norms=4, tied_by_default=True, default_head_dim=256
    ),
}
_PLAIN: Final = "llama"
_TEXT_SECTION_OF: Final = {"gemma3": "gemma3_text"}

# Fields whose presence means a design this table does not count; a plain decoder never has them.
_OTHER_DESIGNS: Final = {
    "kv_lora_rank": "multi-head latent attention",
    "num_experts": "mixture of experts",
    "num_local_experts": "mixture of experts",
    "n_routed_experts": "mixture of experts",
    "moe_intermediate_size": "mixture of experts",
    "ssm_state_size": "state-space layers",
    "state_size": "state-space layers",
    "mamba_d_state": "state-space layers",
    "linear_num_value_heads": "linear attention",
    "linear_conv_kernel_dim": "linear attention",
    "attention_chunk_size": "chunked attention",
    "num_kv_shared_layers": "cross-layer cache sharing",
    "is_encoder_decoder": "an encoder-decoder",
}


def model_from_config(config: Mapping[str, Any], name: str, source: Source) -> ModelSpec:
    """The model a config.json describes.

    Raises:  ModelConfigError naming the field that is missing or impossible, or the design that is not counted
    """
    fields = Fields(config, f"the config of {name}")
    model_type, text, assumptions = _text_part(fields)
    family = _FAMILIES[model_type]
    num_layers = text.integer("num_hidden_layers", "n_layer", "num_layers")
    if num_layers > MAX_LAYERS:
        raise ModelConfigError(f"{text.what}: num_hidden_layers is {num_layers}; at most {MAX_LAYERS} can be counted")
    hidden_size = text.integer("hidden_size", "n_embd")
    attention = _attention(text, family, hidden_size)
    feed_forward = FeedForward(
        text.integer("intermediate_size", "n_inner"), bias=family.reads_mlp_bias and text.boolean("mlp_bias", False)
    )
    return ModelSpec(
        name=name,
        model_type=model_type,
        hidden_size=hidden_size,
        vocab_size=text.integer("vocab_size"),
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        layers=tuple(
            Layer(_with_window(attention, window), feed_forward, family.num_norms)
            for window in _windows(text, family, num_layers)
        ),
        tie_word_embeddings=_tied(fields, text, family, assumptions),
        max_position_embeddings=text.optional_integer("max_position_embeddings", "n_positions"),
        norm_bias=False,
        source=source,
        stored_format=_stored_format(fields, text),
        assumptions=tuple(assumptions),
    )


def _text_part(fields: Fields) -> tuple[str, Fields, list[str]]:
    """The decoder's own fields, which multimodal configs nest under text_config."""
    assumptions: list[str] = []
    model_type = fields.string("model_type")
    text = fields.section("text_config") or fields
    if text is not fields:
        model_type = text.string("model_type") or _TEXT_SECTION_OF.get(model_type or "", model_type)
        assumptions.append("only the text decoder is counted; vision and audio towers are not")
    model_type = _TEXT_SECTION_OF.get(model_type or "", model_type)
    _refuse_other_designs(text)
    if model_type is None:
        model_type = _PLAIN
        assumptions.append(
            "the config names no model_type: counted as a plain pre-norm decoder with a gated feed-forward block, "
            "two norms a layer and biases only where a field asks for them"
        )
    if model_type not in _FAMILIES:
        raise ModelConfigError(
            f"{fields.what}: model_type {shown(model_type)} is not counted yet; counted: {', '.join(_FAMILIES)}"
        )
    return model_type, text, assumptions


def _refuse_other_designs(fields: Fields) -> None:
    for key, design in _OTHER_DESIGNS.items():
        value = fields.values.get(key)
        if value is not None and value is not False and value != 0:
            raise ModelConfigError(f"{fields.what}: {key} means {design}, which is not counted yet")


def _attention(fields: Fields, family: _Family, hidden_size: int) -> Attention:
    num_heads = fields.integer("num_attention_heads", "n_head")
    num_kv_heads = fields.integer("num_key_value_heads", default=num_heads)
    if num_heads % num_kv_heads:
        raise ModelConfigError(
            f"{fields.what}: num_attention_heads {num_heads} is not a multiple of num_key_value_heads {num_kv_heads}"
        )
    head_dim = fields.optional_integer("head_dim") or family.default_head_dim
    if head_dim is None:
        if hidden_size % num_heads:
            raise ModelConfigError(
                f"{fields.what} has no head_dim, and hidden_size {hidden_size} is not a multiple of "
                f"num_attention_heads {num_heads}"
            )
        head_dim = hidden_size // num_heads
    bias = family.reads_attention_bias and fields.boolean("attention_bias", False)
    return Attention(
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        head_dim=head_dim,
        query_key_value_bias=bias or family.always_query_key_value_bias,
        output_bias=bias,
        query_key_norm=family.query_key_norm,
    )


def _with_window(attention: Attention, window: int | None) -> Attention:
    from dataclasses import replace

    return attention if window is None else replace(attention, sliding_window=window)


def _windows(fields: Fields, family: _Family, num_layers: int) -> tuple[int | None, ...]:
    """The window of each layer: `layer_types` where the config has it, the architecture's own rule otherwise."""
    layer_types = fields.strings("layer_types")
    if layer_types is None:
        return family.windows(fields, num_layers)
    if len(layer_types) != num_layers:
        raise ModelConfigError(
            f"{fields.what}: layer_types has {len(layer_types)} entries for num_hidden_layers {num_layers}"
        )
    for layer_type in layer_types:
        if layer_type not in set(LayerType):
            raise ModelConfigError(
                f"{fields.what}: layer type {shown(layer_type)} is not counted yet; counted: {', '.join(LayerType)}"
            )
    if LayerType.SLIDING_ATTENTION not in layer_types:
        return (None,) * num_layers
    window = fields.integer("sliding_window")
    return tuple(window if layer_type == LayerType.SLIDING_ATTENTION else None for layer_type in layer_types)


def _tied(fields: Fields, text: Fields, family: _Family, assumptions: list[str]) -> bool:
    for part in (text, fields):
        if "tie_word_embeddings" in part:
            return part.boolean("tie_word_embeddings", family.tied_by_default)
    word = "tied" if family.tied_by_default else "not tied"
    assumptions.append(f"the config does not say whether embeddings are tied: taken as {word}, the class default")
    return family.tied_by_default


def _stored_format(fields: Fields, text: Fields) -> NumberFormat | None:
    dtype = text.string("dtype") or text.string("torch_dtype") or fields.string("dtype") or fields.string("torch_dtype")
    try:
        return number_format(dtype.removeprefix("torch.")) if dtype else None
    except UnknownNameError:
        return None
