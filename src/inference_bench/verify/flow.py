"""`verify`: identify, probe, predict, measure a calibration sweep, fit, predict what was not fitted, predict a load, run it, compare.

In:   VerifyRequest: a running server or none (then the embedded engine and model), a model, a machine
Out:  VerifyResult; raw samples are in its run folder from the moment they are measured
Leaves out: what each part does (calibration_sweep, calibration_fit, load_check), what a report shows (report)
Read next by: matrix, cli.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from inference_bench.compare import batch_lines, read_gap
from inference_bench.engines.base import RunningServer
from inference_bench.engines.startup import StartedServer
from inference_bench.errors import InferenceBenchError, MeasurementError, RequestError, ServerError, StorageError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.manifest.run import keep_manifest, manifest_of_server
from inference_bench.measure.ceilings import ProbeResult
from inference_bench.measure.floor import ClientFloor, measure_client_floor
from inference_bench.measure.gpu_telemetry import GpuWatch
from inference_bench.measure.here import machine_from_probe
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.load import LoadOptions, LoadResult
from inference_bench.measure.software import software_versions
from inference_bench.measure.store import RecordWriter, RunFolder, read_records
from inference_bench.metrics import send_delay_s
from inference_bench.predict.step_cost import ServedModel
from inference_bench.records import RequestStatus
from inference_bench.roofline import roof
from inference_bench.stats import quantile
from inference_bench.units import format_fraction
from inference_bench.verify.calibration_fit import Fitted, fit_sweep
from inference_bench.verify.calibration_limits import limits_of
from inference_bench.verify.calibration_sweep import Sweep, SweepOptions, run_sweep
from inference_bench.verify.ceiling_readings import larger_of, read_ceilings, second_reading
from inference_bench.verify.cpu_clock import CpuClock
from inference_bench.verify.disturbances import MUCH_OTHER_WORK, of_ceilings, of_loads
from inference_bench.verify.engine_rules import EngineRules, rules_of
from inference_bench.verify.identity import Watch, identify_model
from inference_bench.verify.load_check import LoadChecked, Send, check_load, sending, server_model
from inference_bench.verify.memory import check_cache, memory_rows
from inference_bench.verify.result import ClientNumbers, CpuShares, VerifyResult
from inference_bench.verify.session import Session, VerifyRequest, prepare, served_by, target_of
from inference_bench.verify.summary import (
    assumptions_of,
    card_notes,
    ceiling_curve,
    compared_points,
    groups_of,
    unsteady_notes,
)
from inference_bench.workload import Workload

PROFILE_FILE: Final = "profile.json"
_LONGEST_ANSWER_S: Final = 45.0  # of a request of a load: lengths are chosen for answers of seconds

Progress = Callable[[str], None]


class VerifyInterrupted(KeyboardInterrupt):
    """A person ended the run before its steps were fitted; `run_dir` holds what was measured by then."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__()
        self.run_dir = run_dir


def verify_server(request: VerifyRequest, progress: Progress | None = None) -> VerifyResult:
    """Measure a server against ceilings, fit what it does, and hold the fit to what it has not seen.

    Where:   what goes wrong once the steps are fitted is the result's trouble: what was measured by then is reported
    Raises:  RequestError for what cannot be verified; ServerError, MeasurementError, DownloadError, StorageError when
             the world fails before that, and VerifyInterrupted. Samples measured by then are in the run folder, which the
             error names
    """
    say = progress or (lambda _text: None)
    started, started_s = datetime.now(UTC), time.monotonic()
    session = prepare(request, say)
    plan, folder = request.plan, session.folder
    with _place_named(folder):
        before = read_ceilings(plan.probe_budget_s, say, session.device) if session.is_probed else None
        floor = measure_client_floor()
        result = _result(_measured(session, before, say), floor)
    return replace(result, started_at=started.isoformat(timespec="seconds"), elapsed_s=time.monotonic() - started_s)


def _measured(session: Session, before: ProbeResult | None, say: Progress) -> _Run:
    """All that was measured, until the end or until something went wrong after the steps were fitted.

    Raises:  what goes wrong before that
    """
    run, request = None, session.request
    try:
        with session.serve(say) as server, session.folder.open_writer() as writer:
            run = _Run(session, server, writer, say, served_by(request, session.model, server))
            watch = GpuWatch(time.monotonic, session.folder.path) if before and before.gpu else None
            with _named_ends(server), watch or nullcontext():
                run.measure(before)
            run.notes += () if watch is None else card_notes(watch.result)
    except (InferenceBenchError, KeyboardInterrupt) as error:
        if run is None or not run.is_fitted:
            raise
        run.trouble = error
    return run


@contextmanager
def _place_named(folder: RunFolder) -> Iterator[None]:
    """An error says where the samples are that were measured before it, if there are any.

    Raises:  the error
    """
    try:
        yield
    except InferenceBenchError as error:
        if not _holds_records(folder):
            raise
        raise type(error)(f"{error}; what was measured is in {folder.path}") from error
    except KeyboardInterrupt:
        if not _holds_records(folder):
            raise
        raise VerifyInterrupted(folder.path) from None


