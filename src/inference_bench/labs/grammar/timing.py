"""Where does the time of a step go, with masks and without?

In:   documents as they were written
Out:  StepPart
Read next by: flow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from inference_bench.labs.grammar.result import STEP_PARTS, StepPart
from inference_bench.labs.grammar.writing import Written
from inference_bench.stats import median, quantile


def step_parts(written: Sequence[Written], *, is_constrained: bool) -> tuple[StepPart, ...]:
    """Each part of a step, over all steps but the first of each document: that one has the prompt's logits and builds the grammar.

    Unit:    seconds
    """
    steps = [step for each in written for step in each.parts_s[1:]]
    whole_s = math.fsum(value for step in steps for value in step.values())
    named = ((name, [step[name] for step in steps if name in step]) for name in STEP_PARTS)
    return tuple(_part(name, values, whole_s, is_constrained) for name, values in named if values)


def _part(name: str, values: Iterable[float], whole_s: float, is_constrained: bool) -> StepPart:
    known = list(values)
    total_s = math.fsum(known)
    return StepPart(
        name, is_constrained, len(known), median(known), quantile(known, 0.9), max(known), total_s, total_s / whole_s
    )
