"""Which schemas are taken, what of them is not enforced, and how long their documents can be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inference_bench.errors import RequestError
from inference_bench.labs.grammar.builtin import BUILT_IN
from inference_bench.labs.grammar.enforced import find_unenforced, grammar_of, keyword_outcomes
from inference_bench.labs.grammar.keyword_cases import KEYWORD_CASES
from inference_bench.labs.grammar.matching import accepts_text
from inference_bench.labs.grammar.request import GrammarRequest
from inference_bench.labs.grammar.result import Outcome
from inference_bench.labs.grammar.schema_walk import walk
from inference_bench.labs.grammar.size import document_size
from inference_bench.labs.grammar.tasks import prepare

pytest.importorskip("llguidance")
validators = pytest.importorskip("jsonschema.validators")
Draft202012Validator, validator_for = validators.Draft202012Validator, validators.validator_for


def refusal(schema: Any, **more: Any) -> str:
    with pytest.raises(RequestError) as caught:
        prepare(GrammarRequest(schema=schema, **more))
    return str(caught.value)


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize("case", KEYWORD_CASES, ids=lambda case: case.keyword)
def test_each_case_is_forbidden_by_its_keyword_alone(case: Any) -> None:
    def fits(schema: Any, text: str) -> bool:
        return bool(validator_for(schema, default=Draft202012Validator)(schema).is_valid(json.loads(text)))

    assert fits(case.schema, case.fit)
    assert not fits(case.schema, case.unfit)
    rest = {name: value for name, value in case.schema.items() if name != case.keyword}
    assert fits(rest, case.unfit)


def test_every_keyword_that_forbids_anything_is_asked_about() -> None:
    asked = {case.keyword for case in KEYWORD_CASES}
    assert set(Draft202012Validator.VALIDATORS) - asked <= {"format"}


def test_no_keyword_is_ignored_by_the_library_and_some_are_refused() -> None:
    outcomes = {each.keyword: each.outcome for each in keyword_outcomes()}
    assert Outcome.IGNORED not in outcomes.values()
    assert outcomes["maxItems"] is Outcome.ENFORCED
    assert outcomes["pattern"] is Outcome.ENFORCED
    refused = {keyword for keyword, outcome in outcomes.items() if outcome is Outcome.REFUSED}
    assert {"uniqueItems", "not", "if", "dependentSchemas", "contains"} <= refused


def test_a_keyword_that_is_not_enforced_is_named_with_its_pointer() -> None:
    schema = {
        "type": "object",
        "properties": {"a/b": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}},
    }
    said = refusal(schema)
    assert "uniqueItems at #/properties/a~1b/uniqueItems" in said
    assert "Unimplemented" in said
    (task,) = prepare(GrammarRequest(schema=schema, allows_unenforced=True))
    assert [(each.keyword, each.pointer) for each in task.unenforced] == [
        ("uniqueItems", "#/properties/a~1b/uniqueItems")
    ]
    assert accepts_text(task.grammar, '{"a/b":[1,1]}')
    assert not task.check('{"a/b":[1,1]}').is_valid


@pytest.mark.parametrize(
    ("schema", "keyword", "pointer"),
    [
        ({"type": "string", "format": "idn-email"}, "format", "#/format"),
        ({"anyOf": [{"type": "null"}, {"type": "integer", "not": {"const": 3}}]}, "not", "#/anyOf/1/not"),
        ({"type": "integer", "maximun": 3}, "maximun", "#/maximun"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "contains": {"const": 1}}}},
            "contains",
            "#/$defs/a/contains",
        ),
        ({"type": "string", "x-guidance": {"lenient": True}}, "x-guidance", "#/x-guidance"),
        ({"oneOf": [{"type": "integer"}, {"type": "integer", "minimum": 3}]}, "oneOf", "#/oneOf"),
    ],
)
def test_each_is_found_where_it_stands(schema: Any, keyword: str, pointer: str) -> None:
    assert [(each.keyword, each.pointer) for each in find_unenforced(schema)] == [(keyword, pointer)]


def test_an_option_of_the_library_inside_a_schema_sets_nothing() -> None:
    schema = {
        "type": "array",
        "x-guidance": {"lenient": True, "whitespace_flexible": True},
        "items": {"type": "integer"},
    }
    assert not accepts_text(grammar_of(schema), "[ 1 ]")
    assert accepts_text(grammar_of(schema), "[1]")


def test_names_of_properties_and_unused_definitions_are_no_keywords() -> None:
    schema = {
        "type": "object",
        "properties": {"not": {"type": "integer"}, "uniqueItems": {"enum": [{"not": 1}]}},
        "$defs": {"unused": {"not": {}}},
        "title": "t", "default": {"not": 1},
    }  # fmt: skip
    assert find_unenforced(schema) == ()
    assert [place.pointer for place in walk(schema)] == ["#", "#/properties/not", "#/properties/uniqueItems"]


def test_a_reference_is_followed_once_also_in_a_circle() -> None:
    schema = {"$defs": {"n": {"type": "object", "properties": {"k": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}
    assert [place.pointer for place in walk(schema)] == ["#", "#/$defs/n", "#/$defs/n/properties/k"]


def test_a_reference_out_of_the_schema_is_named_and_never_fetched() -> None:
    said = refusal({"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}})
    assert "https://example.com/a.json" in said
    assert "never fetched" in said
    with pytest.raises(RequestError, match=r"'#/\$defs/none' at #/\$ref, and nothing stands there"):
        find_unenforced({"$ref": "#/$defs/none"})


def test_a_schema_that_is_none_too_deep_or_too_large_is_refused() -> None:
    assert "schema" in refusal({"type": "objekt"})
    assert "64 levels" in refusal(nested(70))
    assert "64 levels" in refusal(nested(5000))
    assert "20,000 values" in refusal({"enum": list(range(20_001))})
    assert "cannot be made a grammar" in refusal({"type": "string", "pattern": "^(?=a)b"})
    assert "cannot be made a grammar" in refusal({"type": "integer", "minimum": 5, "maximum": 3})


@pytest.mark.parametrize("built", BUILT_IN, ids=lambda built: built.name)
def test_every_built_in_schema_is_enforced_whole_and_takes_its_short_document(built: Any) -> None:
    assert find_unenforced(built.schema) == ()
    assert accepts_text(grammar_of(built.schema), built.short_document)
    assert Draft202012Validator(built.schema).is_valid(json.loads(built.short_document))
    assert len(built.prompts) == 4


@pytest.mark.parametrize(
    ("schema", "longest"),
    [
        ({"enum": ["a", "abc", "東"]}, '"abc"'),
        ({"type": "integer", "minimum": -5, "maximum": 120}, "120"),
        ({"type": "integer", "minimum": -500, "maximum": 3}, "-500"),
        ({"type": ["boolean", "null"]}, "false"),
        ({"type": "array", "items": {"enum": [1, 22]}, "maxItems": 3}, "[22,22,22]"),
        ({"type": "array", "prefixItems": [{"const": "a"}, {"const": 1}], "items": False}, '["a",1]'),
        ({"anyOf": [{"const": "a"}, {"const": "abcd"}]}, '"abcd"'),
        ({"type": "object", "properties": {"é": {"const": 1}, "b": {"const": True}}, "additionalProperties": False}, '{"é":1,"b":true}'),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"const": [1, 2]}}}, "[1,2]"),
        ({"type": "string", "maxLength": 2}, '"\\u0001\\u0001"'),
    ],
)  # fmt: skip
def test_the_longest_document_is_as_long_as_one_written_by_hand(schema: Any, longest: str) -> None:
    assert accepts_text(grammar_of(schema), longest)
    assert document_size(schema).most_bytes == len(longest.encode())


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"type": "string"}, "#"),
        ({"type": "number", "minimum": 0, "maximum": 1}, "#"),
        ({"type": "integer", "minimum": 0}, "#"),
        ({"type": "array", "items": {"const": 1}}, "#"),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 2}, "#/items"),
        ({"type": "object", "properties": {"a": {"const": 1}}}, "#"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}, "#/properties/a"),
        ({"type": "array", "maxItems": 1, "items": {"$ref": "#"}}, "#/items/$ref"),
        (True, "#"),
    ],
)
def test_a_schema_without_an_end_says_where(schema: Any, where: str) -> None:
    size = document_size({"allOf": [schema]} if schema is True else schema)
    assert size.most_bytes is None
    assert size.unbounded_at == (where if schema is not True else "#/allOf/0")


def test_references_that_double_at_every_level_are_counted_once_each() -> None:
    """Thirty levels of two references each are a billion paths, and thirty parts."""
    pair = {
        f"l{i}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/l{i + 1}"}] * 2, "items": False}
        for i in range(30)
    }
    size = document_size({"$ref": "#/$defs/l0", "$defs": {**pair, "l30": {"const": 1}}})
    longest = 1
    for _ in range(30):
        longest = 3 + 2 * longest
    assert size.most_bytes == longest


def test_a_number_between_bounds_has_no_longest_form() -> None:
    grammar = grammar_of({"type": "number", "minimum": 0, "maximum": 1})
    assert all(accepts_text(grammar, f"0.{'3' * digits}") for digits in (1, 20, 200))


@pytest.mark.parametrize(
    "given",
    [{"num_tokens": 0}, {"num_tokens": 5000}, {"temperature": 0.0}, {"temperature": float("nan")}, {"prompt": "x"},
     {"schema": {}, "prompt": "  "}, {"url": "http://127.0.0.1:1", "uses_server": False}],
)  # fmt: skip
def test_a_request_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        GrammarRequest(**given)


def test_a_prompt_shows_in_no_repr_and_own_prompts_leave_no_text() -> None:
    request = GrammarRequest(schema={"const": 1}, prompt="my secret")
    assert "secret" not in repr(request)
    (task,) = prepare(request)
    assert task.is_own
    assert task.prompts == ("my secret",)