def _holds_records(folder: RunFolder) -> bool:
    try:
        return bool(read_records(folder.path).records)
    except InferenceBenchError:
        return False


@dataclass(slots=True)
class _Run:
    """One verification while its server answers; each part is there once it was measured.

    Where:  is_fitted says that the sweep is over and its steps were fitted; trouble is what went wrong since
    """

    session: Session
    server: RunningServer
    writer: RecordWriter
    say: Progress
    served: ServedModel
    manifest_sha256: str = ""
    ceilings: ProbeResult | None = None
    sweep: Sweep | None = None
    fitted: Fitted = field(default_factory=Fitted)
    loads: LoadChecked | None = None
    cpu: CpuShares | None = None
    notes: tuple[str, ...] = ()
    other_shares: dict[str, float] = field(default_factory=dict)
    ceilings_moved: tuple[str, ...] = ()
    is_fitted: bool = False
    trouble: BaseException | None = None

    @property
    def disturbances(self) -> tuple[str, ...]:
        """What speaks against judging the engine by this run, as clauses of one sentence."""
        of_steps = () if self.sweep is None else self.sweep.disturbances()
        return (*of_steps, *of_loads(self.other_shares), *self.ceilings_moved)

    @property
    def machine(self) -> HardwareSpec:
        """The machine that was probed, or the one that was named."""
        named = self.session.machine
        if self.ceilings is not None:
            return machine_from_probe(self.ceilings)
        if named is None:
            raise MeasurementError("this machine was not probed and no other machine was named")
        return named

    def measure(self, before: ProbeResult | None) -> None:
        """All parts in their order; the model is asked for again before the load and at the end."""
        request, server = self.session.request, self.server
        target, clock = target_of(request, server), CpuClock(server)
        self.session.folder.update_meta(
            {"target": target.base_url, "engine": server.identity.name, "model": self.session.model.spec.name}
        )
        watch = Watch(target)
        self._keep_manifest()
        self.sweep = run_sweep(
            target, request.plan, limits_of(server.identity, server.figures), self._sweep_options(clock)
        )
        watch.check()
        self._read_ceilings_again(before)
        self.say("fitting the time of a step")
        rules = self._rules()
        self.fitted = fit_sweep(self.sweep.observations(), self.served, self.machine, server.identity, rules)
        self.fitted.save(self.session.folder.path / PROFILE_FILE)
        self.is_fitted = True
        self._check_load(self.sweep, rules, clock)
        self.cpu = clock.shares()
        if self.trouble is not None:
            raise self.trouble
        watch.check()

    def _keep_manifest(self) -> None:
        """What is served, by hash, in the run folder before it is measured."""
        session = self.session
        known = None if session.files is None else session.files.by_name
        found = manifest_of_server(self.server, session.request.api_key, session.path, known)
        self.manifest_sha256 = keep_manifest(session.folder, found)

    def _read_ceilings_again(self, before: ProbeResult | None) -> None:
        if before is None:
            return
        after = second_reading(before, self.session.request.plan.second_probe_budget_s, self.say)
        self.ceilings = larger_of(before, after)
        self.ceilings_moved = () if after is None else tuple(of_ceilings(before, after))

    def _sweep_options(self, clock: CpuClock) -> SweepOptions:
        request = self.session.request
        salt = "" if request.url is None else self.session.folder.path.name
        return SweepOptions(
            self.writer.append, self.say, Timeouts(total_s=request.timeout_s), request.seed, salt, clock.engine_cpu_s
        )

    def _rules(self) -> EngineRules | None:
        """The engine's scheduler and memory; None, and why in a note, where no request can run."""
        try:
            return rules_of(self.server.identity, self.server.figures, self.served)
        except RequestError as error:
            self.notes += (f"no load was predicted or run: {error}",)
            return None

    def _check_load(self, sweep: Sweep, rules: EngineRules | None, clock: CpuClock) -> None:
        """The loads, predicted from the fit and then sent; what stands in the way of them is noted."""
        request, calibration = self.session.request, self.fitted.calibration
        if not request.runs_load:
            self.notes += ("no load was predicted or run: it was not asked for",)
            return
        if calibration is None:
            self.notes += ("no load was predicted or run: there is no fitted step time to predict one with",)
            return
        if rules is None:
            return
        try:
            self.loads = check_load(
                server_model(calibration, rules),
                self._sending(sweep, clock),
                self.session.folder,
                request.plan.load_budget,
                limits=request.objective,
                seed=request.seed,
                say=self.say,
            )
        except RequestError as error:
            self.notes += (f"no load was run: {error}",)

    def _sending(self, sweep: Sweep, clock: CpuClock) -> Send:
        """A way to send a load to a server at rest: with its slots in the order in which a fresh one gives them out."""
        sender = sweep.sender
        timeouts = replace(sender.timeouts, total_s=min(sender.timeouts.total_s, _LONGEST_ANSWER_S))
        options = LoadOptions(writer=self.writer.append, timeouts=timeouts, clock=sender.clock, prompts=sender.prompts)
        send = sending(sender.target, options)

        def send_from_rest(workload: Workload, group: str) -> LoadResult:
            with self._trouble_kept(group):
                sweep.rest()
                before = clock.now()
                result = send(workload, group)
            self._note_unanswered(group, result)
            other = clock.other_share(before)
            if other is not None and other > MUCH_OTHER_WORK:
                self.other_shares[group] = other
                self.notes += (
                    f"while {group} was sent, other work took {format_fraction(other, 2)} of the processors: what was measured is "
                    "slower than what was predicted for a machine without it",
                )
            return result

        return send_from_rest

    @contextmanager
    def _trouble_kept(self, group: str) -> Iterator[None]:
        """What ends a load ends that load only, so that those before it are kept; it is said, and raised when they are.

        Raises:  MeasurementError
        """
        try:
            yield
        except MeasurementError as error:
            self.notes += (f"{group} failed: {error}",)
            raise
        except (ServerError, StorageError, KeyboardInterrupt) as error:
            self.trouble = error
            words = _words_of(error)
            self.notes += (f"{group} failed: {words}",)
            raise MeasurementError(words) from error

    def _note_unanswered(self, group: str, result: LoadResult) -> None:
        """A load of which no request was answered says why, in the words of the first that was not."""
        if any(record.status is RequestStatus.COMPLETED for record in result.records):
            return
        first = next((record.error for record in result.records if record.error), "no reason was given")
        self.notes += (f"{group}: none of its {len(result.records)} requests was answered; the first: {first}",)


