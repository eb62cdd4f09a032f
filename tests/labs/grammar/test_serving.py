"""A server that keeps to schemas, ignores one keyword and refuses another: all of it is said."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from inference_bench.labs.grammar.request import GrammarRequest
from inference_bench.labs.grammar.result import Outcome, ServerRun
from inference_bench.labs.grammar.serving import ask_server
from inference_bench.labs.grammar.tasks import prepare

for package in ("llguidance", "jsonschema"):
    pytest.importorskip(package)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: list[dict[str, Any]] = []  # noqa: RUF012 - read by the test

    def log_message(self, *_: Any) -> None:
        return

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        inner = json.dumps(schema)
        if schema is not None and '"not"' in inner:
            self._answer(
                400, json.dumps({"error": {"message": "keyword not is not supported"}}).encode(), "application/json"
            )
            return
        text, reason = "Sure! Here you are", "length"
        if schema is not None:
            text, reason = ('{"a": [1, 1]}' if "uniqueItems" in inner else '{"n":7}'), "stop"
        self._answer(200, b"".join(self._events(text, reason)), "text/event-stream")

    def _events(self, text: str, reason: str) -> Iterator[bytes]:
        for piece in (text[:4], text[4:]):
            yield self._event({"choices": [{"index": 0, "delta": {"content": piece}}]})
        usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
        yield self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        yield self._event({"choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"

    def _event(self, payload: dict[str, Any]) -> bytes:
        return (
            f"data: {json.dumps({'id': 'x', 'object': 'chat.completion.chunk', 'model': 'm', **payload})}\n\n".encode()
        )

    def _answer(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture(scope="module")
def found() -> Iterator[ServerRun]:
    Handler.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        schema = {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
            "additionalProperties": False,
        }
        tasks = prepare(GrammarRequest(schema=schema))
        yield ask_server(
            f"http://127.0.0.1:{server.server_port}", "a server", True, "m", tasks, 32, True, lambda _: None
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_documents_are_judged_with_the_constraint_and_without(found: ServerRun) -> None:
    masked, free = found.ways
    assert (masked.num_documents, masked.num_valid, masked.num_truncated, masked.valid_fraction) == (1, 1, 0, 1.0)
    assert (free.num_documents, free.num_valid, free.num_truncated, free.valid_fraction) == (1, 0, 1, 0.0)
    assert masked.num_tokens == free.num_tokens == 5


def test_the_schema_is_sent_with_the_constraint_alone_and_the_budget_always(found: ServerRun) -> None:
    schemas = [body.get("response_format", {}).get("json_schema", {}).get("schema", {}) for body in Handler.asked]
    assert [list(schema.get("properties", {})) for schema in schemas[:2]] == [["n"], []]
    assert {body["max_tokens"] for body in Handler.asked[:2]} == {32}


def test_what_a_server_makes_of_a_keyword_is_told_from_its_answer(found: ServerRun) -> None:
    outcomes = {each.keyword: each for each in found.keywords}
    assert outcomes["uniqueItems"].outcome is Outcome.IGNORED
    assert outcomes["not"].outcome is Outcome.REFUSED
    assert "HTTP 400: keyword not is not" in outcomes["not"].answer
