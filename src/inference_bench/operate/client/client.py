"""The client itself: ask in the order of preference, hand out what comes, and say what came of it.

In:   Upstreams, a Policy, Requests
Out:  StreamedReply and Completion; an Answer for every request that began, to the caller and to the recorder
Leaves out: what the rules are (policy) and how they are followed (attempts); storing anything
Read next by: drill.

One client belongs to one event loop and has no tasks of its own. Each attempt has a connection of its own, which is closed when its
stream ends, is left, or is cancelled; with `keep_alive_s` one whose answer was whole is kept for a later attempt, and `aclose` ends those.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from inference_bench.errors import RequestError
from inference_bench.measure.http1 import Dialer, RunClock
from inference_bench.measure.stream_events import Channel, Content
from inference_bench.operate.answers import Answer, AttemptEnd, EndpointIdentity
from inference_bench.operate.client.attempts import Attempts, GaveUp, Lane, Taken
from inference_bench.operate.client.backoff import Backoff, full_jitter
from inference_bench.operate.client.breaker import Breaker, BreakerState
from inference_bench.operate.client.budget import Budget
from inference_bench.operate.client.connections import Connections, Dial
from inference_bench.operate.client.course import STATUS_OF_END, Course
from inference_bench.operate.client.failures import (
    Cause,
    Interrupted,
    RequestFailed,
    remark_on,
    why_incomplete,
)
from inference_bench.operate.client.policy import Health, Policy, health_of
from inference_bench.operate.client.request import Letter, Request, RequestHead, Upstream
from inference_bench.records import RequestStatus

_TIMED_OUT = frozenset({Cause.STALLED, Cause.BUDGET})


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer. What it says shows in no repr.

    Where:    tool_calls are the deltas of the tool calls, each as JSON, in the order they came
    """

    answer: Answer
    text: str = field(repr=False)
    reasoning: str = field(repr=False)
    tool_calls: tuple[str, ...] = field(repr=False)


