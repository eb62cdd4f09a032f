"""What each number of the formula multiplies in a step that was measured.

In:   StepObservation, ServedModel, the two ceilings
Out:  Measured: a step's batches as seconds at the full ceilings, its measured time, how much it counts
Leaves out: the numbers themselves (solving), and which of them are free (candidates)
Read next by: candidates, fitting.

The sums over who is in a step are the simulator's (`StepTime.load_of` and `parts_of`), so that what is fitted is what is simulated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from inference_bench.calibrate.steps.observations import StepObservation
from inference_bench.errors import RequestError
from inference_bench.facts.fields import shown
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.step_sources import Ceilings
from inference_bench.simulate.step_time import StepPart, StepTime
from inference_bench.simulate.step_work import work_form
from inference_bench.stats import Interval, median

_LEAST_S: Final = 1e-8
_MOST_S: Final = 1e5
_MOST_POSITIONS: Final = 1 << 32
_Z_95: Final = 1.96
MODEL_ERROR: Final = 0.02  # what a good formula is wrong by where measuring adds nothing: no step counts for more


class BatchWork(NamedTuple):
    """The work of one batch.

    Where:  moved is what is written and the state, vector the weights read once for every position
    Unit:   seconds at the full ceilings; sequences and positions are counts
    """

    weights: float
    moved: float
    cache: float
    products: float
    pairs: float
    vector: float
    sequences: int
    positions: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A step that was measured, as the formula sees it.

    Where:  weight is 1 at most, less where the interval of the time is wide; group counts the weight formats of a fit over
            several
    """

    batches: tuple[BatchWork, ...]
    seconds: float
    includes_request: bool
    weight: float = 1.0
    group: int = 0


def measured_steps(
    observations: Sequence[StepObservation], served: ServedModel, ceilings: Ceilings, group: int = 0
) -> tuple[Measured, ...]:
    """Observations as the formula sees them.

    Formula:  weight = e² / (e² + s²), e the 2 % that a good formula is wrong by, s the standard error of the time
    Where:    a time without an interval counts as the middle one of those that have one, and fully where none has
    Raises:   RequestError for a time that is none, or a step that computes nothing
    """
    for each in observations:
        _require_usable(each)
    form = work_form(served)
    work = StepTime(form.coefficients, form.windows)
    weights = _weights(observations)
    return tuple(
        Measured(
            tuple(_batch_work(work, batch, ceilings) for batch in each.batches),
            each.seconds,
            each.includes_request,
            weight,
            group,
        )
        for each, weight in zip(observations, weights, strict=True)
    )


def _require_usable(each: StepObservation) -> None:
    if not _LEAST_S <= each.seconds <= _MOST_S:
        raise RequestError(
            f"the time of {each.setting!r} is {each.seconds!r} s; a step takes from {_LEAST_S:g} to {_MOST_S:g} s: measure it again, "
            "or leave it out"
        )
    if not each.batches or not all(each.batches):
        raise RequestError(f"{each.setting!r} has a batch in which nothing is computed; give what each sequence brings")
    for part in (part for batch in each.batches for part in batch):
        if not (1 <= part.new <= _MOST_POSITIONS and 0 <= part.cached <= _MOST_POSITIONS):
            raise RequestError(
                f"a sequence of {each.setting!r} has {shown(part.new)} new position(s) after {shown(part.cached)}; 1 or more after "
                f"0 or more are needed, {_MOST_POSITIONS} at most"
            )


def _batch_work(work: StepTime, batch: Sequence[StepPart], ceilings: Ceilings) -> BatchWork:
    load = work.load_of(batch)
    found = work.parts_of(load)
    bandwidth, compute = ceilings.bandwidth_bytes_per_s, ceilings.compute_flops_per_s
    return BatchWork(
        weights=found.weight_bytes / bandwidth,
        moved=found.moved_bytes / bandwidth,
        cache=found.cache_bytes / bandwidth,
        products=found.product_flops / compute,
        pairs=found.attention_flops / compute,
        vector=work.coefficients.weight_bytes_of_one * load.positions / bandwidth,
        sequences=load.sequences,
        positions=load.positions,
    )


def _weights(observations: Sequence[StepObservation]) -> list[float]:
    errors = [_relative_error(each.interval, each.seconds) for each in observations]
    known = [error for error in errors if error is not None]
    usual = median(known) if known else 0.0
    squares = [(usual if error is None else error) ** 2 for error in errors]
    return [MODEL_ERROR**2 / (MODEL_ERROR**2 + square) for square in squares]


def _relative_error(interval: Interval | None, seconds: float) -> float | None:
    """The standard error of a time, as a share of it: its interval taken as a normal one's."""
    if interval is None:
        return None
    width = interval.high - interval.low
    return width / (2 * _Z_95 * seconds) if 0 <= width < math.inf else None
