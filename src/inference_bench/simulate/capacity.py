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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.simulate.fleet_plan import FleetPlan
from inference_bench.simulate.outcome import Outcome
from inference_bench.simulate.rate_search import Limits as Limits
from inference_bench.simulate.rate_search import Say, Searcher
from inference_bench.simulate.rate_search import SearchSettings as SearchSettings
from inference_bench.simulate.rate_search import Tried as Tried
from inference_bench.simulate.run import Engine
from inference_bench.simulate.settings import ServerSetup
from inference_bench.simulate.step_time import StepTime
from inference_bench.simulate.summary import SimulatedRow, summarise_run
from inference_bench.stats import Interval, mean_interval
from inference_bench.units import MEGA, SECONDS_PER_HOUR, format_seconds
from inference_bench.workload import Workload

NEARBY: Final = (0.9, 0.95, 0.98, 1.02, 1.05, 1.1)
BELOW: Final = (0.1, 0.25, 0.4, 0.55, 0.7)
_FEW_GOOD: Final = 0.9  # of the requests
_FAR_FROM_NOMINAL: Final = 0.05
_FEWEST_DRAWS: Final = 3  # that say how far draws are apart
WorkloadOf = Callable[[int, int], Workload]


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
    row, lowest = summarise_run(outcome, searcher.objective), searcher.lowest(workload)
    found = Capacity(
        limits=limits,
        nominal_rate=rate,
        row=row,
        is_bracketed=is_bracketed,
        nearby=tuple(searcher.try_rate(workload, rate * factor) for factor in NEARBY if rate * factor >= lowest),
        below=tuple(searcher.try_rate(workload, rate * factor) for factor in BELOW if rate * factor >= lowest),
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
    return replace(found, seed_rates=tuple(rates), interval=_interval(rates))


def _interval(rates: Sequence[float]) -> Interval | None:
    """Of the mean over draws: none of fewer than three, and not below 0, which no rate is."""
    found = mean_interval(rates) if len(rates) >= _FEWEST_DRAWS else None
    return None if found is None else replace(found, low=max(0.0, found.low))


def _longer(
    found: Capacity, searcher: Searcher, settings: SearchSettings, workload_of: WorkloadOf, count: int, seed: int
) -> Capacity:
    """The found rate with many more requests, and the capacity with those where it misses."""
    if settings.longer == 1 or found.nominal_rate is None:
        return found
    workload = workload_of(count * settings.longer, seed)
    if len(workload) <= count or found.nominal_rate < searcher.lowest(workload):
        return found
    tried = searcher.try_rate(workload, found.nominal_rate)
    rate = found.nominal_rate
    if not tried.is_met:
        low = max(found.nominal_rate / 16, searcher.lowest(workload))
        narrowed = replace(settings, low=low, high=found.nominal_rate)
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
    if row is not None and row.realised_rate and found.nominal_rate:
        faster = row.realised_rate / found.nominal_rate - 1
        if abs(faster) > _FAR_FROM_NOMINAL:
            said.append(
                f"this draw of {count} requests came {abs(faster):.0%} {'faster' if faster > 0 else 'slower'} than asked for: it kept the "
                f"objectives at {row.realised_rate:.3g} requests/s; with more requests the two rates are nearer"
            )
    if (
        row is not None
        and limit_s is not None
        and (row.itl_max_s or 0.0) > limit_s
        and row.goodput_fraction < _FEW_GOOD
    ):
        said.append(
            f"the longest pause is {format_seconds(row.itl_max_s)}: with one pause a token, a p99 of pauses hides those that users "
            f"see once an answer; {row.goodput_fraction:.0%} of the requests have {found.limits.objective.rule}"
        )
    return said
