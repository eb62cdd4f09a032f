"""Scoring a calibrated model without leakage: some rows of each engine on each machine are spent, the rest are scored.

In:   cases with their shapes, Fitted, the mode
Out:  ScoredRow for the rows that were not spent
Leaves out: which rows a person would measure; here they are chosen by predicted time alone, never by error
Read next by: cli, cross_validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from inference_bench.predict.efficiency.calibration import Observation, calibrate
from inference_bench.predict.efficiency.expectation import answer, parameters_for
from inference_bench.predict.efficiency.parameters import Calibration, Fitted
from inference_bench.predict.efficiency.question import Shape
from inference_bench.score.query import Case
from inference_bench.score.scoring import ScoredRow, score_row

ROWS_SPENT: Final = {Calibration.NONE: 0, Calibration.ONE: 1, Calibration.SEVERAL: 4}
_OUTER: Final = (0.1, 0.9)

Asked = tuple[Case, Shape]


def score_calibrated(asked: Sequence[Asked], known: Fitted, mode: Calibration) -> tuple[list[ScoredRow], int]:
    """The rows not spent, each predicted with the offsets of its own group, and how many were spent.

    Where:  a group is one engine on one machine in one phase; a group too small to have rows left over is predicted as
            it is
    """
    scored: list[ScoredRow] = []
    spent = 0
    for group in groups(asked):
        chosen = choose(group, known, ROWS_SPENT[mode])
        if not chosen:
            scored += [score_row(item, form, known) for item, form in group]
            continue
        rows = [Observation(form.question, item.seconds or 0.0) for item, form in (group[index] for index in chosen)]
        offsets = calibrate(rows, known)
        left = [pair for index, pair in enumerate(group) if index not in chosen]
        scored += [score_row(item, form, known, offsets, mode) for item, form in left]
        spent += len(chosen)
    return scored, spent


def groups(asked: Sequence[Asked]) -> list[list[Asked]]:
    """Rows of one engine on one machine in one phase, in order of first appearance."""
    found: dict[tuple[str, str, str], list[Asked]] = {}
    for item, form in asked:
        setting = form.question.setting
        found.setdefault((setting.machine.name, setting.engine, form.question.phase.value), []).append((item, form))
    return list(found.values())


def choose(group: Sequence[Asked], known: Fitted, number: int) -> frozenset[int]:
    """Which rows of a group to spend: the middle one by predicted time, or some spread between its ends; suspect never.

    Where:  none where the group would be left empty
    """
    able = [index for index, (item, _) in enumerate(group) if not item.row.is_suspect]
    if number == 0 or len(able) <= number:
        return frozenset()

    def predicted(index: int) -> float:
        form = group[index][1]
        return answer(form, parameters_for(form.question, known)).seconds

    ordered = sorted(able, key=predicted)
    if number == 1:
        return frozenset({ordered[len(ordered) // 2]})
    low, high = _OUTER
    shares = [low + (high - low) * step / (number - 1) for step in range(number)]
    return frozenset(ordered[round(share * (len(ordered) - 1))] for share in shares)
