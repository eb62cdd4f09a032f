"""Did the server keep up while requests came? Whether its queue grew, and whether Little's law holds.

In:   RequestRecords of one run, measured or simulated, of every stage
Out:  Stability, LittleCheck
Leaves out: how requests were to arrive (proof)
Read next by: report (load_report, load_page_input, load_tables).

A straight line through the queue of a server that is exactly at its capacity has a slope near 0: that queue wanders like √n.
So the height of the queue is judged and not its slope: the peak that a server at its capacity reaches at least, nearly always,
is what a server that keeps up must stay below.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.units import format_count, format_fraction, format_number, format_seconds

FEWEST_REQUESTS: Final = 20
_AT_CAPACITY: Final = 0.2  # of n: P² of a queue exactly at its capacity lies above in more than 95 of 100 runs
_SCATTER: Final = 3.0  # of n: W² of a queue exactly at its capacity lies below in 8 of 10 runs or more
_GROWTH: Final = 1.5
_BASE: Final = 0.1  # the share of the time in which the queue is no longer than what is always there
_MOST_SHED: Final = 0.01
_FEWEST_TIMES: Final = 10.0  # as long as a request takes; in less, those cut by its ends move both sides by a tenth
MAX_LITTLE_ERROR: Final = 0.1


class Load(StrEnum):
    """How the server stood to what it was asked."""

    KEPT_UP = "kept up"
    AT_THE_LIMIT = "at the limit"
    FELL_BEHIND = "fell behind"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Stability:
    """Whether requests without a first token piled up while others came.

    Formula:  W(t) counts requests sent by t that neither have a token nor have ended; P = peak of W - base, the base being
              what W is at or below in a tenth of the time. Fell behind: (W(T) - base)² > 3 n and the mean of W over the
              second half > 1.5 · that over the first. Kept up: P² <= n / 5 and at most 1 % of requests turned away.
              Else at the limit; undecided below 20 requests
    Where:    T is the last send, n how many were sent until then. excess is P over the first tokens given by T: of a server
              that falls behind it tends to load / capacity - 1. num_shed are requests turned away or timed out, which keep a
              queue short
    Unit:     requests; at_s in seconds after the first send
    Ignores:  a server that takes everybody in at once and slows down: there TPOT grows, and no queue
    Source:   at capacity W is a random walk held above 0, whose peak over √n has a median near its spread (Feller 1951, The
              asymptotic distribution of the range of sums of independent random variables, Ann. Math. Statist. 22)
    """

    load: Load
    num_requests: int
    peak_waiting: int
    peak_at_s: float
    base_waiting: float
    last_waiting: int
    early_mean: float
    late_mean: float
    num_shed: int
    excess_fraction: float | None

    @property
    def said(self) -> str:
        """The verdict and what it rests on, in a sentence."""
        rest = (
            f"up to {format_count(self.peak_waiting)} of {format_count(self.num_requests)} requests waited for a first token "
            f"at once, {format_number(self.early_mean)} on average in the first half and {format_number(self.late_mean)} in "
            f"the second, {format_count(self.last_waiting)} when the last was sent"
        )
        shed = f"; {format_count(self.num_shed)} were turned away or timed out" if self.num_shed else ""
        excess = ""
        if self.load is Load.FELL_BEHIND and self.excess_fraction is not None:
            excess = f"; it was asked for about {format_fraction(self.excess_fraction, 2)} more than it served"
        return f"the server {_SAID[self.load]}: {rest}{shed}{excess}"


_SAID: Final = {
    Load.KEPT_UP: "kept up with the requests",
    Load.AT_THE_LIMIT: "was at the limit of what it can serve, or too near for a run of this length to tell",
    Load.FELL_BEHIND: "fell behind: latencies say how long the run was",
    Load.UNDECIDED: "was sent too few requests to say whether it kept up",
}


def judge_stability(records: Iterable[RequestRecord]) -> Stability | None:
    """Whether the queue grew while requests were being sent; None without two requests at different times.

    Where:    only for an open loop: a closed loop's queue cannot grow
    """
    sent = sorted((r for r in records if r.stage is not Stage.WARMUP), key=lambda record: record.sent_s)
    if len(sent) < 2 or sent[-1].sent_s <= sent[0].sent_s:
        return None
    begin_s, end_s = sent[0].sent_s, sent[-1].sent_s
    steps = _steps([(r.sent_s, _served_s(r)) for r in sent], begin_s, end_s)
    peak, peak_at_s = max(((level, at_s) for at_s, level in steps), key=lambda each: (each[0], -each[1]))
    base = _low_level(steps)
    middle_s = (begin_s + end_s) / 2
    early, late = _mean(steps, begin_s, middle_s), _mean(steps, middle_s, end_s)
    last = steps[-1][1]
    num_shed = sum(record.status in {RequestStatus.REJECTED, RequestStatus.TIMED_OUT} for record in sent)
    num_served = sum(bool(r.chunk_times_s) and r.chunk_times_s[0] <= end_s for r in sent)
    return Stability(
        load=_judge(len(sent), peak - base, last - base, late > _GROWTH * early, num_shed),
        num_requests=len(sent),
        peak_waiting=peak,
        peak_at_s=peak_at_s - begin_s,
        base_waiting=base,
        last_waiting=last,
        early_mean=early,
        late_mean=late,
        num_shed=num_shed,
        excess_fraction=(peak - base) / num_served if num_served else None,
    )


def _judge(num_sent: int, peak: float, last: float, grew: bool, num_shed: int) -> Load:
    if num_sent < FEWEST_REQUESTS:
        return Load.UNDECIDED
    if last > 0 and last * last > _SCATTER * num_sent and grew:
        return Load.FELL_BEHIND
    if peak * peak <= _AT_CAPACITY * num_sent and num_shed <= _MOST_SHED * num_sent:
        return Load.KEPT_UP
    return Load.AT_THE_LIMIT


def _served_s(record: RequestRecord) -> float:
    """When a request stopped waiting: its first token, or its end without one."""
    return record.chunk_times_s[0] if record.chunk_times_s else record.end_s


def _steps(spans: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> list[tuple[float, int]]:
    """(time, how many spans are open from then on), from begin to end; at one time those that close come first."""
    changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    level, steps = 0, list[tuple[float, int]]()
    for at_s, change in changes:
        if at_s > end_s:
            break
        level += change
        if steps and steps[-1][0] == at_s:
            steps[-1] = (at_s, level)
        elif at_s < begin_s and steps:
            steps[0] = (begin_s, level)
        else:
            steps.append((max(at_s, begin_s), level))
    if not steps or steps[-1][0] < end_s:
        steps.append((end_s, level))
    return steps


def _low_level(steps: Sequence[tuple[float, int]]) -> float:
    """The level that is not exceeded in a tenth of the time."""
    held = sorted((level, after - before) for (before, level), (after, _) in pairwise(steps))
    left = _BASE * math.fsum(time_s for _, time_s in held)
    for level, time_s in held:
        left -= time_s
        if left <= 0:
            return level
    return 0.0


def _mean(steps: Sequence[tuple[float, int]], begin_s: float, end_s: float) -> float:
    """The mean level over a stretch of time."""
    held = math.fsum(
        level * max(0.0, min(after, end_s) - max(before, begin_s)) for (before, level), (after, _) in pairwise(steps)
    )
    return held / (end_s - begin_s)


@dataclass(frozen=True, slots=True)
class LittleCheck:
    """Little's law over the time in which measured requests were sent.

    Formula:  L = λ · W: L the mean number in flight, by a sweep over that time; λ the requests sent in it, a second; W their
              mean time from send to end
    Where:    error = L / (λ W) - 1. It is 0 where as much was in flight in the end as in the beginning; it is far from 0
              where a load rises or falls all the time, or where records are missing
    Unit:     requests, requests/s, seconds; error a fraction
    Source:   Little 1961, A proof for the queuing formula L = λW, Operations Research 9
    """

    in_flight: float
    rate: float
    time_s: float
    error: float

    @property
    def is_kept(self) -> bool:
        """Whether both sides agree to a tenth."""
        return abs(self.error) <= MAX_LITTLE_ERROR

    @property
    def said(self) -> str:
        """Both sides in a sentence."""
        verdict = "holds" if self.is_kept else "does not hold: the run was not steady, or requests are missing"
        return (
            f"Little's law {verdict}: {format_number(self.in_flight)} in flight on average, {format_number(self.rate)} "
            f"requests/s times {format_seconds(self.time_s)} each makes {format_number(self.rate * self.time_s)}"
        )


def check_little(records: Sequence[RequestRecord]) -> LittleCheck | None:
    """Little's law over [first, last send) of measured requests; None where that is less than ten times what one takes."""
    measured = [record.sent_s for record in records if record.stage is Stage.MEASURE]
    if len(measured) < 2:
        return None
    begin_s, end_s = min(measured), max(measured)
    inside = [record for record in records if begin_s <= record.sent_s < end_s]
    if not inside or end_s <= begin_s:
        return None
    time_s = math.fsum(record.end_s - record.sent_s for record in inside) / len(inside)
    if time_s <= 0 or end_s - begin_s < _FEWEST_TIMES * time_s:
        return None
    steps = _steps([(record.sent_s, record.end_s) for record in records], begin_s, end_s)
    in_flight, rate = _mean(steps, begin_s, end_s), len(inside) / (end_s - begin_s)
    return LittleCheck(in_flight, rate, time_s, in_flight / (rate * time_s) - 1)
