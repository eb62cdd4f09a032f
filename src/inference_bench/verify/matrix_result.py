"""What a matrix found: each combination's steps beside what its bytes promised.

In:   nothing; plain values that matrix.py fills in
Out:  MatrixResult: a row for each combination, the one all are compared with, gains
Leaves out: each run's own result, which is in its folder
Read next by: charts, report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from inference_bench.compare import Phase
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.measure.ceilings import ProbeResult
from inference_bench.roofline import Bound, Roof
from inference_bench.stats import median
from inference_bench.verify.matrix_axes import Combination, MatrixAxes

ROUNDS_AGREE: Final = 0.25  # as a share of the middle, up to which rounds lie together


class Outcome(StrEnum):
    """What came of a combination; one that does not compose is no failure of the run."""

    MEASURED = "measured"
    NOT_COMPOSED = "not composed"
    FAILED = "failed"


class Step(NamedTuple):
    """What was asked for: times are compared between combinations, and rounds pooled, where all three are the same.

    Where:    nominal_context_tokens is how long each prompt was to be
    """

    phase: Phase
    batch: int
    nominal_context_tokens: int


@dataclass(frozen=True, slots=True)
class MatrixPoint:
    """One step of a combination, over all of its rounds.

    Formula:  seconds is the median over rounds of each round's own figure
    Where:    rounds_s holds those; tokens is how many come of one step; context_tokens is what the server counted: the positions that
              each sequence attends, or the prompt
    Unit:     seconds
    """

    step: Step
    context_tokens: int
    tokens: int
    bound: Bound
    rounds_s: tuple[float, ...]

    @property
    def phase(self) -> Phase:
        """Whether it decodes or reads a prompt."""
        return self.step.phase

    @property
    def batch(self) -> int:
        """Sequences at once."""
        return self.step.batch

    @property
    def seconds(self) -> float:
        """The time of the step."""
        return median(self.rounds_s)

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second over the whole batch, measured."""
        return self.tokens / self.seconds

    @property
    def bound_tokens_per_s(self) -> float | None:
        """The same at the ceiling."""
        return self.tokens / self.bound.seconds if self.bound.seconds else None

    @property
    def flops_per_s(self) -> float:
        """Work done a second."""
        return self.bound.flops / self.seconds

    @property
    def rounds_apart(self) -> float | None:
        """How far the rounds lie apart, as a share of the middle; None with one round."""
        return (max(self.rounds_s) - min(self.rounds_s)) / self.seconds if len(self.rounds_s) > 1 else None


@dataclass(frozen=True, slots=True)
class Gain:
    """How much faster one step is than another: what the ceilings promised, and what was measured.

    Formula:  promised = bound of the other / bound; measured = time of the other / time, both per token
    Where:    is_apart is whether every round of the one was on the same side of every round of the other; None with one round each
    """

    promised: float | None
    measured: float
    is_apart: bool | None = None


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One combination.

    Where:    said is why nothing was measured, in the engine's own words where it has any; weight_bytes is what a step reads of the
              weights; runs are the folders of its rounds; notes are what was odd in them
    Unit:     bytes, exact
    """

    combination: Combination
    outcome: Outcome
    said: str = ""
    engine: str = ""
    weights: str = ""
    cache: str = ""
    weight_bytes: int | None = None
    ceiling: Roof | None = None
    points: tuple[MatrixPoint, ...] = ()
    runs: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def decode(self) -> tuple[MatrixPoint, ...]:
        """Its decode steps, by batch and then by context."""
        return tuple(sorted((p for p in self.points if p.phase is Phase.DECODE), key=lambda point: point.step))

    @property
    def alone(self) -> MatrixPoint | None:
        """The decode step of one sequence."""
        return self.of_batch(1)

    def of_batch(self, batch: int | None) -> MatrixPoint | None:
        """The decode step of so many sequences."""
        return next((point for point in self.decode if point.batch == batch), None)

    @property
    def prefill(self) -> MatrixPoint | None:
        """The longest prompt."""
        prompts = [point for point in self.points if point.phase is Phase.PREFILL]
        return max(prompts, key=lambda point: point.step.nominal_context_tokens, default=None)

    def cache_bytes(self, point: MatrixPoint) -> int | None:
        """What a step moves beside the weights: the cache it reads and writes, and the rows of the input table."""
        return None if self.weight_bytes is None else point.bound.num_bytes - self.weight_bytes

    def at(self, other: MatrixPoint | None) -> MatrixPoint | None:
        """Its own point of the same step as another's; None where it has none."""
        return None if other is None else next((point for point in self.points if point.step == other.step), None)


