"""`load`: one workload sent to a server, from its address to its metrics, kept in a run folder.

In:   LoadRequest: a workload, or the numbers of a closed loop
Out:  LoadRun: metrics, the client's own health and floor, and where the raw samples are
Leaves out: how requests are timed (measure.load), what the workload is made from (workload), several of them (sweep)
Read next by: cli, report.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inference_bench.arrival_proof import ArrivalProof, prove_arrivals
from inference_bench.definitions import Recomputed, recompute
from inference_bench.loadtest.session import ONLY_GROUP, Session, open_session, workload_of
from inference_bench.loadtest.session import LoadRequest as LoadRequest
from inference_bench.loadtest.shards_merge import Shard, ShardedResult
from inference_bench.measure.client_health import ClientHealth, health_values
from inference_bench.measure.floor import ClientFloor
from inference_bench.measure.gpu_telemetry import GpuTelemetry
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.load import LoadInterrupted, LoadOptions, LoadResult
from inference_bench.measure.machine_identity import MachineIdentity, identify_machine
from inference_bench.measure.prompt_checks import (
    CacheCheck,
    PromptCheck,
    check_cache,
    check_prompt_lengths,
    count_shared_tokens,
)
from inference_bench.measure.prompt_files import FilePrompts
from inference_bench.measure.server_metrics import ServerMetrics
from inference_bench.measure.software import software_versions
from inference_bench.metrics import Metrics, Objective, summarise
from inference_bench.records import RequestRecord, Stage
from inference_bench.referee import DEFAULT_STAMP_ERROR_S, Refereed, referee
from inference_bench.token_window import TokenWindow, steady_interval, token_window
from inference_bench.workload import ClosedLoop, OpenLoop, Workload


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What came back.

    Where:    window is what happened while the load was steady, or while it was measured where a duration was given;
              is_interrupted says that the person stopped the run before its end; shards are the processes that sent, where
              there were several; refereed is what physics says of the times, where model and machine are known
    """

    target: str
    model: str | None
    workload: Workload
    metrics: Metrics
    health: ClientHealth
    floor: ClientFloor
    dropped_fields: tuple[str, ...]
    run_dir: Path
    client: MachineIdentity
    endpoint: str
    versions: Mapping[str, str]
    arrivals: ArrivalProof
    window: TokenWindow | None = None
    server: ServerMetrics | None = None
    prompts: PromptCheck | None = None
    cache: CacheCheck | None = None
    is_interrupted: bool = False
    records: tuple[RequestRecord, ...] = field(default=(), repr=False)
    shards: tuple[Shard, ...] = ()
    refereed: Refereed | None = None
    gpu: GpuTelemetry | None = None
    objective: Objective = field(default_factory=Objective)
    notes: tuple[str, ...] = ()
    manifest_sha256: str | None = None

    @property
    def definitions(self) -> tuple[Recomputed, ...]:
        """The same run in other tools' words; computed anew each time."""
        return recompute(self.records)


def measure_load(request: LoadRequest, progress: Callable[[str], None] | None = None) -> LoadRun:
    """Warm up, then send the workload to its end: in turn, or on its schedule.

    Raises:  RequestError, ServerError, MeasurementError, StorageError; samples measured by then are kept.
             KeyboardInterrupt where the person stopped it before anything was measured
    """
    workload = workload_of(request)
    with open_session(request, progress or (lambda _text: None), about={"workload": workload.name}) as session:
        result, is_interrupted = send_or_stop(session, workload, ONLY_GROUP)
        session.folder.update_meta({"client": health_values(result.health)})
    return _run_of(session, workload, result, is_interrupted)


def send_or_stop(session: Session, workload: Workload, group: str) -> tuple[LoadResult, bool]:
    """Send a workload; where the person stops it, what was measured by then, and that it was stopped.

    Raises:  KeyboardInterrupt where nothing was measured; see `Session.send`
    """
    try:
        return session.send(workload, group), False
    except LoadInterrupted as stopped:
        if not any(record.stage is Stage.MEASURE for record in stopped.result.records):
            raise
        return stopped.result, True


