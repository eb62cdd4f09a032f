"""Whether a plan works: which promises are kept, and if not, what stands in the way and what would help.

In:   Deployment, LoadPlan
Out:  ObjectiveChecks and the Verdict
Read next by: plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from inference_bench.facts.models import LoadedModel
from inference_bench.predict.deployment import ROUNDING, Deployment, Limit
from inference_bench.predict.plan_load import LoadPlan
from inference_bench.units import format_bytes, format_count, format_seconds


@dataclass(frozen=True, slots=True)
class ObjectiveCheck:
    """One promise beside what is planned.

    Where:  planned_s is at the batch planned for (alone for TTFT), full_load_s with prefills between the steps; `met` is
            what the batch was chosen by: planned_s; slow_s is the same at the slow end of an 80 % interval, None without one
    Unit:   seconds
    """

    name: str
    objective_s: float
    planned_s: float
    full_load_s: float | None
    slow_s: float | None = None

    @property
    def met(self) -> bool:
        """Whether the promise is kept at the batch planned for."""
        return self.planned_s <= self.objective_s * ROUNDING

    @property
    def met_at_full_load(self) -> bool | None:
        """The same with prefills between the steps; None where that makes no difference."""
        return None if self.full_load_s is None else self.full_load_s <= self.objective_s * ROUNDING

    @property
    def met_at_slow_end(self) -> bool | None:
        """Whether it is kept even where steps are as slow as the interval allows; None without an interval."""
        return None if self.slow_s is None else self.slow_s <= self.objective_s * ROUNDING


@dataclass(frozen=True, slots=True)
class Verdict:
    """Yes, or no and why; fixes are changes that turn a no into a yes."""

    answer: bool
    limited_by: Limit
    reason: str
    fixes: tuple[str, ...] = ()


def objective_checks(deployment: Deployment, load: LoadPlan) -> tuple[ObjectiveCheck, ...]:
    """Every promise beside what is planned; at a batch of 1 where no batch keeps them all."""
    return tuple(_checks(deployment, load))


def _checks(deployment: Deployment, load: LoadPlan) -> Iterator[ObjectiveCheck]:
    objectives, batch = deployment.scenario.objectives, max(1, load.batch)
    cached, has_steps = load.prefix_cached, deployment.scenario.traffic.output_tokens > 1
    if objectives.ttft_s is not None:
        yield ObjectiveCheck("TTFT", objectives.ttft_s, deployment.ttft_s(cached), None)
    if objectives.tpot_s is not None and has_steps:
        stretched = None if load.full is None else load.full.effective_step_s
        yield ObjectiveCheck("TPOT", objectives.tpot_s, deployment.pace_s(batch, cached), stretched)
    if objectives.e2e_s is not None:
        yield ObjectiveCheck("E2E", objectives.e2e_s, deployment.e2e_s(batch, cached), load.e2e_s)


def verdict(deployment: Deployment, load: LoadPlan, model: LoadedModel, can_vary: bool) -> Verdict:
    """Yes with what limits the batch, or no with what would help.

    Where:  can_vary says whether step times of another machine or format can be worked out
    """
    if load.batch:
        return Verdict(True, load.limited_by, _yes(load))
    from inference_bench.predict.remedies import remedies

    fixes = remedies(deployment.scenario, model, deployment.machine) if can_vary else ()
    return Verdict(False, load.limited_by, _no(deployment, load), fixes)


def _yes(load: LoadPlan) -> str:
    if load.limited_by is Limit.NONE:
        return f"{format_count(load.batch)} sequences at once; nothing limits the batch sooner"
    return f"{format_count(load.batch)} sequences at once, limited by {load.limited_by}"


def _no(deployment: Deployment, load: LoadPlan) -> str:
    """What stands in the way, in figures."""
    objectives = deployment.scenario.objectives
    if load.limited_by is Limit.MEMORY:
        needed = deployment.weight_bytes() + deployment.overhead_bytes + deployment.cache_bytes(1, load.prefix_cached)
        return (
            f"not even one sequence of {format_count(deployment.scenario.traffic.total_tokens)} tokens fits: "
            f"{format_bytes(needed)} are needed on each device and {format_bytes(deployment.memory_bytes)} are there"
        )
    if load.limited_by is Limit.TTFT:
        found, objective, what = (
            deployment.ttft_s(load.prefix_cached),
            objectives.ttft_s,
            "the first token of one request alone",
        )
    elif load.limited_by is Limit.TPOT:
        found, objective, what = deployment.pace_s(1, load.prefix_cached), objectives.tpot_s, "a token of one sequence"
    else:
        found, objective, what = deployment.e2e_s(1, load.prefix_cached), objectives.e2e_s, "one request alone"
    return (
        f"no batch keeps the {load.limited_by} objective of {format_seconds(objective)}: "
        f"{what} takes {format_seconds(found)}"
    )
