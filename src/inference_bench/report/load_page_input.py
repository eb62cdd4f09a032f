"""What does the page of a load run or of a sweep stand on?

In:   LoadRun or SweepRun, and what the command knows besides
Out:  Evidence: everything the page shows, computed once by the functions that own each figure
Leaves out: words and looks (load_tables, load_html)
Read next by: load_tables, load_html, load_page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference_bench.arrival_proof import ArrivalProof
from inference_bench.arrival_proof.stability import LittleCheck, Stability, check_little, judge_stability
from inference_bench.charts.load_curve import LoadPoint as LoadPoint
from inference_bench.definitions import Recomputed, recompute
from inference_bench.measure.client_health import health_values
from inference_bench.measure.floor import ClientFloor
from inference_bench.measure.gpu_telemetry import GpuTelemetry
from inference_bench.measure.machine_identity import MachineIdentity
from inference_bench.measure.prompt_checks import CacheCheck, PromptCheck
from inference_bench.measure.server_metrics import ServerMetrics, ServerSummary, summarise_server
from inference_bench.measure.server_metrics_checks import ServerChecks, check_server
from inference_bench.metrics import Metrics, Objective
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.referee import Refereed
from inference_bench.token_window import TokenWindow
from inference_bench.workload import OpenLoop, Workload

if TYPE_CHECKING:
    from inference_bench.loadtest.flow import LoadRun
    from inference_bench.loadtest.sweep import SweepPoint, SweepRun


@dataclass(frozen=True, slots=True)
class LoadExtras:
    """What a page may show beside the run's own result.

    Where:    findings are whole sentences of others that must not be missed, such as a request faster than its bound;
              reading are those that need no alarm
    """

    findings: Sequence[str] = ()
    reading: Sequence[str] = ()
    assumptions: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """The run that is shown in full: the only one, or the load of a sweep with the most good requests.

    Where:    client is what `health_values` says of this client
    """

    target: str
    model: str | None
    endpoint: str
    workload: Workload
    metrics: Metrics
    client: Mapping[str, Any]
    arrivals: ArrivalProof
    definitions: Sequence[Recomputed]
    window: TokenWindow | None
    floor: ClientFloor
    dropped_fields: Sequence[str]
    run_dir: Path
    machine: MachineIdentity
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Good:
    """How the measured requests stood to the objective; the three add up to all that this program did not cancel."""

    rule: str
    good: int
    missed: int
    not_completed: int

    @property
    def num_requests(self) -> int:
        """All of them."""
        return self.good + self.missed + self.not_completed


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run, and what its records say about whether its figures can be trusted. None where there is nothing to say.

    Where:    records are of all loads, on the run's clock; points are those of a sweep as the load rises, and chosen is the
              one that is shown in full; asked_title says what their `asked` counts. findings and notes are sentences
    """

    run: Shown
    extras: LoadExtras
    records: Sequence[RequestRecord]
    metrics_of_server: ServerMetrics | None
    points: Sequence[LoadPoint]
    chosen: LoadPoint | None
    asked_title: str
    findings: Sequence[str]
    notes: Sequence[str]
    good: Good
    objective: Objective
    gpu: GpuTelemetry | None
    stability: Stability | None
    little: LittleCheck | None
    server: ServerSummary | None
    checks: ServerChecks
    refereed: Refereed | None = None

    @property
    def all_metrics(self) -> tuple[Metrics, ...]:
        """Of the run, or of every load of a sweep."""
        return tuple(point.metrics for point in self.points) if self.points else (self.run.metrics,)


def gather_run(result: LoadRun, extras: LoadExtras) -> Evidence:
    """Everything about one run."""
    shown = Shown(
        target=result.target,
        model=result.model,
        endpoint=result.endpoint,
        workload=result.workload,
        metrics=result.metrics,
        client=health_values(result.health),
        arrivals=result.arrivals,
        definitions=result.definitions,
        window=result.window,
        floor=result.floor,
        dropped_fields=result.dropped_fields,
        run_dir=result.run_dir,
        machine=result.client,
        versions=result.versions,
    )
    is_open = isinstance(result.workload.arrival, OpenLoop)
    return Evidence(
        run=shown,
        extras=extras,
        records=result.records,
        metrics_of_server=result.server,
        points=(),
        chosen=None,
        asked_title="",
        findings=(*_impossible(result.refereed), *_findings(result.prompts, result.cache)),
        notes=(*result.notes, *((_INTERRUPTED,) if result.is_interrupted else ())),
        good=count_good(result.records, result.objective),
        objective=result.objective,
        gpu=result.gpu,
        stability=judge_stability(result.records) if is_open else None,
        little=check_little(result.records),
        server=None if result.server is None else summarise_server(result.server.samples),
        checks=check_server(result.server, result.records),
        refereed=result.refereed,
    )


