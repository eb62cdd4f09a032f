"""What is a part of a step, in words, with the figures that its seconds come from?

In:   a cause with its seconds, the step, StepCalibration
Out:  a short phrase
Read next by: decompose.
"""

from __future__ import annotations

from inference_bench.calibrate.steps.forms import StepCalibration
from inference_bench.calibrate.steps.observations import StepObservation
from inference_bench.gap.parts import Cause
from inference_bench.gap.step_parts import StepReads
from inference_bench.units import format_count, format_fraction, format_seconds, format_si


def part_words(
    cause: Cause, seconds: float, seen: StepObservation, reads: StepReads, calibration: StepCalibration
) -> str:
    """What a part is, with the figures behind it."""
    num_batches = len(seen.batches)
    match cause:
        case Cause.WEIGHTS | Cause.CACHE:
            full = reads.rates.cached.full if cause is Cause.CACHE else reads.kernels[0].full
            return _amount(seconds, calibration.bandwidth_bytes_per_s, full, "B")
        case Cause.COMPUTE:
            return _amount(seconds, calibration.compute_flops_per_s, reads.rates.products.full, "FLOP")
        case Cause.BATCHING:
            cuts = "" if num_batches == 1 else f", the step being computed in {num_batches} batches"
            return f"the weights are read {format_count(reads.num_reads)} times where once would do{cuts}"
        case Cause.FIXED:
            return _times(seconds, num_batches, "batch")
        case Cause.SEQUENCE:
            return _times(seconds, sum(map(len, seen.batches)), "sequence in a batch")
        case Cause.REQUEST:
            return "what a request takes besides its steps"
        case Cause.UNEXPLAINED:
            predicted = format_seconds(seen.seconds - seconds)
            return f"{format_seconds(seen.seconds)} measured, {predicted} by the fitted formula"
        case _:
            return _reached(cause, reads, calibration)


def _amount(seconds: float, ceiling: float, full: float, unit: str) -> str:
    """What is moved or computed in so many seconds at a full rate."""
    above = "" if full <= ceiling else f", as fitted: above the measured {format_si(ceiling, f'{unit}/s')}"
    return f"{format_si(round(seconds * full), unit)} at {format_si(full, f'{unit}/s')}{above}"


def _times(seconds: float, count: int, what: str) -> str:
    """What each of several takes."""
    times = "" if count == 1 else f", {format_count(count)} times"
    return f"{format_seconds(seconds / count)} a {what}{times}"


def _reached(cause: Cause, reads: StepReads, calibration: StepCalibration) -> str:
    """Which share of a ceiling is reached by what falls short of it."""
    bandwidth, compute = (
        f"of {format_si(calibration.bandwidth_bytes_per_s, 'B/s')}",
        f"of {format_si(calibration.compute_flops_per_s, 'FLOP/s')}",
    )
    if cause is Cause.CACHE_LOST:
        return f"{format_fraction(calibration.shares.cache)} {bandwidth} reached where the cache is read"
    if cause is Cause.COMPUTE_LOST:
        said = _compute_shares(reads, calibration)
        return f"{said} {compute} reached"
    reached = sorted({kernel.reached / calibration.bandwidth_bytes_per_s for kernel in reads.kernels})
    return f"{' and '.join(map(format_fraction, reached))} {bandwidth} reached"


def _compute_shares(reads: StepReads, calibration: StepCalibration) -> str:
    """The shares of the compute rate that are reached in what is not hidden."""
    products, attention = (
        format_fraction(rate.reached / calibration.compute_flops_per_s)
        for rate in (reads.rates.products, reads.rates.attention)
    )
    if not any(batch.products for batch in reads.batches):
        return f"{attention} in attention"
    if calibration.shares.attention is None:
        return products
    return f"{products} in products and {attention} in attention"
