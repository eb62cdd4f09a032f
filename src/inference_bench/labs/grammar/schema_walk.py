"""What does a schema say, and where? Every part of it that a document is held to, with its JSON pointer.

In:   a JSON Schema as plain values
Out:  Place after Place; local references are followed, each once
Leaves out: what any keyword means (enforced, size)
Read next by: enforced, size.

A definition that nothing refers to is no part of what is asked. A reference out of the schema is never fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from inference_bench.errors import RequestError

MOST_LEVELS: Final = 64
MOST_VALUES: Final = 20_000

HOLDS_ONE: Final = (
    "additionalProperties", "items", "contains", "not", "if", "then", "else", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "additionalItems",
)  # fmt: skip
HOLDS_LIST: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
HOLDS_NAMED: Final = ("properties", "patternProperties", "dependentSchemas", "dependencies")
_SHOWN_CHARS: Final = 120


@dataclass(frozen=True, slots=True)
class Place:
    """A schema inside a schema."""

    pointer: str
    schema: Mapping[str, Any]


def require_bounded(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that is nested too deep or holds too much, before anything recurses into it.

    Raises:  RequestError with the figure
    """
    waiting: list[tuple[object, int]] = [(schema, 1)]
    num_values = 0
    while waiting:
        value, level = waiting.pop()
        num_values += 1
        if level > MOST_LEVELS:
            raise RequestError(f"the schema is nested more than {MOST_LEVELS} levels deep; make it flatter")
        if num_values > MOST_VALUES:
            raise RequestError(f"the schema holds more than {MOST_VALUES:,} values; give a smaller one")
        if isinstance(value, Mapping):
            waiting += [(inner, level + 1) for inner in value.values()]
        elif isinstance(value, list):
            waiting += [(inner, level + 1) for inner in value]


def walk(root: Mapping[str, Any]) -> Iterator[Place]:
    """Every schema that a document is held to, the whole first.

    Raises:  RequestError for a reference that leads out of the schema, or nowhere
    """
    seen: set[str] = set()
    waiting = [Place("#", root)]
    while waiting:
        place = waiting.pop()
        if place.pointer in seen:
            continue
        seen.add(place.pointer)
        yield place
        inside = list(_inside(place))
        reference = place.schema.get("$ref")
        if isinstance(reference, str):
            inside.append(resolve(root, reference, place.pointer))
        waiting += reversed(inside)


def resolve(root: Mapping[str, Any], reference: str, where: str) -> Place:
    """The schema that a local reference names.

    Raises:  RequestError
    """
    shown = reference[:_SHOWN_CHARS]
    if not reference.startswith("#"):
        raise RequestError(
            f"the schema refers to {shown!r} at {where}/$ref, outside of it, which is never fetched; put it in"
        )
    target: object = root if reference in ("#", "") or reference.startswith("#/") else _anchored(root, reference[1:])
    for step in reference.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping) and name in target:
            target = target[name]
        elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
            target = target[int(name)]
        else:
            target = None
    if isinstance(target, bool):
        target = {} if target else {"not": {}}
    if not isinstance(target, Mapping):
        raise RequestError(f"the schema refers to {shown!r} at {where}/$ref, and nothing stands there")
    return Place(reference, target)


def _anchored(value: object, name: str) -> object:
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, Mapping):
            if here.get("$anchor") == name:
                return here
            waiting += here.values()
        elif isinstance(here, list):
            waiting += here
    return None


def _inside(place: Place) -> Iterator[Place]:
    """The schemas directly inside one."""
    for keyword, value in place.schema.items():
        where = f"{place.pointer}/{escaped(keyword)}"
        if keyword in HOLDS_ONE and isinstance(value, Mapping):
            yield Place(where, value)
        elif keyword in HOLDS_LIST and isinstance(value, list):
            yield from (Place(f"{where}/{i}", each) for i, each in enumerate(value) if isinstance(each, Mapping))
        elif keyword in HOLDS_NAMED and isinstance(value, Mapping):
            yield from (
                Place(f"{where}/{escaped(name)}", each) for name, each in value.items() if isinstance(each, Mapping)
            )


def escaped(name: str) -> str:
    """A name as a JSON pointer writes it."""
    return name.replace("~", "~0").replace("/", "~1")
