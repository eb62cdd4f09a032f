"""How much of a recorded trace's tail random arrivals would hide.

In:   Workload of a trace, ServerSetup, StepTime
Out:  ReplayReport: the trace as it was, beside the same requests arriving at random at the same mean rate
Leaves out: the capacity of either (capacity)
Read next by: report, cli.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.errors import RequestError
from inference_bench.metrics import Objective
from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.settings import ServerSetup
from inference_bench.simulate.step_time import StepTime
from inference_bench.simulate.summary import SimulatedRow, summarise_run
from inference_bench.workload import OpenLoop, Poisson, Workload, with_arrivals


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """A recorded trace beside random arrivals of the same mean rate and the same requests.

    Where:  ratio is p99 TTFT replayed over p99 TTFT under Poisson arrivals: how much of the tail random arrivals would hide
    """

    rate: float
    replayed: SimulatedRow
    poisson: SimulatedRow
    ratio: float | None


def compare_replay(
    workload: Workload,
    setup: ServerSetup,
    step_time: StepTime,
    objective: Objective | None = None,
    seed: int = 0,
    engine: Engine = Engine.AUTO,
) -> ReplayReport:
    """A trace as it was recorded, and the same requests arriving at random at the same mean rate.

    Raises:  RequestError for a closed loop, or a trace in which all arrive at once
    """
    arrival = workload.arrival
    rate = arrival.realised_rate if isinstance(arrival, OpenLoop) else None
    if rate is None:
        raise RequestError("there is no rate to compare with: the trace has no schedule, or all of it arrives at once")
    rows = [
        summarise_run(simulate(each, setup, step_time, objective, engine), objective)
        for each in (workload, with_arrivals(workload, Poisson(rate), seed))
    ]
    replayed, poisson = rows
    both = replayed.ttft_p99_s, poisson.ttft_p99_s
    ratio = both[0] / both[1] if both[0] is not None and both[1] else None
    return ReplayReport(rate, replayed, poisson, ratio)
