"""Replies that are in order, cut into bytes in every way that the standards allow.

In:   the pen of script.py
Out:  cases in its table; a function's docstring is what a person reads about its case
Leaves out: what the events hold (shape_cases), what goes wrong (fault_cases)
Read next by: server, suite.
"""

from __future__ import annotations

from typing import Final

from inference_bench.conform.script import GAP_S, LAST_CHUNK, LF, TOKENS, Script, Story, case, framed, head
from inference_bench.units import KIBI

_STREAM: Final = "Content-Type: text/event-stream"
_LATE_S: Final = 0.3
_BYTE_S: Final = 0.00005
_HUGE_CHARS: Final = 300 * KIBI
_FEW_S: Final = 0.002


@case()
def crlf() -> Script:
    """Lines end in CRLF."""
    return Story(line_end=b"\r\n").role().tokens().close().script()


@case()
def bare_cr() -> Script:
    """Lines end in CR alone."""
    return Story(line_end=b"\r").role().tokens().close().script()


@case()
def comments() -> Script:
    """Comments and keep-alives between events."""
    story = Story().text(b": welcome\n\n").role()
    for _ in range(TOKENS):
        story.tick().text(b": ping\n\n").event(story.chunk(), 1).text(b":\n\n")
    return story.close().script()


@case()
def comments_then_late_token() -> Script:
    """Keep-alives for 300 ms, then the first token."""
    story = Story()
    while story.now_s < _LATE_S - 2 * GAP_S:
        story.text(b": keep-alive\n\n").pause(GAP_S)
    return story.tokens().close().script()


@case()
def other_fields() -> Script:
    """event:, id: and retry: lines around data."""
    return Story(field=b"event: message\nid: 7\nretry: 10\ndata: ").role().tokens().close().script()


@case()
def no_space() -> Script:
    """data: without a space."""
    return Story(field=b"data:").role().tokens().close().script()


@case()
def multi_line_data() -> Script:
    """One payload over three data lines."""
    story = Story().role()
    for _ in range(TOKENS):
        body = story.encode('{"choices":\n[{"index": 0, "delta":\n{"content": " a"}, "finish_reason": null}]}')
        story.tick().text(body, 1)
    return story.close().script()


@case()
def byte_order_mark() -> Script:
    """A byte-order mark before the first event."""
    return Story().text(b"\xef\xbb\xbf").tokens().close().script()


@case()
def trickle() -> Script:
    """Every byte in a send of its own."""
    story = Story().role()
    for _ in range(TOKENS):
        story.tick()
        due_s, body = story.now_s, story.encode(story.chunk())
        wire = framed(body)
        for index in range(len(wire) - 1):
            story.raw(wire[index : index + 1]).pause(_BYTE_S)
        story.raw(wire[-1:], body, 1).now_s = due_s
    story.now_s += GAP_S
    return story.close().script()


@case()
def huge_line() -> Script:
    """One event of 300 KiB among the small ones."""
    story = Story().role().tokens(TOKENS - 1)
    return story.tick().event(story.chunk(padding="x" * _HUGE_CHARS), 1).close().script()


@case()
def json_split() -> Script:
    """The JSON of every event cut over two HTTP chunks and sends."""
    story = Story().role()
    for _ in range(TOKENS):
        body = story.encode(story.chunk())
        half = len(body) // 2
        story.tick().text(body[:half]).pause(_FEW_S).text(body[half:], 1).pause(-_FEW_S)
    return story.pause(_FEW_S).close().script()


@case()
def utf8_split() -> Script:
    """Characters cut in the middle by the end of a send."""
    story = Story().role()
    for _ in range(TOKENS):
        body = story.encode(story.chunk("\N{LLAMA}"))
        cut = body.index("\N{LLAMA}".encode()) + 2
        story.tick().text(body[:cut]).pause(_FEW_S).text(body[cut:], 1).pause(-_FEW_S)
    return story.pause(_FEW_S).close().script()


@case()
def chunk_size_split() -> Script:
    """The size line of every HTTP chunk cut by the end of a send."""
    story = Story().role()
    for _ in range(TOKENS):
        body = story.encode(story.chunk())
        wire = framed(body)
        story.tick().raw(wire[:1]).pause(_FEW_S).raw(wire[1:], body, 1).pause(-_FEW_S)
    return story.pause(_FEW_S).close().script()


@case()
def until_close() -> Script:
    """No chunked coding and no length: the body ends with the connection."""
    story = Story()
    for _ in range(TOKENS):
        body = story.encode(story.chunk())
        story.tick().raw(body, body, 1)
    closing = story.encode(story.chunk("", "length")) + story.encode("[DONE]")
    return story.raw(closing, closing).script(top=head("200 OK", _STREAM, "Connection: close"))


@case()
def extensions_and_trailers() -> Script:
    """Chunk extensions, and trailers after the last chunk."""
    story = Story()
    for _ in range(TOKENS):
        body = story.encode(story.chunk())
        story.tick().raw(framed(body, b";seen=1"), body, 1)
    return story.finish().usage().event("[DONE]").raw(b"0\r\nX-Took: 1\r\n\r\n").script()


@case()
def early_hints() -> Script:
    """An informational reply (HTTP 103) before the real one."""
    return Story().role().tokens().close().script(top=head("103 Early Hints", "Link: </a>") + head())


@case()
def false_keep_alive() -> Script:
    """The server promises keep-alive and closes."""
    lines = (_STREAM, "Transfer-Encoding: chunked", "Connection: keep-alive", "Keep-Alive: timeout=60")
    return Story().role().tokens().close().script(top=head("200 OK", *lines))


@case()
def two_events_a_send() -> Script:
    """Two events in each send, as when the server falls behind."""
    story = Story().role()
    body = story.encode(story.chunk()) * 2
    for _ in range(TOKENS // 2):
        story.tick().text(body, 1, 1)
    return story.close().script()


@case()
def blank_lines() -> Script:
    """Empty events and further blank lines between events."""
    story = Story().text(LF * 3).role()
    for _ in range(TOKENS):
        story.tick().event(story.chunk(), 1).text(b"\n\nevent: ping\n\ndata:\n\n")
    return story.finish().usage().event("[DONE]").raw(LAST_CHUNK).script()
