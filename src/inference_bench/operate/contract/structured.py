"""Which ways of asking for JSON bind the output?

In:   an opened Server
Out:  rows of the group structured: the ways here, the keywords of a schema by `keywords`
Leaves out: how good the documents are
Read next by: flow.

Each is asked beside a prompt that asks for something else. A server that ignores a field then writes what the prompt says, and is
not taken for one that honours it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from inference_bench.operate.contract.keywords import keyword_rows
from inference_bench.operate.contract.reading import finish_of, text_of
from inference_bench.operate.contract.rows import Row, Verdict
from inference_bench.operate.contract.server import GREETING, Server
from inference_bench.operate.contract.wire import Reply

_TOKENS: Final = 32
_CUT_TOKENS: Final = 16  # of an object, whose beginning is enough
_ODD: Final = ("zq7", "zq8")
_SCHEMA: Final = {
    "type": "object",
    "properties": {"v": {"type": "string", "enum": list(_ODD)}},
    "required": ["v"],
    "additionalProperties": False,
}
_GRAMMAR: Final = f'root ::= "{_ODD[0]}" | "{_ODD[1]}"'
_OTHER_WAY: Final = "use another way of asking for JSON, and check documents yourself"


def schema_fields(way: str, schema: Mapping[str, object]) -> dict[str, Any]:
    """The body fields that ask for documents of a schema."""
    if way == "json_schema":
        asked = {"name": "answer", "strict": True, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": asked}}
    return {"guided_json": schema} if way == "guided_json" else {"structured_outputs": {"json": schema}}


def structured(server: Server) -> Iterator[Row]:
    """Every way of asking; then the keywords, by the first way that binds."""
    yield _json_object(server)
    working = None
    for way in ("json_schema", "guided_json", "structured_outputs"):
        row = _schema(server, way)
        working = working or (way if row.verdict is Verdict.YES else None)
        yield row
    yield _grammar(server)
    if working is not None and not server.is_quick:
        yield from keyword_rows(server, lambda schema: schema_fields(working, schema))


def document_in(reply: Reply) -> Any:
    """The JSON that a reply's text is, None where it is none."""
    with suppress(ValueError, RecursionError):
        return json.loads(text_of(reply.value) or "")
    return None


def _json_object(server: Server) -> Row:
    row_id = "structured.json_object"
    reply = server.generate(f"{GREETING} Use no JSON.", _CUT_TOKENS, response_format={"type": "json_object"})
    if not reply.is_ok:
        return Row(row_id, Verdict.NO, server.words(reply), _OTHER_WAY)
    if isinstance(document_in(reply), dict):
        return Row(row_id, Verdict.YES, "a whole JSON object came")
    text = (text_of(reply.value) or "").lstrip()
    if text.startswith("{") and finish_of(reply.value) == "length":
        seen = f"a JSON object began, and the limit of {_CUT_TOKENS} tokens cut it"
        return Row(row_id, Verdict.YES, seen, "leave room: at the limit the object is cut and cannot be parsed")
    return Row(row_id, Verdict.NO, "taken without an error, and plain text came", _OTHER_WAY)


def _schema(server: Server, way: str) -> Row:
    row_id = f"structured.{way}"
    reply = server.generate(GREETING, _TOKENS, **schema_fields(way, _SCHEMA))
    if not reply.is_ok:
        return Row(row_id, Verdict.NO, server.words(reply), _OTHER_WAY)
    document = document_in(reply)
    if isinstance(document, dict) and document.get("v") in _ODD:
        return Row(row_id, Verdict.YES, "a document of the schema came")
    if isinstance(document, dict):
        return Row(
            row_id,
            Verdict.PARTLY,
            "JSON came, but not of the schema",
            "check every document against its schema yourself",
        )
    text = (text_of(reply.value) or "").lstrip()
    if text.startswith("{") and finish_of(reply.value) == "length":
        return Row(row_id, Verdict.UNKNOWN, f"JSON began, and the limit of {_TOKENS} tokens cut it")
    return Row(row_id, Verdict.NO, "taken without an error, and ignored", _OTHER_WAY)


def _grammar(server: Server) -> Row:
    row_id = "structured.grammar"
    reply = server.generate(GREETING, 8, grammar=_GRAMMAR)
    if not reply.is_ok:
        return Row(row_id, Verdict.NO, server.words(reply), "use a schema instead")
    if (text_of(reply.value) or "").strip() in _ODD:
        return Row(row_id, Verdict.YES, "a text of the grammar came")
    return Row(row_id, Verdict.NO, "taken without an error, and ignored", "use a schema instead")
