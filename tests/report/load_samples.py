"""Load runs without a server: a small batching engine steps through a schedule, and its run is reported like a real one."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random

from inference_bench.arrival_proof import prove_arrivals
from inference_bench.loadtest.capacity import Limits
from inference_bench.loadtest.capacity_run import CapacityRun
from inference_bench.loadtest.capacity_search import Answer, CapacityFound, Judgement, RateTried, SearchPlan, Stop
from inference_bench.loadtest.flow import LoadRun
from inference_bench.loadtest.sweep import Axis, SweepPlan, SweepPoint, SweepRun
from inference_bench.measure.client_health import ClientHealth, ErrorBound, GcPauses, health_values
from inference_bench.measure.floor import ClientFloor
from inference_bench.measure.gpu_telemetry import GpuSample, GpuTelemetry
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.machine_identity import MachineIdentity
from inference_bench.measure.prompt_checks import CacheCheck
from inference_bench.measure.server_metrics import ServerMetrics, ServerSample
from inference_bench.metrics import summarise
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource
from inference_bench.referee import referee
from inference_bench.report.html_pieces import Draw
from inference_bench.report.load_page import capacity_page, load_page, sweep_page
from inference_bench.report.report_html import Provenance
from inference_bench.token_window import steady_interval, token_window
from inference_bench.workload import OpenLoop, Poisson, Requests, RequestShape, Workload, closed_loop
from referee.runs import subject
from report.sample import CHINESE, ESCAPE, LONG, QUOTES, SCRIPT

MADE = Provenance(
    "load",
    "inference-bench load http://127.0.0.1:8000 --rate 8",
    "2026-11-30 05:00:00 UTC",
    {"inference-bench": "0.1.0", "python": "3.11.7"},
)
PROMPT, OUTPUT, SLOTS = 128, 24, 8
MACHINE = MachineIdentity(
    "Linux-6.1", "x86_64", "A processor of 2 cores", 2, 2, 2, None, 33 << 20, 8 << 30, 6 << 30,
    "CPython 3.11.7", None, (), {}, 0.3,
)  # fmt: skip
FLOOR = ClientFloor(0.0004, 2.4e-5, 10)
RUN_DIR = Path("runs/20261130T050000Z-load")
VERSIONS = {"inference-bench": "0.1.0", "python": "3.11.7", "system": "Linux-6.1"}
HEALTH = ClientHealth(
    send_delay_p99_s=0.0008,
    loop_lag_p99_s=0.0004,
    stamp_source=StampSource.KERNEL,
    user_stamped_fraction=0.0,
    censored_fraction=0.002,
    read_delay_p50_s=4e-5,
    read_delay_p99_s=3e-4,
    gc_pauses=GcPauses(2, 0.0004, 0.0006),
    cpu_share=0.12,
    error_bounds=(ErrorBound("ttft_s", "p50", 0.05, 2e-6), ErrorBound("itl_s", "p99", 0.02, 1e-5)),
)


def schedule(rate: float, count: int, seed: int = 1) -> OpenLoop:
    process = Poisson(rate)
    return OpenLoop(array("d", islice(process.times_s(Random(seed)), count)), process.name, process.mean_rate, process)


def serve(times_s: Sequence[float], num_lost: int = 0, slots: int = SLOTS) -> list[RequestRecord]:
    """A batch of at most so many: a step takes 10 ms, 1 ms more for each stream, 15 ms more for each prompt it reads.

    The last of every 20 requests is refused or times out, until so many are lost.
    """
    waiting, running = list(enumerate(times_s)), dict[int, list[float]]()
    done, now = list[RequestRecord](), 0.0
    while waiting or running:
        if not running and waiting[0][1] > now:
            now = waiting[0][1]
        new = [index for index, came in waiting if came <= now][: slots - len(running)]
        waiting = [each for each in waiting if each[0] not in new]
        running.update({index: [] for index in new})
        now += 0.010 + 0.001 * len(running) + 0.015 * len(new)
        for index, stamps in list(running.items()):
            stamps.append(now)
            if len(stamps) == OUTPUT:
                done.append(ended(index, times_s[index], running.pop(index)))
    return [lost(r) if r.index % 20 == 19 and r.index < 20 * num_lost else r for r in done]


def ended(index: int, came_s: float, stamps: Sequence[float]) -> RequestRecord:
    return RequestRecord(
        f"r{index}", Origin.MEASURED, Stage.MEASURE, RequestStatus.COMPLETED, came_s, came_s + 0.0003, stamps[-1] + 0.001,
        tuple(stamps), PROMPT, 0, OUTPUT, OUTPUT, TokenCountSource.SERVER_USAGE, index=index,
    )  # fmt: skip


def lost(record: RequestRecord) -> RequestRecord:
    is_late = (record.index or 0) % 40 == 19
    status = RequestStatus.TIMED_OUT if is_late else RequestStatus.REJECTED
    end_s = record.planned_s + (2.0 if is_late else 0.004)
    return replace(record, status=status, chunk_times_s=(), output_tokens=None, end_s=end_s, error="refused")


def said_by_server(records: Sequence[RequestRecord], name: str = "vLLM", trouble: str | None = None) -> ServerMetrics:
    """What a truthful server would have said of these, twice a second."""
    end_s = max(record.end_s for record in records) + 0.1
    samples = []
    for tick in range(int(2 * end_s) + 2):
        at_s = min(tick / 2, end_s)
        here = [r for r in records if r.sent_s <= at_s < r.end_s]
        running = [r for r in here if r.chunk_times_s and r.chunk_times_s[0] <= at_s]
        tokens = sum(sum(stamp <= at_s for stamp in r.chunk_times_s) for r in records)
        samples.append(
            ServerSample(
                at_s,
                0.004,
                running=len(running),
                waiting=len(here) - len(running),
                cache_used_fraction=0.1 * len(running),
                prompt_tokens_total=1e6 + PROMPT * sum(r.sent_s <= at_s for r in records),
                output_tokens_total=5e5 + tokens,
                preemptions=0,
            )
        )
    return ServerMetrics(name, tuple(samples), 2 if trouble else 0, 0, trouble, 0.02)


def workload_of(arrival: OpenLoop, name: str = "sample") -> Workload:
    return Workload(name, Requests.of([RequestShape(PROMPT, OUTPUT)] * len(arrival)), arrival, seed=7)


def run_of(
    records: Sequence[RequestRecord],
    workload: Workload,
    health: ClientHealth = HEALTH,
    server: ServerMetrics | None = None,
) -> LoadRun:
    return LoadRun(
        target="http://127.0.0.1:8000",
        model="qwen3-8b",
        workload=workload,
        metrics=summarise(records),
        health=health,
        floor=FLOOR,
        dropped_fields=(),
        run_dir=RUN_DIR,
        client=MACHINE,
        endpoint="completions",
        versions=VERSIONS,
        arrivals=prove_arrivals(records, workload.arrival),
        window=token_window(records, 5.0, 15.0),
        server=server,
        records=tuple(records),
    )


@dataclass(frozen=True)
class LoadSample:
    run: LoadRun

    def page(self, draw: Draw | None = None) -> str:
        return load_page(self.run, MADE, draw)


@dataclass(frozen=True)
class SweepSample:
    run: SweepRun

    def page(self, draw: Draw | None = None) -> str:
        return sweep_page(self.run, MADE, draw)


def open_run(rate: float, count: int, num_lost: int = 0) -> tuple[list[RequestRecord], Workload]:
    arrival = schedule(rate, count)
    return serve(arrival.times_s, num_lost), workload_of(arrival)


@cache
def calm() -> LoadSample:
    records, workload = open_run(8.0, 300)
    return LoadSample(run_of(records, workload, server=said_by_server(records)))


@cache
def failing() -> LoadSample:
    """More than it serves; some are turned away, and prompts were not new to it."""
    records, workload = open_run(40.0, 300, num_lost=15)
    health = replace(HEALTH, error_bounds=(ErrorBound("ttft_s", "p99", 0.05, 0.004),))
    gpu = GpuTelemetry((GpuSample(0.0, 0, 310.0, 1_980_000_000, 70 << 30, 0.97), GpuSample(1.0, 0, 330.0)))
    server = said_by_server(records, trouble="the server's own metrics: no whole answer within 800 ms")
    run = replace(
        run_of(records, workload, health, server),
        refereed=referee(records, subject("qwen3-8b", "h100", "fp8")),
        gpu=gpu,
        cache=CacheCheck(300, 300, 307_200, 9_000, 0, 40, 9_000, 15),
    )
    return LoadSample(run)


@cache
def sweep() -> SweepSample:
    """Seven rates, from idle to far beyond what is served, one after the other on one clock."""
    points, begin_s = list[SweepPoint](), 0.0
    for rate in (2.0, 6.0, 10.0, 12.0, 14.0, 20.0, 30.0):
        arrival = schedule(rate, 240)
        records = [moved(record, begin_s) for record in serve(arrival.times_s)]
        begin_s = max(record.end_s for record in records) + 1.0
        points.append(
            SweepPoint(
                level=rate,
                group=f"rate-{rate:g}",
                workload=workload_of(arrival),
                metrics=summarise(records),
                window=None,
                client=health_values(HEALTH),
                arrivals=prove_arrivals(records, arrival),
                records=tuple(records),
            )
        )
    plan = SweepPlan(Axis.RATE, tuple(point.level for point in points))
    return SweepSample(
        SweepRun(
            "http://127.0.0.1:8000", "qwen3-8b", "completions", plan, tuple(points), 14.0, FLOOR, (), RUN_DIR, MACHINE, VERSIONS
        )
    )  # fmt: skip


def serve_closed(concurrency: int, count: int, slots: int = SLOTS) -> list[RequestRecord]:
    """The same batch, asked again as soon as it has answered; the first three requests warm it up."""
    came_s, waiting, running = list[float](), list[int](), dict[int, list[float]]()
    done, now = list[RequestRecord](), 0.0
    while len(done) < count:
        while len(came_s) < count and len(waiting) + len(running) < concurrency:
            waiting.append(len(came_s))
            came_s.append(now + 0.001 if done else now)
        new = waiting[: slots - len(running)]
        del waiting[: len(new)]
        running.update({index: [] for index in new})
        now += 0.010 + 0.001 * len(running) + 0.015 * len(new)
        for index, stamps in list(running.items()):
            stamps.append(now)
            if len(stamps) == OUTPUT:
                done.append(ended(index, came_s[index], running.pop(index)))
    return [replace(r, stage=Stage.WARMUP) if r.index in {0, 1, 2} else r for r in done]


@cache
def closed() -> SweepSample:
    """A sweep of closed loops, each with its window; two requests of the last were stopped by this program."""
    points, begin_s = list[SweepPoint](), 0.0
    health = replace(HEALTH, error_bounds=(ErrorBound("chunk_gap_s", "p99", 0.02, 0.0),))
    for level in (2, 4, 8, 16, 24):
        workload = closed_loop("closed", [RequestShape(PROMPT, OUTPUT)], level, 6 * level + 3)
        records = [moved(record, begin_s) for record in serve_closed(level, 6 * level + 3)]
        records = [replace(r, document_valid=r.index != 5) for r in records]
        if level == 24:
            records = [replace(r, status=RequestStatus.CANCELLED) if (r.index or 0) > 144 else r for r in records]
        begin_s = max(record.end_s for record in records) + 1.0
        interval = steady_interval(records, level)
        points.append(
            SweepPoint(
                level=float(level),
                group=f"concurrency-{level}",
                workload=workload,
                metrics=summarise(records),
                window=None if interval is None else token_window(records, *interval),
                client=health_values(health),
                arrivals=prove_arrivals(records, workload.arrival),
                records=tuple(records),
            )
        )
    plan = SweepPlan(Axis.CONCURRENCY, tuple(point.level for point in points))
    return SweepSample(
        SweepRun(
            "http://127.0.0.1:8000", "qwen3-8b", "completions", plan, tuple(points), 8.0, FLOOR, (), RUN_DIR, MACHINE, VERSIONS
        )
    )  # fmt: skip


@dataclass(frozen=True)
class CapacitySample:
    run: CapacityRun

    def page(self, draw: Draw | None = None) -> str:
        return capacity_page(self.run, MADE, draw)


@cache
def capacity() -> CapacitySample:
    """A search that found its interval, and was not quite sure of one rate."""
    tried = (
        (10.0, 1_000, 1_000, Judgement.PASS),
        (20.0, 2_000, 1_994, Judgement.PASS),
        (21.0, 4_000, 3_958, Judgement.UNDECIDED),
        (22.0, 2_000, 1_930, Judgement.FAIL),
        (40.0, 400, 120, Judgement.FAIL),
    )
    trials = tuple(
        RateTried(rate, num_requests=count, num_good=good, verdict=verdict, is_growing=rate == 40.0)
        for rate, count, good, verdict in tried
    )
    found = CapacityFound(
        Answer.INTERVAL, 20.0, 22.0, trials, 9_900, 2.5, SearchPlan(half_width=0.03), stopped_by=Stop.REQUESTS
    )
    return CapacitySample(
        CapacityRun(
            "http://127.0.0.1:8000", "qwen3-8b", "completions", Limits(ttft_p99_s=0.5), found, workload_of(schedule(1.0, 1)),
            FLOOR, (), RUN_DIR, MACHINE, VERSIONS,
        )
    )  # fmt: skip


def moved(record: RequestRecord, by_s: float) -> RequestRecord:
    return replace(
        record,
        planned_s=record.planned_s + by_s,
        sent_s=record.sent_s + by_s,
        end_s=record.end_s + by_s,
        chunk_times_s=tuple(stamp + by_s for stamp in record.chunk_times_s),
    )


@cache
def bare() -> LoadSample:
    """A closed loop of which nothing came."""
    workload = closed_loop("bare", [RequestShape(PROMPT, OUTPUT)], 2, 4)
    records = [lost(ended(index, index * 1.0, (index + 0.5,))) for index in range(1, 5)]
    return LoadSample(replace(run_of(records, workload, ClientHealth(None, None)), window=None))


@cache
def hostile() -> LoadSample:
    """Every text that a server, a file or a person gives is made to break a page."""
    sample = failing()
    server = sample.run.server or ServerMetrics(None, ())
    run = replace(
        sample.run,
        model=SCRIPT + LONG,
        target=f"http://{QUOTES}",
        dropped_fields=(SCRIPT, ESCAPE),
        endpoint=QUOTES,
        workload=replace(sample.run.workload, name=CHINESE + SCRIPT, notes=(QUOTES, LONG)),
        versions={SCRIPT: ESCAPE, "x": LONG},
        client=replace(MACHINE, cpu_model=SCRIPT),
        run_dir=Path("/home/somebody/runs") / "<b>",
        server=replace(server, server=SCRIPT, trouble=ESCAPE + QUOTES),
    )
    return LoadSample(run)


SAMPLES: dict[str, Callable[[], LoadSample | SweepSample]] = {
    "calm": calm,
    "failing": failing,
    "sweep": sweep,
    "closed": closed,
    "bare": bare,
    "hostile": hostile,
}
