"""How thorough a verification is: what its calibration sweep measures, what it keeps for the test, and for how long.

In:   nothing; plain values
Out:  Plan, and the three there are: the default, QUICK and THOROUGH
Leaves out: what of it an engine can do, and in which order (calibration_plan)
Read next by: calibration_plan, calibration_sweep, session, cli.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from inference_bench.verify.load_workload import QUICK as QUICK_LOAD
from inference_bench.verify.load_workload import THOROUGH as THOROUGH_LOAD
from inference_bench.verify.load_workload import LoadBudget


class Mixture(NamedTuple):
    """A prompt that arrives while so many sequences of one context decode."""

    batch: int
    context_tokens: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The sweep that is wanted, and the seconds of each part.

    Where:    decoding is measured over every batch and context; prompts are read alone, with nothing of them cached; the rest
              of a prompt behind each context is read where a cache keeps the beginning. held_* are kept from the fit, where others
              lie on both sides of them. A point is measured until the interval of its median is within `precision` of it, in
              waves_per_round waves a round, in the first round in one; that round may take twice budget_s, and of later ones a wave is
              sent where it is expected to end within budget_s. One that is_fixed is measured at its lengths however slow the
              server is, so that servers of every pace do the same work; only a cache that is too small shortens it
    Unit:     seconds; precision is a fraction
    """

    batches: tuple[int, ...] = (1, 2, 3, 4, 6, 8)
    contexts: tuple[int, ...] = (32, 192, 512)
    prompts: tuple[int, ...] = (96, 256, 448, 768)
    mixtures: tuple[Mixture, ...] = (Mixture(3, 512, 256), Mixture(2, 512, 160), Mixture(1, 192, 96))
    held_batches: tuple[int, ...] = (3, 6)
    held_contexts: tuple[int, ...] = (192,)
    held_prompts: tuple[int, ...] = (96, 448)
    held_mixtures: tuple[Mixture, ...] = (Mixture(2, 512, 160),)
    output_tokens: int = 12
    waves_per_round: int = 3
    max_rounds: int = 8
    precision: float = 0.05
    budget_s: float = 90.0
    load_budget: LoadBudget = field(default_factory=LoadBudget)
    probe_budget_s: float = 12.0
    second_probe_budget_s: float = 5.0
    is_fixed: bool = False

    @property
    def num_slots(self) -> int:
        """Sequences that a server started for this plan holds at once: the largest batch, and a prompt beside each mixture."""
        return max((*self.batches, *(mixture.batch + 1 for mixture in self.mixtures)))

    @property
    def context_tokens(self) -> int:
        """Positions that each of them may need, with room for prompts that come out longer than asked."""
        return max((*self.contexts, *self.prompts)) * 9 // 8 + 2 * self.output_tokens


QUICK: Final = Plan(
    batches=(1, 2, 3, 4),
    contexts=(32, 160),
    prompts=(64, 160, 240, 320),
    mixtures=(Mixture(2, 160, 96), Mixture(1, 160, 192)),
    held_batches=(3,),
    held_contexts=(),
    held_prompts=(64, 240),
    held_mixtures=(Mixture(1, 160, 192),),
    output_tokens=12,
    max_rounds=3,
    budget_s=12.0,
    load_budget=QUICK_LOAD,
    probe_budget_s=6.0,
    second_probe_budget_s=3.0,
)
THOROUGH: Final = replace(
    Plan(),
    batches=(1, 2, 3, 4, 5, 6, 8),
    contexts=(32, 128, 256, 512, 768),
    prompts=(64, 128, 256, 448, 768, 1024),
    held_batches=(3, 6),
    held_contexts=(256,),
    held_prompts=(128, 448, 768),
    mixtures=(Mixture(4, 512, 384), Mixture(3, 512, 256), Mixture(2, 512, 160), Mixture(1, 128, 96)),
    held_mixtures=(Mixture(3, 512, 256),),
    max_rounds=24,
    precision=0.03,
    budget_s=270.0,
    load_budget=THOROUGH_LOAD,
    probe_budget_s=25.0,
    second_probe_budget_s=8.0,
)
