"""Predictions beside published measurements, row by row: the bound, fixed planning factors and the expectation.

In:   Cases, Fitted, a mode of calibration
Out:  ScoredRow for each row that can be asked
Leaves out: refits without a machine (cross_validation); medians over rows (summary)
Read next by: calibrated, summary.

Error:  |predicted - measured| / measured time. Rows the table itself calls suspect are predicted and left out of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from inference_bench.errors import InferenceBenchError
from inference_bench.predict.efficiency.bounds import bound_of
from inference_bench.predict.efficiency.expectation import (
    NO_OFFSETS,
    Offsets,
    expected_time,
    familiarity_of,
    interval,
)
from inference_bench.predict.efficiency.parameters import Calibration, Familiarity, Fitted, fitted
from inference_bench.predict.efficiency.question import Shape, shape
from inference_bench.score.query import Case, short_reason

# what planners assume where nothing was measured, the best single values on such tables
FIXED_BANDWIDTH_SHARE: Final = 0.7
FIXED_COMPUTE_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """A row beside its predictions.

    Unit:  seconds
    """

    case: Case
    form: Shape
    familiarity: Familiarity
    bound_s: float
    fixed_s: float
    predicted_s: float
    low_s: float
    high_s: float
    calibration: Calibration = Calibration.NONE

    @property
    def measured_s(self) -> float:
        """What the table says."""
        return self.case.seconds or 0.0

    def error_of(self, seconds: float) -> float:
        """How far a time lies from what was measured.

        Formula:  |t - measured| / measured
        Unit:     a fraction
        """
        return abs(seconds - self.measured_s) / self.measured_s

    @property
    def error(self) -> float:
        """That of the prediction."""
        return self.error_of(self.predicted_s)

    @property
    def is_inside(self) -> bool:
        """Whether the interval holds the measured value."""
        return self.low_s <= self.measured_s <= self.high_s


def score_row(
    item: Case,
    form: Shape,
    known: Fitted | None = None,
    offsets: Offsets = NO_OFFSETS,
    calibration: Calibration = Calibration.NONE,
) -> ScoredRow:
    """One row beside the bound, fixed planning factors and the expectation."""
    known, question = known or fitted(), form.question
    seconds = expected_time(form, known, offsets).seconds
    familiarity = familiarity_of(question.setting, known, question.phase)
    width = known.width(question.phase.value, familiarity, calibration)
    return with_interval(item, form, seconds, familiarity, width, calibration)


def with_interval(
    item: Case,
    form: Shape,
    seconds: float,
    familiarity: Familiarity,
    width: float,
    calibration: Calibration = Calibration.NONE,
) -> ScoredRow:
    """A row beside a time predicted elsewhere.

    Formula:  that of `expectation.interval`: [t / e^width, t · e^width], nothing faster than the bound
    """
    found = interval(form, seconds, width)
    return ScoredRow(
        case=item,
        form=form,
        familiarity=familiarity,
        bound_s=bound_of(form),
        fixed_s=bound_of(form, FIXED_BANDWIDTH_SHARE, FIXED_COMPUTE_SHARE),
        predicted_s=found.seconds,
        low_s=found.low_s,
        high_s=found.high_s,
        calibration=calibration,
    )


def ask_each(cases: Iterable[Case]) -> tuple[list[tuple[Case, Shape]], list[Case]]:
    """The cases that make a question, with their shapes, and those that do not, with their reasons."""
    asked: list[tuple[Case, Shape]] = []
    left: list[Case] = []
    for item in cases:
        if item.question is None:
            left.append(item)
            continue
        try:
            asked.append((item, shape(item.question)))
        except InferenceBenchError as error:
            left.append(replace(item, reason=short_reason(error)))
    return asked, left
