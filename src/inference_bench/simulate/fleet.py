"""Several servers behind a router: the same steps as one server takes, by events.

In:   Workload, FleetSetup, Objective
Out:  FleetOutcome, whose Outcome reads like that of one server
Leaves out: batches that nobody joins; what a router costs; the network to users
Read next by: run, summary, capacity.

At one moment things happen in this order: steps end, caches arrive, replicas fail, failures become known, replicas become
ready, requests arrive, steps begin, the number of replicas is checked. A router sees a replica as it is then: the step in
progress is not undone, and nothing of it is done.
"""

from __future__ import annotations

import math
from functools import partial

from inference_bench.metrics import Objective
from inference_bench.simulate.answers import Answers, sequence_of
from inference_bench.simulate.autoscaling import Autoscaler, ScalingEvent
from inference_bench.simulate.disaggregated import Disaggregation, FirstTokens, Transfer
from inference_bench.simulate.events import Events, Kind
from inference_bench.simulate.failures import FailureClock, FailureSettings, refuse_endless_failures
from inference_bench.simulate.fleet_outcome import FleetOutcome, FleetRun, fleet_outcome
from inference_bench.simulate.fleet_setup import FleetSetup
from inference_bench.simulate.outcome import MOST_RUN_S, Progress, end_of_clock, lost
from inference_bench.simulate.pool import Pool
from inference_bench.simulate.replica import Replica, ReplicaSetup, State
from inference_bench.simulate.sequence import Sequence
from inference_bench.simulate.server import ArrivalQueue
from inference_bench.workload import Workload


def simulate_fleet(
    workload: Workload, fleet: FleetSetup, objective: Objective | None = None, progress: Progress | None = None
) -> FleetOutcome:
    """A workload on several servers under iteration-level policies.

    Raises:  RequestError naming a request that can never run on the replica that it was sent to, for more failures than can be
             simulated, or a run beyond the end of the clock
    """
    refuse_endless_failures(fleet.failures, fleet.most_replicas, workload)
    return fleet_outcome(_Fleet(workload, fleet).run(progress), objective or Objective())


