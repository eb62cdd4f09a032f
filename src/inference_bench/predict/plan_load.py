"""A deployment at full load: the batch that fits and keeps the objectives, and what it delivers.

In:   Deployment
Out:  LoadPlan, with every prompt read whole and with the prefix cached
Leaves out: partial batches and queueing
Read next by: plan, plan_verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inference_bench.predict.capacity import Demand, FullLoad
from inference_bench.predict.deployment import Deployment, Limit
from inference_bench.predict.queueing import interactive_users
from inference_bench.predict.scenario import Scenario


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A replica that is never idle, with the prefix cached or not.

    Where:  batch is the largest that fits and keeps the objectives, limited_by what keeps it from being larger; full is
            None where no batch does; users are people with the scenario's think time
    Unit:   sequences, seconds
    """

    prefix_cached: bool
    max_sequences: int
    batch: int
    limited_by: Limit
    full: FullLoad | None
    e2e_s: float | None
    users: float | None

    @property
    def step_tokens_per_s(self) -> float | None:
        """Output tokens a second while nothing but decode steps run."""
        return None if self.full is None else self.batch / self.full.step_s


def plan_loads(deployment: Deployment) -> tuple[LoadPlan, ...]:
    """The load without the prefix cached, and with it where there is a prefix."""
    cases = (False, True) if deployment.scenario.traffic.prefix_tokens else (False,)
    return tuple(_load(deployment, prefix_cached) for prefix_cached in cases)


def _load(deployment: Deployment, prefix_cached: bool) -> LoadPlan:
    batch, limit = deployment.largest_batch(prefix_cached)
    found = LoadPlan(
        prefix_cached=prefix_cached,
        max_sequences=deployment.max_sequences(prefix_cached),
        batch=batch,
        limited_by=limit,
        full=None,
        e2e_s=None,
        users=None,
    )
    return at_batch(deployment, found)


def at_batch(deployment: Deployment, load: LoadPlan) -> LoadPlan:
    """The same load at the times of a deployment, its batch as it was chosen."""
    if not load.batch:
        return load
    full, think_s = deployment.full_load(load.batch, load.prefix_cached), deployment.scenario.traffic.think_s
    e2e_s = deployment.ttft_s(load.prefix_cached) + full.residence_s
    users = None if think_s is None else interactive_users(full.requests_per_s, e2e_s, think_s)
    return replace(load, full=full, e2e_s=e2e_s, users=users)


def demand_of(scenario: Scenario, full: FullLoad | None) -> Demand | None:
    """The daily volume on replicas of this load; None where either is missing."""
    traffic = scenario.traffic
    if traffic.requests_per_day is None or full is None:
        return None
    return Demand(traffic.requests_per_day, traffic.peak_factor, traffic.target_utilisation, full.requests_per_s)
