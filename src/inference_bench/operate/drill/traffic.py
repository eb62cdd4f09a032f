"""Requests through the resilient client at a steady pace, each with an account of its own.

In:   a Client, questions, a pace
Out:  Outcome for each request: its Answers, its text, how it ended for the caller, and when
Leaves out: judging them (accounting), what is wrong with the servers meanwhile (stage, soak)
Read next by: accounting, stage, soak.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from secrets import token_hex
from typing import Final

from inference_bench.operate.answers import Answer
from inference_bench.operate.client import (
    BreakerState,
    Cause,
    Client,
    Interrupted,
    Policy,
    Request,
    RequestFailed,
    Upstream,
)

HUNG_AFTER_S: Final = 5.0  # past its budget
_CONNECTION_LOST: Final = "connection_lost"  # the word lost alone is for requests without an account
_LAG_EVERY_S: Final = 0.02

QUESTIONS: Final = (
    "Count from one to twenty in words.",
    "Name the days of the week in order.",
    "List the months of the year in order.",
    "Write the letters of the alphabet in order.",
)


class CallerEnd(StrEnum):
    """What the caller of the client got."""

    COMPLETED = "completed"
    FAILED = "failed"  # an error that says why, and no text
    INTERRUPTED = "interrupted"  # a part of the text, and the cause
    OPEN = "open"  # nothing: it did not return
    UNTYPED = "untyped"  # an error of another kind


@dataclass(slots=True)
class Outcome:
    """One request. Unit: seconds of the drill's clock."""

    request_id: str
    question: int
    began_s: float
    budget_s: float
    is_read_whole: bool
    ended_s: float | None = None
    end: CallerEnd = CallerEnd.OPEN
    reason: str | None = None
    text: str = field(default="", repr=False)
    answers: list[Answer] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Asking:
    """What is asked: of each question the fields that go out."""

    fields: Sequence[dict[str, object]] = field(repr=False)

    @classmethod
    def usual(cls, max_tokens: int) -> Asking:
        """Short answers, greedy: the same text each time, where the server is deterministic."""
        return cls([
            {"messages": [{"role": "user", "content": each}], "max_tokens": max_tokens, "temperature": 0}
            for each in QUESTIONS
        ])  # fmt: skip


class Traffic:
    """Sends requests and remembers all of them.

    Where:    on_answer also gets each Answer; tolerance_s grows with the longest that this event loop was seen to be late
    """

    def __init__(
        self,
        upstreams: Sequence[Upstream],
        policy: Policy,
        asking: Asking,
        clock: Callable[[], float],
        on_answer: Callable[[Answer], None] | None = None,
    ) -> None:
        self.outcomes: list[Outcome] = []
        self.breaker_changes: list[tuple[float, str, BreakerState]] = []
        self.longest_lag_s = 0.0
        self.strays = 0  # answers to requests that nobody made
        self._by_id: dict[str, Outcome] = {}
        self._policy, self._asking, self._clock, self._on_answer = policy, asking, clock, on_answer
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers, self._run_id = count(), token_hex(4)  # so that ids of several scenarios differ in a record
        self.client = Client(upstreams, policy, recorder=self._record, on_breaker=self._note_breaker)

    def _record(self, answer: Answer) -> None:
        outcome = self._by_id.get(answer.request_id)
        if outcome is None:
            self.strays += 1
        else:
            outcome.answers.append(answer)
        if self._on_answer is not None:
            self._on_answer(answer)

    def _note_breaker(self, name: str, state: BreakerState) -> None:
        self.breaker_changes.append((self._clock(), name, state))

    def send(self) -> Outcome:
        """Begin one more request."""
        number = next(self._numbers)
        question = number % len(self._asking.fields)
        request = Request(self._asking.fields[question], request_id=f"drill-{self._run_id}-{number}")
        outcome = Outcome(request.request_id, question, self._clock(), self._policy.budget_s, number // 2 % 2 == 0)
        self.outcomes.append(outcome)
        self._by_id[outcome.request_id] = outcome
        task = asyncio.create_task(self._ask(request, outcome))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return outcome

    async def _ask(self, request: Request, outcome: Outcome) -> None:
        try:
            text = await self._read(request, outcome)
        except RequestFailed as failure:
            last = failure.answer.attempts[-1].end if failure.answer.attempts else "not_asked"
            outcome.end, outcome.reason = CallerEnd.FAILED, str(last)
        except Interrupted as failure:
            outcome.end, outcome.text = CallerEnd.INTERRUPTED, failure.text
            outcome.reason = _CONNECTION_LOST if failure.cause is Cause.LOST else str(failure.cause)
        except Exception as error:  # anything else is what a drill is there to find
            outcome.end, outcome.reason = CallerEnd.UNTYPED, type(error).__name__
        else:
            outcome.end, outcome.text = CallerEnd.COMPLETED, text
        outcome.ended_s = self._clock()

    async def _read(self, request: Request, outcome: Outcome) -> str:
        """The whole answer; every other one piece by piece, as a caller shows it."""
        if outcome.is_read_whole:
            return (await self.client.complete(request)).text
        async with self.client.stream(request) as reply:
            return "".join([piece.text async for piece in reply])

    async def pace(self, interval_s: float, until: Callable[[], bool]) -> None:
        """Send one every interval until there is a reason to stop; late ones are not made up for."""
        while not until():
            self.send()
            await asyncio.sleep(interval_s)

    async def drain(self) -> None:
        """Wait for all that is under way; what hangs is given up, and stays open."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=self._policy.budget_s + HUNG_AFTER_S)
        await self.stop()

    async def stop(self) -> None:
        """End what is under way."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def watch_lag(self) -> None:
        """Note how late this event loop is, for as long as it is not cancelled."""
        while True:
            due_s = self._clock() + _LAG_EVERY_S
            await asyncio.sleep(_LAG_EVERY_S)
            self.longest_lag_s = max(self.longest_lag_s, self._clock() - due_s)
