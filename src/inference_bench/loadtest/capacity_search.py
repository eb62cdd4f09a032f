"""At which rate does a server begin to break its promise: an interval, from runs whose misses come in clusters.

In:   a function that runs a rate and says which requests missed; SearchPlan
Out:  CapacityFound: the interval, the answer in a word, and every rate that was tried
Leaves out: what a miss is and how a rate is run (capacity)
Read next by: capacity, capacity_run, report.

A rate passes when its runs are too good for a server that misses more often than allowed, and fails when they are too
bad for one that does not; else it is undecided, which is what every rate near the capacity stays. Both tests are likelihood
ratios that may be looked at after every run (sequential_test), and what misses owe to their neighbours is measured and
taken off their weight. Rates between the highest that passed and the lowest that failed hold the capacity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from inference_bench.errors import RequestError, WorldError
from inference_bench.loadtest.capacity_evidence import (
    UNKNOWN_DISPERSION,
    Counted,
    RunMisses,
    count_run,
    crossing_of,
    dispersion_of,
    log_evidence,
)

_FIRST_MISSES: Final = 8.0  # so many are expected of the first run of a rate that keeps the promise just so
_LATE_RUNS: Final = 3  # at one rate, after which it is this client's limit
_LOOK_SHARE: Final = 0.5  # of what a rate has been run with, in its next run
_STRIDE: Final = 2.0  # from one rate to the next while nothing is known
_RATES_IN_DOUBT: Final = 3  # on the wrong side of the capacity, and near it
_AIM: Final = 0.9  # of the half-width asked for: how far from the likely capacity a rate is tried
_FIRST_STEP: Final = 0.4  # of the likely capacity: how far from it a rate is tried while an end is not known
_NARROWING: Final = 0.35  # of the half-width reached: then how far
_NEAR: Final = (0.6, 1.4)  # of that: a rate that was begun there is gone on with
_EDGE: Final = 0.15  # of the way between two decided rates, at either end, where no rate is tried


class Judgement(StrEnum):
    """What is known about one rate."""

    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"


class Answer(StrEnum):
    """What a search found."""

    INTERVAL = "interval"  # between a rate that passed and one that failed
    NONE_PASSES = "none_passes"  # not even the lowest rate that may be asked
    ALL_PASS = "all_pass"  # up to the highest rate that may be asked, or that this client can send
    UNKNOWN = "unknown"  # too few requests were allowed to decide


class Stop(StrEnum):
    """Why a search ended; None where it was stopped, or could not go on."""

    DONE = "done"  # the interval is as narrow as asked, or no rate can pass or fail
    REQUESTS = "requests"  # the next run would have needed more than may be sent
    TIME = "time"  # the next run would have lasted longer than was left
    RATES = "rates"  # no rate that may be asked would tell more


@dataclass(frozen=True, slots=True)
class Trial:
    """One run at one rate.

    Where:    misses has a byte for each judged request, in the order of planned sends: 1 for one that was late, failed, was
              rejected, cut off or never answered. is_growing: more and more requests were waiting. client_limit says why
              this client could not send at the rate; such a run says nothing about the server
    """

    num_sent: int
    misses: bytes
    is_growing: bool = False
    client_limit: str | None = None


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How sure, how near, and how many requests that may take.

    Where:    share is of the requests, and must keep the objectives; half_width is of the interval, as a fraction of its
              middle; least_span_s is how long a run lasts at least: one that is over before a queue has formed hides it
    Unit:     requests per second, seconds
    Raises:   RequestError
    """

    first_rate: float = 1.0
    least_rate: float = 0.01
    most_rate: float = 10_000.0
    share: float = 0.99
    half_width: float = 0.05
    confidence: float = 0.95
    max_requests: int = 100_000
    max_rates: int = 32
    least_span_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.least_rate <= self.first_rate <= self.most_rate < math.inf:
            raise RequestError(
                f"the rates {self.least_rate:g}, {self.first_rate:g} and {self.most_rate:g} requests/s (lowest, first, highest) "
                "are not in order; give rates above 0"
            )
        for value, what in (
            (self.share, "share of good requests"),
            (self.half_width, "half-width"),
            (self.confidence, "confidence"),
        ):
            if not 0 < value < 1:
                raise RequestError(f"a {what} of {value:g} cannot be reached; give one between 0 and 1")
        if self.max_requests < 1 or self.max_rates < 2:
            raise RequestError("a search needs at least one request and two rates")

    @property
    def allowed_misses(self) -> float:
        """The share of requests that may miss."""
        return 1 - self.share

    @property
    def threshold(self) -> float:
        """The log evidence that decides: each side has half of the error, spread over the rates that chance could decide."""
        return math.log(2 * _RATES_IN_DOUBT / (1 - self.confidence))


