"""What went on between two moments, whatever requests were under way: tokens, gaps and concurrency of a steady window.

In:   RequestRecords of every stage, an interval of the run's clock
Out:  TokenWindow; the interval itself, where nobody named one
Leaves out: what requests as a whole took (metrics)
Read next by: loadtest, report.

A window that takes whole requests counts some that began before it, or loses some that end after it, and either way its
throughput is off by the requests at its edges. Here each token belongs to the moment it arrived, so the ramp before the
window and the drain after it touch nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.metrics import Objective, Percentiles, has_one_token_per_chunk, percentiles, ttft_s
from inference_bench.records import RequestRecord, RequestStatus

LEAST_ROUNDS: Final = 3  # requests a slot, or times as long as one takes: what is shorter is no steady window
LEAST_PER_SLOT: Final = 2 * LEAST_ROUNDS  # some before the window and after it

_FULL: Final = 0.95  # of the slots: one of many may be between two requests


@dataclass(frozen=True, slots=True)
class TokenWindow:
    """What happened in [begin, end).

    Formula:  output_tokens_per_s = tokens that arrived inside / length; mean_concurrency = ∫ in flight dt / length
    Where:    requests_per_s counts completions inside, good_requests_per_s those of them that met the objective. A gap
              belongs to the window its later chunk arrived in; ttft_s is of the first tokens that arrived inside; itl_s of
              requests in which one chunk is one token. Where the server does not say how many tokens came with a chunk,
              the count of the request is shared out evenly over its chunks, and for a request without a count the run's
              tokens a chunk are taken: estimated_fraction of the tokens are of these
    Unit:     seconds, requests, tokens; None where tokens were not counted at all, or there is no sample
    """

    begin_s: float
    end_s: float
    num_tokens: float | None
    output_tokens_per_s: float | None
    estimated_fraction: float | None
    requests_per_s: float
    mean_concurrency: float
    ttft_s: Percentiles | None
    chunk_gap_s: Percentiles | None
    itl_s: Percentiles | None
    good_requests_per_s: float | None = None

    @property
    def length_s(self) -> float:
        """How long the window is."""
        return self.end_s - self.begin_s


def token_window(
    records: Sequence[RequestRecord], begin_s: float, end_s: float, objective: Objective | None = None
) -> TokenWindow | None:
    """The window of these records; None where it has no length."""
    if end_s <= begin_s:
        return None
    length_s = end_s - begin_s
    inside = [(record, *_inside(record.chunk_times_s, begin_s, end_s)) for record in records]
    num_tokens, num_estimated = _count_tokens(records, inside)
    held_s = sum(max(0.0, min(record.end_s, end_s) - max(record.sent_s, begin_s)) for record in records)
    ended = [r for r in records if r.status is RequestStatus.COMPLETED and begin_s <= r.end_s < end_s]
    is_good = (objective or Objective()).is_met_by
    return TokenWindow(
        begin_s=begin_s,
        end_s=end_s,
        num_tokens=num_tokens,
        output_tokens_per_s=None if num_tokens is None else num_tokens / length_s,
        estimated_fraction=num_estimated / num_tokens if num_tokens else None,
        requests_per_s=len(ended) / length_s,
        mean_concurrency=held_s / length_s,
        ttft_s=percentiles(ttft_s(record) for record, first, last in inside if first == 0 and last),
        chunk_gap_s=percentiles(_gaps_s(inside)),
        itl_s=percentiles(_gaps_s(each for each in inside if has_one_token_per_chunk(each[0]))),
        good_requests_per_s=sum(map(is_good, ended)) / length_s,
    )


def steady_interval(
    records: Sequence[RequestRecord], concurrency: int | None = None, thinks: bool = False
) -> tuple[float, float] | None:
    """From when the load had built up to when it began to run out, of a run for which nobody named a window.

    Where:    a closed loop has built up when all slots were busy and each has then handed over its request, and runs out
              at the last send that leaves all of them busy. Of that, the window is the longest part from a send to a send
              with whole rounds of all slots between, so that neither the wait for first tokens nor the tokens weigh more
              than they take; where users think, `thinks`, slots are as full as they ever were. An open loop lasts from
              its first to its last send. None where that is less than LEAST_ROUNDS rounds, or times the shortest request
    """
    if not records:
        return None
    by_send = sorted(records, key=lambda record: record.sent_s)
    if concurrency is not None:
        return _whole_rounds(by_send, concurrency, thinks)
    begin_s, end_s = by_send[0].sent_s, by_send[-1].sent_s
    shortest_s = min((r.end_s - r.sent_s for r in records if r.status is RequestStatus.COMPLETED), default=0.0)
    return (begin_s, end_s) if 0 < end_s - begin_s >= LEAST_ROUNDS * shortest_s else None


def _whole_rounds(by_send: Sequence[RequestRecord], concurrency: int, thinks: bool) -> tuple[float, float] | None:
    sends_s, ends_s = [record.sent_s for record in by_send], sorted(record.end_s for record in by_send)
    busy = [number - bisect_right(ends_s, sent_s) for number, sent_s in enumerate(sends_s, 1)]
    most = max(busy) if thinks else concurrency
    full = [place for place, number in enumerate(busy) if number >= _FULL * most]
    if not full:
        return None
    full_s = sends_s[full[0]]
    handed_over_s = max(record.end_s for record in by_send[: full[0] + 1] if record.end_s > full_s or thinks)
    first = bisect_left(sends_s, handed_over_s)
    rounds = (full[-1] - first) // concurrency
    return None if rounds < LEAST_ROUNDS else (sends_s[first], sends_s[first + rounds * concurrency])


_Inside = tuple[RequestRecord, int, int]  # a record, and the places of its first chunk inside and behind the last


def _inside(times_s: Sequence[float], begin_s: float, end_s: float) -> tuple[int, int]:
    return bisect_left(times_s, begin_s), bisect_left(times_s, end_s)


def _gaps_s(inside: Iterable[_Inside]) -> Iterable[float]:
    for record, first, last in inside:
        times_s = record.chunk_times_s
        for place in range(max(first, 1), last):
            yield times_s[place] - times_s[place - 1]


def _count_tokens(records: Sequence[RequestRecord], inside: Sequence[_Inside]) -> tuple[float | None, float]:
    """Tokens inside, and how many of them are shared out or taken from other requests; None where nobody counted."""
    counted = [record for record in records if record.output_tokens is not None and record.chunk_times_s]
    num_chunks = sum(len(record.chunk_times_s) for record in counted)
    usual = sum(record.output_tokens or 0 for record in counted) / num_chunks if num_chunks else None
    exact = estimated = 0.0
    for record, first, last in inside:
        if first == last:
            continue
        if record.chunk_tokens:
            exact += sum(record.chunk_tokens[first:last])
            continue
        known = record.output_tokens is not None
        each = record.output_tokens / len(record.chunk_times_s) if record.output_tokens is not None else usual
        if each is None:
            return None, 0.0
        if known and each == 1.0:
            exact += last - first
        else:
            estimated += each * (last - first)
    return exact + estimated, estimated
