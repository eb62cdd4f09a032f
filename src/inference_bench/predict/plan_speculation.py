"""What a draft would gain on this deployment: alone, and at the batch that is planned for.

In:   Deployment, Speculation, batch
Out:  SpeculationPlan, a row for each way v is known
Leaves out: the draft's memory, and how c changes with the batch
Read next by: plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inference_bench.origin import Origin
from inference_bench.predict.deployment import Deployment
from inference_bench.predict.scenario import Speculation
from inference_bench.predict.speculation import best_draft_tokens, break_even_acceptance, expected_tokens, speed_up


@dataclass(frozen=True, slots=True)
class SpeculationRow:
    """One batch and one v.

    Where:  batch is None where v was given, for whatever batch it was measured at; break_even_acceptance is None where even
            a perfect draft does not gain
    Unit:   target steps, a factor
    """

    batch: int | None
    verify_cost: float
    speed_up: float
    break_even_acceptance: float | None
    best_draft_tokens: int
    best_speed_up: float
    origin: Origin

    @property
    def gains(self) -> bool:
        """Whether decoding becomes faster."""
        return self.speed_up > 1


@dataclass(frozen=True, slots=True)
class SpeculationPlan:
    """E[K] of the draft that was described, and what it gains."""

    asked: Speculation
    expected_tokens: float
    rows: tuple[SpeculationRow, ...]


def plan_speculation(deployment: Deployment, asked: Speculation, batch: int) -> SpeculationPlan:
    """What the draft gains with the v that was given, and with the v that steps of γ + 1 positions would have."""
    rows = []
    given = asked.verify_cost
    if given is not None:
        # a line from v = 1 without a draft through the one that was given
        rows.append(_row(asked, None, lambda tokens: 1 + (given - 1) * tokens / asked.draft_tokens, Origin.GIVEN))
    sizes = dict.fromkeys((1, max(1, batch)))
    rows += [_row(asked, size, _verify_cost(deployment, size), deployment.origin) for size in sizes]
    return SpeculationPlan(asked, expected_tokens(asked.acceptance, asked.draft_tokens), tuple(rows))


def _verify_cost(deployment: Deployment, batch: int) -> Callable[[int], float]:
    """v_γ: a step that verifies γ + 1 positions a sequence over a plain decode step."""
    step = deployment.step_s(batch)
    return lambda tokens: deployment.verify_s(batch, tokens) / step


def _row(asked: Speculation, batch: int | None, verify: Callable[[int], float], origin: Origin) -> SpeculationRow:
    cost = verify(asked.draft_tokens)
    best = best_draft_tokens(asked.acceptance, asked.draft_cost, verify)
    return SpeculationRow(
        batch=batch,
        verify_cost=cost,
        speed_up=speed_up(asked.acceptance, asked.draft_tokens, asked.draft_cost, cost),
        break_even_acceptance=break_even_acceptance(asked.draft_tokens, asked.draft_cost, cost),
        best_draft_tokens=best,
        best_speed_up=speed_up(asked.acceptance, best, asked.draft_cost, verify(best)),
        origin=origin,
    )
