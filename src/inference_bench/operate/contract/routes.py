"""Which routes are there, and who may use them?

In:   an opened Server
Out:  rows of the group routes
Leaves out: what the routes do
Read next by: flow.

A POST has an empty body, which no route accepts: a 404, 405 or 501 says that the route is not there, anything else that it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inference_bench.engines.answers import inside
from inference_bench.operate.contract.rows import Row, Verdict, yes_or_no
from inference_bench.operate.contract.server import Server
from inference_bench.operate.contract.wire import Reply

_GETS: Final = {
    "routes.health": "/health",
    "routes.metrics": "/metrics",
    "routes.props": "/props",
    "routes.slots": "/slots",
    "routes.version": "/version",
}
_POSTS: Final = {
    "routes.chat": "/v1/chat/completions",
    "routes.completions": "/v1/completions",
    "routes.embeddings": "/v1/embeddings",
    "routes.responses": "/v1/responses",
    "routes.messages": "/v1/messages",
    "routes.tokenize": "/tokenize",
    "routes.apply_template": "/apply-template",
    "routes.llama_cpp": "/completion",
    "routes.sglang": "/generate",
}
_ACTIONS: Final = {
    "routes.models": "name the model in every request yourself",
    "routes.chat": "render chats yourself and use /v1/completions",
    "routes.completions": "use /v1/chat/completions",
    "routes.health": "probe liveness with a request for one token",
    "routes.metrics": "turn the server's metrics on, or watch it from its clients",
}
_WRONG_KEY: Final = "inference-bench-check-not-a-key"
_NOT_STARTED: Final = 501
_ABSENT: Final = (404, 405)
_REFUSED: Final = (401, 403)


def routes(server: Server) -> Iterator[Row]:
    """Every route that somebody may have used elsewhere."""
    entries = inside(server.listed, "data")
    num_models = len(entries) if isinstance(entries, list) else 0
    yield _row("routes.models", Verdict.YES if num_models else Verdict.NO, f"{num_models} listed")
    for row_id, path in _POSTS.items():
        yield _route(row_id, server.wire.ask("POST", path, b""))
    for row_id, path in _GETS.items():
        yield _route(row_id, server.get(path))


def keys(server: Server) -> Iterator[Row]:
    """Whether a key is asked for, and read."""
    open_to_all = "whoever reaches the address may use it: put a gateway or a key in front"
    is_asked = False
    for row_id, key in (("routes.absent_key", None), ("routes.wrong_key", _WRONG_KEY)):
        reply = server.wire.ask("POST", server.path, b"", key=key)
        is_refused = reply.status in _REFUSED
        none_asked = key is not None and not is_asked and not is_refused
        seen = f"HTTP {reply.status}{': no key is asked for' if none_asked else ''}"
        yield Row(row_id, yes_or_no(is_refused), seen, "" if is_refused or none_asked else open_to_all)
        is_asked = is_asked or is_refused


def _route(row_id: str, reply: Reply) -> Row:
    seen = f"HTTP {reply.status}"
    if reply.status in _ABSENT or reply.content_type == "text/html" or 300 <= reply.status < 400:
        return _row(row_id, Verdict.NO, seen)
    if reply.status == _NOT_STARTED:
        return Row(row_id, Verdict.NO, f"{seen}: known, but not as this server was started")
    if reply.status in (502, 503, 504):
        return Row(row_id, Verdict.UNKNOWN, seen, "ask again when the server is ready")
    return _row(row_id, Verdict.YES, f"{seen} to an empty request" if reply.status != 200 else seen)


def _row(row_id: str, verdict: Verdict, seen: str) -> Row:
    return Row(row_id, verdict, seen, "" if verdict is Verdict.YES else _ACTIONS.get(row_id, ""))
