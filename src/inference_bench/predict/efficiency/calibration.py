"""A user's own measurements correct the fitted efficiencies: one row moves what it can tell, several tell more apart.

In:   Observations (a question and the seconds measured)
Out:  offsets by group of efficiencies, to be given to `expect` or `EngineCost`
Leaves out: choosing the rows (score.calibrated)
Read next by: score, plan.

Each offset is normal around zero with the spread that machines show around their pool; the offsets are the most likely
ones given the rows (Gauss-Newton on the logarithm of the time). One decode row moves mostly the bandwidth efficiency,
because that is where most of its time goes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from inference_bench.predict.efficiency.expectation import (
    NO_OFFSETS,
    Offsets,
    Pace,
    answer,
    familiarity_of,
    step_parameters,
)
from inference_bench.predict.efficiency.parameters import Calibration, Familiarity, Fitted, fitted
from inference_bench.predict.efficiency.question import Phase, Question, shape
from inference_bench.predict.efficiency.setting import Setting

# how far one machine's efficiencies lie from its pool's, as the standard deviation of a logarithm
SPREAD: Final = {
    "bandwidth": 0.35,
    "compute/decode": 0.5,
    "compute/prefill": 0.5,
    "threads": 0.5,
    "overhead": 0.5,
    "communication": 0.4,
    "sequences": 0.5,
    "batched_experts": 0.5,
    "interference": 0.3,
    "own_prompt": 0.3,
    "burst": 0.4,
    "first_step": 0.5,
    "wait": 0.5,
}
# how far one row lies from the best offsets: what a wait adds differs from run to run
NOISE: Final = {
    Phase.DECODE: 0.1,
    Phase.PREFILL: 0.15,
    Phase.E2E: 0.12,
    Phase.SERVING_TPOT: 0.12,
    Phase.SERVING_TTFT: 0.6,
}
# how much of that spread is left: another machine of a kind the fit has seen with this engine differs less
_SHARE_OF_SPREAD: Final = {Familiarity.KNOWN: 0.7, Familiarity.POOL: 1.0, Familiarity.NEW: 1.0}
_ROUNDS: Final = 30
_LARGEST_MOVE: Final = 1.0
_SMALLEST_SAID: Final = 0.005
# group → what a person would call it; of efficiencies, a longer time is a lower one
_EFFICIENCIES: Final = {
    "bandwidth": "bandwidth efficiency",
    "compute/decode": "compute efficiency in decode",
    "compute/prefill": "compute efficiency in prefill",
    "threads": "thread efficiency",
}


@dataclass(frozen=True, slots=True)
class Observation:
    """A question and what was measured.

    Unit:  seconds
    """

    question: Question
    seconds: float


@dataclass(frozen=True, slots=True)
class OwnMeasurements:
    """What a user's own measurements of one engine on one machine say of it.

    Where:  alone are the offsets of all rows over steps timed alone, in_service those over the steps of servers: a row is
            held against what it corrects; origin says where the rows are from, left_out which of them cannot be, and why
    """

    engine: str
    machine: str
    rows: tuple[Observation, ...] = field(repr=False)
    origin: str
    left_out: tuple[str, ...] = ()
    alone: Offsets = field(default_factory=dict)
    in_service: Offsets = field(default_factory=dict)

    def offsets(self, setting: Setting, pace: Pace = Pace.ALONE) -> Offsets:
        """The corrections of a setting: those of all rows, then, around them, those of its own."""
        shared = self.in_service if pace is Pace.IN_SERVICE else self.alone
        own = [row for row in self.rows if _served_alike(row.question.setting, setting)]
        return calibrate(own, None, shared, pace) if own else shared

    def calibration(self, setting: Setting, phase: Phase) -> Calibration:
        """How much a prediction rests on them, as widths were measured: on rows of its phase.

        Where:  several is one row of each model and format, that of the setting among them; one is any row
        """
        settings = [row.question.setting for row in self.rows if row.question.phase is phase]
        if any(_served_alike(one, setting) for one in settings):
            return Calibration.SEVERAL
        return Calibration.ONE if settings else Calibration.NONE

    def describe(self, setting: Setting, pace: Pace = Pace.ALONE) -> str:
        """What moved for a setting, as factors on the fit."""
        offsets = self.offsets(setting, pace)
        moved = [_moved(name, value) for name, value in offsets.items() if abs(value) >= _SMALLEST_SAID]
        return (
            f"{len(self.rows)} own row(s) of {self.engine} on {self.machine} ({self.origin}) correct the fit: "
            f"{', '.join(moved) or 'it was right within half a percent'}"
            f"{'; left out: ' if self.left_out else ''}{'; '.join(self.left_out)}"
        )


def _served_alike(one: Setting, other: Setting) -> bool:
    """Whether two settings are one model in one format on devices that share it alike."""
    return _model_and_format(one) == _model_and_format(other)


def _model_and_format(setting: Setting) -> tuple[object, ...]:
    return setting.served.model.name, setting.format_label, setting.devices, setting.tensor


def _moved(name: str, offset: float) -> str:
    if name in _EFFICIENCIES:
        return f"{_EFFICIENCIES[name]} ×{math.exp(-offset):.2f}"
    return f"{name.replace('_', ' ')} ×{math.exp(offset):.2f}"


def own_measurements(
    engine: str, machine: str, rows: Sequence[Observation], origin: str, left_out: tuple[str, ...] = ()
) -> OwnMeasurements:
    """The corrections that some rows of one engine on one machine give.

    Raises:  RequestError where the machine's rates are not known
    """
    alone, in_service = (calibrate(rows, pace=pace) for pace in (Pace.ALONE, Pace.IN_SERVICE))
    return OwnMeasurements(engine, machine, tuple(rows), origin, left_out, alone, in_service)


def calibrate(
    rows: Sequence[Observation],
    known: Fitted | None = None,
    around: Offsets = NO_OFFSETS,
    pace: Pace = Pace.ALONE,
) -> dict[str, float]:
    """The offsets that best explain some rows of one engine on one machine; those it starts around for no rows.

    Formula:  argmin Σ rows (log t - log t̂(o))² / s² + Σ offsets (o - a)² / σ²
    Where:    a is what is believed before: zero, or what the machine's other rows gave; t̂ has the parameters of the steps
              that are to be corrected (`step_parameters`)
    Raises:   RequestError where the machine's rates are not known
    """
    known = known or fitted()
    asked = [
        (
            shape(row.question),
            step_parameters(row.question.setting, row.question.phase, known, pace),
            math.log(row.seconds),
        )
        for row in rows
    ]
    names = list(SPREAD)
    noise = [NOISE[row.question.phase] for row in rows]
    spread = _spread(rows, known)
    offsets = {name: around.get(name, 0.0) for name in names}
    for _ in range(_ROUNDS if rows else 0):
        residuals, slopes = [], []
        for form, (parameters, own_prompt), target in asked:
            time = answer(form, parameters, offsets, own_prompt=own_prompt)
            residuals.append(target - math.log(time.seconds))
            slopes.append([time.by_group.get(name, 0.0) / time.seconds for name in names])
        away = [offsets[name] - around.get(name, 0.0) for name in names]
        moves = _gauss_newton(residuals, slopes, noise, away, spread)
        for name, move in zip(names, moves, strict=True):
            offsets[name] += max(-_LARGEST_MOVE, min(_LARGEST_MOVE, move))
        if max(map(abs, moves)) < 1e-6:
            break
    return {name: value for name, value in offsets.items() if abs(value) > 1e-9}


def _spread(rows: Sequence[Observation], known: Fitted) -> list[float]:
    """How far each offset may go, by how familiar the fit is with the engine on the machine."""
    found = (familiarity_of(row.question.setting, known, row.question.phase) for row in rows)
    share = max((_SHARE_OF_SPREAD[familiarity] for familiarity in found), default=1.0)
    return [share * value for value in SPREAD.values()]


def _gauss_newton(
    residuals: list[float], slopes: list[list[float]], noise: list[float], away: list[float], spread: list[float]
) -> list[float]:
    """The move that solves (Jᵀ·J / s² + diag(1 / σ²)) · move = Jᵀ·r / s² - (o - a) / σ²."""
    size = len(away)
    slopes = [[value / spread_of for value in row] for row, spread_of in zip(slopes, noise, strict=True)]
    residuals = [left / spread_of for left, spread_of in zip(residuals, noise, strict=True)]
    matrix = [[sum(row[i] * row[j] for row in slopes) for j in range(size)] for i in range(size)]
    right = [sum(row[i] * left for row, left in zip(slopes, residuals, strict=True)) for i in range(size)]
    for i in range(size):
        matrix[i][i] += 1 / spread[i] ** 2
        right[i] -= away[i] / spread[i] ** 2
    return _solve(matrix, right)


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """A symmetric positive definite system, by elimination: its diagonal needs no pivoting."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for i in range(size):
        for j in range(i + 1, size):
            ratio = rows[j][i] / rows[i][i]
            if ratio:
                rows[j] = [below - ratio * above for below, above in zip(rows[j], rows[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (rows[i][size] - sum(rows[i][j] * found[j] for j in range(i + 1, size))) / rows[i][i]
    return found
