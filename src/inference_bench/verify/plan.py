"""Which settings a verification measures, in which order, and when it stops.

In:   how thorough to be
Out:  settings (concurrency, prompt length, output length) and the order of waves
Leaves out: sending (measure.load)
Read next by: flow, points.

A wave is `concurrency` requests sent together. Waves are interleaved over all settings and repeated, so that a slow
spell of the machine hits every setting alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of the sweep."""

    concurrency: int
    prompt_tokens: int
    output_tokens: int

    @property
    def name(self) -> str:
        """How records and reports call it."""
        return f"c{self.concurrency}-p{self.prompt_tokens}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The sweep: every concurrency with every prompt length, several times, within a budget.

    Where:  in the first round a wave is sent as long as budget_s has not passed, so that a slow server ends it at most one
            wave later; after that only if it is expected to end within budget_s
    """

    concurrencies: tuple[int, ...] = (1, 2, 4)
    prompt_tokens: tuple[int, ...] = (128, 1024)
    output_tokens: int = 48
    max_repeats: int = 8
    budget_s: float = 120.0

    def settings(self) -> tuple[Setting, ...]:
        """Every setting once."""
        return tuple(
            Setting(concurrency, prompt, self.output_tokens)
            for prompt in self.prompt_tokens
            for concurrency in self.concurrencies
        )

    def waves(self) -> Iterator[tuple[int, Setting]]:
        """(repeat, setting) in the order they are sent."""
        for repeat in range(self.max_repeats):
            for setting in self.settings():
                yield repeat, setting

    @property
    def max_context_tokens(self) -> int:
        """Positions one request may need, with room for prompts that come out longer than asked."""
        return max(self.prompt_tokens) * 9 // 8 + self.output_tokens + 16


QUICK: Final = Plan(prompt_tokens=(64, 256), output_tokens=24, max_repeats=3, budget_s=12.0)
PROBE_BUDGET_S: Final = 25.0
QUICK_PROBE_BUDGET_S: Final = 8.0
