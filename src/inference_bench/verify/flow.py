"""`verify`: probe, model, ceilings, engine, measured points, comparison, in one call.

In:   VerifyRequest: a running server or none (then the embedded engine and model), a model, a machine
Out:  VerifyResult; raw samples are in its run folder from the moment they are measured
Leaves out: calibration and held-out prediction
Read next by: report, cli.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from inference_bench.accounting.cache import CacheFormat
from inference_bench.compare import ComparedPoint, Phase, batch_lines, read_gap
from inference_bench.engines.base import RunningServer
from inference_bench.engines.embedded_model import ensure_embedded_model
from inference_bench.engines.llama_cpp import attach, start_llama_cpp
from inference_bench.errors import MeasurementError, RequestError, UnknownNameError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.load import load_model
from inference_bench.facts.models import LoadedModel
from inference_bench.measure.ceilings import ProbeResult
from inference_bench.measure.files import sha256_of_file
from inference_bench.measure.floor import measure_client_floor
from inference_bench.measure.here import machine_from_probe
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.machine import probe
from inference_bench.measure.store import RunFolder
from inference_bench.measure.target import ApiKey, Endpoint, Target
from inference_bench.metrics import chunk_gaps_s, e2e_s, summarise, ttft_s
from inference_bench.predict.fit import cache_format, loaded_weights
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.roofline import Roof, bound_step, roof
from inference_bench.units import format_si
from inference_bench.verify.identity import (
    check_cache,
    engine_cache_format,
    identify_model,
    manifest_sha256,
    software_versions,
)
from inference_bench.verify.plan import PROBE_BUDGET_S, Plan, Setting
from inference_bench.verify.points import Served, decode_point, prefill_point
from inference_bench.verify.result import ClientNumbers, CurvePoint, GroupMetrics, VerifyResult
from inference_bench.verify.sweep import Sweep, SweepOptions, run_sweep

# What keeps a point honest: no reuse of cached prompts, and the output length that was asked for.
_EXTRA_BODY: Final = {"cache_prompt": False, "ignore_eos": True}
_CURVE_BATCHES: Final = (1, 2, 3, 4, 6, 8, 12, 16)
_SECOND_READING_BUDGET_S: Final = 5.0

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What to verify. None takes the default: the embedded engine and model, on this machine, probed."""

    url: str | None = None
    model: str | None = None
    machine: HardwareSpec | None = None
    weights: str | None = None
    cache: str | None = None
    served_model: str | None = None
    endpoint: str = "completions"
    api_key: ApiKey | None = None
    num_threads: int | None = None
    plan: Plan = field(default_factory=Plan)
    runs: Path = Path("runs")
    seed: int = 0
    timeout_s: float = 120.0
    probe_budget_s: float = PROBE_BUDGET_S


def verify_server(request: VerifyRequest, progress: Progress | None = None) -> VerifyResult:
    """Measure a server against ceilings.

    Raises:  RequestError for what cannot be verified; ServerError, MeasurementError, DownloadError, StorageError when
             the world fails. Samples measured by then are in the run folder.
    """
    say = progress or (lambda _text: None)
    started, started_s = datetime.now(UTC), time.monotonic()
    measured_here = _check(request)
    before = probe(progress=say, budget_s=request.probe_budget_s) if measured_here else None
    floor = measure_client_floor()
    with _server(request, before, say) as (server, model, sha256, folder):
        served = _served(request, model, server)
        target = _target(request, server)
        folder.update_meta({"target": target.base_url, "engine": server.identity.name, "model": model.spec.name})
        with folder.open_writer() as writer:
            timeouts = Timeouts(total_s=request.timeout_s)
            salt = "" if request.url is None else folder.path.name
            options = SweepOptions(writer.append, say, timeouts, request.seed, salt)
            sweep = run_sweep(target, request.plan, options)
    ceilings = _with_bandwidth_again(before, say) if before else None
    machine = machine_from_probe(ceilings) if ceilings else _named(request.machine)
    ceiling = roof(machine, served.weights.linear_format)
    points = _points(request.plan, sweep, served, ceiling)
    identity = identify_model(model, served.weights, sha256)
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
        batch_lines=batch_lines(points),
        groups=_groups(request.plan, sweep),
        client=ClientNumbers(
            send_delay_p99_s=max(sweep.send_delays_s, default=None),
            loop_lag_p99_s=max(sweep.loop_lags_s, default=None),
            floor_ttft_s=floor.ttft_s,
            floor_chunk_cpu_s=floor.chunk_cpu_s,
        ),
        reading=read_gap(points),
        assumptions=_assumptions(served, ceiling, machine),
        notes=_notes(request, sweep, ceilings, points),
        run_dir=folder.path,
        manifest_sha256=manifest_sha256(identity, server.identity, server.figures, extra),
        versions=software_versions(),
        seed=request.seed,
    )


def _check(request: VerifyRequest) -> bool:
    """Whether this machine's own ceilings are to be measured; refuses what cannot be compared."""
    if request.url is None:
        return request.machine is None
    host = Target(request.url).address.host
    try:
        is_here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = False
    if request.machine is None and not is_here:
        raise RequestError(
            f"{request.url} is on another machine; name that machine to have its ceilings to compare with"
        )
    return request.machine is None


def _named(machine: HardwareSpec | None) -> HardwareSpec:
    if machine is None:
        raise MeasurementError("this machine was not probed and no other machine was named")
    return machine


