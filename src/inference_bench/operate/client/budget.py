"""How much time has a request left? One budget, begun once, which every attempt and every pause takes from.

In:   a monotonic clock and a number of seconds
Out:  Budget
Read next by: backoff, course, attempts.
"""

from __future__ import annotations

from collections.abc import Callable


class Budget:
    """The time of one request.

    Unit:     seconds, on the clock it was given
    """

    __slots__ = ("_clock", "begin_s", "deadline_s", "total_s")

    def __init__(self, clock: Callable[[], float], total_s: float) -> None:
        self._clock, self.total_s = clock, total_s
        self.begin_s = clock()
        self.deadline_s = self.begin_s + total_s

    def elapsed_s(self) -> float:
        """Since the request began."""
        return self._clock() - self.begin_s

    def left_s(self) -> float:
        """Until the deadline; below 0 after it."""
        return self.deadline_s - self._clock()

    def since_begin_s(self, time_s: float) -> float:
        """A reading of the clock as seconds since the request began; nothing is later than the deadline."""
        return min(time_s - self.begin_s, self.total_s)