class Client:
    """Asks endpoints in the order they are given; `async with` closes the connections it keeps, where the policy has it keep any.

    Where:    recorder gets the Answer of every request that began, however it ended. It must not raise: an error of it is counted in
              num_unrecorded and kept in recorder_error, since the caller's answer is worth more than its record.
              on_breaker is told when an endpoint's breaker changes; its errors are counted in num_untold and kept in breaker_error.
              clock, wall_s, backoff and dial are there to be replaced in tests
    Raises:   RequestError for no endpoints, or two of one name; MissingExtraError
    """

    def __init__(
        self,
        upstreams: Iterable[Upstream],
        policy: Policy | None = None,
        *,
        recorder: Callable[[Answer], None] | None = None,
        on_breaker: Callable[[str, BreakerState], None] | None = None,
        clock: Callable[[], float] | None = None,
        wall_s: Callable[[], float] = time.time,
        backoff: Backoff | None = None,
        dial: Dial = Dialer,
    ) -> None:
        self.policy = policy or Policy()
        self.num_unrecorded = self.num_untold = 0
        self.recorder_error: str | None = None
        self.breaker_error: str | None = None
        self._recorder, self._wall_s = recorder, wall_s
        self._clock = clock or RunClock()
        self._upstreams = _check_upstreams(upstreams)
        header, keep_alive_s = self.policy.idempotency_header, self.policy.keep_alive_s
        self._heads = {each.name: RequestHead(each, header, is_last=not keep_alive_s) for each in self._upstreams}
        self._lanes = tuple(
            Lane(
                place,
                each,
                self._make_breaker(each.name, on_breaker),
                Connections(each.target.address, dial, self._clock, keep_alive_s),
            )
            for place, each in enumerate(self._upstreams)
        )
        drawn = backoff or full_jitter(self.policy.backoff_base_s, self.policy.backoff_most_s)
        self._attempts = Attempts(self._lanes, self.policy, drawn, self._clock, wall_s)

    def _make_breaker(self, name: str, on_breaker: Callable[[str, BreakerState], None] | None) -> Breaker:
        def tell(state: BreakerState) -> None:
            try:
                if on_breaker is not None:
                    on_breaker(name, state)
            except Exception as error:
                self.num_untold += 1
                self.breaker_error = type(error).__name__

        return Breaker(self.policy.breaker, self._clock, tell)

    async def aclose(self) -> None:
        """Close the connections that are kept, and keep none from now on."""
        for lane in self._lanes:
            await lane.connections.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def breakers(self) -> dict[str, BreakerState]:
        """The state of each endpoint's breaker, by name."""
        return {lane.upstream.name: lane.breaker.state for lane in self._lanes}

    def stream(self, request: Request) -> StreamedReply:
        """The answer as it comes: `async with client.stream(request) as reply: async for piece in reply: ...`.

        Raises:   RequestError, once the block is entered, for a request that cannot be put to every endpoint
        """
        return StreamedReply(self, request)

    async def complete(self, request: Request) -> Completion:
        """The whole answer.

        Raises:   RequestFailed where nobody answered, Interrupted with what had come where the answer broke off
        """
        async with StreamedReply(self, request, is_read_whole=self.policy.hedge_after_s is None) as reply:
            pieces = await reply.rest()
        said: dict[Channel, list[str]] = {channel: [] for channel in Channel}
        for piece in pieces:
            said[piece.channel].append(piece.text)
        content, reasoning = "".join(said[Channel.CONTENT]), "".join(said[Channel.REASONING])
        return Completion(reply.answer, content, reasoning, tuple(said[Channel.TOOL_CALL]))

    def begin(self, request: Request, is_read_whole: bool) -> Course:
        """Start the clock of a request; for StreamedReply."""
        for upstream in self._upstreams:
            upstream.path_for(request.route)
        letter = Letter(request, self._heads, self.policy.idempotency_header)
        budget = Budget(self._clock, request.budget_s or self.policy.budget_s)
        return Course(request, letter, budget, self._wall_s(), is_read_whole)

    async def reach(self, course: Course) -> Taken:
        """See Attempts; for StreamedReply."""
        return await self._attempts.reach(course)

    def record(self, answer: Answer) -> None:
        """Hand an answer to the recorder; for StreamedReply."""
        if self._recorder is None:
            return
        try:
            self._recorder(answer)
        except Exception as error:
            self.num_unrecorded += 1
            self.recorder_error = type(error).__name__


