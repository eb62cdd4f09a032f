"""How well is it known when chunks arrived: what the client's own reading may hide, chunk by chunk.

In:   the parts of a reply and how many chunks were complete after each
Out:  read delays, shared stamps, when this client was away for long, and for each chunk in doubt the latest moment before
      which it surely had not come
Leaves out: what that does to a percentile (client_health); what the chunks say
Read next by: client_health.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from inference_bench.measure.http1 import Part


STALL_S: Final = 0.002  # a client that is later was away, and not just woken


class Doubt(NamedTuple):
    """Chunks of one read whose stamp may be later than they came.

    Where:    they are those from `begin` up to, without, `end`, counted within their request; nothing of the read had
              come at drained_s, and it returned at read_s
    """

    begin: int
    end: int
    drained_s: float
    read_s: float


@dataclass(slots=True)
class Receipt:
    """How the chunks of one request were received.

    Where:    num_user of the chunks have this program's own stamp; num_shared have the stamp of the one before; of
              num_closing, usually the last, the stamp is that of what follows it in the same read, such as the finish
              reason; gather_s is how long what came was let wait at most; stalls as in Receipts
    Ignores:  of those, that the stamp may be later than they came, by the read delay at most: one in a reply
    """

    num_chunks: int = 0
    num_user: int = 0
    num_shared: int = 0
    num_closing: int = 0
    gather_s: float = 0.0
    read_delays_s: array[float] = field(default_factory=lambda: array("d"))
    stalls: array[float] = field(default_factory=lambda: array("d"))
    _doubts: array[float] = field(default_factory=lambda: array("d"))
    _time_s: float = -1.0
    _read_s: float = -1.0

    def note(self, part: Part, num_chunks: int, is_last: bool = True) -> None:
        """After this part, so many chunks of the request were complete; is_last: nothing in it came after the last of them."""
        time_s, _, read_s, drained_s, is_kernel, is_whole = part
        if is_kernel and read_s != self._read_s:
            self.read_delays_s.append(delay_s := read_s - time_s)
            if delay_s > STALL_S:
                self.stalls.extend((read_s, delay_s))
        self._read_s = read_s
        first, self.num_chunks = self.num_chunks, num_chunks
        num_new = num_chunks - first
        if not num_new:
            return
        num_shared = num_new - (time_s != self._time_s)
        self._time_s = time_s
        self.num_shared += num_shared
        self.num_closing += is_kernel and is_whole and not is_last
        if is_kernel and is_whole:  # of the chunks with one stamp it is that of the last
            if num_shared:
                self._doubts.extend((num_chunks - 1 - num_shared, num_chunks - 1, drained_s, read_s))
        else:
            self.num_user += 0 if is_kernel else num_new
            self._doubts.extend((first, num_chunks, drained_s, read_s))

    @property
    def has_doubts(self) -> bool:
        """Whether any stamp may be late."""
        return bool(self._doubts)

    def doubts(self) -> Iterator[Doubt]:
        """The chunks whose stamp may be late, in order; those of one read together."""
        for at in range(0, len(self._doubts), 4):
            begin, end, drained_s, read_s = self._doubts[at : at + 4]
            yield Doubt(int(begin), int(end), drained_s, read_s)


@dataclass(slots=True)
class Receipts:
    """How the chunks of a run were received; the doubts by the request's id.

    Where:    gather_s is how long what came was let wait on purpose, at most; stalls has, two by two, when this client
              was back and for how long it may have been away
    """

    num_chunks: int = 0
    num_user: int = 0
    num_shared: int = 0
    num_closing: int = 0
    gather_s: float = 0.0
    read_delays_s: array[float] = field(default_factory=lambda: array("d"))
    stalls: array[float] = field(default_factory=lambda: array("d"))
    of_request: dict[str, Receipt] = field(default_factory=dict)

    def add(self, request_id: str, receipt: Receipt) -> None:
        """Take in a request that has ended."""
        self.num_chunks += receipt.num_chunks
        self.num_user += receipt.num_user
        self.num_shared += receipt.num_shared
        self.num_closing += receipt.num_closing
        self.gather_s = max(self.gather_s, receipt.gather_s)
        self.read_delays_s.extend(receipt.read_delays_s)
        self.stalls.extend(receipt.stalls)
        if receipt.has_doubts:
            self.of_request[request_id] = receipt

    def note_lag(self, now_s: float, lag_s: float, period_s: float) -> None:
        """A task that looks every period_s whether it is time came so late; up to a period more is unseen."""
        if lag_s > STALL_S:
            self.stalls.extend((now_s, lag_s + period_s))
