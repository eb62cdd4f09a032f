"""When were all requests of a set decoding at once: the stretch of time in which a gap is one step of the whole batch.

In:   RequestRecords of requests that were sent together
Out:  DecodeWindow: its gaps, its context, its rate
Leaves out: windows of a load that goes on (token_window)
Read next by: verify.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from inference_bench.metrics import has_one_token_per_chunk
from inference_bench.records import RequestRecord, RequestStatus


@dataclass(frozen=True, slots=True)
class DecodeWindow:
    """The time in which all of a set of requests were decoding and none was reading its prompt.

    Where:    gaps_s pools, over the streams, the chunk gaps that lie wholly in the window; with one token a chunk a
              gap is one decode step of the whole batch. mean_context_tokens is the mean, over those gaps, of the
              positions a stream attends to in that step. tokens_per_s adds up the streams' own rates
    Unit:     seconds, tokens; None where the tokens are not known one by one
    """

    begin_s: float
    end_s: float
    num_streams: int
    gaps_s: tuple[float, ...]
    one_token_per_chunk: bool
    mean_context_tokens: float | None
    tokens_per_s: float | None


def steady_decode_window(records: Sequence[RequestRecord]) -> DecodeWindow | None:
    """The window in which all these requests, sent together, are decoding at once.

    Formula:  from the latest first chunk to the earliest last chunk; the gap from chunk i to chunk i + 1 (from 0)
              attends to prompt tokens + i + 1 positions; tokens_per_s = sum over streams of gaps / their time
    Where:    None when the window holds no gap, or a request did not complete and so left the batch
    """
    if not records or any(record.status is not RequestStatus.COMPLETED for record in records):
        return None
    streams = [record.chunk_times_s for record in records]
    if not all(streams):
        return None
    begin_s, end_s = max(times[0] for times in streams), min(times[-1] for times in streams)
    inside = [_gaps_inside(times, begin_s, end_s) for times in streams]
    gaps_s = tuple(gap for gaps in inside for _, gap in gaps)
    if not gaps_s:
        return None
    is_per_token = all(map(has_one_token_per_chunk, records))
    return DecodeWindow(
        begin_s,
        end_s,
        len(records),
        gaps_s,
        is_per_token,
        _mean_context_tokens(records, inside) if is_per_token else None,
        _rate(inside) if is_per_token else None,
    )


def _gaps_inside(times_s: Sequence[float], begin_s: float, end_s: float) -> list[tuple[int, float]]:
    """(index of the chunk before, gap) for the gaps that lie in the window."""
    pairs = enumerate(pairwise(times_s))
    return [(i, after - before) for i, (before, after) in pairs if begin_s <= before and after <= end_s]


def _mean_context_tokens(
    records: Sequence[RequestRecord], inside: Sequence[Sequence[tuple[int, float]]]
) -> float | None:
    total = 0
    for record, gaps in zip(records, inside, strict=True):
        if record.prompt_tokens is None:
            return None
        total += sum(record.prompt_tokens + index + 1 for index, _ in gaps)
    return total / sum(map(len, inside))


def _rate(inside: Sequence[Sequence[tuple[int, float]]]) -> float | None:
    times_s = [sum(gap for _, gap in gaps) for gaps in inside]
    if min(times_s) <= 0:
        return None
    return sum(len(gaps) / time_s for gaps, time_s in zip(inside, times_s, strict=True))
