"""For how long was at least one request in flight? The union of very many spans of time, in bounded memory.

In:   spans, about in the order in which they ended
Out:  seconds that are covered by one or more of them
Read next by: flow.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

_MOST_WAITING: Final = 8_192
_MOST_SPANS: Final = 65_536


class BusyTime:
    """Spans put together as they come.

    Where:    bridged_s are pauses counted as busy: the shortest ones, where more spans lie apart than are kept
    """

    def __init__(self, most_spans: int = _MOST_SPANS) -> None:
        self._most_spans = most_spans
        self._apart: list[tuple[float, float]] = []
        self._waiting: list[tuple[float, float]] = []
        self.bridged_s = 0.0

    def add(self, begin_s: float, end_s: float) -> None:
        """One span; one that ends before it begins is none."""
        if end_s > begin_s:
            self._waiting.append((begin_s, end_s))
            if len(self._waiting) >= _MOST_WAITING:
                self._merge()

    def seconds(self) -> float:
        """What is covered."""
        self._merge()
        return sum(end_s - begin_s for begin_s, end_s in self._apart)

    def _merge(self) -> None:
        if not self._waiting:
            return
        merged: list[tuple[float, float]] = []
        for begin_s, end_s in sorted(self._apart + self._waiting):
            if merged and begin_s <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end_s))
            else:
                merged.append((begin_s, end_s))
        self._apart, self._waiting = merged, []
        if len(merged) > self._most_spans:
            self._bridge()

    def _bridge(self) -> None:
        """Take the shortest pauses for busy, so that half as many spans are left."""
        pauses = sorted(after[0] - before[1] for before, after in pairwise(self._apart))
        longest_s = pauses[len(pauses) - self._most_spans // 2]
        kept = [self._apart[0]]
        for begin_s, end_s in self._apart[1:]:
            if (pause_s := begin_s - kept[-1][1]) < longest_s:
                self.bridged_s += pause_s
                kept[-1] = (kept[-1][0], end_s)
            else:
                kept.append((begin_s, end_s))
        self._apart = kept if len(kept) < len(self._apart) else [(self._apart[0][0], self._apart[-1][1])]
