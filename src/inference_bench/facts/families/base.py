"""What every family module shares: the design it returns, and readers of the fields most configs have.

In:   Fields of the text part of a config
Out:  Design, which config.py turns into a ModelSpec
Read next by: the other modules of this package, config.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from inference_bench.errors import ModelConfigError
from inference_bench.facts.fields import Fields, shown
from inference_bench.facts.models import Attention, FeedForward, Layer, MixtureOfExperts, Part

MAX_LAYERS: Final = 4096
Block = FeedForward | MixtureOfExperts | None


@dataclass(slots=True)
class Design:
    """What a family module reads from a config.

    Where:  tied is what the architecture fixes, whatever the field says (None: the field decides, tied_by_default where
            it is absent); num_key_value_heads and head_dim are what the usual formula multiplies
    """

    hidden_size: int
    vocab_size: int
    layers: Sequence[Layer]
    num_key_value_heads: int | None
    head_dim: int | None
    final_norm_params: int
    tied_by_default: bool = False
    tied: bool | None = None
    parts: tuple[Part, ...] = ()
    encoder_layers: tuple[Layer, ...] = ()
    prediction_layers: tuple[Layer, ...] = ()
    head_bias: bool = False
    embedding_size: int | None = None
    state_bits: int | None = None
    max_positions: int | None = None
    assumptions: list[str] = field(default_factory=list)


def num_layers_of(fields: Fields) -> int:
    """L, within what can be counted."""
    num_layers = fields.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if num_layers > MAX_LAYERS:
        raise ModelConfigError(f"{fields.what}: num_hidden_layers is {num_layers}; at most {MAX_LAYERS} can be counted")
    return num_layers


def few(fields: Fields, key: str, count: int) -> int:
    """A number of layers under another name, within what can be counted."""
    if count > MAX_LAYERS:
        raise ModelConfigError(f"{fields.what}: {key} is {count}; at most {MAX_LAYERS} can be counted")
    return count


def hidden_size_of(fields: Fields) -> int:
    """D: the width of the residual stream."""
    return fields.integer("hidden_size", "n_embd", "d_model", "n_embed")


def num_heads_of(fields: Fields) -> int:
    """N: query heads."""
    return fields.integer("num_attention_heads", "n_head", "n_heads", "num_heads")


def head_dim_of(fields: Fields, hidden_size: int, num_heads: int, default: int | None = None) -> int:
    """H: the config's own head_dim, the class default, or hidden_size / heads where that is whole."""
    head_dim = fields.optional_integer("head_dim", "attention_head_dim") or default
    return head_dim if head_dim is not None else divided(fields, "hidden_size", hidden_size, num_heads)


def divided(fields: Fields, name: str, size: int, num_heads: int) -> int:
    """A width shared equally by the heads.

    Raises:  ModelConfigError when it is not a whole multiple
    """
    if size % num_heads:
        raise ModelConfigError(
            f"{fields.what} has no head_dim, and {name} {size} is not a multiple of num_attention_heads {num_heads}"
        )
    return size // num_heads


def key_value_heads_of(fields: Fields, num_heads: int, default: int | None = None) -> int:
    """K: the config's own, or as many as queries; must divide the query heads."""
    kv_heads = fields.integer("num_key_value_heads", "n_head_kv", "num_kv_heads", default=default or num_heads)
    return checked_key_value_heads(fields, num_heads, kv_heads)


def checked_key_value_heads(fields: Fields, num_heads: int, kv_heads: int) -> int:
    """K, after the check that the query heads are a multiple of it."""
    if num_heads % kv_heads:
        raise ModelConfigError(
            f"{fields.what}: num_attention_heads {num_heads} is not a multiple of num_key_value_heads {kv_heads}"
        )
    return kv_heads


def plain_attention(fields: Fields, hidden_size: int, head_dim: int | None = None) -> Attention:
    """Attention as most configs describe it, without biases or norms."""
    num_heads = num_heads_of(fields)
    return Attention(
        num_attention_heads=num_heads,
        num_key_value_heads=key_value_heads_of(fields, num_heads),
        head_dim=head_dim_of(fields, hidden_size, num_heads, head_dim),
    )


def repeated(make: Callable[[int], Layer], num_layers: int) -> tuple[Layer, ...]:
    """One layer for each index; equal ones are one object, so that counting them is cheap."""
    known: dict[Layer, Layer] = {}
    layers = []
    for index in range(num_layers):
        layer = make(index)
        layers.append(known.setdefault(layer, layer))
    return tuple(layers)


def unknown_kind(fields: Fields, key: str, kind: object, allowed: Sequence[str]) -> ModelConfigError:
    """The refusal of a layer kind that is not counted."""
    what = "layer type" if "layer" in key else f"{key} entry"
    return ModelConfigError(
        f"{fields.what}: {what} {shown(kind)} in {key} is not counted yet; counted: {', '.join(allowed)}"
    )


def prediction_layers(fields: Fields, hidden_size: int, last: Layer) -> tuple[Layer, ...]:
    """Layers that predict further tokens: a decoder layer each, a projection of two widths to one, three norms."""
    count = fields.integer("num_nextn_predict_layers", "num_mtp_layers", default=0, minimum=0)
    if not few(fields, "num_nextn_predict_layers", count):
        return ()
    norms, others = last.norm_params + 3 * hidden_size, last.other_params + 2 * hidden_size * hidden_size
    return (replace(last, norm_params=norms, other_params=others),) * count


_STATE_BITS: Final = {"float32": 32, "fp32": 32, "bfloat16": 16, "float16": 16, "bf16": 16, "fp16": 16}


def state_bits_of(fields: Fields) -> int | None:
    """What the config says a recurrent state is stored in; None where it says nothing.

    Raises:  ModelConfigError for a type that is none of the known ones
    """
    key = fields.first("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
    if key is None:
        return None
    name = (fields.string(key) or "").removeprefix("torch.")
    if name == "auto":
        return None
    if name not in _STATE_BITS:
        raise fields.refuse(f"{key} is {shown(name)}; known: {', '.join(_STATE_BITS)}")
    return _STATE_BITS[name]
