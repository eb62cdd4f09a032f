"""What a simulated run says: percentiles, rates and goodput in one row, and whether its books balance.

In:   Outcome, Objective
Out:  SimulatedRow, Checks; RequestRecords, which metrics and reports read like those of a real server
Leaves out: comparing rows (capacity, sweep)
Read next by: capacity, sweep, calibrate, report.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import sub

from inference_bench.errors import RequestError
from inference_bench.metrics import Objective
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource
from inference_bench.simulate.outcome import Gaps, Outcome
from inference_bench.stats import sorted_quantile, weighted_quantiles
from inference_bench.workload import OpenLoop, Workload

_NUMPY_PAYS = 50_000
_LOADED_PAYS = 2_000  # where NumPy is in memory already


@dataclass(frozen=True, slots=True)
class SimulatedRow:
    """One run in one line.

    Where:  nominal_rate is None where none was asked for (closed loop, a trace as it was); a percentile is None where there is no
            such value, as of pauses where every answer is one token; utilisation is the share of the time in which a step ran;
            queue_grew says that requests without a first token piled up until the last came
    Unit:   requests/s, seconds, output tokens/s over the time from 0 to the last token
    """

    policy: str
    nominal_rate: float | None
    realised_rate: float | None
    num_requests: int
    num_failed: int
    ttft_mean_s: float | None
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None
    itl_p50_s: float | None
    itl_p90_s: float | None
    itl_p99_s: float | None
    itl_max_s: float | None
    tpot_mean_s: float | None
    tpot_p50_s: float | None
    tpot_p90_s: float | None
    tpot_p99_s: float | None
    e2e_p50_s: float | None
    e2e_p99_s: float | None
    output_tokens_per_s: float
    goodput_requests_per_s: float
    goodput_fraction: float
    preemptions: int
    steps: int
    makespan_s: float
    utilisation_fraction: float
    peak_cache_bytes: int
    cached_prompt_fraction: float
    engine: str
    queue_grew: bool = False


@dataclass(frozen=True, slots=True)
class Checks:
    """Whether the books of a run balance.

    Formula:  Little: requests in the system, summed step by step over time, = sum of the times that each spent in it
    Where:    little_error is the relative difference of the two; num_in_system and arrival_rate · time_in_system_s are both
              sides as averages; conserves says that every request ended, and that the pauses are as many as the tokens after
              the first
    """

    num_in_system: float
    arrival_rate: float
    time_in_system_s: float
    little_error: float
    conserves: bool

    @property
    def are_kept(self) -> bool:
        """Whether all hold, to rounding."""
        return self.conserves and self.little_error < _ROUNDING


_ROUNDING = 1e-8


def summarise_run(outcome: Outcome, objective: Objective | None = None) -> SimulatedRow:
    """The row of a run.

    Where:   goodput counts by the same limit on pauses that the run was made with; where nobody was answered there are no times,
             and rates of 0
    """
    objective = objective or Objective()
    asked = outcome.workload.requests
    alive = _alive(outcome)
    came, first, last, keeps, counts = (
        column if len(alive) == len(asked) else [column[i] for i in alive]
        for column in (
            outcome.arrival_s,
            outcome.first_token_s,
            outcome.last_token_s,
            outcome.keeps_gaps,
            asked.output_tokens,
        )
    )
    waited = list(map(sub, first, came))
    waits, totals = sorted(waited), sorted(map(sub, last, came))
    paces = sorted(
        (end - start) / (count - 1) for start, end, count in zip(first, last, counts, strict=True) if count > 1
    )
    gap_p50, gap_p90, gap_p99, gap_max = gap_quantiles(outcome.gaps, (0.5, 0.9, 0.99, 1.0))
    end_s = makespan_s(outcome) if alive else 0.0
    good = sum(1 for kept, wait_s in zip(keeps, waited, strict=True) if kept and wait_s <= objective.max_ttft_s)
    return SimulatedRow(
        policy=outcome.policy,
        nominal_rate=nominal_rate(outcome.workload),
        realised_rate=realised_rate(outcome),
        num_requests=len(asked),
        num_failed=len(asked) - len(alive),
        ttft_mean_s=_mean(waits),
        ttft_p50_s=_quantile(waits, 0.5),
        ttft_p90_s=_quantile(waits, 0.9),
        ttft_p99_s=_quantile(waits, 0.99),
        itl_p50_s=gap_p50,
        itl_p90_s=gap_p90,
        itl_p99_s=gap_p99,
        itl_max_s=gap_max,
        tpot_mean_s=_mean(paces),
        tpot_p50_s=_quantile(paces, 0.5),
        tpot_p90_s=_quantile(paces, 0.9),
        tpot_p99_s=_quantile(paces, 0.99),
        e2e_p50_s=_quantile(totals, 0.5),
        e2e_p99_s=_quantile(totals, 0.99),
        output_tokens_per_s=_over(sum(counts), end_s),
        goodput_requests_per_s=_over(good, end_s),
        goodput_fraction=good / len(asked),
        preemptions=outcome.num_preemptions,
        steps=outcome.num_steps,
        makespan_s=end_s,
        utilisation_fraction=_over(outcome.busy_s, end_s),
        peak_cache_bytes=outcome.peak_bytes,
        cached_prompt_fraction=outcome.cached_prompt_tokens / sum(asked.prompt_tokens),
        engine=outcome.engine,
        queue_grew=queue_grew(outcome),
    )


def queue_grew(outcome: Outcome) -> bool:
    """Whether the server fell behind its arrivals: then percentiles say how long the run was.

    Formula:  W(T)² > 3 · n and the mean of W over the second half of the time > 1.5 · that over the first
    Where:    W(t) counts requests that have come by t and have no first token, in the queue or being read: the same under every
              policy; T is the last arrival, n how many came. Of a server exactly at its capacity W is a random walk, about √n in
              the end, that goes up and down; behind its arrivals it grows with n, and is three times as long in the second
              half. A closed loop's cannot grow. Who is taken in at once and slowed down waits for no first token: that is TPOT
    """
    last_s = max(outcome.arrival_s)
    if last_s <= 0 or not isinstance(outcome.workload.arrival, OpenLoop):
        return False
    unserved = sum(map(last_s.__lt__, outcome.first_token_s))
    if unserved * unserved <= _SCATTER * len(outcome.arrival_s):
        return False
    early, late = (_waited_s(outcome, *half) for half in ((0.0, last_s / 2), (last_s / 2, last_s)))
    return late > _GROWTH * early


def _waited_s(outcome: Outcome, start_s: float, end_s: float) -> float:
    """Requests without a first token, summed over a stretch of time; one that failed has no first token and is left out."""
    spans = zip(outcome.arrival_s, outcome.first_token_s, strict=True)
    return math.fsum(max(0.0, min(first, end_s) - max(came, start_s)) for came, first in spans)


_SCATTER = 3
_GROWTH = 1.5


def _over(value: float, seconds: float) -> float:
    """So much a second; 0 where nothing took any time, as nobody was answered."""
    return value / seconds if seconds else 0.0


def was_answered(outcome: Outcome) -> bool:
    """Whether anybody was."""
    return len(outcome.failed) < len(outcome.workload)


def have_met(outcome: Outcome) -> bool:
    """Whether any request came while one that had come before it, and not at the same moment, was still there.

    Where:   one that failed is there no longer from the start: when it ended is not kept
    """
    failed = frozenset(outcome.failed)
    busy_until_s, pending_s, at_s = 0.0, 0.0, -1.0
    for index in sorted(range(len(outcome.arrival_s)), key=outcome.arrival_s.__getitem__):
        arrival_s = outcome.arrival_s[index]
        if arrival_s > at_s:
            busy_until_s, at_s = max(busy_until_s, pending_s), arrival_s
        if arrival_s < busy_until_s:
            return True
        pending_s = max(pending_s, 0.0 if index in failed else outcome.last_token_s[index])
    return False


def _alive(outcome: Outcome) -> Sequence[int]:
    """The requests that were answered."""
    if not outcome.failed:
        return range(len(outcome.workload.requests))
    failed = frozenset(outcome.failed)
    return [index for index in range(len(outcome.workload.requests)) if index not in failed]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _quantile(ordered: Sequence[float], q: float) -> float | None:
    return sorted_quantile(ordered, q) if ordered else None


def makespan_s(outcome: Outcome) -> float:
    """When the last token came.

    Unit:    seconds since the workload began
    Raises:  RequestError where no request was answered, or all of it took no time
    """
    alive = _alive(outcome)
    if not alive:
        raise RequestError("no request was answered, so there is nothing to summarise")
    end_s = max(outcome.last_token_s) if isinstance(alive, range) else max(outcome.last_token_s[i] for i in alive)
    if end_s <= 0:
        raise RequestError("every step takes no time, so there are no rates; give steps a time above 0")
    return end_s


def nominal_rate(workload: Workload) -> float | None:
    """The rate that was asked for."""
    return workload.arrival.nominal_rate if isinstance(workload.arrival, OpenLoop) else None


def realised_rate(outcome: Outcome) -> float | None:
    """Requests over the time of the last arrival; None where all came at 0.

    Unit:  requests/s
    """
    last_s = max(outcome.arrival_s)
    rate = len(outcome.arrival_s) / last_s if last_s > 0 else math.inf
    return rate if math.isfinite(rate) else None


def gap_quantiles(gaps: Gaps, fractions: Sequence[float]) -> list[float | None]:
    """Quantiles of pooled pauses, of which each value stands for as many as it was counted.

    Where:  long logs go through NumPy where it is installed; the values are the same
    """
    if not len(gaps.values_s):
        return [None] * len(fractions)
    if len(gaps.values_s) >= (_LOADED_PAYS if "numpy" in sys.modules else _NUMPY_PAYS):
        try:
            return _numpy_quantiles(gaps, fractions)
        except ImportError:
            pass
    return list(weighted_quantiles(gaps.values_s, gaps.counts, fractions))


def _numpy_quantiles(gaps: Gaps, fractions: Sequence[float]) -> list[float | None]:
    import numpy

    values = numpy.frombuffer(array("d", gaps.values_s) if isinstance(gaps.values_s, list) else gaps.values_s)
    counts = numpy.frombuffer(
        array("q", gaps.counts) if isinstance(gaps.counts, list) else gaps.counts, dtype=numpy.int64
    )
    order = numpy.argsort(values)
    upto = numpy.cumsum(counts[order])
    found: list[float | None] = []
    for q in fractions:
        position = (int(upto[-1]) - 1) * q
        below = math.floor(position)
        above = min(below + 1, int(upto[-1]) - 1)
        low, high = (float(values[order[numpy.searchsorted(upto, rank, side="right")]]) for rank in (below, above))
        found.append(low + (position - below) * (high - low))
    return found


def check_run(outcome: Outcome) -> Checks:
    """Little's law and conservation, from what the loop counted against what each request saw."""
    alive, end_s = _alive(outcome), makespan_s(outcome)
    asked = outcome.workload.requests
    spent_s = math.fsum(outcome.last_token_s[i] - outcome.arrival_s[i] for i in alive)
    pauses = sum(outcome.gaps.counts)
    expected = sum(asked.output_tokens) - len(asked)
    is_whole = len(alive) == len(asked)
    in_order = all(outcome.arrival_s[i] <= outcome.first_token_s[i] <= outcome.last_token_s[i] for i in alive)
    return Checks(
        num_in_system=outcome.in_system_s / end_s,
        arrival_rate=len(alive) / end_s,
        time_in_system_s=spent_s / len(alive),
        little_error=abs(outcome.in_system_s / spent_s - 1) if spent_s and is_whole else 0.0,
        conserves=in_order and (pauses == expected or not is_whole),
    )


def records_of(outcome: Outcome) -> Iterator[RequestRecord]:
    """The run as request records, as a load generator would have written them.

    Raises:  RequestError where the engine kept no token times (the reference engine does)
    """
    times = outcome.token_times_s
    if times is None:
        raise RequestError(f"the {outcome.engine} engine keeps no token times; the reference engine does")
    asked, failed = outcome.workload.requests, frozenset(outcome.failed)
    for index, tokens in enumerate(times):
        arrival_s = outcome.arrival_s[index]
        yield RequestRecord(
            request_id=f"simulated-{index}",
            origin=Origin.SIMULATED,
            stage=Stage.MEASURE,
            status=RequestStatus.FAILED if index in failed else RequestStatus.COMPLETED,
            planned_s=arrival_s,
            sent_s=arrival_s,
            end_s=tokens[-1] if tokens else arrival_s,
            chunk_times_s=tuple(tokens),
            prompt_tokens=asked.prompt_tokens[index],
            output_tokens=len(tokens),
            requested_output_tokens=asked.output_tokens[index],
            token_count_source=TokenCountSource.SCHEDULER,
            finish_reason=None if index in failed else "stop",
        )
