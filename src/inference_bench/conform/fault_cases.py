"""Replies that are not in order: errors, refusals, and streams that break off.

In:   the pen of script.py
Out:  cases in its table; a function's docstring is what a person reads about its case
Leaves out: what a client should say of them (oracle)
Read next by: server, suite.
"""

from __future__ import annotations

import json
from typing import Final

from inference_bench.conform.script import LAST_CHUNK, TOKENS, Ending, Script, Story, case, head, refusal

_HALF: Final = TOKENS // 2
_JSON: Final = "application/json"
_ERROR: Final = {"error": {"message": "the engine died", "type": "server_error", "code": 500}}
_IMPATIENT_S: Final = 0.5
_WAIT_S: Final = 0.02


def _said(message: str) -> bytes:
    return json.dumps({"error": {"message": message}}).encode()


@case()
def error_first() -> Script:
    """HTTP 200, and an error object as the only event."""
    return Story().event(_ERROR).raw(LAST_CHUNK).script()


@case()
def error_midway() -> Script:
    """HTTP 200, four tokens, an error object, [DONE]."""
    return Story().role().tokens(_HALF).event(_ERROR).done().script()


@case()
def error_event() -> Script:
    """The same under `event: error`, without [DONE]."""
    story = Story().role().tokens(_HALF)
    return story.text(b"event: error\n" + story.encode(_ERROR)).raw(LAST_CHUNK).script()


@case()
def error_after_finish() -> Script:
    """All tokens, the finish reason, and then an error object."""
    return Story().role().tokens().finish().event(_ERROR).done().script()


@case()
def reset_midway() -> Script:
    """The connection is reset after four tokens."""
    return Story().role().tokens(_HALF).script(Ending.RESET)


@case()
def ends_midway() -> Script:
    """The body ends in order after four tokens: no finish reason, no [DONE]."""
    return Story().role().tokens(_HALF).raw(LAST_CHUNK).script()


@case()
def closes_midway() -> Script:
    """The connection is closed inside the chunked body, after four tokens."""
    return Story().role().tokens(_HALF).script()


@case()
def until_close_midway() -> Script:
    """A body that ends with the connection, which closes after four tokens."""
    story = Story()
    for _ in range(_HALF):
        body = story.encode(story.chunk())
        story.tick().raw(body, body, 1)
    return story.script(top=head("200 OK", "Content-Type: text/event-stream", "Connection: close"))


@case()
def ends_after_finish() -> Script:
    """All tokens, finish reason and counts, and no [DONE]."""
    return Story().role().tokens().finish().usage().raw(LAST_CHUNK).script()


@case()
def reset_at_once() -> Script:
    """The connection is reset before a status line."""
    return Story().script(Ending.RESET, b"")


@case()
def broken_json() -> Script:
    """Four tokens, then an event that is cut off inside its JSON."""
    return Story().role().tokens(_HALF).event('{"choices": [{"ind').done().script()


@case()
def html() -> Script:
    """HTTP 200 with a web page."""
    return refusal("200 OK", b"<html><title>Sign in</title></html>", "text/html; charset=utf-8")


@case()
def json_error() -> Script:
    """HTTP 200 with an error as plain JSON instead of a stream."""
    return refusal("200 OK", _said("model not loaded"), _JSON)


@case()
def mislabelled_error() -> Script:
    """The same, called text/plain."""
    return refusal("200 OK", _said("model not loaded"), "text/plain")


@case()
def busy() -> Script:
    """HTTP 429 with Retry-After."""
    return refusal("429 Too Many Requests", _said("slow down"), _JSON, "Retry-After: 7")


@case()
def unavailable() -> Script:
    """HTTP 503 while the model loads."""
    return refusal("503 Service Unavailable", _said("loading model"), _JSON)


@case()
def too_long() -> Script:
    """HTTP 400: the prompt is too long."""
    return refusal("400 Bad Request", _said("the prompt exceeds the context"), _JSON)


@case()
def internal_error() -> Script:
    """HTTP 500."""
    return refusal("500 Internal Server Error", b"Traceback", "text/plain")


@case(timeout_s=_IMPATIENT_S)
def never_finishes() -> Script:
    """Four tokens, then silence."""
    return Story().role().tokens(_HALF).script(Ending.HANG)


@case(timeout_s=_IMPATIENT_S)
def only_keep_alives() -> Script:
    """Keep-alives for ever and never a token."""
    story = Story()
    for _ in range(100):
        story.text(b": ping\n\n").pause(_WAIT_S)
    return story.script(Ending.HANG)
