"""What happens until somebody answers: one budget, pauses, breakers, fallbacks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from inference_bench.measure.target import ApiKey, Endpoint, Target
from inference_bench.operate.answers import AttemptEnd
from inference_bench.operate.client import BreakerPolicy, BreakerState, Client, Policy, RequestFailed, Upstream
from inference_bench.records import RequestStatus
from operate.client.world import (
    CLOSE,
    GARBAGE,
    NEVER_CONNECTS,
    REFUSES_CONNECTIONS,
    RESET,
    SILENT,
    STREAM_HEAD,
    WALL_S,
    WELL,
    Script,
    ScriptedDialer,
    World,
    ask,
    elapsed,
    ends,
    event,
    get,
    refuses,
    run,
    says,
)

QUICK = Policy(budget_s=10, first_token_s=3, tries_each=2)


def failed(found: Any) -> RequestFailed:
    assert isinstance(found, RequestFailed), found
    return found


@pytest.mark.parametrize("budget_s", [1.0, 2.5, 3.5, 7.0])
def test_all_attempts_at_all_endpoints_share_one_budget(budget_s: float) -> None:
    async def work() -> None:
        world = World({"a": [SILENT], "b": [SILENT]})
        took_s, found = await elapsed(world.client(QUICK).complete(ask(budget_s=budget_s)))
        assert took_s == pytest.approx(budget_s, abs=0.06)
        assert took_s <= budget_s + 1e-6
        assert failed(found).answer.status is RequestStatus.TIMED_OUT
        assert all(seen.closed_s is not None for seen in world.seen)

    run(work())


def test_connecting_has_a_limit_of_its_own() -> None:
    async def work() -> None:
        world = World({"a": [NEVER_CONNECTS, WELL]})
        done = await world.client(Policy(connect_s=0.5)).complete(ask())
        first, _ = done.answer.attempts
        assert (first.end, first.ended_s) == (AttemptEnd.NOT_REACHED, pytest.approx(0.5))

    run(work())


@pytest.mark.parametrize("kind", ["complete", "stream"])
@pytest.mark.parametrize("silence", ["no head", "head only", "comments"])
def test_the_first_token_has_a_limit_whatever_comes_instead(kind: str, silence: str) -> None:
    comments = [(0.25, b": still here\n\n")] * 40
    steps = {"no head": [], "head only": [(0.1, STREAM_HEAD)], "comments": [(0.0, STREAM_HEAD), *comments]}[silence]

    async def work() -> None:
        world = World({"a": [Script(steps), WELL]})
        answer = await get(world.client(Policy(first_token_s=2)), kind)
        first, second = answer.attempts
        assert (first.end, first.ended_s - first.started_s) == (AttemptEnd.TIMED_OUT, pytest.approx(2))
        assert second.end is AttemptEnd.COMPLETED

    run(work())


BROKEN = {
    "connection refused": (REFUSES_CONNECTIONS, AttemptEnd.NOT_REACHED),
    "reset at once": (Script([(0.1, RESET)]), AttemptEnd.NOT_REACHED),
    "reset after the head": (Script([(0.1, STREAM_HEAD), (0.1, RESET)]), AttemptEnd.NOT_REACHED),
    "no http": (Script([(0.1, b"SSH-2.0-OpenSSH\r\n\r\n")]), AttemptEnd.GARBAGE),
    "garbage events": (GARBAGE, AttemptEnd.GARBAGE),
    "a stream of nothing": (Script([(0.0, STREAM_HEAD), (0.0, event("[DONE]")), (0.0, CLOSE)]), AttemptEnd.GARBAGE),
    "html": (
        Script([(0.0, b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>"), (0.0, CLOSE)]),
        AttemptEnd.GARBAGE,
    ),
    "json that is no error": (refuses(200, body=b'{"choices": []}'), AttemptEnd.GARBAGE),
    "an error as json": (refuses(200, body=b'{"error": "no model"}'), AttemptEnd.SERVER_ERROR),
    "an error in the stream": (
        Script([(0.0, STREAM_HEAD), (0.1, event({"error": {"message": "out of memory"}}))]),
        AttemptEnd.SERVER_ERROR,
    ),
    "408": (refuses(408), AttemptEnd.REFUSED),
    "429": (refuses(429), AttemptEnd.REFUSED),
    "500": (refuses(500), AttemptEnd.SERVER_ERROR),
    "502": (refuses(502), AttemptEnd.SERVER_ERROR),
    "503": (refuses(503), AttemptEnd.REFUSED),
    "504": (refuses(504), AttemptEnd.SERVER_ERROR),
}


@pytest.mark.parametrize("kind", ["complete", "stream"])
@pytest.mark.parametrize("what", BROKEN)
def test_what_fails_before_the_first_token_is_tried_again(what: str, kind: str) -> None:
    script, end = BROKEN[what]

    async def work() -> None:
        world = World({"a": [script, WELL]})
        answer = await get(world.client(), kind)
        assert ends(answer) == [("a", end), ("a", AttemptEnd.COMPLETED)]
        assert answer.status is RequestStatus.COMPLETED
        assert not answer.is_fallback
        assert all(seen.closed_s is not None for seen in world.seen if seen.message)

    run(work())


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 422])
def test_what_asking_again_cannot_change_is_asked_once_and_of_nobody_else(status: int) -> None:
    async def work() -> None:
        world = World({"a": [refuses(status)], "b": [WELL]})
        _, found = await elapsed(world.client().complete(ask()))
        assert failed(found).answer.status is RequestStatus.REJECTED
        assert ends(failed(found).answer) == [("a", AttemptEnd.BAD_REQUEST)]
        assert f"HTTP {status}" in str(found)
        assert world.of("b") == []

    run(work())


def test_tries_at_an_endpoint_and_attempts_in_all_are_bounded() -> None:
    async def work() -> None:
        world = World({name: [refuses(500)] for name in ("a", "b", "c")})
        _, found = await elapsed(world.client(Policy(tries_each=3, most_attempts=5)).complete(ask()))
        assert [seen.host for seen in world.seen] == ["a", "a", "a", "b", "b"]
        assert "asked 5 times" in str(failed(found))

    run(work())


def test_pauses_are_those_of_the_backoff_and_there_is_none_before_another_endpoint() -> None:
    async def work() -> None:
        world = World({"a": [refuses(500)], "b": [refuses(500), WELL]})
        done = await world.client(Policy(tries_each=3), backoff=lambda number: 0.5 * 2 ** (number - 1)).complete(ask())
        assert [round(seen.at_s - 100, 3) for seen in world.seen] == pytest.approx([0, 0.5, 1.5, 1.5, 2.0], abs=1e-3)
        assert [attempt.waited_s for attempt in done.answer.attempts] == [0, 0.5, 1.0, 0, 0.5]

    run(work())


def test_no_attempt_begins_with_less_of_the_budget_than_the_least() -> None:
    async def work() -> None:
        world = World({"a": [refuses(500)]})
        policy = Policy(budget_s=1.0, least_left_s=0.3, tries_each=9, most_attempts=9)
        await elapsed(world.client(policy, backoff=lambda number: 0.25).complete(ask()))
        assert [round(seen.at_s - 100, 2) for seen in world.seen] == [0, 0.25, 0.5, 0.7]

    run(work())


@pytest.mark.parametrize("header", ["Retry-After: 4", "Retry-After: Mon, 29 Nov 2027 20:00:04 GMT"])
def test_retry_after_is_waited_for_and_the_draw_comes_on_top(header: str) -> None:
    date = () if header.endswith("4") else ("Date: Mon, 29 Nov 2027 20:00:00 GMT",)

    async def work() -> None:
        world = World({"a": [refuses(429, header, *date), WELL]})
        done = await world.client(backoff=lambda number: 0.25).complete(ask())
        first, second = done.answer.attempts
        assert (first.retry_after_s, second.waited_s) == (4, 4.25)
        assert world.seen[1].at_s - world.seen[0].at_s >= 4

    run(work())


def test_a_retry_after_that_does_not_fit_fails_at_once_and_says_so() -> None:
    async def work() -> None:
        world = World({"a": [refuses(503, "Retry-After: 9")]})
        took_s, found = await elapsed(world.client(Policy(budget_s=8)).complete(ask()))
        assert took_s < 0.01
        assert "a asked to wait 9 s and there was room for 7.95 s" in str(failed(found))
        assert failed(found).answer.attempts[0].retry_after_s == 9

    run(work())


@pytest.mark.parametrize("policy", [Policy(budget_s=8), Policy(budget_s=60, retry_after_most_s=5)])
def test_a_retry_after_that_does_not_fit_falls_back_at_once(policy: Policy) -> None:
    async def work() -> None:
        world = World({"a": [refuses(429, "Retry-After: 9")], "b": [WELL]})
        done = await world.client(policy).complete(ask())
        assert ends(done.answer) == [("a", AttemptEnd.REFUSED), ("b", AttemptEnd.COMPLETED)]
        assert world.seen[1].at_s - world.seen[0].at_s < 0.01

    run(work())


def test_a_fallback_is_named_before_its_first_piece_and_in_the_answer() -> None:
    async def work() -> None:
        world = World({"a": [REFUSES_CONNECTIONS], "b": [WELL]})
        client = world.client()
        async with client.stream(ask()) as reply:
            assert (reply.answered_by.name, reply.answered_by.model, reply.is_fallback) == ("b", "served", True)
            async for _ in reply:
                pass
        answer = reply.answer
        assert answer.answered_by is not None
        assert (answer.answered_by.name, answer.answered_by.base_url) == ("b", "http://b:8000")
        assert answer.is_fallback
        assert [attempt.endpoint.name for attempt in answer.attempts] == ["a", "a", "a", "b"]

    run(work())


def test_an_endpoint_that_keeps_failing_is_left_alone_and_comes_back_through_one_probe() -> None:
    async def work() -> None:
        changes: list[tuple[str, BreakerState]] = []
        world = World({"a": [REFUSES_CONNECTIONS] * 4 + [WELL], "b": [WELL]})
        policy = Policy(tries_each=2, breaker=BreakerPolicy(least_failures=4, open_s=5))
        client = world.client(policy, on_breaker=lambda name, state: changes.append((name, state)))
        for _ in range(2):
            await client.complete(ask())
        assert client.breakers == {"a": BreakerState.OPEN, "b": BreakerState.CLOSED}
        done = await client.complete(ask())
        assert ends(done.answer) == [("a", AttemptEnd.BREAKER_OPEN), ("b", AttemptEnd.COMPLETED)]
        assert len(world.of("a")) == 4
        await asyncio.sleep(5)
        together = await asyncio.gather(*(client.complete(ask()) for _ in range(5)))
        assert sorted(each.answer.attempts[-1].endpoint.name for each in together) == ["a", "b", "b", "b", "b"]
        assert changes == [("a", BreakerState.OPEN), ("a", BreakerState.HALF_OPEN), ("a", BreakerState.CLOSED)]
        assert (await client.complete(ask())).answer.is_fallback is False

    run(work())


@pytest.mark.parametrize("kind", ["complete", "stream"])
def test_a_probe_has_found_out_at_its_first_token_however_long_its_answer_takes(kind: str) -> None:
    async def work() -> None:
        world = World({"a": [refuses(500), says(*["word "] * 50), WELL], "b": [WELL]})
        client = world.client(Policy(tries_each=1, breaker=BreakerPolicy(least_failures=1, open_s=5)))
        await client.complete(ask())
        await asyncio.sleep(5)
        probe = asyncio.create_task(get(client, kind))
        await asyncio.sleep(1)
        assert client.breakers["a"] is BreakerState.CLOSED
        assert (await client.complete(ask())).answer.is_fallback is False
        assert not probe.done()
        await probe

    run(work())


def test_a_request_whose_own_failures_open_the_breaker_goes_on_at_once() -> None:
    async def work() -> None:
        world = World({"a": [refuses(500)], "b": [WELL]})
        policy = Policy(tries_each=3, breaker=BreakerPolicy(least_failures=2))
        done = await world.client(policy, backoff=lambda number: 1.0).complete(ask())
        assert ends(done.answer) == [("a", AttemptEnd.SERVER_ERROR)] * 2 + [("b", AttemptEnd.COMPLETED)]
        assert world.of("b")[0].at_s == pytest.approx(101, abs=0.01)  # one pause, and none before the breaker's no

    run(work())


def test_an_endpoint_that_is_too_slow_is_not_asked_again_while_another_may_be() -> None:
    async def work() -> None:
        world = World({"a": [SILENT], "b": [WELL]})
        done = await world.client(QUICK).complete(ask())
        assert ends(done.answer) == [("a", AttemptEnd.TIMED_OUT), ("b", AttemptEnd.COMPLETED)]
        assert world.of("b")[0].at_s == pytest.approx(103, abs=0.01)

    async def left_alone() -> None:
        world = World({"a": [SILENT], "b": [refuses(500)]})
        client = world.client(Policy(first_token_s=1, breaker=BreakerPolicy(least_failures=3)))
        _, found = await elapsed(client.complete(ask()))
        assert ends(failed(found).answer) == [("a", AttemptEnd.TIMED_OUT)] + [("b", AttemptEnd.SERVER_ERROR)] * 3
        assert client.breakers == {"a": BreakerState.CLOSED, "b": BreakerState.OPEN}
        _, found = await elapsed(client.complete(ask()))
        assert ends(failed(found).answer) == [("a", AttemptEnd.TIMED_OUT)] * 2 + [("b", AttemptEnd.BREAKER_OPEN)]

    run(work())
    run(left_alone())


def test_where_every_endpoint_is_left_alone_a_request_fails_at_once_and_says_for_how_long() -> None:
    async def work() -> None:
        world = World({"a": [refuses(500)]})
        client = world.client(Policy(tries_each=1, breaker=BreakerPolicy(least_failures=1, open_s=5)))
        await elapsed(client.complete(ask()))
        took_s, found = await elapsed(client.complete(ask()))
        assert took_s == 0
        assert "it may be asked again in 5 s" in str(failed(found))
        assert len(world.seen) == 1

    run(work())


@pytest.mark.parametrize(
    ("script", "is_left_alone"), [(refuses(429), False), (refuses(404), False), (refuses(503), True), (SILENT, True)]
)
def test_limits_and_wrong_requests_do_not_open_a_breaker_but_overload_and_silence_do(
    script: Script, is_left_alone: bool
) -> None:
    async def work() -> None:
        world = World({"a": [script]})
        client = world.client(Policy(first_token_s=1, breaker=BreakerPolicy(least_failures=2)))
        for _ in range(3):
            await elapsed(client.complete(ask()))
        assert (client.breakers["a"] is BreakerState.OPEN) is is_left_alone

    run(work())


def test_an_attempt_cut_short_by_its_callers_budget_says_nothing_of_the_endpoint() -> None:
    async def work() -> None:
        world = World({"a": [says("slow", first_s=2)]})
        client = world.client(Policy(first_token_s=5, breaker=BreakerPolicy(least_failures=1)))
        _, found = await elapsed(client.complete(ask(budget_s=1)))
        assert failed(found).answer.attempts[0].end is AttemptEnd.TIMED_OUT
        assert client.breakers["a"] is BreakerState.CLOSED

    run(work())


def test_every_attempt_of_a_request_has_its_idempotency_key_and_every_request_another() -> None:
    async def work() -> None:
        world = World({"a": [refuses(500), refuses(500), WELL], "b": [WELL]})
        client = world.client(Policy(tries_each=2))
        first = await client.complete(ask())
        await client.complete(ask(idempotency_key="of-the-caller"))
        keys = [seen.headers["idempotency-key"] for seen in world.seen]
        assert keys == [first.answer.idempotency_key] * 3 + ["of-the-caller"]
        assert first.answer.idempotency_key != "of-the-caller"

    run(work())


def test_the_header_of_the_key_can_be_named_or_left_out() -> None:
    async def work() -> None:
        world = World({"a": [WELL]})
        await world.client(Policy(idempotency_header="X-Once")).complete(ask(idempotency_key="k1"))
        done = await world.client(Policy(idempotency_header=None)).complete(ask(idempotency_key="k1"))
        assert world.seen[0].headers["x-once"] == "k1"
        assert "k1" not in world.seen[1].message.decode()
        assert done.answer.idempotency_key is None

    run(work())


def test_a_server_that_echoes_key_and_prompt_gets_them_into_no_error_and_no_record() -> None:
    key, prompt = "sk-abcdef0123456789", "please tell nobody that the treasure is under the oak"
    body = f'{{"error": {{"message": "bad key {key} for: {prompt}\\u001b[31m"}}}}'.encode()

    async def work() -> None:
        world = World({"a": [refuses(401, body=body)]})
        target = Target("http://a:8000", endpoint=Endpoint.CHAT, api_key=ApiKey(key))
        loop = asyncio.get_running_loop()
        client = Client(
            [Upstream("a", target)],
            recorder=world.answers.append,
            clock=loop.time,
            wall_s=lambda: WALL_S,
            dial=lambda address: ScriptedDialer(address, world),
        )
        _, found = await elapsed(client.complete(ask(prompt)))
        said = f"{found!s} {found!r} {world.answers!r}"
        assert world.seen[0].headers["authorization"] == f"Bearer {key}"
        assert "HTTP 401" in said
        assert not any(secret in said for secret in (key, "treasure", "oak", "\x1b"))

    run(work())