Pick = Callable[[MatrixRow], MatrixPoint | None]


def gain(point: MatrixPoint | None, over: MatrixPoint | None) -> Gain | None:
    """How much faster per token one point is than another; None where either is not there, or they are of other contexts.

    Where:    both are of one step, or of two batches of it
    """
    if point is None or over is None or point.step._replace(batch=1) != over.step._replace(batch=1):
        return None
    ours, theirs = point.bound_tokens_per_s, over.bound_tokens_per_s
    promised = ours / theirs if ours is not None and theirs else None
    return Gain(promised, point.tokens_per_s / over.tokens_per_s, _is_apart(point, over))


def _is_apart(point: MatrixPoint, over: MatrixPoint) -> bool | None:
    if len(point.rounds_s) < 2 and len(over.rounds_s) < 2:
        return None
    ours, theirs = ([one.tokens / seconds for seconds in one.rounds_s] for one in (point, over))
    return max(ours) < min(theirs) or max(theirs) < min(ours)


@dataclass(frozen=True, slots=True)
class MatrixResult:
    """A whole matrix, its rows in the order in which they were asked for.

    Where:    machine holds the ceilings under which all rows stand; is_interrupted says that a person ended it early, so that
              rounds are missing
    """

    started_at: str
    elapsed_s: float
    axes: MatrixAxes
    model: str
    model_sha256: str
    machine: HardwareSpec
    probe: ProbeResult | None
    rows: tuple[MatrixRow, ...]
    num_rounds: int
    seed: int
    folder: Path
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False

    @property
    def measured(self) -> tuple[MatrixRow, ...]:
        """The combinations that were measured."""
        return tuple(row for row in self.rows if row.outcome is Outcome.MEASURED)

    @property
    def not_composed(self) -> tuple[MatrixRow, ...]:
        """Those that an engine does not take."""
        return tuple(row for row in self.rows if row.outcome is Outcome.NOT_COMPOSED)

    @property
    def failed(self) -> tuple[MatrixRow, ...]:
        """Those that were taken and failed."""
        return tuple(row for row in self.rows if row.outcome is Outcome.FAILED)

    @property
    def largest_batch(self) -> int | None:
        """The largest batch that every combination was measured at, or else the base; None where that is one sequence."""
        batches = [{point.batch for point in row.decode} for row in self.measured if row.decode]
        base = self.base
        shared = set.intersection(*batches) if batches else set()
        known = shared - {1} or ({point.batch for point in base.decode} - {1} if base else set())
        return max(known, default=None)

    def largest(self, row: MatrixRow) -> MatrixPoint | None:
        """A combination's decode step of that batch."""
        return None if self.largest_batch is None else row.of_batch(self.largest_batch)

    @property
    def base(self) -> MatrixRow | None:
        """What all are compared with: of the first engine, the combination whose step of one sequence moves most bytes.

        Where:    where a cache was too small for the others' step, one that has the step which most have goes first
        """
        known = [(row, point) for row in self.measured if (point := row.alone) is not None]
        engine = next((name for name in self.axes.engine for row, _ in known if row.combination.engine == name), None)
        steps = Counter(point.step for _, point in known)
        first = [
            (steps[point.step], point.bound.num_bytes, row) for row, point in known if row.combination.engine == engine
        ]
        return max(first, key=lambda item: item[:2], default=(0, 0, None))[2]

    def alike(self, pick: Pick) -> list[tuple[MatrixRow, MatrixPoint]]:
        """The points that may be ranked: of the combinations that have the same step as the base, that one."""
        found = [(row, point) for row in self.measured if (point := pick(row)) is not None]
        base = None if self.base is None else pick(self.base)
        step = base.step if base is not None else found[0][1].step if found else None
        return [(row, point) for row, point in found if point.step == step]
