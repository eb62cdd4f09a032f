"""The formulas that are tried, each with its numbers fitted to the steps that are not held out.

In:   Measured steps
Out:  Fit: a formula, the numbers that are free in it, their values
Leaves out: which of them is right (choosing)
Read next by: choosing, intervals, fitting.

A formula is a form (which arms a step has) and a set of free numbers. Every number is one that a step's work is multiplied by:
the reciprocal of a share of a ceiling, or seconds. So on given arms a step is linear in its numbers, and only the arms have to
be searched for: once for each form, from several places, with all numbers that the steps tell; smaller sets begin there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from operator import add, mul
from typing import Final, NamedTuple

from inference_bench.calibrate.steps.columns import BatchWork, Measured
from inference_bench.calibrate.steps.forms import StepForm
from inference_bench.calibrate.steps.solving import Limits, Row, Solution, errors_of, loss_of, settle, told
from inference_bench.stats import median

MAXIMA: Final = frozenset({StepForm.MAXIMUM, StepForm.MAXIMUM_VECTOR})
VECTORS: Final = frozenset({StepForm.ADDITIVE_VECTOR, StepForm.MAXIMUM_VECTOR})
_SHARE_LIMITS: Final = (0.02, 1.25)
_RATE_LIMITS: Final = (0.02, 3.5)  # of a compute ceiling, which slower kernels than the engine's own may have measured
_RATES: Final = frozenset({"compute", "attention"})
_ALWAYS: Final = ("bandwidth", "compute")
_OPTIONS: Final = ("cache", "attention", "sequence_s", "request_s")
_FIXED: Final = "fixed_s"
_NAMES: Final = (*_ALWAYS, "vector", *_OPTIONS, _FIXED)
PER_FORMAT: Final = frozenset({"compute", "vector"})
_USUAL_SHARES: Final = {"bandwidth": 0.7, "compute": 0.5, "vector": 0.7, "cache": 0.7, "attention": 0.5}
_MOST_SECONDS: Final = 1_000.0
_NOTHING: Final = 1e-6  # of a usual step: less is no time of its own
Term = tuple[int, float]
_DESCENTS: Final = 3
_SPARE: Final = 2  # steps more than numbers: with fewer every formula fits
_MOST_VECTOR: Final = 16  # positions up to which a kernel for single positions is looked for

Arms = tuple[tuple[float, ...], ...]  # the longest counts; each holds what every number multiplies
Kernels = tuple[Arms, ...]  # the quickest counts


class Places(NamedTuple):
    """Which of the numbers multiplies what; None is what the formula does not have."""

    bandwidth: int
    compute: int
    vector: int | None
    cache: int
    attention: int
    sequence: int | None
    request: int | None
    fixed: int | None


@dataclass(frozen=True, slots=True)
class Formula:
    """A form with its free numbers.

    Formula:  of each batch the quickest kernel, of a kernel the longest arm, an arm Σ number · what it multiplies
    Where:    keys are the numbers in order, each with the weight format it belongs to (0 where all share it); places has one
              entry a weight format
    """

    form: StepForm
    free: tuple[str, ...]
    keys: tuple[tuple[str, int], ...]
    places: tuple[Places, ...]

    def rows_of(self, steps: Sequence[Measured]) -> Callable[[Row], list[Row]]:
        """What each number multiplies in each step, as shares of its time, by the numbers that choose among kernels and arms."""
        kernels = [[self._kernels(batch, step) for batch in step.batches] for step in steps]
        requests = [self._request(step) for step in steps]
        if self.form is StepForm.ADDITIVE:
            rows = _rows(kernels, requests, ())
            return lambda _: rows
        return partial(_rows, kernels, requests)

    def _request(self, step: Measured) -> tuple[float, ...]:
        """What of a step is no batch's."""
        place = self.places[step.group].request if step.includes_request else None
        return tuple(1 / step.seconds if index == place else 0.0 for index in range(len(self.keys)))

    def _kernels(self, work: BatchWork, step: Measured) -> Kernels:
        places = self.places[step.group]
        cache, pairs = (places.cache, work.cache), (places.attention, work.pairs)
        counts = ((places.sequence, float(work.sequences)), (places.fixed, 1.0))
        always = [(place, count) for place, count in counts if place is not None]
        memory = [(places.bandwidth, work.weights + work.moved), cache]
        matrix = self._arms(memory, [(places.compute, work.products), pairs], always, step)
        if places.vector is None:
            return (matrix,)
        always.append((places.vector, work.vector))
        return matrix, self._arms([(places.bandwidth, work.moved), cache], [pairs], always, step)

    def _arms(self, memory: list[Term], compute: list[Term], always: list[Term], step: Measured) -> Arms:
        """Memory and compute as one sum, or each by itself."""
        arms = (memory, compute) if self.form in MAXIMA else (memory + compute,)
        return tuple(self._arm(arm + always, step.seconds) for arm in arms)

    def _arm(self, terms: list[Term], seconds: float) -> tuple[float, ...]:
        arm = [0.0] * len(self.keys)
        for place, value in terms:
            arm[place] += value / seconds
        return tuple(arm)


