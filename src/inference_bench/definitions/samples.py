"""What does one request give, under each convention: times from stamps and counts.

In:   a RequestRecord
Out:  samples in seconds; none where the convention has no value, MissingError where the record lacks what it needs
Read next by: rules.

p planned send, s actual send, f first chunk with a token in any channel, l last one, a first and z last chunk of the
answer, which is neither reasoning nor a tool call, e end of the reply; n output tokens, k those of the first chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TypeAlias

from inference_bench.metrics import (
    chunk_gaps_s,
    has_one_token_per_chunk,
    time_to_first_answer_s,
    times_in_channels,
    tpot_s,
)
from inference_bench.records import Channel, RequestRecord

Samples: TypeAlias = tuple[float, ...]


class MissingError(Exception):
    """The record does not keep what this convention needs; says what."""


def planned_to_first(record: RequestRecord) -> Samples:
    """From the plan to the first token: f - p."""
    return tuple(time_s - record.planned_s for time_s in record.chunk_times_s[:1])


def sent_to_first(record: RequestRecord) -> Samples:
    """From the send to the first token: f - s."""
    return tuple(time_s - record.sent_s for time_s in record.chunk_times_s[:1])


def planned_to_answer(record: RequestRecord) -> Samples:
    """From the plan to the first token of the answer: a - p."""
    found = time_to_first_answer_s(record)
    return () if found is None else (found,)


def sent_to_answer(record: RequestRecord) -> Samples:
    """From the send to the first token of the answer: a - s."""
    return tuple(time_s - record.sent_s for time_s in times_in_channels(record, Channel.CONTENT)[:1])


def sent_to_answer_or_call(record: RequestRecord) -> Samples:
    """From the send to the first token that is not reasoning."""
    return tuple(time_s - record.sent_s for time_s in times_in_channels(record, Channel.CONTENT, Channel.TOOL_CALL)[:1])


def sent_to_answer_of_several(record: RequestRecord) -> Samples:
    """From the send to the first token of the answer, where the answer has two tokens or more."""
    return sent_to_answer(record) if _is_several(record) else ()


def answer_pace(record: RequestRecord) -> Samples:
    """(z - a) / (n - 1)."""
    times_s = times_in_channels(record, Channel.CONTENT)
    count = counted_answer_tokens(record)
    return ((times_s[-1] - times_s[0]) / (count - 1),) if times_s and count > 1 else ()


def planned_to_last(record: RequestRecord) -> Samples:
    """From the plan to the last token: l - p."""
    return tuple(time_s - record.planned_s for time_s in record.chunk_times_s[-1:])


def sent_to_last(record: RequestRecord) -> Samples:
    """From the send to the last token: l - s."""
    return tuple(time_s - record.sent_s for time_s in record.chunk_times_s[-1:])


def sent_to_end(record: RequestRecord) -> Samples:
    """From the send to the end of the reply: e - s."""
    return (record.end_s - record.sent_s,) if record.chunk_times_s else ()


def own_pace(record: RequestRecord) -> Samples:
    """(l - f) / (n - k)."""
    counted_tokens(record)
    found = tpot_s(record)
    return () if found is None else (found,)


def pace(record: RequestRecord) -> Samples:
    """(l - f) / (n - 1)."""
    return _after_first(record, record.chunk_times_s[-1:], counted_tokens(record))


def pace_of_asked(record: RequestRecord) -> Samples:
    """(l - f) / (n - 1), n the requested number where the server counts none."""
    return _after_first(record, record.chunk_times_s[-1:], tokens_or_asked(record))


def pace_to_end(record: RequestRecord) -> Samples:
    """(e - f) / (n - 1)."""
    return _after_first(record, (record.end_s,), counted_tokens(record))


def pace_of_asked_to_end(record: RequestRecord) -> Samples:
    """(e - f) / (n - 1), n the requested number where the server counts none."""
    return _after_first(record, (record.end_s,), tokens_or_asked(record))


def each_token(record: RequestRecord) -> Samples:
    """(l - s) / n."""
    return _over(sent_to_last(record), counted_tokens(record))


def each_token_of_asked(record: RequestRecord) -> Samples:
    """(l - s) / n, n the requested number where the server counts none."""
    return _over(sent_to_last(record), tokens_or_asked(record))


def gaps(record: RequestRecord) -> Samples:
    """t[i + 1] - t[i], whatever a chunk holds."""
    return chunk_gaps_s(record)


def token_gaps(record: RequestRecord) -> Samples:
    """t[i + 1] - t[i] of requests in which every chunk is one token."""
    return chunk_gaps_s(record) if has_one_token_per_chunk(record) else ()


def gaps_and_zeros(record: RequestRecord) -> Samples:
    """t[j + 1] - t[j] over the tokens of the answer, which share the stamp of their chunk."""
    stamps: list[float] = []
    for time_s, count, letter in _chunks(record):
        if letter == Channel.CONTENT.letter:
            stamps += [time_s] * count
    return tuple(after - before for before, after in pairwise(stamps))


def counted_tokens(record: RequestRecord) -> int:
    """Output tokens as the server counts them.

    Raises:   MissingError
    """
    if record.output_tokens is None:
        raise MissingError("the server counts no tokens, and text to count again is not kept")
    return record.output_tokens


def counted_answer_tokens(record: RequestRecord) -> int:
    """Output tokens of the answer alone.

    Raises:   MissingError
    """
    if len(times_in_channels(record, Channel.CONTENT)) == len(record.chunk_times_s):
        return counted_tokens(record)
    return sum(count for _, count, letter in _chunks(record) if letter == Channel.CONTENT.letter)


def steps_after_first(record: RequestRecord) -> int:
    """Tokens that follow the first: n - 1, n the requested number where the server counts none.

    Raises:   MissingError
    """
    return max(0, tokens_or_asked(record) - 1)


def tokens_or_asked(record: RequestRecord) -> int:
    """Output tokens as the server counts them, else as many as were asked for, which may be wrong.

    Raises:   MissingError
    """
    count = record.requested_output_tokens if record.output_tokens is None else record.output_tokens
    return counted_tokens(record) if count is None else count


def tokens_in_chunks(record: RequestRecord) -> tuple[int, ...]:
    """The tokens of each chunk.

    Raises:   MissingError
    """
    if record.chunk_tokens:
        return record.chunk_tokens
    if has_one_token_per_chunk(record):
        return (1,) * len(record.chunk_times_s)
    raise MissingError("the server does not say how many tokens each chunk holds")


def _chunks(record: RequestRecord) -> Iterator[tuple[float, int, str]]:
    """Arrival, tokens and channel of each chunk.

    Raises:   MissingError
    """
    letters = record.channels or Channel.CONTENT.letter * len(record.chunk_times_s)
    return zip(record.chunk_times_s, tokens_in_chunks(record), letters, strict=True)


def _is_several(record: RequestRecord) -> bool:
    """Whether the answer has two tokens or more, where that is known."""
    if len(times_in_channels(record, Channel.CONTENT)) > 1:
        return True
    try:
        return counted_answer_tokens(record) > 1
    except MissingError:
        return False


def _after_first(record: RequestRecord, until_s: Samples, num_tokens: int) -> Samples:
    if num_tokens < 2 or not record.chunk_times_s:
        return ()
    return tuple((time_s - record.chunk_times_s[0]) / (num_tokens - 1) for time_s in until_s)


def _over(times_s: Samples, num_tokens: int) -> Samples:
    return tuple(time_s / num_tokens for time_s in times_s) if num_tokens > 0 else ()
