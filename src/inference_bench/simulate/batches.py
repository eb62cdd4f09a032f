"""Batches that nobody joins, readably: static, static within memory, dynamic.

In:   Workload, ServerSetup, StepTime
Out:  Outcome, with every token's time
Leaves out: joining a running batch (server)
Read next by: run.

While idle, a batch is sent off once so many wait or the oldest has waited long enough. One step reads all prompts and gives
each its first token; then every step gives each its next. In a static batch a finished slot goes on computing until all are
done; from a dynamic one it leaves.
"""

from __future__ import annotations

import math

from inference_bench.metrics import Objective
from inference_bench.simulate.answers import Answers, Journey, sequence_of
from inference_bench.simulate.outcome import Outcome, Progress, TimelineLog, lost
from inference_bench.simulate.sequence import Sequence
from inference_bench.simulate.server import ArrivalQueue, reference_outcome
from inference_bench.simulate.settings import Policy, ServerSetup, never_admitted
from inference_bench.simulate.step_time import StepPart, StepTime
from inference_bench.workload import Workload


class BatchServer:
    """One model on one machine that serves a batch at a time."""

    def __init__(self, workload: Workload, setup: ServerSetup, step_time: StepTime) -> None:
        self.arrivals = ArrivalQueue(workload)
        self.answers = Answers(workload)
        self.waiting: list[Sequence] = []
        self.journeys = [Journey() for _ in workload.requests.prompt_tokens]
        self.timeline = TimelineLog()
        self.now_s = self.in_system_s = self.busy_s = 0.0
        self.num_steps = self.num_ended = self.num_preemptions = self.peak_bytes = 0
        self._workload, self._setup, self._step_time = workload, setup, step_time

    def run(self, progress: Progress | None = None) -> None:
        """All requests to their end.

        Raises:  RequestError naming a request that no batch can hold; InferenceBenchError if one was lost
        """
        while self.num_ended < len(self.journeys):
            self._take_arrivals()
            batch = self._batch()
            if batch:
                del self.waiting[: len(batch)]
                self._serve(batch)
                if progress is not None:
                    progress(self.num_ended, len(self.journeys))
            else:
                self._pass_time()

    def _take_arrivals(self) -> None:
        for index in self.arrivals.take(self.now_s):
            arrival_s = self.arrivals.times_s[index]
            self.waiting.append(sequence_of(self._workload, index, arrival_s))
            self.in_system_s += self.now_s - arrival_s

    def _pass_time(self) -> None:
        """Nothing to send off yet: until somebody comes, or the oldest has waited enough."""
        next_s = min(self.arrivals.next_s, self._due_s())
        if math.isinf(next_s):
            raise lost(len(self.journeys) - self.num_ended, len(self.journeys))
        self.in_system_s += len(self.waiting) * (next_s - self.now_s)
        self.now_s = next_s

    def _due_s(self) -> float:
        return self.waiting[0].arrival_s + self._setup.scheduler.dispatch_timeout_s if self.waiting else math.inf

    def _batch(self) -> list[Sequence]:
        """The requests to send off now: none while it is too early."""
        settings = self._setup.scheduler
        batch = self._fitting()
        is_full = len(batch) == settings.max_batch or len(batch) < len(self.waiting)
        return batch if is_full or self.now_s >= self._due_s() else []

    def _fitting(self) -> list[Sequence]:
        """The longest head of the queue that a batch may hold.

        Raises:  RequestError where not even the first fits
        """
        settings, memory = self._setup.scheduler, self._setup.memory
        head = self.waiting[: settings.max_batch]
        if settings.policy is Policy.STATIC:
            return head
        limit = int(settings.admission_share * memory.budget_bytes)
        used = 0
        for count, sequence in enumerate(head):
            used += memory.sequence_bytes(sequence.prompt_tokens + settings.max_output_tokens)
            if used > limit:
                if count == 0:
                    raise never_admitted(sequence.index, sequence.prompt_tokens, used, self._setup)
                return head[:count]
        return head

    def _serve(self, batch: list[Sequence]) -> None:
        """A batch from its prompts to its longest answer."""
        self._step(batch, [StepPart(0, sequence.prompt_tokens, False) for sequence in batch])
        pads = self._setup.scheduler.policy is not Policy.DYNAMIC
        for sequence in batch:
            sequence.filled = sequence.prompt_tokens
        active = [sequence for sequence in batch if not self.answers.is_complete(sequence)]
        while active:
            slots = batch if pads else active
            self._step(active, [StepPart(sequence.filled, 1, True) for sequence in slots])
            for sequence in slots:
                sequence.filled += 1
            active = [sequence for sequence in active if not self.answers.is_complete(sequence)]

    def _step(self, emitting: list[Sequence], parts: list[StepPart]) -> None:
        """A step after which these sequences have a token more."""
        memory = self._setup.memory
        used = sum(memory.sequence_bytes(part.cached + part.new) for part in parts)
        self.peak_bytes = max(self.peak_bytes, used)
        self.timeline.add(self.now_s, len(self.waiting), len(emitting), used)
        began_s = self.now_s
        self.now_s += self._step_time.step_s(parts)
        self.num_steps += 1
        self.busy_s += self.now_s - began_s
        self.in_system_s += (len(self.waiting) + len(emitting)) * (self.now_s - began_s)
        for sequence in emitting:
            sequence.generated += 1
            self.journeys[sequence.index].token_times_s.append(self.now_s)
            if self.answers.is_complete(sequence):
                self.num_ended += 1
                self.arrivals.free_user(self.now_s)


def simulate_batches(
    workload: Workload,
    setup: ServerSetup,
    step_time: StepTime,
    objective: Objective,
    progress: Progress | None = None,
) -> Outcome:
    """A workload on one server that serves batches.

    Raises:  RequestError naming a request that no batch can hold
    """
    server = BatchServer(workload, setup, step_time)
    server.run(progress)
    return reference_outcome(
        workload, setup, server, server.journeys, server.arrivals.times_s, server.in_system_s, objective
    )
