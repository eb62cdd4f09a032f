"""The formulas of a step's time that are tried, and what a fit of one of them says.

In:   nothing; plain values
Out:  StepForm, StepParameter, StepCandidate, StepCalibration
Leaves out: fitting
Read next by: fitting, gap, verify, report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from inference_bench.calibrate.steps.observations import StepKind, StepObservation
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.step_profile import StepProfile
from inference_bench.simulate.step_sources import Shares
from inference_bench.simulate.step_time import StepTime
from inference_bench.stats import Interval, median


class StepForm(StrEnum):
    """How memory and compute time make up a step."""

    ADDITIVE = "additive"  # bytes / BW + FLOPs / C: nothing overlaps
    MAXIMUM = "maximum"  # the longer of the two: everything overlaps
    ADDITIVE_VECTOR = "additive, vector kernel"  # additive, or the weights read once a position where that is quicker
    MAXIMUM_VECTOR = "maximum, vector kernel"


@dataclass(frozen=True, slots=True)
class StepParameter:
    """One fitted number.

    Where:    name is that of a field of Shares, or request_s (what a request takes besides its steps); interval is None where
              the sweep does not tell it from others, and note says so in words; is_assumed says that it was not free at all,
              is_told that the steps move it from what is usual
    Unit:     a fraction of the measured ceiling, or seconds (name ends in _s)
    """

    name: str
    value: float
    interval: Interval | None
    note: str = ""
    is_assumed: bool = False
    is_told: bool = True


@dataclass(frozen=True, slots=True)
class FittedObservation:
    """An observation beside what the fitted formula says of it.

    Formula:  error = predicted / measured - 1
    """

    observation: StepObservation
    predicted_s: float

    @property
    def error(self) -> float:
        """Signed, as a fraction."""
        return self.predicted_s / self.observation.seconds - 1


@dataclass(frozen=True, slots=True)
class StepCandidate:
    """A formula that was tried.

    Where:    errors are medians of |error|, held_out_mean their mean, each counted as 50 % at most, by which candidates are
              chosen and sorted; None without such observations; num_parameters are those that were free
    """

    form: StepForm
    free: tuple[str, ...]
    fit_error: float
    held_out_error: float | None
    held_out_p90: float | None
    worst_held_out: float | None
    held_out_mean: float | None = None

    @property
    def num_parameters(self) -> int:
        """How many numbers were fitted."""
        return len(self.free)


@dataclass(frozen=True, slots=True)
class StepCalibration:
    """The formula that is right on what it was not fitted to, with its numbers.

    Where:    shares are of the ceilings in `bandwidth_bytes_per_s` and `compute_flops_per_s`; request_s is what a request takes
              besides its steps; step_time is the simulator's; observations holds every one, held out or not. held_out_error,
              held_out_p90 and worst_held_out are of steps by which neither numbers nor formula were chosen (see choosing):
              the median, the 90th percentile and the largest of |error|; None where too few were held out. error_by_kind are
              medians of |error| over the held-out steps of a kind, over all of them where none was held out. candidates are
              sorted by their mean |error| on held-out steps, the least first
    """

    served: ServedModel = field(repr=False)
    form: StepForm
    shares: Shares
    request_s: float
    parameters: tuple[StepParameter, ...]
    candidates: tuple[StepCandidate, ...]
    observations: tuple[FittedObservation, ...]
    step_time: StepTime = field(repr=False)
    bandwidth_bytes_per_s: float
    compute_flops_per_s: float
    held_out_error: float | None
    error_by_kind: Mapping[StepKind, float]
    reading: tuple[str, ...]
    notes: tuple[str, ...]
    profile: StepProfile
    held_out_p90: float | None = None
    worst_held_out: float | None = None

    @property
    def chosen(self) -> StepCandidate | None:
        """The formula that was chosen, among those that were tried; None where it is not among them."""
        free = frozenset(each.name for each in self.parameters if not each.is_assumed)
        same = (each for each in self.candidates if each.form is self.form and frozenset(each.free) == free)
        return next(same, None)

    @property
    def held_out_error_by_kind(self) -> Mapping[StepKind, float]:
        """Of error_by_kind those of kinds of which a step was held out."""
        kinds = {each.observation.kind for each in self.observations if each.observation.is_held_out}
        return {kind: error for kind, error in self.error_by_kind.items() if kind in kinds}

    @property
    def num_held_out(self) -> int:
        """How many steps were kept from the fit."""
        return sum(each.observation.is_held_out for each in self.observations)

    @property
    def plain_held_out_error(self) -> float | None:
        """The median |error| of the chosen formula on held-out steps, which helped to choose it; None without any."""
        errors = [abs(each.error) for each in self.observations if each.observation.is_held_out]
        return median(errors) if errors else None

    def predict_s(self, observation: StepObservation) -> float:
        """What the formula says of a step.

        Unit:  seconds
        """
        return predict_step_s(self.step_time, self.request_s, observation)


def predict_step_s(step_time: StepTime, request_s: float, observation: StepObservation) -> float:
    """What a formula says of a step: all its batches, and the request where its time holds one.

    Unit:  seconds
    """
    steps_s = sum(step_time.step_s(batch) for batch in observation.batches)
    return steps_s + (request_s if observation.includes_request else 0.0)
