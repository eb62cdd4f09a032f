"""How well is it known when chunks arrived: what the client's own reading may hide, chunk by chunk.

In:   the parts of a reply and how many chunks were complete after each
Out:  read delays, shared stamps, and for each chunk the latest moment before which it surely had not come
Leaves out: what that does to a percentile (client_health); what the chunks say
Read next by: client_health.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from inference_bench.measure.http1 import Part


class Doubt(NamedTuple):
    """A chunk whose stamp may be later than it came.

    Where:    `chunk` counts the chunks of its request; nothing of its read had come at drained_s, and the read returned
              at read_s
    """

    chunk: int
    drained_s: float
    read_s: float


@dataclass(slots=True)
class Receipt:
    """How the chunks of one request were received.

    Where:    num_user of the chunks have this program's own stamp; num_shared have the stamp of the one before
    """

    num_chunks: int = 0
    num_user: int = 0
    num_shared: int = 0
    read_delays_s: array[float] = field(default_factory=lambda: array("d"))
    _doubts: array[float] = field(default_factory=lambda: array("d"))
    _time_s: float = -1.0
    _last: Part | None = None

    def note(self, part: Part, num_chunks: int) -> None:
        """After this part, so many chunks of the request were complete."""
        is_new_read = self._last is None or part.read_s != self._last.read_s
        if is_new_read and part.is_kernel:
            self.read_delays_s.append(part.read_s - part.time_s)
        for index in range(self.num_chunks, num_chunks):
            self._add_chunk(index, part)
        self.num_chunks = num_chunks
        self._last = part

    @property
    def has_doubts(self) -> bool:
        """Whether any stamp may be late."""
        return bool(self._doubts)

    def doubts(self) -> Iterator[Doubt]:
        """The chunks whose stamp may be late, in order."""
        for at in range(0, len(self._doubts), 3):
            index, drained_s, read_s = self._doubts[at : at + 3]
            yield Doubt(int(index), drained_s, read_s)

    def _add_chunk(self, index: int, part: Part) -> None:
        """Of the chunks with one stamp it is that of the last, where the read ended with it."""
        is_shared = part.time_s == self._time_s
        self.num_shared += is_shared
        self.num_user += not part.is_kernel
        self._time_s = part.time_s
        if not part.is_kernel or not part.is_whole:
            self._doubts.extend((index, part.drained_s, part.read_s))
        elif is_shared:
            self._doubts.extend((index - 1, part.drained_s, part.read_s))


@dataclass(slots=True)
class Receipts:
    """How the chunks of a run were received; the doubts by the request's id."""

    num_chunks: int = 0
    num_user: int = 0
    num_shared: int = 0
    read_delays_s: array[float] = field(default_factory=lambda: array("d"))
    of_request: dict[str, Receipt] = field(default_factory=dict)

    def add(self, request_id: str, receipt: Receipt) -> None:
        """Take in a request that has ended."""
        self.num_chunks += receipt.num_chunks
        self.num_user += receipt.num_user
        self.num_shared += receipt.num_shared
        self.read_delays_s.extend(receipt.read_delays_s)
        if receipt.has_doubts:
            self.of_request[request_id] = receipt