@dataclass(slots=True)
class RateTried:
    """Everything that was run at one rate.

    Where:    num_late counts runs that this client could not send as asked, which are not among `runs`
    """

    rate: float
    runs: list[RunMisses] = field(default_factory=list)
    num_requests: int = 0
    num_good: int = 0
    is_growing: bool = False
    num_late: int = 0
    verdict: Judgement = Judgement.UNDECIDED

    def add(self, trial: Trial) -> None:
        """One more run."""
        self.runs.append(count_run(trial.misses))
        self.num_requests += len(trial.misses)
        self.num_good += len(trial.misses) - sum(trial.misses)
        self.is_growing = self.is_growing or trial.is_growing

    @property
    def counted(self) -> Counted:
        """Its misses, as the tests want them."""
        return Counted(self.rate, self.num_requests - self.num_good, self.num_requests)


@dataclass(frozen=True, slots=True)
class CapacityFound:
    """The answer.

    Where:    low_rate is the highest rate that passed below all that failed, high_rate the lowest that failed above all
              that passed; None: there is none. dispersion is by how much the misses vary more than independent ones.
              num_sent counts requests that were not judged too. is_interrupted: the person stopped the search; trouble is
              why it could not go on; stopped_by is why it ended, None for these two
    Unit:     requests per second
    """

    answer: Answer
    low_rate: float | None
    high_rate: float | None
    trials: tuple[RateTried, ...]
    num_sent: int
    dispersion: float
    plan: SearchPlan
    client_limit: str | None = None
    is_interrupted: bool = False
    trouble: str | None = None
    stopped_by: Stop | None = None

    @property
    def is_dispersion_assumed(self) -> bool:
        """Whether too few requests missed to see how misses cluster."""
        return self.dispersion == UNKNOWN_DISPERSION

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width over its middle; None without two ends."""
        if self.low_rate is None or self.high_rate is None:
            return None
        return (self.high_rate - self.low_rate) / (self.high_rate + self.low_rate)

    @property
    def is_consistent(self) -> bool:
        """Whether no rate failed below one that passed."""
        passed = [each.rate for each in self.trials if each.verdict is Judgement.PASS]
        failed = [each.rate for each in self.trials if each.verdict is Judgement.FAIL]
        return not passed or not failed or max(passed) < min(failed)


def search_capacity(
    trial: Callable[[float, int, int], Trial],
    plan: SearchPlan,
    say: Callable[[str], None] | None = None,
    may_begin: Callable[[float, int], bool] | None = None,
) -> CapacityFound:
    """Run rates until the interval is as narrow as asked, the requests are used up, or `may_begin` says no.

    Where:    trial(rate, num_requests, seed) runs so many requests at the rate; one seed is one unit-rate schedule and one set
              of lengths at every rate; may_begin is asked before each run, with its rate and requests
    Raises:   what `trial` raises; a WorldError and an interruption (Ctrl-C) end the search with what is known, if anything is
    """
    search = _Search(trial, plan, say or (lambda _text: None))
    while (rate := search.next_rate()) is not None and search.can_begin(rate, may_begin):
        try:
            search.run(rate)
        except (KeyboardInterrupt, WorldError) as stop:
            found = search.found()
            if not found.trials:
                raise
            is_interrupted = isinstance(stop, KeyboardInterrupt)
            trouble = None if is_interrupted else str(stop)
            return replace(found, is_interrupted=is_interrupted, trouble=trouble, stopped_by=None)
    return search.found()


class _Search:
    """The rates tried so far, and which one is next."""

    def __init__(self, trial: Callable[[float, int, int], Trial], plan: SearchPlan, say: Callable[[str], None]) -> None:
        self._trial, self._plan, self._say = trial, plan, say
        self._tried: dict[float, RateTried] = {}
        self._num_sent = 0
        self._dispersion = 1.0
        self._most_rate = plan.most_rate
        self._client_limit: str | None = None
        self._out_of: Stop | None = None

    def run(self, rate: float) -> None:
        """One more run at this rate, and every verdict anew."""
        tried = self._tried.setdefault(rate, RateTried(rate))
        num_requests = self._look(tried)
        self._say(f"{rate:.4g} requests/s, {num_requests} requests; {self._words()}")
        trial = self._trial(rate, num_requests, self._plan.seed + len(tried.runs))
        self._num_sent += trial.num_sent
        if trial.client_limit is not None:
            self._note_late_client(tried, trial.client_limit)
            return
        tried.add(trial)
        self._judge()

    def _note_late_client(self, tried: RateTried, reason: str) -> None:
        """A run that this client could not send says nothing; after some of them, higher rates are not asked for."""
        tried.num_late += 1
        if tried.num_late < _LATE_RUNS:
            return
        self._client_limit = reason
        self._most_rate = max(
            (each.rate for each in self._tried.values() if each.rate < tried.rate and each.runs), default=0.0
        )

    def can_begin(self, rate: float, may_begin: Callable[[float, int], bool] | None) -> bool:
        """Whether one more run at this rate is within the requests that may be sent, and may be begun.

        Raises:   RequestError where not even the first run is
        """
        most, asked = self._plan.max_requests, self._look(self._tried.get(rate) or RateTried(rate))
        if not self._num_sent and asked > most:
            raise RequestError(
                f"the first run of the search, at {rate:.4g} requests/s, has {asked} requests, and at most {most} may be sent; "
                "allow more"
            )
        if self._num_sent + asked > most:
            self._out_of = Stop.REQUESTS
        elif may_begin is not None and not may_begin(rate, asked):
            self._out_of = Stop.TIME
        return self._out_of is None

    def next_rate(self) -> float | None:
        """The rate that tells most; None when the search is over."""
        plan, most = self._plan, self._most_rate
        low, high = self._ends()
        if most <= 0 or self._num_sent >= plan.max_requests or self._is_done(low, high):
            return None
        rates = sorted(each.rate for each in self._tried.values() if each.runs)
        if not rates:
            return min(plan.first_rate, most)
        good = [rate for rate in rates if self._looks_good(rate)]
        if len(good) == len(rates):
            return most if rates[-1] >= most else self._new(min(rates[-1] * _STRIDE, most))
        if not good:
            lower = max(rates[0] / _STRIDE, plan.least_rate)
            return lower if rates[0] <= plan.least_rate else self._new(lower)
        above, below = low or max(rates[0] / _STRIDE, plan.least_rate), high or min(rates[-1] * _STRIDE, most)
        is_open = low is None or high is None
        step = max(_AIM * plan.half_width, _FIRST_STEP if is_open else _NARROWING * (below - above) / (below + above))
        return self._between(above, below, step) if above < below else None

    def _looks_good(self, rate: float) -> bool:
        """Whether a rate seems to keep the promise, decided or not."""
        tried = self._tried.get(rate)
        if tried is None or tried.verdict is Judgement.FAIL or tried.is_growing:
            return False
        return tried.num_requests - tried.num_good <= self._plan.allowed_misses * tried.num_requests

    def _between(self, low: float, high: float, step: float) -> float | None:
        """So far from the likely capacity, on the side where the interval reaches farther."""
        inside = [each for each in self._tried.values() if low <= each.rate <= high and each.runs]
        likely = crossing_of([each.counted for each in inside], self._plan.allowed_misses, self._dispersion, low, high)
        spread = math.log(high / low)
        likely = min(max(likely, low * math.exp(_EDGE * spread)), high / math.exp(_EDGE * spread))
        below = likely / low >= high / likely
        wanted = likely * (1 - step) if below else likely * (1 + step)
        if not low < wanted < high:
            wanted = likely
        near = [
            each.rate
            for each in inside
            if each.verdict is Judgement.UNDECIDED
            and _NEAR[0] * step <= (1 - each.rate / likely if below else each.rate / likely - 1) <= _NEAR[1] * step
        ]
        if near:
            return min(near, key=lambda rate: abs(rate - wanted))
        if (new := self._new(wanted)) is not None:
            return new
        open_rates = [each.rate for each in inside if each.verdict is Judgement.UNDECIDED]
        return min(open_rates, key=lambda rate: abs(rate - wanted), default=None)

    def _new(self, rate: float) -> float | None:
        """A rate that was not tried; None where all that may be tried are used up."""
        return rate if rate in self._tried or len(self._tried) < self._plan.max_rates else None

    def _look(self, tried: RateTried) -> int:
        """How many requests the next run of a rate has."""
        plan = self._plan
        least = max(_FIRST_MISSES / plan.allowed_misses, tried.rate * plan.least_span_s)
        return max(1, math.ceil(max(least, _LOOK_SHARE * tried.num_requests)))

    def _judge(self) -> None:
        plan, every = self._plan, [each for each in self._tried.values() if each.runs]
        allowed = plan.allowed_misses
        self._dispersion = dispersion_of([each.runs for each in every if not each.is_growing], allowed)
        for each in every:
            kept, broken = (log_evidence(each.counted, allowed, self._dispersion, side) for side in (-1, 1))
            if each.is_growing or broken >= plan.threshold:
                each.verdict = Judgement.FAIL
            elif kept >= plan.threshold:
                each.verdict = Judgement.PASS
            else:
                each.verdict = Judgement.UNDECIDED

    def _ends(self) -> tuple[float | None, float | None]:
        return ends_of(self._tried.values())

    def _is_done(self, low: float | None, high: float | None) -> bool:
        """Whether the interval is as narrow as asked, or no rate can pass or fail."""
        if low is None or high is None:
            return self._answer(low, high) is not Answer.UNKNOWN
        return (high - low) / (high + low) <= self._plan.half_width

    def _words(self) -> str:
        low, high = self._ends()
        ends = [f"{low:.4g} passed" if low else "", f"{high:.4g} failed" if high else ""]
        return ", ".join(filter(None, ends)) or "nothing is known yet"

    def found(self) -> CapacityFound:
        """What all runs say together."""
        low, high = self._ends()
        tried = tuple(sorted((each for each in self._tried.values() if each.runs), key=lambda each: each.rate))
        ran_out = Stop.REQUESTS if self._num_sent >= self._plan.max_requests else self._out_of or Stop.RATES
        return CapacityFound(
            self._answer(low, high), low, high, tried, self._num_sent, self._dispersion, self._plan, self._client_limit,
            stopped_by=Stop.DONE if self._is_done(low, high) else ran_out,
        )  # fmt: skip

    def _answer(self, low: float | None, high: float | None) -> Answer:
        if low is not None and high is not None:
            return Answer.INTERVAL
        if low is not None and low >= self._most_rate:
            return Answer.ALL_PASS
        if high is not None and high <= self._plan.least_rate:
            return Answer.NONE_PASSES
        return Answer.UNKNOWN


def ends_of(tried: Iterable[RateTried]) -> tuple[float | None, float | None]:
    """The highest rate that passed below all that failed, and the lowest that failed above all that passed.

    Where:    a pass above a failure contradicts it; then the interval holds both
    """
    kept = list(tried)
    passed = [each.rate for each in kept if each.verdict is Judgement.PASS]
    failed = [each.rate for each in kept if each.verdict is Judgement.FAIL]
    low = max((rate for rate in passed if rate < min(failed, default=math.inf)), default=None)
    high = min((rate for rate in failed if rate > max(passed, default=0.0)), default=None)
    return low, high
