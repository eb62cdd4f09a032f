"""Small fleets whose steps last a second each, or a second and a millisecond a position: times can be said beforehand."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace

from inference_bench.simulate.replica import ReplicaSetup
from inference_bench.simulate.settings import KvMemory, Policy, SchedulerSettings, ServerSetup
from inference_bench.simulate.step_time import Coefficients, StepTime
from inference_bench.workload import ClosedLoop, OpenLoop, Requests, Workload

REFERENCE_STEPS = StepTime(Coefficients(5.5e9, 147456, 2.0 * 8927875072, 4.0 * 36 * 4096, 1e12, 0.5 * 165e12))
REFERENCE_MEMORY = KvMemory(16_000_000_000, 147456)


def steps_of(fixed_s: float = 1.0, position_s: float = 0.0) -> StepTime:
    """Every step lasts as long, or as long and something for each position."""
    return StepTime(Coefficients(0, 0, 0, 0, 1, 1, fixed_s=fixed_s, position_s=position_s))


def replica_of(
    *, step_time: StepTime | None = None, budget: int = 1_000_000, settings: SchedulerSettings | None = None
) -> ReplicaSetup:
    """A replica whose cache takes one byte a position."""
    scheduler = settings or SchedulerSettings()
    return ReplicaSetup(ServerSetup(scheduler, KvMemory(budget, 1)), step_time or steps_of())


def reference_replica(policy: Policy = Policy.CHUNKED) -> ReplicaSetup:
    """The server of the reference case."""
    return ReplicaSetup(ServerSetup(SchedulerSettings(policy=policy), REFERENCE_MEMORY), REFERENCE_STEPS)


def workload_of(*requests: tuple[float, int, int]) -> Workload:
    """Requests as (arrival, prompt tokens, output tokens)."""
    times, prompts, outputs = zip(*requests, strict=True)
    return Workload(
        "by hand", Requests(array("q", prompts), array("q", outputs)), OpenLoop(array("d", times), "by hand")
    )


def closed_workload(concurrency: int, shapes: Sequence[tuple[int, int]], think_s: float = 0.0) -> Workload:
    """A closed loop of (prompt tokens, output tokens)."""
    prompts, outputs = zip(*shapes, strict=True)
    asked = Requests(array("q", prompts), array("q", outputs))
    return Workload("closed", asked, ClosedLoop(concurrency, len(shapes), think_s))


def part_of(workload: Workload, chosen: Sequence[int]) -> Workload:
    """Some of the requests of an open loop, at their times."""
    assert isinstance(workload.arrival, OpenLoop)
    asked = workload.requests
    return replace(
        workload,
        requests=Requests(
            array("q", [asked.prompt_tokens[index] for index in chosen]),
            array("q", [asked.output_tokens[index] for index in chosen]),
        ),
        arrival=OpenLoop(array("d", [workload.arrival.times_s[index] for index in chosen]), "part"),
    )