def _rows(kernels: Sequence[Sequence[Kernels]], requests: Sequence[Row], at: Row) -> list[Row]:
    """The rows of steps at some numbers; without numbers there is one kernel with one arm."""
    rows = []
    for batches, row in zip(kernels, requests, strict=True):
        for batch in batches:
            row = tuple(map(add, row, _chosen(batch, at)))
        rows.append(row)
    return rows


def _chosen(kernels: Kernels, at: Row) -> tuple[float, ...]:
    """The longest arm of the quickest kernel."""
    if len(kernels) == 1 and len(kernels[0]) == 1:
        return kernels[0][0]
    slowest = [max((sum(map(mul, arm, at)), arm) for arm in arms) for arms in kernels]
    return min(slowest)[1]


def formula_of(form: StepForm, options: Sequence[str] = (), num_formats: int = 1) -> Formula:
    """A form in which bandwidth, compute, the vector kernel that it may have, and these numbers are free."""
    wanted = {*_ALWAYS, *options, *(("vector",) if form in VECTORS else ())}
    free = tuple(name for name in _NAMES if name in wanted)
    keys = tuple((name, group) for name in free for group in range(num_formats if name in PER_FORMAT else 1))
    return Formula(form, free, keys, tuple(_places(keys, group) for group in range(num_formats)))


def _places(keys: Sequence[tuple[str, int]], group: int) -> Places:
    at = {name: index for index, (name, owner) in enumerate(keys) if owner == (group if name in PER_FORMAT else 0)}
    return Places(
        bandwidth=at["bandwidth"],
        compute=at["compute"],
        vector=at.get("vector"),
        cache=at.get("cache", at["bandwidth"]),
        attention=at.get("attention", at["compute"]),
        sequence=at.get("sequence_s"),
        request=at.get("request_s"),
        fixed=at.get(_FIXED),
    )


@dataclass(frozen=True, slots=True)
class Fit:
    """A formula with its numbers.

    Where:  told says which of them the steps tell from the others, on the arms they take
    """

    formula: Formula
    solution: Solution
    told: tuple[bool, ...]

    def number(self, name: str, group: int = 0) -> float | None:
        """A number as it multiplies; None where it is not free."""
        key = (name, group if name in PER_FORMAT else 0)
        return self.solution.numbers[self.formula.keys.index(key)] if key in self.formula.keys else None

    def errors(self, steps: Sequence[Measured]) -> list[float]:
        """Predicted over measured, less one."""
        at = self.solution.numbers
        return errors_of(self.formula.rows_of(steps)(at), at)


def fit_all(steps: Sequence[Measured]) -> list[Fit]:
    """Every formula that the steps can tell, fitted.

    Where:  one with a number that turns out as nothing, ends at a limit, or that no step tells, is no formula of its own, and left out
    """
    options = varied(steps)
    found = []
    for form in StepForm:
        fullest = _fullest(form, options, steps)
        known = dict(zip(fullest.formula.keys, fullest.solution.numbers, strict=True))
        for chosen in _option_sets(form, options, _num_formats(steps)):
            formula = formula_of(form, chosen, _num_formats(steps))
            if len(formula.keys) + _SPARE > len(steps):
                continue
            usual = limits_of(formula, steps).usual
            begun = tuple(known.get(key, value) for key, value in zip(formula.keys, usual, strict=True))
            fit = fit_formula(formula, steps, (begun,) if form is StepForm.ADDITIVE else (begun, usual))
            if _is_its_own(fit, steps):
                found.append(fit)
    return found


def fit_formula(formula: Formula, steps: Sequence[Measured], starts: Sequence[Row]) -> Fit:
    """A formula's numbers: from the best few of some starts, the best."""
    limits, weights = limits_of(formula, steps), [step.weight for step in steps]
    rows_at = formula.rows_of(steps)
    ranked = sorted(starts, key=lambda start: loss_of(errors_of(rows_at(start), start), weights))
    solutions = [settle(rows_at, weights, start, limits) for start in ranked[:_DESCENTS]]
    best = min(solutions, key=lambda each: each.loss)
    return Fit(formula, best, told(best.rows, weights, limits))


def limits_of(formula: Formula, steps: Sequence[Measured]) -> Limits:
    """Shares from 2 % to 125 % of the bandwidth and to 350 % of the compute rate (above 100 % is a finding), times from 0 s."""
    usual_s = median(step.seconds for step in steps)
    low, high, usual, spans = [], [], [], []
    for name, _ in formula.keys:
        share = _USUAL_SHARES.get(name)
        least, most = share_limits(name)
        low.append(1 / most if share else 0.0)
        high.append(1 / least if share else _MOST_SECONDS)
        usual.append(1 / share if share else 0.0)
        spans.append(1.0 if share else usual_s)
    return Limits(tuple(low), tuple(high), tuple(usual), tuple(spans))


