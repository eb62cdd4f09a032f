"""Which replica gets a request: in turn, by how much waits there, or by whose cache may know its prompt.

In:   the Sequence to place, a ReplicaView of each replica that takes requests
Out:  Router, which names one of them
Leaves out: how long answers will be (a Sequence does not say), how fast a replica is, and what waits when there is none
Read next by: fleet.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection
from collections.abc import Sequence as Values
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from inference_bench.errors import RequestError
from inference_bench.simulate.sequence import Sequence
from inference_bench.workload import Segment


class Routing(StrEnum):
    """What a router goes by. Ties go to the lowest index."""

    ROUND_ROBIN = "round-robin"  # in turn
    LEAST_REQUESTS = "least-requests"  # the fewest that wait or run
    LEAST_WORK = "least-work"  # the fewest positions still to read
    PREFIX_AWARE = "prefix-aware"  # who knows most of the prompt, unless it is much busier than others


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """How requests are spread.

    Formula:  prefix-aware goes to the favourite if work(favourite) <= max_load_factor · least work + load_slack_tokens
    Where:    remembered_prefixes are kept per replica, the least recently sent forgotten first
    Unit:     tokens
    Raises:   RequestError for what cannot be
    Source:   SGLang's cache-aware router, whose guard is a factor together with a difference
    """

    routing: Routing = Routing.ROUND_ROBIN
    max_load_factor: float = 2.0
    load_slack_tokens: int = 4096
    remembered_prefixes: int = 10_000

    def __post_init__(self) -> None:
        if not 1 <= self.max_load_factor < 1e300:
            raise RequestError(f"the load factor of the router is {self.max_load_factor}; it must be at least 1")
        if self.load_slack_tokens < 0:
            raise RequestError(f"the load slack of the router is {self.load_slack_tokens} tokens; it must be 0 or more")
        if self.remembered_prefixes < 1:
            raise RequestError(f"the router remembers {self.remembered_prefixes} prefixes; it must be 1 or more")


def _nothing_cached(sequence: Sequence) -> int:  # noqa: ARG001  # a cache that is not shared knows no prompt
    return 0


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """What a router may know of a replica: who waits and who runs there now, as sequences without their answers' length.

    Where:  waiting includes those whose caches are on their way there; cached_tokens says of how many tokens of a prompt
            its cache has the keys and values; the step in progress counts as not yet done
    """

    index: int
    waiting: Collection[Sequence]
    running: Collection[Sequence]
    cached_tokens: Callable[[Sequence], int] = _nothing_cached

    @property
    def num_requests(self) -> int:
        """Requests that wait or run."""
        return len(self.waiting) + len(self.running)

    @property
    def outstanding_tokens(self) -> int:
        """Work that is known: positions still to be read before each sequence's next token.

        Unit:     tokens
        Ignores:  the tokens that are still to come, which nobody knows
        """
        return sum(each.owed for each in self.waiting) + sum(each.owed for each in self.running)


class Router(Protocol):
    """Who chooses a replica."""

    def choose(self, sequence: Sequence, replicas: Values[ReplicaView]) -> int:
        """The index of the replica that gets it, out of those given: at least one, in order of their indices."""
        ...

    def forget(self, index: int) -> None:
        """A replica has lost its cache."""
        ...


def router_of(settings: RouterSettings) -> Router:
    """A router at its start."""
    match settings.routing:
        case Routing.ROUND_ROBIN:
            return _InTurn()
        case Routing.LEAST_REQUESTS:
            return _Least(lambda view: view.num_requests)
        case Routing.LEAST_WORK:
            return _Least(_work)
        case Routing.PREFIX_AWARE:
            return _ByPrefix(settings)


def _work(view: ReplicaView) -> int:
    return view.outstanding_tokens


class _InTurn:
    """The next index after the last one chosen; those that take no requests are passed over."""

    def __init__(self) -> None:
        self._last = -1

    def choose(self, sequence: Sequence, replicas: Values[ReplicaView]) -> int:  # noqa: ARG002  # all requests are alike
        later = (view.index for view in replicas if view.index > self._last)
        self._last = next(later, replicas[0].index)
        return self._last

    def forget(self, index: int) -> None:
        """Nothing was known."""


class _Least:
    """The one with the least of something."""

    def __init__(self, load: Callable[[ReplicaView], int]) -> None:
        self._load = load

    def choose(self, sequence: Sequence, replicas: Values[ReplicaView]) -> int:  # noqa: ARG002  # all requests are alike
        return min(replicas, key=lambda view: (self._load(view), view.index)).index

    def forget(self, index: int) -> None:
        """Nothing was known."""


class _ByPrefix:
    """The one that knows most of the prompt, from its cache or because such a prompt was sent there not long ago."""

    def __init__(self, settings: RouterSettings) -> None:
        self._settings = settings
        self._sent = PrefixMemory(settings.remembered_prefixes)

    def choose(self, sequence: Sequence, replicas: Values[ReplicaView]) -> int:
        path = self._sent.path_of(sequence)
        work = {view.index: view.outstanding_tokens for view in replicas}
        known = {view.index: max(view.cached_tokens(sequence), self._sent.known(view.index, path)) for view in replicas}
        favourite = min(work, key=lambda index: (-known[index], work[index], index))
        least = min(work, key=lambda index: (work[index], index))
        limit = self._settings.max_load_factor * work[least] + self._settings.load_slack_tokens
        chosen = favourite if known[favourite] and work[favourite] <= limit else least
        self._sent.add(chosen, path)
        return chosen

    def forget(self, index: int) -> None:
        self._sent.forget(index)


@dataclass(frozen=True, slots=True)
class _Prefix:
    """The leading tokens of a prompt up to the end of one of its segments."""

    key: int
    num_tokens: int


class PrefixMemory:
    """Which prefixes were sent to which replica, so many of them at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys: dict[tuple[int, Segment], int] = {}
        self._roots: dict[tuple[int, int], int] = {}
        self._sent: defaultdict[int, OrderedDict[int, None]] = defaultdict(OrderedDict)

    def path_of(self, sequence: Sequence) -> list[_Prefix]:
        """The prefixes of a prompt, shortest first; prompts of other tenants or adapters have none in common with it."""
        key = self._roots.setdefault(sequence.salt, -1 - len(self._roots))
        path, num_tokens = [], 0
        for segment in sequence.content:
            key = self._keys.setdefault((key, segment), len(self._keys))
            num_tokens += segment.num_tokens
            path.append(_Prefix(key, num_tokens))
        return path

    def known(self, index: int, path: list[_Prefix]) -> int:
        """The longest of a prompt's prefixes that was sent to a replica.

        Unit:  tokens
        """
        sent, longest = self._sent[index], 0
        for prefix in path:
            if prefix.key not in sent:
                break
            longest = prefix.num_tokens
        return longest

    def add(self, index: int, path: list[_Prefix]) -> None:
        """A prompt is sent to a replica."""
        sent = self._sent[index]
        for prefix in reversed(path):  # the shortest is the freshest: it is forgotten after those that need it
            sent[prefix.key] = None
            sent.move_to_end(prefix.key)
        while len(sent) > self._most:
            sent.popitem(last=False)

    def forget(self, index: int) -> None:
        """A replica has lost its cache."""
        self._sent.pop(index, None)
