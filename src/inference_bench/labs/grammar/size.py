"""How long can a document of a schema become, and so, how many tokens must its budget be?

In:   a JSON Schema
Out:  DocumentSize
Leaves out: how long documents do become (flow measures)
Read next by: tasks.

Every token is at least one byte, so that a document of n bytes is never more than n tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from inference_bench.labs.grammar.schema_walk import escaped, resolve

_CHARACTER_BYTES: Final = (
    6  # the longest way a grammar lets one be written: \\u and four digits, for a control character
)
_LITERAL_BYTES: Final = {"boolean": 5, "null": 4}


@dataclass(frozen=True, slots=True)
class DocumentSize:
    """The most bytes a document can have, without white space between its parts; None where there is no end, and at which part."""

    most_bytes: int | None
    unbounded_at: str | None = None


_Known: TypeAlias = Callable[[Any, str, tuple[str, ...]], DocumentSize]


def document_size(schema: Mapping[str, Any]) -> DocumentSize:
    """A bound on every document of the schema.

    Formula:  an enum's longest value; a list's longest items and the commas between them; an object's names and longest values; of
              keywords that all hold, the one that bounds most
    Unit:     bytes of UTF-8
    Ignores:  patterns, formats, and all else that makes documents shorter than this
    Raises:   RequestError for a reference that leads nowhere
    """
    known_references: dict[str, DocumentSize] = {}  # a schema can refer to one part thousands of times

    def size(value: Any, where: str, above: tuple[str, ...]) -> DocumentSize:
        if not isinstance(value, Mapping):
            return DocumentSize(None, where) if value is not False else DocumentSize(0)
        bounds = [each for each in _bounds(value, where, above, size, schema, known_references) if each is not None]
        known = [each for each in bounds if each.most_bytes is not None]
        if known:
            return min(known, key=lambda each: each.most_bytes or 0)
        return bounds[0] if bounds else DocumentSize(None, where)

    return size(schema, "#", ("#",))


def _bounds(
    schema: Mapping[str, Any],
    where: str,
    above: tuple[str, ...],
    size: _Known,
    root: Mapping[str, Any],
    known_references: dict[str, DocumentSize],
) -> list[DocumentSize | None]:
    """What each keyword alone says; None where it says nothing."""
    return [
        _values(schema),
        _referred(schema, where, above, size, root, known_references),
        *(_any(schema, keyword, where, above, size) for keyword in ("anyOf", "oneOf")),
        *(size(each, f"{where}/allOf/{i}", above) for i, each in enumerate(schema.get("allOf", ()))),
        _types(schema, where, above, size),
    ]


def _values(schema: Mapping[str, Any]) -> DocumentSize | None:
    if "const" in schema:
        return DocumentSize(_written(schema["const"]))
    if isinstance(schema.get("enum"), list):
        return DocumentSize(max(map(_written, schema["enum"]), default=0))
    return None


def _written(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))


def _referred(
    schema: Mapping[str, Any],
    where: str,
    above: tuple[str, ...],
    size: _Known,
    root: Mapping[str, Any],
    known_references: dict[str, DocumentSize],
) -> DocumentSize | None:
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return None
    if reference in above:
        return DocumentSize(None, f"{where}/$ref")
    if reference not in known_references:
        known_references[reference] = size(resolve(root, reference, where).schema, reference, (*above, reference))
    return known_references[reference]


def _any(
    schema: Mapping[str, Any], keyword: str, where: str, above: tuple[str, ...], size: _Known
) -> DocumentSize | None:
    branches = schema.get(keyword)
    if not isinstance(branches, list) or not branches:
        return None
    return _largest([size(each, f"{where}/{keyword}/{i}", above) for i, each in enumerate(branches)])


def _largest(sizes: Sequence[DocumentSize]) -> DocumentSize:
    endless = next((each for each in sizes if each.most_bytes is None), None)
    return endless or max(sizes, key=lambda each: each.most_bytes or 0)


def _types(schema: Mapping[str, Any], where: str, above: tuple[str, ...], size: _Known) -> DocumentSize | None:
    named = schema.get("type")
    if named is None:
        return None
    names = named if isinstance(named, list) else [named]
    return _largest([_type(name, schema, where, above, size) for name in names])


def _type(name: Any, schema: Mapping[str, Any], where: str, above: tuple[str, ...], size: _Known) -> DocumentSize:
    if name in _LITERAL_BYTES:
        return DocumentSize(_LITERAL_BYTES[name])
    if name == "array":
        return _array(schema, where, above, size)
    if name == "object":
        return _object(schema, where, above, size)
    most = _integer(schema) if name == "integer" else _string(schema) if name == "string" else None
    return DocumentSize(most, None if most is not None else where)


def _integer(schema: Mapping[str, Any]) -> int | None:
    lows = [schema[key] for key in ("minimum", "exclusiveMinimum") if isinstance(schema.get(key), int | float)]
    highs = [schema[key] for key in ("maximum", "exclusiveMaximum") if isinstance(schema.get(key), int | float)]
    if not lows or not highs:
        return None
    return max(len(str(int(end))) for end in (max(lows), min(highs), *([-1] if max(lows) < 0 else [])))


def _string(schema: Mapping[str, Any]) -> int | None:
    most = schema.get("maxLength")
    return 2 + _CHARACTER_BYTES * most if isinstance(most, int) else None


def _array(schema: Mapping[str, Any], where: str, above: tuple[str, ...], size: _Known) -> DocumentSize:
    leading = [size(each, f"{where}/prefixItems/{i}", above) for i, each in enumerate(schema.get("prefixItems", ()))]
    rest, most = schema.get("items", True), schema.get("maxItems")
    if rest is False:
        most = min(most, len(leading)) if isinstance(most, int) else len(leading)
    if not isinstance(most, int):
        return DocumentSize(None, where)
    num_rest = max(0, most - len(leading))
    each_rest = size(rest, f"{where}/items", above) if num_rest else DocumentSize(0)
    return _sum([*leading[:most], *[each_rest] * min(num_rest, 1)], 2 + max(0, most - 1), each_rest, num_rest)


def _sum(sizes: Sequence[DocumentSize], frame: int, repeated: DocumentSize, times: int) -> DocumentSize:
    """Parts beside one another in a frame, the last of which comes so many times."""
    endless = next((each for each in sizes if each.most_bytes is None), None)
    if endless is not None:
        return endless
    more = (repeated.most_bytes or 0) * max(0, times - 1)
    return DocumentSize(frame + sum(each.most_bytes or 0 for each in sizes) + more)


def _object(schema: Mapping[str, Any], where: str, above: tuple[str, ...], size: _Known) -> DocumentSize:
    if schema.get("additionalProperties", True) is not False or schema.get("patternProperties"):
        return DocumentSize(None, where)
    named = schema.get("properties", {})
    parts = [size(value, f"{where}/properties/{escaped(name)}", above) for name, value in named.items()]
    frame = 2 + max(0, len(parts) - 1) + sum(_written(name) + 1 for name in named)
    return _sum(parts, frame, DocumentSize(0), 1)
