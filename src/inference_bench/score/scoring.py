"""Predictions beside published measurements: errors, coverage of rows and of intervals, and the rows that went worst.

In:   Cases, Fitted, a mode of calibration
Out:  ScoredRow for each row that can be asked, ScoreReport with a Score for every group
Leaves out: refits without a machine (cross_validation)
Read next by: report, cli.

Error:  |predicted - measured| / measured time. Rows the table itself calls suspect are predicted and left out of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.predict.efficiency.expectation import NO_OFFSETS, Offsets, answer, parameters_for
from inference_bench.predict.efficiency.parameters import Calibration, Familiarity, Fitted, fitted
from inference_bench.predict.efficiency.question import Phase, Question, Shape, shape
from inference_bench.predict.efficiency.setting import machine_pool
from inference_bench.predict.efficiency.terms import COMPUTE_TERMS, MEMORY_TERMS, StepTerms
from inference_bench.score.query import Case
from inference_bench.stats import quantile

# what planners assume where nothing was measured, the best single values on such tables
FIXED_BANDWIDTH_SHARE: Final = 0.7
FIXED_COMPUTE_SHARE: Final = 0.5
NUM_WORST: Final = 12
_NUM_MEMORY: Final = len(MEMORY_TERMS)
_NUM_COUNTED: Final = _NUM_MEMORY + len(COMPUTE_TERMS) - 1  # threads is a second count of the same products


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """A row beside its predictions; log_error is the logarithm of predicted over measured.

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
        """|seconds - measured| / measured, a fraction."""
        return abs(seconds - self.measured_s) / self.measured_s

    @property
    def error(self) -> float:
        """That of the prediction."""
        return self.error_of(self.predicted_s)

    @property
    def is_inside(self) -> bool:
        """Whether the interval holds the measured value."""
        return self.low_s <= self.measured_s <= self.high_s


@dataclass(frozen=True, slots=True)
class Score:
    """How right one group's predictions are.

    Where:  rows are all of the group, predicted those that could be asked, scored those the errors are taken over: not
            suspect, and not spent on calibration; None where there are none
    Unit:   fractions
    """

    rows: int
    predicted: int
    scored: int
    median_ape: float | None
    p90_ape: float | None
    interval_coverage: float | None
    bound_median_ape: float | None
    bound_p90_ape: float | None
    fixed_factor_median_ape: float | None
    fixed_factor_p90_ape: float | None

    @property
    def coverage(self) -> float | None:
        """Share of the rows that could be predicted."""
        return self.predicted / self.rows if self.rows else None


@dataclass(frozen=True, slots=True)
class WorstRow:
    """One of the rows furthest off, and what most likely explains it."""

    scored: ScoredRow
    reason: str


@dataclass(frozen=True, slots=True)
class ScoreReport:
    """Scores of everything that was read."""

    calibration: Calibration
    cross_validation: str | None
    overall: Score
    by_phase: Mapping[str, Score]
    by_hardware: Mapping[str, Score]
    by_machine: Mapping[str, Score]
    by_engine: Mapping[str, Score]
    by_source: Mapping[str, Score]
    worst: tuple[WorstRow, ...]
    not_predicted: Mapping[str, int]
    scored: tuple[ScoredRow, ...]


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
    """A row beside a time predicted elsewhere, with an interval of a half-width given as a logarithm."""
    spread = 2.718281828459045**width
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
    from inference_bench.errors import InferenceBenchError

    asked: list[tuple[Case, Shape]] = []
    reasons: Counter[str] = Counter()
    for item in cases:
        try:
            if item.question is not None:
                asked.append((item, shape(item.question)))
                continue
            reasons[item.reason or "not known"] += 1
        except InferenceBenchError as error:
            reasons[str(error)] += 1
    return asked, dict(reasons.most_common())


