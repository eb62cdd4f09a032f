"""`verify`: probe, model, ceilings, engine, measured points, comparison, in one call.

In:   VerifyRequest: a running server or none (then the embedded engine and model), a model, a machine
Out:  VerifyResult; raw samples are in its run folder from the moment they are measured
Leaves out: calibration and held-out prediction
Read next by: report, cli.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from inference_bench.compare import ComparedPoint, Phase, batch_lines, read_gap
from inference_bench.engines.base import RunningServer
from inference_bench.engines.llama_cpp import LlamaCppServer
from inference_bench.errors import MeasurementError, ServerError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.measure.ceilings import ProbeResult
from inference_bench.measure.floor import measure_client_floor
from inference_bench.measure.here import machine_from_probe
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.machine import probe
from inference_bench.measure.software import software_versions
from inference_bench.measure.target import Target
from inference_bench.metrics import chunk_gaps_s, e2e_s, send_delay_s, span_s, summarise, ttft_s
from inference_bench.records import RequestStatus
from inference_bench.roofline import Roof, bound_step, roof
from inference_bench.stats import quantile
from inference_bench.units import format_si
from inference_bench.verify.identity import (
    check_cache,
    identify_model,
    manifest_sha256,
)
from inference_bench.verify.plan import Plan, Setting
from inference_bench.verify.points import Served, Wave, decode_point, prefill_point
from inference_bench.verify.result import UNSTEADY, ClientNumbers, CurvePoint, GroupMetrics, VerifyResult
from inference_bench.verify.session import VerifyRequest, prepare, served_by, target_of
from inference_bench.verify.sweep import Sweep, SweepOptions, run_sweep

_CURVE_BATCHES: Final = (1, 2, 3, 4, 6, 8, 12, 16)
_SECOND_READING_BUDGET_S: Final = 8.0
_SECOND_READING_BATCH: Final = 256

_UNSTEADY_RATIO: Final = 1.25

Progress = Callable[[str], None]


def verify_server(request: VerifyRequest, progress: Progress | None = None) -> VerifyResult:
    """Measure a server against ceilings.

    Raises:  RequestError for what cannot be verified; ServerError, MeasurementError, DownloadError, StorageError when
             the world fails. Samples measured by then are in the run folder.
    """
    say = progress or (lambda _text: None)
    started, started_s = datetime.now(UTC), time.monotonic()
    session = prepare(request, say)
    model, folder = session.model, session.folder
    before = probe(progress=say, budget_s=request.probe_budget_s) if request.machine is None else None
    floor = measure_client_floor()
    with session.serve(say) as server:
        served = served_by(request, model, server)
        target = target_of(request, server)
        folder.update_meta({"target": target.base_url, "engine": server.identity.name, "model": model.spec.name})
        with folder.open_writer() as writer:
            timeouts = Timeouts(total_s=request.timeout_s)
            salt = "" if request.url is None else folder.path.name
            options = SweepOptions(writer.append, say, timeouts, request.seed, salt)
            sweep = _sweep(server, target, request.plan, options)
    ceilings = _with_second_reading(before, say) if before else None
    machine = machine_from_probe(ceilings) if ceilings else _named(request.machine)
    ceiling = roof(machine, served.weights.linear_format)
    points = _points(request.plan, sweep, served, ceiling)
    identity = identify_model(model, served.weights, session.sha256)
    extra = {"machine": machine.name, "cache_format": served.cache_format.name, "seed": request.seed}
    return VerifyResult(
        started_at=started.isoformat(timespec="seconds"),
        elapsed_s=time.monotonic() - started_s,
        target=target.base_url,
        probe=ceilings,
        machine=machine,
        ceiling=ceiling,
        model=identity,
        engine=server.identity,
        figures=server.figures,
        cache_check=check_cache(model.spec, server.figures),
        points=points,
        curve=_curve(points, served, ceiling),
        batch_lines=batch_lines(points, ceiling),
        groups=_groups(request.plan, sweep),
        client=ClientNumbers(
            send_delay_p99_s=_p99([send_delay_s(record) for record in sweep.all_records()]),
            loop_lag_p99_s=_p99(sweep.loop_lags_s),
            floor_ttft_s=floor.ttft_s,
            floor_chunk_cpu_s=floor.chunk_cpu_s,
        ),
        reading=read_gap(points, ceiling),
        assumptions=_assumptions(served, ceiling, machine),
        notes=_notes(request, sweep, ceilings, points),
        run_dir=folder.path,
        manifest_sha256=manifest_sha256(identity, server.identity, server.figures, extra),
        versions=software_versions(),
        seed=request.seed,
    )


def _sweep(server: RunningServer, target: Target, plan: Plan, options: SweepOptions) -> Sweep:
    """The sweep; when it fails because a server that was started here ended, that is what is said."""
    try:
        return run_sweep(target, plan, options)
    except MeasurementError as error:
        if isinstance(server, LlamaCppServer) and not server.is_running():
            raise ServerError(
                f"the server ended while it was measured ({server.describe_end()}); its log is engine.log in the run folder"
            ) from error
        raise


def _p99(values: Sequence[float]) -> float | None:
    return quantile(values, 0.99) if values else None


def _named(machine: HardwareSpec | None) -> HardwareSpec:
    if machine is None:
        raise MeasurementError("this machine was not probed and no other machine was named")
    return machine


def _with_second_reading(before: ProbeResult, say: Progress) -> ProbeResult:
    """The probe with both ceilings read once more after the sweep; the larger readings are the ceilings.

    A shared machine moves within minutes, and a ceiling is what the machine could do at its best.
    """
    say("reading the ceilings again")
    after = probe(max_batch=_SECOND_READING_BATCH, budget_s=_SECOND_READING_BUDGET_S)
    read, product = (
        max(before, after, key=lambda result: result.bandwidth_bytes_per_s),
        max(before, after, key=lambda result: result.peak_flops_per_s),
    )
    return replace(
        before,
        bandwidth_bytes_per_s=read.bandwidth_bytes_per_s,
        bandwidth_method=read.bandwidth_method,
        bandwidth_rows=read.bandwidth_rows,
        peak_flops_per_s=product.peak_flops_per_s,
        peak_batch=product.peak_batch,
        rows=product.rows,
        matrix_size=product.matrix_size,
        ridge_flops_per_byte=product.peak_flops_per_s / read.bandwidth_bytes_per_s,
        notes=(*before.notes, _readings_note(before, after)),
    )


def _readings_note(before: ProbeResult, after: ProbeResult) -> str:
    bandwidths = [format_si(result.bandwidth_bytes_per_s, "B/s") for result in (before, after)]
    peaks = [format_si(result.peak_flops_per_s, "FLOP/s") for result in (before, after)]
    return (
        f"ceilings before and after the sweep: memory {bandwidths[0]} and {bandwidths[1]}, compute {peaks[0]} and "
        f"{peaks[1]}; the larger ones are used"
    )


def _points(plan: Plan, sweep: Sweep, served: Served, ceiling: Roof) -> tuple[ComparedPoint, ...]:
    """Every point that could be measured: prefill of each prompt length, then decode by context and batch.

    Raises:  MeasurementError when there is none
    """
    settings = plan.settings()
    prefill = [
        prefill_point(item, sweep.waves.get(item, []), served, ceiling) for item in settings if item.concurrency == 1
    ]
    decode = [decode_point(item, sweep.waves.get(item, []), served, ceiling) for item in settings]
    points = tuple(point for point in (*prefill, *decode) if point is not None)
    if not points:
        errors = [record.error for item in settings for record in sweep.records(item) if record.error]
        raise MeasurementError(
            f"no point could be measured; the first error: {errors[0] if errors else 'none reported'}"
        )
    return points


def _curve(points: Sequence[ComparedPoint], served: Served, ceiling: Roof) -> tuple[CurvePoint, ...]:
    """The decode ceiling over the batch, at the contexts that were measured."""
    from inference_bench.accounting.work import decode_batch

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


def _groups(plan: Plan, sweep: Sweep) -> tuple[GroupMetrics, ...]:
    return tuple(_group(setting, sweep.waves[setting]) for setting in plan.settings() if setting in sweep.waves)


def _group(setting: Setting, waves: Sequence[Wave]) -> GroupMetrics:
    """The metrics of one setting; its waves lie apart in time, so its span is the sum of theirs."""
    records = [record for wave in waves for record in wave]
    busy_s = sum(span_s(wave) for wave in waves)
    done = [record for record in records if record.status is RequestStatus.COMPLETED]
    return GroupMetrics(
        name=setting.name,
        concurrency=setting.concurrency,
        prompt_tokens=setting.prompt_tokens,
        output_tokens=setting.output_tokens,
        metrics=summarise(records, busy_s),
        ttft_s=tuple(value for record in done if (value := ttft_s(record)) is not None),
        e2e_s=tuple(value for record in done if (value := e2e_s(record)) is not None),
        gaps_s=tuple(gap for record in done for gap in chunk_gaps_s(record)),
    )


def _assumptions(served: Served, ceiling: Roof, machine: HardwareSpec) -> tuple[str, ...]:
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
        *served.model.assumptions,
    )


def _notes(
    request: VerifyRequest, sweep: Sweep, ceilings: ProbeResult | None, points: Sequence[ComparedPoint]
) -> tuple[str, ...]:
    notes: list[str] = list(ceilings.notes) if ceilings else []
    if sweep.dropped_fields:
        notes.append(
            f"the server refused these request fields, so they were left out: {', '.join(sweep.dropped_fields)}"
        )
    if sweep.stopped_early:
        notes.append(f"some repeats were skipped to stay within {request.plan.budget_s:.0f} s")
    notes += _unsteady_points(points)
    expected = len(request.plan.settings()) + len(request.plan.prompt_tokens)
    if len(points) < expected:
        notes.append(f"{expected - len(points)} of {expected} points could not be measured")
    return tuple(notes)


def _unsteady_points(points: Sequence[ComparedPoint]) -> list[str]:
    """Points whose mean lies far from their median: the server or the machine was disturbed while they were measured."""
    odd = [
        f"{point.measured.phase} at batch {point.measured.batch}, {point.measured.nominal_context_tokens} tokens"
        for point in points
        if point.measured.mean_s and point.measured.mean_s > _UNSTEADY_RATIO * point.measured.seconds
    ]
    if not odd:
        return []
    return [
        f"{UNSTEADY}: the mean time is more than {_UNSTEADY_RATIO:g} times the median in {'; '.join(odd)}. What was delivered "
        "there is slower than what an undisturbed step takes, which is what the shares are computed from"
    ]
