"""What does a stream look like, and who counts its tokens?

In:   an opened Server
Out:  rows of the group streaming
Leaves out: characters cut in two (characters), stop strings (stops)
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from inference_bench.operate.contract.reading import Streamed, choice_of, text_of, usage_count
from inference_bench.operate.contract.rows import Row, Verdict, yes_or_no
from inference_bench.operate.contract.server import COUNTING, Server
from inference_bench.operate.contract.wire import Stream

_TOKENS: Final = 12
_COUNT: Final = "completion_tokens"


def streaming(server: Server) -> Iterator[Row]:
    """The shape of a stream, its usage in each way of asking, and the same request unstreamed."""
    found, said = server.streamed(COUNTING, _TOKENS)
    if not found.is_stream:
        seen = server.words(found) if found.status != 200 else f"one reply of type {found.content_type or 'none'}"
        yield Row("streaming.events", Verdict.NO, seen[:90], "do without streams: there is no time to first token")
        return
    yield from _shape(found, said)
    whole = server.generate(COUNTING, _TOKENS)
    is_same = None if not whole.is_ok else said.text == text_of(whole.value)
    action = "find out which of the two is wrong: under greedy decoding they should agree" if is_same is False else ""
    seen = {True: "the same", False: "differs", None: server.words(whole)}[is_same]
    yield Row("streaming.same_text", yes_or_no(is_same), seen, action)
    num = usage_count(whole.value, _COUNT)
    seen = "no usage" if num is None else f"usage says {num} completion tokens"
    yield Row(
        "streaming.usage_whole",
        yes_or_no(num is not None),
        seen,
        "" if num is not None else "count with a tokenizer of your own",
    )
    yield from _usage(server, said)


def _shape(found: Stream, said: Streamed) -> Iterator[Row]:
    broken = f", {said.num_broken} not JSON" if said.num_broken else ""
    seen = f"{found.content_type}, {len(said.values)} events{broken}"
    yield Row("streaming.events", Verdict.NO if broken else Verdict.YES, seen)
    first = said.values[0] if said.values else None
    is_role = bool(choice_of(first)) and not text_of(first)
    action = "do not take the first chunk for the first token" if is_role else ""
    yield Row(
        "streaming.role_chunk", yes_or_no(is_role), "it has no text" if is_role else "it has text already", action
    )
    textless = [value for value in said.values[1:] if choice_of(value) and not text_of(value)]
    num_kept = len([value for value in textless if choice_of(value).get("finish_reason") is None])
    skips = "skip chunks without text when you time or count tokens"
    seen = f"{len(textless)} more without text, {len(textless) - num_kept} of them with a finish_reason"
    yield Row("streaming.empty_chunks", yes_or_no(not num_kept), seen, skips if num_kept else "")
    seen = "[DONE] came" if found.is_done else "the stream just ended"
    yield Row(
        "streaming.done",
        yes_or_no(found.is_done),
        seen,
        "" if found.is_done else "end at the finish_reason, not at [DONE]",
    )
    seen = "the server closed it" if found.closed_after else "kept open"
    action = (
        "connect anew after a stream, and retry a lost connection before its first byte" if found.closed_after else ""
    )
    yield Row("streaming.keeps_connection", yes_or_no(not found.closed_after), seen, action)
    verdict = Verdict.YES if found.num_comments else Verdict.UNKNOWN
    yield Row("streaming.comments", verdict, f"{found.num_comments} in a short stream")


def _usage(server: Server, unasked: Streamed) -> Iterator[Row]:
    num = unasked.count(_COUNT)
    seen = "no usage" if num is None else f"usage says {num} completion tokens"
    yield Row(
        "streaming.usage_unasked",
        yes_or_no(num is not None),
        seen,
        "" if num is not None else "ask with stream_options.include_usage",
    )
    yield _asked(server, "streaming.include_usage", {"include_usage": True})
    yield _asked(server, "streaming.continuous_usage", {"include_usage": True, "continuous_usage_stats": True})


def _asked(server: Server, row_id: str, options: dict[str, Any]) -> Row:
    found, said = server.streamed(COUNTING, _TOKENS, stream_options=options)
    if found.status != 200:
        return Row(row_id, Verdict.NO, server.words(found), "leave it out, and count with a tokenizer of your own")
    counted = [value for value in said.values if usage_count(value, _COUNT) is not None]
    num = said.count(_COUNT)
    if row_id == "streaming.include_usage":
        where = (
            "in a chunk of its own, without choices"
            if counted and not choice_of(counted[-1])
            else "in a chunk with choices"
        )
        seen = "no usage" if num is None else f"{num} completion tokens, {where}"
        is_so = num is not None
        action = "" if is_so else "count with a tokenizer of your own: chunks are not tokens"
        return Row(row_id, yes_or_no(is_so), seen, action, {"completion_tokens": num})
    with_text = [value for value in said.values if text_of(value)]
    num_counted = len([value for value in with_text if usage_count(value, _COUNT) is not None])
    seen = f"{num_counted} of {len(with_text)} chunks with text hold a count"
    is_so = bool(with_text) and num_counted == len(with_text)
    return Row(row_id, yes_or_no(is_so), seen, "" if is_so else "a stream that breaks off leaves its tokens uncounted")
