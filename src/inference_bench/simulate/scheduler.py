"""Who is in the next step: admission, the budget of positions, and who gives way when memory runs out.

In:   Sequences that wait, SchedulerSettings, an Account of the cache
Out:  Plan: how many new positions each sequence gets
Leaves out: how long answers are (a Sequence does not say) and how long a step takes
Read next by: server.

The reference rules are SPEC's: join the queue, admit from its head, spend the budget in order of admission, and when the
cache would overflow send the newest back to the head of the queue and plan again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Values
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from inference_bench.errors import RequestError
from inference_bench.simulate.sequence import Sequence
from inference_bench.simulate.settings import (
    AdmissionCheck,
    BudgetRule,
    KvMemory,
    Order,
    Policy,
    Preemption,
    SchedulerSettings,
    ServerSetup,
    never_admitted,
)
from inference_bench.simulate.slots import Slots


class Grant(NamedTuple):
    """New positions of one sequence in a step."""

    sequence: Sequence
    new: int


@dataclass(slots=True)
class Plan:
    """A step.

    Where:  swapped_bytes are copied to or from host memory before it
    """

    grants: list[Grant]
    preempted: list[Sequence]
    admitted: list[Sequence]
    swapped_bytes: int = 0


class Account(Protocol):
    """What the cache holds and what more would take."""

    def held_bytes(self, running: Values[Sequence]) -> int:
        """What running sequences hold now, fixed states included."""
        ...

    def should_wait(self, sequence: Sequence) -> bool:
        """Whether a sequence that is not running would share what another is reading just now."""
        ...

    def cached_positions(self, sequence: Sequence) -> int:
        """How far a sequence that is not running would be filled when it starts."""
        ...

    def bytes_to_hold(self, sequence: Sequence, positions: int) -> int:
        """What a sequence that is not running would take to hold so many positions."""
        ...

    def admit(self, sequence: Sequence) -> None:
        """The sequence starts to run: what the cache has of it already is filled."""
        ...

    def bytes_after(self, grants: Values[Grant]) -> int:
        """What all of a step's sequences hold once it is done."""
        ...

    def commit(self, grants: Values[Grant]) -> None:
        """The step is going to happen."""
        ...

    def release(self, sequence: Sequence) -> None:
        """The sequence runs no longer."""
        ...

    def swap_out(self, sequence: Sequence) -> int:
        """The sequence runs no longer and is kept in host memory: bytes that are copied there."""
        ...

    def swap_in(self, sequence: Sequence) -> int:
        """The sequence runs again, filled as before: bytes that are copied back."""
        ...


@dataclass(slots=True)
class CountedAccount:
    """An account in which sequences share nothing: bytes are a sum over sequences."""

    memory: KvMemory

    def held_bytes(self, running: Values[Sequence]) -> int:
        """What running sequences hold now."""
        return sum(self.memory.sequence_bytes(sequence.filled) for sequence in running)

    def should_wait(self, sequence: Sequence) -> bool:  # noqa: ARG002  # all sequences are alike
        """Never."""
        return False

    def cached_positions(self, sequence: Sequence) -> int:
        """Nothing, unless it comes back from host memory."""
        return sequence.filled

    def bytes_to_hold(self, sequence: Sequence, positions: int) -> int:  # noqa: ARG002  # all sequences are alike
        """What a sequence takes to hold so many positions."""
        return self.memory.sequence_bytes(positions)

    def admit(self, sequence: Sequence) -> None:
        """Nothing of it is in the cache."""

    def bytes_after(self, grants: Values[Grant]) -> int:
        """What all of a step's sequences hold once it is done."""
        return sum(self.memory.sequence_bytes(grant.sequence.filled + grant.new) for grant in grants)

    def commit(self, grants: Values[Grant]) -> None:
        """Nothing to write down."""

    def release(self, sequence: Sequence) -> None:
        """Nothing to write down."""

    def swap_out(self, sequence: Sequence) -> int:
        """All of it is copied."""
        return self.memory.sequence_bytes(sequence.filled)

    def swap_in(self, sequence: Sequence) -> int:
        """All of it is copied."""
        return self.memory.sequence_bytes(sequence.filled)


