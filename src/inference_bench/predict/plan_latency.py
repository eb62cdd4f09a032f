"""One request on a machine that is otherwise idle.

In:   Deployment
Out:  LatencyPlan
Read next by: plan, plan_expected.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.predict.deployment import Deployment


@dataclass(frozen=True, slots=True)
class LatencyPlan:
    """One request on a machine that is otherwise idle.

    Where:  the cached figures find the prefix in the cache, None without one; a step is at the mean context; prefill is the
            prompt's own time, of which full load is made, and ttft that until the first token is out: of a server more
    Unit:   seconds
    """

    mean_context_tokens: int
    ttft_s: float
    ttft_cached_s: float | None
    prefill_s: float
    prefill_cached_s: float | None
    solo_step_s: float
    e2e_s: float
    e2e_cached_s: float | None

    @property
    def solo_tokens_per_s(self) -> float:
        """Pace of a lone sequence."""
        return 1 / self.solo_step_s


def latency_plan(deployment: Deployment) -> LatencyPlan:
    """What a lone request waits for."""
    has_prefix = deployment.scenario.traffic.prefix_tokens > 0
    return LatencyPlan(
        mean_context_tokens=deployment.scenario.traffic.mean_context_tokens,
        ttft_s=deployment.ttft_s(prefix_cached=False),
        ttft_cached_s=deployment.ttft_s(prefix_cached=True) if has_prefix else None,
        prefill_s=deployment.prefill_s(prefix_cached=False),
        prefill_cached_s=deployment.prefill_s(prefix_cached=True) if has_prefix else None,
        solo_step_s=deployment.step_s(1),
        e2e_s=deployment.solo_e2e_s(prefix_cached=False),
        e2e_cached_s=deployment.solo_e2e_s(prefix_cached=True) if has_prefix else None,
    )
