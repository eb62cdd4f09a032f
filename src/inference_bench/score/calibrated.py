"""Scoring a calibrated model without leakage: some rows of each engine on each machine are spent, the rest are scored.

In:   cases with their shapes, Fitted, the mode
Out:  ScoredRow for the rows that were not spent
Leaves out: which rows a person would measure; here they are chosen by predicted time alone, never by error
Read next by: cli, cross_validation.

One: a single row of the engine on the machine, whatever its model and format. Several: one row of each model and format
served there, which correct the machine together and then each its own setting.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.predict.efficiency.calibration import Observation, calibrate
from inference_bench.predict.efficiency.expectation import NO_OFFSETS, Offsets, answer, parameters_for
from inference_bench.predict.efficiency.parameters import Calibration, Fitted
from inference_bench.predict.efficiency.question import Shape
from inference_bench.score.query import Case
from inference_bench.score.rows import MeasuredRow
from inference_bench.score.scoring import ScoredRow, score_row
from inference_bench.score.watched import EVERY, Progress, silent, watched
from inference_bench.units import format_count

Asked = tuple[Case, Shape]
LEFT_OUT: Final = {"device": "machine", "model": "model"}  # what a refit can leave out, by the name of its option


def score_calibrated(
    asked: Sequence[Asked], known: Fitted, mode: Calibration, progress: Progress = silent
) -> tuple[list[ScoredRow], int]:
    """The rows not spent, each predicted with the offsets of its own group, and how many were spent.

    Where:  a group is one engine on one machine in one phase; a group too small to have rows left over is predicted as
            it is
    """
    if mode is Calibration.NONE:
        return [score_row(item, form, known) for item, form in watched(asked, "predicted", progress)], 0
    scored: list[ScoredRow] = []
    spent = 0
    for group in _groups(asked, _engine_and_machine):
        rows, used = _one(group, known) if mode is Calibration.ONE else _several(group, known)
        scored += rows
        spent += used
        if len(asked) > EVERY:
            progress(f"predicted {format_count(len(scored))} of {format_count(len(asked))} rows")
    return scored, spent


def name_left_out(key: str) -> Callable[[Asked], str]:
    """What tells which machine, or which model, a row is of: the one that a refit leaves out.

    Raises:  RequestError for a key that is not of LEFT_OUT
    """
    if key not in LEFT_OUT:
        raise RequestError(f"cross-validation by {key[:40]!r} is not known; known: {', '.join(LEFT_OUT)}")

    def name(pair: Asked) -> str:
        setting = pair[1].question.setting
        return setting.machine.name if key == "device" else setting.served.model.name

    return name


def _one(group: Sequence[Asked], known: Fitted) -> tuple[list[ScoredRow], int]:
    """One row of the group corrects all others."""
    row = middle(group, known)
    if row is None:
        return [score_row(item, form, known) for item, form in group], 0
    offsets = calibrate([_observed(group[row])], known)
    return _left_over(group, row, known, offsets, Calibration.ONE), 1


def _several(group: Sequence[Asked], known: Fitted) -> tuple[list[ScoredRow], int]:
    """One row of each setting corrects the machine, then its own setting."""
    settings = _groups(group, _model_and_format)
    rows = [middle(setting, known) for setting in settings]
    spent = [_observed(setting[row]) for setting, row in zip(settings, rows, strict=True) if row is not None]
    shared = calibrate(spent, known) if spent else NO_OFFSETS
    scored: list[ScoredRow] = []
    for setting, row in zip(settings, rows, strict=True):
        if row is None:
            mode = Calibration.ONE if spent else Calibration.NONE  # rows of other settings, none of its own
            scored += [score_row(item, form, known, shared, mode) for item, form in setting]
        else:
            own = calibrate([_observed(setting[row])], known, shared)
            scored += _left_over(setting, row, known, own, Calibration.SEVERAL)
    return scored, len(spent)


def _left_over(
    group: Sequence[Asked], spent: int, known: Fitted, offsets: Offsets, mode: Calibration
) -> list[ScoredRow]:
    left = [pair for index, pair in enumerate(group) if index != spent]
    return [score_row(item, form, known, offsets, mode) for item, form in left]


def _observed(pair: Asked) -> Observation:
    return Observation(pair[1].question, pair[0].seconds or 0.0)


def _engine_and_machine(pair: Asked) -> Hashable:
    setting = pair[1].question.setting
    return setting.machine.name, setting.engine, pair[1].question.phase


def _model_and_format(pair: Asked) -> Hashable:
    setting = pair[1].question.setting
    return setting.served.model.name, setting.format_label, setting.devices, setting.tensor


def _groups(asked: Sequence[Asked], key: Callable[[Asked], Hashable]) -> list[list[Asked]]:
    """Rows with the same key, in the order of their keys, which the order of the rows says nothing about."""
    found: dict[Hashable, list[Asked]] = {}
    for pair in asked:
        found.setdefault(key(pair), []).append(pair)
    return [found[key] for key in sorted(found, key=repr)]


def middle(group: Sequence[Asked], known: Fitted) -> int | None:
    """The row to spend: the middle one by predicted time, suspect rows aside; None where nothing would be left."""
    able = [index for index, (item, _) in enumerate(group) if not item.row.is_suspect]
    if len(able) < 2:
        return None

    def rank(index: int) -> tuple[float, str]:
        item, form = group[index]
        return answer(form, parameters_for(form.question, known)).seconds, _name(item.row)

    return sorted(able, key=rank)[len(able) // 2]


def _name(row: MeasuredRow) -> str:
    """What tells rows of the same predicted time apart, wherever they stand; never what was measured."""
    return repr((replace(row, value=1.0, row=0), row.row))
