"""The two or three numbers that make the simulation of a server agree with its log.

In:   LoggedServer
Out:  Calibration: shares of both peaks and a fixed time a step, with intervals; the comparison before and after
Leaves out: whether they hold elsewhere: efficiencies belong to a card and its kernels, so hold them against a second log
Read next by: report, cli.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import product
from typing import Final

from inference_bench.calibrate.comparison import (
    LogComparison,
    compare_with_log,
    comparison_of,
    outcome_ttft_s,
)
from inference_bench.calibrate.least_squares import LeastSquares, minimise, normal_matrix, solve
from inference_bench.calibrate.served_log import LoggedServer
from inference_bench.calibrate.stretches import count_steps, find_stretches, stretch_residuals
from inference_bench.errors import RequestError, TooFewSamplesError
from inference_bench.simulate.outcome import Outcome
from inference_bench.simulate.run import simulate
from inference_bench.simulate.step_profile import StepProfile
from inference_bench.simulate.step_sources import BOUND_SHARES, Shares
from inference_bench.simulate.step_time import StepTime
from inference_bench.stats import Interval, quantile
from inference_bench.units import format_fraction

LEAST_REQUESTS: Final = 16


class Number(StrEnum):
    """What can be fitted."""

    BANDWIDTH = "bandwidth"  # share of the published bandwidth
    COMPUTE = "compute"  # share of the published compute rate
    FIXED = "fixed_s"  # seconds a step that neither bytes nor FLOPs explain
    SERIAL = "serial"  # share of the shorter of memory and compute time that is not overlapped


DEFAULT_NUMBERS: Final = (Number.BANDWIDTH, Number.COMPUTE, Number.FIXED)
_LEAST_SHARE: Final = 0.02
_MOST_SHARE: Final = 1.25  # beyond it the machine's published rate is not the one that ran
_STARTS: Final = {
    Number.BANDWIDTH: (0.6, 0.75, 0.9),
    Number.COMPUTE: (0.35, 0.5, 0.7, 0.9),
    Number.FIXED: (0.02, 0.08),
    Number.SERIAL: (0.1,),
}
_SPAN: Final = 0.02  # over which slopes are taken
# percentiles with their weights beside the mean: those that are reported, and some between; short waits are left to chance
_TTFT_POINTS: Final = ((0.5, 1.0), (0.75, 0.3), (0.9, 1.0), (0.99, 1.0))
_TPOT_POINTS: Final = ((0.1, 0.3), (0.25, 0.3), (0.5, 1.0), (0.75, 0.3), (0.9, 1.0), (0.99, 1.0))
_TTFT_WEIGHT: Final = 1.0
_TPOT_WEIGHT: Final = 2.0  # queueing makes an error of a step several times larger in TTFT
_OWN_WEIGHT: Final = 0.5  # of the TPOT of single requests, all together
_STRETCH_WEIGHT: Final = 1.0  # of decode steps that the log shows directly, all together
_LEAST_TTFT_S: Final = 0.01  # beside which differences of waiting do not matter
_BLOCKS: Final = 8
_RESAMPLES: Final = 60
_MOST_RESAMPLED: Final = 1_000
_CONFIDENCE: Final = 0.8


@dataclass(frozen=True, slots=True)
class FittedNumber:
    """A fitted number and where it lies in 4 of 5 resampled logs; None where the log does not tell.

    Unit:  a fraction, or seconds for fixed_s
    """

    name: Number
    value: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """The numbers that fit a log.

    Where:  before is the comparison at both peaks with nothing fitted, after the one with the fitted numbers
    """

    server: LoggedServer = field(repr=False)
    shares: Shares
    fitted: tuple[FittedNumber, ...]
    before: LogComparison
    after: LogComparison
    num_runs: int
    notes: tuple[str, ...]

    def profile(self, source: str, as_of: str) -> StepProfile:
        """The numbers as a profile that other models on the same machine can take.

        Where:  as_of is the date on which it is saved: nothing here reads a clock
        """
        server = self.server
        return StepProfile(
            shares=self.shares,
            machine=server.machine.name,
            engine=server.engine,
            model=server.served.model.name,
            source=source,
            as_of=as_of,
            devices=server.devices,
            link=server.link,
            errors={name: error for name, error in self.after.errors.items() if error is not None},
        )


def calibrate(
    server: LoggedServer, numbers: Sequence[Number] = DEFAULT_NUMBERS, around: Shares = BOUND_SHARES
) -> Calibration:
    """The numbers with which the simulated server gives the log's TTFT and TPOT.

    Formula:  argmin Σ over mean and percentiles of log(simulated / measured)², and over the TPOT of single requests, on
              average; TPOT twice the weight of TTFT
    Ignores:  prefix caching, of which the log says nothing: what it saved counts as efficiency
    Raises:   TooFewSamplesError below 16 requests; RequestError for no number, or a request that can never run
    """
    chosen = tuple(dict.fromkeys(numbers))
    if not chosen:
        raise RequestError(f"no number is to be fitted; choose of {', '.join(Number)}")
    if len(server.log) < LEAST_REQUESTS:
        raise TooFewSamplesError(
            f"the log {server.log.name} has {len(server.log)} request(s); at least {LEAST_REQUESTS} are needed to fit "
            f"{len(chosen)} numbers"
        )
    runs = _Runs(server, chosen, around)
    starts = list(product(*(map(runs.encode, (name,) * len(_STARTS[name]), _STARTS[name]) for name in chosen)))
    found = _led(runs, starts)
    shares = runs.shares(found.numbers)
    step_time = server.at_shares(shares)
    after = comparison_of(server.log, simulate(runs.workload, server.setup, step_time), step_time)
    return Calibration(
        server=server,
        shares=shares,
        fitted=_fitted(runs, found),
        before=compare_with_log(server.log, server.setup, server.at_shares()),
        after=after,
        num_runs=runs.num_runs,
        notes=tuple(_at_limits(chosen, shares)),
    )


def _led(runs: _Runs, starts: Sequence[Sequence[float]]) -> LeastSquares:
    """The fit, twice: with it the steps in each stretch of decoding are counted anew.

    Where:  the stretches weigh nothing until a first fit says about how long a step is
    """
    first = minimise(lambda at: runs.residuals(at, runs.everything), starts, *runs.bounds, _SPAN)
    runs.count_steps(first.numbers)
    return minimise(lambda at: runs.residuals(at, runs.everything), [first.numbers, *starts], *runs.bounds, _SPAN)


def _at_limits(chosen: Sequence[Number], shares: Shares) -> list[str]:
    """Numbers that ended at the edge of what they may be, and what that says."""
    notes = []
    for name in (Number.BANDWIDTH, Number.COMPUTE):
        share = getattr(shares, name.value)
        if name in chosen and share > 1:
            notes.append(
                f"the {name} fits at {format_fraction(share)} of the published rate: the rate may be another card's, or a prefix "
                "cache saved work that the log does not show"
            )
        if name in chosen and share <= _LEAST_SHARE * 1.01:
            notes.append(f"the {name} fits at the least share that is tried: is the log of this model and machine?")
    return notes


class _Runs:
    """Simulations of a log at numbers to be fitted, as residuals.

    Where:  shares are fitted by their logarithms, the fixed time in units of the log's typical step
    """

    def __init__(self, server: LoggedServer, chosen: tuple[Number, ...], around: Shares) -> None:
        log = server.log
        self.workload = log.workload()
        self.chosen = chosen
        self.everything = range(len(log))
        self.server = server
        self._around = around
        self._unit_s = quantile(log.tpot_s or log.ttft_s, 0.5) or 1.0
        self._ttft_s = log.ttft_s
        self._tpot_s = _tpot_of_all(log.first_token_s, log.last_token_s, log.output_tokens)
        self._last_s = log.last_token_s
        self._stretches = find_stretches(log, server.setup.scheduler.max_running, server.at_shares())
        self._counts = [0] * len(self._stretches)
        self._simulated: dict[tuple[float, ...], Outcome] = {}

    @property
    def bounds(self) -> tuple[list[float], list[float]]:
        """The least and the most of each number, as they are fitted."""
        share = (math.log(_LEAST_SHARE), math.log(_MOST_SHARE))
        spans = [share if name in (Number.BANDWIDTH, Number.COMPUTE) else (0.0, 1.0) for name in self.chosen]
        return [low for low, _ in spans], [high for _, high in spans]

    def encode(self, name: Number, value: float) -> float:
        """A start as it is fitted."""
        return math.log(value) if name in (Number.BANDWIDTH, Number.COMPUTE) else value

    def decode(self, name: Number, at: float) -> float:
        """A fitted number as it is meant."""
        if name in (Number.BANDWIDTH, Number.COMPUTE):
            return math.exp(at)
        return at * self._unit_s if name is Number.FIXED else at

    def shares(self, at: Sequence[float]) -> Shares:
        """The shares at some numbers, the others as they were given."""
        values = {name.value: self.decode(name, value) for name, value in zip(self.chosen, at, strict=True)}
        return replace(self._around, **values)

    @property
    def num_runs(self) -> int:
        """How many simulations it took."""
        return len(self._simulated)

    def step_time(self, at: Sequence[float]) -> StepTime:
        """The step time at some numbers."""
        return self.server.at_shares(self.shares(at))

    def loss(self, at: Sequence[float]) -> float:
        """The sum of squares that is to be made small."""
        return sum(value * value for value in self.residuals(at, self.everything))

    def count_steps(self, at: Sequence[float]) -> None:
        """The steps in each stretch of decoding, if steps take as long as at these numbers."""
        self._counts = count_steps(self._stretches, self.step_time(at))

    def outcome(self, at: Sequence[float]) -> Outcome:
        """The log's requests at some numbers; each is simulated once."""
        key = tuple(at)
        if key not in self._simulated:
            self._simulated[key] = simulate(self.workload, self.server.setup, self.step_time(at))
        return self._simulated[key]

    def residuals(self, at: Sequence[float], kept: Sequence[int]) -> list[float]:
        """Logarithms of simulated over measured, weighted, over some of the requests."""
        outcome = self.outcome(at)
        counts = self.workload.requests.output_tokens
        ttft = outcome_ttft_s(outcome)
        tpot = _tpot_of_all(outcome.first_token_s, outcome.last_token_s, counts)
        spoken = [index for index in kept if counts[index] > 1]
        last = max(outcome.last_token_s[index] for index in kept)
        return [
            math.log((last + _LEAST_TTFT_S) / (max(self._last_s[index] for index in kept) + _LEAST_TTFT_S)),
            *_compared(_of(ttft, kept), _of(self._ttft_s, kept), _TTFT_POINTS, _TTFT_WEIGHT, _LEAST_TTFT_S),
            *_compared(_of(tpot, spoken), _of(self._tpot_s, spoken), _TPOT_POINTS, _TPOT_WEIGHT, _TINY_S),
            *_each(_of(tpot, spoken), _of(self._tpot_s, spoken), _OWN_WEIGHT),
            *stretch_residuals(self._stretches, self._counts, self.step_time(at), _STRETCH_WEIGHT),
        ]


