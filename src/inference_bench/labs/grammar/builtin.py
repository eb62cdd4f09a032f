"""Which documents does the lab ask for when it is given no schema? Five small schemas, each with four prompts.

In:   nothing
Out:  BuiltIn
Read next by: tasks.

Each schema is there for one thing that masks get wrong: values from a list and a range, nesting with a limit and letters of several
bytes, a pattern, a choice between shapes, a number whose digits have no end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


def _record(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A schema, a short document that fits it, and what a model is asked."""

    name: str
    schema: Mapping[str, object]
    short_document: str
    prompts: tuple[str, ...]


_PERSON: Final = _record(
    {
        "name": {"type": "string", "minLength": 1, "maxLength": 24},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "role": {"enum": ["captain", "mate", "harpooner", "cook"]},
    }
)
_STOP: Final = _record(
    {
        "city": {"enum": ["Zürich", "東京", "São Paulo", "Oslo"]},
        "nights": {"type": "integer", "minimum": 1, "maximum": 9},
    }
)
_CIRCLE: Final = _record({"shape": {"const": "circle"}, "radius": {"type": "integer", "minimum": 1, "maximum": 99}})
_RECTANGLE: Final = _record(
    {
        "shape": {"const": "rectangle"},
        "width": {"type": "integer", "minimum": 1, "maximum": 99},
        "height": {"type": "integer", "minimum": 1, "maximum": 99},
    }
)
_CODE: Final = _record({"code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$", "maxLength": 7}})
_WEATHER: Final = _record(
    {
        "celsius": {"type": "number", "minimum": -60, "maximum": 60},
        "sky": {"enum": ["clear", "cloudy", "rain", "snow"]},
    }
)

BUILT_IN: Final = (
    BuiltIn(
        "person",
        _PERSON,
        '{"name":"A","age":5,"role":"cook"}',
        (
            "Give the name, age and role of a ship's captain as JSON.",
            "Invent a cook on a whaling ship. Answer with JSON: name, age, role.",
            "Write a JSON record of a harpooner: name, age and role.",
            "Answer with JSON only: who is the mate, how old, in which role?",
        ),
    ),
    BuiltIn(
        "trip",
        _record({"stops": {"type": "array", "minItems": 1, "maxItems": 3, "items": _STOP}}),
        '{"stops":[{"city":"東京","nights":2}]}',
        (
            "Plan a trip to Tokyo (東京) for two nights. Answer with JSON.",
            "Plan a journey through Zürich and Oslo as JSON: stops, each with city and nights.",
            "Give three stops of a trip as JSON, each with a city and a number of nights.",
            "Answer with JSON only: one night in São Paulo.",
        ),
    ),
    BuiltIn(
        "code",
        _CODE,
        '{"code":"AB-1234"}',
        (
            "Make up a part number of two letters, a dash and four digits, as JSON with the key code.",
            "What is the code of gate 12 in Kiel? Answer with JSON.",
            'Give a flight number as JSON: {"code": ...}.',
            "Answer with JSON only: the code of this parcel.",
        ),
    ),
    BuiltIn(
        "shape",
        {"anyOf": [_CIRCLE, _RECTANGLE]},
        '{"shape":"circle","radius":1}',
        (
            "Describe a circle of radius 7 as JSON.",
            "Describe a rectangle of 4 by 9 as JSON: shape, width, height.",
            "Choose a circle or a rectangle and give its size as JSON.",
            "Answer with JSON only: the shape of a door, with its size.",
        ),
    ),
    BuiltIn(
        "weather",
        _WEATHER,
        '{"celsius":5,"sky":"rain"}',
        (
            "What is the weather in Oslo in January? Answer with JSON: celsius, sky.",
            "Give the temperature and the sky over a desert at noon as JSON.",
            "Report a rainy day as JSON with celsius and sky.",
            "Answer with JSON only: how cold is it, and what does the sky look like?",
        ),
    ),
)
QUICK_SCHEMAS: Final = ("person", "trip")
OWN_PROMPT: Final = "Answer with one JSON document."
