"""What is sent to check a prediction: requests of lengths of which this server takes enough in the time there is.

In:   ServerModel: the engine's rules and the fitted time of a step; LoadBudget
Out:  ChosenWorkload: one draw of requests and arrivals, whose times are scaled to every rate, and the rate that the server
      just sustains
Leaves out: which rates are sent (load_check, capacity_check), and sending
Read next by: load_check, capacity_check.

All rates have the same random numbers: the same requests in the same order, their arrivals stretched. So two rates differ by the
rate alone, and a search over rates is a search in one draw.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import sub
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.simulate.run import simulate
from inference_bench.stats import median
from inference_bench.units import format_count
from inference_bench.verify.engine_rules import ServerModel
from inference_bench.workload import ClosedLoop, OpenLoop, Poisson, UniformLengths, Workload, generate

BELOW: Final = 0.5  # of the rate that is just sustained
NEAR: Final = 0.85
PAST: Final = 1.25
ABOVE: Final = 1.15  # of the capacity

_PROMPT: Final = (32, 160)
_OUTPUT: Final = (8, 40)
_LEAST_PROMPT: Final = 8
_LEAST_OUTPUT: Final = 4
_HALF_OCTAVES: Final = (-6, 9)  # of both lengths, from an eighth to sixteen times
_LEAST_QUEUED, _MOST_QUEUED = 120, 1024
_INNER: Final = (0.1, 0.9)  # of the answers that end, between which the rate is steady
_LEAST_COUNT, _MOST_REQUESTS = 8, 1000
_TIMES_IN_FLIGHT: Final = 2  # as many requests at least as are answered at once, so that a queue can form
_SPARE_CONTEXT: Final = 16
_NAME: Final = "load check"


@dataclass(frozen=True, slots=True)
class LoadBudget:
    """How long all loads may take together, and how many requests each has at least.

    Where:  finds_capacity adds a rate just above the capacity; other_seeds further draws say how much the capacity depends on
            the one that is sent
    Unit:   seconds
    """

    seconds: float = 100.0
    fewest: int = 50
    finds_capacity: bool = True
    has_past: bool = True
    other_seeds: int = 4

    @property
    def factors(self) -> tuple[float, ...]:
        """The rates of the loads, in shares of the rate that is just sustained."""
        past, above = (PAST,) if self.has_past else (), (NEAR * ABOVE,) if self.finds_capacity else ()
        return (BELOW, NEAR, *past, *above)

    def count_requests(self, pace: Pace) -> int:
        """How many requests each load may have; below `fewest` where the time is too short for them.

        Formula:  (seconds - loads · time of an answer) / Σ 1 / min(1, factor) · rate that is just sustained
        """
        spare_s = self.seconds - len(self.factors) * pace.answer_s
        return int(spare_s / sum(1 / min(1.0, factor) for factor in self.factors) * pace.saturation_rate)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a server is while requests wait for it.

    Where:  answer_s is from a request's first token to its last
    Unit:   requests/s, seconds
    """

    saturation_rate: float
    answer_s: float

    @property
    def in_flight(self) -> float:
        """How many are answered at once, by Little's law."""
        return self.saturation_rate * self.answer_s


