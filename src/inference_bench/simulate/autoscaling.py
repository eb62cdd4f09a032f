"""How many replicas should there be: more when requests wait, fewer when they do not, and neither at once.

In:   AutoscalingSettings, at each check how loaded the replicas are and how many there are
Out:  how many to order or to take away; ScalingEvent
Leaves out: which replica goes, and how it is drained (fleet)
Read next by: fleet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from inference_bench.errors import RequestError

_LEAST_INTERVAL_S: Final = 0.001  # a clock still moves by it wherever a run may end


class ScalingSignal(StrEnum):
    """What is looked at, added up over the replicas that serve."""

    WAITING = "waiting"  # requests that wait, at the router too
    RUNNING_SHARE = "running-share"  # how full each is: runners of those allowed, or cache of what there is, the larger


@dataclass(frozen=True, slots=True)
class AutoscalingSettings:
    """When replicas are ordered and taken away.

    Formula:  wanted = ceil(n · (load / n) / target), within min_replicas to max_replicas; unchanged while
              |load / (n · target) - 1| <= tolerance
    Where:    n counts replicas that were ordered, ready or not; load is the signal's sum; more are ordered at once, one is
              taken away a check, and only cool_down_s after the last change; a replica serves start_up_s after its order
    Unit:     seconds; target in requests or as a share, of one replica
    Raises:   RequestError for what cannot be
    Source:   Kubernetes, Horizontal Pod Autoscaling, algorithm details (defaults: a check each 15 s, tolerance 0.1, 300 s
              before pods are taken away)
    """

    min_replicas: int = 1
    max_replicas: int = 8
    signal: ScalingSignal = ScalingSignal.WAITING
    target: float = 4.0
    check_interval_s: float = 15.0
    start_up_s: float = 60.0
    cool_down_s: float = 300.0
    tolerance: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise RequestError(
                f"from {self.min_replicas} to {self.max_replicas} replicas: at least 1, and not more than the most"
            )
        for value, what in ((self.target, "target of a replica"), (self.check_interval_s, "time between checks")):
            if not 0 < value < math.inf:
                raise RequestError(f"the {what} is {value}; it must be above 0 and finite")
        if self.check_interval_s < _LEAST_INTERVAL_S:
            raise RequestError(
                f"the time between checks is {self.check_interval_s} s, in which no run would get anywhere; give "
                f"{_LEAST_INTERVAL_S} s or more"
            )
        for value, what in (
            (self.start_up_s, "start-up time"),
            (self.cool_down_s, "cool-down time"),
            (self.tolerance, "tolerance"),
        ):
            if not 0 <= value < math.inf:
                raise RequestError(f"the {what} is {value}; it must be 0 or more and finite")


class ScalingEvent(NamedTuple):
    """Replicas were ordered (change above 0) or one was told to end (below 0).

    Where:  pool is 0, or 1 for the replicas that only decode; load is what the signal said
    Unit:   seconds since the workload began
    """

    time_s: float
    pool: int
    change: int
    replicas: int
    load: float


class Autoscaler:
    """Who decides at each check."""

    def __init__(self, settings: AutoscalingSettings) -> None:
        self.settings = settings
        self._changed_s = -math.inf

    def change(self, now_s: float, load: float, num_replicas: int) -> int:
        """How many replicas to order, or minus one to take one away.

        Where:  num_replicas were ordered and have not been told to end
        """
        change = self._wanted(load, num_replicas) - num_replicas
        if change < 0:
            change = -1 if now_s - self._changed_s >= self.settings.cool_down_s else 0
        if change:
            self._changed_s = now_s
        return change

    def _wanted(self, load: float, num_replicas: int) -> int:
        settings = self.settings
        wanted = num_replicas
        if abs(load - num_replicas * settings.target) > settings.tolerance * num_replicas * settings.target:
            wanted = math.ceil(load / settings.target)
        return max(settings.min_replicas, min(settings.max_replicas, wanted))
