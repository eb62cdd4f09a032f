"""How far the simulation of a server is from its log.

In:   RequestLog, ServerSetup, StepTime
Out:  LogComparison: signed errors as fractions on the mean and percentiles of TTFT and TPOT, and on the makespan
Leaves out: why (fitting says which numbers would close the gap)
Read next by: fitting, report, cli.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.calibrate.log import RequestLog
from inference_bench.simulate.outcome import Outcome
from inference_bench.simulate.run import simulate
from inference_bench.simulate.settings import ServerSetup
from inference_bench.simulate.step_time import StepTime
from inference_bench.stats import quantile

POINTS: Final = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"))


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is compared, by name: ttft_mean, ttft_p50, …, tpot_p99, makespan; None where no request has it.

    Unit:  seconds
    """

    values: dict[str, float | None]

    @classmethod
    def of(cls, ttft_s: Sequence[float], tpot_s: Sequence[float], makespan_s: float) -> Statistics:
        """The statistics of a run."""
        return cls({**_described("ttft", ttft_s), **_described("tpot", tpot_s), "makespan": makespan_s})

    @classmethod
    def of_log(cls, log: RequestLog) -> Statistics:
        """What was measured."""
        return cls.of(log.ttft_s, log.tpot_s, log.makespan_s)

    @classmethod
    def of_outcome(cls, outcome: Outcome) -> Statistics:
        """What was simulated, by the same definitions."""
        return cls.of(
            outcome_ttft_s(outcome), outcome_tpot_s(outcome), max(outcome.last_token_s) - outcome.arrival_s[0]
        )


def _described(name: str, values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return dict.fromkeys((f"{name}_mean", *(f"{name}_{label}" for _, label in POINTS)))
    ordered = sorted(values)
    return {
        f"{name}_mean": sum(ordered) / len(ordered),
        **{f"{name}_{label}": quantile(ordered, point) for point, label in POINTS},
    }


def outcome_ttft_s(outcome: Outcome) -> list[float]:
    """Simulated time to first token of each request."""
    return [first - came for came, first in zip(outcome.arrival_s, outcome.first_token_s, strict=True)]


def outcome_tpot_s(outcome: Outcome) -> list[float]:
    """Simulated time per output token after the first, of requests that have one."""
    counts = outcome.workload.requests.output_tokens
    return [
        (last - first) / (count - 1)
        for first, last, count in zip(outcome.first_token_s, outcome.last_token_s, counts, strict=True)
        if count > 1
    ]


@dataclass(frozen=True, slots=True)
class Preemptions:
    """How often requests gave way; measured None where the log does not say."""

    measured: int | None
    simulated: int


@dataclass(frozen=True, slots=True)
class LogComparison:
    """A log beside its simulation.

    Formula:  error = simulated / measured - 1; None where nothing was measured
    """

    measured: Statistics
    simulated: Statistics
    preemptions: Preemptions
    num_requests: int
    num_steps: int
    notes: tuple[str, ...]

    @property
    def errors(self) -> dict[str, float | None]:
        """Signed fractions by name."""
        return {name: _error(self.simulated.values[name], value) for name, value in self.measured.values.items()}

    def worst(self, prefix: str) -> float | None:
        """The largest error, without its sign, of the names that begin so."""
        known = [abs(error) for name, error in self.errors.items() if name.startswith(prefix) and error is not None]
        return max(known, default=None)


def _error(simulated: float | None, measured: float | None) -> float | None:
    return simulated / measured - 1 if simulated is not None and measured else None


def compare_with_log(log: RequestLog, setup: ServerSetup, step_time: StepTime) -> LogComparison:
    """The log's requests on the simulated server, and how far that is from what was measured.

    Raises:  RequestError naming a request that can never run there
    """
    return comparison_of(log, simulate(log.workload(), setup, step_time), step_time)


def comparison_of(log: RequestLog, outcome: Outcome, step_time: StepTime) -> LogComparison:
    """The comparison with a simulation that was run already."""
    return LogComparison(
        measured=Statistics.of_log(log),
        simulated=Statistics.of_outcome(outcome),
        preemptions=Preemptions(log.preemptions, outcome.num_preemptions),
        num_requests=len(log),
        num_steps=outcome.num_steps,
        notes=(*log.notes, *outcome.notes, *step_time.notes),
    )
