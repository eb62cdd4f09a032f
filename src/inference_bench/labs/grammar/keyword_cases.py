"""How is a library asked whether it enforces a keyword? By a document that this keyword alone forbids.

In:   nothing
Out:  KEYWORD_CASES; a test holds each against the jsonschema package: the one document fits, the other does not
Read next by: enforced.

The keywords are those of JSON Schema 2020-12 (Core, section 10; Validation, section 6) that forbid anything, with `dependencies`
of the drafts before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_OBJECT: Final = {"type": "object"}
_ARRAY: Final = {"type": "array"}
_STRING: Final = {"type": "string"}


@dataclass(frozen=True, slots=True)
class KeywordCase:
    """A schema with one keyword that matters, a document that fits, and one that does not."""

    keyword: str
    schema: Mapping[str, Any]
    fit: str
    unfit: str


KEYWORD_CASES: Final = (
    KeywordCase("type", {"type": "integer"}, "1", '"a"'),
    KeywordCase("enum", {"enum": ["a", 1]}, '"a"', '"b"'),
    KeywordCase("const", {"const": "a"}, '"a"', '"b"'),
    KeywordCase("minimum", {"type": "number", "minimum": 3}, "3", "2"),
    KeywordCase("maximum", {"type": "number", "maximum": 3}, "3", "4"),
    KeywordCase("exclusiveMinimum", {"type": "number", "exclusiveMinimum": 3}, "4", "3"),
    KeywordCase("exclusiveMaximum", {"type": "number", "exclusiveMaximum": 3}, "2", "3"),
    KeywordCase("multipleOf", {"type": "integer", "multipleOf": 7}, "14", "15"),
    KeywordCase("minLength", {**_STRING, "minLength": 2}, '"ab"', '"a"'),
    KeywordCase("maxLength", {**_STRING, "maxLength": 2}, '"ab"', '"abc"'),
    KeywordCase("pattern", {**_STRING, "pattern": "^b"}, '"ba"', '"ab"'),
    KeywordCase("minItems", {**_ARRAY, "minItems": 2}, "[1,2]", "[1]"),
    KeywordCase("maxItems", {**_ARRAY, "maxItems": 2}, "[1,2]", "[1,2,3]"),
    KeywordCase("uniqueItems", {**_ARRAY, "uniqueItems": True}, "[1,2]", "[1,1]"),
    KeywordCase("prefixItems", {**_ARRAY, "prefixItems": [{"type": "integer"}]}, "[1]", '["a"]'),
    KeywordCase("items", {**_ARRAY, "items": {"type": "integer"}}, "[1]", '["a"]'),
    KeywordCase("contains", {**_ARRAY, "contains": {"type": "integer"}}, "[1]", '["a"]'),
    KeywordCase("minContains", {**_ARRAY, "contains": {"type": "integer"}, "minContains": 2}, "[1,2]", "[1]"),
    KeywordCase("maxContains", {**_ARRAY, "contains": {"type": "integer"}, "maxContains": 1}, "[1]", "[1,2]"),
    KeywordCase("unevaluatedItems", {**_ARRAY, "prefixItems": [{}], "unevaluatedItems": False}, "[1]", "[1,2]"),
    KeywordCase("properties", {**_OBJECT, "properties": {"a": {"type": "integer"}}}, '{"a":1}', '{"a":"b"}'),
    KeywordCase("required", {**_OBJECT, "required": ["a"]}, '{"a":1}', '{"b":1}'),
    KeywordCase("additionalProperties", {**_OBJECT, "additionalProperties": {"type": "integer"}}, '{"a":1}', '{"a":"b"}'),
    KeywordCase("patternProperties", {**_OBJECT, "patternProperties": {"^a": {"type": "integer"}}}, '{"a":1}', '{"a":"b"}'),
    KeywordCase("propertyNames", {**_OBJECT, "propertyNames": {"pattern": "^a"}}, '{"a":1}', '{"b":1}'),
    KeywordCase("minProperties", {**_OBJECT, "minProperties": 2}, '{"a":1,"b":2}', '{"a":1}'),
    KeywordCase("maxProperties", {**_OBJECT, "maxProperties": 1}, '{"a":1}', '{"a":1,"b":2}'),
    KeywordCase("dependentRequired", {**_OBJECT, "dependentRequired": {"a": ["b"]}}, '{"b":1}', '{"a":1}'),
    KeywordCase("dependentSchemas", {**_OBJECT, "dependentSchemas": {"a": {"required": ["b"]}}}, '{"b":1}', '{"a":1}'),
    KeywordCase(
        "dependencies",
        {"$schema": "http://json-schema.org/draft-07/schema#", **_OBJECT, "dependencies": {"a": ["b"]}},
        '{"b":1}',
        '{"a":1}',
    ),
    KeywordCase("unevaluatedProperties", {**_OBJECT, "properties": {"a": {}}, "unevaluatedProperties": False}, '{"a":1}', '{"b":1}'),
    KeywordCase("allOf", {"allOf": [{"type": "integer"}, {"minimum": 3}]}, "3", "2"),
    KeywordCase("anyOf", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "3", '"a"'),
    KeywordCase("oneOf", {"oneOf": [{"type": "integer"}, {"type": "integer", "minimum": 3}]}, "2", "3"),
    KeywordCase("not", {"type": ["integer", "null"], "not": {"type": "null"}}, "2", "null"),
    KeywordCase("if", {"type": "integer", "if": {"minimum": 3}, "then": {"maximum": 5}}, "4", "6"),
    KeywordCase("then", {"type": "integer", "if": {"minimum": 3}, "then": {"maximum": 5}}, "4", "6"),
    KeywordCase("else", {"type": "integer", "if": {"minimum": 3}, "else": {"maximum": 1}}, "1", "2"),
    KeywordCase("$ref", {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}, "1", '"a"'),
    KeywordCase("$dynamicRef", {"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a", "type": "integer"}}}, "1", '"a"'),
)  # fmt: skip
