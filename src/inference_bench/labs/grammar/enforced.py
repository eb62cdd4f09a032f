"""Which keywords of a schema does its grammar really hold a document to?

In:   a JSON Schema; the grammar library is asked, keyword by keyword, and none is taken from a list of what it should do
Out:  the grammar; every keyword it does not enforce, by name and JSON pointer; what becomes of each keyword there is
Leaves out: masks (matching), the final validation (judging)
Read next by: tasks, flow.

The library refuses what it does not implement, unless it is told to be lenient; then it only warns. Here it is first asked about
every keyword by itself, with plain values in place of the schemas inside, so that a warning belongs to that keyword alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from inference_bench.errors import RequestError
from inference_bench.labs.grammar.keyword_cases import KEYWORD_CASES, KeywordCase
from inference_bench.labs.grammar.matching import accepts_text
from inference_bench.labs.grammar.result import KeywordOutcome, Outcome, Unenforced
from inference_bench.labs.grammar.schema_walk import HOLDS_LIST, HOLDS_NAMED, HOLDS_ONE, Place, escaped, walk
from inference_bench.measure.openai_stream import one_line

_NOTES: Final = frozenset({
    "title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly", "contentEncoding",
    "contentMediaType", "contentSchema",
})  # fmt: skip
"""What says something and forbids nothing: JSON Schema 2020-12, Validation, sections 8 and 9."""

_FRAME: Final = frozenset(
    {"$schema", "$id", "$anchor", "$dynamicAnchor", "$vocabulary", "$defs", "definitions", "$ref", "type"}
)
_LIBRARY_OPTIONS: Final = "x-guidance"
_REASON_CHARS: Final = 160


def grammar_of(schema: Mapping[str, Any], *, is_lenient: bool = False) -> str:
    """The grammar of a schema's documents, written without white space.

    Raises:  RequestError for what the library cannot make one of, with its reason
    """
    grammar = _to_grammar(schema, is_lenient)
    is_error, said = _validate(grammar)
    if is_error:
        raise RequestError(f"the schema cannot be made a grammar: {_one_line(said[0])}")
    return grammar


def find_unenforced(schema: Mapping[str, Any]) -> tuple[Unenforced, ...]:
    """Every keyword that the grammar of this schema does not hold a document to, in the order of the schema.

    Raises:  RequestError for a reference that leads out of the schema, or nowhere
    """
    return tuple(found for place in walk(schema) for found in _unenforced_at(place, schema))


def require_enforced(unenforced: tuple[Unenforced, ...]) -> None:
    """Refuse a schema that its grammar would not hold a document to.

    Raises:  RequestError with the name and the pointer of each such keyword
    """
    if unenforced:
        named = "; ".join(f"{each.keyword} at {each.pointer} ({each.reason})" for each in unenforced[:5])
        more = f"; and {len(unenforced) - 5} more" if len(unenforced) > 5 else ""
        raise RequestError(
            f"the grammar does not enforce {named}{more}; take it out, or allow what is not enforced: the documents are still validated"
        )


@cache
def keyword_outcomes() -> tuple[KeywordOutcome, ...]:
    """What the library makes of each keyword: of a document that this keyword alone forbids."""
    return tuple(_outcome(case) for case in KEYWORD_CASES)


def _outcome(case: KeywordCase) -> KeywordOutcome:
    grammar = _to_grammar(case.schema, False)
    is_error, said = _validate(grammar)
    if is_error:
        return KeywordOutcome(case.keyword, Outcome.REFUSED, _one_line(said[0]))
    accepts = accepts_text(grammar, case.unfit)
    outcome = Outcome.IGNORED if accepts else Outcome.ENFORCED
    return KeywordOutcome(case.keyword, outcome, "accepts a document that it forbids" if accepts else "")


def _unenforced_at(place: Place, root: Mapping[str, Any]) -> Iterator[Unenforced]:
    for keyword, value in place.schema.items():
        if keyword in _NOTES or keyword in _FRAME:
            continue
        reason = _reason(keyword, value, place.schema, root)
        if reason is not None:
            yield Unenforced(f"{place.pointer}/{escaped(keyword)}", keyword, reason)


def _reason(keyword: str, value: Any, siblings: Mapping[str, Any], root: Mapping[str, Any]) -> str | None:
    """Why a keyword is not enforced; None where it is, or where the whole grammar will be refused anyway."""
    if keyword not in _known_keywords():
        return "no keyword of JSON Schema, so nothing enforces it"
    probe: dict[str, Any] = {keyword: _shallow(keyword, value)}
    probe |= {name: siblings[name] for name in ("type",) if name in siblings}
    if keyword == "oneOf":
        probe |= {name: root[name] for name in ("$defs", "definitions") if name in root}
    try:
        is_error, said = _validate(_to_grammar(probe, True))
    except RequestError:
        return None
    if said and not is_error:
        return _one_line(said[0])
    ignored = (each for each in keyword_outcomes() if each.keyword == keyword and each.outcome is Outcome.IGNORED)
    return next((each.reason for each in ignored), None)


@cache
def _known_keywords() -> frozenset[str]:
    """Every keyword that forbids something, in any draft that the final validation knows."""
    from jsonschema import validators

    drafts = (validators.Draft4Validator, validators.Draft7Validator, validators.Draft202012Validator)
    asked = {keyword for draft in drafts for keyword in draft.VALIDATORS}
    beside = {"then", "else", "minContains", "maxContains", "exclusiveMinimum", "exclusiveMaximum", "format"}
    return frozenset(asked | beside)


def _shallow(keyword: str, value: Any) -> Any:
    """The value with nothing said inside the schemas it holds; those of oneOf stay, since it depends on them."""
    if keyword == "oneOf":
        return value
    if keyword in HOLDS_ONE and isinstance(value, Mapping):
        return {}
    if keyword in HOLDS_LIST and isinstance(value, list):
        return [{} if isinstance(each, Mapping) else each for each in value]
    if keyword in HOLDS_NAMED and isinstance(value, Mapping):
        return {name: {} if isinstance(each, Mapping) else each for name, each in value.items()}
    return value


def _to_grammar(schema: Mapping[str, Any], is_lenient: bool) -> str:
    """The schema for the library; options of its own that stand in it are left out, so that none is set from there."""
    from llguidance import LLMatcher

    plain = {name: value for name, value in schema.items() if name != _LIBRARY_OPTIONS}
    options = {"lenient": is_lenient, "whitespace_flexible": False, "coerce_one_of": False}
    try:
        return str(LLMatcher.grammar_from_json_schema(json.dumps(plain), overrides=options))
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the schema cannot be made a grammar: {_one_line(str(error))}") from None


def _validate(grammar: str) -> tuple[bool, list[str]]:
    from llguidance import LLMatcher

    is_error, said = LLMatcher.validate_grammar_with_warnings(grammar)
    return bool(is_error), [str(each) for each in said]


def _one_line(text: str) -> str:
    return one_line(text, _REASON_CHARS)
