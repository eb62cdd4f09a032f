"""How many requests a second does a real server take within its objectives: the search's rates, run and judged.

In:   a Target, a way to make the workload of a seed, the objectives, a SearchPlan
Out:  CapacityFound; every record goes to the writer, a group for each run
Leaves out: which rate is run next, and what is known after it (capacity_search)
Read next by: capacity_run.

A request is good when it completed and kept every objective; one that was late, failed, was rejected, cut off or never
answered is a miss. What is sent while the server fills, and while it empties, is not judged. A server on which ever more
requests wait fails whatever it has answered so far: a run that is over before the wait shows is no proof.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from inference_bench.errors import MeasurementError, RequestError
from inference_bench.loadtest.capacity_search import CapacityFound, SearchPlan, Trial, search_capacity
from inference_bench.loadtest.shards_work import ShardLost
from inference_bench.measure.load import LoadOptions, LoadResult, run_load
from inference_bench.measure.target import Target
from inference_bench.metrics import chunk_gaps_s, e2e_s, send_delay_s, tpot_s, ttft_s
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.simulate.rate_search import Limits as Limits
from inference_bench.stats import median, quantile
from inference_bench.units import format_fraction, format_number, format_seconds
from inference_bench.workload import ClosedLoop, Workload

WorkloadOf = Callable[[int, int], Workload]
Send = Callable[[Target, Workload, LoadOptions], LoadResult]

_SPANS: Final = 10.0  # longest objectives that a run lasts at least
_LEAST_SETTLE_S: Final = 0.5
_LIFETIMES: Final = 4.0  # of a request that a run lasts at least, so that the number in flight can be level
_GROWTH: Final = 0.05  # of the requests sent: so many more are waiting
_GROWTH_SIGMAS: Final = 4.0
_PROBE: Final = 32
_PROBE_CONCURRENCY: Final = 16
_LEAST_RUNS: Final = 3  # as long as the first, that the requests must be enough for
_MOST_DRIFT: Final = 0.02
_LATE: Final = 0.25  # of the tightest limit on the first token
_LEAST_LATE_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Question:
    """What is promised, and of which requests.

    Unit:     seconds
    Where:    workload_of(count, seed) makes so many open-loop requests from a seed, fewer of one seed being the first of more;
              it is scaled to each rate. guesses_first_rate: a short closed loop says where to begin. max_s is how long the search
              may take: a run that would last longer than what is left is not begun
    """

    target: Target
    workload_of: WorkloadOf
    limits: Limits
    plan: SearchPlan = field(default_factory=SearchPlan)
    guesses_first_rate: bool = True
    max_s: float = math.inf


def is_good(record: RequestRecord, limits: Limits, share: float) -> bool:
    """Whether a request completed within every objective.

    Formula:  completed; TTFT, TPOT, E2E no longer than promised; at most 1 - share of its gaps longer than promised
    Where:    times count from the planned send; a reply of one token has no TPOT and no gap, and keeps what is said of them
    """
    wait_s, whole_s, per_token_s = ttft_s(record), e2e_s(record), tpot_s(record)
    if record.status is not RequestStatus.COMPLETED or wait_s is None or whole_s is None:
        return False
    in_time = (
        _within(wait_s, limits.ttft_p99_s)
        and _within(whole_s, limits.e2e_p99_s)
        and (per_token_s is None or _within(per_token_s, limits.tpot_p99_s))
    )
    if not in_time or limits.itl_p99_s is None:
        return in_time
    gaps_s = chunk_gaps_s(record)
    return sum(gap > limits.itl_p99_s for gap in gaps_s) <= (1 - share) * len(gaps_s)


def _within(value_s: float, limit_s: float | None) -> bool:
    return limit_s is None or value_s <= limit_s


def find_load_capacity(
    question: Question,
    options: LoadOptions,
    say: Callable[[str], None] | None = None,
    send: Send = run_load,
) -> CapacityFound:
    """The interval of rates in which the server begins to break its promise.

    Where:    options has the writer, the prompts, the clock and the time-outs of all runs; send runs one workload, in this
              process or in several
    Raises:   RequestError for a workload without a schedule; MeasurementError where no request succeeds; what `send` raises
    """
    require_schedule(question.workload_of(1, question.plan.seed))
    trials, begin_s = LoadTrials(question, options, send), options.clock()
    plan = replace(question.plan, least_span_s=max(question.plan.least_span_s, trials.least_span_s))
    if question.guesses_first_rate:
        guessed = min(trials.guess_rate(), plan.max_requests / (_LEAST_RUNS * plan.least_span_s))
        plan = replace(plan, first_rate=min(max(guessed, plan.least_rate), plan.most_rate))
    deadline_s = begin_s + question.max_s

    def may_begin(rate: float, num_requests: int) -> bool:
        return options.clock() + trials.planned_s(rate, num_requests) <= deadline_s

    return search_capacity(trials.run, plan, say, may_begin)


class _Kept:
    """A writer that also keeps what it passes on."""

    def __init__(self, writer: Callable[[RequestRecord], None] | None) -> None:
        self.records: list[RequestRecord] = []
        self._writer = writer

    def __call__(self, record: RequestRecord) -> None:
        self.records.append(record)
        if self._writer is not None:
            self._writer(record)


class LoadTrials:
    """Runs of one server at the rates that a search asks for."""

    def __init__(self, question: Question, options: LoadOptions, send: Send) -> None:
        limits = question.limits
        longest_s = max((limit or 0.0 for limit in (limits.ttft_p99_s, limits.e2e_p99_s)), default=0.0)
        self.settle_s = max(longest_s, _LEAST_SETTLE_S)
        self.least_span_s = _SPANS * self.settle_s
        self._question, self._send = question, send
        self._options = replace(options, duration_s=None, warmup_s=0.0, warmup_requests=0, cooldown_s=0.0, ramp_s=0.0)
        self._lifetime_s = 0.0
        self._num_runs = 0

    def guess_rate(self) -> float:
        """Half of what a short closed loop is answered.

        Unit:     requests per second
        """
        workload = self._question.workload_of(_PROBE, self._question.plan.seed)
        closed = replace(workload, arrival=ClosedLoop(_PROBE_CONCURRENCY, len(workload)))
        records = self._send(self._question.target, closed, replace(self._options, group="probe")).records
        self._note_lifetime(records)
        ended = [record for record in records if record.status is RequestStatus.COMPLETED]
        if not ended:
            raise MeasurementError(
                f"no request to {self._question.target.address} completed; there is no capacity to find"
            )
        span_s = max(record.end_s for record in ended) - min(record.sent_s for record in ended)
        return len(ended) / max(span_s, 1e-3) / 2

    def run(self, rate: float, num_requests: int, seed: int) -> Trial:
        """So many judged requests at a rate, and those before and after them that are not judged.

        Raises:   RequestError, MeasurementError, what `send` raises
        """
        self._num_runs += 1
        settle_s = max(self.settle_s, self._lifetime_s)
        count = self._judged(rate, num_requests) + 2 * math.ceil(rate * settle_s)
        workload = self._question.workload_of(count, seed).at_rate(rate)
        kept = _Kept(self._options.writer)
        group = f"trial-{self._num_runs:03d}"
        options = replace(self._options, group=group, writer=kept, warmup_s=settle_s, cooldown_s=settle_s)
        try:
            records: Sequence[RequestRecord] = self._send(self._question.target, workload, options).records
        except ShardLost:
            raise
        except MeasurementError:
            if not any(record.status is RequestStatus.COMPLETED for record in kept.records):
                raise
            # more in flight than this client can hold
            return Trial(len(kept.records), self._misses(kept.records), is_growing=True)
        self._note_lifetime(records)
        limit = self._client_limit(records)
        return Trial(len(records), self._misses(records), limit is None and is_growing(records), limit)

    def planned_s(self, rate: float, num_requests: int) -> float:
        """How long such a run is sent for."""
        return self._judged(rate, num_requests) / rate + 2 * max(self.settle_s, self._lifetime_s)

    def _judged(self, rate: float, num_requests: int) -> int:
        return max(num_requests, math.ceil(rate * _LIFETIMES * self._lifetime_s))

    def _misses(self, records: Sequence[RequestRecord]) -> bytes:
        limits, share = self._question.limits, self._question.plan.share
        return bytes(not is_good(record, limits, share) for record in judged_of(records))

    def _note_lifetime(self, records: Sequence[RequestRecord]) -> None:
        """How long a request lives on a server that is not overrun: the shortest median of all runs."""
        lives = [record.end_s - record.planned_s for record in records if record.status is RequestStatus.COMPLETED]
        if lives:
            found = median(lives)
            self._lifetime_s = min(self._lifetime_s or found, found)

    def _client_limit(self, records: Sequence[RequestRecord]) -> str | None:
        """Why this client did not offer the rate; None where it did."""
        sent = sorted(records, key=lambda record: record.planned_s)
        planned_s, sent_s = (sent[-1].planned_s - sent[0].planned_s), (sent[-1].sent_s - sent[0].sent_s)
        late_s = quantile(map(send_delay_s, sent), self._question.plan.share)
        allowed_s = max(_LEAST_LATE_S, _LATE * (self._question.limits.ttft_p99_s or self.settle_s))
        if planned_s > 0 and sent_s > (1 + _MOST_DRIFT) * planned_s + allowed_s:
            return f"this client sent {format_number(len(sent) / sent_s)} requests/s at most"
        if late_s > allowed_s:
            share = format_fraction(1 - self._question.plan.share)
            return f"this client sent {share} of the requests {format_seconds(late_s)} late or more"
        return None


def judged_of(records: Sequence[RequestRecord]) -> list[RequestRecord]:
    """The requests that count, in the order in which they were planned."""
    judged = (record for record in records if record.stage is Stage.MEASURE)
    return sorted(judged, key=lambda record: record.planned_s)


def is_growing(records: Sequence[RequestRecord]) -> bool:
    """Whether ever more requests were waiting or being answered while the judged ones were sent.

    Formula:  N(end) - N(a quarter of the way) > max(5 %, 4 / √n) of the n requests planned between, N in flight
    Where:    N at capacity wanders by about √n, which a slope cannot tell from growth; the two are told apart by this
              limit, and by what the wait does to later requests
    Ignores:  runs of fewer than 20 requests
    """
    judged = judged_of(records)
    if len(judged) < 20:
        return False
    begin_s, end_s = judged[len(judged) // 4].planned_s, judged[-1].planned_s
    planned, ended = sorted(record.planned_s for record in records), sorted(record.end_s for record in records)
    before, after = (bisect_right(planned, at) - bisect_right(ended, at) for at in (begin_s, end_s))
    count = bisect_right(planned, end_s) - bisect_right(planned, begin_s)
    return count > 0 and (after - before) / count > max(_GROWTH, _GROWTH_SIGMAS / math.sqrt(count))


def require_schedule(workload: Workload) -> None:
    """A capacity is a rate; a closed loop has none.

    Raises:   RequestError
    """
    if isinstance(workload.arrival, ClosedLoop):
        raise RequestError(
            "a capacity is looked for with arrivals of their own; a closed loop asks as fast as it is answered"
        )
