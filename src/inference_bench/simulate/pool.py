"""Replicas that do the same work, with the queue in front of them.

In:   ReplicaSetups, RouterSettings, AutoscalingSettings
Out:  Pool: who takes requests, how loaded they are, which one is taken away
Leaves out: events (fleet)
Read next by: fleet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Values

from inference_bench.simulate.answers import Answers
from inference_bench.simulate.autoscaling import Autoscaler, AutoscalingSettings, ScalingSignal
from inference_bench.simulate.disaggregated import Transfer
from inference_bench.simulate.replica import Replica, ReplicaSetup, State
from inference_bench.simulate.routing import RouterSettings, router_of
from inference_bench.simulate.sequence import Sequence


class Pool:
    """The replicas of one kind of work: all of it, prefill, or decode."""

    def __init__(
        self,
        number: int,
        template: ReplicaSetup,
        answers: Answers,
        router: RouterSettings,
        scaling: AutoscalingSettings | None,
    ) -> None:
        self.number, self.template, self.answers = number, template, answers
        self.replicas: list[Replica] = []
        self.queue: deque[tuple[Sequence, Transfer | None]] = deque()  # those for whom there is no replica
        self.router = router_of(router)
        self.autoscaler = None if scaling is None else Autoscaler(scaling)

    @property
    def is_dead(self) -> bool:
        """Whether no replica serves or ever will."""
        return self.autoscaler is None and not any(each.may_serve for each in self.replicas)

    @property
    def num_ordered(self) -> int:
        """Replicas that serve, start, or will be back."""
        return sum(each.may_serve for each in self.replicas)

    def choose(self, sequence: Sequence) -> int | None:
        """The index of the replica that gets it; None where there is none."""
        views = [each.view() for each in self.replicas if each.accepts]
        return self.router.choose(sequence, views) if views else None

    def load(self, signal: ScalingSignal) -> float:
        """What the autoscaler looks at, over all replicas that take requests."""
        serving = [each for each in self.replicas if each.accepts]
        if signal is ScalingSignal.RUNNING_SHARE:
            return sum(each.fullness for each in serving)
        return len(self.queue) + sum(each.num_waiting for each in serving)

    def surplus(self) -> Replica | None:
        """Which replica is taken away: the newest that has not started, else the one with the fewest requests."""
        starting = [each for each in self.replicas if each.state is State.STARTING]
        if starting:
            return starting[-1]
        return _emptiest([each for each in self.replicas if each.accepts and each.state is State.SERVING])


def _emptiest(replicas: Values[Replica]) -> Replica | None:
    """The newest of those with the fewest requests."""
    return min(replicas, key=lambda each: (each.num_present, -each.index), default=None)
