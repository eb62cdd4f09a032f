"""Many simulations at once: setups × rates × seeds, in the order in which they were asked for.

In:   Cases; how many workers; this machine's processes, or Ray
Out:  a CaseResult for each, whatever finished first
Leaves out: searches, in which one run depends on another (capacity)
Read next by: cli, charts.simulation.

A case that cannot run says so in its result, and the others go on. Results are handed over as each comes, so an interrupted sweep
keeps what it had.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from inference_bench.errors import InferenceBenchError, RequestError, WorldError
from inference_bench.metrics import Objective
from inference_bench.simulate.fleet_plan import FleetFigures, FleetPlan, figures_of, run_fleet
from inference_bench.simulate.outcome import Outcome, Progress
from inference_bench.simulate.run import Engine, needs_reference, simulate
from inference_bench.simulate.settings import ServerSetup
from inference_bench.simulate.step_time import StepTime
from inference_bench.simulate.summary import Checks, SimulatedRow, check_run, summarise_run, was_answered
from inference_bench.workload import ArrivalSummary, OpenLoop, Workload, summarise_arrivals

if TYPE_CHECKING:
    from inference_bench.simulate.processes import Lost

NOBODY_ANSWERED: Final = 1  # exit code
_READABLE_COSTS: Final = 10  # the readable loop takes about so many times as long as the fast engine
_WORTH_PROCESSES: Final = (
    10_000  # requests of the fast engine: some three seconds, against half a second to start two processes
)


@dataclass(frozen=True, slots=True)
class WorkloadRecipe:
    """A workload by how it is made, so that little travels to whoever simulates it.

    Where:  make is a function that can be pickled, such as functools.partial(reference_workload, 0.3); count is how many
            requests it makes, to judge whether several processes are worth it
    """

    make: Callable[[], Workload]
    count: int

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True, slots=True)
class Case:
    """One simulation of a sweep.

    Where:  label names the series that it belongs to, such as its policy; keeps_outcome asks for the whole run in the result, as
            charts of one run need it; fleet is how many such servers share the workload, None: one
    """

    label: str
    workload: Workload | WorkloadRecipe
    setup: ServerSetup
    step_time: StepTime
    objective: Objective = field(default_factory=Objective)
    engine: Engine = Engine.AUTO
    keeps_outcome: bool = False
    fleet: FleetPlan | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """What a simulation gave: a row, or why there is none.

    Where:  arrivals is None for a closed loop, fleet where one server ran; error is one sentence; exit_code is 0 for a row, 1
            where nobody was answered, 2 where the case itself cannot run, 3 where it was lost
    """

    row: SimulatedRow | None = None
    checks: Checks | None = None
    arrivals: ArrivalSummary | None = None
    outcome: Outcome | None = None
    fleet: FleetFigures | None = None
    error: str | None = None
    exit_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult(Ran):
    """What a case of a sweep gave."""

    case: Case


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; results are those of the cases that had ended, in the order of the cases."""

    def __init__(self, results: Sequence[CaseResult]) -> None:
        super().__init__(f"interrupted after {len(results)} cases")
        self.results = tuple(results)


class Backend(StrEnum):
    """Where the cases run."""

    LOCAL = "local"  # processes of this machine; this very process where those would not pay
    RAY = "ray"  # tasks of Ray


def sweep(
    cases: Sequence[Case],
    workers: int | None = None,
    backend: Backend | str = Backend.LOCAL,
    on_result: Callable[[CaseResult], None] | None = None,
    progress: Progress | None = None,
) -> list[CaseResult]:
    """Every case, in order.

    Where:   workers None: as many as there are processors, and this process alone where the cases are few and small; on_result
             gets each result as it comes; progress gets (ended, all) requests of a case that runs in this very process
    Raises:  SweepInterrupted on Ctrl-C, with what had ended; RequestError for workers below 1 or an unknown backend;
             MissingExtraError for Ray without ray; WorldError where no process can start
    """
    runs = _runs(cases, workers, backend, progress)
    results: dict[int, CaseResult] = {}
    try:
        for index, ran in runs:
            results[index] = _result(cases[index], ran)
            if on_result is not None:
                on_result(results[index])
    except KeyboardInterrupt:
        raise SweepInterrupted([results[index] for index in sorted(results)]) from None
    finally:
        runs.close()
    return [results[index] for index in range(len(cases))]


def _runs(
    cases: Sequence[Case], workers: int | None, backend: Backend | str, progress: Progress | None
) -> Generator[tuple[int, Ran | Lost], None, None]:
    if backend not in set(Backend):
        raise RequestError(f"no backend for sweeps is called {backend!r}; known: {', '.join(Backend)}")
    if workers is not None and workers < 1:
        raise RequestError(f"{workers} workers cannot run anything; give at least 1")
    if backend == Backend.RAY:
        from inference_bench.simulate.ray_tasks import run_on_ray

        return run_on_ray(_run, cases, workers)
    num_processes = _num_processes(cases) if workers is None else min(workers, len(cases))
    if num_processes < 2:
        return _in_turn(cases, progress)
    from inference_bench.simulate.processes import run_in_processes

    return run_in_processes(_run, cases, num_processes)


def _num_processes(cases: Sequence[Case]) -> int:
    """As many as there are processors, if the cases are long enough for that."""
    work = sum(len(case.workload) * (_READABLE_COSTS if _is_readable(case) else 1) for case in cases)
    if work < _WORTH_PROCESSES:
        return 1
    from inference_bench.simulate.processes import usable_cpus

    return min(usable_cpus(), len(cases))


def _is_readable(case: Case) -> bool:
    return (
        case.fleet is not None or case.engine is Engine.REFERENCE or needs_reference(case.setup.scheduler) is not None
    )


def _in_turn(cases: Sequence[Case], progress: Progress | None) -> Generator[tuple[int, Ran | Lost], None, None]:
    for index, case in enumerate(cases):
        yield index, _run(case, progress)


def _run(case: Case, progress: Progress | None = None) -> Ran:
    try:
        given = case.workload
        workload = given.make() if isinstance(given, WorkloadRecipe) else given
        outcome, fleet = _simulate(case, workload, progress)
        if not was_answered(outcome):
            why = f"no request was answered: all {len(workload)} failed"
            return Ran(fleet=fleet, error=why, exit_code=NOBODY_ANSWERED)
        arrival = workload.arrival
        return Ran(
            summarise_run(outcome, case.objective),
            check_run(outcome),
            summarise_arrivals(arrival) if isinstance(arrival, OpenLoop) else None,
            outcome if case.keeps_outcome else None,
            fleet,
        )
    except InferenceBenchError as error:
        return Ran(error=str(error), exit_code=error.exit_code)
    except Exception as error:  # a fault of the simulator must not take the other cases along
        said = f"{type(error).__name__}: {error}; this is a fault of the simulator, report it"
        return Ran(error=said, exit_code=WorldError.exit_code)


def _simulate(case: Case, workload: Workload, progress: Progress | None) -> tuple[Outcome, FleetFigures | None]:
    """The run of one server, or of several with what they did."""
    if case.fleet is None:
        return simulate(workload, case.setup, case.step_time, case.objective, case.engine, progress), None
    found = run_fleet(workload, case.setup, case.step_time, case.fleet, case.objective, progress)
    return found.outcome, figures_of(found)


def _result(case: Case, ran: Ran | Lost) -> CaseResult:
    if isinstance(ran, Ran):
        return CaseResult(case=case, **{each.name: getattr(ran, each.name) for each in fields(ran)})
    return CaseResult(case=case, error=ran.reason, exit_code=WorldError.exit_code)
