"""Which slot a request gets, where an engine keeps a stream of cache for each.

In:   how many slots there are; who takes one and who leaves one
Out:  a slot's number
Leaves out: what it matters for (micro_batches)
Read next by: scheduler.
"""

from __future__ import annotations

from collections import deque


class Slots:
    """Slots that are handed out and come back: first those that nobody has used, the highest first, then the longest idle.

    Ignores: a slot whose last prompt begins like the new one, which the engine prefers
    Source:  llama.cpp of 2026, tools/server: the idle slot that was left longest ago, the last of those that are alike
    """

    def __init__(self, count: int) -> None:
        self._unused = count
        self._left: deque[int] = deque()

    def take(self) -> int:
        """A slot for a request. There is one: no more run than there are slots."""
        if self._unused:
            self._unused -= 1
            return self._unused
        return self._left.popleft()

    def leave(self, slot: int) -> None:
        """A request has left its slot."""
        self._left.append(slot)
