"""Refitting without one machine or one model, and asking about what was left out: the honest score.

In:   cases with their shapes
Out:  ScoredRow for every row, each predicted by a fit that never saw its machine (or model); widths of intervals
Leaves out: nothing is tuned here
Read next by: cli, scripts/fit_efficiency.py.

An interval's half-width is the 80 % quantile of |log error| over the rows of the *other* machines in the same phase and
equally familiar; engines or pools never measured share one width, over all phases. Needs NumPy and SciPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any, Final

import numpy as np

from inference_bench.facts.source import Source
from inference_bench.predict.efficiency.parameters import (
    INTERVAL_SHARE,
    Calibration,
    Familiarity,
    Fitted,
    Parameters,
)
from inference_bench.predict.efficiency.question import Phase, Shape
from inference_bench.score.calibrated import Asked, name_left_out, score_calibrated
from inference_bench.score.fitting import Problem, fit, parameters, problem
from inference_bench.score.scoring import ScoredRow, with_interval
from inference_bench.stats import quantile

_LEAST_ROWS: Final = 12  # fewer residuals than this say nothing about a quantile
_WIDEST: Final = log(20)
_NO_WIDTHS: Final[Mapping[str, Mapping[str, Mapping[str, float]]]] = {
    phase.value: {level.value: dict.fromkeys((mode.value for mode in Calibration), 0.0) for level in Familiarity}
    for phase in Phase
}


@dataclass(frozen=True, slots=True)
class Fold:
    """A fit without one machine or model, and the rows that were left out."""

    name: str
    known: Fitted
    left_out: tuple[Asked, ...]


def fit_all(asked: Sequence[Asked], source: Source) -> Fitted:
    """The parameters from every row that the tables do not call suspect; widths are still zero."""
    alone, serving = (_Part.of(asked, is_serving) for is_serving in (False, True))
    return _fitted(alone.parameters(), serving.parameters(), asked, source)


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of one kind, with their problem and the fit to all of them."""

    pairs: tuple[Asked, ...]
    rows: Problem | None
    best: Any

    @classmethod
    def of(cls, asked: Sequence[Asked], is_serving: bool) -> _Part:
        pairs = tuple(
            pair for pair in asked if pair[1].question.is_serving == is_serving and not pair[0].row.is_suspect
        )
        if not pairs:
            return cls((), None, None)
        rows = problem([form for _, form in pairs], [item.seconds or 0.0 for item, _ in pairs])
        return cls(pairs, rows, fit(rows))

    def parameters(self) -> Parameters:
        return Parameters({}, 1.0) if self.rows is None else parameters(self.rows, self.best)

    def without(self, is_left_out: Callable[[Asked], bool]) -> Parameters:
        """The fit without some rows, begun anew so that nothing of them remains; the same where none of them is here."""
        keep = np.array([not is_left_out(pair) for pair in self.pairs])
        if self.rows is None or keep.all():
            return self.parameters()
        if not keep.any():
            return parameters(self.rows, self.rows.means)
        fewer = self.rows.without(keep)
        return parameters(fewer, fit(fewer))


def folds(asked: Sequence[Asked], key: str, progress: Callable[[str], None] = lambda _: None) -> Iterator[Fold]:
    """A fit without each machine, or without each model, in turn.

    Raises:  RequestError for a key that is not known
    """
    name_of = name_left_out(key)
    alone, serving = (_Part.of(asked, is_serving) for is_serving in (False, True))
    names = sorted({name_of(pair) for pair in asked})
    for number, name in enumerate(names, start=1):
        progress(f"refit without {name} ({number} of {len(names)})")
        parts = [part.without(lambda pair, name=name: name_of(pair) == name) for part in (alone, serving)]  # type: ignore[misc]
        seen = [pair for pair in asked if name_of(pair) != name]
        left_out = tuple(pair for pair in asked if name_of(pair) == name)
        yield Fold(name, _fitted(parts[0], parts[1], seen, Source(f"without {name}", "")), left_out)


def _fitted(alone: Parameters, serving: Parameters, seen: Sequence[Asked], source: Source) -> Fitted:
    sure = [pair for pair in seen if not pair[0].row.is_suspect]
    near = {phase.value: _names(form for _, form in sure if form.question.phase is phase) for phase in Phase}
    return Fitted(alone, serving, _NO_WIDTHS, near, len(sure), source)


