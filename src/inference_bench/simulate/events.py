"""What is going to happen, in the order in which it will: by time, then by kind, then by when it was planned.

In:   times, kinds, and what to do then
Out:  Events
Read next by: fleet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush


class Kind(IntEnum):
    """What happens first of what happens at one moment."""

    STEP_END = 0
    CACHE_ARRIVED = 1
    FAILURE = 2
    FAILURE_KNOWN = 3
    READY = 4
    CHECK = 5


class Events:
    """What is going to happen, by time, kind, and order of planning."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Kind, int, Callable[[], None]]] = []
        self._count = 0

    def __len__(self) -> int:
        """How much is going to happen."""
        return len(self._heap)

    @property
    def next_s(self) -> float:
        """When the next happens; infinite where nothing does."""
        return self._heap[0][0] if self._heap else math.inf

    def add(self, time_s: float, kind: Kind, action: Callable[[], None]) -> None:
        """Something will happen."""
        heappush(self._heap, (time_s, kind, self._count, action))
        self._count += 1

    def happen(self, now_s: float, last: Kind) -> None:
        """All that is due, up to this kind."""
        while self._heap and self._heap[0][0] <= now_s and self._heap[0][1] <= last:
            heappop(self._heap)[3]()
