"""What a finished sweep says, as the values that a report shows: points under their ceilings, groups of requests, notes.

In:   a Sweep, what is served, the ceilings
Out:  ComparedPoints, the ceiling over the batch, GroupMetrics, assumptions
Leaves out: the fitted formula (calibration_fit), the order of it all (flow)
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from inference_bench.accounting.work import decode_batch
from inference_bench.calibrate.steps.observations import StepKind
from inference_bench.compare import ComparedPoint, Phase
from inference_bench.errors import MeasurementError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.measure.gpu_telemetry import GpuTelemetry
from inference_bench.metrics import chunk_gaps_s, e2e_s, span_s, summarise, ttft_s
from inference_bench.predict.step_cost import ServedModel
from inference_bench.records import RequestStatus
from inference_bench.roofline import Roof, bound_step
from inference_bench.units import NOT_AVAILABLE, format_si
from inference_bench.verify.calibration_plan import SweepPoint
from inference_bench.verify.calibration_sweep import Sweep, first_error
from inference_bench.verify.points import Wave, decode_point, prefill_point
from inference_bench.verify.result import UNSTEADY, UNSTEADY_RATIO, CurvePoint, GroupMetrics, is_unsteady

_CURVE_BATCHES: Final = (1, 2, 3, 4, 6, 8, 12, 16)


def compared_points(sweep: Sweep, served: ServedModel, ceiling: Roof) -> tuple[ComparedPoint, ...]:
    """Every point that could be measured: prefill of each prompt length, then decode by context and batch.

    Raises:  MeasurementError when there is none
    """
    plan = sweep.plan
    prefill = [
        prefill_point(point, sweep.records_of(point), served, ceiling) for point in plan.of_kind(StepKind.PREFILL)
    ]
    decode = [decode_point(point, sweep.records_of(point), served, ceiling) for point in plan.of_kind(StepKind.DECODE)]
    points = tuple(point for point in (*prefill, *decode) if point is not None)
    if not points:
        raise MeasurementError(f"no point could be measured; the first error: {first_error(sweep) or 'none reported'}")
    return points


def ceiling_curve(points: Sequence[ComparedPoint], served: ServedModel, ceiling: Roof) -> tuple[CurvePoint, ...]:
    """The decode ceiling over the batch, at the contexts that were measured."""
    contexts: dict[int, list[int]] = {}
    for point in points:
        if point.measured.phase is Phase.DECODE:
            contexts.setdefault(point.measured.nominal_context_tokens, []).append(point.measured.context_tokens)
    curve = []
    for nominal, measured in sorted(contexts.items()):
        context = round(sum(measured) / len(measured))
        for batch in _CURVE_BATCHES:
            step_s = bound_step("decode", served.work(decode_batch(context, batch)), ceiling).seconds
            if step_s:
                curve.append(CurvePoint(nominal, batch, step_s, batch / step_s))
    return tuple(curve)


def groups_of(sweep: Sweep) -> tuple[GroupMetrics, ...]:
    """The requests of every decode point, as requests."""
    return tuple(
        _group(point, sweep.records_of(point), sweep.plan.plan.output_tokens)
        for point in sweep.plan.of_kind(StepKind.DECODE)
        if point in sweep.waves
    )


def _group(point: SweepPoint, waves: Sequence[Wave], output_tokens: int) -> GroupMetrics:
    """The metrics of one point's requests; its waves lie apart in time, so its span is the sum of theirs."""
    records = [record for wave in waves for record in wave]
    busy_s = sum(span_s(wave) for wave in waves)
    done = [record for record in records if record.status is RequestStatus.COMPLETED]
    return GroupMetrics(
        name=point.name,
        concurrency=point.batch,
        prompt_tokens=point.context_tokens,
        output_tokens=output_tokens,
        metrics=summarise(records, busy_s),
        ttft_s=tuple(value for record in done if (value := ttft_s(record)) is not None),
        e2e_s=tuple(value for record in done if (value := e2e_s(record)) is not None),
        gaps_s=tuple(gap for record in done for gap in chunk_gaps_s(record)),
    )


def assumptions_of(sweep: Sweep, served: ServedModel, ceiling: Roof, machine: HardwareSpec) -> tuple[str, ...]:
    """What the figures rest on."""
    pinned = (
        (
            "requests of the sweep name their slots, and all of a prompt but its last token is in the slot's cache when decoding "
            "is measured: a first token takes one step there",
        )
        if sweep.plan.limits.pins_slots
        else ()
    )
    return (
        f"ceilings of {machine.name}: {machine.source}",
        f"compute ceiling is the dense {ceiling.compute_format or 'unknown'} rate; weights are stored as "
        f"{served.weights.format_name}, and an engine that multiplies in a narrower format can pass it",
        "bytes are counted from the model's shape: each weight once a step, the cache a step attends, the cache it adds; "
        "MBU and MFU are estimates from these counts, no hardware counter was read",
        "FLOPs count 2 for a multiply-add; prefill computes the output head for the last prompt position only",
        f"cache stored as {served.cache_format.name}",
        "decode steps are the gaps between tokens while every request of a wave decodes; prefill is the time to the first "
        "token of a request alone, connection and HTTP included",
        *pinned,
        *served.model.assumptions,
    )


def unsteady_notes(points: Sequence[ComparedPoint]) -> tuple[str, ...]:
    """Points whose mean lies far from their median: the server or the machine was disturbed while they were measured."""
    odd = [
        f"{point.measured.phase} at batch {point.measured.batch}, {point.measured.nominal_context_tokens} tokens"
        for point in points
        if is_unsteady(point)
    ]
    if not odd:
        return ()
    return (
        f"{UNSTEADY}: the mean time is more than {UNSTEADY_RATIO:g} times the median in {'; '.join(odd)}. What was delivered "
        "there is slower than what an undisturbed step takes, which is what the shares are computed from",
    )


def card_notes(seen: GpuTelemetry) -> tuple[str, ...]:
    """What the graphics cards did while they were measured; nothing where none was watched.

    Formula:  means over samples of once a second
    """
    notes = []
    for index in sorted({sample.index for sample in seen.samples}):
        mine = [sample for sample in seen.samples if sample.index == index]
        powers = [sample.power_w for sample in mine if sample.power_w is not None]
        clocks = [float(sample.sm_clock_hz) for sample in mine if sample.sm_clock_hz is not None]
        power = format_si(fmean(powers), "W") if powers else NOT_AVAILABLE
        clock = format_si(fmean(clocks), "Hz") if clocks else NOT_AVAILABLE
        slowest = format_si(min(clocks), "Hz") if clocks else NOT_AVAILABLE
        notes.append(f"card {index} while it was measured: {power} and {clock} on average, {slowest} at its slowest")
    return tuple(notes)