_TINY_S: Final = 1e-9


def _tpot_of_all(first: Sequence[float], last: Sequence[float], counts: Sequence[int]) -> list[float]:
    """Time per output token of each request; 0 where it has one token."""
    return [
        (end - begin) / (count - 1) if count > 1 else 0.0 for begin, end, count in zip(first, last, counts, strict=True)
    ]


def _of(values: Sequence[float], kept: Sequence[int]) -> list[float]:
    return [values[index] for index in kept]


def _compared(
    simulated: Sequence[float],
    measured: Sequence[float],
    points: Sequence[tuple[float, float]],
    weight: float,
    least: float,
) -> list[float]:
    """Residuals of the mean and of percentiles, each with its weight."""
    if not measured:
        return []
    mine, theirs = sorted(simulated), sorted(measured)
    pairs = [(1.0, sum(mine) / len(mine), sum(theirs) / len(theirs))]
    pairs += [(own, quantile(mine, point), quantile(theirs, point)) for point, own in points]
    return [weight * own * math.log((value + least) / (other + least)) for own, value, other in pairs]


def _each(simulated: Sequence[float], measured: Sequence[float], weight: float) -> list[float]:
    """Residuals of single requests, all together of one weight."""
    share = weight / math.sqrt(max(1, len(measured)))
    return [
        share * math.log((mine + _TINY_S) / (theirs + _TINY_S))
        for mine, theirs in zip(simulated, measured, strict=True)
    ]