def share_limits(name: str) -> tuple[float, float]:
    """Between what a share is looked for."""
    return _RATE_LIMITS if name in _RATES else _SHARE_LIMITS


def _num_formats(steps: Sequence[Measured]) -> int:
    return 1 + max(step.group for step in steps)


def _is_its_own(fit: Fit, steps: Sequence[Measured]) -> bool:
    """Whether every number that makes the formula another one is told by the steps, and found inside its limits."""
    limits = limits_of(fit.formula, steps)
    found = zip(fit.formula.keys, fit.solution.numbers, fit.told, limits.low, limits.high, limits.spans, strict=True)
    return all(
        name in _ALWAYS or (is_told and low + _NOTHING * span < value < high - _NOTHING * span)
        for (name, _), value, is_told, low, high, span in found
    )


def varied(steps: Sequence[Measured]) -> tuple[str, ...]:
    """The optional numbers whose work the steps tell from that of bandwidth and compute."""
    weights = [step.weight for step in steps]
    found = []
    for name in _OPTIONS:
        formula = formula_of(StepForm.ADDITIVE, (name,), _num_formats(steps))
        limits = limits_of(formula, steps)
        known = dict(zip(formula.keys, told(formula.rows_of(steps)(limits.usual), weights, limits), strict=True))
        if known[name, 0]:
            found.append(name)
    return tuple(found)


def _option_sets(form: StepForm, options: Sequence[str], num_formats: int) -> Iterator[tuple[str, ...]]:
    """Sets of optional numbers.

    Where:  a fixed time is looked for only where one read of the weights is not the very same in every step: over several weight
            formats, or where the longer arm may hide it; there only beside a share of the cache, or longer contexts would pass
            for slow weights, and the rest for a fixed time
    """
    for size in range(len(options) + 1):
        for chosen in combinations(options, size):
            yield chosen
            if num_formats > 1 or (form in MAXIMA and ("cache" in chosen or "cache" not in options)):
                yield (*chosen, _FIXED)


# --- where the search for a form's arms begins --------------------------------------------------------------------


def _fullest(form: StepForm, options: Sequence[str], steps: Sequence[Measured]) -> Fit:
    """A form with all its numbers, from several starts.

    Where:  what is usual; arms that each explain an extreme step; kernels for single positions up to each size of batch
    """
    formula = formula_of(form, options, _num_formats(steps))
    usual = limits_of(formula, steps).usual
    starts = [usual]
    if form in MAXIMA:
        starts.append(_with(formula, usual, _extremes(steps)))
    if form in VECTORS:
        starts += _vector_starts(formula, steps)
    return fit_formula(formula, steps, starts)


def _with(formula: Formula, usual: Row, numbers: Mapping[str, float]) -> tuple[float, ...]:
    return tuple(numbers.get(name, value) for (name, _), value in zip(formula.keys, usual, strict=True))


def _extremes(steps: Sequence[Measured]) -> dict[str, float]:
    """All of the step with least computing taken as memory, all of the one with most as computing."""
    by_products = sorted(steps, key=lambda step: sum(batch.products for batch in step.batches))
    least, most = by_products[0], by_products[-1]
    return {
        "bandwidth": least.seconds / sum(batch.weights for batch in least.batches),
        "compute": most.seconds / sum(batch.products for batch in most.batches),
    }


def _vector_starts(formula: Formula, steps: Sequence[Measured]) -> Iterator[tuple[float, ...]]:
    """For each size of batch: steps up to it taken as read once for every position, the others fitted without such a kernel."""
    sizes = sorted({_largest(step) for step in steps})
    plain_form = StepForm.MAXIMUM if formula.form in MAXIMA else StepForm.ADDITIVE
    plain = formula_of(plain_form, [name for name in formula.free if name in _OPTIONS], _num_formats(steps))
    for size in sizes[:-1]:
        if size > _MOST_VECTOR:
            break
        small = [step for step in steps if _largest(step) <= size]
        large = [step for step in steps if _largest(step) > size]
        limits = limits_of(plain, large)
        fit = fit_formula(plain, large, (_with(plain, limits.usual, _extremes(large)),))
        numbers = {name: value for (name, _), value in zip(plain.keys, fit.solution.numbers, strict=True)}
        numbers["vector"] = median(step.seconds / sum(batch.vector for batch in step.batches) for step in small)
        yield _with(formula, limits_of(formula, steps).usual, numbers)


def _largest(step: Measured) -> int:
    """Positions of a step's largest batch."""
    return max(batch.positions for batch in step.batches)
