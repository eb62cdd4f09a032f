"""Prefill on some servers and decode on others: what passes between them, and how long that takes.

In:   Disaggregation: the replicas that decode, and the link
Out:  Link, which says when a cache has arrived; Transfer; FirstTokens, by which a server only prefills
Leaves out: which replica gets it (routing) and what happens when one of the two fails (fleet)
Read next by: replica, fleet.

A request is read by a prefill server, which gives its first token; its cache is sent over; it joins a decode server with
its prompt filled and one token out, and owes one position, as if it had been read there. If it has to give way there,
its cache is gone and that server reads prompt and answer again itself: nothing goes back to a prefill server.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from inference_bench.errors import RequestError
from inference_bench.simulate.answers import Answers
from inference_bench.simulate.routing import RouterSettings, Routing
from inference_bench.simulate.sequence import Sequence

if TYPE_CHECKING:
    from inference_bench.simulate.autoscaling import AutoscalingSettings
    from inference_bench.simulate.replica import Replica, ReplicaSetup

NOTES: Final = (
    "a cache leaves its prefill server's memory at once, and takes room on its decode server from admission on",
    "a whole cache is sent once its prompt is read; layers are not sent while later ones are computed",
)


_LEAST_REQUESTS: Final = RouterSettings(Routing.LEAST_REQUESTS)


@dataclass(frozen=True, slots=True)
class Disaggregation:
    """The replicas that decode, and how caches reach them.

    Formula:  arrival = max(asked, link free) + bytes / bandwidth + latency; a link is free again before the latency has
              passed
    Where:    shares_link: each prefill replica has one link, first come first served; else every cache has its own
    Unit:     seconds, bytes per second
    Ignores:  what receives: the link of a decode replica is never full
    Raises:   RequestError for what cannot be
    """

    decode: tuple[ReplicaSetup, ...]
    bandwidth_bytes_per_s: float
    latency_s: float = 0.0
    shares_link: bool = True
    router: RouterSettings = _LEAST_REQUESTS
    autoscaling: AutoscalingSettings | None = None

    def __post_init__(self) -> None:
        if not self.decode:
            raise RequestError("there is no replica to decode; give at least one")
        if not 0 < self.bandwidth_bytes_per_s < math.inf:
            raise RequestError(
                f"a link of {self.bandwidth_bytes_per_s} bytes/s cannot be; it must be above 0 and finite"
            )
        if not 0 <= self.latency_s < math.inf:
            raise RequestError(f"a latency of {self.latency_s} s cannot be; it must be 0 or more and finite")
        if any(each.server.scheduler.prefix_cache for each in self.decode):
            raise RequestError(
                "a replica that only decodes takes whole caches over and shares none; switch its prefix cache off"
            )


class FirstTokens(Answers):
    """For a server that only prefills every answer ends with the token it gives."""

    def is_complete(self, sequence: Sequence) -> bool:  # noqa: ARG002  # whatever is still to come
        """The token just given is the last one here."""
        return True

    def remaining(self, sequence: Sequence) -> int:  # noqa: ARG002  # whatever is still to come
        """One."""
        return 1


@dataclass(slots=True, eq=False)
class Transfer:
    """A cache on its way, or waiting for a replica that can take it.

    Where:  is_cut: one of its ends has failed, and it will not arrive
    Unit:   bytes; seconds since the workload began
    """

    sequence: Sequence
    source: Replica
    over: Disaggregation
    num_bytes: int
    asked_s: float
    target: Replica | None = None
    is_cut: bool = False


@dataclass(slots=True)
class Link:
    """The way out of a prefill replica."""

    free_s: float = 0.0

    def send(self, transfer: Transfer, now_s: float) -> float:
        """A cache is sent from now on; when it has arrived.

        Unit:  seconds since the workload began
        """
        began_s = max(now_s, self.free_s) if transfer.over.shares_link else now_s
        sent_s = began_s + transfer.num_bytes / transfer.over.bandwidth_bytes_per_s
        self.free_s = max(self.free_s, sent_s)
        return sent_s + transfer.over.latency_s


@dataclass(slots=True)
class TransferTotals:
    """Caches that have arrived.

    Where:  seconds are from the first token to the arrival of the cache, waiting for the link or a replica included
    Unit:   bytes, seconds
    """

    count: int = 0
    num_bytes: int = 0
    seconds: float = 0.0

    @property
    def mean_s(self) -> float | None:
        """How long one took on average; None where there was none."""
        return self.seconds / self.count if self.count else None

    def add(self, transfer: Transfer, now_s: float) -> None:
        """One more has arrived."""
        self.count += 1
        self.num_bytes += transfer.num_bytes
        self.seconds += now_s - transfer.asked_s