USUAL: Final = LoadBudget()
QUICK: Final = LoadBudget(seconds=12.0, fewest=16, finds_capacity=False, has_past=False, other_seeds=0)
THOROUGH: Final = LoadBudget(seconds=300.0, fewest=150)


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long prompts and answers are."""

    prompt: UniformLengths
    output: UniformLengths

    def draw(self, count: int, seed: int) -> Workload:
        """So many requests, one a second on average."""
        drawn = generate(Poisson(1.0), self.prompt, self.output, count, seed, name=_NAME)
        return replace(drawn, arrival=_at_its_mean(drawn.arrival))

    @property
    def words(self) -> str:
        """In words."""
        prompt, output = self.prompt, self.output
        return f"{prompt.low} to {prompt.high} prompt and {output.low} to {output.high} output tokens"


@dataclass(frozen=True, slots=True)
class ChosenWorkload:
    """The requests of a check, arriving once a second until they are scaled.

    Where:  saturation_rate is the rate at which the simulated server answers while a queue waits; notes say where the lengths
            could not be what they should
    Unit:   requests/s
    """

    workload: Workload
    saturation_rate: float
    words: str
    lengths: Lengths
    notes: tuple[str, ...] = ()

    def redrawn(self, seed: int) -> Workload:
        """As many requests of the same lengths, drawn anew."""
        return self.lengths.draw(len(self.workload), seed)

    def at_rate(self, rate: float) -> Workload:
        """The same requests, arriving so often."""
        return self.workload.at_rate(rate)


def choose_workload(model: ServerModel, budget: LoadBudget = USUAL, seed: int = 0) -> ChosenWorkload:
    """The longest requests of which there can be enough within the budget.

    Where:   lengths are uniform, 32 to 160 prompt and 8 to 40 output tokens times a factor from an eighth to sixteen
    Raises:  RequestError for a server whose cache holds not even the shortest
    """
    queued = max(_LEAST_QUEUED, min(_MOST_QUEUED, 2 * model.setup.scheduler.max_running))
    chosen: tuple[Lengths, Pace] | None = None
    for lengths in _candidates(model.rules.max_context_tokens):
        pace = pace_of(model, lengths.draw(queued, seed))
        count = min(_MOST_REQUESTS, budget.count_requests(pace))
        if chosen is not None and count < max(budget.fewest, _TIMES_IN_FLIGHT * pace.in_flight):
            break
        chosen = lengths, pace
    if chosen is None:
        raise RequestError(
            f"a request may have {model.rules.max_context_tokens} tokens with its answer, too few for a load to be checked; give the "
            "server a longer context"
        )
    lengths, pace = chosen
    count = max(_LEAST_COUNT, min(_MOST_REQUESTS, budget.count_requests(pace)))
    notes: tuple[str, ...] = ()
    if count < budget.fewest:
        notes = (
            f"the server is too slow for {budget.fewest} requests a load within the budget; each load has {count}",
        )
    words = (
        f"{format_count(count)} requests a load, {lengths.words}, one Poisson draw of arrivals (seed {seed}) stretched to each rate; "
        "answers have exactly the length that is asked for"
    )
    return ChosenWorkload(lengths.draw(count, seed), pace.saturation_rate, words, lengths, notes)


def pace_of(model: ServerModel, workload: Workload) -> Pace:
    """How many requests a second the simulated server ends while others wait, and how long it answers each.

    Formula:  answers that end between the first and the last tenth of them, over the time that takes; the median of
              last less first token
    """
    queued = replace(workload, arrival=OpenLoop(array("d", [0.0]) * len(workload), "all at once"))
    outcome = simulate(queued, model.setup, model.step_time)
    ends = sorted(outcome.last_token_s)
    first, last = (int(share * (len(ends) - 1)) for share in _INNER)
    took_s = ends[last] - ends[first]
    rate = (last - first) / took_s if took_s > 0 else len(ends) / ends[-1]
    return Pace(rate, median(map(sub, outcome.last_token_s, outcome.first_token_s)))


def _at_its_mean(arrival: ClosedLoop | OpenLoop) -> ClosedLoop | OpenLoop:
    """Arrivals stretched so that exactly one a second comes: a short draw may be a tenth slower or faster than was asked for."""
    if not isinstance(arrival, OpenLoop):
        return arrival
    factor = len(arrival) / arrival.times_s[-1]
    return OpenLoop(
        array("d", [time_s * factor for time_s in arrival.times_s]), "poisson, at exactly its mean rate", 1.0
    )


def _candidates(max_context_tokens: int | None) -> Iterator[Lengths]:
    """Lengths from the shortest to the longest that a context holds."""
    for half_octaves in range(*_HALF_OCTAVES):
        factor = 2 ** (half_octaves / 2)
        prompt = [max(_LEAST_PROMPT, round(length * factor)) for length in _PROMPT]
        output = [max(_LEAST_OUTPUT, round(length * factor)) for length in _OUTPUT]
        if max_context_tokens is not None and prompt[1] + output[1] + _SPARE_CONTEXT > max_context_tokens:
            return
        yield Lengths(UniformLengths(prompt[0], prompt[1]), UniformLengths(output[0], output[1]))
