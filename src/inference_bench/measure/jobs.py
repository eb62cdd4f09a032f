"""What will be sent next: prompts and request bodies, made some time before they are due.

In:   a Workload, a Target, LoadOptions
Out:  Jobs, in the order in which they are asked for
Leaves out: when they are sent (slots, schedule)
Read next by: dispatch, slots, schedule.

A prompt belongs to its request's index, so that processes that share a workload make the prompts that one alone would
make. A run begins when the first seconds' bodies are there, not when all are; the rest are made while it goes on, a
millisecond at a time, ahead of when they are due.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.measure.load_options import LoadOptions
from inference_bench.measure.prompts import Prompt, PromptMaker, conversation_roles
from inference_bench.measure.target import Endpoint, Target
from inference_bench.records import Stage
from inference_bench.units import MEBI
from inference_bench.workload import Segment, Workload

FIRST_FILL_S: Final = 0.5
AHEAD_S: Final = 10.0
LEAST_AHEAD: Final = 256
MOST_AHEAD_BYTES: Final = 256 * MEBI  # of the bodies that lie ready

_SLICE_S: Final = 0.001
_REST_S: Final = 0.02


@dataclass(slots=True)
class Job:
    """A request that waits to be sent; its body was built for `target`.

    Where:    index is its place in the workload, counted from 0; beyond its end, the workload begun anew
    """

    index: int
    prompt: Prompt
    max_output_tokens: int
    target: Target
    body: bytes
    session: int | None = None
    turn: int | None = None

    def name(self, stage: Stage, group: str) -> str:
        """What the request is called in this part of a run."""
        return "-".join(filter(None, (stage, group, f"{self.prompt.serial:05d}")))

    def build_body(self, target: Target) -> bytes:
        """The body for this target, made ahead of time unless the target has changed since."""
        if target is not self.target:
            self.target, self.body = target, target.build_body(self.prompt.said, self.max_output_tokens)
        return self.body


class JobMaker:
    """Makes the requests of one load by their index, each with a prompt of its own."""

    def __init__(self, target: Target, workload: Workload, options: LoadOptions) -> None:
        self._target, self._workload = target, workload
        self._prompts = options.prompts or PromptMaker(workload.seed)
        self._owns_serials = options.first_serial is None
        self._first = self._prompts.reserve(len(workload)) if options.first_serial is None else options.first_serial
        self._num_named = len(workload)
        requests = workload.requests
        is_talk = requests.session is not None and requests.answers is not None
        self._answers = frozenset(requests.answers or ()) if is_talk else frozenset[int]()
        self._shared: frozenset[int] | None = None
        self._num_contents = 0

    def make(self, index: int) -> Job:
        """The request with this index; beyond the end of the workload it has the shape of one in it."""
        requests = self._workload.requests
        again, place = divmod(index, len(requests))
        prompt = self._prompt(place, again, self._serial(index))
        output_tokens = prompt.max_output_tokens or requests.output_tokens[place]
        job = Job(index, prompt, output_tokens, self._target, self._target.build_body(prompt.said, output_tokens))
        if requests.session is not None and requests.turn is not None:
            job.session, job.turn = requests.session[place], requests.turn[place]
        return job

    def _prompt(self, place: int, again: int, serial: int) -> Prompt:
        requests = self._workload.requests
        segments = self._segments(place, again)
        if segments is None:
            return self._prompts.make(requests.prompt_tokens[place], serial)
        is_said_by_several = self._answers and self._target.endpoint is Endpoint.CHAT
        roles = conversation_roles(segments, self._answers) if is_said_by_several else None
        return self._prompts.make_of(segments, serial, roles, part=self._first)

    def _serial(self, index: int) -> int:
        if self._owns_serials and index >= self._num_named:  # later loads of the run must not say it again
            self._prompts.reserve(index + 1 - self._num_named)
            self._num_named = index + 1
        return self._first + index

    def _segments(self, place: int, again: int) -> Sequence[Segment] | None:
        """What the prompt is made of; when it comes again, only what several requests share stays the same."""
        prompts = self._workload.requests.prompts
        if prompts is None or not again:
            return None if prompts is None else prompts[place]
        if self._shared is None:
            users = Counter(content for prompt in prompts for content in {segment.content for segment in prompt})
            self._shared = frozenset(content for content, number in users.items() if number > 1)
            self._num_contents = max(users) + 1
        offset = again * self._num_contents
        return [
            segment if segment.content in self._shared else Segment(segment.content + offset, segment.num_tokens)
            for segment in prompts[place]
        ]


class JobLine:
    """Requests in the order in which they are taken, some of them made ahead.

    Where:    wanted says how many should lie ready, given how many were taken
    """

    def __init__(self, maker: JobMaker, indices: Iterator[int], wanted: Callable[[int], int]) -> None:
        self._maker, self._indices, self._wanted = maker, indices, wanted
        self._ready: deque[Job] = deque()
        self._num_taken = self._num_bytes = 0

    def take(self) -> Job | None:
        """The next request; None when there is none left."""
        if not self.has_more():
            return None
        self._num_taken += 1
        job = self._ready.popleft()
        self._num_bytes -= len(job.body)
        return job

    def has_more(self) -> bool:
        """Whether there is a next request."""
        return bool(self._ready) or self.make_one()

    def make_one(self) -> bool:
        """Make one more ahead; False when there is none left to make."""
        index = next(self._indices, None)
        if index is None:
            return False
        job = self._maker.make(index)
        self._ready.append(job)
        self._num_bytes += len(job.body)
        return True

    def is_short(self) -> bool:
        """Whether fewer lie ready than should, and than may."""
        return self._num_bytes < MOST_AHEAD_BYTES and len(self._ready) < self._wanted(self._num_taken)

    def fill(self, budget_s: float) -> bool:
        """Make some ahead, for about this long; whether there is more to make."""
        deadline_s = time.perf_counter() + budget_s
        while self.is_short():
            if not self.make_one():
                return False
            if time.perf_counter() >= deadline_s:
                return True
        return False


async def keep_ahead(lines: Sequence[JobLine]) -> None:
    """Fill the lines while a load goes on, a slice at a time and with the loop's other work in between; never ends."""
    while True:
        is_behind = [line.fill(_SLICE_S) for line in lines]
        await asyncio.sleep(_SLICE_S if any(is_behind) else _REST_S)
