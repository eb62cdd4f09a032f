"""Do characters of several bytes come through whole, both ways?

In:   an opened Server
Out:  rows of the group text
Leaves out: whether the model writes sense
Read next by: flow.

A token may be part of a character. A server that sends each token's bytes at once breaks it; one that decodes each alone puts
U+FFFD in its place. The last character before the limit may be half there; it is not held against the server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from inference_bench.operate.contract.reading import Streamed, text_of, usage_count
from inference_bench.operate.contract.rows import Row, Verdict, yes_or_no
from inference_bench.operate.contract.server import Server
from inference_bench.operate.contract.wire import Stream

_PROMPTS: Final = ("\U0001f680\U0001f389\U0001f600" * 3, "日本語中文한국어" * 2)
_TOKENS: Final = 16
_LOST: Final = "\ufffd"
_LAST_BYTES: Final = 3  # of a character of four that is not whole
_BROKEN: Final = "hold back bytes until a character is whole, or use replies that are not streamed"


def characters(server: Server) -> Iterator[Row]:
    """What is streamed, then what is sent."""
    yield _streamed(server)
    bodies = [
        json.dumps(server.body(_PROMPTS[1], 1, {}), ensure_ascii=is_escaped).encode() for is_escaped in (True, False)
    ]
    counts = [usage_count(server.wire.ask("POST", server.path, body).value, "prompt_tokens") for body in bodies]
    if None in counts:
        yield Row("text.sent", Verdict.UNKNOWN, "the server gave no count of prompt tokens")
    else:
        is_same = counts[0] == counts[1]
        seen = f"{counts[0]} tokens escaped, {counts[1]} as UTF-8"
        yield Row(
            "text.sent", yes_or_no(is_same), seen, "" if is_same else "escape every character beyond ASCII in JSON"
        )


def _streamed(server: Server) -> Row:
    row_id = "text.streamed"
    num_wide = 0
    for prompt in _PROMPTS:
        found, said = server.streamed(f"Repeat: {prompt}", _TOKENS, cut_after=None)
        if found.status != 200:
            return Row(row_id, Verdict.UNKNOWN, server.words(found))
        damage = _damage(found, said)
        if damage is not None:
            return Row(row_id, Verdict.NO, damage, _BROKEN)
        num_wide += sum(char > "\x7f" and char != _LOST for char in said.text)
    if not num_wide:
        return _whole_only(server)
    return Row(row_id, Verdict.YES, f"{num_wide} characters beyond ASCII, each whole", figures={"characters": num_wide})


def _damage(found: Stream, said: Streamed) -> str | None:
    """What is broken in a stream, but for its last character."""
    num_invalid = sum(not _is_utf8(payload) for payload in found.payloads)
    if num_invalid:
        return f"{num_invalid} of {len(found.payloads)} events are not UTF-8"
    num_last = len(said.text) - len(said.text.rstrip(_LOST))
    num_lost = said.text.count(_LOST) - min(num_last, _LAST_BYTES)
    if num_lost:
        return f"{num_lost} characters came as U+FFFD"
    num_halves = sum("\ud800" <= char <= "\udfff" for char in said.text)
    return f"{num_halves} halves of a surrogate pair" if num_halves else None


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _whole_only(server: Server) -> Row:
    reply = server.generate(f"Repeat: {_PROMPTS[0]}", _TOKENS)
    num = sum(char > "\x7f" for char in text_of(reply.value) or "")
    seen = (
        "the model wrote no character beyond ASCII"
        if not num
        else f"{num} characters beyond ASCII came whole, none in a stream"
    )
    return Row("text.streamed", Verdict.UNKNOWN, seen)
