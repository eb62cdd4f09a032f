"""The same question put to several schedulers, at several rates, with several seeds.

In:   Served, Draws: workloads with their rates and seeds
Out:  StudyReport: a row for each run, or why there is none, and how far seeds are apart
Leaves out: running them (sweep), searching for a rate (capacity)
Read next by: report, cli.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Final

from inference_bench.errors import QuantityError, RequestError, WorldError
from inference_bench.metrics import Objective
from inference_bench.simulate.capacity import usd_per_million_tokens
from inference_bench.simulate.fleet_plan import FleetPlan, fleet_usd_per_million_tokens
from inference_bench.simulate.outcome import Progress
from inference_bench.simulate.run import Engine
from inference_bench.simulate.served import Served
from inference_bench.simulate.summary import SimulatedRow
from inference_bench.simulate.sweep import (
    NOBODY_ANSWERED,
    Backend,
    Case,
    CaseResult,
    SweepInterrupted,
    WorkloadRecipe,
    sweep,
)
from inference_bench.workload import Workload
from inference_bench.workload.checks import require_rate

MOST_RATES: Final = 1_000
SPREAD_FIELDS: Final = (
    "ttft_p50_s",
    "ttft_p99_s",
    "itl_p99_s",
    "tpot_p50_s",
    "output_tokens_per_s",
    "goodput_requests_per_s",
)


def parse_rates(text: str) -> tuple[float, ...]:
    """Rates as a person writes them: one, several with commas, or FIRST:LAST:STEP with both ends.

    Unit:    requests/s
    Raises:  QuantityError, RequestError

    >>> parse_rates("0.1,0.25"), parse_rates("0.1:0.4:0.1")
    ((0.1, 0.25), (0.1, 0.2, 0.3, 0.4))
    """
    rates = tuple(dict.fromkeys(rate for part in text.split(",") for rate in _range(part)))
    if len(rates) > MOST_RATES:
        raise RequestError(f"the rates {text[:60]!r} are {len(rates)}; up to {MOST_RATES} are simulated at once")
    return rates


def _range(part: str) -> tuple[float, ...]:
    numbers = [_rate(number, part) for number in part.split(":")]
    if len(numbers) == 1:
        return (float(numbers[0]),)
    if len(numbers) != 3:
        raise QuantityError(f"the rates {part[:60]!r} are not understood; write for example 0.25, or 0.1:0.4:0.05")
    first, last, step = numbers
    if last < first:
        raise RequestError(f"the rates {part[:60]!r} are not in order: the first must not be above the last")
    count = int((last - first) / step) + 1
    if count > MOST_RATES:
        raise RequestError(f"the rates {part[:60]!r} are {count}; up to {MOST_RATES} are simulated at once")
    return tuple(float(first + index * step) for index in range(count))


def _rate(text: str, whole: str) -> Decimal:
    try:
        rate = Decimal(text.strip())
    except InvalidOperation:
        raise QuantityError(f"the rate {whole[:60]!r} is no number; write for example 0.25, or 0.1:0.4:0.05") from None
    require_rate(math.nan if rate.is_nan() else float(rate))
    return rate


@dataclass(frozen=True, slots=True)
class Draw:
    """One workload of a study.

    Where:  rate is the one that was asked for, None where none was (a closed loop, a trace as it was)
    """

    rate: float | None
    seed: int
    workload: Workload | WorkloadRecipe


@dataclass(frozen=True, slots=True)
class Study:
    """What is to be run: every scheduler with every draw."""

    served: Served
    draws: tuple[Draw, ...]
    objective: Objective
    engine: Engine = Engine.AUTO
    fleet: FleetPlan | None = None

    @property
    def num_runs(self) -> int:
        """How many runs that are."""
        return len(self.served.contenders) * len(self.draws)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What all rows rest on."""
        return (*self.served.assumptions, *(self.fleet.notes if self.fleet is not None else ()))

    def keeping_token_times(self) -> Study:
        """The same by the engine that keeps every token's time.

        Raises:  RequestError where another engine was asked for
        """
        if self.engine not in (Engine.AUTO, Engine.REFERENCE):
            raise RequestError(f"the {self.engine} engine keeps no token times; the reference engine does")
        return replace(self, engine=Engine.REFERENCE)

    def cases(self, keeps_outcome: bool) -> list[tuple[Draw, Case]]:
        """The runs, scheduler by scheduler."""
        return [
            (draw, Case(
                contender.name, draw.workload, contender.setup, self.served.step_time, self.objective, self.engine,
                keeps_outcome, self.fleet,
            ))
            for contender in self.served.contenders for draw in self.draws
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class StudyRow:
    """One run of a study, or why there is none.

    Unit:  US dollars; None without a price
    """

    draw: Draw
    result: CaseResult
    usd_per_million_output_tokens: float | None

    @property
    def name(self) -> str:
        """The scheduler."""
        return self.result.case.label

    @property
    def row(self) -> SimulatedRow | None:
        """Its figures."""
        return self.result.row


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the draws of one scheduler at one rate are apart.

    Where:  values are lowest and highest by name of the figure; no percentile is averaged
    """

    name: str
    rate: float | None
    num_seeds: int
    values: dict[str, tuple[float, float] | None]


@dataclass(frozen=True, slots=True)
class StudyReport:
    """What a study gave; not all rows are there where it was interrupted."""

    study: Study
    rows: tuple[StudyRow, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every run has ended."""
        return len(self.rows) == self.study.num_runs

    @property
    def num_ran(self) -> int:
        """Runs that gave a row."""
        return sum(1 for row in self.rows if row.row is not None)

    @property
    def nobody_was_answered(self) -> bool:
        """Whether nothing that ran gave a row, and something ran."""
        return not self.num_ran and any(row.result.exit_code == NOBODY_ANSWERED for row in self.rows)

    def require_any(self) -> None:
        """At least one run gave a row, or ended without anybody being answered.

        Raises:  RequestError, or WorldError where runs were lost, with the first reason
        """
        if self.num_ran or not self.rows or self.nobody_was_answered:
            return
        first = self.rows[0].result
        more = f" (and so for {len(self.rows) - 1} more runs)" if len(self.rows) > 1 else ""
        kind = WorldError if first.exit_code == WorldError.exit_code else RequestError
        raise kind(f"{first.case.label} cannot run: {first.error}{more}")

    @property
    def keeps_its_books(self) -> bool:
        """Whether the checks of every run hold."""
        return all(row.result.checks is None or row.result.checks.are_kept for row in self.rows)

    @property
    def spreads(self) -> tuple[Spread, ...]:
        """By scheduler and rate, where there are several seeds."""
        return tuple(_spreads(self.rows))


def _spreads(rows: Sequence[StudyRow]) -> Iterator[Spread]:
    groups: dict[tuple[str, float | None], list[SimulatedRow]] = {}
    for each in rows:
        if each.row is not None:
            groups.setdefault((each.name, each.draw.rate), []).append(each.row)
    for (name, rate), found in groups.items():
        if len(found) > 1:
            yield Spread(name, rate, len(found), {field: _ends(field, found) for field in SPREAD_FIELDS})


def _ends(field: str, rows: Sequence[SimulatedRow]) -> tuple[float, float] | None:
    values = [getattr(row, field) for row in rows]
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None


def run_study(
    study: Study,
    workers: int | None = None,
    on_result: Callable[[CaseResult], None] | None = None,
    *,
    keeps_outcome: bool = False,
    backend: Backend = Backend.LOCAL,
    progress: Progress | None = None,
) -> StudyReport:
    """Every run; those that had ended where it is interrupted.

    Raises:  RequestError for workers below 1; WorldError where no process can start; MissingExtraError for Ray without ray
    """
    draws, cases = zip(*study.cases(keeps_outcome), strict=True)
    by_case = {id(case): draw for draw, case in zip(draws, cases, strict=True)}
    try:
        results: Sequence[CaseResult] = sweep(cases, workers, backend, on_result, progress)
    except SweepInterrupted as interrupted:
        results = interrupted.results
    rows = (StudyRow(by_case[id(result.case)], result, _usd(study, result)) for result in results)
    return StudyReport(study, tuple(rows))


def _usd(study: Study, result: CaseResult) -> float | None:
    row, usd = result.row, study.served.usd_per_hour
    if row is None:
        return None
    if result.fleet is None:
        return usd_per_million_tokens(usd, row.output_tokens_per_s)
    return fleet_usd_per_million_tokens(usd, result.fleet.replica_seconds, row.makespan_s, row.output_tokens_per_s)
