"""What do the fields ask of the server: which requests, when, and how much is that for a page?

In:   Values
Out:  a workload at any rate; Objective; the refusal of what a browser would take too long for
Leaves out: traces, prefixes, conversations and closed loops: the command line has them
Read next by: simulate_view.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from inference_bench.bridge.fields import FieldError, Values, at
from inference_bench.bridge.simulate_fields import needed, short_text
from inference_bench.metrics import Objective
from inference_bench.simulate.estimate import work_ahead
from inference_bench.simulate.run import needs_reference
from inference_bench.simulate.settings import SchedulerSettings
from inference_bench.simulate.study import parse_rates
from inference_bench.simulate.summary import SimulatedRow
from inference_bench.units import format_count, parse_count, parse_seconds
from inference_bench.workload import (
    REFERENCE_COUNT,
    REFERENCE_OUTPUT,
    REFERENCE_PROMPT,
    Arrivals,
    Lengths,
    OnOff,
    Poisson,
    Workload,
    generate,
    parse_arrivals,
    parse_lengths,
)

MOST_REQUESTS: Final = 3_000
MOST_RATES: Final = 12
MOST_SECONDS: Final = 86_400.0  # of an objective
_MOST_STEPS: Final = 1_000_000  # that are expected of a run: some seconds of a browser's Python
_MOST_STEPS_IN_ALL: Final = 3_000_000
_PIECE_COSTS: Final = 2  # steps with a piece of a prompt take about so many times as long as others
_READABLE_COSTS: Final = 10  # and so do steps of the readable loop, which alone knows some engines' rules
_AT_ONCE: Final = 1_000_000.0  # requests/s: all of them come before the first is answered
_FEWEST_A_PERIOD: Final = 0.01  # arrivals: bursts that bring fewer take long to draw
_AROUND: Final = (0.3, 0.6, 0.9, 1.2)  # of what the server can serve
NUM_FOUND_RATES: Final = len(_AROUND)


@dataclass(frozen=True, slots=True)
class Asked:
    """The requests, which have the same lengths at every rate."""

    prompt: Lengths
    output: Lengths
    count: int
    seed: int
    arrivals: str

    @staticmethod
    def read(values: Values) -> Asked:
        """What the fields ask.

        Raises:  FieldError
        """
        count = needed(values, "requests", parse_count)
        if not 1 <= count <= MOST_REQUESTS:
            raise FieldError(
                "requests", f"{format_count(count)} requests were asked for; the page simulates 1 to {MOST_REQUESTS:,}"
            )
        return Asked(
            prompt=needed(values, "prompt_lengths", parse_lengths),
            output=needed(values, "output_lengths", parse_lengths),
            count=count,
            seed=needed(values, "seed", parse_count),
            arrivals=short_text(values, "arrivals") or "poisson",
        )

    def at_rate(self, rate: float | None) -> Workload:
        """The workload at a rate; None asks for all of it at once.

        Raises:  FieldError
        """
        if rate is None:
            with at("output_lengths"):
                return self._drawn(Poisson(_AT_ONCE))
        with at("arrivals"):
            arrivals = parse_arrivals(self.arrivals, rate)
        _refuse_empty_bursts(arrivals)
        with at("rates"):
            return self._drawn(arrivals)

    def _drawn(self, arrivals: Arrivals) -> Workload:
        is_reference = (self.prompt, self.output) == (REFERENCE_PROMPT, REFERENCE_OUTPUT)
        return generate(
            arrivals,
            self.prompt,
            self.output,
            self.count,
            self.seed,
            name="reference" if is_reference else "generated",
            max_output_tokens=self.output.longest,
        )


def _refuse_empty_bursts(arrivals: Arrivals) -> None:
    if isinstance(arrivals, OnOff) and arrivals.mean_rate * (arrivals.on_s + arrivals.off_s) < _FEWEST_A_PERIOD:
        raise FieldError(
            "arrivals",
            f"bursts {arrivals.on_s:g} s long and {arrivals.off_s:g} s apart bring hardly a request each at this rate; "
            "give longer ones, or a higher rate",
        )


def objective_of(values: Values) -> Objective:
    """When a request is good.

    Raises:  FieldError
    """
    limits = [needed(values, name, parse_seconds) for name in ("max_ttft", "max_gap")]
    for name, limit_s in zip(("max_ttft", "max_gap"), limits, strict=True):
        if limit_s > MOST_SECONDS:
            raise FieldError(name, f"a limit of {limit_s:g} s promises nothing; give at most a day")
    return Objective(*limits)


def rates_of(values: Values) -> tuple[float, ...]:
    """The rates that were named; none where they are to be found.

    Raises:  FieldError
    """
    text = short_text(values, "rates")
    if not text:
        return ()
    with at("rates"):
        rates = parse_rates(text)
    if len(rates) > MOST_RATES:
        raise FieldError("rates", f"{len(rates)} rates were named; the page simulates up to {MOST_RATES}")
    return rates


def rates_around(at_once: SimulatedRow) -> str:
    """Rates below and above what a server can serve, as a person would write them; it is the row of requests all at once."""
    served_per_s = at_once.num_requests / at_once.makespan_s
    return ",".join(f"{share * served_per_s:.2g}" for share in _AROUND)


def refuse_too_much(workload: Workload, schedulers: Iterable[SchedulerSettings], num_rates: int) -> None:
    """More than a browser simulates while somebody waits.

    Raises:  FieldError
    """
    works = [_Work.of(workload, each) for each in schedulers]
    longest, total = max(works, key=lambda work: work.steps), num_rates * sum(work.steps for work in works)
    if longest.steps >= _MOST_STEPS:
        raise FieldError(
            longest.mostly if len(workload) <= REFERENCE_COUNT else "requests",
            f"one run would take about {_said(longest.steps)}; {_LESS.format(_said(_MOST_STEPS))}",
        )
    if total > _MOST_STEPS_IN_ALL:
        raise FieldError(
            "policies",
            f"{len(works)} policies at {num_rates} rates would take about {_said(total)}; "
            f"{_LESS.format(_said(_MOST_STEPS_IN_ALL))}, fewer policies or fewer rates",
        )


_LESS: Final = "the page simulates up to {}: ask for fewer requests, shorter ones"


class _Work(NamedTuple):
    """How long a run takes, in steps of the plain loop, and the field that most of them are from."""

    steps: int
    mostly: str

    @staticmethod
    def of(workload: Workload, scheduler: SchedulerSettings) -> _Work:
        """What a run of this workload takes."""
        together = min(scheduler.max_running, scheduler.budget)  # no step holds more positions than its budget
        ahead = work_ahead(workload, replace(scheduler, max_running=together))
        pieces = _PIECE_COSTS * (ahead.most_steps - ahead.output_tokens - ahead.num_requests)
        costs = 1 if needs_reference(scheduler) is None else _READABLE_COSTS
        mostly = "prompt_lengths" if pieces > ahead.expected_steps else "output_lengths"
        return _Work((ahead.expected_steps + pieces) * costs, mostly)


def _said(steps: int) -> str:
    return f"{format_count(steps)} steps"
