"""Predictions beside published measurements, row by row: the bound, fixed planning factors and the expectation.

In:   Cases, Fitted, a mode of calibration
Out:  ScoredRow for each row that can be asked
Leaves out: refits without a machine (cross_validation); medians over rows (summary)
Read next by: calibrated, summary.

Error:  |predicted - measured| / measured time. Rows the table itself calls suspect are predicted and left out of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import exp
from typing import Final

from inference_bench.errors import InferenceBenchError
from inference_bench.predict.efficiency.expectation import NO_OFFSETS, Offsets, answer, parameters_for
from inference_bench.predict.efficiency.parameters import Calibration, Familiarity, Fitted, fitted
from inference_bench.predict.efficiency.question import Phase, Shape, shape
from inference_bench.predict.efficiency.terms import COMPUTE_TERMS, MEMORY_TERMS, StepTerms
from inference_bench.score.query import Case, short_reason

# what planners assume where nothing was measured, the best single values on such tables
FIXED_BANDWIDTH_SHARE: Final = 0.7
FIXED_COMPUTE_SHARE: Final = 0.5
_NUM_MEMORY: Final = len(MEMORY_TERMS)
_NUM_COUNTED: Final = _NUM_MEMORY + len(COMPUTE_TERMS) - 1  # threads is a second count of the same products


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
    seconds = answer(form, parameters_for(question, known), offsets).seconds
    setting = question.setting
    familiarity = known.familiarity(setting.engine, setting.machine.name, setting.pool)
    return with_interval(item, form, seconds, familiarity, known.width(question.phase.value, familiarity, calibration))


def with_interval(item: Case, form: Shape, seconds: float, familiarity: Familiarity, width: float) -> ScoredRow:
    """A row beside a time predicted elsewhere.

    Formula:  interval = [t / e^width, t · e^width]
    """
    spread = exp(width)
    return ScoredRow(
        case=item,
        form=form,
        familiarity=familiarity,
        bound_s=_at_shares(form, 1.0, 1.0),
        fixed_s=_at_shares(form, FIXED_BANDWIDTH_SHARE, FIXED_COMPUTE_SHARE),
        predicted_s=seconds,
        low_s=seconds / spread,
        high_s=seconds * spread,
    )


def _at_shares(form: Shape, bandwidth_share: float, compute_share: float) -> float:
    """The phase at stated shares of both peaks: what a roofline alone says.

    Formula:  a step is max(memory / s, compute / m); e2e is prefill + (n - 1)·step; a first token is one prompt
    Unit:     seconds
    """

    def step(terms: StepTerms | None) -> float:
        if terms is None:
            return 0.0
        memory = sum(terms.values[:_NUM_MEMORY]) / bandwidth_share
        return max(memory, sum(terms.values[_NUM_MEMORY:_NUM_COUNTED]) / compute_share)

    phase = form.question.phase
    if phase in (Phase.DECODE, Phase.SERVING_TPOT):
        return step(form.decode)
    if phase in (Phase.PREFILL, Phase.SERVING_TTFT):
        return step(form.prefill)
    return step(form.prefill) + (form.question.output_tokens - 1) * step(form.decode)


def ask(cases: Iterable[Case]) -> tuple[list[tuple[Case, Shape]], dict[str, int]]:
    """The cases that make a question, with their shapes, and how many do not, by reason."""
    asked, left = ask_each(cases)
    return asked, dict(Counter(item.reason or "" for item in left).most_common())


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
