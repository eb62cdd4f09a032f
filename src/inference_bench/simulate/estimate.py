"""How much is there to simulate? Tokens and steps, before the first of them.

In:   Workload, SchedulerSettings
Out:  WorkAhead
Leaves out: seconds, which depend on the machine that simulates
Read next by: run, cli.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from inference_bench.simulate.settings import SchedulerSettings
from inference_bench.workload import Workload


@dataclass(frozen=True, slots=True)
class WorkAhead:
    """What a run has to do.

    Formula:  fewest_steps = max(longest output, output tokens / sequences at once);
              most_steps = output tokens + requests + prompt tokens / positions a step
    Ignores:  requests that give way and start again
    """

    num_requests: int
    output_tokens: int
    fewest_steps: int
    most_steps: int

    @property
    def expected_steps(self) -> int:
        """Between the fewest and the most, where nothing says how many requests meet: the middle of their orders of magnitude.

        Formula:  sqrt(fewest · most)
        """
        return math.isqrt(self.fewest_steps * self.most_steps)


def work_ahead(workload: Workload, settings: SchedulerSettings) -> WorkAhead:
    """What a run of this workload under these settings has to do."""
    asked, count = workload.requests, len(workload)
    tokens = sum(asked.output_tokens)
    together = settings.max_batch if settings.is_batched else settings.max_running
    fewest = max(max(asked.output_tokens), -(-tokens // min(together, count)))
    return WorkAhead(count, tokens, fewest, tokens + count + sum(asked.prompt_tokens) // settings.budget)
