"""How many requests a second a server takes within the latency objectives, and how far to trust that.

In:   a way to make the workload of a seed, ServerSetup, StepTime, SearchSettings; a FleetPlan for several servers
Out:  Capacity: the rate, its row, rates nearby, an interval over seeds, a longer run
Leaves out: servers whose number changes: what they cost depends on the run
Read next by: report, cli.

The search bisects over rates with the same random numbers: the arrival times of one draw, scaled. Percentiles are not monotone in
the rate, so rates nearby and below are run as well. A run that ends before its queue has grown hides overload, so the rate that was
found is run again with many more requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.metrics import Objective
from inference_bench.simulate.fleet_plan import FleetPlan, run_fleet
from inference_bench.simulate.outcome import Outcome
from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.settings import ServerSetup
from inference_bench.simulate.step_time import StepTime
from inference_bench.simulate.summary import SimulatedRow, summarise_run
from inference_bench.stats import Interval, mean_interval
from inference_bench.units import MEGA, SECONDS_PER_HOUR, format_seconds
from inference_bench.workload import OpenLoop, Workload

NEARBY: Final = (0.9, 0.95, 0.98, 1.02, 1.05, 1.1)
BELOW: Final = (0.1, 0.25, 0.4, 0.55, 0.7)
LONGER: Final = 10
_LONG_PAUSE: Final = 5  # times the objective for p99
_MOST_DOUBLINGS: Final = 40
_HELD_AT_ANY_RATE: Final = float(MEGA)
WorkloadOf = Callable[[int, int], Workload]
Say = Callable[[str], None]


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
        given = [
            value for value in (self.ttft_p99_s, self.itl_p99_s, self.tpot_p99_s, self.e2e_p99_s) if value is not None
        ]
        if not given:
            raise RequestError("no objective is given; promise at least one percentile, such as a p99 TTFT of 3 s")
        if any(not 0 < value < math.inf for value in given):
            raise RequestError(f"an objective of {min(given)} s cannot be met; give times above 0")

    def are_met_by(self, row: SimulatedRow) -> bool:
        """Whether a run keeps all of them, and answers every request."""
        return row.num_failed == 0 and not self.missed_by(row)

    def missed_by(self, row: SimulatedRow) -> tuple[str, ...]:
        """The percentiles that a run exceeds, by name."""
        pairs = (
            ("p99 TTFT", row.ttft_p99_s, self.ttft_p99_s),
            ("p99 ITL", row.itl_p99_s, self.itl_p99_s),
            ("p99 TPOT", row.tpot_p99_s, self.tpot_p99_s),
            ("p99 E2E", row.e2e_p99_s, self.e2e_p99_s),
        )
        return tuple(name for name, value, limit in pairs if limit is not None and value is not None and value > limit)

    @property
    def text(self) -> str:
        """The promise in words."""
        pairs = (
            ("p99 TTFT", self.ttft_p99_s),
            ("p99 ITL", self.itl_p99_s),
            ("p99 TPOT", self.tpot_p99_s),
            ("p99 E2E", self.e2e_p99_s),
        )
        return ", ".join(f"{name} <= {limit:g} s" for name, limit in pairs if limit is not None)


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
            if rate is not None and not 0 < rate < math.inf:
                raise RequestError(f"the {what} rate to look at is {rate}; it must be above 0 requests/s")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise RequestError(f"the rates to look between, {self.low} and {self.high} requests/s, are not in order")
        if not (1 <= self.steps <= 60 and 0 <= self.seeds <= 1000 and 1 <= self.longer <= 1000):
            raise RequestError(
                "a search takes 1 to 60 halvings, 0 to 1000 further seeds and 1 to 1000 times the requests"
            )


@dataclass(frozen=True, slots=True)
class Tried:
    """One rate that was run."""

    rate: float
    row: SimulatedRow
    is_met: bool


@dataclass(frozen=True, slots=True)
class Capacity:
    """The highest rate within the objectives.

    Where:  nominal_rate None: not even the lowest rate keeps them; is_bracketed is False where the highest rate asked about was
            still kept; nearby and below are the checks around it; missed_below are lower rates that do not keep the
            objectives; interval is of the mean capacity over seeds, of which seed_rates are the answers; longer is the found rate
            with many more requests, and longer_rate the capacity with those where that misses
    Unit:   requests/s; US dollars
    """

    limits: Limits
    nominal_rate: float | None
    row: SimulatedRow | None
    is_bracketed: bool
    nearby: tuple[Tried, ...]
    below: tuple[Tried, ...]
    seed_rates: tuple[float, ...]
    interval: Interval | None
    longer: Tried | None
    longer_rate: float | None
    usd_per_million_output_tokens: float | None
    num_runs: int
    warnings: tuple[str, ...]
    outcome: Outcome | None = None

    @property
    def missed_below(self) -> tuple[Tried, ...]:
        """Lower rates that miss: the percentiles are not monotone there."""
        rate = self.nominal_rate or 0.0
        return tuple(tried for tried in (*self.below, *self.nearby) if tried.rate < rate and not tried.is_met)


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
        self._objective = Objective(
            limits.ttft_p99_s or Objective().max_ttft_s, limits.itl_p99_s or Objective().max_gap_s
        )

    def run(self, workload: Workload) -> Outcome:
        """One run."""
        self.num_runs += 1
        if self._fleet is not None:
            return run_fleet(workload, self._setup, self._step_time, self._fleet, self._objective).outcome
        return simulate(workload, self._setup, self._step_time, self._objective, self._engine)

    def try_rate(self, workload: Workload, rate: float) -> Tried:
        """One rate, with the random numbers of this workload."""
        self._say(f"run {self.num_runs + 1}: {rate:.4g} requests/s")
        row = summarise_run(self.run(workload.at_rate(rate)), self._objective)
        return Tried(rate, row, self._limits.are_met_by(row))

    def bracket(self, workload: Workload, settings: SearchSettings) -> tuple[float | None, float, bool]:
        """A rate that is kept, one that is not, and whether there is such a one: None where not even the lowest is kept."""
        low, high = settings.low, settings.high
        if low is not None and high is not None:
            return low, high, True
        rate = low or (high / 2 if high is not None else _first_rate(workload))
        for _ in range(_MOST_DOUBLINGS):
            if self.try_rate(workload, rate).is_met:
                break
            if low is not None:
                return None, rate, True
            rate /= 2
        else:
            return None, rate, True
        kept = rate
        for _ in range(_MOST_DOUBLINGS):
            rate = kept * 2 if high is None else min(kept * 2, high)
            if not self.try_rate(workload, rate).is_met:
                return kept, rate, True
            kept = rate
            if rate == high or rate > _HELD_AT_ANY_RATE:
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


def find_capacity(
    workload_of: WorkloadOf,
    setup: ServerSetup,
    step_time: StepTime,
    limits: Limits,
    settings: SearchSettings | None = None,
    *,
    count: int,
    seed: int = 0,
    usd_per_hour: float | None = None,
    engine: Engine = Engine.AUTO,
    say: Say | None = None,
    fleet: FleetPlan | None = None,
) -> Capacity:
    """The highest rate that a server, or so many of it, takes within the objectives.

    Where:   workload_of(count, seed) makes so many requests from a seed, at any rate: it is scaled; it may ignore the count
             where there are no more, as of a trace; usd_per_hour is of all servers
    Raises:  RequestError for a closed loop, a request that can never run, or servers whose number changes
    """
    if fleet is not None and fleet.autoscaling is not None:
        raise RequestError("the capacity of servers whose number changes is not looked for; give their number instead")
    settings = settings or SearchSettings()
    searcher = Searcher(setup, step_time, limits, engine, say, fleet)
    workload = workload_of(count, seed)
    rate, is_bracketed = searcher.highest(workload, settings)
    if rate is None:
        return _none(limits, searcher)
    outcome = searcher.run(workload.at_rate(rate))
    row = summarise_run(outcome, searcher._objective)
    found = Capacity(
        limits=limits,
        nominal_rate=rate,
        row=row,
        is_bracketed=is_bracketed,
        nearby=tuple(searcher.try_rate(workload, rate * factor) for factor in NEARBY),
        below=tuple(searcher.try_rate(workload, rate * factor) for factor in BELOW),
        seed_rates=(rate,),
        interval=None,
        longer=None,
        longer_rate=None,
        usd_per_million_output_tokens=usd_per_million_tokens(usd_per_hour, row.output_tokens_per_s),
        num_runs=0,
        warnings=(),
        outcome=outcome,
    )
    found = _over_seeds(found, searcher, settings, lambda draw: workload_of(count, draw), seed)
    found = _longer(found, searcher, settings, workload_of, count, seed)
    return replace(found, num_runs=searcher.num_runs, warnings=tuple(_warnings(found, count)))


def usd_per_million_tokens(usd_per_hour: float | None, output_tokens_per_s: float) -> float | None:
    """What a million output tokens cost at this rate of them.

    Formula:  price an hour / (tokens/s · 3600) · 10^6
    Unit:     US dollars; None without a price
    """
    if usd_per_hour is None:
        return None
    return usd_per_hour / (output_tokens_per_s * SECONDS_PER_HOUR) * MEGA


def _none(limits: Limits, searcher: Searcher) -> Capacity:
    return Capacity(
        limits, None, None, True, (), (), (), None, None, None, None, searcher.num_runs,
        ("no rate keeps the objectives, not even the lowest that was tried",),
    )  # fmt: skip


def _over_seeds(
    found: Capacity, searcher: Searcher, settings: SearchSettings, draw: Callable[[int], Workload], seed: int
) -> Capacity:
    """The same search with other draws: how much the answer depends on the one that was made."""
    rates = list(found.seed_rates)
    for other in range(seed + 1, seed + 1 + settings.seeds):
        rate, _ = searcher.highest(draw(other), settings)
        rates.append(rate or 0.0)
    return replace(found, seed_rates=tuple(rates), interval=mean_interval(rates))


def _longer(
    found: Capacity, searcher: Searcher, settings: SearchSettings, workload_of: WorkloadOf, count: int, seed: int
) -> Capacity:
    """The found rate with many more requests, and the capacity with those where it misses."""
    if settings.longer == 1 or found.nominal_rate is None:
        return found
    workload = workload_of(count * settings.longer, seed)
    if len(workload) <= count:
        return found
    tried = searcher.try_rate(workload, found.nominal_rate)
    rate = found.nominal_rate
    if not tried.is_met:
        narrowed = replace(settings, low=found.nominal_rate / 16, high=found.nominal_rate)
        rate = searcher.highest(workload, narrowed)[0] or 0.0
    return replace(found, longer=tried, longer_rate=rate)


def _warnings(found: Capacity, count: int) -> list[str]:
    said = []
    if not found.is_bracketed:
        said.append(f"the highest rate that was tried, {found.nominal_rate:.4g} requests/s, still keeps the objectives")
    if found.longer is not None and not found.longer.is_met and found.longer_rate is not None and found.nominal_rate:
        over = f" ({found.nominal_rate / found.longer_rate - 1:+.0%})" if found.longer_rate else ""
        said.append(
            f"{count} requests are too few to show overload: with {found.longer.row.num_requests} the same rate misses the "
            f"objectives, and the capacity is {found.longer_rate:.4g} requests/s{over}"
        )
    missed = found.missed_below
    if missed:
        rates = ", ".join(f"{tried.rate:.4g}" for tried in missed[:4])
        said.append(f"lower rates miss the objectives too ({rates} requests/s): percentiles are not monotone here")
    higher = [tried.rate for tried in found.nearby if tried.is_met and tried.rate > (found.nominal_rate or 0.0)]
    if higher and found.is_bracketed:
        said.append(f"a higher rate keeps them again ({max(higher):.4g} requests/s): the limit is not sharp")
    row, limit_s = found.row, found.limits.itl_p99_s
    if row is not None and limit_s is not None and (row.itl_max_s or 0.0) > _LONG_PAUSE * limit_s:
        said.append(
            f"the longest pause is {format_seconds(row.itl_max_s)}: with one pause a token, a p99 of pauses hides those that users "
            f"see once an answer; {row.goodput_fraction:.0%} of the requests keep every pause within {limit_s:g} s"
        )
    return said
