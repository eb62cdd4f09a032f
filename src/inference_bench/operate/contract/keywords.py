"""Which keywords of a JSON schema bind the output, which are refused, and which are silently ignored?

In:   an opened Server and a way of asking for a schema that binds
Out:  rows of the group structured, one a keyword
Leaves out: whole validation of documents: each keyword is asked alone and looked at alone
Read next by: structured.

A prompt asks for a document that breaks the keyword. It is asked first without the keyword: only where the model then does break
it, a document that keeps it is evidence that the server enforced it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from typing import Any, Final, NamedTuple

from inference_bench.operate.contract.reading import finish_of, text_of
from inference_bench.operate.contract.rows import Row, Verdict
from inference_bench.operate.contract.server import Server
from inference_bench.operate.contract.wire import Reply

_TOKENS: Final = 28
_NO_ANSWER: Final = object()
_TAILS: Final = ("", "}", "]}", '"}', '"]}', "}}")  # what ends a document that was cut
Schema = Mapping[str, object]
Asks = Callable[[Schema], dict[str, Any]]


class _Base(NamedTuple):
    """What the prompt asks for, and the schema of it without any keyword."""

    wanted: object
    schema: dict[str, object]


class _Keyword(NamedTuple):
    """A keyword with its value, on one of the bases, and whether a value keeps it; so does what is longer, where is_least."""

    name: str
    base: str
    adds: dict[str, object]
    keeps: Callable[[Any], bool]
    is_least: bool = False


_TWO: Final = {"type": "string", "enum": ["a", "b"]}
_BASES: Final = {
    "text": _Base("a", {"type": "string"}),
    "choice": _Base("a", dict(_TWO)),
    "number": _Base(1, {"type": "integer"}),
    "list": _Base(["a", "a"], {"type": "array", "items": dict(_TWO)}),
    "one": _Base(["a"], {"type": "array", "items": {"const": "a"}}),
    "object": _Base(
        {"p": "x"},
        {"type": "object", "properties": {"p": {"const": "x"}, "q": {"const": "y"}}, "additionalProperties": False},
    ),
}


def _is_date(value: Any) -> bool:
    with suppress(ValueError, TypeError):
        return bool(date.fromisoformat(value))
    return False


_KEYWORDS: Final = (
    _Keyword("pattern", "text", {"pattern": "^zq[0-9]{2}$"}, lambda v: bool(re.search("^zq[0-9]{2}$", v))),
    _Keyword("minLength", "text", {"minLength": 8}, lambda v: len(v) >= 8, is_least=True),
    _Keyword("maxLength", "text", {"maxLength": 0}, lambda v: len(v) == 0),
    _Keyword("format", "text", {"format": "date"}, _is_date),
    _Keyword("not", "choice", {"not": {"const": "a"}}, lambda v: v != "a"),
    _Keyword("minimum", "number", {"minimum": 4000}, lambda v: v >= 4000),
    _Keyword("multipleOf", "number", {"multipleOf": 97}, lambda v: v % 97 == 0),
    _Keyword("minItems", "one", {"minItems": 2}, lambda v: len(v) >= 2, is_least=True),
    _Keyword("maxItems", "list", {"maxItems": 1}, lambda v: len(v) <= 1),
    _Keyword("uniqueItems", "list", {"uniqueItems": True}, lambda v: len(set(map(str, v))) == len(v)),
    _Keyword("minProperties", "object", {"minProperties": 2}, lambda v: len(v) >= 2, is_least=True),
    _Keyword("if", "choice", {"if": {"const": "a"}, "then": {"const": "b"}}, lambda v: v != "a"),
)


def keyword_rows(server: Server, asks: Asks) -> Iterator[Row]:
    """Each keyword beside the same question without it."""
    without: dict[str, Any] = {}
    for keyword in _KEYWORDS:
        if keyword.base not in without:
            without[keyword.base] = _value(_ask(server, asks, _BASES[keyword.base], {}), keyword.base)
        value, row_id = without[keyword.base], f"structured.{keyword.name}"
        if value is _NO_ANSWER:
            yield Row(row_id, Verdict.UNKNOWN, "the model gave no whole document to compare with")
        elif keyword.keeps(value):
            yield Row(row_id, Verdict.UNKNOWN, "the model keeps it unasked, so nothing shows whether it binds")
        else:
            yield _judged(server, row_id, keyword, _ask(server, asks, _BASES[keyword.base], keyword.adds))


def _ask(server: Server, asks: Asks, base: _Base, adds: Schema) -> Reply:
    schema = {
        "type": "object",
        "properties": {"v": {**base.schema, **adds}},
        "required": ["v"],
        "additionalProperties": False,
    }
    prompt = f"Write exactly this and nothing else: {json.dumps({'v': base.wanted})}"
    return server.generate(prompt, _TOKENS, **asks(schema))


def _judged(server: Server, row_id: str, keyword: _Keyword, reply: Reply) -> Row:
    if not reply.is_ok:
        seen = f"refused, {server.words(reply)}"
        return Row(row_id, Verdict.NO, seen, "leave it out of schemas, and check it yourself", {"outcome": "refused"})
    value = _value(reply, keyword.base, is_least=keyword.is_least)
    if value is _NO_ANSWER:
        seen = f"no whole document within {_TOKENS} tokens"
        return Row(row_id, Verdict.UNKNOWN, seen, figures={"outcome": "unknown"})
    if keyword.keeps(value):
        return Row(
            row_id, Verdict.YES, "enforced: without it the model does otherwise", figures={"outcome": "enforced"}
        )
    seen = "taken without an error, and ignored"
    return Row(row_id, Verdict.NO, seen, "check it yourself: documents may break it", {"outcome": "ignored"})


def _value(reply: Reply, base: str, *, is_least: bool = False) -> Any:
    """The value in a document, if it is of the type that was asked for; of one that was cut as far as it came, where is_least."""
    text = (text_of(reply.value) or "").rstrip()
    tails = _TAILS if is_least and finish_of(reply.value) == "length" else ("",)
    return next((value for tail in tails if (value := _value_in(text + tail, base)) is not _NO_ANSWER), _NO_ANSWER)


def _value_in(text: str, base: str) -> Any:
    with suppress(ValueError, RecursionError):
        document = json.loads(text)
        value = document.get("v", _NO_ANSWER) if isinstance(document, dict) else _NO_ANSWER
        if isinstance(value, type(_BASES[base].wanted)) and not isinstance(value, bool):
            return value
    return _NO_ANSWER