def _fitted(runs: _Runs, found: LeastSquares) -> tuple[FittedNumber, ...]:
    """The numbers with the interval of what resampled stretches of the log would have given.

    Formula:  one Gauss-Newton step from the fit on each of 60 logs drawn from 8 stretches in time, with replacement
    Ignores:  that queueing ties stretches together: intervals are rather too narrow
    """
    draws = random.Random(0)
    stretches = [stretch for stretch in _stretches(len(runs.everything)) if stretch]
    moved = [list(found.numbers)]
    for _ in range(_RESAMPLES):
        kept = [index for _ in stretches for index in draws.choice(stretches)]
        move = _step(runs, found.numbers, kept)
        moved.append([value + by for value, by in zip(found.numbers, move, strict=True)])
    low, high = runs.bounds
    tail = (1 - _CONFIDENCE) / 2
    numbers = []
    for index, name in enumerate(runs.chosen):
        values = [min(max(row[index], low[index]), high[index]) for row in moved]
        ends = [runs.decode(name, quantile(values, point)) for point in (tail, 1 - tail)]
        value = runs.decode(name, found.numbers[index])
        interval = Interval(min(ends[0], value), max(ends[1], value), _CONFIDENCE)
        numbers.append(FittedNumber(name, value, interval if found.slopes else None))
    return tuple(numbers)


def _stretches(count: int) -> list[list[int]]:
    """Requests by stretches of time, thinned where there are very many."""
    thin = max(1, count // _MOST_RESAMPLED)
    ends = [round(count * part / _BLOCKS) for part in range(_BLOCKS + 1)]
    return [list(range(ends[part], ends[part + 1], thin)) for part in range(_BLOCKS)]


def _step(runs: _Runs, at: Sequence[float], kept: Sequence[int]) -> list[float]:
    """Where the numbers would go if the log were these requests, by slopes at the fit."""
    here = runs.residuals(at, kept)
    _, high = runs.bounds
    columns = []
    for index, value in enumerate(at):
        span = _SPAN if value + _SPAN <= high[index] else -_SPAN
        there = runs.residuals([*at[:index], value + span, *at[index + 1 :]], kept)
        columns.append([(after - before) / span for before, after in zip(here, there, strict=True)])
    slopes = list(zip(*columns, strict=True))
    matrix = normal_matrix(slopes)
    for index in range(len(at)):
        matrix[index][index] += 1e-3 * matrix[index][index] + 1e-12
    right = [-sum(row[i] * left for row, left in zip(slopes, here, strict=True)) for i in range(len(at))]
    return [min(max(move, -1.0), 1.0) for move in solve(matrix, right)]
