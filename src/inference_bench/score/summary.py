"""Scores of groups of rows: errors, coverage of rows and of intervals, and the rows that went worst.

In:   Cases that were read, those that could be asked, ScoredRows
Out:  ScoreReport with a Score for every phase, source, machine and engine
Leaves out: predictions (scoring)
Read next by: flow, report.

Error:  |predicted - measured| / measured time. Rows the table itself calls suspect are predicted and left out of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.errors import UnknownNameError
from inference_bench.facts.hardware import hardware
from inference_bench.facts.source import Source
from inference_bench.predict.efficiency.parameters import Calibration, Fitted
from inference_bench.predict.efficiency.question import Phase, Shape
from inference_bench.predict.efficiency.setting import engine_family, machine_pool
from inference_bench.score.query import Case, phase_of
from inference_bench.score.reasons import likely_reason
from inference_bench.score.scoring import ScoredRow
from inference_bench.stats import median, quantile

NUM_WORST: Final = 12
_NUM_EXAMPLES: Final = 3
Key = Callable[[Case], str]


@dataclass(frozen=True, slots=True)
class Score:
    """How right one group's predictions are.

    Where:  rows are all of the group; predicted those that could be asked; spent those of them that calibrated the
            others; scored those the errors are taken over: neither spent nor suspect. None where there are none.
            median_of_machine_medians gives each machine one vote, however many rows it has
    Unit:   fractions
    """

    rows: int
    predicted: int
    spent: int
    scored: int
    median_ape: float | None
    p90_ape: float | None
    median_of_machine_medians: float | None
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
class NotPredicted:
    """How many rows could not be asked for one reason, and some of what they say instead."""

    reason: str
    rows: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FittedOn:
    """What the efficiencies that ship were fitted on."""

    source: Source
    rows: int


@dataclass(frozen=True, slots=True)
class ScoreReport:
    """Scores of everything that was read.

    Where:  cross_validation is what was left out of each refit, None where the efficiencies that ship were used; the
            first of the assumptions says whether the rows were seen by the fit
    """

    files: tuple[str, ...]
    calibration: Calibration
    cross_validation: str | None
    fitted: FittedOn
    overall: Score
    by_phase: Mapping[str, Score]
    by_hardware: Mapping[str, Score]
    by_machine: Mapping[str, Score]
    by_engine: Mapping[str, Score]
    by_source: Mapping[str, Score]
    worst: tuple[WorstRow, ...]
    not_predicted: tuple[NotPredicted, ...]
    assumptions: tuple[str, ...]
    scored: tuple[ScoredRow, ...]


def report(
    cases: Sequence[Case],
    asked: Sequence[tuple[Case, Shape]],
    left: Sequence[Case],
    scored: Sequence[ScoredRow],
    known: Fitted,
    calibration: Calibration = Calibration.NONE,
    cross_validation: str | None = None,
    assumptions: Sequence[str] = (),
) -> ScoreReport:
    """Scores by group; what was asked and not scored was spent on calibration."""

    def by(key: Key) -> dict[str, Score]:
        return _by(key, cases, [item for item, _ in asked], scored)

    phases = by(_phase)
    (overall,) = by(lambda _: "overall").values() if cases else (_score(0, 0, ()),)
    return ScoreReport(
        files=tuple(dict.fromkeys(item.row.file for item in cases)),
        calibration=calibration,
        cross_validation=cross_validation,
        fitted=FittedOn(known.source, known.num_rows),
        overall=overall,
        by_phase={phase.value: phases.get(phase.value) or _score(0, 0, ()) for phase in Phase},
        by_hardware=by(_pool),
        by_machine=by(_machine),
        by_engine=by(_engine),
        by_source=by(lambda item: item.row.source),
        worst=_worst(scored),
        not_predicted=_not_predicted(left),
        assumptions=tuple(assumptions),
        scored=tuple(scored),
    )


def _by(key: Key, cases: Sequence[Case], asked: Sequence[Case], scored: Sequence[ScoredRow]) -> dict[str, Score]:
    """A score for each group, the largest first."""
    rows, predicted = Counter(map(key, cases)), Counter(map(key, asked))
    of_group: dict[str, list[ScoredRow]] = {}
    for row in scored:
        of_group.setdefault(key(row.case), []).append(row)
    names = sorted(rows, key=lambda name: (-rows[name], name))
    return {name: _score(rows[name], predicted[name], of_group.get(name, [])) for name in names}


def _score(rows: int, predicted: int, scored: Sequence[ScoredRow]) -> Score:
    sure = [row for row in scored if not row.case.row.is_suspect]

    def errors(of: Callable[[ScoredRow], float], q: float) -> float | None:
        return quantile(map(of, sure), q) if sure else None

    return Score(
        rows=rows,
        predicted=predicted,
        spent=predicted - len(scored),
        scored=len(sure),
        median_ape=errors(lambda row: row.error, 0.5),
        p90_ape=errors(lambda row: row.error, 0.9),
        median_of_machine_medians=_median_of_machine_medians(sure),
        interval_coverage=sum(row.is_inside for row in sure) / len(sure) if sure else None,
        bound_median_ape=errors(lambda row: row.error_of(row.bound_s), 0.5),
        bound_p90_ape=errors(lambda row: row.error_of(row.bound_s), 0.9),
        fixed_factor_median_ape=errors(lambda row: row.error_of(row.fixed_s), 0.5),
        fixed_factor_p90_ape=errors(lambda row: row.error_of(row.fixed_s), 0.9),
    )


def _median_of_machine_medians(scored: Sequence[ScoredRow]) -> float | None:
    by_machine: dict[str, list[float]] = {}
    for row in scored:
        by_machine.setdefault(row.form.question.setting.machine.name, []).append(row.error)
    return median(map(median, by_machine.values())) if by_machine else None


def _phase(item: Case) -> str:
    return item.question.phase.value if item.question else phase_of(item.row).value


def _machine(item: Case) -> str:
    return item.row.hardware or "not given"


def _engine(item: Case) -> str:
    return engine_family(item.row.engine)


def _pool(item: Case) -> str:
    """The class of a machine: those that efficiencies are shared among."""
    if item.question:
        return item.question.setting.pool
    try:
        return machine_pool(hardware(item.row.hardware))
    except UnknownNameError:
        return "unknown"


_LEAST_OFF: Final = 1.05  # nearer than that a row is right within what repeated measurements differ


def _worst(scored: Sequence[ScoredRow]) -> tuple[WorstRow, ...]:
    def ratio(row: ScoredRow) -> float:
        return max(row.predicted_s / row.measured_s, row.measured_s / row.predicted_s)

    off = [row for row in scored if not row.case.row.is_suspect and ratio(row) > _LEAST_OFF]
    furthest = sorted(off, key=ratio, reverse=True)
    return tuple(WorstRow(row, likely_reason(row)) for row in furthest[:NUM_WORST])


def _not_predicted(left: Sequence[Case]) -> tuple[NotPredicted, ...]:
    details: dict[str, Counter[str]] = {}
    for item in left:
        details.setdefault(item.reason or "not known", Counter())[item.detail] += 1
    rows = Counter({reason: found.total() for reason, found in details.items()})
    return tuple(
        NotPredicted(reason, count, tuple(detail for detail, _ in details[reason].most_common(_NUM_EXAMPLES) if detail))
        for reason, count in rows.most_common()
    )
