"""One server of several: whether it is up, who is there, and what it has done so far.

In:   ReplicaSetup
Out:  Replica, with a ReplicaView for the router and a ReplicaRecord at the end
Leaves out: when it is ordered, fails or ends (fleet), and who is sent there (routing)
Read next by: fleet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from inference_bench.simulate.answers import Answers, Journey
from inference_bench.simulate.disaggregated import Link, Transfer
from inference_bench.simulate.kv_blocks import BlockAccount
from inference_bench.simulate.routing import ReplicaView
from inference_bench.simulate.sequence import Sequence
from inference_bench.simulate.server import Server
from inference_bench.simulate.settings import ServerSetup
from inference_bench.simulate.step_time import StepTime

_RESTART_SEEDS = 1_000_003  # apart the draws of a server and of the one that takes its place


@dataclass(frozen=True, slots=True)
class ReplicaSetup:
    """A server with its speed."""

    server: ServerSetup
    step_time: StepTime


class State(Enum):
    """Where a replica is between its order and its end."""

    STARTING = auto()
    SERVING = auto()
    DRAINING = auto()  # serves those it has, and ends when they have gone
    DOWN = auto()
    GONE = auto()


@dataclass(frozen=True, slots=True)
class ReplicaRecord:
    """What a replica did.

    Where:  num_requests were sent there, retries included; up and down are the times at which it served (draining included)
            and was failed, starting up is neither; replica_seconds run from its order to its end, failures included: it is
            paid; busy_s counts steps that a failure has cut, too
    Unit:   seconds since the workload began; bytes of cache
    """

    index: int
    pool: int
    num_requests: int
    num_steps: int
    num_preemptions: int
    busy_s: float
    peak_bytes: int
    up: tuple[tuple[float, float], ...]
    down: tuple[tuple[float, float], ...]
    replica_seconds: float

    @property
    def up_s(self) -> float:
        """How long it served.

        Unit:  seconds
        """
        return sum(end - start for start, end in self.up)


@dataclass(slots=True)
class _Done:
    """What servers did that have failed since."""

    num_steps: int = 0
    num_preemptions: int = 0
    busy_s: float = 0.0
    peak_bytes: int = 0


class Replica:
    """A server that can be started, drained, lost and replaced by one with an empty cache."""

    def __init__(
        self, index: int, pool: int, setup: ReplicaSetup, answers: Answers, journeys: dict[int, Journey], seed: int
    ) -> None:
        self.index, self.pool, self.setup = index, pool, setup
        self.state = State.STARTING
        self.accepts = False  # whether the router sends requests: until it knows of a failure it does
        self.returns = True  # whether it serves again after a failure
        self.is_stepping = False
        self.epoch = 0  # how often it has failed: what was under way before is void
        self.num_requests = 0
        self.ordered_s = 0.0
        self.link = Link()
        self.sending: list[Transfer] = []
        self.arriving: list[Transfer] = []
        self._answers, self._journeys, self._seed = answers, journeys, seed
        self._done = _Done()
        self._spans: list[tuple[State, float, float]] = []
        self._since_s = 0.0
        self.server = self._new_server()

    def _new_server(self) -> Server:
        seed = self._seed + self.index + _RESTART_SEEDS * self.epoch
        server = Server(self.setup.server, self.setup.step_time, self._answers, seed)
        server.journeys = self._journeys
        return server

    def order(self, now_s: float) -> None:
        """It is paid from now on, and starts."""
        self.ordered_s = self._since_s = now_s

    @property
    def is_up(self) -> bool:
        """Whether it takes steps."""
        return self.state in (State.SERVING, State.DRAINING)

    @property
    def num_waiting(self) -> int:
        """Requests that wait there, or whose caches are on their way there."""
        return len(self.server.scheduler.waiting) + len(self.arriving)

    @property
    def num_present(self) -> int:
        """Requests that wait or run there."""
        return self.num_waiting + len(self.server.scheduler.running)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is there, on its way there, or on its way from there."""
        return not (self.num_present or self.sending)

    @property
    def may_serve(self) -> bool:
        """Whether requests are sent there now, or will be."""
        return self.accepts or self.state is State.STARTING or (self.state is State.DOWN and self.returns)

    @property
    def used_bytes(self) -> int:
        """Cache that is taken by the step in progress."""
        return self.server.used_bytes if self.is_stepping else 0

    @property
    def fullness(self) -> float:
        """Runners as a share of those allowed, or their cache of what there is: the larger."""
        running, settings = self.server.scheduler.running, self.setup.server
        held = self.server.account.held_bytes(running) / settings.memory.budget_bytes
        return max(len(running) / settings.scheduler.max_running, held)

    def view(self) -> ReplicaView:
        """It as a router sees it."""
        scheduler = self.server.scheduler
        waiting = [*scheduler.waiting, *(each.sequence for each in self.arriving)]
        account = self.server.account
        if isinstance(account, BlockAccount):
            return ReplicaView(self.index, waiting, scheduler.running, account.cached_positions)
        return ReplicaView(self.index, waiting, scheduler.running)

    def begin_step(self, now_s: float) -> float:
        """A step begins; when it will end.

        Unit:    seconds since the workload began
        Raises:  RequestError where no progress is possible
        """
        self.is_stepping = True
        self.server.now_s = now_s
        return self.server.begin_step()

    def end_step(self) -> list[Sequence]:
        """The step is done: who has ended with it."""
        self.is_stepping = False
        return self.server.end_step()

    def enter(self, state: State, now_s: float) -> None:
        """It is something else from now on."""
        self._spans.append((self.state, self._since_s, now_s))
        self.state, self._since_s = state, now_s
        if state is State.SERVING:
            self.accepts = True
        elif state in (State.DRAINING, State.GONE):
            self.accepts = False

    def fail(self, now_s: float, returns: bool) -> None:
        """It fails. Nothing of the step in progress is done; who was there stays until the router knows."""
        self.returns = returns and self.state is State.SERVING
        self.enter(State.DOWN, now_s)
        done, server = self._done, self.server
        done.num_steps += server.num_steps
        done.num_preemptions += server.num_preemptions
        done.busy_s += server.busy_s + (now_s - server.now_s if self.is_stepping else 0.0)
        done.peak_bytes = max(done.peak_bytes, server.peak_bytes)
        server.num_steps = server.num_preemptions = server.peak_bytes = 0
        server.busy_s = 0.0
        self.is_stepping = False
        self.epoch += 1

    def clear(self) -> list[Sequence]:
        """The router knows of the failure: who was there, in order of admission and of the queue."""
        scheduler = self.server.scheduler
        lost = [*scheduler.running, *scheduler.waiting, *(each.sequence for each in self.sending)]
        self.sending.clear()
        self.accepts = False
        self.server = self._new_server()
        return lost

    def record(self, now_s: float) -> ReplicaRecord:
        """What it did until now, or until it ended."""
        spans = [*self._spans, (self.state, self._since_s, now_s)]
        done, server = self._done, self.server
        return ReplicaRecord(
            index=self.index,
            pool=self.pool,
            num_requests=self.num_requests,
            num_steps=done.num_steps + server.num_steps,
            num_preemptions=done.num_preemptions + server.num_preemptions,
            busy_s=done.busy_s + server.busy_s,
            peak_bytes=max(done.peak_bytes, server.peak_bytes),
            up=joined((start, end) for state, start, end in spans if state in (State.SERVING, State.DRAINING)),
            down=joined((start, end) for state, start, end in spans if state is State.DOWN),
            replica_seconds=(self._since_s if self.state is State.GONE else now_s) - self.ordered_s,
        )


def joined(spans: Iterable[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Spans in order of time, with those that touch made one and empty ones left out."""
    whole: list[tuple[float, float]] = []
    for start, end in spans:
        if whole and whole[-1][1] == start:
            whole[-1] = (whole[-1][0], end)
        elif end > start:
            whole.append((start, end))
    return tuple(whole)
