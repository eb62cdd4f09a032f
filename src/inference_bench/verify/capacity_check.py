"""Which rate keeps the latency objectives: predicted from the fitted steps, then held to runs at that rate and just above it.

In:   ServerModel, ChosenWorkload, Limits or none (then they are taken from the server's own idle times)
Out:  PredictedCapacity; CapacityCheck
Leaves out: sending (load_check); the search on a real server by many runs (loadtest.capacity)
Read next by: load_check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.simulate.rate_search import Limits
from inference_bench.simulate.run import simulate
from inference_bench.simulate.step_time import StepPart, StepTime
from inference_bench.simulate.summary import summarise_run
from inference_bench.stats import Interval, median
from inference_bench.units import format_fraction, format_number, format_seconds
from inference_bench.verify.closed_loop import CapacityCheck, LoadRow
from inference_bench.verify.engine_rules import ServerModel
from inference_bench.verify.load_workload import ABOVE, ChosenWorkload
from inference_bench.workload import ClosedLoop, Workload

TTFT_TIMES: Final = 5.0  # the first token of a lone request
GAP_TIMES: Final = 3.0  # a step that reads a prompt while all others decode

MOST_MARGIN: Final = 0.1  # of a step's time

_ABOVE_NOMINAL: Final = 1.1  # the rate above is at least 1.15 / 1.1 times what is kept without a margin
_JUDGED: Final = frozenset({"ttft_p99_s", "itl_p99_s"})
_MOST_DECODING: Final = 32  # sequences beside the prompt in the step by which gaps are limited
_LEAST_SHARE, _MOST_SHARE = 0.05, 2.0  # of the rate that is just sustained: where the capacity is looked for
_HALVINGS: Final = 9
_MOST_LATER: Final = 4  # times that the search goes on where a rate just above is kept too


@dataclass(frozen=True, slots=True)
class PredictedCapacity:
    """The highest rate that keeps the objectives in the simulated draw.

    Where:  rate is None where none does; above_rate is one just above it that is predicted to miss them; interval is from the
            lowest to the highest over several draws
    Unit:   requests/s
    """

    limits: Limits
    words: str
    rate: float | None
    above_rate: float | None = None
    interval: Interval | None = None


def idle_limits(model: ServerModel, workload: Workload) -> tuple[Limits, str]:
    """Objectives in times of what this server does for one user alone, and how they were chosen.

    Formula:  TTFT p99 <= 5 · the median TTFT of a lone request; gap p99 <= 3 · a step that reads a prompt while others decode
    """
    requests = workload.requests
    alone = replace(workload, arrival=ClosedLoop(1, len(workload)))
    row = summarise_run(simulate(alone, model.setup, model.step_time))
    lone_s = row.ttft_p50_s or 0.0
    prompt = round(median(requests.prompt_tokens))
    context = prompt + round(median(requests.output_tokens)) // 2
    others = min(model.setup.scheduler.max_running, _MOST_DECODING) - 1
    parts = [StepPart(context, 1, True)] * others
    new = min(prompt, model.setup.scheduler.budget)
    step_s = model.step_time.step_s([*parts, StepPart(0, new, False)])
    limits = Limits(ttft_p99_s=_rounded(TTFT_TIMES * lone_s), itl_p99_s=_rounded(GAP_TIMES * step_s))
    return limits, (
        f"{limits.text}: {TTFT_TIMES:g} times the first token of a lone request ({format_seconds(lone_s)}) and {GAP_TIMES:g} times a "
        f"step that reads a prompt while all others decode ({format_seconds(step_s)})"
    )


def _rounded(seconds: float) -> float:
    """To two digits, as a person would promise it."""
    digits = 1 - math.floor(math.log10(seconds))
    return round(seconds, digits)


def predict_capacity(
    model: ServerModel, chosen: ChosenWorkload, limits: Limits | None = None, other_seeds: int = 0
) -> PredictedCapacity:
    """The highest rate within the objectives, on the draw that will be sent; and on others, how much it depends on the draw.

    Where:   a capacity is a promise, so that every step takes longer by what the fit is off on steps it has not seen, up to a
             tenth; the rate above is predicted to miss the objectives even without that
    Raises:  RequestError for a request that can never run, or an objective of anything but TTFT and ITL
    """
    found, words = (limits, limits.text) if limits is not None else idle_limits(model, chosen.workload)
    if {promise.field for promise in found.promised} - _JUDGED:
        raise RequestError(
            f"the objective is {found.text}; runs are held to the p99 of TTFT and of ITL, so give only those"
        )
    margin, most = min(_known_or_most(model.step_error), MOST_MARGIN), chosen.saturation_rate
    careful = replace(model, step_time=slower(model.step_time, 1 + margin))
    rate = _highest(careful, chosen.workload, found, most)
    if rate is None:
        return PredictedCapacity(found, words, None)
    words += _margin_words(model.step_error)
    above = ABOVE * max(rate, (_highest(model, chosen.workload, found, most) or 0.0) / _ABOVE_NOMINAL)
    draws = [chosen.redrawn(chosen.workload.seed + 1 + number) for number in range(other_seeds)]
    rates = [rate, *(_highest(careful, draw, found, most) or 0.0 for draw in draws)]
    confidence = 1 - 2.0 ** (1 - len(rates))  # that the median over draws lies between the lowest and the highest
    interval = Interval(min(rates), max(rates), confidence) if draws else None
    return PredictedCapacity(found, words, rate, above, interval)


def _known_or_most(step_error: float | None) -> float:
    return MOST_MARGIN if step_error is None else step_error


def _margin_words(step_error: float | None) -> str:
    """By how much every step is taken to be longer, and whether that is all that the fit is off."""
    if step_error is None:
        return (
            f"; with every step {format_fraction(MOST_MARGIN, 2)} longer: how far the fit is off on steps it has not seen is not "
            "known"
        )
    if not step_error:
        return ""
    if step_error <= MOST_MARGIN:
        return f"; with every step {format_fraction(step_error, 2)} longer, as far as the fit is off on steps it has not seen"
    return (
        f"; with every step {format_fraction(MOST_MARGIN, 2)} longer, the most that is allowed for; the fit is off by "
        f"{format_fraction(step_error, 2)} on steps it has not seen"
    )


def slower(step_time: StepTime, factor: float) -> StepTime:
    """The same steps, each taking so many times as long; one from a table is left as it is."""
    own = step_time.coefficients
    return replace(
        step_time,
        coefficients=replace(
            own,
            bandwidth_bytes_per_s=own.bandwidth_bytes_per_s / factor,
            compute_flops_per_s=own.compute_flops_per_s / factor,
            fixed_s=own.fixed_s * factor,
            sequence_s=own.sequence_s * factor,
            position_s=own.position_s * factor,
            vector_s=own.vector_s * factor,
        ),
    )


def _highest(model: ServerModel, workload: Workload, limits: Limits, saturation_rate: float) -> float | None:
    """By halving; where a rate just above is kept again, from there on."""

    def is_kept(rate: float) -> bool:
        return limits.are_met_by(summarise_run(simulate(workload.at_rate(rate), model.setup, model.step_time)))

    low, high = _LEAST_SHARE * saturation_rate, _MOST_SHARE * saturation_rate
    if not is_kept(low):
        return None
    for _ in range(_MOST_LATER):
        low = _halved(low, high, is_kept)
        if low * ABOVE >= high or not is_kept(low * ABOVE):
            return low
        low *= ABOVE
    return low


def _halved(low: float, high: float, is_kept: Callable[[float], bool]) -> float:
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_kept(middle) else (low, middle)
    return low


def _stretch(ttft_p99: float | None, gap_p99: float | None, limits: Limits) -> float:
    """The largest of the promised percentiles over its limit; infinite where one is not known."""
    pairs = ((ttft_p99, limits.ttft_p99_s), (gap_p99, limits.itl_p99_s))
    return max(math.inf if value is None else value / limit for value, limit in pairs if limit is not None)


# ── what the runs say of it ────────────────────────────────────────────────────────────────────────


def check_capacity(
    predicted: PredictedCapacity, at_rate: LoadRow | None, above_rate: LoadRow | None, others: Sequence[LoadRow] = ()
) -> CapacityCheck:
    """Whether the run at the predicted rate keeps the objectives and the one above does not.

    Where:  others are runs at further rates, which help to say where the objectives are crossed; where a lower rate misses them
            while a higher one keeps them, nothing is decided
    """
    limits = predicted.limits
    sent = sorted({row.rate: row for row in (at_rate, above_rate, *others) if row is not None}.values(), key=_rate)
    tried = [row for row in sent if _is_known(row)]
    contradiction = _contradiction(tried, limits)
    kept = list(takewhile(lambda row: _is_known(row) and stretch_of(row, limits) <= 1, sent))
    is_confirmed = None
    if at_rate is not None and above_rate is not None and _is_known(at_rate) and _is_known(above_rate):
        is_confirmed = stretch_of(at_rate, limits) <= 1 < stretch_of(above_rate, limits)
    found = CapacityCheck(
        objective=predicted.words,
        ttft_s=limits.ttft_p99_s,
        gap_s=limits.itl_p99_s,
        predicted_rate=predicted.rate,
        interval=predicted.interval,
        at_rate=at_rate,
        above_rate=above_rate,
        is_confirmed=None if contradiction else is_confirmed,
        measured_rate=kept[-1].rate if kept else None,
        crossing_rate=None if contradiction else crossing_rate(tried, limits),
        reading="",
        contradiction=contradiction,
    )
    return replace(found, reading=_reading(found, limits))


def _rate(row: LoadRow) -> float:
    return row.rate


def _contradiction(tried: Sequence[LoadRow], limits: Limits) -> tuple[float, float] | None:
    """The highest rate that keeps the objectives, and the lowest below it that does not; None where no lower rate misses them."""
    kept = max((row.rate for row in tried if stretch_of(row, limits) <= 1), default=0.0)
    missed = next((row.rate for row in tried if row.rate < kept and stretch_of(row, limits) > 1), None)
    return None if missed is None else (kept, missed)


def _is_known(row: LoadRow) -> bool:
    """Whether anything was measured of a run."""
    return row.num_completed > 0


def stretch_of(row: LoadRow, limits: Limits) -> float:
    """How far the worst promised percentile of a run is from its limit, as a factor; infinite where a request failed."""
    if row.num_completed < row.num_requests:
        return math.inf
    ttft, gap = (
        None if (found := row.figure(name)) is None else found.measured for name in ("ttft_p99_s", "itl_p99_s")
    )
    return _stretch(ttft, gap, limits)


def crossing_rate(tried: Sequence[LoadRow], limits: Limits) -> float | None:
    """The rate at which the runs cross the limit, read off a straight line between the last that keeps it and the next.

    Formula:  linear in the rate and in the logarithm of the percentile over its limit
    Where:    tried are in order of the rate; None where no run keeps it or none misses it by a known time
    """
    for before, after in pairwise(tried):
        low, high = stretch_of(before, limits), stretch_of(after, limits)
        if low <= 1 < high < math.inf:
            share = math.log(1 / low) / math.log(high / low)
            return before.rate + share * (after.rate - before.rate)
    return None


def _reading(found: CapacityCheck, limits: Limits) -> str:
    """What was found, in one sentence."""
    if found.predicted_rate is None:
        return f"not even {format_fraction(_LEAST_SHARE)} of the rate that the server sustains is predicted to keep {limits.text}"
    predicted = f"{format_number(found.predicted_rate)} requests/s"
    if found.contradiction is not None:
        return f"{predicted} are predicted to keep {limits.text}; {found.contradiction_words}"
    if found.at_rate is None or found.above_rate is None or found.is_confirmed is None:
        return f"{predicted} are predicted to keep {limits.text}; no run says whether they do"
    above = format_number(found.above_rate.rate)
    if found.is_confirmed:
        said = f"confirmed: {predicted} keep {limits.text}, as predicted, and {above} do not"
    elif stretch_of(found.at_rate, limits) > 1:
        said = f"not confirmed: {predicted} were predicted to keep {limits.text}, and the run there does not"
    else:
        said = f"not confirmed: {predicted} keep {limits.text}, and so do {above}, which were predicted not to"
    return f"{said}{_crossed(found)}{_over_draws(found)}"


def _crossed(found: CapacityCheck) -> str:
    """Where the runs cross the objectives, and how far the prediction is from there."""
    if found.crossing_rate is None or found.error is None:
        return ""
    return (
        f"; a line through the runs crosses that at {format_number(found.crossing_rate)}, from which the prediction is "
        f"{format_fraction(abs(found.error))} off"
    )


def _over_draws(found: CapacityCheck) -> str:
    if found.interval is None:
        return ""
    low, high = (format_number(rate) for rate in (found.interval.low, found.interval.high))
    return f"; over several draws of such requests the predicted capacity lies between {low} and {high} requests/s"