def _run_of(session: Session, workload: Workload, result: LoadResult, is_interrupted: bool) -> LoadRun:
    records = result.records
    prompts, cache = check_prompts(session, workload, records)
    return LoadRun(
        target=session.target.base_url,
        model=session.target.model,
        workload=workload,
        metrics=summarise(records, objective=session.request.objective),
        health=result.health,
        floor=session.floor,
        dropped_fields=session.dropped_fields,
        run_dir=session.folder.path,
        client=identify_machine(),
        endpoint=session.target.endpoint.value,
        versions=software_versions(),
        arrivals=prove(records, workload, session.options, is_interrupted),
        window=window_of(records, workload, result.measured_s, is_interrupted, session.request.objective),
        server=session.server_metrics,
        prompts=prompts,
        cache=cache,
        is_interrupted=is_interrupted,
        records=records,
        shards=result.shards if isinstance(result, ShardedResult) else (),
        refereed=referee_run(session, records, health_values(result.health)),
        gpu=session.gpu,
        objective=session.request.objective,
        notes=session.request.notes,
        manifest_sha256=session.manifest_sha256,
    )


def referee_run(session: Session, records: Sequence[RequestRecord], client: Mapping[str, Any]) -> Refereed | None:
    """The times held to what physics allows; None where model and machine are not known.

    Where:    client is what `health_values` says: one with stamps of its own may have moved times by its loop's lag
    """
    subject = session.request.subject
    if subject is None:
        return None
    is_kernel = client["stamp_source"] == StampSource.KERNEL
    lag_s = 0.0 if is_kernel else client["loop_lag_p99_s"] or 0.0
    answers = session.target.extra_body.get("n", 1)
    return referee(
        records,
        subject,
        max(DEFAULT_STAMP_ERROR_S, lag_s),
        answers if isinstance(answers, int) and answers > 0 else 1,
    )


def check_prompts(
    session: Session, workload: Workload, records: Sequence[RequestRecord]
) -> tuple[PromptCheck | None, CacheCheck | None]:
    """Whether what was measured was as long as asked, and new to the server's cache; a file's prompts have their own length."""
    maker = session.options.prompts
    if maker is None:
        return None, None
    measured = [record for record in records if record.stage is Stage.MEASURE]
    if isinstance(maker.source, FilePrompts):
        return None, check_cache(measured, maker.fit.overhead_tokens, maker.source.shared_tokens())
    segments = workload.requests.prompts
    shared = None if segments is None else count_shared_tokens(segments)
    return (
        check_prompt_lengths(measured, workload.requests.prompt_tokens),
        check_cache(measured, maker.fit.overhead_tokens, shared),
    )


def window_of(
    records: Sequence[RequestRecord],
    workload: Workload,
    measured_s: tuple[float, float] | None,
    is_interrupted: bool = False,
    objective: Objective | None = None,
) -> TokenWindow | None:
    """What happened while the load was measured, or steady where no duration was given; by the time that ran."""
    if measured_s is None:
        arrival = workload.arrival
        if isinstance(arrival, ClosedLoop):
            interval = steady_interval(records, arrival.concurrency, arrival.think_s > 0)
        else:
            interval = steady_interval(records)
        return None if interval is None else token_window(records, *interval, objective)
    begin_s, end_s = measured_s
    if is_interrupted:
        end_s = min(end_s, max((record.end_s for record in records), default=begin_s))
    return token_window(records, begin_s, end_s, objective)


def prove(
    records: Sequence[RequestRecord], workload: Workload, options: LoadOptions, is_interrupted: bool = False
) -> ArrivalProof:
    """Whether what was measured arrived as asked: of a schedule, the part of it that was to be measured."""
    arrival = workload.arrival
    if isinstance(arrival, ClosedLoop):
        return prove_arrivals(records, arrival)
    times_s, end_s = arrival.times_s, options.all_s
    first = max(bisect_left(times_s, options.warm_s), options.warmup_requests)
    last_s = (times_s[-1] if end_s is None else end_s) - options.cooldown_s
    last = bisect_left(times_s, last_s) if options.cooldown_s or end_s is not None else len(times_s)
    if is_interrupted:
        last = first + sum(record.stage is Stage.MEASURE for record in records)
    if (first == 0 and last >= len(times_s)) or last <= first:
        return prove_arrivals(records, arrival)
    part: OpenLoop = replace(arrival, times_s=times_s[first:last])
    return prove_arrivals(records, part)
