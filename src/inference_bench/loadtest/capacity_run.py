"""`load --find-capacity`: the search for a real server's capacity as one run, from its address to its run folder.

In:   LoadRequest, a way to make the workload of a seed, the objectives, a SearchPlan
Out:  CapacityRun
Leaves out: the search itself (capacity), one rate alone (flow), several for their curve (sweep)
Read next by: cli, report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from inference_bench.loadtest.capacity import Limits, Question, WorkloadOf, find_load_capacity
from inference_bench.loadtest.capacity_search import CapacityFound, SearchPlan
from inference_bench.loadtest.session import LoadRequest, Session, open_session, send_as_asked
from inference_bench.measure.floor import ClientFloor
from inference_bench.measure.load import LoadOptions, LoadResult
from inference_bench.measure.machine_identity import MachineIdentity, identify_machine
from inference_bench.measure.server_metrics import ServerMetrics
from inference_bench.measure.software import software_versions
from inference_bench.measure.target import Target
from inference_bench.workload import Workload


@dataclass(frozen=True, slots=True)
class CapacityRun:
    """What came back. Every request of the search is in the run folder, a group for each run at a rate."""

    target: str
    model: str | None
    endpoint: str
    limits: Limits
    found: CapacityFound
    workload: Workload
    floor: ClientFloor
    dropped_fields: tuple[str, ...]
    run_dir: Path
    client: MachineIdentity
    versions: Mapping[str, str]
    server: ServerMetrics | None = None


def measure_capacity(
    request: LoadRequest,
    workload_of: WorkloadOf,
    limits: Limits,
    plan: SearchPlan | None = None,
    progress: Callable[[str], None] | None = None,
    *,
    guesses_first_rate: bool = True,
    max_s: float = math.inf,
) -> CapacityRun:
    """Search the highest rate within objectives on a real server.

    Where:    guesses_first_rate has a short closed loop say at which rate to begin; no run is begun that would end after max_s
    Raises:   RequestError, ServerError, MeasurementError, StorageError; what was measured by then is in the run folder
    """
    say = progress or (lambda _text: None)
    first = workload_of(1, request.seed)
    about = {"workload": first.name, "objectives": limits.text}
    with open_session(replace(request, workload=first), say, about=about) as session:
        question = Question(
            session.target, workload_of, limits, plan or SearchPlan(seed=request.seed), guesses_first_rate, max_s
        )
        session.meter.begin("looking for the capacity")
        found = find_load_capacity(question, session.options, say, _sender(session))
        session.has_failed = found.trouble is not None
    return CapacityRun(
        target=session.target.base_url,
        model=session.target.model,
        endpoint=session.target.endpoint.value,
        limits=limits,
        found=found,
        workload=first,
        floor=session.floor,
        dropped_fields=session.dropped_fields,
        run_dir=session.folder.path,
        client=identify_machine(),
        versions=software_versions(),
        server=session.server_metrics,
    )


def _sender(session: Session) -> Callable[[Target, Workload, LoadOptions], LoadResult]:
    """How one run is sent: as the request says, records of several processes written when all have ended."""
    return partial(send_as_asked, session.request)