def _with_bandwidth_again(before: ProbeResult, say: Progress) -> ProbeResult:
    """The probe with its bandwidth read once more after the sweep; the larger reading is the ceiling.

    Memory bandwidth of a shared machine moves within minutes, and a ceiling is what the machine could do at its best.
    """
    say("reading the memory bandwidth again")
    after = probe(max_batch=1, budget_s=_SECOND_READING_BUDGET_S)
    best = max(before, after, key=lambda result: result.bandwidth_bytes_per_s)
    note = (
        f"memory bandwidth was {format_si(before.bandwidth_bytes_per_s, 'B/s')} before the sweep and "
        f"{format_si(after.bandwidth_bytes_per_s, 'B/s')} after it; the larger is the ceiling"
    )
    return replace(
        before,
        bandwidth_bytes_per_s=best.bandwidth_bytes_per_s,
        bandwidth_method=best.bandwidth_method,
        bandwidth_rows=best.bandwidth_rows,
        ridge_flops_per_byte=before.peak_flops_per_s / best.bandwidth_bytes_per_s,
        notes=(*before.notes, note),
    )


Session = tuple[RunningServer, LoadedModel, str | None, RunFolder]


@contextmanager
def _server(request: VerifyRequest, ceilings: ProbeResult | None, say: Progress) -> Iterator[Session]:
    """The server to measure, the model it serves, the hash of its file, and the run folder."""
    if request.url is not None:
        server: RunningServer = attach(request.url, api_key=request.api_key)
        model, path = _served_model(request, server)
        say("hashing the model file")
        sha256 = sha256_of_file(path) if path else None
        yield server, model, sha256, RunFolder.create(request.runs, "verify")
        return
    model, path, sha256 = _own_model(request, say)
    folder = RunFolder.create(request.runs, "verify")
    with start_llama_cpp(
        path,
        context_tokens_total=request.plan.max_context_tokens * max(request.plan.concurrencies),
        num_slots=max(request.plan.concurrencies),
        num_threads=request.num_threads or _usable_cores(ceilings),
        log_path=folder.path / "engine.log",
        cache_type_k=_ggml_name(cache_format(request.cache).keys.name),
        cache_type_v=_ggml_name(cache_format(request.cache).values.name),
        progress=say,
        model_sha256=sha256,
    ) as server:
        yield server, model, server.identity.model_sha256, folder


def _own_model(request: VerifyRequest, say: Progress) -> tuple[LoadedModel, Path, str | None]:
    """The file the embedded engine serves: the one that was named, or the embedded model."""
    if request.model is None:
        embedded = ensure_embedded_model(progress=say)
        model = load_model(str(embedded.path))
        return replace(model, spec=replace(model.spec, name=embedded.name)), embedded.path, embedded.sha256
    path = Path(request.model)
    if path.suffix != ".gguf":
        raise RequestError(f"the embedded engine serves .gguf files; {request.model!r} is not one")
    return load_model(str(path)), path, None


def _usable_cores(ceilings: ProbeResult | None) -> int:
    from inference_bench.measure.machine_identity import identify_machine

    return ceilings.identity.num_usable_cores if ceilings else identify_machine().num_usable_cores


def _ggml_name(name: str) -> str:
    """Ggml's word for a format: its plain floats are called f16 and f32."""
    return name.removeprefix("fp") if name == "bf16" else name.replace("fp", "f")


def _served_model(request: VerifyRequest, server: RunningServer) -> tuple[LoadedModel, Path | None]:
    """What a running server serves: the model that was named, or its own file when that can be read here, or its name."""
    if request.model is not None:
        model = load_model(request.model)
        return model, model.path
    own_path = Path(server.identity.model_path) if server.identity.model_path else None
    if own_path is not None and own_path.suffix == ".gguf" and own_path.is_file():
        return load_model(str(own_path)), own_path
    name = (server.identity.model_name or "").rpartition("/")[2]
    try:
        return load_model(name), None
    except UnknownNameError:
        raise RequestError(
            f"the server says it serves {name[:80]!r}, which is not a known model; name the model"
        ) from None


def _served(request: VerifyRequest, model: LoadedModel, server: RunningServer) -> Served:
    fmt: CacheFormat | None = cache_format(request.cache) if request.cache else engine_cache_format(server.figures)
    return Served(model.spec, loaded_weights(model, request.weights), fmt or cache_format(None))


def _target(request: VerifyRequest, server: RunningServer) -> Target:
    return Target(
        server.base_url,
        request.served_model or server.identity.model_name,
        Endpoint(request.endpoint),
        request.api_key,
        _EXTRA_BODY,
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
    return tuple(_group(setting, sweep.records(setting)) for setting in plan.settings() if sweep.records(setting))


def _group(setting: Setting, records: Sequence[RequestRecord]) -> GroupMetrics:
    done = [record for record in records if record.status is RequestStatus.COMPLETED]
    return GroupMetrics(
        name=setting.name,
        concurrency=setting.concurrency,
        prompt_tokens=setting.prompt_tokens,
        output_tokens=setting.output_tokens,
        metrics=summarise(records),
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
    expected = len(request.plan.settings()) + len(request.plan.prompt_tokens)
    if len(points) < expected:
        notes.append(f"{expected - len(points)} of {expected} points could not be measured")
    return tuple(notes)


def result_summary(result: VerifyResult) -> dict[str, Any]:
    """What the run folder's meta keeps of a result, so that a listing needs not read the rest."""
    return {
        "model": result.model.spec.name,
        "engine": result.engine.name,
        "manifest_sha256": result.manifest_sha256,
        "num_points": len(result.points),
    }
