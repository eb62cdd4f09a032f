"""What several servers did: an Outcome like that of one, and what each of them did.

In:   FleetRun, which the fleet fills while it runs
Out:  FleetOutcome
Leaves out: percentiles and rates (summary); prices
Read next by: run, summary, capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Values
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from inference_bench.errors import InferenceBenchError
from inference_bench.metrics import Objective
from inference_bench.simulate.answers import Journey
from inference_bench.simulate.autoscaling import AutoscalingSettings, ScalingEvent
from inference_bench.simulate.disaggregated import NOTES, TransferTotals
from inference_bench.simulate.fleet_setup import FleetSetup
from inference_bench.simulate.outcome import Outcome, TimelineLog
from inference_bench.simulate.replica import Replica, ReplicaRecord, ReplicaSetup
from inference_bench.simulate.server import REFERENCE, pooled_gaps
from inference_bench.workload import Workload


@dataclass(frozen=True, slots=True)
class FleetOutcome:
    """A run of several servers.

    Where:  outcome has every request; those that failed are named in it, with the tokens they were given, and neither their
            gaps nor their stay (in_system_s) are counted; failed_s are the times at which they were given up, in the order
            of outcome.failed; retries are how often each request was sent again after a failure
    Unit:   seconds since the workload began
    """

    outcome: Outcome
    replicas: tuple[ReplicaRecord, ...]
    failed_s: tuple[float, ...]
    retries: tuple[int, ...]
    transfers: TransferTotals
    scaling: tuple[ScalingEvent, ...]
    end_s: float

    @property
    def failed_fraction(self) -> float:
        """Requests that got no whole answer, of all that arrived."""
        return len(self.failed_s) / len(self.retries)

    @property
    def retried_fraction(self) -> float:
        """Requests that were sent again at least once, of all that arrived."""
        return sum(1 for count in self.retries if count) / len(self.retries)

    @property
    def replica_seconds(self) -> float:
        """What is paid: every replica from its order to its end.

        Unit:  seconds
        """
        return sum(each.replica_seconds for each in self.replicas)

    @property
    def up_fraction(self) -> float | None:
        """Time that replicas served, of the time that is paid; None where none is."""
        paid_s = self.replica_seconds
        return sum(each.up_s for each in self.replicas) / paid_s if paid_s > 0 else None


class FleetRun:
    """What is known while a fleet runs; each request ends in it once."""

    def __init__(self, workload: Workload, setup: FleetSetup, arrival_s: Values[float]) -> None:
        self.workload, self.setup, self.arrival_s = workload, setup, arrival_s
        self.replicas: list[Replica] = []
        self.journeys: dict[int, Journey] = {}
        self.retries: Counter[int] = Counter()
        self.transfers = TransferTotals()
        self.scaling: list[ScalingEvent] = []
        self.timeline = TimelineLog()
        self.in_system_s = self.end_s = 0.0
        self.peak_bytes = 0
        self.failed_s: dict[int, float] = {}
        self._completed: set[int] = set()

    @property
    def num_ended(self) -> int:
        """Requests that are complete or were given up."""
        return len(self._completed) + len(self.failed_s)

    def complete(self, index: int) -> None:
        """A request has its whole answer.

        Raises:  InferenceBenchError where it had ended before
        """
        self._require_open(index)
        self._completed.add(index)

    def give_up(self, index: int, now_s: float) -> None:
        """A request gets no more.

        Raises:  InferenceBenchError where it had ended before
        """
        self._require_open(index)
        self.failed_s[index] = now_s

    def note_step(self, now_s: float, num_at_router: int) -> None:
        """A step has begun somewhere: how full all of them are."""
        waiting = num_at_router + sum(each.num_waiting for each in self.replicas)
        running = sum(len(each.server.scheduler.running) for each in self.replicas)
        used = sum(each.used_bytes for each in self.replicas)
        self.peak_bytes = max(self.peak_bytes, used)
        self.timeline.add(now_s, waiting, running, used)

    def _require_open(self, index: int) -> None:
        if index in self._completed or index in self.failed_s:
            raise InferenceBenchError(f"the simulation has ended request {index} twice; report this")


def fleet_outcome(run: FleetRun, objective: Objective) -> FleetOutcome:
    """The run, by request and by replica."""
    count = len(run.workload)
    records = tuple(each.record(run.end_s) for each in run.replicas)
    failed = sorted(run.failed_s)
    failed_s = tuple(run.failed_s[index] for index in failed)
    return FleetOutcome(
        outcome=_outcome(run, records, failed, objective),
        replicas=records,
        failed_s=failed_s,
        retries=tuple(run.retries[index] for index in range(count)),
        transfers=run.transfers,
        scaling=tuple(run.scaling),
        end_s=run.end_s,
    )


def _outcome(run: FleetRun, records: Iterable[ReplicaRecord], failed: list[int], objective: Objective) -> Outcome:
    records, never = tuple(records), Journey()
    journeys = [run.journeys.get(index, never) for index in range(len(run.workload))]
    times = tuple(tuple(journey.token_times_s) for journey in journeys)
    complete = [() if index in run.failed_s else each for index, each in enumerate(times)]
    stay_of_failed_s = sum(run.failed_s[index] - run.arrival_s[index] for index in failed)
    return Outcome(
        workload=run.workload,
        policy=policy_of(run.setup),
        engine=REFERENCE,
        arrival_s=run.arrival_s,
        first_token_s=[each[0] if each else _NONE_S for each in complete],
        last_token_s=[each[-1] if each else _NONE_S for each in complete],
        keeps_gaps=[bool(each) and all(b - a <= objective.max_gap_s for a, b in pairwise(each)) for each in complete],
        gaps=pooled_gaps(complete),
        num_preemptions=sum(each.num_preemptions for each in records),
        num_steps=sum(each.num_steps for each in records),
        in_system_s=run.in_system_s - stay_of_failed_s,
        busy_s=sum(each.busy_s for each in records),
        peak_bytes=run.peak_bytes,
        timeline=run.timeline.done(),
        cached_prompt_tokens=sum(journey.cached_prompt_tokens for journey in journeys),
        token_times_s=times,
        preempted=[journey.num_preemptions for journey in journeys],
        notes=_notes(run.setup),
        failed=tuple(failed),
    )


_NONE_S: Final = 0.0  # stands where a request has no time; `failed` says so


def policy_of(setup: FleetSetup) -> str:
    """The fleet in a few words, such as "chunked x3 least-work"."""
    words = f"{_pool_words(setup.replicas, setup.autoscaling)} {setup.router.routing.value}"
    split = setup.disaggregation
    if split is None:
        return words
    return f"prefill {words}, decode {_pool_words(split.decode, split.autoscaling)} {split.router.routing.value}"


def _pool_words(replicas: tuple[ReplicaSetup, ...], scaling: AutoscalingSettings | None) -> str:
    policies = dict.fromkeys(each.server.scheduler.policy.value for each in replicas)
    number = str(len(replicas)) if scaling is None else f"{scaling.min_replicas}-{scaling.max_replicas}"
    return f"{'/'.join(policies)} x{number}"


def _notes(setup: FleetSetup) -> tuple[str, ...]:
    notes = [note for each in setup.all_replicas for note in each.server.notes]
    if setup.disaggregation is not None:
        notes += NOTES
    return tuple(dict.fromkeys(notes))
