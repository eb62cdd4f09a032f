"""A measured step as parts that add up to it, and changes with what each would gain.

In:   nothing; plain values
Out:  Cause, CauseKind, GapPart, StepGap, Change, GapReading
Leaves out: how they are computed (decompose, changes)
Read next by: decompose, changes, reading, charts, report.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inference_bench.roofline import LimitedBy


class CauseKind(StrEnum):
    """What sort of time it is."""

    FULL_RATE = "at full rate"  # what bytes and FLOPs take at the measured ceilings
    LOST = "lost"  # rates that are not reached, and what is read again
    OVERHEAD = "overhead"  # neither bytes nor FLOPs
    UNEXPLAINED = "unexplained"


class Cause(StrEnum):
    """What the time of a step goes to."""

    WEIGHTS = "weights at full bandwidth"
    CACHE = "cache at full bandwidth"
    COMPUTE = "compute at full rate"
    BANDWIDTH_LOST = "bandwidth not reached"
    CACHE_LOST = "cache read slower than weights"
    COMPUTE_LOST = "compute rate not reached"
    BATCHING = "batching loss"  # weights read again for sequences of the same step
    FIXED = "fixed overhead"
    SEQUENCE = "time per sequence"
    REQUEST = "request handling"
    UNEXPLAINED = "unexplained"  # measured less the fitted formula; may be negative

    @property
    def kind(self) -> CauseKind:
        """What sort of time it is."""
        return _KINDS[self]


_KINDS = {
    **dict.fromkeys((Cause.WEIGHTS, Cause.CACHE, Cause.COMPUTE), CauseKind.FULL_RATE),
    **dict.fromkeys((Cause.BANDWIDTH_LOST, Cause.CACHE_LOST, Cause.COMPUTE_LOST, Cause.BATCHING), CauseKind.LOST),
    **dict.fromkeys((Cause.FIXED, Cause.SEQUENCE, Cause.REQUEST), CauseKind.OVERHEAD),
    Cause.UNEXPLAINED: CauseKind.UNEXPLAINED,
}


@dataclass(frozen=True, slots=True)
class GapPart:
    """One part of a step.

    Unit:  seconds; share is of the measured step
    """

    cause: Cause
    seconds: float
    share: float
    words: str


@dataclass(frozen=True, slots=True)
class StepGap:
    """One measured step; its parts add up to measured_s.

    Where:  parts are in the order of Cause, those that take no time left out, the unexplained always the last; bound_s is what
            no step of this work takes less than at the measured ceilings, and limited_by what sets it; predicted_s is the
            fitted formula's
    """

    title: str
    measured_s: float
    bound_s: float
    predicted_s: float
    parts: tuple[GapPart, ...]
    limited_by: LimitedBy = LimitedBy.UNKNOWN

    def seconds(self, *causes: Cause) -> float:
        """What these causes take together; 0 for one that takes no time."""
        return sum(part.seconds for part in self.parts if part.cause in causes)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the model, the setting or the load, with what the fitted formula says it would gain.

    Formula:  gain = tokens/s after / tokens/s before - 1, at the step named in `at`; ceiling_gain is the same of the bounds
    Where:    before_s and after_s are the steps' times by the fitted formula, which may hold different numbers of tokens;
              is_assumed says that a number behind it was not measured here (an acceptance rate, a format's kernel); words say
              what is changed and why it helps or does not; ceiling_gain is what the bytes and FLOPs alone promise; is_choice
              tells a format or a load that one can choose from what a better kernel or engine would reach at most
    """

    name: str
    at: str
    before_s: float
    after_s: float
    gain: float
    ceiling_gain: float
    is_assumed: bool
    words: str
    is_choice: bool = True


@dataclass(frozen=True, slots=True)
class GapReading:
    """Where the time goes and what would help: changes of the first step best first, then those of the next."""

    steps: tuple[StepGap, ...]
    changes: tuple[Change, ...]
    sentences: tuple[str, ...]
