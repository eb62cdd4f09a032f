"""Which field bounds the output, and which one wins?

In:   an opened Server
Out:  rows of the group limits
Leaves out: the length of the context (context)
Read next by: flow.

A field that is ignored would let the server write on, so each is asked in a stream that is closed once it is plainly too long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from inference_bench.operate.contract.reading import Streamed
from inference_bench.operate.contract.rows import Row, Verdict
from inference_bench.operate.contract.server import COUNTING, LIMIT_FIELDS, MANY_PIECES, Server
from inference_bench.operate.contract.wire import Stream

_ASKED: Final = 6
_FEWER, _MORE = 4, 8
_INCLUDE_USAGE: Final = {"include_usage": True}


def limits(server: Server) -> Iterator[Row]:
    """Each field alone, then two together."""
    nothing: dict[str, int | None] = dict.fromkeys(LIMIT_FIELDS)
    for name in LIMIT_FIELDS:
        yield _alone(server, name, *_ask(server, {**nothing, name: _ASKED}))
    yield _both(server, *_ask(server, {**nothing, "max_tokens": _FEWER, "max_completion_tokens": _MORE}))


def _ask(server: Server, fields: dict[str, Any]) -> tuple[Stream, Streamed]:
    found, said = server.streamed(COUNTING, **fields, stream_options=_INCLUDE_USAGE)
    if found.status == 400:
        found, said = server.streamed(COUNTING, **fields)
    return found, said


def _alone(server: Server, name: str, found: Stream, said: Streamed) -> Row:
    row_id = f"limits.{name}"
    other = "" if server.limit_field == name else f"send {server.limit_field} instead"
    if found.status != 200:
        return Row(row_id, Verdict.NO, server.words(found), other)
    if found.was_cut:
        seen = f"asked for {_ASKED} tokens, more than {MANY_PIECES} pieces came; the stream was closed"
        return Row(row_id, Verdict.NO, seen, other or "bound the output by closing the stream")
    num = said.count("completion_tokens")
    if num is None:
        num_pieces = len(said.pieces)
        if num_pieces > _ASKED:
            return Row(row_id, Verdict.NO, f"asked for {_ASKED} tokens, {num_pieces} pieces came", other)
        if said.finish == "length" and num_pieces:
            seen = f"{num_pieces} pieces and finish_reason length; the server gave no count"
            return Row(row_id, Verdict.YES, seen, figures={"pieces": num_pieces})
        return Row(row_id, Verdict.UNKNOWN, "the server gave no count of tokens")
    seen = f"asked for {_ASKED} tokens, {num} came, finish_reason {said.finish or 'absent'}"
    if num == _ASKED:
        return Row(row_id, Verdict.YES, seen, figures={"completion_tokens": num})
    verdict = Verdict.NO if num > _ASKED else Verdict.UNKNOWN
    return Row(row_id, verdict, seen, other if verdict is Verdict.NO else "", {"completion_tokens": num})


def _both(server: Server, found: Stream, said: Streamed) -> Row:
    row_id = "limits.both"
    if found.status != 200:
        return Row(row_id, Verdict.NO, server.words(found), "send only one of the two")
    num = None if found.was_cut else said.count("completion_tokens")
    if found.was_cut:
        return Row(
            row_id, Verdict.NO, "neither of the two bounded the output", "bound the output by closing the stream"
        )
    if num is None:
        return Row(row_id, Verdict.UNKNOWN, "the server gave no count of tokens")
    winner = {_FEWER: "max_tokens (or the smaller) wins", _MORE: "max_completion_tokens (or the larger) wins"}.get(num)
    seen = f"{num} tokens came: {winner or 'neither'}"
    return Row(
        row_id, Verdict.YES if winner else Verdict.UNKNOWN, seen, "send only one of the two", {"completion_tokens": num}
    )