@contextmanager
def _named_ends(server: RunningServer) -> Iterator[None]:
    """When measuring fails because a server that was started here ended, that is what is said.

    Raises:  ServerError
    """
    try:
        yield
    except (MeasurementError, ServerError) as error:
        if isinstance(server, StartedServer) and not server.is_running():
            raise ServerError(
                f"the server ended while it was measured ({server.describe_end()}); its log is engine.log in the run folder"
            ) from error
        raise


def _result(run: _Run, floor: ClientFloor) -> VerifyResult:
    """Everything that was found, beside its ceilings."""
    session, server, served, machine = run.session, run.server, run.served, run.machine
    sweep, ceilings, fitted, folder = run.sweep, run.ceilings, run.fitted, run.session.folder
    if sweep is None:
        raise MeasurementError("nothing was measured")
    ceiling = roof(machine, served.weights.linear_format)
    points = compared_points(sweep, served, ceiling)
    identity = identify_model(session.model, served.weights, session.files.sha256 if session.files else None)
    return VerifyResult(
        started_at="",
        elapsed_s=0.0,
        target=sweep.sender.target.base_url,
        probe=ceilings,
        machine=machine,
        ceiling=ceiling,
        model=identity,
        engine=server.identity,
        figures=server.figures,
        cache_check=check_cache(server.identity, server.figures, session.model.spec),
        points=points,
        curve=ceiling_curve(points, served, ceiling),
        batch_lines=batch_lines(points, ceiling),
        groups=groups_of(sweep),
        client=_client(sweep, floor, run.cpu),
        reading=read_gap(points, ceiling),
        assumptions=assumptions_of(sweep, served, ceiling, machine),
        notes=(
            *session.notes,
            *(ceilings.notes if ceilings else ()),
            *sweep.notes(),
            *unsteady_notes(points),
            *fitted.notes,
            *run.notes,
        ),
        run_dir=folder.path,
        manifest_sha256=run.manifest_sha256,
        versions=software_versions(),
        seed=session.request.seed,
        calibration=fitted.calibration,
        gap=fitted.gap,
        load=run.loads.load if run.loads else None,
        capacity=run.loads.capacity if run.loads else None,
        memory=memory_rows(server.identity, server.figures, session.model.spec),
        disturbances=run.disturbances,
        profile_path=None if fitted.calibration is None else folder.path / PROFILE_FILE,
        count_doubts=sweep.count_doubts(),
        trouble=None if run.trouble is None else _words_of(run.trouble),
        is_interrupted=isinstance(run.trouble, KeyboardInterrupt),
    )


def _words_of(trouble: BaseException) -> str:
    return "it was interrupted" if isinstance(trouble, KeyboardInterrupt) else str(trouble)


def _client(sweep: Sweep, floor: ClientFloor, cpu: CpuShares | None) -> ClientNumbers:
    return ClientNumbers(
        send_delay_p99_s=_p99([send_delay_s(record) for record in sweep.all_records()]),
        loop_lag_p99_s=_p99(sweep.sender.loop_lags_s),
        floor_ttft_s=floor.ttft_s,
        floor_chunk_cpu_s=floor.chunk_cpu_s,
        cpu=cpu,
    )


def _p99(values: Sequence[float]) -> float | None:
    return quantile(values, 0.99) if values else None
