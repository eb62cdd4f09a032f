"""What do the records say: each serving metric, defined once.

In:   RequestRecords, measured or simulated
Out:  Metrics: counts of every ending, pooled percentiles with their counts, tokens per second, goodput by a named rule
Leaves out: who served, and whether it was good (compare); what happened between two moments (token_window)
Read next by: token_window, decode_window, definitions, referee, simulate, loadtest, report, verify.

Percentiles come from pooled raw samples of completed requests, never from averages of averages. Requests that
ended otherwise stay in `requests`, so that a fast answer to half of the requests cannot pass for a fast server.
Other tools use the same words for other quantities; each function says which.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import sub
from typing import Final

from inference_bench.errors import TooFewSamplesError
from inference_bench.failure_view import FailurePercentiles, failure_percentiles
from inference_bench.records import Channel, RequestRecord, RequestStatus, Stage
from inference_bench.stats import Interval, ordered, sorted_quantile, sorted_quantile_interval
from inference_bench.units import KILO

_POINTS: Final = (0.5, 0.9, 0.99)


def ttft_s(record: RequestRecord) -> float | None:
    """Time to first token: how long a user waits until something appears.

    Formula:  first content chunk - planned send
    Unit:     seconds; None when no content came
    Ignores:  which channel the token is in: reasoning and tool calls count
    Source:   as MLPerf LoadGen (server scenario) counts it; vLLM, SGLang, GuideLLM and AIPerf start their clocks at
              the actual send, so a delay of the client's own is missing there
    """
    return record.chunk_times_s[0] - record.planned_s if record.chunk_times_s else None


def time_to_first_answer_s(record: RequestRecord) -> float | None:
    """How long a user waits for the answer itself (TTFA): TTFT, and whatever the model thinks before it speaks.

    Formula:  first chunk of the content channel - planned send
    Unit:     seconds; None when no such chunk came
    Ignores:  reasoning that a server hides, or writes between tags into the content
    Source:   GuideLLM's TTFOT and AIPerf's TTFO start their clocks at the actual send
    """
    answer_s = times_in_channels(record, Channel.CONTENT)
    return answer_s[0] - record.planned_s if answer_s else None


def times_in_channels(record: RequestRecord, *channels: Channel) -> tuple[float, ...]:
    """The arrivals of chunks of these channels; a record that knows no channels has content only."""
    if not record.channels:
        return record.chunk_times_s if Channel.CONTENT in channels else ()
    letters = {channel.letter for channel in channels}
    pairs = zip(record.chunk_times_s, record.channels, strict=True)
    return tuple(time_s for time_s, letter in pairs if letter in letters)


def send_delay_s(record: RequestRecord) -> float:
    """How late this client was: part of TTFT, and not the server's doing.

    Formula:  sent - planned
    Unit:     seconds
    """
    return record.sent_s - record.planned_s


def e2e_s(record: RequestRecord) -> float | None:
    """End-to-end latency: until the last token.

    Formula:  last content chunk - planned send
    Unit:     seconds; None when no content came
    Ignores:  the tail after the last token (finish chunk, usage, [DONE]); see `time_to_close_s`
    Source:   SGLang's and GuideLLM's request latency run to the end of the body instead
    """
    return record.chunk_times_s[-1] - record.planned_s if record.chunk_times_s else None


def time_to_close_s(record: RequestRecord) -> float:
    """Until the reply was over, tail included: when a closed loop can send the next request.

    Formula:  end of the reply - planned send
    Unit:     seconds
    """
    return record.end_s - record.planned_s


def tpot_s(record: RequestRecord) -> float | None:
    """Time per output token after the first, of one request.

    Formula:  (E2E - TTFT) / (n - k)              Where: n output tokens, as the server counts them; k those of the
              first chunk, 1 where the server does not say
    Unit:     seconds; None below two tokens, without a token count, without content, or with all in the first chunk
    Ignores:  further tokens in the first chunk where their number is not known (then the true figure is larger), and a
              closing token that has no text, such as end-of-sequence, which the server counts (then it is larger too)
    Source:   vLLM's and SGLang's TPOT, AIPerf's "inter token latency", but for k; GuideLLM's TPOT divides E2E by n
    """
    if record.output_tokens is None or len(record.chunk_times_s) < 2:
        return None
    num_later = record.output_tokens - (record.chunk_tokens[0] if record.chunk_tokens else 1)
    return (record.chunk_times_s[-1] - record.chunk_times_s[0]) / num_later if num_later > 0 else None


def chunk_gaps_s(record: RequestRecord) -> tuple[float, ...]:
    """The pauses between content chunks, in order; 0 between chunks that one read brought.

    Formula:  t[i + 1] - t[i]
    Unit:     seconds
    Source:   vLLM prints these as ITL, whatever a chunk holds
    """
    return tuple(_gaps_s(record))


def longest_gap_s(record: RequestRecord) -> float:
    """The longest of `chunk_gaps_s`; 0 without any."""
    return max(_gaps_s(record), default=0.0)


def pooled_gaps_s(records: Iterable[RequestRecord]) -> array[float]:
    """`chunk_gaps_s` of all these requests, one after the other, held in eight bytes each.

    Unit:     seconds
    """
    pooled = array("d")
    for record in records:
        pooled.extend(_gaps_s(record))
    return pooled


def _gaps_s(record: RequestRecord) -> Iterator[float]:
    times_s = record.chunk_times_s
    return map(sub, times_s[1:], times_s)


def has_one_token_per_chunk(record: RequestRecord) -> bool:
    """Whether every chunk was one token, so that its gaps are inter-token latencies (ITL).

    Formula:  number of content chunks = output tokens
    """
    return record.output_tokens is not None and record.output_tokens == len(record.chunk_times_s)


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """How many requests were sent and how they ended; the endings add up to `sent`."""

    sent: int
    completed: int
    failed: int
    rejected: int
    timed_out: int
    truncated: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of pooled raw samples and how many there were.

    Where:    an interval holds the true percentile with 95 % confidence without assuming a distribution; None when
              there are too few samples for that: then the percentile is little more than one of them
    """

    p50: float
    p90: float
    p99: float
    count: int
    p50_interval: Interval | None
    p90_interval: Interval | None
    p99_interval: Interval | None


