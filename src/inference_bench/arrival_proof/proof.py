"""Did the requests arrive as they were asked to? The verdict, and what it rests on.

In:   RequestRecords, measured or simulated, and the ClosedLoop or OpenLoop they were sent by
Out:  ArrivalProof
Leaves out: what came back (metrics)
Read next by: report, loadtest (flow, workload_memory).

A schedule is held against its process, the planned times against the schedule, and the sends against the plan. The sends
are held against the process as well, as far as this client's lateness lets them: what it blurs is no evidence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from inference_bench.arrival_proof.asked import (
    blur_of,
    hazards_of,
    on_own_clock,
    own_seconds,
    relative_spread_of,
    uniforms_of,
)
from inference_bench.arrival_proof.concurrency import Concurrency, realised_concurrency
from inference_bench.arrival_proof.fit_tests import (
    dispersion_of,
    ks_p_value,
    ks_statistic,
    rate_p_value,
    repeat_p_value,
    shortest_p_value,
)
from inference_bench.arrival_proof.lateness import Lateness, count_waiting_turns, jitter_of, lateness_of
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.units import GIGA, KILO, MEGA, format_fraction, format_number, format_seconds
from inference_bench.workload import Arrivals, ClosedLoop, Constant, OpenLoop

_MICRO: Final = 1 / MEGA
_NANO: Final = 1 / GIGA
FEWEST_GAPS: Final = 20
LEAST_P: Final = 2e-4  # of each of the five tests of a schedule and of the sends: together below 1 % of false alarms
MOST_RATE_ERROR: Final = 0.005
MOST_LATENESS_S: Final = 0.01
LEAST_DRIFT_S: Final = 0.003  # a scheduler's hiccup in a run of a tenth of a second is no drift
_MOST_SHARE_OF_GAP: Final = 0.1
_MOST_REPEATED: Final = 0.01
_MOST_BLUR: Final = 0.1
_LEAST_STEADY: Final = 0.95
_TOO_EXACT: Final = 1e-4  # of the standard deviation of the time that so many arrivals take
_MOST_GAPS_COMPARED: Final = 20_000
_EIGHT_DIGITS: Final = 1e-8


class Verdict(StrEnum):
    """Whether the requests arrived as asked."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_REACHED = "not reached"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class FitTests:
    """How well gaps fit the process: p-values, each the share of correct runs that look at least as wrong.

    Where:    ks is Kolmogorov-Smirnov of the gaps; rate of the time that all took; dispersion of counts on a clock
              on which the process is Poisson, dispersion_index their index there (1 when kept); repeats of gaps
              that come again some places later; shortest of the shortest gap
    """

    ks_statistic: float
    ks: float
    rate: float
    dispersion_index: float | None
    dispersion: float | None
    repeats: float
    shortest: float