_INTERRUPTED = "The run was interrupted: this is what was measured by then."


def _findings(lengths: PromptCheck | None, cache: CacheCheck | None) -> tuple[str, ...]:
    """Prompts that were not as long as asked, or not new to the server's cache."""
    wrong = lengths is not None and lengths.num_counted != lengths.num_equal
    said = (lengths.sentence if lengths is not None and wrong else None, None if cache is None else cache.finding)
    return tuple(line for line in said if line)


def _impossible(found: Refereed | None) -> tuple[str, ...]:
    """What physics has against the times, in a sentence each."""
    return () if found is None else tuple(" ".join((flag.meaning, *flag.evidence)) for flag in found.flags)


def gather_sweep(result: SweepRun, extras: LoadExtras) -> Evidence:
    """Everything about a sweep: each load apart, and in full the one with the most good requests."""
    by_level = sorted(result.points, key=lambda point: point.level)
    points = [_load_point(each) for each in by_level]
    chosen = max(range(len(points)), key=lambda index: _goodness(points[index]))
    best = by_level[chosen]
    shown = Shown(
        target=result.target,
        model=result.model,
        endpoint=result.endpoint,
        workload=best.workload,
        metrics=best.metrics,
        client=best.client,
        arrivals=best.arrivals,
        definitions=recompute(best.records),
        window=best.window,
        floor=result.floor,
        dropped_fields=result.dropped_fields,
        run_dir=result.run_dir,
        machine=result.client,
        versions=result.versions,
    )
    records = [record for each in result.points for record in each.records]
    is_open = points[chosen].is_open
    return Evidence(
        run=shown,
        extras=extras,
        records=records,
        metrics_of_server=result.server,
        points=points,
        chosen=points[chosen],
        asked_title="rate asked for (requests/s)" if is_open else "requests in flight asked for",
        findings=_findings_of_points(by_level, points),
        notes=(*result.notes, *((_INTERRUPTED,) if result.is_interrupted else ())),
        good=count_good(best.records, result.objective),
        objective=result.objective,
        gpu=result.gpu,
        stability=None,
        little=None,
        server=None if result.server is None else summarise_server(result.server.samples),
        checks=check_server(result.server, records),
        refereed=best.refereed,
    )


def _load_point(point: SweepPoint) -> LoadPoint:
    is_open = isinstance(point.workload.arrival, OpenLoop)
    label = f"{point.level:g}/s" if is_open else f"{point.level:g} at once"
    return LoadPoint(label, point.level, point.metrics, point.records, is_open)


def _findings_of_points(found: Sequence[SweepPoint], points: Sequence[LoadPoint]) -> tuple[str, ...]:
    """Loads at which the client or the arrivals cannot be trusted."""
    lines = []
    for each, point in zip(found, points, strict=True):
        reasons = [each.client.get("invalid_because"), *each.arrivals.reasons, *_findings(each.prompts, each.cache)]
        reasons += (
            () if each.refereed is None else (" ".join((flag.meaning, *flag.evidence)) for flag in each.refereed.flags)
        )
        lines += [f"At {point.label}: {reason}" for reason in reasons if reason]
    return tuple(lines)


def _goodness(point: LoadPoint) -> tuple[float, float]:
    return (point.metrics.goodput_requests_per_s or 0.0, point.metrics.output_tokens_per_s or 0.0)


def count_good(records: Sequence[RequestRecord], objective: Objective) -> Good:
    """Measured requests by whether they met the objective."""
    measured = [r for r in records if r.stage is Stage.MEASURE and r.status is not RequestStatus.CANCELLED]
    num_good = sum(map(objective.is_met_by, measured))
    num_completed = sum(record.status is RequestStatus.COMPLETED for record in measured)
    return Good(objective.rule, num_good, num_completed - num_good, len(measured) - num_completed)