def report(
    cases: Sequence[Case],
    scored: Sequence[ScoredRow],
    not_predicted: Mapping[str, int],
    calibration: Calibration = Calibration.NONE,
    cross_validation: str | None = None,
    spent: int = 0,
) -> ScoreReport:
    """Scores by group.

    Where:  spent rows were used to calibrate: they count as predicted, and no error is taken from them
    """

    def by(key: Callable[[Case], str | None]) -> dict[str, Score]:
        groups = Counter(found for item in cases if (found := key(item)) is not None)
        return {
            name: _score(count, [row for row in scored if key(row.case) == name], None)
            for name, count in sorted(groups.items(), key=lambda pair: (-pair[1], pair[0]))
        }

    predicted = len(scored) + spent
    return ScoreReport(
        calibration=calibration,
        cross_validation=cross_validation,
        overall=_score(len(cases), scored, predicted),
        by_phase={phase.value: found for phase in Phase if (found := by(_phase).get(phase.value))},
        by_hardware=by(_pool),
        by_machine=by(lambda item: item.row.hardware),
        by_engine=by(_engine),
        by_source=by(lambda item: item.row.source),
        worst=_worst(scored),
        not_predicted=not_predicted,
        scored=tuple(scored),
    )


def _phase(item: Case) -> str:
    return item.question.phase.value if item.question else item.row.phase


def _pool(item: Case) -> str | None:
    from inference_bench.errors import UnknownNameError
    from inference_bench.facts.hardware import hardware

    if item.question:
        return item.question.setting.pool
    try:
        return machine_pool(hardware(item.row.hardware))
    except UnknownNameError:
        return "unknown"


def _engine(item: Case) -> str:
    from inference_bench.predict.efficiency.setting import engine_family

    return item.question.setting.engine if item.question else engine_family(item.row.engine)


def _score(rows: int, scored: Sequence[ScoredRow], predicted: int | None) -> Score:
    sure = [row for row in scored if not row.case.row.is_suspect]

    def errors(of: Callable[[ScoredRow], float], q: float) -> float | None:
        return quantile(map(of, sure), q) if sure else None

    return Score(
        rows=rows,
        predicted=len(scored) if predicted is None else predicted,
        scored=len(sure),
        median_ape=errors(lambda row: row.error, 0.5),
        p90_ape=errors(lambda row: row.error, 0.9),
        interval_coverage=sum(row.is_inside for row in sure) / len(sure) if sure else None,
        bound_median_ape=errors(lambda row: row.error_of(row.bound_s), 0.5),
        bound_p90_ape=errors(lambda row: row.error_of(row.bound_s), 0.9),
        fixed_factor_median_ape=errors(lambda row: row.error_of(row.fixed_s), 0.5),
        fixed_factor_p90_ape=errors(lambda row: row.error_of(row.fixed_s), 0.9),
    )


def _worst(scored: Sequence[ScoredRow]) -> tuple[WorstRow, ...]:
    def ratio(row: ScoredRow) -> float:
        return max(row.predicted_s / row.measured_s, row.measured_s / row.predicted_s)

    furthest = sorted((row for row in scored if not row.case.row.is_suspect), key=ratio, reverse=True)
    return tuple(WorstRow(row, likely_reason(row)) for row in furthest[:NUM_WORST])


def likely_reason(row: ScoredRow) -> str:
    """What most likely explains a large error: what was seen to explain such rows in the visible tables."""
    question = row.form.question
    setting = question.setting
    rules: tuple[tuple[bool, str], ...] = (
        (
            row.measured_s < 0.9 * row.bound_s,
            "faster than the bound: lengths, formats or devices are not as the row says",
        ),
        (row.form.waves > 1, "the cache does not hold this concurrency: requests wait, and how long is a guess"),
        (_waits(row), "time to first token far above the prompt's own: the server admitted fewer than were offered"),
        (setting.devices > 8, "more devices than one node holds: the link between nodes is not in the row"),
        (row.familiarity is Familiarity.NEW, f"{setting.engine} was never measured on machines like this one"),
        (setting.threads_fraction < 0.3, "few threads: one core's share of bandwidth is not in the fit"),
        (setting.split.value != "tensor", "devices run in turn: what they hand on is not counted"),
        (_has_experts(question), "experts: how unevenly tokens choose them is not in the row"),
    )
    return next((reason for holds, reason in rules if holds), "version, host or clock of this run")


def _waits(row: ScoredRow) -> bool:
    return row.form.question.phase is Phase.SERVING_TTFT and row.measured_s > 4 * row.predicted_s


def _has_experts(question: Question) -> bool:
    return question.setting.served.weights.experts > 0
