"""How well the steps tell each fitted number.

In:   a fit, the steps it was fitted to
Out:  StepParameter: value, interval or why there is none
Read next by: fitting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from inference_bench.calibrate.steps.candidates import PER_FORMAT, Fit, fit_formula, share_limits
from inference_bench.calibrate.steps.columns import Measured
from inference_bench.calibrate.steps.forms import StepParameter
from inference_bench.stats import Interval, mean_interval
from inference_bench.units import format_fraction

_FIXED: Final = "fixed_s"
_EDGE: Final = 1e-3
_WIDE: Final = 20.0  # a logarithm beyond every share
_NOT_TOLD_APART: Final = "lost bandwidth or fixed overhead: not told apart with one weight format"
_NOT_NEEDED: Final = "no fixed time makes the formula better on held-out steps"
_NOT_TOLD: Final = "the steps do not tell it: it stays near what is usual"


def parameters_of(fit: Fit, steps: Sequence[Measured]) -> tuple[tuple[StepParameter, ...], ...]:
    """The numbers of a fit as shares and seconds, with what leaving out each step in turn says of them: one row a weight format."""
    draws = _without_each(fit, steps)
    return tuple(_parameters(fit, draws, group) for group in range(len(fit.formula.places)))


def _parameters(fit: Fit, draws: Sequence[Sequence[float]], group: int) -> tuple[StepParameter, ...]:
    found = []
    for index, (name, owner) in enumerate(fit.formula.keys):
        if name in PER_FORMAT and owner != group:
            continue
        is_time = name.endswith("_s")
        value = fit.solution.numbers[index]
        shown = value if is_time else 1 / value
        is_found = fit.told[index] and not _is_at_edge(name, shown)
        interval = _interval(value, [draw[index] for draw in draws], is_time) if is_found else None
        found.append(StepParameter(name, shown, interval, _note(name, shown, fit.told[index]), is_told=fit.told[index]))
    if _FIXED not in fit.formula.free:
        why = _NOT_TOLD_APART if len(fit.formula.places) == 1 else _NOT_NEEDED
        found.append(StepParameter(_FIXED, 0.0, None, why, is_assumed=True))
    return tuple(found)


def _note(name: str, value: float, is_told: bool) -> str:
    if not is_told:
        return _NOT_TOLD
    if _is_at_edge(name, value):
        return f"{format_fraction(value)}, the edge of what is looked for: is the ceiling this machine's?"
    if not name.endswith("_s") and value > 1:
        return f"{format_fraction(value)} of the ceiling: above it, so the ceiling was measured or published too low for this"
    return ""


def _is_at_edge(name: str, value: float) -> bool:
    """Whether a share would go on where it may not."""
    low, high = share_limits(name)
    return not name.endswith("_s") and not low * (1 + _EDGE) < value < high * (1 - _EDGE)


def _without_each(fit: Fit, steps: Sequence[Measured]) -> list[tuple[float, ...]]:
    """The numbers without one step, for each step."""
    at = fit.solution.numbers
    return [
        fit_formula(fit.formula, [*steps[:index], *steps[index + 1 :]], (at,)).solution.numbers
        for index in range(len(steps))
    ]


def _interval(value: float, without: Sequence[float], is_time: bool) -> Interval | None:
    """A 95 % interval of a number from what it is without each step.

    Formula:  of the pseudo-values n·x - (n - 1)·x without step i the interval of the mean; of shares in logarithms
    Ignores:  that formulas were chosen by other steps of the same sweep
    Source:   Tukey 1958, Bias and confidence in not-quite large samples
    """
    count = len(without)
    here, there = (value, list(without)) if is_time else (-math.log(value), [-math.log(each) for each in without])
    found = mean_interval([count * here - (count - 1) * each for each in there])
    if found is None:
        return None
    low, high = min(found.low, here), max(found.high, here)
    if is_time:
        return Interval(max(0.0, low), high, found.confidence)
    return Interval(math.exp(low), math.exp(min(high, _WIDE)), found.confidence)
