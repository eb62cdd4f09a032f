"""Runs of one server at many rates, and the highest of them within the latency objectives.

In:   ServerSetup, StepTime, Limits, SearchSettings; a workload whose times are scaled
Out:  Searcher: a row at a rate; the highest rate that is kept
Leaves out: how far the answer is to be trusted (capacity)
Read next by: capacity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from inference_bench.errors import RequestError
from inference_bench.metrics import Objective
from inference_bench.simulate.failures import MOST_FAILURES, span_of
from inference_bench.simulate.fleet_plan import FleetPlan, run_fleet
from inference_bench.simulate.outcome import Outcome
from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.settings import ServerSetup
from inference_bench.simulate.step_time import StepTime
from inference_bench.simulate.summary import SimulatedRow, have_met, summarise_run
from inference_bench.units import MEGA, format_seconds
from inference_bench.workload import ClosedLoop, OpenLoop, Workload
from inference_bench.workload.checks import LEAST_RATE, MOST_SPAN_S, require_rate

LONGER: Final = 10
_MOST_DOUBLINGS: Final = 40
_HELD_AT_ANY_RATE: Final = float(MEGA)
Say = Callable[[str], None]


class Promise(NamedTuple):
    """A percentile that must not be exceeded.

    Where:  field is its name in a row
    Unit:   seconds
    """

    name: str
    field: str
    limit_s: float

    def value(self, row: SimulatedRow) -> float | None:
        """What a run has of it."""
        found: float | None = getattr(row, self.field)
        return found


@dataclass(frozen=True, slots=True)
class Limits:
    """The promise: percentiles that must not be exceeded; None promises nothing.

    Unit:    seconds
    Raises:  RequestError for a limit that is not above 0, or where nothing is promised
    """

    ttft_p99_s: float | None = None
    itl_p99_s: float | None = None
    tpot_p99_s: float | None = None
    e2e_p99_s: float | None = None

    def __post_init__(self) -> None:
        given = [promise.limit_s for promise in self.promised]
        if not given:
            raise RequestError("no objective is given; promise at least one percentile, such as a p99 TTFT of 3 s")
        if any(not 0 < value < math.inf for value in given):
            raise RequestError(f"an objective of {min(given)} s cannot be met; give times above 0")

    def are_met_by(self, row: SimulatedRow) -> bool:
        """Whether a run keeps all of them, and answers every request."""
        return row.num_failed == 0 and not self.missed_by(row)

    def missed_by(self, row: SimulatedRow) -> tuple[str, ...]:
        """The percentiles that a run exceeds, by name."""
        return tuple(
            promise.name
            for promise in self.promised
            if (value := promise.value(row)) is not None and value > promise.limit_s
        )

    @property
    def promised(self) -> tuple[Promise, ...]:
        """The percentiles that are limited."""
        every = ((name, field, getattr(self, field)) for name, field in _PROMISES)
        return tuple(Promise(name, field, limit_s) for name, field, limit_s in every if limit_s is not None)

    @property
    def text(self) -> str:
        """The promise in words."""
        return ", ".join(f"{promise.name} <= {format_seconds(promise.limit_s)}" for promise in self.promised)

    @property
    def objective(self) -> Objective:
        """When a request is good: it waits for its first token, and between any two, no longer than is promised."""
        usual = Objective()
        return Objective(self.ttft_p99_s or usual.max_ttft_s, self.itl_p99_s or usual.max_gap_s)


_PROMISES: Final = (
    ("p99 TTFT", "ttft_p99_s"),
    ("p99 ITL", "itl_p99_s"),
    ("p99 TPOT", "tpot_p99_s"),
    ("p99 E2E", "e2e_p99_s"),
)


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How the highest rate is looked for.

    Where:  low and high bracket it, in requests/s (None: found by doubling); steps halvings follow; seeds further draws give
            the interval; longer is how many times as many requests the found rate is run with again (1: not at all)
    """

    low: float | None = None
    high: float | None = None
    steps: int = 10
    seeds: int = 4
    longer: int = LONGER

    def __post_init__(self) -> None:
        for rate, what in ((self.low, "lowest"), (self.high, "highest")):
            if rate is not None:
                require_rate(rate, f"{what} rate to look at")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise RequestError(f"the rates to look between, {self.low} and {self.high} requests/s, are not in order")
        if not (1 <= self.steps <= 60 and 0 <= self.seeds <= 1000 and 1 <= self.longer <= 1000):
            raise RequestError(
                "a search takes 1 to 60 halvings, 0 to 1000 further seeds and 1 to 1000 times the requests"
            )