class Scheduler:
    """The iteration-level policies: reserve, paged and chunked."""

    def __init__(self, settings: SchedulerSettings, memory: KvMemory, account: Account) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # in order of admission
        self._settings = settings
        self._memory = memory
        self._account = account
        self._slots = Slots(settings.max_running)
        self._admission_limit = int(settings.admission_share * memory.budget_bytes)

    def enqueue(self, sequence: Sequence) -> None:
        """A request has come."""
        self.waiting.append(sequence)

    def finish(self, sequence: Sequence) -> None:
        """An answer has ended."""
        self.running.remove(sequence)
        self._slots.leave(sequence.slot)
        self._account.release(sequence)

    def plan(self) -> Plan:
        """Who is in the next step.

        Raises:  RequestError naming a request that can never run
        """
        plan = Plan([], [], [])
        while True:
            if self._settings.admission_check is AdmissionCheck.WHOLE_PROMPT:
                self._admit(plan)
            plan.grants = self._spend()
            if self._account.bytes_after(plan.grants) <= self._memory.budget_bytes:
                break
            self._preempt(plan)
        if self._settings.admission_check is not AdmissionCheck.WHOLE_PROMPT and not plan.preempted:
            self._admit_chunks(plan)
        if not self.running:
            head = self.waiting[self._head() or 0]
            setup = ServerSetup(self._settings, self._memory)
            raise never_admitted(head.index, head.known_tokens, self._charge(head), setup)
        if not any(grant.new for grant in plan.grants):
            raise RequestError(
                f"the policy {self._settings.policy} makes no progress: {len(self.running)} run and none is given a position"
            )
        self._account.commit(plan.grants)
        return plan

    def _admit(self, plan: Plan) -> None:
        """From the queue, while it surely fits; nobody any more in a step in which one gave way twice."""
        if len(plan.preempted) > len(set(map(id, plan.preempted))):
            return
        used = self._reserved_bytes()
        while self.waiting and len(self.running) < self._settings.max_running:
            head = self._head()
            if head is None:
                return
            cost = self._charge(self.waiting[head])
            if used + cost > self._admission_limit:
                return
            used += cost
            self._start(head, plan)

    def _admit_chunks(self, plan: Plan) -> None:
        """From the queue with what is left of the budget, while the first chunk fits, or all there is to read."""
        asks_whole = self._settings.admission_check is AdmissionCheck.WHOLE_BESIDE_STEP
        left = self._settings.budget - sum(grant.new for grant in plan.grants)
        used = self._account.bytes_after(plan.grants)
        while self.waiting and len(self.running) < self._settings.max_running and left > 0:
            head = self._head()
            if head is None:
                return
            sequence = self.waiting[head]
            cached = self._account.cached_positions(sequence)
            chunk = min(sequence.known_tokens - cached, left)
            if chunk < sequence.known_tokens - cached and not self._settings.cuts_prompts:
                return
            needed = sequence.known_tokens if asks_whole else cached + chunk
            if used + self._account.bytes_to_hold(sequence, needed) > self._admission_limit:
                return
            used += self._account.bytes_to_hold(sequence, cached + chunk)
            self._start(head, plan)
            plan.grants.append(Grant(sequence, chunk))
            left -= chunk

    def _start(self, head: int, plan: Plan) -> None:
        sequence = self.waiting[head]
        del self.waiting[head]
        if sequence.is_swapped:
            plan.swapped_bytes += self._account.swap_in(sequence)
            sequence.is_swapped, sequence.is_decoding = False, True
        else:
            self._account.admit(sequence)
        sequence.slot = self._slots.take()
        self.running.append(sequence)
        plan.admitted.append(sequence)

    def _head(self) -> int | None:
        """Where in the queue the next to be admitted stands; None where everybody in it should wait."""
        ready = (at for at, each in enumerate(self.waiting) if not self._account.should_wait(each))
        if self._settings.order is Order.FCFS:
            return next(ready, None)
        if self._settings.order is Order.SHORTEST_PROMPT:
            return min(ready, key=lambda at: (self.waiting[at].prompt_tokens, at), default=None)
        return min(ready, key=lambda at: (self.waiting[at].priority, at), default=None)

    def _charge(self, sequence: Sequence) -> int:
        """What admitting a request takes, by the policy."""
        settings = self._settings
        if settings.policy is Policy.RESERVE:
            return self._memory.sequence_bytes(sequence.prompt_tokens + settings.max_output_tokens)
        return self._account.bytes_to_hold(sequence, sequence.known_tokens + self._kept_free(sequence))

    def _reserved_bytes(self) -> int:
        """What runners are charged, by the policy."""
        if self._settings.policy is Policy.RESERVE:
            return sum(map(self._charge, self.running))
        kept = sum(map(self._kept_free, self.running)) * self._memory.bytes_per_position
        return self._account.held_bytes(self.running) + kept

    def _kept_free(self, sequence: Sequence) -> int:
        rest = max(0, self._settings.max_output_tokens - sequence.generated)
        return int(self._settings.new_token_ratio * rest)

    def _spend(self) -> list[Grant]:
        """The budget of positions, in the order the engine spends it."""
        rule, left = self._settings.budget_rule, self._settings.budget
        prompts_only = rule is BudgetRule.PREFILL_FIRST and any(not each.is_decoding for each in self.running)
        order = self.running
        if rule is BudgetRule.MICRO_BATCHES:
            order = sorted(order, key=lambda each: not each.is_decoding)
        elif rule is BudgetRule.EQUAL_BATCHES:
            order = sorted(order, key=lambda each: (not each.is_decoding, each.slot))
        grants = []
        for sequence in order:
            wanted = 0 if prompts_only and sequence.is_decoding else self._wanted(sequence)
            grants.append(Grant(sequence, min(wanted, left)))
            left -= grants[-1].new
        return grants

    def _wanted(self, sequence: Sequence) -> int:
        drafts = self._settings.speculation
        return sequence.owed + (drafts.draft_tokens if drafts is not None and sequence.is_decoding else 0)

    def _preempt(self, plan: Plan) -> None:
        """The newest gives way, and goes to the head of the queue.

        Raises:  RequestError when it is alone, and where each slot owns its cells: there the budget goes by slots and not by age, so
                 that requests which gave way to one another could do so for ever
        """
        if len(self.running) == 1:
            lone = self.running[0]
            raise RequestError(
                f"request {lone.index} cannot fit alone: its {lone.known_tokens} tokens need "
                f"{self._memory.sequence_bytes(lone.known_tokens)} bytes of cache, there are {self._memory.budget_bytes}"
            )
        if self._settings.budget_rule is BudgetRule.EQUAL_BATCHES:
            raise RequestError(
                f"{len(self.running)} requests need more than the {self._memory.budget_bytes} bytes of cache that there are, and with the "
                f"budget rule {self._settings.budget_rule} each slot owns its cells: give {self._settings.max_running} slots what they "
                "can hold, or fewer slots"
            )
        victim = self._victim()
        self.running.remove(victim)
        self._slots.leave(victim.slot)
        if self._settings.preemption is Preemption.SWAP and victim.is_decoding:
            plan.swapped_bytes += self._account.swap_out(victim)
            victim.is_swapped = True
        else:
            self._account.release(victim)
            victim.filled = 0
        victim.is_decoding = False
        self.waiting.appendleft(victim)
        plan.preempted.append(victim)

    def _victim(self) -> Sequence:
        if self._settings.order is Order.PRIORITY:
            return max(enumerate(self.running), key=lambda at: (at[1].priority, at[0]))[1]
        return self.running[-1]
