"""How many users within the objectives, on how many machines, at what cost: the answer to `plan`.

In:   Scenario, LoadedModel, HardwareSpec, and optionally what says how long a step takes (StepCost)
Out:  Plan: a tree of typed parts; units stand in the names, origins beside the parts
Leaves out: queueing beyond two checks, percentiles, block rounding unless an engine is named: see simulate
Read next by: report, cli.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from inference_bench.accounting.cache import count_cache
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import LoadedModel
from inference_bench.origin import Origin
from inference_bench.predict.capacity import Demand, count_sequences
from inference_bench.predict.deployment import Deployment, deploy
from inference_bench.predict.engine_formats import smaller_caches
from inference_bench.predict.fit import cache_format
from inference_bench.predict.plan_assumptions import plan_assumptions
from inference_bench.predict.plan_checks import LittleCheck, QueueCheck, little_check, queue_check
from inference_bench.predict.plan_cost import PlanCost, plan_cost
from inference_bench.predict.plan_latency import LatencyPlan, latency_plan
from inference_bench.predict.plan_load import LoadPlan, demand_of, plan_loads
from inference_bench.predict.plan_verdict import ObjectiveCheck, Verdict, objective_checks, verdict
from inference_bench.predict.scenario import Scenario, Speed
from inference_bench.predict.step_cost import StepCost

if TYPE_CHECKING:
    from inference_bench.predict.plan_expected import PlanInterval, ServingCheck
    from inference_bench.predict.plan_speculation import SpeculationPlan


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a device holds, and how many full-length sequences fit beside the weights.

    Where:  every figure is of the fullest device; max_sequences_shared_prefix pays the prefix once, None without one;
            by_cache_format is the same question in cache formats with fewer bits that the engine can store
    Unit:   bytes, sequences
    """

    memory_bytes: int
    weight_bytes: int
    overhead_bytes: int
    free_bytes: int
    sequence_tokens: int
    bytes_per_sequence: int
    cache_format: str
    max_sequences: int
    max_sequences_shared_prefix: int | None
    by_cache_format: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything `plan` says of one machine.

    Where:  loads holds the load with every prompt read whole, then the one with the prefix cached where there is a prefix;
            `load` is the one that demand, cost and checks are for; times_origin is that of every time and rate; interval and
            serving are there where times are what is expected of an engine
    """

    scenario: Scenario
    model: str
    machine: HardwareSpec
    weights_format: str
    memory: MemoryPlan
    latency: LatencyPlan
    loads: tuple[LoadPlan, ...]
    load: LoadPlan
    objectives: tuple[ObjectiveCheck, ...]
    demand: Demand | None
    cost: PlanCost | None
    little: LittleCheck | None
    queue: QueueCheck | None
    speculation: SpeculationPlan | None
    verdict: Verdict
    times_origin: Origin
    assumptions: tuple[str, ...]
    interval: PlanInterval | None = None
    serving: ServingCheck | None = None


def plan(
    scenario: Scenario,
    model: LoadedModel,
    machine: HardwareSpec,
    cost: StepCost | None = None,
    usd_per_device_hour: float | None = None,
) -> Plan:
    """Users, latency, replicas and cost of a scenario on one machine.

    Where:   cost takes the place of what the scenario's `speed` asks for; usd_per_device_hour is this machine's price
    Raises:  RequestError, UnknownNameError
    """
    deployment = deploy(scenario, model, machine, cost)
    loads = plan_loads(deployment)
    load = loads[-1] if scenario.traffic.prefix_cache else loads[0]
    demand = demand_of(scenario, load.full)
    is_expected = cost is None and scenario.speed is Speed.EXPECTED
    interval, serving = _expected(deployment, loads, load, usd_per_device_hour) if is_expected else (None, None)
    return Plan(
        scenario=scenario,
        model=model.spec.name,
        machine=machine,
        weights_format=deployment.weights.format_name,
        memory=_memory(deployment, loads),
        latency=latency_plan(deployment),
        loads=loads,
        load=load,
        objectives=_objectives(deployment, load, interval),
        demand=demand,
        cost=None if load.full is None else plan_cost(scenario, load.full, demand, usd_per_device_hour),
        little=None if load.full is None else little_check(load.full),
        queue=None if load.full is None else queue_check(load.full, demand),
        speculation=_speculation(deployment, load.batch),
        verdict=verdict(deployment, load, model, can_vary=cost is None),
        times_origin=deployment.origin,
        assumptions=plan_assumptions(
            deployment,
            model,
            is_stated=cost is None and scenario.speed is Speed.SHARES,
            is_expected=is_expected,
            has_load=load.batch > 0,
        ),
        interval=interval,
        serving=serving,
    )


def _expected(
    deployment: Deployment, loads: tuple[LoadPlan, ...], load: LoadPlan, usd_per_device_hour: float | None
) -> tuple[PlanInterval | None, ServingCheck | None]:
    """What only an engine's efficiencies can say."""
    from inference_bench.predict.plan_expected import plan_interval, serving_check

    return plan_interval(deployment, loads, load, usd_per_device_hour), serving_check(deployment, load)


def _objectives(deployment: Deployment, load: LoadPlan, interval: PlanInterval | None) -> tuple[ObjectiveCheck, ...]:
    """Every promise beside what is planned, and beside the slow end of the interval where there is one."""
    checks = objective_checks(deployment, load)
    if interval is None:
        return checks
    slow = interval.slow.objectives
    return tuple(replace(check, slow_s=there.planned_s) for check, there in zip(checks, slow, strict=True))


def _memory(deployment: Deployment, loads: tuple[LoadPlan, ...]) -> MemoryPlan:
    traffic, free = deployment.scenario.traffic, deployment.free_bytes
    return MemoryPlan(
        memory_bytes=deployment.memory_bytes,
        weight_bytes=deployment.weight_bytes(),
        overhead_bytes=deployment.overhead_bytes,
        free_bytes=free,
        sequence_tokens=traffic.total_tokens,
        bytes_per_sequence=deployment.cache_bytes(1, prefix_cached=False),
        cache_format=deployment.placer.fmt.name,
        max_sequences=loads[0].max_sequences,
        max_sequences_shared_prefix=loads[1].max_sequences if len(loads) > 1 else None,
        by_cache_format=_by_cache_format(deployment, free),
    )


def _by_cache_format(deployment: Deployment, free_bytes: int) -> tuple[tuple[str, int], ...]:
    """Sequences that fit in formats smaller than the one asked for, in proportion to the bytes of one sequence."""
    model, tokens = deployment.placer.model.spec, deployment.scenario.traffic.total_tokens
    asked = count_cache(model, deployment.placer.fmt, tokens).total_bytes
    on_device = deployment.cache_bytes(1, prefix_cached=False)
    rows = []
    for name in smaller_caches(deployment.scenario.served_by):
        num_bytes = count_cache(model, cache_format(name), tokens).total_bytes
        if 0 < num_bytes < asked:
            rows.append((name, count_sequences(free_bytes, -(-on_device * num_bytes // asked))))
    return tuple(rows)


def _speculation(deployment: Deployment, batch: int) -> SpeculationPlan | None:
    if deployment.scenario.speculation is None:
        return None
    from inference_bench.predict.plan_speculation import plan_speculation

    return plan_speculation(deployment, deployment.scenario.speculation, batch)
