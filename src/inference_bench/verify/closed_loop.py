"""What was predicted of a load before it ran, beside what then happened.

In:   nothing; plain values
Out:  Figure, LoadRow, LoadCheck, CapacityCheck, MemoryRow
Leaves out: how they are found (load_check, capacity_check, memory)
Read next by: charts, report.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.stats import Interval
from inference_bench.units import format_number


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a load.

    Formula:  error = predicted / measured - 1
    Where:    target is the largest |error| that counts as reached, None where none is set; count is how many samples stand
              behind the measured one
    Unit:     by the name: _s seconds, _per_s a rate
    """

    name: str
    predicted: float | None
    measured: float | None
    count: int | None = None
    target: float | None = None

    @property
    def error(self) -> float | None:
        """Signed, as a fraction; None where either is not known or nothing was measured."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted / self.measured - 1

    @property
    def is_reached(self) -> bool | None:
        """Whether the error is within its target; None without one."""
        error = self.error
        return None if error is None or self.target is None else abs(error) <= self.target


@dataclass(frozen=True, slots=True)
class LoadRow:
    """One load at one rate, simulated before it was sent.

    Where:    place is below, near or past the knee, at capacity or above it; predicted_ttft_s and its siblings hold every completed
              request, for charts: predicted and measured in the order of the workload, None where a request did not complete
    """

    place: str
    rate: float
    realised_rate: float | None
    num_requests: int
    num_completed: int
    figures: tuple[Figure, ...]
    predicted_ttft_s: tuple[float, ...] = ()
    measured_ttft_s: tuple[float | None, ...] = ()
    predicted_e2e_s: tuple[float, ...] = ()
    measured_e2e_s: tuple[float | None, ...] = ()
    notes: tuple[str, ...] = ()

    def figure(self, name: str) -> Figure | None:
        """The figure of this name."""
        return next((figure for figure in self.figures if figure.name == name), None)


@dataclass(frozen=True, slots=True)
class LoadCheck:
    """Loads below, near and past the knee.

    Where:    saturation_rate is the rate that the simulated server can just sustain; rules are the engine's own, in words
    Unit:     requests/s
    """

    workload: str
    saturation_rate: float
    rules: tuple[str, ...]
    rows: tuple[LoadRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CapacityCheck:
    """The highest rate within objectives, predicted, and two runs that confirm it or do not.

    Where:    ttft_s and gap_s are the limits of a p99, None where none is set; is_confirmed: the run at the predicted rate
              keeps the objectives and the one above does not; None where a run failed or the prediction is that none keeps
              them; measured_rate is the largest rate up to which every run that was sent keeps them; crossing_rate is where
              a line through the runs crosses the objectives, None where they do not lie on both sides of them; contradiction
              is a rate that keeps them and a lower one that does not, which leaves everything undecided
    Unit:     requests/s, seconds
    """

    objective: str
    ttft_s: float | None
    gap_s: float | None
    predicted_rate: float | None
    interval: Interval | None
    at_rate: LoadRow | None
    above_rate: LoadRow | None
    is_confirmed: bool | None
    measured_rate: float | None
    reading: str
    crossing_rate: float | None = None
    contradiction: tuple[float, float] | None = None

    @property
    def contradiction_words(self) -> str:
        """That a lower rate misses the objectives while a higher one keeps them; nothing where none does."""
        if self.contradiction is None:
            return ""
        kept, missed = map(format_number, self.contradiction)
        return f"undecided: {kept}/s kept it while {missed}/s did not, so something disturbed the runs"

    @property
    def error(self) -> float | None:
        """The predicted rate over the one at which the runs cross the objectives, less one."""
        if self.predicted_rate is None or not self.crossing_rate:
            return None
        return self.predicted_rate / self.crossing_rate - 1


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A figure of memory that an engine states, beside ours.

    Where:    difference is ours less theirs, 0 where the engine's digits say what ours would print as, None where it states none;
              rule is what explains ours, or the difference
    Unit:     by `unit`
    """

    engine: str
    setting: str
    what: str
    unit: str
    predicted: int
    reported: str
    difference: int | None
    rule: str

    @property
    def agrees(self) -> bool:
        """Whether there is no difference."""
        return self.difference == 0
