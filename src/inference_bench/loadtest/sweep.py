"""How does a server go from idle to saturated and past it: one run whose parts differ in rate, or in concurrency.

In:   LoadRequest, the levels to ask for (or none: then they are found), the workload of a level
Out:  SweepRun with a SweepPoint for each level
Leaves out: which level keeps a promise (capacity); how one part is measured (session, flow)
Read next by: cli, report.

No prompt comes twice in the whole sweep, also not after it was resumed, so that a level does not find in a cache what an
earlier one left there. What has ended is in the run folder, and a sweep that was cut short goes on at the next level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from inference_bench.arrival_proof import ArrivalProof, Verdict
from inference_bench.errors import RequestError, StorageError, WorldError
from inference_bench.loadtest.flow import check_prompts, prove, referee_run, send_or_stop, window_of
from inference_bench.loadtest.session import LoadRequest, Session, open_session, require_measured
from inference_bench.loadtest.settle import Settler
from inference_bench.measure.client_health import health_values
from inference_bench.measure.floor import ClientFloor
from inference_bench.measure.gpu_telemetry import GpuTelemetry
from inference_bench.measure.machine_identity import MachineIdentity, identify_machine
from inference_bench.measure.openai_stream import one_line
from inference_bench.measure.prompt_checks import CacheCheck, PromptCheck
from inference_bench.measure.server_metrics import ServerMetrics
from inference_bench.measure.software import software_versions
from inference_bench.measure.store import RunFolder, read_records
from inference_bench.measure.target import parse_address
from inference_bench.metrics import Metrics, Objective, summarise
from inference_bench.records import RequestRecord
from inference_bench.referee import Refereed
from inference_bench.token_window import TokenWindow
from inference_bench.units import format_seconds
from inference_bench.workload import ClosedLoop, OpenLoop, Workload

LEAST_GROWTH: Final = 0.05  # of the throughput, from one level to twice as much: below it the server is saturated
GOODPUT_LEFT: Final = 0.9  # of the best: below it the server is past its best level
NUM_PAST: Final = 2
MOST_LEVELS: Final = 40

_STRIDE: Final = 2.0
_PAST_STRIDE: Final = 1.5


class Axis(StrEnum):
    """What the levels of a sweep are levels of."""

    RATE = "rate"
    CONCURRENCY = "concurrency"


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """Which levels.

    Where:    levels are asked for in this order; is_open goes on from the last of them, twice as much each time, until
              the throughput no longer grows or the goodput falls, and then NUM_PAST levels further
    Raises:   RequestError for no level, one that is not above zero, or too many
    """

    axis: Axis
    levels: tuple[float, ...]
    is_open: bool = False

    def __post_init__(self) -> None:
        if not 1 <= len(self.levels) <= MOST_LEVELS:
            raise RequestError(f"{len(self.levels)} levels are no sweep; give 1 to {MOST_LEVELS}")
        for level in self.levels:
            if level <= 0 or (self.axis is Axis.CONCURRENCY and level != int(level)):
                raise RequestError(f"a {self.axis} of {level:g} cannot be asked for; give numbers above 0")
        if len(set(self.levels)) < len(self.levels):
            raise RequestError(f"a {self.axis} comes twice in the sweep; ask for each once")

    def name_of(self, level: float) -> str:
        """What the part of the run with this level is called."""
        return f"{self.axis}-{level:g}"


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """What came of one level.

    Where:    client is what `health_values` says of this client; is_complete is False for one that was stopped
    Unit:     level in requests per second, or requests in flight
    """

    level: float
    group: str
    workload: Workload
    metrics: Metrics
    window: TokenWindow | None
    client: Mapping[str, Any]
    arrivals: ArrivalProof
    records: tuple[RequestRecord, ...] = field(repr=False)
    is_complete: bool = True
    prompts: PromptCheck | None = None
    cache: CacheCheck | None = None
    refereed: Refereed | None = None

    @property
    def is_judged(self) -> bool:
        """Whether saturation can be seen by it: a closed loop had a steady window, and as many in flight as asked."""
        if not self.is_complete or not isinstance(self.workload.arrival, ClosedLoop):
            return self.is_complete
        return self.window is not None and self.arrivals.verdict is not Verdict.NOT_REACHED

    @property
    def good_per_s(self) -> float | None:
        """Good requests a second in the window, over the same time as `throughput`; else over the whole level."""
        window = self.window
        return self.metrics.goodput_requests_per_s if window is None else window.good_requests_per_s

    @property
    def throughput(self) -> float:
        """What saturation is seen by: tokens a second in the window, else completed requests a second.

        Ignores:  its unit, which is the same at all levels of a server
        """
        window = self.window
        if window is not None and window.output_tokens_per_s is not None:
            return window.output_tokens_per_s
        metrics = self.metrics
        return metrics.output_tokens_per_s or (metrics.requests.completed / metrics.span_s if metrics.span_s else 0.0)


@dataclass(frozen=True, slots=True)
class SweepRun:
    """What came back.

    Where:    saturated_level is the lowest level from which on the throughput grew no more; None where it still grew;
              notes say why a level could not be measured, or may not be what it seems; remarks what leaves no doubt, such as
              how long was waited between levels
    """

    target: str
    model: str | None
    endpoint: str
    plan: SweepPlan
    points: tuple[SweepPoint, ...]
    saturated_level: float | None
    floor: ClientFloor
    dropped_fields: tuple[str, ...]
    run_dir: Path
    client: MachineIdentity
    versions: Mapping[str, str]
    server: ServerMetrics | None = None
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False
    gpu: GpuTelemetry | None = None
    objective: Objective = field(default_factory=Objective)
    remarks: tuple[str, ...] = ()


def measure_sweep(
    request: LoadRequest,
    plan: SweepPlan,
    workload_at: Callable[[float], Workload],
    progress: Callable[[str], None] | None = None,
    resume: Path | None = None,
) -> SweepRun:
    """Measure level after level in one run folder; or go on with a sweep that was cut short.

    Raises:  RequestError, also where what is resumed was asked otherwise; see `flow.measure_load` for the rest
    """
    first = workload_at(plan.levels[0])
    asked = _asked(request, plan, first)
    finished = _finished(resume, asked)
    about = {"workload": first.name, "sweep": {"asked": asked, "finished": finished}}
    say = progress or (lambda _text: None)
    with open_session(replace(request, workload=first), say, resume, about, finished) as session:
        sweep = _Sweep(session, plan, workload_at, finished)
        sweep.run()
    return SweepRun(
        target=session.target.base_url,
        model=session.target.model,
        endpoint=session.target.endpoint.value,
        plan=plan,
        points=tuple(sweep.points),
        saturated_level=saturated_level(sweep.points),
        floor=session.floor,
        dropped_fields=session.dropped_fields,
        run_dir=session.folder.path,
        client=identify_machine(),
        versions=software_versions(),
        server=session.server_metrics,
        notes=(*request.notes, *sweep.notes),
        remarks=tuple(sweep.remarks),
        gpu=session.gpu,
        objective=request.objective,
        is_interrupted=sweep.is_interrupted,
    )


def saturated_level(points: Sequence[SweepPoint]) -> float | None:
    """The lowest level from which on no higher one gave more, of those that can be judged; None where the highest did."""
    by_level = sorted((point for point in points if point.is_judged), key=lambda point: point.level)
    for place, point in enumerate(by_level):
        later = [further.throughput for further in by_level[place + 1 :]]
        if later and max(later) < (1 + LEAST_GROWTH) * point.throughput:
            return point.level
    return None


class _Sweep:
    """A sweep under way."""

    def __init__(
        self,
        session: Session,
        plan: SweepPlan,
        workload_at: Callable[[float], Workload],
        finished: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.points: list[SweepPoint] = []
        self.notes: list[str] = []
        self.remarks: list[str] = []
        self.is_interrupted = False
        self._session, self._plan, self._workload_at = session, plan, workload_at
        self._settler, self._has_sent = Settler(session), False
        self._finished = dict(finished)
        self._stored: dict[str, list[RequestRecord]] = {}
        if finished:
            for record in read_records(session.folder.path).records:
                self._stored.setdefault(record.group, []).append(record)

    def run(self) -> None:
        for level in self._plan.levels:
            if not self._measure(level):
                return
        if not self._plan.is_open:
            return
        level = self._plan.levels[-1]
        while self._can_judge(level) and not self._is_saturated():
            level = self._next(level * _STRIDE)
            if len(self.points) >= MOST_LEVELS or not self._measure(level):
                return
        for _ in range(NUM_PAST if self.points[-1].is_judged else 0):
            level = self._next(level * _PAST_STRIDE)
            if not self._measure(level):
                return

    def _next(self, level: float) -> float:
        return float(round(level)) if self._plan.axis is Axis.CONCURRENCY else level

    def _can_judge(self, level: float) -> bool:
        if not self.points[-1].is_judged:
            self.notes.append(
                f"{self._plan.axis} {level:g}: too few requests to judge it by, so the sweep ends here; ask for more of them"
            )
        return self.points[-1].is_judged

    def _is_saturated(self) -> bool:
        """Whether the last level gave hardly more than the best before it, or less of it in time."""
        if len(self.points) < 2:
            return False
        *before, last = self.points
        is_flat = last.throughput < (1 + LEAST_GROWTH) * max(point.throughput for point in before)
        good = max(point.good_per_s or 0.0 for point in before)
        return is_flat or (last.good_per_s or 0.0) < GOODPUT_LEFT * good

    def _measure(self, level: float) -> bool:
        """Measure one level, or take it from the folder; whether to go on."""
        group, workload = self._plan.name_of(level), self._workload_at(level)
        if (stored := self._finished.get(group)) is not None:
            self.points.append(self._point(level, workload, self._stored.get(group, []), stored))
            return True
        try:
            require_measured(workload, self._session.request)
            self._settle(level)
            result, is_interrupted = send_or_stop(self._session, workload, group)
        except (WorldError, RequestError) as error:
            if not self.points:
                raise
            self.notes.append(f"{self._plan.axis} {level:g}: {error}")
            self._session.has_failed = isinstance(error, StorageError)
            return False
        except KeyboardInterrupt:
            if not self.points:
                raise
            self.is_interrupted = True
            return False
        self.is_interrupted = is_interrupted
        found = {"measured_s": result.measured_s, "client": health_values(result.health)}
        self.points.append(self._point(level, workload, result.records, found, is_interrupted))
        if not is_interrupted:
            self._finished[group] = found
            sweep = self._session.folder.read_meta()["sweep"]
            asked = sweep["asked"] if isinstance(sweep, dict) else None
            self._session.folder.update_meta({"sweep": {"asked": asked, "finished": self._finished}})
        return not is_interrupted

    def _settle(self, level: float) -> None:
        """Let the server end what the level before left it with."""
        if not self._has_sent:
            self._has_sent = True
            self._settler.learn()
            return
        last = self.points[-1]
        found = self._settler.wait_after(last.records, self._session.request.duration_s)
        if found is not None and found.is_worth_saying:
            said = self.remarks if found.is_idle else self.notes
            said.append(found.said(f"{self._plan.axis} {level:g}"))

    def _point(
        self,
        level: float,
        workload: Workload,
        records: Sequence[RequestRecord],
        found: Mapping[str, Any],
        is_interrupted: bool = False,
    ) -> SweepPoint:
        measured_s = found["measured_s"]
        interval = None if measured_s is None else (float(measured_s[0]), float(measured_s[1]))
        prompts, cache = check_prompts(self._session, workload, records)
        return SweepPoint(
            level=level,
            group=self._plan.name_of(level),
            workload=workload,
            metrics=summarise(records, objective=self._session.request.objective),
            window=window_of(records, workload, interval, is_interrupted, self._session.request.objective),
            client=found["client"],
            arrivals=prove(records, workload, self._session.options, is_interrupted),
            records=tuple(records),
            is_complete=not is_interrupted,
            prompts=prompts,
            cache=cache,
            refereed=referee_run(self._session, records, found["client"]),
        )


def _asked(request: LoadRequest, plan: SweepPlan, first: Workload) -> dict[str, object]:
    """What must be the same for a sweep to be gone on with."""
    return {
        "address": str(parse_address(request.url)),
        "endpoint": str(request.endpoint),
        "axis": plan.axis.value,
        "levels": list(plan.levels),
        "is_open": plan.is_open,
        "seed": request.seed,
        "duration_s": request.duration_s,
        "warmup_s": request.warmup_s,
        "warmup_requests": request.warmup_requests,
        "cooldown_s": request.cooldown_s,
        "ramp_s": request.ramp_s,
        "workload": first.name,
        "arrivals": first.arrival.process if isinstance(first.arrival, OpenLoop) else "closed loop",
        "requests": len(first),
        "prompt_tokens": sum(first.requests.prompt_tokens),
        "output_tokens": sum(first.requests.output_tokens),
    }


def _finished(resume: Path | None, asked: Mapping[str, object]) -> dict[str, Any]:
    """The levels that a sweep which is resumed has measured.

    Raises:   RequestError where it was asked otherwise
    """
    if resume is None:
        return {}
    sweep = RunFolder.open(resume).read_meta().get("sweep")
    if not isinstance(sweep, dict) or not all(isinstance(sweep.get(name), dict) for name in ("asked", "finished")):
        raise RequestError(f"{resume} holds no sweep; only a sweep that was cut short can be resumed")
    for name, value in asked.items():
        if (before := sweep["asked"].get(name)) != value:
            raise RequestError(
                f"the sweep in {resume} was asked for {_in_words(name, before)}, and this one for {_in_words(name, value)}; "
                f"ask the same to go on with it"
            )
    return dict(sweep["finished"])


def _in_words(name: str, value: object) -> str:
    """What was asked as it is said: `a duration of 3.00 s`, `the levels 1, 2`, `64 requests`."""
    what = name.removesuffix("_s").replace("_", " ").replace("warmup", "warm-up").replace("cooldown", "cool-down")
    if name == "is_open":
        return "levels up to saturation and past it" if value else "the given levels only"
    if value is None:
        return f"no {what}"
    if isinstance(value, list):
        return f"the {what} {', '.join(f'{each:g}' if isinstance(each, int | float) else '?' for each in value)}"
    if name in {"requests", "prompt_tokens", "output_tokens", "warmup_requests"}:
        return f"{one_line(str(value))} {what}"
    is_time = name.endswith("_s") and isinstance(value, int | float)
    said = format_seconds(float(value)) if is_time and isinstance(value, int | float) else one_line(str(value))
    article = "the" if what in {"address", "arrivals"} else "an" if what[0] in "aeiou" else "a"
    return f"{article} {what} {'of ' if is_time else ''}{said}"
