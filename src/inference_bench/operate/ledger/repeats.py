"""Is the same request here twice? Records that were read already, and ids that stand in more than one place.

In:   the place of each record in what its process wrote; request ids
Out:  whether a record is new; how many ids come again in another source
Leaves out: what is done about it (flow)
Read next by: lines, flow.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final
from zlib import crc32

_MOST_IDS: Final = 65_536


class SeenRecords:
    """The records read so far, as runs of numbers of each process: a file given twice, or a copy of it, is read once."""

    def __init__(self) -> None:
        self._runs: dict[str, list[list[int]]] = {}

    def add(self, process: str, sequence: int) -> bool:
        """Whether this record is new."""
        runs = self._runs.setdefault(process, [])
        if runs and runs[-1][1] == sequence - 1:
            runs[-1][1] = sequence
            return True
        at = bisect_right(runs, sequence, key=lambda run: run[0])
        if at and runs[at - 1][1] >= sequence:
            return False
        if at and runs[at - 1][1] == sequence - 1:
            runs[at - 1][1] = sequence
        else:
            runs.insert(at, [sequence, sequence])
        return True


class RepeatedIds:
    """How many request ids come from more than one source: exact up to as many ids as are kept, of more by a sample."""

    def __init__(self, most_ids: int = _MOST_IDS) -> None:
        self._most_ids = most_ids
        self._one_in = 1
        self._source_of: dict[str, str] = {}
        self._repeated: set[str] = set()

    def add(self, request_id: str, source: str) -> None:
        """One id."""
        if self._one_in > 1 and crc32(request_id.encode("utf-8", "replace")) % self._one_in:
            return
        if self._source_of.setdefault(request_id, source) != source:
            self._repeated.add(request_id)
        if len(self._source_of) > self._most_ids:
            self._thin()

    @property
    def is_estimate(self) -> bool:
        """Whether only some of the ids were kept."""
        return self._one_in > 1

    def count(self) -> int:
        """Ids that stand in more than one source."""
        return len(self._repeated) * self._one_in

    def _thin(self) -> None:
        """Keep every second id, by a number that is the same for the same id."""
        self._one_in *= 2
        kept = [name for name in self._source_of if crc32(name.encode("utf-8", "replace")) % self._one_in == 0]
        self._source_of = {name: self._source_of[name] for name in kept}
        self._repeated &= set(kept)
