"""What is asked of a server: the requests and when they are sent, from one seed.

In:   an arrival process, length distributions, a count and a seed; or shapes for a closed loop
Out:  Workload, which the load generator sends and the simulator schedules: the same one
Leaves out: what the prompts say; requests that share tokens are made in shared, recorded ones read in traces
Read next by: measure.load, simulate, cli.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.workload.arrivals import Arrivals, ClosedLoop, OpenLoop, Poisson
from inference_bench.workload.checks import require_count, require_positive, require_seed
from inference_bench.workload.lengths import ClippedLognormal, Lengths, UniformLengths
from inference_bench.workload.requests import Requests, RequestShape

MOST_REQUESTS: Final = 100_000_000  # of one workload: a gigabyte or two of columns
REFERENCE_COUNT: Final = 300
REFERENCE_PROMPT: Final = UniformLengths(2000, 6000)
REFERENCE_OUTPUT: Final = ClippedLognormal(1500, 0.6, 16, 4000)


@dataclass(frozen=True, slots=True)
class Workload:
    """A named, seeded set of requests and when each is sent.

    Where:    max_output_tokens is the limit that clients state with each request, which a scheduler may see (it never
              sees the true output length); notes say what was dropped or assumed when the workload was made
    Raises:   RequestError when requests and arrivals differ in number, an output is longer than the stated limit, or the seed
              is no whole number
    """

    name: str
    requests: Requests
    arrival: ClosedLoop | OpenLoop
    seed: int = 0
    max_output_tokens: int | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_seed(self.seed)
        if len(self.requests) != len(self.arrival):
            raise RequestError(
                f"the workload {self.name!r} has {len(self.requests)} requests and {len(self.arrival)} arrivals; "
                "give one arrival for each request"
            )
        if self.max_output_tokens is not None:
            require_count(self.max_output_tokens, "stated limit of output tokens")
            _require_within_limit(self.requests.output_tokens, self.max_output_tokens)

    def __len__(self) -> int:
        return len(self.requests)

    def shape_of(self, index: int) -> RequestShape:
        """The shape of the request with this index, counted from 0."""
        return self.requests.shape_of(index)

    def scaled(self, factor: float) -> Workload:
        """The same requests with every arrival time multiplied: 2 is half the rate, with the same random numbers.

        Raises:   RequestError for a closed loop, or a factor that is not finite and above zero
        """
        arrival = self._require_schedule()
        require_positive(factor, "factor for the arrival times")
        nominal = None if arrival.nominal_rate is None else arrival.nominal_rate / factor
        times_s = array("d", [time_s * factor for time_s in arrival.times_s])
        return replace(self, arrival=OpenLoop(times_s, arrival.process, nominal, _stretched(arrival, factor)))

    def at_rate(self, nominal: float) -> Workload:
        """The same requests with their times scaled so that the nominal rate is this one.

        Where:    a schedule without a nominal rate (a replay) is scaled by its realised rate and then has a nominal one
        Unit:     requests per second
        Raises:   RequestError for a closed loop, a rate that is not finite and above zero, or no rate to scale from
        """
        arrival = self._require_schedule()
        require_positive(nominal, "rate", "requests/s")
        rate = arrival.nominal_rate if arrival.nominal_rate is not None else arrival.realised_rate
        if rate is None:
            raise RequestError(f"all requests of the workload {self.name!r} arrive at once; there is no rate to scale")
        times_s = array("d", [time_s * (rate / nominal) for time_s in arrival.times_s])
        asked = _stretched(arrival, rate / nominal)
        return replace(self, arrival=OpenLoop(times_s, arrival.process, nominal, asked))

    def until(self, end_s: float) -> Workload:
        """The requests that arrive before this time, and no more.

        Unit:     seconds
        Raises:   RequestError for a closed loop, or when none arrives by then
        """
        arrival = self._require_schedule()
        count = bisect_left(arrival.times_s, end_s)
        if not count:
            raise RequestError(
                f"no request of the workload {self.name!r} arrives before {end_s:g} s; the first is at "
                f"{arrival.times_s[0]:g} s"
            )
        return replace(
            self, requests=self.requests.first(count), arrival=replace(arrival, times_s=arrival.times_s[:count])
        )

    def _require_schedule(self) -> OpenLoop:
        if isinstance(self.arrival, OpenLoop):
            return self.arrival
        raise RequestError(f"the workload {self.name!r} is a closed loop, which has no arrival times to scale")


def _stretched(arrival: OpenLoop, factor: float) -> Arrivals | None:
    return None if arrival.drawn_from is None else arrival.drawn_from.stretched(factor)


def _require_within_limit(output_tokens: array[int], limit: int) -> None:
    if max(output_tokens) <= limit:
        return
    index = next(index for index, length in enumerate(output_tokens) if length > limit)
    raise RequestError(
        f"request {index} (counted from 0) has {output_tokens[index]} output tokens, more than the {limit} that "
        "clients state as their limit; raise the limit"
    )


def generate(
    arrivals: Arrivals,
    prompt: Lengths,
    output: Lengths,
    count: int,
    seed: int = 0,
    *,
    name: str = "generated",
    max_output_tokens: int | None = None,
) -> Workload:
    """An open-loop workload from one seed; the requests share nothing.

    Formula:  one random.Random(seed); for each request in turn its gap, its prompt length, its output length
    Raises:   RequestError for a count below one
    """
    require_count(count, "number of requests", most=MOST_REQUESTS)
    rng = random.Random(seed)
    times_s, prompts, outputs = array("d"), array("q"), array("q")
    add_time, add_prompt, add_output = times_s.append, prompts.append, outputs.append
    draw_prompt, draw_output = prompt.draw, output.draw
    for _, time_s in zip(range(count), arrivals.times_s(rng), strict=False):
        add_time(time_s)
        add_prompt(draw_prompt(rng))
        add_output(draw_output(rng))
    arrival = OpenLoop(times_s, arrivals.name, arrivals.mean_rate, arrivals)
    return Workload(name, Requests(prompts, outputs), arrival, seed, max_output_tokens)


def with_arrivals(workload: Workload, arrivals: Arrivals, seed: int = 0) -> Workload:
    """The same requests, in the same order, on a new schedule.

    Formula:  one random.Random(seed); one gap a request
    Where:    what for: a trace without times, or the lengths of a trace under other arrivals
    """
    times_s = array("d", islice(arrivals.times_s(random.Random(seed)), len(workload)))
    return replace(workload, arrival=OpenLoop(times_s, arrivals.name, arrivals.mean_rate, arrivals), seed=seed)


def reference_workload(rate: float, count: int = REFERENCE_COUNT, seed: int = 0) -> Workload:
    """The workload of the reference case, draw for draw.

    Formula:  Poisson arrivals; prompt = randint(2000, 6000);
              output = min(4000, max(16, int(lognormvariate(ln 1500, 0.6))))
    Unit:     requests per second
    Raises:   RequestError for a rate that is not finite and above zero, or a count below one
    Source:   the project's SPEC, section 6
    """
    return generate(
        Poisson(rate),
        REFERENCE_PROMPT,
        REFERENCE_OUTPUT,
        count,
        seed,
        name="reference",
        max_output_tokens=REFERENCE_OUTPUT.longest,
    )


def closed_loop(
    name: str,
    shapes: Sequence[RequestShape],
    concurrency: int,
    num_requests: int,
    seed: int = 0,
    *,
    think_s: float = 0.0,
) -> Workload:
    """A closed loop in which request i has shape i modulo the number of shapes.

    Raises:   RequestError for no shape, or a number below one
    """
    if not shapes:
        raise RequestError(f"the workload {name!r} has no request shape; give at least one")
    arrival = ClosedLoop(concurrency, num_requests, think_s)
    require_count(num_requests, "number of requests", most=MOST_REQUESTS)
    times, rest = divmod(num_requests, len(shapes))
    prompts = array("q", [shape.prompt_tokens for shape in shapes])
    outputs = array("q", [shape.output_tokens for shape in shapes])
    requests = Requests(prompts * times + prompts[:rest], outputs * times + outputs[:rest])
    return Workload(name, requests, arrival, seed)
