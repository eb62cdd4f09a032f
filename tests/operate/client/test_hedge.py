"""Two attempts at once: off unless asked for, one answer, and both accounted for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from inference_bench.operate.answers import Answer, AttemptEnd
from inference_bench.operate.client import Policy, RequestFailed
from inference_bench.records import RequestStatus
from operate.client.world import SILENT, STREAM_HEAD, WELL, Script, World, ask, elapsed, refuses, run, says

SLOW = says("slow ", "answer", first_s=5)
HEDGED = Policy(hedge_after_s=1, first_token_s=8)


def ends(answer: Answer) -> list[tuple[str, AttemptEnd, bool]]:
    return [(attempt.endpoint.name, attempt.end, attempt.is_hedge) for attempt in answer.attempts]


@pytest.mark.parametrize("kind", ["complete", "stream"])
def test_nothing_is_asked_twice_at_once_by_default(kind: str) -> None:
    async def work() -> None:
        world = World({"a": [SLOW], "b": [WELL]})
        await get(world, Policy(), kind)
        assert [seen.host for seen in world.seen] == ["a"]

    run(work())


async def get(world: World, policy: Policy, kind: str = "complete", **more: Any) -> tuple[str, Answer]:
    client = world.client(policy, **more)
    if kind == "complete":
        done = await client.complete(ask())
        return done.text, done.answer
    async with client.stream(ask()) as reply:
        text = "".join([piece.text async for piece in reply])
    return text, reply.answer


@pytest.mark.parametrize("kind", ["complete", "stream"])
def test_the_quicker_one_answers_alone_and_the_other_is_closed_when_it_does(kind: str) -> None:
    async def work() -> None:
        world = World({"a": [SLOW], "b": [WELL]})
        text, answer = await get(world, HEDGED, kind)
        assert text == "one two three"
        assert ends(answer) == [("a", AttemptEnd.CANCELLED, False), ("b", AttemptEnd.COMPLETED, True)]
        assert answer.is_fallback
        slow, quick = world.seen
        assert (quick.at_s, slow.closed_s) == (pytest.approx(101), pytest.approx(101.1, abs=0.01))
        assert "a quicker attempt answered first" in str(answer.attempts[0].error)
        assert world.answers == [answer]

    run(work())


def test_no_hedge_starts_where_the_first_is_quick_or_has_failed_before() -> None:
    async def work() -> None:
        world = World({"a": [refuses(500), WELL], "b": [WELL]})
        _, answer = await get(world, HEDGED)
        assert [seen.host for seen in world.seen] == ["a", "a"]
        assert not any(attempt.is_hedge for attempt in answer.attempts)

    run(work())


def test_where_the_first_answers_after_all_the_hedge_is_dropped() -> None:
    async def work() -> None:
        world = World({"a": [says("first", first_s=2)], "b": [SILENT]})
        text, answer = await get(world, HEDGED)
        assert text == "first"
        assert ends(answer) == [("a", AttemptEnd.COMPLETED, False), ("b", AttemptEnd.CANCELLED, True)]
        assert not answer.is_fallback
        assert world.seen[1].closed_s == pytest.approx(102, abs=0.01)

    run(work())


def test_tokens_of_a_loser_that_answered_in_the_same_moment_are_counted() -> None:
    async def work() -> None:
        world = World({"a": [says("first ", "more", first_s=2.0)], "b": [says("second", first_s=1.0)]})
        text, answer = await get(world, HEDGED)
        kept, dropped = sorted(answer.attempts, key=lambda attempt: attempt.end is AttemptEnd.CANCELLED)
        assert text == {"a": "first more", "b": "second"}[kept.endpoint.name]
        assert (dropped.end, dropped.output_tokens) == (AttemptEnd.CANCELLED, 1)
        assert all(seen.closed_s is not None for seen in world.seen)

    run(work())


def test_one_that_fails_leaves_the_other_to_answer_and_both_failing_goes_on_as_usual() -> None:
    async def work() -> None:
        world = World({"a": [says("late", first_s=4)], "b": [refuses(500)]})
        text, answer = await get(world, HEDGED)
        assert (text, ends(answer)[1]) == ("late", ("b", AttemptEnd.SERVER_ERROR, True))
        world = World({"a": [refuses(500, after_s=3), WELL], "b": [refuses(500)]})
        text, answer = await get(world, HEDGED)
        assert text == "one two three"
        assert [end for _, end, _ in ends(answer)] == [
            AttemptEnd.SERVER_ERROR,
            AttemptEnd.SERVER_ERROR,
            AttemptEnd.COMPLETED,
        ]

    run(work())


def test_a_hedge_has_the_same_key_counts_as_an_attempt_and_happens_once_a_request() -> None:
    async def work() -> None:
        world = World({"a": [SILENT], "b": [SILENT]})
        took_s, found = await elapsed(
            get(world, Policy(hedge_after_s=1, first_token_s=3, budget_s=30, most_attempts=4))
        )
        assert isinstance(found, RequestFailed)
        assert len(world.seen) == 4
        assert sum(attempt.is_hedge for attempt in found.answer.attempts) == 1
        assert len({seen.headers["idempotency-key"] for seen in world.seen}) == 1
        assert took_s < 30

    run(work())


def test_attempts_are_numbered_in_order_where_the_first_ends_as_the_hedge_begins() -> None:
    async def work() -> None:
        world = World({"a": [Script([(0.0, STREAM_HEAD)])]})
        policy = Policy(hedge_after_s=1, first_token_s=1, stall_s=1, connect_s=1, budget_s=2, tries_each=1)
        found = (await elapsed(get(world, policy)))[1]
        assert isinstance(found, RequestFailed)
        assert [attempt.number for attempt in found.answer.attempts] == [1, 2]
        assert [attempt.is_hedge for attempt in found.answer.attempts] == [False, True]

    run(work())


def test_with_one_endpoint_the_hedge_goes_there_too() -> None:
    async def work() -> None:
        world = World({"a": [SLOW, WELL]})
        text, answer = await get(world, HEDGED)
        assert text == "one two three"
        assert not answer.is_fallback

    run(work())


def test_a_cancelled_caller_takes_both_along() -> None:
    async def work() -> None:
        world = World({"a": [SILENT], "b": [SILENT]})
        task = asyncio.create_task(get(world, HEDGED))
        await asyncio.sleep(1.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [seen.closed_s for seen in world.seen] == [pytest.approx(101.5)] * 2
        (answer,) = world.answers
        assert answer.status is RequestStatus.CANCELLED
        assert [attempt.end for attempt in answer.attempts] == [AttemptEnd.CANCELLED] * 2

    run(work())
