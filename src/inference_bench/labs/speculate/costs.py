"""What does a draft's step cost, and a verifying step, in plain decode steps at the same context?

In:   CachedNetwork, the drafts, one context
Out:  StepCosts
Leaves out: how often they are paid (account)
Read next by: flow.

Every kind of step is timed in turn, round after round, so that whatever else the machine does meets all of them; medians are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from inference_bench.labs.cached_network import CachedNetwork
from inference_bench.labs.speculate.drafts import Draft
from inference_bench.labs.speculate.result import StepCosts
from inference_bench.stats import median


def measure_costs(
    target: CachedNetwork,
    drafts: Sequence[Draft],
    context: Sequence[int],
    gammas: Sequence[int],
    num_repeats: int,
    say: Callable[[str], None],
) -> StepCosts:
    """Time every kind of step at the end of a context.

    Where:  a draft's step is the time of proposing the longest draft, over its length: every proposal is one step of it
    """
    target.restart()
    target.extend(context[:-1])
    for draft in drafts:
        draft.begin(context)
    steps: dict[object, Callable[[], object]] = {
        gamma: partial(_verify, target, context, gamma) for gamma in (0, *gammas)
    }
    steps |= {draft.name: partial(draft.propose, context, gammas[-1]) for draft in drafts}
    times = _timed(steps, num_repeats, say)
    return StepCosts(
        context_tokens=len(context),
        num_repeats=num_repeats,
        step_s=times[0],
        verify_s={gamma: times[gamma] for gamma in gammas},
        draft_step_s={draft.name: times[draft.name] / gammas[-1] for draft in drafts},
    )


def _timed(
    steps: dict[object, Callable[[], object]], num_repeats: int, say: Callable[[str], None]
) -> dict[object, float]:
    taken: dict[object, list[float]] = {name: [] for name in steps}
    for repeat in range(num_repeats + 1):  # the first is thrown away
        say(f"step costs, round {repeat} of {num_repeats}")
        for name, step in steps.items():
            begun_s = time.perf_counter()
            step()
            if repeat:
                taken[name].append(time.perf_counter() - begun_s)
    return {name: median(values) for name, values in taken.items()}


def _verify(target: CachedNetwork, context: Sequence[int], gamma: int) -> None:
    """One step over the context's last token and γ more, chosen as decoding chooses, and taken back."""
    target.extend([context[-1], *context[:gamma]]).argmax(dim=-1).tolist()
    target.keep(len(context) - 1)
