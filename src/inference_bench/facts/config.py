"""A Hugging Face config.json as a ModelSpec: which fields of which architecture mean what.

In:   the parsed object of a config.json
Out:  ModelSpec with one Layer per decoder block; what the file does not say and a default fills is named in
      `assumptions`
Leaves out: designs that are not counted yet; they are refused by name, never guessed
Read next by: accounting.

This module finds the text part, its architecture and what is common to all; the modules in families/ read the layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from inference_bench.errors import UnknownNameError
from inference_bench.facts.families.architectures import (
    FAMILY_OF,
    HOLDS_TOWER,
    OF_CLASS,
    TEXT_SECTION_OF,
    TEXT_SECTIONS,
)
from inference_bench.facts.families.base import Design
from inference_bench.facts.families.unread import (
    name_unread,
    other_towers,
    refuse_negative,
    refuse_switches,
    refuse_unread,
)
from inference_bench.facts.fields import Fields, shown
from inference_bench.facts.formats import NumberFormat, number_format
from inference_bench.facts.models import ModelSpec
from inference_bench.facts.source import Source

_PLAIN: Final = "llama"
_PLAIN_ASSUMPTION: Final = (
    "the config names no model_type: counted as a plain pre-norm decoder with a gated feed-forward block, "
    "two norms a layer and biases only where a field asks for them"
)
_PREDICTION_KEYS: Final = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")


def model_from_config(config: Mapping[str, Any], name: str, source: Source) -> ModelSpec:
    """The model a config.json describes.

    Raises:  ModelConfigError naming the field that is missing or impossible, or the design that is not counted
    """
    fields = Fields(config, f"the config of {name}")
    model_type, text, assumptions = _text_part(fields)
    design = _design(model_type, text, fields)
    refuse_unread(text)
    refuse_switches(text, design.layers)
    parts = (*design.parts, *_towers(fields, text, design, assumptions))
    refuse_negative((*design.layers, *design.encoder_layers, *design.prediction_layers), parts, text.what)
    assumptions += [*design.assumptions, *name_unread(text)]
    tied = _tied(fields, text, design, assumptions)
    if not design.prediction_layers and text.first(*_PREDICTION_KEYS):
        assumptions += _uncounted_prediction(text)
    return ModelSpec(
        name=name,
        model_type=model_type,
        hidden_size=design.hidden_size,
        vocab_size=design.vocab_size,
        num_key_value_heads=design.num_key_value_heads,
        head_dim=design.head_dim,
        layers=tuple(design.layers),
        tie_word_embeddings=tied,
        max_position_embeddings=design.max_positions
        or text.optional_integer("max_position_embeddings", "n_positions", "model_max_length", "seq_length"),
        final_norm_params=design.final_norm_params,
        source=source,
        stored_format=_stored_format(fields, text),
        assumptions=tuple(assumptions),
        encoder_layers=design.encoder_layers,
        prediction_layers=design.prediction_layers,
        parts=parts,
        head_bias=design.head_bias,
        embedding_size=design.embedding_size,
        state_bits=design.state_bits,
    )


def _uncounted_prediction(text: Fields) -> list[str]:
    """What to say of multi-token-prediction layers that a design names and nobody counts."""
    numbers = [text.integer(key, default=0, minimum=0) for key in _PREDICTION_KEYS]
    return ["the config's multi-token-prediction layers are counted nowhere"] if any(numbers) else []


def _design(model_type: str, text: Fields, fields: Fields) -> Design:
    module = import_module(f"inference_bench.facts.families.{FAMILY_OF[model_type]}")
    design: Design = module.build(model_type, text, fields)
    return design


def _text_part(fields: Fields) -> tuple[str, Fields, list[str]]:
    """The decoder's own fields, which multimodal configs nest, and the architecture that reads them."""
    assumptions: list[str] = []
    outer = fields.string("model_type")
    text = next((section for key in TEXT_SECTIONS if (section := fields.section(key)) is not None), fields)
    model_type = text.string("model_type") if text is not fields else None
    model_type = model_type or TEXT_SECTION_OF.get(outer or "", outer)
    model_type = TEXT_SECTION_OF.get(model_type or "", model_type)
    if model_type is not None and model_type in FAMILY_OF:
        return model_type, text, _foreign_class(fields, model_type)
    by_class = _by_class(fields)
    if by_class is not None:
        assumptions.append(f"model_type {shown(model_type)} is read as {by_class}, as the class it names says")
        return by_class, text, assumptions
    if model_type is None:
        assumptions.append(_PLAIN_ASSUMPTION)
        return _PLAIN, text, assumptions
    return "generic", text, assumptions


def _class_name(fields: Fields) -> str | None:
    """The model class the config names."""
    classes = fields.values.get("architectures")
    named = isinstance(classes, list) and bool(classes) and isinstance(classes[0], str)
    return classes[0] if named and isinstance(classes, list) else None


def _by_class(fields: Fields) -> str | None:
    """The architecture of the model class the config names."""
    return OF_CLASS.get(_class_name(fields) or "")


def _foreign_class(fields: Fields, model_type: str) -> list[str]:
    """What to say where the config names a class that need not be what its model_type says.

    Where:  a class known here under another model_type, or code of the model's own (auto_map) for a class that
            does not bear the model_type's name
    """
    name = _class_name(fields)
    if name is None:
        return []
    known = OF_CLASS.get(name)
    own_code = isinstance(fields.values.get("auto_map"), dict) and bool(fields.values["auto_map"])
    types = (model_type, str(fields.values.get("model_type")))
    foreign = known not in types if known else own_code and not any(_plain_class(name, kind) for kind in types)
    if not foreign:
        return []
    kind = shown(model_type)
    return [f"architectures names {shown(name)}, a class not known under model_type {kind}: read as model_type says"]


def _plain_class(name: str, model_type: str) -> bool:
    """Whether a class name is a model_type and the usual ending, so that the two say the same."""
    lower, stem = name.lower(), model_type.removesuffix("_text").replace("_", "").replace("-", "")
    endings = ("forcausallm", "lmheadmodel", "forconditionalgeneration", "model")
    return any(lower == stem + ending for ending in endings)


def _towers(fields: Fields, text: Fields, design: Design, assumptions: list[str]) -> tuple[Any, ...]:
    """Vision and audio towers beside a nested text config."""
    seen = "vision_config" in fields or fields.values.get("model_type") == "fuyu" or other_towers(fields)
    if not seen and text is not fields:
        assumptions.append("only the text decoder is counted; the config describes no vision or audio towers")
    if not seen:
        return ()
    from inference_bench.facts.families import towers

    return towers.towers(fields, design, assumptions)


def _tied(fields: Fields, text: Fields, design: Design, assumptions: list[str]) -> bool:
    if design.tied is not None:
        return design.tied
    whole = fields.values.get("model_type") in HOLDS_TOWER  # a class that holds the tower reads its own field
    for part in (fields, text) if whole else (text, fields):
        if "tie_word_embeddings" in part:
            return part.boolean("tie_word_embeddings", design.tied_by_default)
    word = "tied" if design.tied_by_default else "not tied"
    assumptions.append(f"the config does not say whether embeddings are tied: taken as {word}, the class default")
    return design.tied_by_default


def _stored_format(fields: Fields, text: Fields) -> NumberFormat | None:
    dtype = text.string("dtype") or text.string("torch_dtype") or fields.string("dtype") or fields.string("torch_dtype")
    try:
        return number_format(dtype.removeprefix("torch.")) if dtype else None
    except UnknownNameError:
        return None
