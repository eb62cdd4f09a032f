"""The readable loop: one server, step by step, each request an object. The oracle of the fast engine.

In:   Workload, ServerSetup, StepTime
Out:  Outcome, with every token's time
Leaves out: speed (kernel does the same in arrays)
Read next by: run, fleet.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from collections.abc import Sequence as Values
from itertools import pairwise
from typing import Final, Protocol

from inference_bench.metrics import Objective
from inference_bench.simulate.answers import Answers, Journey, sequence_of
from inference_bench.simulate.kv_blocks import BlockAccount
from inference_bench.simulate.micro_batches import equal_batches, micro_batches
from inference_bench.simulate.outcome import Gaps, Outcome, Progress, TimelineLog, lost
from inference_bench.simulate.scheduler import Account, CountedAccount, Grant, Plan, Scheduler
from inference_bench.simulate.sequence import Sequence
from inference_bench.simulate.settings import BudgetRule, ServerSetup
from inference_bench.simulate.step_time import StepPart, StepTime
from inference_bench.workload import ClosedLoop, OpenLoop, Workload

REFERENCE: Final = "reference"


class Server:
    """One model on one machine: a scheduler, a cache, and a clock that moves a step at a time."""

    def __init__(self, setup: ServerSetup, step_time: StepTime, answers: Answers, seed: int = 0) -> None:
        self.now_s = 0.0
        self.num_steps = self.num_preemptions = self.peak_bytes = self.used_bytes = 0
        self.busy_s = 0.0
        self.journeys: dict[int, Journey] = {}
        self.timeline = TimelineLog()
        self.account = account_of(setup)
        self.scheduler = Scheduler(setup.scheduler, setup.memory, self.account)
        self._setup = setup
        self._step_time = step_time
        self._answers = answers
        self._draws = random.Random(seed)
        self._plan = Plan([], [], [])  # of the step in progress, and when it ends
        self._ends_s = 0.0

    @property
    def num_present(self) -> int:
        """Requests that wait or run."""
        return len(self.scheduler.waiting) + len(self.scheduler.running)

    def submit(self, sequence: Sequence) -> None:
        """A request has come."""
        self.journeys.setdefault(sequence.index, Journey())
        self.scheduler.enqueue(sequence)

    def step(self) -> list[Sequence]:
        """One step from now: whom it serves, how long it takes, who has ended with it.

        Raises:  RequestError where no progress is possible
        """
        self.begin_step()
        return self.end_step()

    def begin_step(self) -> float:
        """A step is planned from now on; when it will end. Until then nothing of it is done.

        Unit:    seconds
        Raises:  RequestError where no progress is possible
        """
        self._plan = plan = self.scheduler.plan()
        self._note(plan)
        self._ends_s = self.now_s + self._seconds(plan)
        return self._ends_s

    def end_step(self) -> list[Sequence]:
        """The step that was begun is done: who has ended with it."""
        began_s, self.now_s, plan = self.now_s, self._ends_s, self._plan
        self.num_steps += 1
        self.busy_s += self.now_s - began_s
        ended = [grant.sequence for grant in plan.grants if self._apply(grant)]
        for sequence in ended:
            self.scheduler.finish(sequence)
        return ended

    def _note(self, plan: Plan) -> None:
        for sequence in plan.preempted:
            self.num_preemptions += 1
            self.journeys[sequence.index].num_preemptions += 1
        for sequence in plan.admitted:
            if sequence.admitted_s is None:
                sequence.admitted_s = self.now_s
                self.journeys[sequence.index].cached_prompt_tokens = sequence.cached_prompt_tokens
        self.used_bytes = used = self.account.bytes_after(plan.grants)
        self.peak_bytes = max(self.peak_bytes, used)
        self.timeline.add(self.now_s, len(self.scheduler.waiting), len(self.scheduler.running), used)

    def _seconds(self, plan: Plan) -> float:
        settings = self._setup.scheduler
        parts = [
            StepPart(grant.sequence.filled, grant.new, grant.sequence.is_decoding) for grant in plan.grants if grant.new
        ]
        seconds = sum(map(self._step_time.step_s, self._batches(plan, parts)))
        drafts = settings.speculation
        if drafts is not None:
            decoding = [part._replace(new=1) for part in parts if part.is_decoding]
            if decoding:
                seconds += drafts.draft_tokens * drafts.draft_cost * self._step_time.step_s(decoding)
        return seconds + plan.swapped_bytes / settings.swap_bytes_per_s

    def _batches(self, plan: Plan, parts: list[StepPart]) -> Iterable[list[StepPart]]:
        """What is computed at once: all of a step, but for an engine that cuts it."""
        settings = self._setup.scheduler
        if settings.budget_rule is BudgetRule.MICRO_BATCHES:
            return micro_batches(parts, settings.micro_batch)
        if settings.budget_rule is BudgetRule.EQUAL_BATCHES:
            slots = (grant.sequence.slot for grant in plan.grants if grant.new)
            return equal_batches(zip(slots, parts, strict=True), settings.micro_batch)
        return (parts,)

    def _apply(self, grant: Grant) -> bool:
        """The step has happened to one sequence; whether its answer has ended with it."""
        sequence, new = grant
        if not new:
            return False
        was_decoding = sequence.is_decoding
        if new < sequence.owed:
            sequence.filled += new
            return False
        count = min(self._num_emitted(was_decoding, new), self._answers.remaining(sequence))
        sequence.filled = sequence.known_tokens + count - 1
        sequence.generated += count
        sequence.is_decoding = True
        self.journeys[sequence.index].token_times_s += [self.now_s] * count
        return self._answers.is_complete(sequence)

    def _num_emitted(self, was_decoding: bool, new: int) -> int:
        """One token, and of a draft those that are accepted before the first that is not."""
        drafts = self._setup.scheduler.speculation
        if drafts is None or not was_decoding:
            return 1
        accepted = 0
        while accepted < new - 1 and self._draws.random() < drafts.acceptance:
            accepted += 1
        return 1 + accepted


def account_of(setup: ServerSetup) -> Account:
    """Who counts the cache: a sum, or blocks that sequences share."""
    return BlockAccount(setup.memory) if setup.scheduler.prefix_cache else CountedAccount(setup.memory)


class ArrivalQueue:
    """When requests come: on their schedule, or as users become free."""

    def __init__(self, workload: Workload) -> None:
        arrival = workload.arrival
        self._think_s = 0.0
        if isinstance(arrival, OpenLoop):
            self.times_s = list(arrival.times_s)
        else:
            self._think_s = arrival.think_s
            self.times_s = [0.0] * min(arrival.concurrency, arrival.num_requests)
        self._is_closed = isinstance(arrival, ClosedLoop)
        self._count = len(workload.requests)
        self._next = 0

    @property
    def next_s(self) -> float:
        """When the next comes; infinite where none is known to."""
        return self.times_s[self._next] if self._next < len(self.times_s) else math.inf

    def take(self, now_s: float) -> list[int]:
        """The requests that have come by now."""
        first = self._next
        while self._next < len(self.times_s) and self.times_s[self._next] <= now_s:
            self._next += 1
        return list(range(first, self._next))

    def free_user(self, now_s: float) -> None:
        """An answer has ended: in a closed loop, its user sends the next one after thinking."""
        if self._is_closed and len(self.times_s) < self._count:
            self.times_s.append(now_s + self._think_s)


def simulate_steps(
    workload: Workload,
    setup: ServerSetup,
    step_time: StepTime,
    objective: Objective,
    progress: Progress | None = None,
) -> Outcome:
    """A workload on one server under an iteration-level policy, step by step.

    Raises:  RequestError naming a request that can never run; InferenceBenchError if one was lost
    """
    answers, arrivals = Answers(workload), ArrivalQueue(workload)
    server = Server(setup, step_time, answers, workload.seed)
    in_system_s, num_ended, count = 0.0, 0, len(workload.requests)
    while num_ended < count:
        if not server.num_present and arrivals.next_s > server.now_s:
            if math.isinf(arrivals.next_s):
                raise lost(count - num_ended, count)
            server.now_s = arrivals.next_s
        for index in arrivals.take(server.now_s):
            server.submit(sequence_of(workload, index, arrivals.times_s[index]))
            in_system_s += server.now_s - arrivals.times_s[index]
        present, began_s = server.num_present, server.now_s
        ended = server.step()
        in_system_s += present * (server.now_s - began_s)
        num_ended += len(ended)
        for _ in ended:
            arrivals.free_user(server.now_s)
        if ended and progress is not None:
            progress(num_ended, count)
    journeys = [server.journeys[index] for index in range(count)]
    return reference_outcome(workload, setup, server, journeys, arrivals.times_s, in_system_s, objective)


class Books(Protocol):
    """What a readable server has counted."""

    num_steps: int
    num_preemptions: int
    peak_bytes: int
    busy_s: float
    timeline: TimelineLog


def reference_outcome(
    workload: Workload,
    setup: ServerSetup,
    books: Books,
    journeys: Values[Journey],
    arrival_s: Values[float],
    in_system_s: float,
    objective: Objective,
) -> Outcome:
    """A run of a readable server, by request."""
    times = tuple(tuple(journey.token_times_s) for journey in journeys)
    return Outcome(
        workload=workload,
        policy=setup.scheduler.policy.value,
        engine=REFERENCE,
        arrival_s=arrival_s,
        first_token_s=[each[0] for each in times],
        last_token_s=[each[-1] for each in times],
        keeps_gaps=[all(b - a <= objective.max_gap_s for a, b in pairwise(each)) for each in times],
        gaps=pooled_gaps(times),
        num_preemptions=books.num_preemptions,
        num_steps=books.num_steps,
        in_system_s=in_system_s,
        busy_s=books.busy_s,
        peak_bytes=books.peak_bytes,
        timeline=books.timeline.done(),
        cached_prompt_tokens=sum(journey.cached_prompt_tokens for journey in journeys),
        token_times_s=times,
        preempted=[journey.num_preemptions for journey in journeys],
        notes=setup.notes,
    )


def pooled_gaps(times: Iterable[tuple[float, ...]]) -> Gaps:
    """Every pause between tokens of an answer, one by one."""
    values = [after - before for each in times for before, after in pairwise(each)]
    return Gaps(values, [1] * len(values))
