"""What becomes of a prompt that is too long: an error that says so, or a prompt that is silently cut?

In:   an opened Server
Out:  rows of the group context
Leaves out: finding the limit of a server that does not state it, which could cost the work of a million tokens
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inference_bench.engines.answers import inside
from inference_bench.operate.contract.reading import usage_count
from inference_bench.operate.contract.rows import Row, Verdict, yes_or_no
from inference_bench.operate.contract.server import Server
from inference_bench.operate.contract.wire import Reply
from inference_bench.units import format_count

_WORD: Final = "apple "
_BEYOND: Final = 1.25
_MOST_WORDS: Final = 400_000
_LIMIT_WORDS: Final = ("context", "length", "too long", "maximum", "token", "exceed")


def context(server: Server) -> Iterator[Row]:
    """A prompt of more words than the context has tokens; a word is a token or more."""
    stated = server.context_tokens
    seen = "not stated" if stated is None else f"{format_count(stated)} tokens"
    action = "state the context length, so that a prompt beyond it can be tried" if stated is None else ""
    yield Row("context.stated", yes_or_no(stated is not None), seen, action, {"context_tokens": stated})
    num_words = 0 if stated is None else int(stated * _BEYOND) + 16
    if not 0 < num_words <= _MOST_WORDS:
        why = "no context length is known" if stated is None else "the context is too long to overrun here"
        yield Row("context.error", Verdict.UNKNOWN, why)
        yield Row("context.not_truncated", Verdict.UNKNOWN, why)
        return
    reply = server.generate(_WORD * num_words, 2)
    yield _error(server, reply)
    yield _truncated(reply, num_words)


def _error(server: Server, reply: Reply) -> Row:
    row_id = "context.error"
    if reply.is_ok:
        return Row(row_id, Verdict.NO, "it was taken", "count prompts yourself before you send them")
    said = server.words(reply)
    kind = inside(reply.value, "error", "type") or inside(reply.value, "error", "code")
    words = f"{said} {kind}".lower()
    is_clear = 400 <= reply.status < 500 and any(word in words for word in _LIMIT_WORDS)
    seen = f"{said}{f' ({str(kind)[:40]})' if kind else ''}"
    if is_clear:
        return Row(row_id, Verdict.YES, seen, figures={"status": reply.status})
    verdict = Verdict.PARTLY if 400 <= reply.status < 500 else Verdict.NO
    return Row(row_id, verdict, seen, "count prompts yourself before you send them", {"status": reply.status})


def _truncated(reply: Reply, num_words: int) -> Row:
    row_id = "context.not_truncated"
    if not reply.is_ok:
        return Row(row_id, Verdict.YES, "it was refused whole")
    num = usage_count(reply.value, "prompt_tokens")
    if num is None:
        return Row(row_id, Verdict.UNKNOWN, "it was taken, and the server gave no count of its tokens")
    seen = f"sent {format_count(num_words)} tokens or more, {format_count(num)} were counted"
    if num < num_words:
        action = "count prompts yourself: what is too long is cut without an error"
        return Row(row_id, Verdict.NO, seen, action, {"prompt_tokens": num, "sent_tokens": num_words})
    return Row(row_id, Verdict.YES, seen, "the context is longer than stated", {"prompt_tokens": num})
