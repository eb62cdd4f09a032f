"""From one attempt to the next: who is asked, how often, after what pause, and when it is over.

In:   lanes in the order of preference, a policy, a request's Course
Out:  Taken, an attempt that has its first token; GaveUp where there will be none
Leaves out: what comes after the first token: from there on nothing is asked again (client)
Read next by: client.

The rules, in the order they apply to a failure: what asking again cannot change ends the request, at every endpoint; a breaker that has
opened, the last try here, no token in time while another endpoint may be asked, or a pause that does not fit sends it to the next endpoint
at once; otherwise it pauses and asks again. A kept connection that had been closed by then is no failure of the endpoint: it is asked
once more at once, on a new one, and that counts as the same attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from inference_bench.measure.stream_follower import DecodeRounds
from inference_bench.operate.answers import AttemptEnd
from inference_bench.operate.client.backoff import Backoff, choose_pause
from inference_bench.operate.client.breaker import Breaker, BreakerState, Permit
from inference_bench.operate.client.connections import Connections
from inference_bench.operate.client.course import Course, Trial
from inference_bench.operate.client.hedge import race
from inference_bench.operate.client.opening import AttemptFailure, Limits, OpenReply, check_begun, open_reply
from inference_bench.operate.client.policy import RULES, Health, Policy, health_of
from inference_bench.operate.client.request import Upstream

_LEAST_S: Final = 1e-6  # a time limit has to be above 0, however late this is


class GaveUp(Exception):
    """No attempt will be made any more; stays inside this package."""


@dataclass(slots=True, eq=False)
class Lane:
    """One upstream, with its breaker and its connections."""

    place: int
    upstream: Upstream
    breaker: Breaker
    connections: Connections


@dataclass(slots=True)
class Taken:
    """An attempt that has its first token."""

    lane: Lane
    trial: Trial
    opened: OpenReply
    permit: Permit


class Attempts:
    """What all requests of a client have in common."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        policy: Policy,
        backoff: Backoff,
        clock: Callable[[], float],
        wall_s: Callable[[], float],
    ) -> None:
        self._lanes, self._policy, self._backoff = lanes, policy, backoff
        self._clock, self._wall_s = clock, wall_s
        self._rounds = DecodeRounds(clock)

    async def reach(self, course: Course) -> Taken:
        """The first attempt that has a token.

        Raises:   GaveUp
        """
        for lane in self._lanes:
            if (taken := await self._ask(course, lane)) is not None:
                return taken
        raise GaveUp

    async def _ask(self, course: Course, lane: Lane) -> Taken | None:
        """Ask one endpoint; None where the next one's turn has come."""
        policy, pause_s = self._policy, 0.0
        for number in range(1, policy.tries_each + 1):
            if not self._may_send(course, policy.least_left_s / 2 if pause_s else policy.least_left_s):
                raise GaveUp  # a timer may have taken half of what the pause left
            if (permit := lane.breaker.admit()) is None:
                course.note_open_breaker(lane.upstream, lane.breaker.open_for_s, pause_s)
                return None
            try:
                return await self._try(course, lane, permit, pause_s)
            except AttemptFailure as failure:
                if not RULES[failure.end].is_retried:
                    raise GaveUp from None
                pause = self._pause_after(course, lane, number, failure)
            if pause is None:
                return None
            pause_s = pause
            await asyncio.sleep(pause_s)
        return None

    def _may_send(self, course: Course, least_s: float) -> bool:
        return course.num_sent < self._policy.most_attempts and course.budget.left_s() >= least_s

    def _pause_after(self, course: Course, lane: Lane, number: int, failure: AttemptFailure) -> float | None:
        """How long to wait before this endpoint is asked again; None where it is not."""
        policy, retry_after_s = self._policy, failure.retry_after_s
        is_last = number == policy.tries_each or course.num_sent >= policy.most_attempts
        if is_last or lane.breaker.state is BreakerState.OPEN or self._is_slower_than_another(lane, failure):
            return None
        room_s = course.budget.left_s() - policy.least_left_s
        pause_s = choose_pause(self._backoff(number), retry_after_s, room_s, policy.retry_after_most_s)
        if pause_s is None and retry_after_s is not None:
            most_s = max(0.0, min(room_s, policy.retry_after_most_s))
            course.remark = (
                f"{lane.upstream.name} asked to wait {retry_after_s:g} s and there was room for {most_s:.3g} s"
            )
        return pause_s

    def _is_slower_than_another(self, lane: Lane, failure: AttemptFailure) -> bool:
        """Whether waiting for this one again would cost the time in which another may answer."""
        others = self._lanes[lane.place + 1 :]
        is_slow = failure.end is AttemptEnd.TIMED_OUT
        return is_slow and any(other.breaker.state is not BreakerState.OPEN for other in others)

    async def _try(self, course: Course, lane: Lane, permit: Permit, pause_s: float) -> Taken:
        """One attempt, with a second one beside it where the policy says so.

        Raises:   AttemptFailure
        """
        first = self._send(course, lane, permit, pause_s)
        after_s = self._policy.hedge_after_s
        if after_s is None or course.is_hedged:
            return await first
        return await race(first, lambda: self._hedge(course, lane), after_s, self._drop(course))

    def _hedge(self, course: Course, lane: Lane) -> Coroutine[Any, Any, Taken] | None:
        """A second attempt: at the next endpoint that may be asked, else at the same one."""
        if not self._may_send(course, self._policy.least_left_s):
            return None
        for other in (*self._lanes[lane.place + 1 :], lane):
            if (permit := other.breaker.admit()) is not None:
                course.is_hedged = True
                return self._send(course, other, permit, 0.0, is_hedge=True)
        return None

    def _drop(self, course: Course) -> Callable[[Taken], Coroutine[Any, Any, None]]:
        async def drop(taken: Taken) -> None:
            """It had a token as well, a moment too late."""
            await taken.opened.close()
            taken.permit.end(Health.GOOD)
            error = "a quicker attempt answered first"
            course.finish(taken.trial, taken.opened, AttemptEnd.CANCELLED, course.budget.elapsed_s(), error)

        return drop

    async def _send(
        self, course: Course, lane: Lane, permit: Permit, waited_s: float, *, is_hedge: bool = False
    ) -> Taken:
        """One attempt; a second one at once where it was sent on a kept connection that had been closed."""
        try:
            return await self._send_once(course, lane, permit, waited_s, is_hedge=is_hedge)
        except AttemptFailure as failure:
            if not failure.is_stale:
                raise
            if course.budget.left_s() < self._policy.least_left_s:
                permit.end(Health.UNKNOWN)
                raise
        # none is kept any more, so this one is new
        return await self._send_once(course, lane, permit, 0.0, is_hedge=is_hedge)

    async def _send_once(self, course: Course, lane: Lane, permit: Permit, waited_s: float, *, is_hedge: bool) -> Taken:
        policy, left_s = self._policy, max(course.budget.left_s(), _LEAST_S)
        limits = Limits(policy.connect_s, policy.first_token_s, policy.stall_s, left_s, policy.max_reply_bytes)
        trial = course.begin(lane.upstream, waited_s, is_hedge=is_hedge)
        opened: OpenReply | None = None
        try:
            message = course.letter.bytes_for(lane.upstream.name)
            opened = await open_reply(lane.connections, message, limits, self._clock, self._wall_s)
            is_read_whole = course.is_read_whole and not permit.is_probe
            await (opened.read_all(self._rounds) if is_read_whole else opened.begin())
            check_begun(opened, limits)
        except AttemptFailure as raised:
            failure = raised
        except BaseException:
            permit.end(Health.UNKNOWN)
            await _stop(course, trial, opened)
            raise
        else:
            permit.has_token()
            course.is_answered = True
            return Taken(lane, trial, opened, permit)
        if opened is not None:
            await opened.close()
        if failure.is_stale or failure.end is AttemptEnd.TIMED_OUT:
            lane.connections.drop_all()
        elif failure.end is AttemptEnd.NOT_REACHED:
            lane.connections.look_up_again()
        if not failure.is_stale:
            permit.end(health_of(failure.end, failure.http_status, is_cut_short=failure.is_cut_short))
        course.fail(trial, failure)
        raise failure


async def _stop(course: Course, trial: Trial, opened: OpenReply | None) -> None:
    """This side stopped an attempt that nobody has read from yet; what it sent is counted all the same."""
    why = "a quicker attempt answered first" if course.is_answered else "the caller stopped the request"
    if opened is None:
        course.stop(trial, why)
        return
    course.finish(trial, opened, AttemptEnd.CANCELLED, course.budget.elapsed_s(), why)
    await opened.close()