def _names(forms: Iterable[Shape]) -> frozenset[str]:
    """The engines with their machines, and with their pools."""
    settings = [form.question.setting for form in forms]
    machines = {f"{setting.engine}/{setting.machine.name}" for setting in settings}
    return frozenset(machines | {f"{setting.engine}/{setting.pool}" for setting in settings})


def cross_validate(
    asked: Sequence[Asked],
    key: str,
    modes: Sequence[Calibration] = (Calibration.NONE,),
    progress: Callable[[str], None] = lambda _: None,
) -> dict[Calibration, tuple[list[ScoredRow], int]]:
    """Every row predicted by a fit that never saw its machine or model, with intervals from the other folds.

    Returns:  for each mode of calibration the rows, and how many were spent on calibration
    """
    found: dict[Calibration, list[tuple[str, list[ScoredRow]]]] = {mode: [] for mode in modes}
    spent = dict.fromkeys(modes, 0)
    for fold in folds(asked, key, progress):
        for mode in modes:
            rows, used = score_calibrated(fold.left_out, fold.known, mode)
            found[mode].append((fold.name, rows))
            spent[mode] += used
    return {
        mode: ([row for name, rows in by_fold for row in _with_widths(rows, name, by_fold)], spent[mode])
        for mode, by_fold in found.items()
    }


def _with_widths(
    rows: Sequence[ScoredRow], name: str, by_fold: Sequence[tuple[str, Sequence[ScoredRow]]]
) -> Iterator[ScoredRow]:
    """The rows of one fold with intervals from all others that rest on as much."""
    others = [row for other, found in by_fold if other != name for row in found]
    widths = {mode: widths_of(others, mode) for mode in {row.calibration for row in rows}}
    for row in rows:
        width = widths[row.calibration][row.form.question.phase.value][row.familiarity.value]
        yield with_interval(row.case, row.form, row.predicted_s, row.familiarity, width, row.calibration)


def widths_of(rows: Sequence[ScoredRow], mode: Calibration) -> dict[str, dict[str, float]]:
    """Half-widths of 80 % intervals by phase and familiarity; too few rows borrow from the phase, then from all.

    Where:  only rows that rest on so much of their machine's own count, if there are any
    Unit:   logarithms
    """
    every = [row for row in rows if not row.case.row.is_suspect]
    sure = [row for row in every if row.calibration is mode] or every

    def width(phase: Phase, level: Familiarity) -> float:
        is_serving = phase in (Phase.SERVING_TPOT, Phase.SERVING_TTFT)
        kinds: tuple[Callable[[ScoredRow], bool], ...] = (
            lambda row: row.form.question.phase is phase and row.familiarity is level,
            lambda row: row.form.question.phase is phase,
            lambda row: row.form.question.is_serving == is_serving,
            lambda _: True,
        )
        if (
            level is Familiarity.NEW and not is_serving
        ):  # few machines, each far off in its own way: all phases together
            kinds = (lambda row: row.familiarity is level and not row.form.question.is_serving, *kinds[1:])
        for kind in kinds:
            errors = [abs(log(row.predicted_s / row.measured_s)) for row in sure if kind(row)]
            if len(errors) >= _LEAST_ROWS:
                return min(_WIDEST, quantile(errors, INTERVAL_SHARE))
        return _WIDEST

    return {phase.value: {level.value: width(phase, level) for level in Familiarity} for phase in Phase}


def with_widths(
    known: Fitted,
    unseen: Mapping[Calibration, Sequence[ScoredRow]],
    seen: Mapping[Calibration, Sequence[ScoredRow]],
) -> Fitted:
    """The fit with the widths of its intervals.

    Where:  unseen are rows predicted without their machine, in each mode; seen are rows predicted without their model,
            of which those count whose machine the fit still knew: what a machine of the tables can expect
    """
    away = {mode: widths_of(rows, mode) for mode, rows in unseen.items()}
    home = {
        mode: widths_of([row for row in rows if row.familiarity is Familiarity.KNOWN], mode)
        for mode, rows in seen.items()
    }
    table = {
        phase.value: {
            level.value: {
                mode.value: round((home if level is Familiarity.KNOWN else away)[mode][phase.value][level.value], 3)
                for mode in Calibration
            }
            for level in Familiarity
        }
        for phase in Phase
    }
    return replace(known, widths=table)


__all__ = ["Fold", "cross_validate", "fit_all", "folds", "widths_of", "with_widths"]