@dataclass(frozen=True, slots=True)
class Tried:
    """One rate that was run.

    Where:  meets_others says whether any request was there together with one that had come before it
    """

    rate: float
    row: SimulatedRow
    is_met: bool
    meets_others: bool = True


class Searcher:
    """Runs of one server at many rates."""

    def __init__(
        self,
        setup: ServerSetup,
        step_time: StepTime,
        limits: Limits,
        engine: Engine = Engine.AUTO,
        say: Say | None = None,
        fleet: FleetPlan | None = None,
    ) -> None:
        self.num_runs, self._fleet = 0, fleet
        self._setup, self._step_time, self._limits, self._engine = setup, step_time, limits, engine
        self._say = say or (lambda _text: None)
        self.objective = limits.objective

    def run(self, workload: Workload, what: str = "") -> Outcome:
        """One run; what it is of is said while it goes on."""
        self.num_runs += 1
        said, shown = f"run {self.num_runs}{what and f': {what}'}", ""

        def going(done: int, of: int) -> None:
            nonlocal shown
            text = f"{said}, {done / of:.0%} of its requests"
            if text != shown:
                self._say(text)
                shown = text

        self._say(said)
        if self._fleet is not None:
            return run_fleet(workload, self._setup, self._step_time, self._fleet, self.objective, going).outcome
        return simulate(workload, self._setup, self._step_time, self.objective, self._engine, going)

    def try_rate(self, workload: Workload, rate: float) -> Tried:
        """One rate, with the random numbers of this workload."""
        outcome = self.run(workload.at_rate(rate), f"{rate:.4g} requests/s")
        row = summarise_run(outcome, self.objective)
        return Tried(rate, row, self._limits.are_met_by(row), have_met(outcome))

    def is_hopeless(self, workload: Workload) -> bool:
        """Whether even requests that are alone miss the objectives; not known of batches, which wait for others to come."""
        if self._setup.scheduler.is_batched:
            return False
        alone = replace(workload, arrival=ClosedLoop(1, len(workload)))
        return not self._limits.are_met_by(summarise_run(self.run(alone, "requests one by one"), self.objective))

    def lowest(self, workload: Workload) -> float:
        """The lowest rate at which the whole workload can be run.

        Where:  below it the clock would lose steps, or a server would fail too often
        """
        span_s, fleet = MOST_SPAN_S, self._fleet
        if fleet is not None and fleet.failures is not None:
            each = fleet.failures.expected_failures(fleet.num_servers, 1.0)
            span_s = min(span_s, MOST_FAILURES / each) if each else span_s
        return max(LEAST_RATE, _first_rate(workload) * span_of(workload) / span_s)

    def bracket(self, workload: Workload, settings: SearchSettings) -> tuple[float | None, float, bool]:
        """A rate that is kept, one that is not, and whether there is such a one: None where not even the lowest is kept."""
        low, high = settings.low, settings.high
        if low is not None and high is not None:
            return low, high, True
        rate = low or (high / 2 if high is not None else _first_rate(workload))
        lowest = self.lowest(workload)
        for step in range(_MOST_DOUBLINGS):
            tried = self.try_rate(workload, rate)
            if tried.is_met:
                break
            if low is not None or not tried.meets_others or (step == 1 and self.is_hopeless(workload)):
                return None, rate, True
            rate /= 2
            if rate < lowest:
                return None, rate, True
        else:
            return None, rate, True
        kept = rate
        for _ in range(_MOST_DOUBLINGS):
            if kept > _HELD_AT_ANY_RATE:
                break
            rate = kept * 2 if high is None else min(kept * 2, high)
            if not self.try_rate(workload, rate).is_met:
                return kept, rate, True
            kept = rate
            if rate == high:
                break
        return kept, kept, False

    def highest(self, workload: Workload, settings: SearchSettings) -> tuple[float | None, bool]:
        """The highest rate within the objectives by bisection, and whether a higher one was seen to miss them.

        Where:  the lower end of a bracket that was given is taken as kept until it is the answer; then it is run
        """
        low, high, is_bracketed = self.bracket(workload, settings)
        if low is None or not is_bracketed:
            return low, is_bracketed
        first = low
        for _ in range(settings.steps):
            middle = (low + high) / 2
            if self.try_rate(workload, middle).is_met:
                low = middle
            else:
                high = middle
        if low == first and settings.low is not None and not self.try_rate(workload, low).is_met:
            return None, True
        if settings.high is not None and high == settings.high:
            return low, not self.try_rate(workload, high).is_met
        return low, True


def _first_rate(workload: Workload) -> float:
    arrival = workload.arrival
    if not isinstance(arrival, OpenLoop):
        raise RequestError("a closed loop has no rate to look for; give a schedule of arrivals")
    return arrival.nominal_rate or arrival.realised_rate or 1.0
