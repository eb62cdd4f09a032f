"""Alive, ready, with room: the words that a watch uses, and the figures behind them.

In:   nothing; these are plain immutable values
Out:  View, one server at one moment; Round, all of them; Tally, what a whole watch saw of one
Leaves out: how they are found out (observer), and what they mean together (judge)
Read next by: judge, observer, flow, exporter, report.

A server that loads its model is alive and not ready; one whose queue is full is ready and saturated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Alive(StrEnum):
    """Does anything answer there?"""

    YES = "alive"  # an HTTP answer came, whatever it says
    SILENT = "silent"  # a connection was taken, and no HTTP answer came in time
    NO = "down"  # no connection
    UNKNOWN = "unknown"  # no answer to the first question yet


class Ready(StrEnum):
    """Does it answer requests?"""

    YES = "ready"  # it gave a token, to a probe or to somebody else
    LISTED = "listed"  # it says that it serves a model, and nobody has made it prove that
    LOADING = "loading"  # HTTP 503 to a question, as servers answer while they load
    NO = "not ready"
    UNKNOWN = "unknown"


class Room(StrEnum):
    """Could it take more?"""

    ROOM = "room"  # nothing waits, and the cache has room
    FILLING = "filling"  # something waits that did not just before, or nine tenths of the cache are used
    SATURATED = "saturated"  # requests waited all the time lately, are thrown out of the cache, or are turned away
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Proof:
    """The last request for one token.

    Where:    age_s is how long ago it ended; took_s until its whole answer; failure why there was no token, None where there was one
    """

    age_s: float
    took_s: float
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """What a server's metrics come to; None for what it does not say.

    Where:    running, waiting and cache_used_fraction are of the last page; cache_headroom_tokens what its cache could still hold, and
              free_requests how many more requests it could compute at once, where it states its limits. Everything else is over
              window_s, the time that the pages span, since the server's last start: queue_growth_per_s is the slope of the line through
              the numbers waiting. age_s is how old the last page is
    """

    age_s: float
    window_s: float
    running: float | None = None
    waiting: float | None = None
    cache_used_fraction: float | None = None
    cache_headroom_tokens: float | None = None
    free_requests: float | None = None
    queue_growth_per_s: float | None = None
    output_tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    preemptions_per_s: float | None = None
    prefix_hit_fraction: float | None = None
    ttft_mean_s: float | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """How often something happened since the watch began."""

    num_scrapes: int = 0
    num_scrape_failures: int = 0
    num_scrape_timeouts: int = 0
    num_late: int = 0  # times at which it was not asked, as the answer before had not come
    num_probes: int = 0
    num_probe_failures: int = 0
    num_probe_timeouts: int = 0
    num_restarts: int = 0
    num_model_changes: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """One server at one moment.

    Where:    engine is whose names its metrics have, and model what it lists; reasons are the words behind the three answers, and
              events what happened since the view before. token_age_s is how long ago a token is known to have come out of it, to a probe or
              by its own count; queue its numbers waiting, the oldest first
    """

    name: str
    base_url: str
    alive: Alive
    ready: Ready
    room: Room
    reasons: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    engine: str | None = None
    version: str | None = None
    model: str | None = None
    figures: Figures | None = None
    proof: Proof | None = None
    token_age_s: float | None = None
    queue: tuple[float, ...] = ()
    counts: Counts = Counts()


@dataclass(frozen=True, slots=True)
class Round:
    """All servers at one moment.

    Where:    at is the wall clock, ISO 8601 in UTC, to show and for nothing else; elapsed_s is on the monotonic clock
    """

    number: int
    at: str
    elapsed_s: float
    views: tuple[View, ...]

    @property
    def all_alive(self) -> bool:
        """Whether every server answers."""
        return all(view.alive is Alive.YES for view in self.views)

    def all_ready(self, listed_is_enough: bool) -> bool:
        """Whether every server is alive and ready; one that was not made to prove it counts where that is enough."""
        enough = {Ready.YES, Ready.LISTED} if listed_is_enough else {Ready.YES}
        return self.all_alive and all(view.ready in enough for view in self.views)


@dataclass(frozen=True, slots=True)
class Tally:
    """What a watch saw of one server: in how many of its rounds it was what."""

    name: str
    num_rounds: int
    num_alive: int
    num_ready: int
    num_saturated: int
    counts: Counts