class _Fleet:
    """A run: every event and what follows from it."""

    def __init__(self, workload: Workload, setup: FleetSetup) -> None:
        self._workload, self._setup = workload, setup
        self._failures = setup.failures or FailureSettings()
        self._clock = FailureClock(setup.failures)
        self._events, self._arrivals = Events(), ArrivalQueue(workload)
        self._answers = Answers(workload)
        self._now_s = 0.0
        self._num_arrived = 0
        self._to_wake: dict[int, Replica] = {}
        self._run = FleetRun(workload, setup, self._arrivals.times_s)
        self._pools = self._pools_of(setup)
        self._scalings = [pool.autoscaler.settings for pool in self._pools if pool.autoscaler is not None]
        self._checks_since_s = math.inf  # since when nothing else is due
        for replica in self._run.replicas:
            self._become_ready(replica, 0)
        for pool in self._pools:
            if pool.autoscaler is not None:
                self._plan_check(pool, pool.autoscaler)
        for failure in self._failures.scheduled:
            fail = partial(self._fail, failure.replica, failure.down_for_s)
            self._events.add(failure.at_s, Kind.FAILURE, fail)

    def _pools_of(self, setup: FleetSetup) -> list[Pool]:
        split = setup.disaggregation
        answers = self._answers if split is None else FirstTokens(self._workload)
        pools = [Pool(0, setup.replicas[0], answers, setup.router, setup.autoscaling)]
        for each in setup.replicas:
            self._new_replica(pools[0], each)
        if split is not None:
            pools.append(Pool(1, split.decode[0], self._answers, split.router, split.autoscaling))
            for each in split.decode:
                self._new_replica(pools[1], each)
        return pools

    def run(self, progress: Progress | None = None) -> FleetRun:
        """All requests to their end.

        Raises:  RequestError naming a request that can never run; InferenceBenchError if one was lost
        """
        run, count = self._run, len(self._workload)
        while run.num_ended < count:
            now_s = min(self._events.next_s, self._arrivals.next_s)
            if self._is_stuck(now_s):
                raise lost(count - run.num_ended, count)
            run.in_system_s += (self._num_arrived - run.num_ended) * (now_s - self._now_s)
            self._now_s = now_s
            if now_s > MOST_RUN_S:
                raise end_of_clock(now_s)
            self._events.happen(now_s, Kind.READY)
            for index in self._arrivals.take(now_s):
                self._num_arrived += 1
                self._send(self._pools[0], sequence_of(self._workload, index, self._arrivals.times_s[index]))
            self._begin_steps()
            self._events.happen(now_s, Kind.CHECK)
            if progress is not None:
                progress(run.num_ended, count)
        run.end_s = self._now_s
        return run

    def _is_stuck(self, now_s: float) -> bool:
        """Whether nothing has been due but checks for longer than an autoscaler may have to wait before it orders a replica."""
        if not math.isinf(self._arrivals.next_s) or len(self._events) > len(self._scalings):
            self._checks_since_s = math.inf
            return False
        self._checks_since_s = min(self._checks_since_s, now_s)
        longest_s = max((each.cool_down_s + 2 * each.check_interval_s for each in self._scalings), default=0.0)
        return math.isinf(now_s) or now_s - self._checks_since_s > longest_s

    # requests

    def _send(self, pool: Pool, sequence: Sequence, transfer: Transfer | None = None) -> None:
        """A request is for this pool: it goes to a replica, waits for one, or fails where there will be none."""
        pool.queue.append((sequence, transfer))
        self._empty_queue(pool)

    def _empty_queue(self, pool: Pool) -> None:
        while pool.queue:
            sequence, transfer = pool.queue[0]
            index = pool.choose(sequence)
            if index is None:
                break
            pool.queue.popleft()
            target = self._run.replicas[index]
            target.num_requests += 1
            if transfer is None:
                self._submit(sequence, target)
            else:
                self._transfer(transfer, target)
        while pool.queue and pool.is_dead:
            sequence, transfer = pool.queue.popleft()
            if transfer is not None:
                transfer.source.sending.remove(transfer)
            self._give_up(sequence)

    def _submit(self, sequence: Sequence, replica: Replica) -> None:
        replica.server.submit(sequence)
        self._to_wake[replica.index] = replica

    def _complete(self, sequence: Sequence) -> None:
        self._run.complete(sequence.index)
        self._arrivals.free_user(self._now_s)

    def _give_up(self, sequence: Sequence) -> None:
        self._run.give_up(sequence.index, self._now_s)
        self._arrivals.free_user(self._now_s)

    def _retry(self, sequence: Sequence) -> None:
        """Where it was has failed: its cache is lost, the tokens it has given are not."""
        sequence.filled = sequence.cached_prompt_tokens = 0
        sequence.is_decoding = sequence.is_swapped = False
        if self._run.retries[sequence.index] >= self._failures.max_retries:
            self._give_up(sequence)
            return
        self._run.retries[sequence.index] += 1
        self._send(self._pools[0], sequence)

    # steps

    def _begin_steps(self) -> None:
        """All replicas that have something to do and are not doing it."""
        for _, replica in sorted(self._to_wake.items()):
            if replica.is_up and not replica.is_stepping and replica.server.num_present:
                ends_s = replica.begin_step(self._now_s)
                self._events.add(ends_s, Kind.STEP_END, partial(self._end_step, replica, replica.epoch))
                self._run.note_step(self._now_s, sum(len(pool.queue) for pool in self._pools))
        self._to_wake.clear()

    def _end_step(self, replica: Replica, epoch: int) -> None:
        if epoch != replica.epoch:
            return
        split = self._setup.disaggregation
        for sequence in replica.end_step():
            if split is None or self._answers.is_complete(sequence):
                self._complete(sequence)
            else:
                self._hand_over(sequence, replica, split)
        self._to_wake[replica.index] = replica
        self._retire(replica)

    # caches on their way

    def _hand_over(self, sequence: Sequence, source: Replica, split: Disaggregation) -> None:
        """Its prompt is read: it goes on where answers are decoded."""
        num_bytes = source.setup.server.memory.sequence_bytes(sequence.filled)
        transfer = Transfer(sequence, source, split, num_bytes, self._now_s)
        source.sending.append(transfer)
        self._send(self._pools[1], sequence, transfer)

    def _transfer(self, transfer: Transfer, target: Replica) -> None:
        transfer.target = target
        target.arriving.append(transfer)
        arrives_s = transfer.source.link.send(transfer, self._now_s)
        self._events.add(arrives_s, Kind.CACHE_ARRIVED, partial(self._cache_arrived, transfer, target))

    def _cache_arrived(self, transfer: Transfer, target: Replica) -> None:
        if transfer.is_cut:
            return
        transfer.source.sending.remove(transfer)
        target.arriving.remove(transfer)
        self._run.transfers.add(transfer, self._now_s)
        self._submit(transfer.sequence, target)
        self._retire(transfer.source)

    # replicas

    def _new_replica(self, pool: Pool, setup: ReplicaSetup) -> Replica:
        run, seed = self._run, self._workload.seed
        replica = Replica(len(run.replicas), pool.number, setup, pool.answers, run.journeys, seed)
        replica.order(self._now_s)
        run.replicas.append(replica)
        pool.replicas.append(replica)
        return replica

    def _become_ready(self, replica: Replica, epoch: int) -> None:
        if epoch != replica.epoch or replica.state not in (State.STARTING, State.DOWN):
            return
        replica.enter(State.SERVING, self._now_s)
        failure = self._clock.next_failure(replica.index, self._now_s)
        if failure is not None:
            fail = partial(self._fail, replica.index, failure.down_for_s, replica.epoch)
            self._events.add(failure.at_s, Kind.FAILURE, fail)
        self._empty_queue(self._pools[replica.pool])

    def _fail(self, index: int, down_for_s: float, epoch: int | None = None) -> None:
        """A replica fails, if it is there and up, and (for drawn failures) has not failed since."""
        if index >= len(self._run.replicas):
            return
        replica = self._run.replicas[index]
        if not replica.is_up or epoch not in (None, replica.epoch):
            return
        replica.fail(self._now_s, returns=math.isfinite(down_for_s))
        for transfer in replica.sending:
            self._cut(transfer)
        known_s = self._now_s + min(self._failures.detection_s, down_for_s)
        self._events.add(known_s, Kind.FAILURE_KNOWN, partial(self._failure_known, replica))
        if replica.returns:
            back = partial(self._become_ready, replica, replica.epoch)
            self._events.add(self._now_s + down_for_s, Kind.READY, back)

    def _cut(self, transfer: Transfer) -> None:
        """A cache will not arrive: it is lost where it comes from."""
        transfer.is_cut = True
        if transfer.target is None:
            self._pools[1].queue.remove((transfer.sequence, transfer))
        else:
            transfer.target.arriving.remove(transfer)
            self._retire(transfer.target)

    def _failure_known(self, replica: Replica) -> None:
        """The router sends nothing there any more, and sends again what was there or on its way."""
        lost = replica.clear()
        sources = [transfer.source for transfer in replica.arriving]
        for transfer in replica.arriving:
            transfer.is_cut = True
            transfer.source.sending.remove(transfer)
            lost.append(transfer.sequence)
        replica.arriving.clear()
        self._pools[replica.pool].router.forget(replica.index)
        if not replica.returns:
            replica.enter(State.GONE, self._now_s)
        for sequence in lost:
            self._retry(sequence)
        for source in sources:
            self._retire(source)

    def _retire(self, replica: Replica) -> None:
        """A replica that drains ends once nothing is there any more."""
        if replica.state is State.DRAINING and replica.is_empty:
            replica.enter(State.GONE, self._now_s)
            self._pools[replica.pool].router.forget(replica.index)

    # autoscaling

    def _plan_check(self, pool: Pool, autoscaler: Autoscaler) -> None:
        next_s = self._now_s + autoscaler.settings.check_interval_s
        self._events.add(next_s, Kind.CHECK, partial(self._check, pool, autoscaler))

    def _check(self, pool: Pool, autoscaler: Autoscaler) -> None:
        """Is the number of replicas right?"""
        self._plan_check(pool, autoscaler)
        load, before = pool.load(autoscaler.settings.signal), pool.num_ordered
        change = autoscaler.change(self._now_s, load, before)
        for _ in range(change):
            replica = self._new_replica(pool, pool.template)
            ready = partial(self._become_ready, replica, 0)
            self._events.add(self._now_s + autoscaler.settings.start_up_s, Kind.READY, ready)
        if change > 0 or (change < 0 and self._takes_away(pool)):
            self._run.scaling.append(ScalingEvent(self._now_s, pool.number, change, pool.num_ordered, load))

    def _takes_away(self, pool: Pool) -> bool:
        """One replica is told to end; not if all are down just now."""
        replica = pool.surplus()
        if replica is None:
            return False
        is_starting = replica.state is State.STARTING
        replica.enter(State.GONE if is_starting else State.DRAINING, self._now_s)
        self._retire(replica)
        return True
