"""Which formula is right on steps that it was not fitted to, and how right it is on steps that it was not chosen by either.

In:   fits, and the steps that were held out
Out:  Choice: the chosen fit, every candidate with its errors, and honest errors
Leaves out: the fits themselves (candidates)
Read next by: fitting.

The rule: the least mean |error| over the held-out steps leads. It says whether memory and compute add up or overlap; where the best
sum is within a standard error of it with no more numbers, the sum leads, as it promises no overlap that was not seen. Numbers are
then left out of it while that makes it no worse than chance would: the mean of |errors| less the leader's, step by step, is no
more than half a standard error of that mean (a difference that one step makes alone is a whole one), or a tenth of the
leader's; and while the steps that it was fitted to do not speak for the numbers: with fewer of them these are always said worse,
by half as much again at most where the numbers are noise. Of those the formula with fewest numbers is chosen, of as many the one
with the least error. An error counts as 50 % at most, so that one disturbed step cannot choose; and as formulas are compared step
by step, it disturbs all of them alike. The mean and not the median, because a kernel that only small batches take is seen by few
steps.

Whatever is chosen by some steps looks better on them than it is. So the rule is also followed without each held-out step in
turn, and what it then chooses is judged by that step alone: those are the honest errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.calibrate.steps.candidates import MAXIMA, Fit
from inference_bench.calibrate.steps.columns import Measured
from inference_bench.calibrate.steps.forms import StepCandidate
from inference_bench.stats import median, quantile

LEAST_HONEST: Final = 4  # held-out steps from which on all but one of them can choose
_MOST_ERROR: Final = 0.5
_ALIKE: Final = 0.1  # of the leader's mean error
_CHANCE: Final = 0.5  # of a standard error
_TOLD: Final = 1.0  # the same between formulas that add up and such that overlap
_ALIKE_FITTED: Final = 0.5  # of the leader's mean error on the steps that both were fitted to
_EXACT: Final = 0.01  # a mean error on those that is good enough, whatever the leader's


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, of what, and how right it is.

    Where:  honest are the |errors| of held-out steps, each under what the others chose; none below four such steps
    """

    fit: Fit
    candidates: tuple[StepCandidate, ...]
    honest: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Scored:
    """A fit with its |errors| on held-out steps, and their mean on the steps that it was fitted to."""

    fit: Fit
    errors: tuple[float, ...]
    fitted_error: float

    def counted(self, kept: Sequence[int]) -> list[float]:
        return [min(self.errors[index], _MOST_ERROR) for index in kept]


def choose(fits: Sequence[Fit], fitted: Sequence[Measured], held_out: Sequence[Measured]) -> Choice:
    """The formula by the rule above; without held-out steps the one with fewest numbers among the best fitted."""
    own = [tuple(map(abs, fit.errors(fitted))) for fit in fits]
    scored = [
        _Scored(
            fit, tuple(map(abs, fit.errors(held_out or fitted))), _mean([min(each, _MOST_ERROR) for each in errors])
        )
        for fit, errors in zip(fits, own, strict=True)
    ]
    everything = range(len(held_out or fitted))
    chosen = _best(scored, everything)
    candidates = [_candidate(each, errors, bool(held_out)) for each, errors in zip(scored, own, strict=True)]
    order = sorted(
        range(len(scored)), key=lambda at: (_mean(scored[at].counted(everything)), candidates[at].num_parameters)
    )
    return Choice(chosen.fit, tuple(candidates[at] for at in order), _honest(scored, len(held_out)))


def _best(scored: Sequence[_Scored], kept: Sequence[int]) -> _Scored:
    """The leader with as few numbers as chance allows."""
    leader = _leader(scored, kept)
    best = leader.counted(kept)
    allowed = max(_EXACT, (1 + _ALIKE_FITTED) * leader.fitted_error)
    simpler = [each for each in scored if _is_within(each.fit, leader.fit) and each.fitted_error <= allowed]
    alike = [leader, *(each for each in simpler if _is_as_good(each.counted(kept), best))]
    return min(alike, key=lambda each: (len(each.fit.formula.keys), _mean(each.counted(kept))))


def _leader(scored: Sequence[_Scored], kept: Sequence[int]) -> _Scored:
    """The least error; of two that chance may have ordered the one that adds up, if it has no more numbers."""
    leader = min(scored, key=lambda each: _mean(each.counted(kept)))
    if leader.fit.formula.form not in MAXIMA:
        return leader
    sums = [each for each in scored if each.fit.formula.form not in MAXIMA]
    rival = min(sums, key=lambda each: _mean(each.counted(kept)), default=leader)
    has_no_more = len(rival.fit.formula.keys) <= len(leader.fit.formula.keys)
    return rival if has_no_more and _is_as_good(rival.counted(kept), leader.counted(kept), _TOLD) else leader


def _is_within(fit: Fit, leader: Fit) -> bool:
    """Whether a formula is the leader with some numbers left out."""
    mine, its = fit.formula, leader.formula
    return (mine.form in MAXIMA) == (its.form in MAXIMA) and set(mine.free) <= set(its.free)


def _is_as_good(errors: Sequence[float], best: Sequence[float], chance: float = _CHANCE) -> bool:
    """Whether errors are larger than the best ones by no more than chance."""
    more = [mine - its for mine, its in zip(errors, best, strict=True)]
    mean = _mean(more)
    spread = math.sqrt(math.fsum((each - mean) ** 2 for each in more) / max(1, len(more) - 1))
    return mean <= max(_ALIKE * _mean(best), chance * spread / math.sqrt(len(more)))


def _honest(scored: Sequence[_Scored], count: int) -> tuple[float, ...]:
    """The error on each held-out step of what the others chose."""
    if count < LEAST_HONEST:
        return ()
    others = ([other for other in range(count) if other != index] for index in range(count))
    return tuple(_best(scored, kept).errors[index] for index, kept in enumerate(others))


def _candidate(scored: _Scored, own: Sequence[float], has_held_out: bool) -> StepCandidate:
    formula, errors = scored.fit.formula, scored.errors
    return StepCandidate(
        form=formula.form,
        free=formula.free,
        fit_error=median(own),
        held_out_error=median(errors) if has_held_out else None,
        held_out_p90=quantile(errors, 0.9) if has_held_out else None,
        worst_held_out=max(errors) if has_held_out else None,
        held_out_mean=_mean(scored.counted(range(len(errors)))) if has_held_out else None,
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
