"""Where does a text end: at a stop string, at the limit, and what does the server call it?

In:   an opened Server
Out:  rows of the group stops
Leaves out: the limit itself (limits)
Read next by: flow.

Stop strings are cut out of what the model writes under greedy decoding when nothing stops it, so that each is sure to come up, and
the text before it is known to the letter.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final, NamedTuple

from inference_bench.operate.contract.reading import Streamed, finish_of, text_of, usage_count
from inference_bench.operate.contract.rows import Row, Verdict, yes_or_no
from inference_bench.operate.contract.server import COUNTING, Server
from inference_bench.operate.contract.wire import Reply

_TOKENS: Final = 24
_STOP_CHARS: Final = 5
_NEVER: Final = "\u2042\u2042\u2042"
_COUNT: Final = "completion_tokens"


class _Stop(NamedTuple):
    """A string that is sure to come up, and the text before it."""

    text: str
    before: str


def stops(server: Server) -> Iterator[Row]:
    """Stop strings in every form, then finish reasons."""
    found, said = server.streamed(COUNTING, _TOKENS)
    yield from _length(server)
    yield Row("stops.finish_filter", Verdict.UNKNOWN, "not exercised: nothing harmless is sure to provoke it")
    stop = _inside(said.text)
    if found.status != 200 or stop is None:
        return
    yield from _one(server, stop)
    several = server.generate(COUNTING, _TOKENS, stop=[_NEVER, stop.text])
    yield Row("stops.several", *_judged(server, several, stop))
    across = _across(said)
    if across is not None:
        yield _leak(server, across)
    yield _empty(server, said.text)


def _inside(text: str) -> _Stop | None:
    """A piece from the middle of a text, that does not come earlier in it."""
    for start in range(len(text) // 3, len(text) - _STOP_CHARS):
        piece = text[start : start + _STOP_CHARS]
        if piece == piece.strip() and text.find(piece) == start:
            return _Stop(piece, text[:start])
    return None


def _across(said: Streamed) -> _Stop | None:
    """The last two characters of one piece of a stream and the first two of the next."""
    text = said.text
    for end in list(accumulate(map(len, said.pieces)))[2:-1]:
        piece = text[end - 2 : end + 2]
        if len(piece) == 4 and text.find(piece) == end - 2:
            return _Stop(piece, text[: end - 2])
    return None


def _one(server: Server, stop: _Stop) -> Iterator[Row]:
    reply = server.generate(COUNTING, _TOKENS, stop=stop.text)
    verdict, seen, action = _judged(server, reply, stop)
    yield Row("stops.string", verdict, seen, action)
    text = text_of(reply.value) or ""
    if verdict is not Verdict.YES and verdict is not Verdict.PARTLY:
        yield Row("stops.left_out", Verdict.UNKNOWN, "no stop string was honoured")
        return
    is_out = not text.endswith(stop.text)
    seen = "the text ends before it" if is_out else "the text ends with it"
    yield Row("stops.left_out", yes_or_no(is_out), seen, "" if is_out else "cut the stop string off the text yourself")
    finish = finish_of(reply.value)
    action = "" if finish == "stop" else "do not rely on finish_reason to tell a stop from the limit"
    yield Row("stops.finish_stop", yes_or_no(finish == "stop"), f"finish_reason {finish or 'absent'}", action)


def _judged(server: Server, reply: Reply, stop: _Stop) -> tuple[Verdict, str, str]:
    """Whether the text ends at the stop string: yes without it, partly with it."""
    cut = "cut texts at stop strings yourself"
    if not reply.is_ok:
        return Verdict.NO, server.words(reply), cut
    text = text_of(reply.value) or ""
    if text.rstrip() == stop.before.rstrip():
        return Verdict.YES, "the text ends where it should", ""
    if text == stop.before + stop.text:
        return Verdict.YES, "the text ends after the stop string", ""
    if stop.text in text:
        return Verdict.NO, "the text goes on beyond it", cut
    return Verdict.UNKNOWN, "another text than before came: it is not known whether the stop string was in it", ""


def _leak(server: Server, stop: _Stop) -> Row:
    row_id = "stops.across_chunks"
    found, said = server.streamed(COUNTING, _TOKENS, stop=[stop.text])
    if found.status != 200:
        return Row(row_id, Verdict.NO, server.words(found), "cut texts at stop strings yourself")
    if said.text.rstrip() == stop.before.rstrip():
        return Row(row_id, Verdict.YES, "the stream ends before it")
    kept = len(said.text) - len(stop.before)
    if stop.before + stop.text[:kept] == said.text and 0 < kept <= len(stop.text):
        seen = f"{kept} of its {len(stop.text)} characters were sent"
        return Row(
            row_id,
            Verdict.PARTLY,
            seen,
            "hold back as many characters as the longest stop string has",
            {"leaked": kept},
        )
    if stop.text in said.text:
        return Row(row_id, Verdict.NO, "the stream goes on beyond it", "cut texts at stop strings yourself")
    return Row(row_id, Verdict.UNKNOWN, "another text than before came")


def _empty(server: Server, baseline: str) -> Row:
    row_id, action = "stops.empty", "send no empty stop string"
    reply = server.generate(COUNTING, _TOKENS, stop=[""])
    if not reply.is_ok:
        verdict = Verdict.YES if reply.status in (400, 422) else Verdict.NO
        return Row(row_id, verdict, f"refused, {server.words(reply)}", action)
    text = text_of(reply.value) or ""
    if text == baseline:
        return Row(row_id, Verdict.YES, "it is ignored")
    seen = (
        f"the text ends after {len(text)} characters" if baseline.startswith(text) else "another text than before came"
    )
    return Row(row_id, Verdict.NO if baseline.startswith(text) else Verdict.UNKNOWN, seen, action)


def _length(server: Server) -> Iterator[Row]:
    """At the limit; and whether length is said of a text that did not reach it."""
    reply = server.generate(COUNTING, 5)
    finish, num = finish_of(reply.value), usage_count(reply.value, _COUNT)
    seen = f"finish_reason {finish or 'absent'} after {'an unknown number of' if num is None else num} of 5 tokens"
    if not reply.is_ok:
        yield Row("stops.finish_length", Verdict.UNKNOWN, server.words(reply))
        return
    if num is not None and num < 5 and finish != "length":
        yield Row("stops.finish_length", Verdict.UNKNOWN, f"{seen}: it ended by itself", figures=_figures(num))
        return
    is_right = finish == "length" and (num is None or num >= 5)
    action = "" if is_right else "compare the count of tokens with the limit instead"
    yield Row("stops.finish_length", yes_or_no(is_right), seen, action, _figures(num))


def _figures(num: int | None) -> dict[str, Any]:
    return {"completion_tokens": num}
