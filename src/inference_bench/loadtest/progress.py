"""How far is a load: one line, at most ten times a second.

In:   each record as it ends
Out:  a sentence for whoever shows progress
Leaves out: the terminal (cli)
Read next by: session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.units import format_number, format_seconds

LEAST_PAUSE_S: Final = 0.1


class ProgressMeter:
    """Counts what ended and says so.

    Where:    clock is the run's; num_planned is 0 where nobody knows, length_s None likewise
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._say, self._clock = say, clock
        self._said_s = float("-inf")
        self.begin("")

    def begin(self, what: str, num_planned: int = 0, length_s: float | None = None) -> None:
        """A new part of the run begins, such as one rate of a sweep."""
        self._what, self._num_planned, self._length_s = what, num_planned, length_s
        self._began_s = self._clock()
        self._num_ended = self._num_failed = self._num_tokens = 0

    def note(self, record: RequestRecord) -> None:
        """A request has ended."""
        self._num_ended += 1
        self._num_failed += record.status not in (RequestStatus.COMPLETED, RequestStatus.CANCELLED)
        self._num_tokens += record.output_tokens or len(record.chunk_times_s)
        self._say_at_times()

    def count(self, num_ended: int, num_planned: int) -> None:
        """So many have ended, where other processes send and only their counts are known yet."""
        self._num_ended, self._num_planned = num_ended, num_planned
        self._say_at_times()

    def _say_at_times(self) -> None:
        now_s = self._clock()
        if now_s - self._said_s >= LEAST_PAUSE_S:
            self._said_s = now_s
            self._say(self.text(now_s))

    def text(self, now_s: float) -> str:
        """How far it is."""
        elapsed_s = max(now_s - self._began_s, 1e-9)
        of_all = f" of {self._num_planned}" if self._num_planned else ""
        left_s = self._left_s(elapsed_s)
        parts = (
            f"{self._num_ended}{of_all} ended",
            f"{format_number(self._num_ended / elapsed_s)} req/s",
            f"{format_number(self._num_tokens / elapsed_s)} tok/s" if self._num_tokens else "",
            f"{self._num_failed} failed" if self._num_failed else "",
            format_seconds(elapsed_s) + (f", {format_seconds(left_s)} left" if left_s is not None else ""),
        )
        said = ", ".join(filter(None, parts))
        return f"{self._what}: {said}" if self._what else said

    def _left_s(self, elapsed_s: float) -> float | None:
        if self._length_s is not None:
            return max(0.0, self._length_s - elapsed_s)
        if not self._num_planned or not self._num_ended:
            return None
        return elapsed_s * max(0, self._num_planned - self._num_ended) / self._num_ended