@dataclass(frozen=True, slots=True)
class ArrivalProof:
    """Whether a run's requests arrived as asked, and why.

    Where:    reasons are empty when the verdict is `kept`; notes say what could not be judged. plan_fit is of the planned
              times, send_fit of the sends; both None for constant arrivals, replays and closed loops
              A closed loop that never had as many in flight as asked is `not reached`, whatever else is right.
              completed_rate is of completed requests over the time from the first send to the last end
    Unit:     requests per second; None where there is no value
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    process: str
    num_requests: int
    asked_rate: float | None
    realised_rate: float | None
    lateness: Lateness | None
    repeated_gap_fraction: float | None
    plan_fit: FitTests | None
    send_fit: FitTests | None
    blur_fraction: float | None
    concurrency: Concurrency | None
    completed_rate: float | None = None


def prove_arrivals(records: Sequence[RequestRecord], arrival: ClosedLoop | OpenLoop) -> ArrivalProof:
    """How the measured requests arrived, and whether that is what was asked; warm-up requests are left out."""
    measured = sorted((r for r in records if r.stage is Stage.MEASURE), key=lambda record: record.planned_s)
    if isinstance(arrival, ClosedLoop):
        return _prove_closed(measured, arrival, realised_concurrency(records))
    return _prove_open(measured, arrival)


def _prove_closed(
    records: Sequence[RequestRecord], arrival: ClosedLoop, with_all_stages: Concurrency | None
) -> ArrivalProof:
    concurrency, lateness = realised_concurrency(records), lateness_of(records)
    reasons, notes = [], []
    if concurrency is not None and concurrency.peak > arrival.concurrency:
        reasons.append(
            f"{concurrency.peak} requests were in flight at once, more than the {arrival.concurrency} asked for"
        )
    steady = None if concurrency is None else concurrency.steady_mean
    asked = min(arrival.concurrency, len(records))
    peak = 0 if with_all_stages is None else with_all_stages.peak
    is_reached = bool(arrival.think_s) or peak >= arrival.concurrency
    if not is_reached:
        reasons.append(f"at most {peak} in flight of {arrival.concurrency} asked")
    if steady is None or arrival.think_s:
        notes.append(
            "how full the slots were is not judged: " + ("users think" if arrival.think_s else "too short a run")
        )
    elif steady < _LEAST_STEADY * asked and len(records) > 2 * asked:
        reasons.append(f"{format_number(steady)} requests were in flight on average, where {asked} were asked for")
    return ArrivalProof(
        verdict=_verdict(reasons, bool(records)) if is_reached else Verdict.NOT_REACHED,
        reasons=tuple(reasons),
        notes=tuple(notes),
        process=f"closed loop of {arrival.concurrency}",
        num_requests=len(records),
        asked_rate=None,
        realised_rate=_rate([record.sent_s for record in records]),
        lateness=lateness,
        repeated_gap_fraction=None,
        plan_fit=None,
        send_fit=None,
        blur_fraction=None,
        concurrency=concurrency,
        completed_rate=_completed_rate(records),
    )


def _prove_open(records: Sequence[RequestRecord], arrival: OpenLoop) -> ArrivalProof:
    planned_s, sent_s = [r.planned_s for r in records], sorted(record.sent_s for record in records)
    lateness = lateness_of(records)
    reasons, notes, fits, repeated = _schedule_reasons(planned_s, arrival), list[str](), _Fits(), None
    if len(planned_s) > FEWEST_GAPS:
        repeated = _repeated_fraction(_gaps(planned_s))
        reasons += _lateness_reasons(lateness, planned_s)
        if num_waited := count_waiting_turns(records):
            notes.append(f"{num_waited} turns were sent later than planned, when the answer before them had ended")
        fits = _judge_gaps(planned_s, sent_s, arrival, repeated, jitter_of(records))
        reasons += fits.reasons
        notes += fits.notes
    else:
        notes.append(f"{len(planned_s)} requests are too few to judge; give more than {FEWEST_GAPS}")
    return ArrivalProof(
        verdict=_verdict(reasons, len(planned_s) > FEWEST_GAPS),
        reasons=tuple(dict.fromkeys(reasons)),
        notes=tuple(notes),
        process=arrival.process,
        num_requests=len(records),
        asked_rate=arrival.nominal_rate,
        realised_rate=_rate(sent_s),
        lateness=lateness,
        repeated_gap_fraction=repeated,
        plan_fit=fits.plan,
        send_fit=fits.sends,
        blur_fraction=fits.blur,
        concurrency=realised_concurrency(records),
        completed_rate=_completed_rate(records),
    )


@dataclass(frozen=True, slots=True)
class _Fits:
    """How gaps fit the process, and what follows from it."""

    plan: FitTests | None = None
    sends: FitTests | None = None
    blur: float | None = None
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _judge_gaps(
    planned_s: Sequence[float], sent_s: Sequence[float], arrival: OpenLoop, repeated: float, jitter_s: float
) -> _Fits:
    """Gaps against the process, on a clock on which its rate is fixed."""
    process = arrival.drawn_from
    if process is None:
        return _Fits(notes=("the schedule is held against no process: it is not drawn from one",))
    if isinstance(process, Constant):
        return _Fits(reasons=tuple(_constant_reasons(planned_s, sent_s, process.rate)))
    begin_s = planned_s[0] - arrival.times_s[0]
    fixed, (plan, sends) = on_own_clock(process, (planned_s, sent_s), begin_s)
    _, [[last]] = on_own_clock(process, ([arrival.times_s[-1]],), 0.0)
    if isinstance(fixed, Constant):
        return _Fits(reasons=tuple(_even_reasons(plan, own_seconds(process, _MICRO))))
    plan_fit = _fit(fixed, plan)
    reasons = _fit_reasons("planned", plan_fit) + _too_regular_reasons(plan, repeated, last, fixed)
    blur = blur_of(fixed, _gaps(sends), own_seconds(process, jitter_s))
    send_fit = _fit(fixed, sends, blur)
    reasons += _fit_reasons("sent", send_fit)
    blurred = f"gaps between sends are not held against the process: lateness moves {format_fraction(blur)} of them"
    return _Fits(plan_fit, send_fit, blur, tuple(reasons), () if send_fit else (blurred,))


def _even_reasons(counts: Sequence[float], resolution: float) -> list[str]:
    """Whether requests come one by one on the clock of a ramp."""
    uneven = max(abs(gap - 1) for gap in _gaps(counts))
    return (
        [f"planned requests are up to {format_number(uneven)} of a gap off the ramp"]
        if uneven > max(resolution, 1e-3)
        else []
    )


def _completed_rate(records: Sequence[RequestRecord]) -> float | None:
    span_s = max((r.end_s for r in records), default=0.0) - min((r.sent_s for r in records), default=0.0)
    completed = sum(record.status is RequestStatus.COMPLETED for record in records)
    return completed / span_s if span_s > 0 else None


def _verdict(reasons: Sequence[str], is_enough: bool) -> Verdict:
    if reasons:
        return Verdict.BROKEN
    return Verdict.KEPT if is_enough else Verdict.UNDECIDED


def _rate(sent_s: Sequence[float]) -> float | None:
    """(N - 1) / (last - first)."""
    span_s = max(sent_s) - min(sent_s) if sent_s else 0.0
    return (len(sent_s) - 1) / span_s if span_s > 0 else None


def _gaps(times_s: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(times_s)]


def _schedule_reasons(planned_s: Sequence[float], arrival: OpenLoop) -> list[str]:
    """Whether what was planned is the schedule, all of it."""
    if len(planned_s) != len(arrival):
        return [f"{len(planned_s)} requests were sent of the {len(arrival)} in the schedule"]
    begin_s = planned_s[0] - arrival.times_s[0]
    off_s = max(abs(plan - begin_s - time) for plan, time in zip(planned_s, arrival.times_s, strict=True))
    return [f"planned times are up to {format_seconds(off_s)} off the schedule"] if off_s > 2 * _MICRO else []


def _lateness_reasons(lateness: Lateness | None, planned_s: Sequence[float]) -> list[str]:
    if lateness is None:
        return []
    reasons = []
    span_s, drift = planned_s[-1] - planned_s[0], lateness.drift_fraction
    allowed_s = max(MOST_LATENESS_S, _MOST_SHARE_OF_GAP * span_s / (len(planned_s) - 1))
    if drift is not None and abs(drift) > MOST_RATE_ERROR and abs(drift) * span_s > LEAST_DRIFT_S:
        reasons.append(
            f"sends drift from their plan by {format_fraction(drift)} of the time that passes: each waits for the one before it"
        )
    if lateness.p99_s > allowed_s:
        reasons.append(f"one request in a hundred was sent {format_seconds(lateness.p99_s)} late or more")
    return reasons


def _constant_reasons(planned_s: Sequence[float], sent_s: Sequence[float], rate: float) -> list[str]:
    reasons = []
    uneven_s = max(abs(gap_s - 1 / rate) for gap_s in _gaps(planned_s))
    if uneven_s > max(_MICRO, 0.001 / rate):
        reasons.append(f"planned gaps are up to {format_seconds(uneven_s)} off {format_seconds(1 / rate)}")
    realised, span_s = _rate(sent_s), (len(sent_s) - 1) / rate
    if abs(sent_s[-1] - sent_s[0] - span_s) > max(MOST_RATE_ERROR * span_s, MOST_LATENESS_S):
        reasons.append(f"{format_number(realised)} requests/s were sent where {format_number(rate)} were asked for")
    return reasons


def _fit(process: Arrivals, times_s: Sequence[float], blur: float = 0.0) -> FitTests | None:
    """The tests of gaps whose probabilities may be off by `blur`; None where that is too much."""
    if blur > _MOST_BLUR:
        return None
    gaps_s = _gaps(times_s)
    uniforms = uniforms_of(process, gaps_s, max(_NANO, abs(times_s[-1]) * 1e-15 * 100))
    if uniforms is None:
        return None
    hazards, worst = hazards_of(uniforms), ks_statistic(uniforms)
    index, dispersion = dispersion_of(hazards) or (None, None)
    return FitTests(
        ks_statistic=worst,
        ks=ks_p_value(max(0.0, worst - blur), len(uniforms)),
        rate=rate_p_value(hazards),
        dispersion_index=index,
        dispersion=dispersion,
        repeats=repeat_p_value(uniforms),
        shortest=1.0 if blur else shortest_p_value(uniforms),
    )


def _fit_reasons(which: str, fit: FitTests | None) -> list[str]:
    if fit is None:
        return []
    said = (
        (fit.ks, f"{which} gaps are not distributed as asked (Kolmogorov-Smirnov"),
        (fit.rate, f"the {which} rate is not the one asked for (time of all gaps"),
        (fit.dispersion, f"{which} requests are not spread as asked (dispersion"),
        (fit.repeats, f"{which} gaps come again in order, as where workers share a seed (correlation"),
        (fit.shortest, f"no {which} gap is as short as asked, as where sends wait for one another (shortest"),
    )
    return [f"{text}, p = {p:.1g})" for p, text in said if p is not None and p < LEAST_P]


def _too_regular_reasons(planned_s: Sequence[float], repeated: float, last_s: float, process: Arrivals) -> list[str]:
    """What chance does not do: gaps equal to the last digit, a rate met to the last digit."""
    reasons = []
    if repeated > _MOST_REPEATED:
        reasons.append(f"{format_fraction(repeated)} of the planned gaps occur more than once: workers share a seed")
    count, rate = len(planned_s), process.mean_rate
    spans = (
        (count, last_s),
        (count - 1, last_s),
        (count - 1, planned_s[-1] - planned_s[0]),
        (count, planned_s[-1] - planned_s[0]),
    )
    exact = _TOO_EXACT * relative_spread_of(process, count)
    if any(abs(span_s * rate / number - 1) < exact for number, span_s in spans):
        reasons.append("the schedule ends exactly at its mean, which chance does not: its sums were rescaled")
    return reasons


def _repeated_fraction(gaps_s: Sequence[float]) -> float:
    """The share of gaps that occur elsewhere too, to eight digits; gaps below a thousandth of the mean are left out."""
    some = gaps_s[:_MOST_GAPS_COMPARED]
    mean_s = sum(some) / len(some)
    if mean_s <= 0:
        return 0.0
    places = [round(math.log(gap_s / mean_s) / _EIGHT_DIGITS) for gap_s in some if gap_s * KILO > mean_s]
    return sum(number for number in Counter(places).values() if number > 1) / len(places) if places else 0.0