def _check_upstreams(upstreams: Iterable[Upstream]) -> tuple[Upstream, ...]:
    found = tuple(upstreams)
    if not found:
        raise RequestError("the client has no endpoint to ask; give at least one Upstream")
    names = [each.name for each in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise RequestError(f"two endpoints have the name {twice}; give each a name of its own")
    return found


class StreamedReply:
    """One answer as it comes; it has its first token once the `async with` block is entered.

    Where:    whatever way the block is left, the connection is closed, or kept after a whole answer, and `answer` is there
    """

    def __init__(self, client: Client, request: Request, *, is_read_whole: bool = False) -> None:
        self._client, self._request, self._is_read_whole = client, request, is_read_whole
        self._course: Course | None = None
        self._taken: Taken | None = None
        self._answer: Answer | None = None
        self._pieces: list[Content] = []  # all of them, for whoever catches an interruption
        self._num_handed_out = 0

    @property
    def answer(self) -> Answer:
        """What came of the request, once it is over.

        Raises:   RequestError before
        """
        if self._answer is None:
            raise RequestError("the answer is known once its stream has ended or its block was left")
        return self._answer

    @property
    def answered_by(self) -> EndpointIdentity:
        """Who is answering."""
        taken = self._opened()
        return taken.lane.upstream.identity(taken.opened.events.model)

    @property
    def is_fallback(self) -> bool:
        """Whether that is not the first endpoint of the list."""
        return self._opened().lane.place > 0

    async def __aenter__(self) -> Self:
        """Try until there is a first token.

        Raises:   RequestFailed
        """
        course = self._course = self._client.begin(self._request, self._is_read_whole)
        try:
            self._taken = await self._client.reach(course)
        except GaveUp:
            raise self._give_up(course) from None
        except BaseException:
            self._conclude(
                course.answer(RequestStatus.CANCELLED, course.budget.elapsed_s(), "the caller stopped the request")
            )
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        taken = self._opened()
        await taken.opened.end()
        if self._answer is None:
            self._settle(is_left=not taken.opened.is_over)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Content:
        """The next piece: its text, and whether that is content, reasoning or part of a tool call.

        Raises:   Interrupted, after every piece that came before
        """
        if self._num_handed_out == len(self._pieces):
            self._pieces += await self._opened().opened.next_pieces()
        if self._num_handed_out == len(self._pieces):
            await self._over()
            raise StopAsyncIteration
        self._num_handed_out += 1
        return self._pieces[self._num_handed_out - 1]

    async def rest(self) -> list[Content]:
        """Every piece that was not handed out yet, when all have come.

        Raises:   Interrupted, with every piece
        """
        while pieces := await self._opened().opened.next_pieces():
            self._pieces += pieces
        await self._over()
        first, self._num_handed_out = self._num_handed_out, len(self._pieces)
        return self._pieces[first:]

    def _opened(self) -> Taken:
        if self._taken is None:
            raise RequestError("a reply is read within `async with client.stream(request) as reply`")
        return self._taken

    async def _over(self) -> None:
        """Nothing more will come: close, and say what came of it."""
        if self._answer is not None:
            return
        await self._opened().opened.end()
        if (cause := self._settle()) is not None:
            answer = self.answer
            who = "nobody" if answer.answered_by is None else answer.answered_by.name
            raise Interrupted(f"the answer of {who} broke off: {answer.error}", answer, cause, self._pieces)

    def _settle(self, *, is_left: bool = False) -> Cause | None:
        """Write down how an attempt with a token ended; why it is no whole answer, None for one that is."""
        taken, course = self._opened(), self._course
        if course is None:
            return None
        opened, budget = taken.opened, course.budget
        found = None if is_left else why_incomplete(opened)
        cause, error = found or (None, "the caller stopped reading" if is_left else remark_on(opened))
        is_whole = cause is None and not is_left
        ended_s = budget.since_begin_s(opened.last_read_s) if is_whole else min(budget.elapsed_s(), budget.total_s)
        end = AttemptEnd.CANCELLED if is_left else AttemptEnd.COMPLETED if is_whole else AttemptEnd.INTERRUPTED
        taken.permit.end(Health.GOOD if is_left else health_of(end, None, is_cut_short=cause is Cause.BUDGET))
        course.finish(taken.trial, opened, end, ended_s, error)
        who, error = course.attempts[-1].endpoint, course.attempts[-1].error
        self._conclude(course.answer(_status_of(cause, is_left), ended_s, error, who, self.is_fallback, opened))
        return cause

    def _give_up(self, course: Course) -> RequestFailed:
        sent = [attempt for attempt in course.attempts if attempt.end is not AttemptEnd.BREAKER_OPEN]
        status = STATUS_OF_END.get(sent[-1].end, RequestStatus.FAILED) if sent else RequestStatus.FAILED
        message = _describe_failure(course)
        answer = course.answer(status, course.budget.elapsed_s(), message)
        self._conclude(answer)
        return RequestFailed(message, answer)

    def _conclude(self, answer: Answer) -> None:
        self._answer = answer
        self._client.record(answer)


def _status_of(cause: Cause | None, is_left: bool) -> RequestStatus:
    if is_left:
        return RequestStatus.CANCELLED
    if cause is None:
        return RequestStatus.COMPLETED
    return RequestStatus.TIMED_OUT if cause in _TIMED_OUT else RequestStatus.TRUNCATED


def _describe_failure(course: Course) -> str:
    """Who was asked, how often, and what the last one said."""
    if not course.attempts:
        return f"nobody was asked: the budget of {course.budget.total_s:g} s is shorter than one attempt"
    last, budget = course.attempts[-1], course.budget
    times = {0: "nobody was asked", 1: "asked once"}.get(course.num_sent, f"asked {course.num_sent} times")
    spent = f"{times} in {budget.elapsed_s():.3g} s of {budget.total_s:g} s"
    said = f"nobody answered ({spent}); last, {last.endpoint.name}: {last.error}"
    return f"{said}; {course.remark}" if course.remark else said
