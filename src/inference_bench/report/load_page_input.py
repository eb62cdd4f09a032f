"""What does the page of a load run or of a sweep stand on?

In:   LoadRun or SweepRun
Out:  Evidence: everything the page shows, computed once by the functions that own each figure
Leaves out: words and looks (load_tables, load_html)
Read next by: load_tables, load_html, load_page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference_bench.arrival_proof import ArrivalProof, Verdict
from inference_bench.arrival_proof.stability import LittleCheck, Stability, check_little, judge_stability
from inference_bench.charts.load_curve import Delivered
from inference_bench.charts.load_curve import LoadPoint as LoadPoint
from inference_bench.definitions import Recomputed, recompute
from inference_bench.measure.client_health import health_values
from inference_bench.measure.floor import ClientFloor
from inference_bench.measure.gpu_telemetry import GpuTelemetry
from inference_bench.measure.machine_identity import MachineIdentity
from inference_bench.measure.prompt_checks import DocumentsJudged, judge_documents, prompt_findings
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

    @property
    def delivered(self) -> Delivered:
        """What came a second, over the steady window where there is one."""
        return Delivered.of(self.metrics, self.window)

    @property
    def is_open(self) -> bool:
        """Whether requests came on a schedule."""
        return isinstance(self.workload.arrival, OpenLoop)


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
              one that is shown in full; asked_title says what their `asked` counts. findings and notes are sentences;
              remarks are those of which none makes a figure doubtful
    """

    run: Shown
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
    documents: DocumentsJudged | None = None
    remarks: Sequence[str] = ()

    @property
    def all_metrics(self) -> tuple[Metrics, ...]:
        """Of the run, or of every load of a sweep."""
        return tuple(point.metrics for point in self.points) if self.points else (self.run.metrics,)


def gather_run(result: LoadRun) -> Evidence:
    """Everything about one run."""
    is_open = isinstance(result.workload.arrival, OpenLoop)
    return Evidence(
        run=_shown(result, result, health_values(result.health)),
        records=result.records,
        metrics_of_server=result.server,
        points=(),
        chosen=None,
        asked_title="",
        findings=(*_impossible(result.refereed), *prompt_findings(result.prompts, result.cache)),
        notes=(*result.notes, *((_INTERRUPTED,) if result.is_interrupted else ())),
        good=count_good(result.records, result.objective),
        objective=result.objective,
        gpu=result.gpu,
        stability=judge_stability(result.records) if is_open else None,
        little=check_little(result.records),
        server=None if result.server is None else summarise_server(result.server.samples),
        checks=check_server(result.server, result.records),
        refereed=result.refereed,
        documents=judge_documents(result.records),
    )


def _shown(result: LoadRun | SweepRun, part: LoadRun | SweepPoint, client: Mapping[str, Any]) -> Shown:
    """The part of a result that is shown in full: all of a run, or one point of a sweep."""
    return Shown(
        target=result.target,
        model=result.model,
        endpoint=result.endpoint,
        workload=part.workload,
        metrics=part.metrics,
        client=client,
        arrivals=part.arrivals,
        definitions=recompute(part.records),
        window=part.window,
        floor=result.floor,
        dropped_fields=result.dropped_fields,
        run_dir=result.run_dir,
        machine=result.client,
        versions=result.versions,
    )


_INTERRUPTED = "The run was interrupted: this is what was measured by then."


def _impossible(found: Refereed | None) -> tuple[str, ...]:
    """What physics has against the times: each cause, and what shows it."""
    flags = () if found is None else found.flags
    return tuple(" ".join(map(_full_sentence, (flag.meaning, *flag.evidence))) for flag in flags)


def _full_sentence(said: str) -> str:
    return f"{said[:1].upper()}{said[1:].rstrip('.')}."


def gather_sweep(result: SweepRun) -> Evidence:
    """Everything about a sweep: each load apart, and in full the one with the most good requests."""
    by_level = sorted(result.points, key=lambda point: point.level)
    points = [_load_point(each) for each in by_level]
    chosen = max(range(len(points)), key=lambda index: _goodness(points[index]))
    best = by_level[chosen]
    records = [record for each in result.points for record in each.records]
    is_open = points[chosen].is_open
    return Evidence(
        run=_shown(result, best, best.client),
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
        documents=judge_documents(records),
        remarks=result.remarks,
    )


def _load_point(point: SweepPoint) -> LoadPoint:
    is_open = isinstance(point.workload.arrival, OpenLoop)
    label = f"{point.level:g}/s" if is_open else f"{point.level:g} at once"
    return LoadPoint(label, point.level, point.metrics, point.records, is_open, point.window)


def _findings_of_points(found: Sequence[SweepPoint], points: Sequence[LoadPoint]) -> tuple[str, ...]:
    """Loads at which the client or the arrivals cannot be trusted."""
    lines = []
    for each, point in zip(found, points, strict=True):
        reasons = [each.client.get("invalid_because"), *arrival_troubles(each.arrivals)]
        reasons += (*prompt_findings(each.prompts, each.cache), *_impossible(each.refereed))
        lines += [f"At {point.label}: {reason}" for reason in reasons if reason]
    return tuple(lines)


def arrival_troubles(proof: ArrivalProof) -> tuple[str, ...]:
    """Why requests did not arrive as asked; nothing where they did, and where that is not decided."""
    if proof.reasons or proof.verdict in (Verdict.KEPT, Verdict.UNDECIDED):
        return tuple(proof.reasons)
    return tuple(proof.notes) or (f"the verdict is {proof.verdict}",)


def _goodness(point: LoadPoint) -> tuple[float, float]:
    return (point.delivered.good_per_s or 0.0, point.tokens_per_s)


def count_good(records: Sequence[RequestRecord], objective: Objective) -> Good:
    """Measured requests by whether they met the objective."""
    measured = [r for r in records if r.stage is Stage.MEASURE and r.status is not RequestStatus.CANCELLED]
    num_good = sum(map(objective.is_met_by, measured))
    num_completed = sum(record.status is RequestStatus.COMPLETED for record in measured)
    return Good(objective.rule, num_good, num_completed - num_good, len(measured) - num_completed)