@dataclass(frozen=True, slots=True)
class Objective:
    """What counts as a good request: its first token and every gap in time.

    Unit:     seconds
    """

    max_ttft_s: float = 3.0
    max_gap_s: float = 0.1

    @property
    def rule(self) -> str:
        """The rule in words, printed beside every goodput."""
        return f"TTFT <= {_as_given(self.max_ttft_s)} and every gap <= {_as_given(self.max_gap_s)}"

    def is_met_by(self, record: RequestRecord) -> bool:
        """Whether a request completed within the objective."""
        wait_s = ttft_s(record)
        in_time = record.status is RequestStatus.COMPLETED and wait_s is not None and wait_s <= self.max_ttft_s
        return in_time and longest_gap_s(record) <= self.max_gap_s


def _as_given(time_s: float) -> str:
    """A limit in the unit a person would have written it in, with no digit lost."""
    return f"{time_s:g} s" if time_s >= 1 or not time_s else f"{time_s * KILO:g} ms"


@dataclass(frozen=True, slots=True)
class AllRequests:
    """The second view: times over all requests, those that failed at +∞. None: no request."""

    ttft_s: FailurePercentiles | None
    e2e_s: FailurePercentiles | None
    tpot_s: FailurePercentiles | None


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a set of measured requests says. None: no sample.

    Where:    ttfa_s is until the first chunk of content, which is TTFT where a model does not reason; itl_s pools the gaps
              of requests in which one chunk is one token (num_one_token_per_chunk of them); chunk_gap_s pools the gaps of
              all. token_sources counts the completed requests by who counted their tokens. shared_stamp_fraction is the
              share of gaps that are 0 because one read brought several chunks
    """

    requests: RequestCounts
    ttft_s: Percentiles | None
    ttfa_s: Percentiles | None
    e2e_s: Percentiles | None
    time_to_close_s: Percentiles | None
    tpot_s: Percentiles | None
    itl_s: Percentiles | None
    chunk_gap_s: Percentiles | None
    send_delay_s: Percentiles | None
    output_tokens_per_s: float | None
    realised_rate: float | None
    goodput_requests_per_s: float | None
    goodput_rule: str
    span_s: float
    num_one_token_per_chunk: int
    shared_stamp_fraction: float | None
    token_sources: dict[str, int]
    all_requests: AllRequests


def summarise(
    records: Iterable[RequestRecord], busy_s: float | None = None, objective: Objective | None = None
) -> Metrics:
    """The metrics of all requests of the measured stage; warm-up requests are left out.

    Where:    busy_s is how long the requests took together where they lie apart in time; None is one unbroken run
    Raises:   TooFewSamplesError when no request was measured
    """
    measured = [record for record in records if record.stage is Stage.MEASURE]
    if not measured:
        raise TooFewSamplesError("there is no measured request to summarise")
    completed = [record for record in measured if record.status is RequestStatus.COMPLETED]
    per_token = [record for record in completed if has_one_token_per_chunk(record)]
    gaps_s = ordered(pooled_gaps_s(completed))
    token_gaps_s = gaps_s if len(per_token) == len(completed) else ordered(pooled_gaps_s(per_token))
    objective, duration_s = objective or Objective(), span_s(measured) if busy_s is None else busy_s
    return Metrics(
        requests=_count_endings(measured),
        ttft_s=percentiles(map(ttft_s, completed)),
        ttfa_s=percentiles(map(time_to_first_answer_s, completed)),
        e2e_s=percentiles(map(e2e_s, completed)),
        time_to_close_s=percentiles(map(time_to_close_s, completed)),
        tpot_s=percentiles(map(tpot_s, completed)),
        itl_s=_ordered_percentiles(token_gaps_s),
        chunk_gap_s=_ordered_percentiles(gaps_s),
        send_delay_s=percentiles(map(send_delay_s, measured)),
        output_tokens_per_s=output_tokens_per_s(measured, busy_s),
        realised_rate=realised_rate(measured),
        goodput_requests_per_s=_per_second(sum(map(objective.is_met_by, measured)), duration_s),
        goodput_rule=objective.rule,
        span_s=duration_s,
        num_one_token_per_chunk=len(per_token),
        shared_stamp_fraction=_share_of_zeros(gaps_s),
        token_sources=dict(Counter(record.token_count_source.value for record in completed)),
        all_requests=AllRequests(
            *(failure_percentiles((r, of(r)) for r in measured) for of in (ttft_s, e2e_s, tpot_s))
        ),
    )


def percentiles(values: Iterable[float | None]) -> Percentiles | None:
    """Percentiles of the values that exist; None when there is none."""
    return _ordered_percentiles(ordered(value for value in values if value is not None))


def _ordered_percentiles(kept: Sequence[float]) -> Percentiles | None:
    if not kept:
        return None
    p50, p90, p99 = (sorted_quantile(kept, q) for q in _POINTS)
    return Percentiles(p50, p90, p99, len(kept), *(sorted_quantile_interval(kept, q) for q in _POINTS))


def _share_of_zeros(kept: Sequence[float]) -> float | None:
    return (bisect_right(kept, 0.0) - bisect_left(kept, 0.0)) / len(kept) if kept else None


def span_s(records: Sequence[RequestRecord]) -> float:
    """How long the run took: from the first planned send to the end of the last reply, ramp and drain included.

    Unit:     seconds
    """
    return max(record.end_s for record in records) - min(record.planned_s for record in records)


def output_tokens_per_s(records: Sequence[RequestRecord], busy_s: float | None = None) -> float | None:
    """Output tokens of completed requests over the whole span of the run.

    Formula:  sum of output tokens / span
    Unit:     tokens per second; None when no request completed, or the count of any that did is unknown
    Ignores:  tokens of requests that did not complete; their time stays in the span
    """
    completed = [record for record in records if record.status is RequestStatus.COMPLETED]
    counts = [record.output_tokens for record in completed if record.output_tokens is not None]
    duration_s = span_s(records) if busy_s is None else busy_s
    return sum(counts) / duration_s if completed and len(counts) == len(completed) and duration_s > 0 else None


def realised_rate(records: Sequence[RequestRecord]) -> float | None:
    """How often requests really were sent.

    Formula:  (N - 1) / (last send - first send)
    Unit:     requests per second; None for fewer than two sends apart
    """
    sent = sorted(record.sent_s for record in records)
    return _per_second(len(sent) - 1, sent[-1] - sent[0]) if len(sent) > 1 else None


def _per_second(count: int, duration_s: float) -> float | None:
    return count / duration_s if duration_s > 0 else None


def _count_endings(records: Sequence[RequestRecord]) -> RequestCounts:
    endings = Counter(record.status for record in records)
    return RequestCounts(sent=len(records), **{status.value: endings[status] for status in RequestStatus})
