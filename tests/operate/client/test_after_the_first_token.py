"""Once there is text, nothing is asked again: the caller gets what came, and what broke it off."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from inference_bench.errors import RequestError, StreamError
from inference_bench.measure.stream_events import Channel
from inference_bench.operate.answers import Answer, AttemptEnd
from inference_bench.operate.client import BreakerPolicy, BreakerState, Cause, Client, Interrupted, Policy
from inference_bench.records import RequestStatus
from operate.client.world import (
    CLOSE,
    DONE,
    END,
    FINISH,
    RESET,
    STREAM_HEAD,
    USAGE,
    WELL,
    Script,
    Step,
    World,
    ask,
    elapsed,
    event,
    refuses,
    run,
    says,
    token,
)

COMMENTS: list[Step] = [(0.5, b": still here\n\n")] * 40

# what follows the pieces; why the answer is not whole, and how the request ended
BREAKS: dict[str, tuple[Sequence[Step], Cause, RequestStatus]] = {
    "reset": ([(0.1, RESET)], Cause.LOST, RequestStatus.TRUNCATED),
    "garbage": ([(0.1, b'data: {"choices": [\n\n'), (0.0, CLOSE)], Cause.GARBAGE, RequestStatus.TRUNCATED),
    "an error": (
        [(0.1, event({"error": {"message": "the engine died"}})), (0.1, DONE)],
        Cause.SERVER_ERROR,
        RequestStatus.TRUNCATED,
    ),
    "the end": ([(0.1, CLOSE)], Cause.UNFINISHED, RequestStatus.TRUNCATED),
    "done without a reason": ([(0.1, DONE), (0.0, CLOSE)], Cause.UNFINISHED, RequestStatus.TRUNCATED),
    "silence": ([], Cause.STALLED, RequestStatus.TIMED_OUT),
    "comments": (COMMENTS, Cause.STALLED, RequestStatus.TIMED_OUT),
}


async def follow(client: Client, kind: str, **more: Any) -> tuple[list[str], Answer]:
    """The pieces that were handed out, and the answer, by either way of asking."""
    if kind == "complete":
        done = await client.complete(ask(**more))
        return [done.text], done.answer
    async with client.stream(ask(**more)) as reply:
        pieces = [piece.text async for piece in reply]
    return pieces, reply.answer


@pytest.mark.parametrize("kind", ["complete", "stream"])
@pytest.mark.parametrize("how", BREAKS)
def test_an_answer_that_breaks_off_is_handed_over_and_not_asked_for_again(how: str, kind: str) -> None:
    then, cause, status = BREAKS[how]

    async def work() -> None:
        world = World({"a": [says("one ", "two", then=then)], "b": [WELL]})
        with pytest.raises(Interrupted) as caught:
            await follow(world.client(Policy(stall_s=2)), kind)
        found = caught.value
        assert (found.text, found.cause, found.answer.status) == ("one two", cause, status)
        assert (found.answer.output_tokens, found.answer.is_lower_bound) == (2, True)
        assert [attempt.end for attempt in found.answer.attempts] == [AttemptEnd.INTERRUPTED]
        assert [seen.host for seen in world.seen] == ["a"]
        assert world.seen[0].closed_s is not None
        assert world.answers == [found.answer]

    run(work())


@pytest.mark.parametrize("how", BREAKS)
def test_every_piece_that_came_is_handed_out_before_the_interruption(how: str) -> None:
    async def work() -> None:
        world = World({"a": [says("one ", "two ", "three", gap_s=0.0, then=BREAKS[how][0])]})
        pieces: list[str] = []

        async def read() -> None:
            async with world.client(Policy(stall_s=2)).stream(ask()) as reply:
                async for piece in reply:
                    pieces.append(piece.text)  # noqa: PERF401 (what came before the error is wanted)

        _, found = await elapsed(read())
        assert isinstance(found, Interrupted)
        assert pieces == ["one ", "two ", "three"]

    run(work())


@pytest.mark.parametrize("kind", ["complete", "stream"])
def test_a_stall_is_seen_after_the_time_between_tokens_also_where_the_first_token_had_much_longer(kind: str) -> None:
    async def work() -> None:
        world = World({"a": [says("one ", "two", then=COMMENTS)]})
        took_s, found = await elapsed(follow(world.client(Policy(first_token_s=30, stall_s=2)), kind))
        assert isinstance(found, Interrupted)
        assert took_s == pytest.approx(0.2 + 2, abs=0.01)
        assert "no token came for 2 s" in str(found)

    run(work())


@pytest.mark.parametrize("kind", ["complete", "stream"])
def test_an_answer_that_goes_on_for_longer_than_the_budget_is_cut_off_at_its_end(kind: str) -> None:
    async def work() -> None:
        world = World({"a": [says(*["word "] * 100)]})
        client = world.client(Policy(budget_s=3, breaker=BreakerPolicy(least_failures=1)))
        took_s, found = await elapsed(follow(client, kind))
        assert isinstance(found, Interrupted)
        assert (found.cause, took_s) == (Cause.BUDGET, pytest.approx(3))
        assert took_s <= 3 + 1e-6
        assert found.text.count("word") in (29, 30)
        assert client.breakers["a"] is BreakerState.CLOSED  # the caller's budget, not the server's fault

    run(work())


def test_the_budget_also_ends_a_stream_whose_caller_does_not_read() -> None:
    async def work() -> None:
        world = World({"a": [says(*["word "] * 100)]})

        async def read_late() -> None:
            async with world.client(Policy(budget_s=3)).stream(ask()) as reply:
                await asyncio.sleep(20)
                assert world.seen[0].closed_s == pytest.approx(103)
                async for _ in reply:
                    pass

        _, found = await elapsed(read_late())
        assert isinstance(found, Interrupted)
        assert (found.cause, found.answer.e2e_s) == (Cause.BUDGET, 3)

    run(work())


def test_a_stall_counts_against_the_endpoint() -> None:
    async def work() -> None:
        world = World({"a": [says("one", then=[])]})
        client = world.client(Policy(stall_s=1, breaker=BreakerPolicy(least_failures=1)))
        await elapsed(client.complete(ask()))
        assert client.breakers["a"] is BreakerState.OPEN

    run(work())


@pytest.mark.parametrize("kind", ["complete", "stream"])
@pytest.mark.parametrize(
    ("then", "remark"),
    [
        ([(0.0, FINISH), (0.0, RESET)], "connection was lost"),
        ([(0.0, FINISH), (0.0, CLOSE)], "without its closing [DONE]"),
        ([(0.0, FINISH + USAGE)], "no token came"),
        ([(0.0, FINISH), (0.0, b"data: {\n\n"), (0.0, CLOSE)], "not JSON"),
    ],
)
def test_what_happens_after_the_reason_to_end_is_a_remark_on_a_whole_answer(
    then: Sequence[Step], remark: str, kind: str
) -> None:
    async def work() -> None:
        world = World({"a": [says("one ", "two", then=then)]})
        pieces, answer = await follow(world.client(Policy(stall_s=1)), kind)
        assert "".join(pieces) == "one two"
        assert (answer.status, answer.finish_reason) == (RequestStatus.COMPLETED, "stop")
        assert answer.error is not None
        assert remark in answer.error

    run(work())


@pytest.mark.parametrize("kind", ["complete", "stream"])
def test_a_whole_answer_has_its_text_its_counts_its_times_and_its_sender(kind: str) -> None:
    async def work() -> None:
        world = World({"a": [WELL]})
        pieces, answer = await follow(world.client(), kind, application="search", team="blue", request_id="r-1")
        assert "".join(pieces) == "one two three"
        assert answer.answered_by is not None
        assert answer.answered_by.model == "served"
        assert (answer.prompt_tokens, answer.cached_prompt_tokens, answer.output_tokens, answer.reasoning_tokens) == (
            7,
            4,
            5,
            2,
        )
        assert (answer.ttft_s, answer.e2e_s) == (pytest.approx(0.1, abs=0.001), pytest.approx(0.3, abs=0.001))
        assert (answer.application, answer.team, answer.request_id) == ("search", "blue", "r-1")
        assert (answer.error, answer.is_lower_bound, answer.at[:10]) == (None, False, "2026-11-30")
        assert world.answers == [answer]

    run(work())


def test_an_answer_without_a_token_is_whole_where_it_gives_a_reason_to_end() -> None:
    async def work() -> None:
        world = World({"a": [Script([(0.0, STREAM_HEAD), (0.1, END), (0.0, CLOSE)])]})
        done = await world.client().complete(ask())
        assert (done.text, done.answer.finish_reason, done.answer.ttft_s) == ("", "stop", None)
        assert len(done.answer.attempts) == 1

    run(work())


def test_reasoning_and_tool_calls_are_told_apart_from_the_text() -> None:
    call = [{"index": 0, "function": {"name": "look", "arguments": '{"at": "the sea"}'}}]
    steps = [(0.0, STREAM_HEAD), (0.1, token("", reasoning_content="so ")), (0.1, token("yes"))]

    async def work() -> None:
        world = World({"a": [Script([*steps, (0.1, token("", tool_calls=call)), (0.1, END), (0.0, CLOSE)])]})
        done = await world.client().complete(ask())
        assert (done.text, done.reasoning) == ("yes", "so ")
        assert len(done.tool_calls) == 1
        assert '"name": "look"' in done.tool_calls[0]
        async with world.client().stream(ask()) as reply:
            channels = [piece.channel async for piece in reply]
        assert channels == [Channel.REASONING, Channel.CONTENT, Channel.TOOL_CALL]

    run(work())


def test_what_goes_out_is_the_callers_fields_and_four_of_the_clients() -> None:
    async def work() -> None:
        world = World({"a": [WELL]})
        await world.client().complete(ask("hello"))
        own = {"model": "asked", "stream": True, "stream_options": {"include_usage": True}}
        assert world.seen[0].body == {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, **own}
        assert world.seen[0].path == "/v1/chat/completions"

    run(work())


def test_text_is_in_no_message_no_repr_and_cannot_be_pickled_with_the_error() -> None:
    async def work() -> None:
        world = World({"a": [says("the treasure is ", "under the oak", then=[(0.1, RESET)])]})
        _, found = await elapsed(world.client().complete(ask()))
        assert isinstance(found, StreamError)
        said = f"{found!s} {found!r} {world.answers!r} {getattr(found, 'pieces', ())!r}"
        assert "treasure" not in said
        assert "oak" not in said
        with pytest.raises(TypeError):
            pickle.dumps(found)

    run(work())


@pytest.mark.parametrize("kind", ["complete", "stream"])
@pytest.mark.parametrize("after_s", [0.05, 0.25])
def test_a_cancelled_request_closes_its_connection_at_once_and_is_accounted_for(kind: str, after_s: float) -> None:
    async def work() -> None:
        world = World({"a": [says(*["word "] * 50)]})
        client = world.client(Policy(breaker=BreakerPolicy(least_failures=1)))
        task = asyncio.create_task(follow(client, kind))
        await asyncio.sleep(after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert world.seen[0].closed_s == pytest.approx(100 + after_s)
        (answer,) = world.answers
        assert answer.status is RequestStatus.CANCELLED
        (attempt,) = answer.attempts
        assert (attempt.end, attempt.output_tokens) == (AttemptEnd.CANCELLED, 2 if after_s > 0.2 else None)
        assert client.breakers["a"] is BreakerState.CLOSED

    run(work())


def test_a_request_cancelled_while_it_pauses_is_accounted_for() -> None:
    async def work() -> None:
        world = World({"a": [says(then=[(0.0, RESET)])]})
        task = asyncio.create_task(world.client(backoff=lambda number: 5).complete(ask()))
        await asyncio.sleep(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [answer.status for answer in world.answers] == [RequestStatus.CANCELLED]

    run(work())


def test_leaving_the_block_early_closes_the_connection_and_counts_what_came() -> None:
    async def work() -> None:
        world = World({"a": [says(*["word "] * 50)]})
        async with world.client().stream(ask()) as reply:
            async for _ in reply:
                break
        assert world.seen[0].closed_s == pytest.approx(100.1, abs=0.01)
        assert (reply.answer.status, reply.answer.output_tokens) == (RequestStatus.CANCELLED, 1)
        assert world.answers == [reply.answer]

    run(work())


def test_an_error_of_the_callers_own_passes_through_and_the_request_is_accounted_for() -> None:
    async def work() -> None:
        world = World({"a": [says(*["word "] * 50)]})
        with pytest.raises(ZeroDivisionError):
            async with world.client().stream(ask()):
                raise ZeroDivisionError
        assert world.seen[0].closed_s is not None
        assert [answer.status for answer in world.answers] == [RequestStatus.CANCELLED]

    run(work())


def test_a_recorder_that_fails_costs_nobody_an_answer_and_is_counted() -> None:
    def full_disk(answer: Answer) -> None:
        raise OSError(28, "no space left on device")

    async def work() -> None:
        world = World({"a": [WELL]})
        client = world.client(recorder=full_disk)
        done = await client.complete(ask())
        assert done.text == "one two three"
        assert (client.num_unrecorded, client.recorder_error) == (1, "OSError")

    run(work())


def test_a_listener_to_breakers_that_fails_costs_nobody_an_answer_and_is_counted() -> None:
    def broken(_name: str, _state: BreakerState) -> None:
        raise LookupError("no such metric")

    async def work() -> None:
        world = World({"a": [refuses(500)], "b": [WELL]})
        policy = Policy(breaker=BreakerPolicy(least_failures=1))
        client = world.client(policy, on_breaker=broken)
        done = await client.complete(ask())
        assert done.text == "one two three"
        assert client.breakers["a"] is BreakerState.OPEN
        assert (client.num_untold, client.breaker_error) == (1, "LookupError")

    run(work())


def test_a_reply_is_read_within_its_block_and_its_answer_after_it() -> None:
    async def work() -> None:
        world = World({"a": [WELL]})
        reply = world.client().stream(ask())
        with pytest.raises(RequestError, match="async with"):
            await anext(reply)
        async with reply:
            with pytest.raises(RequestError, match="once its stream has ended"):
                _ = reply.answer

    run(work())


def test_a_reply_larger_than_the_policy_allows_is_cut_off() -> None:
    async def work() -> None:
        world = World({"a": [says("one", then=[(0.1, b": " + b"x" * 5000 + b"\n\n")])]})
        _, found = await elapsed(world.client(Policy(max_reply_bytes=3000)).complete(ask()))
        assert isinstance(found, Interrupted)
        assert "larger than 3000 bytes" in str(found)

    run(work())
