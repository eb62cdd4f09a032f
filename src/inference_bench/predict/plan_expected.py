"""A plan at the speed that is expected of an engine: its step cost, how far its times may be off, and what servers show.

In:   Scenario, ServedModel, HardwareSpec
Out:  EngineCost; PlanInterval, the same plan at both ends of the 80 % interval; ServingCheck
Leaves out: the efficiencies (see efficiency), which are loaded only for plans that ask for them
Read next by: deployment, plan, report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from inference_bench.accounting.work import decode_batch, prompt
from inference_bench.errors import RequestError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.predict.capacity import Demand
from inference_bench.predict.deployment import Deployment
from inference_bench.predict.efficiency import (
    EngineCost,
    Expectation,
    OwnMeasurements,
    Pace,
    Phase,
    Question,
    engine_setting,
    expect,
    fitted,
    is_served,
    step_parameters,
)
from inference_bench.predict.efficiency.served import describe_expectation, width_of
from inference_bench.predict.efficiency.terms import rates
from inference_bench.predict.expected_speeds import below_bound
from inference_bench.predict.plan_cost import PlanCost, plan_cost
from inference_bench.predict.plan_latency import LatencyPlan, latency_plan
from inference_bench.predict.plan_load import LoadPlan, at_batch, demand_of
from inference_bench.predict.plan_verdict import ObjectiveCheck, objective_checks
from inference_bench.predict.scenario import Scenario
from inference_bench.predict.step_cost import PeakShares, ServedModel, StretchedCost
from inference_bench.roofline import roof


@dataclass(frozen=True, slots=True)
class PlanEnd:
    """The plan with every step at one end of its interval, for the batch that was planned."""

    latency: LatencyPlan
    loads: tuple[LoadPlan, ...]
    load: LoadPlan
    objectives: tuple[ObjectiveCheck, ...]
    demand: Demand | None
    cost: PlanCost | None


@dataclass(frozen=True, slots=True)
class PlanInterval:
    """The figures that 4 of 5 measurements lie between.

    Where:  decode_factor and prefill_factor are what a step's time is divided by at the fast end, down to its bound, and
            multiplied by at the slow end: both at once, as a machine that is slow in one is rarely fast in the other;
            ttft_factor is the same of a lone request's first token
    """

    fast: PlanEnd
    slow: PlanEnd
    decode_factor: float
    prefill_factor: float
    ttft_factor: float


@dataclass(frozen=True, slots=True)
class ServingCheck:
    """What published servers of the engine show at a fixed concurrency, waiting included.

    Unit:  seconds
    """

    concurrency: int
    tpot: Expectation | None
    ttft: Expectation


def engine_cost(scenario: Scenario, served: ServedModel, machine: HardwareSpec) -> EngineCost:
    """The step cost of a scenario's engine on a machine.

    Raises:  RequestError where no engine is named, or the machine's rates are not enough
    """
    if scenario.served_by is None:
        raise RequestError("the expected speed is that of an engine, and the scenario names none")
    setting = engine_setting(served, machine, scenario.served_by, scenario.devices)
    if rates(setting) is None:
        raise RequestError(
            f"what {scenario.served_by} reaches on {machine.name} cannot be derived: its bandwidth or its compute rate is "
            "not known; describe the machine in the scenario with both, or use speed 'shares'"
        )
    own = own_of(scenario, machine)
    parameters, in_service = step_parameters(setting, Phase.DECODE, fitted(), Pace.IN_SERVICE)
    offsets = {} if own is None else own.offsets(setting, Pace.IN_SERVICE)
    return EngineCost(setting, parameters, offsets, in_service)


def own_of(scenario: Scenario, machine: HardwareSpec) -> OwnMeasurements | None:
    """The scenario's own measurements where they are of this machine."""
    return scenario.own if scenario.own is not None and scenario.own.machine == machine.name else None


