"""A measured step as parts that add up to it, and changes with what each would gain.

In:   nothing; plain values
Out:  GapPart, StepGap, Change, GapReading
Leaves out: how they are computed (decompose, changes)
Read next by: charts, report.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """What the time of a step goes to."""

    WEIGHTS = "weights at full bandwidth"
    CACHE = "cache at full bandwidth"
    COMPUTE = "compute at full rate"
    BANDWIDTH_LOST = "bandwidth not reached"
    COMPUTE_LOST = "compute rate not reached"
    CACHE_LOST = "cache read slower than weights"
    FIXED = "fixed overhead"
    BATCHING = "batching loss"  # weights read again for sequences of the same step
    REQUEST = "request handling"
    UNEXPLAINED = "unexplained"  # measured less the fitted formula; may be negative


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
    """One measured step; its parts add up to measured_s exactly."""

    title: str
    measured_s: float
    bound_s: float
    predicted_s: float
    parts: tuple[GapPart, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the model, the setting or the load, with what the fitted formula says it would gain.

    Formula:  gain = tokens/s after / tokens/s before - 1, at the step named in `at`
    Where:    is_assumed says that a number behind it was not measured here (an acceptance rate, a format's kernel); words say
              what is changed and why it helps or does not; ceiling_gain is what the bytes and FLOPs alone promise
    """

    name: str
    at: str
    before_s: float
    after_s: float
    gain: float
    ceiling_gain: float
    is_assumed: bool
    words: str


@dataclass(frozen=True, slots=True)
class GapReading:
    """Where the time goes and what would help, best change first."""

    steps: tuple[StepGap, ...]
    changes: tuple[Change, ...]
    sentences: tuple[str, ...]
