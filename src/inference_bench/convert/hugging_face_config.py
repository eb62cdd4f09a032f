"""config.json and generation_config.json of a Hugging Face folder, from a GGUF header.

In:   a ConversionSource
Out:  HuggingFaceShape (the sizes the tensors are held to) and the two files as dicts
Leaves out: rotary scaling, experts, sliding windows: refused by name, because their settings cannot be read back exactly
Read next by: hugging_face, hugging_face_tensors.

Source: transformers, LlamaConfig and Qwen2Config; llama.cpp, conversion of the two (2026-11)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from inference_bench.convert.plan import ConversionSource
from inference_bench.errors import ModelFileError

DTYPES: Final = ("float32", "float16", "bfloat16")
_CLASSES: Final = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
_REFUSED_KEYS: Final = ("expert_count", "attention.sliding_window", "attention.layer_indices", "rope.scaling.factor")
_LEAST_CONTEXT: Final = 2048
_ROPE_BASE: Final = 10000.0  # llama.cpp's own where the file states none
_FLOAT_DIGITS: Final = range(1, 10)  # nine digits are enough for any single-precision number


@dataclass(frozen=True, slots=True)
class HuggingFaceShape:
    """The sizes of a dense decoder."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    tied: bool
    rms_norm_eps: float
    rope_theta: float
    max_positions: int


def read_shape(source: ConversionSource) -> HuggingFaceShape:
    """The sizes, from the header's keys and its embedding table.

    Raises:  ModelFileError for a key that is missing, or that a folder could not say
    """
    header, prefix = source.header, source.architecture
    refused = [f"{prefix}.{key}" for key in _REFUSED_KEYS if header.metadata.get(f"{prefix}.{key}")]
    if refused:
        raise ModelFileError(
            f"{source.path.name}: {refused[0]} is set, and a model with it is not converted to a folder"
        )
    heads = header.require_int(f"{prefix}.attention.head_count")
    hidden = header.require_int(f"{prefix}.embedding_length")
    if heads < 1 or (heads and hidden % heads):
        raise ModelFileError(f"{source.path.name}: {heads} heads do not divide {hidden}")
    head_dim = header.get_int(f"{prefix}.attention.key_length") or hidden // heads
    rotated = header.get_int(f"{prefix}.rope.dimension_count")
    if rotated not in (None, head_dim) or head_dim % 2:
        raise ModelFileError(
            f"{source.path.name}: {rotated} of {head_dim} values of a head are rotated; only all are converted"
        )
    return HuggingFaceShape(
        architecture=prefix,
        vocab_size=source.model.spec.vocab_size,
        hidden_size=hidden,
        intermediate_size=header.require_int(f"{prefix}.feed_forward_length"),
        num_layers=header.require_int(f"{prefix}.block_count"),
        num_heads=heads,
        num_kv_heads=header.get_int(f"{prefix}.attention.head_count_kv") or heads,
        head_dim=head_dim,
        tied=source.model.spec.tie_word_embeddings,
        rms_norm_eps=_shortest(_epsilon(source)),
        rope_theta=_shortest(header.get_float(f"{prefix}.rope.freq_base") or _ROPE_BASE),
        max_positions=header.get_int(f"{prefix}.context_length") or _LEAST_CONTEXT,
    )


def _epsilon(source: ConversionSource) -> float:
    key = f"{source.architecture}.attention.layer_norm_rms_epsilon"
    value = source.header.get_float(key)
    if value is None:
        raise ModelFileError(f"{source.path.name} has no key {key}; it must hold a number")
    return value


def _shortest(value: float) -> float:
    """The number with fewest digits that is stored in single precision as this one: 1e-05 for 9.999999747378752e-06."""
    stored = struct.pack("<f", value)
    return next(
        (short for digits in _FLOAT_DIGITS if struct.pack("<f", short := float(f"{value:.{digits}g}")) == stored), value
    )


def config_json(shape: HuggingFaceShape, dtype: str, special: dict[str, int | list[int]]) -> dict[str, Any]:
    """The model's config.

    Where:   special holds bos_token_id and its siblings; torch_dtype is the older name of dtype, and both are read today
    """
    own = (
        {"attention_bias": False, "mlp_bias": False} if shape.architecture == "llama" else {"use_sliding_window": False}
    )
    return {
        "architectures": [_CLASSES[shape.architecture]],
        "model_type": shape.architecture,
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.max_positions,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "attention_dropout": 0.0,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": dtype,
        **own,
        **special,
    }


def generation_json(special: dict[str, int | list[int]]) -> dict[str, Any]:
    """Where generation begins and ends."""
    return {"_from_model_config": True, **special}


def special_ids(source: ConversionSource) -> dict[str, int | list[int]]:
    """The ids of the tokens that begin, end and pad a text, as a config names them; several ends make a list.

    Raises:  ModelFileError for an id that is not in the vocabulary
    """
    found: dict[str, int | list[int]] = {}
    for name, keys in (
        ("bos_token_id", ("bos_token_id",)),
        ("eos_token_id", ("eos_token_id", "eot_token_id", "eom_token_id")),
        ("pad_token_id", ("padding_token_id",)),
    ):
        ids = _ids(source, keys)
        if ids:
            found[name] = ids[0] if len(ids) == 1 else ids
    return found


def _ids(source: ConversionSource, keys: Sequence[str]) -> list[int]:
    ids: list[int] = []
    for key in keys:
        value = source.header.get_int(f"tokenizer.ggml.{key}")
        if value is not None and not 0 <= value < source.model.spec.vocab_size:
            raise ModelFileError(f"{source.path.name}: tokenizer.ggml.{key} is {value}, outside the vocabulary")
        if value is not None and value not in ids:
            ids.append(value)
    return ids