def describe_plan(deployment: Deployment) -> Iterator[str]:
    """What the times of a plan rest on, in words."""
    cost = deployment.cost
    if not isinstance(cost, EngineCost):
        return
    yield from describe_expectation(cost.setting, own_of(deployment.scenario, deployment.machine), Pace.IN_SERVICE)
    if cost.in_service:
        engine, pool = cost.setting.engine, cost.setting.pool
        where = "" if is_served(engine, fitted(), pool) else f", of which none ran on {pool} machines"
        yield f"steps are those of {engine} in service, as fitted on servers under load{where}"
    yield from below_bound(_beside_bounds(deployment, cost), deployment.machine)
    yield (
        "fast and slow end: every step at that end of its 80 % interval, none faster than its bound, with the batch chosen "
        "by the middle"
    )


def _beside_bounds(deployment: Deployment, cost: EngineCost) -> dict[str, tuple[float, float]]:
    """A lone decode step and one prompt, each expected and at its bound."""
    served = cost.setting.served
    bounds = PeakShares(served, roof(deployment.machine, served.weights.linear_format), devices=cost.setting.devices)
    traffic = deployment.scenario.traffic
    asked = {"decode": decode_batch(traffic.mean_context_tokens, 1), "prefill": prompt(traffic.prompt_tokens)}
    return {name: (cost.step_s(steps), bounds.step_s(steps)) for name, steps in asked.items()}


def plan_interval(
    deployment: Deployment, loads: tuple[LoadPlan, ...], load: LoadPlan, usd_per_device_hour: float | None
) -> PlanInterval | None:
    """Both ends of a plan's interval; None where its times are no expectation of an engine."""
    cost = deployment.cost
    if not isinstance(cost, EngineCost):
        return None
    own = own_of(deployment.scenario, deployment.machine)
    step, first = (Phase.SERVING_TPOT, Phase.SERVING_TTFT) if cost.in_service else (Phase.DECODE, Phase.PREFILL)
    decode, prefill, ttft = (math.exp(width_of(cost.setting, phase, own)) for phase in (step, Phase.PREFILL, first))

    def end(decode_factor: float, prefill_factor: float, ttft_factor: float) -> PlanEnd:
        there = StretchedCost(cost, decode_factor, prefill_factor, cost.bound_s, ttft_factor)
        return _end(replace(deployment, cost=there), loads, loads.index(load), usd_per_device_hour)

    return PlanInterval(end(1 / decode, 1 / prefill, 1 / ttft), end(decode, prefill, ttft), decode, prefill, ttft)


def _end(deployment: Deployment, loads: tuple[LoadPlan, ...], chosen: int, usd: float | None) -> PlanEnd:
    there = tuple(at_batch(deployment, load) for load in loads)
    load = there[chosen]
    demand = demand_of(deployment.scenario, load.full)
    return PlanEnd(
        latency=latency_plan(deployment),
        loads=there,
        load=load,
        objectives=objective_checks(deployment, load),
        demand=demand,
        cost=None if load.full is None else plan_cost(deployment.scenario, load.full, demand, usd),
    )


def serving_check(deployment: Deployment, load: LoadPlan) -> ServingCheck | None:
    """What servers show at the planned batch; None for engines that were only ever timed alone, and without a batch."""
    cost = deployment.cost
    if not isinstance(cost, EngineCost) or not load.batch or not cost.in_service:
        return None
    traffic, own = deployment.scenario.traffic, own_of(deployment.scenario, deployment.machine)
    cached = traffic.prefix_tokens if load.prefix_cached else 0

    def asked(phase: Phase) -> Expectation:
        fresh = traffic.prompt_tokens - cached
        return _expect(Question(cost.setting, phase, load.batch, fresh, traffic.output_tokens, cached), own)

    tpot = asked(Phase.SERVING_TPOT) if traffic.output_tokens > 1 else None
    return ServingCheck(load.batch, tpot, asked(Phase.SERVING_TTFT))


def _expect(question: Question, own: OwnMeasurements | None) -> Expectation:
    if own is None:
        return expect(question)
    setting = question.setting
    return expect(question, None, own.offsets(setting, Pace.IN_SERVICE), own.calibration(setting, question.phase))
