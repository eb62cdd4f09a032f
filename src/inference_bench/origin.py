"""How far a number can be trusted; every figure that is shown carries one of these."""

from __future__ import annotations

from enum import StrEnum


class Origin(StrEnum):
    """Where a figure comes from."""

    PUBLISHED = "published"  # printed by a vendor or an author; see its source
    GIVEN = "given"  # said by whoever asked; not checked
    COUNTED = "counted"  # exact arithmetic on a model's own shape
    BOUND = "bound"  # a limit that physics sets, under stated traffic
    PREDICTED = "predicted"  # a bound times a stated efficiency
    SIMULATED = "simulated"  # a seeded model of a scheduler
    MEASURED = "measured"  # timed on a real machine
