"""What happens to a request whose kept connection had been closed: asked again at once, once, and not charged; and hedges."""

from __future__ import annotations

import asyncio

import pytest

from inference_bench.operate.answers import AttemptEnd
from inference_bench.operate.client import BreakerPolicy, BreakerState, Policy, RequestFailed
from operate.client.world import (
    CHUNKED_HEAD,
    CLOSE,
    RESET,
    SILENT,
    Script,
    World,
    elapsed,
    ends,
    get,
    keeps,
    refuses,
    run,
)

from .test_kept_connections import KEEPING, KINDS, STAYS, closed_s, connections


@KINDS
@pytest.mark.parametrize("how", [CLOSE, RESET])
def test_a_request_whose_kept_connection_had_been_closed_is_asked_again_at_once_and_not_charged(
    kind: str, how: str
) -> None:
    async def work() -> None:
        world = World({"a": [STAYS, Script([(0.2, how)]), STAYS]})
        policy = Policy(keep_alive_s=4, tries_each=1, most_attempts=1, breaker=BreakerPolicy(least_failures=1))
        client = world.client(policy)
        await get(client, kind)
        answer = await get(client, kind)
        first, second = answer.attempts
        assert ends(answer) == [("a", AttemptEnd.NOT_REACHED), ("a", AttemptEnd.COMPLETED)]
        assert "a kept connection had been closed" in str(first.error)
        assert (first.ended_s, second.started_s, second.waited_s) == (
            pytest.approx(0.2, abs=1e-3),
            pytest.approx(0.2, abs=1e-3),
            0.0,
        )
        assert client.breakers["a"] is BreakerState.CLOSED
        assert connections(world) == [1, 1, 2]
        assert world.seen[1].headers["idempotency-key"] == world.seen[2].headers["idempotency-key"]

    run(work())


def test_what_a_new_connection_does_is_charged_and_so_is_a_kept_one_that_said_something() -> None:
    async def work() -> None:
        closes = Script([(0.1, CLOSE)])
        world = World({"a": [STAYS, closes, closes, STAYS, Script([(0.1, b"H"), (0.1, CLOSE)])]})
        client = world.client(
            Policy(keep_alive_s=4, tries_each=2, most_attempts=2, breaker=BreakerPolicy(least_failures=3))
        )
        await get(client)
        answer = await get(client)
        assert [attempt.waited_s for attempt in answer.attempts] == [0.0, 0.0, pytest.approx(0.1)]
        assert [end for _, end in ends(answer)] == [AttemptEnd.NOT_REACHED] * 2 + [AttemptEnd.COMPLETED]
        assert connections(world) == [1, 1, 2, 3]
        _, found = await elapsed(get(client))
        assert isinstance(found, RequestFailed)
        assert "kept" not in str(found)
        assert len(found.answer.attempts) == 2
        assert client.breakers["a"] is BreakerState.OPEN  # the third that counts

    run(work())


def test_a_probe_whose_kept_connection_had_been_closed_still_finds_out() -> None:
    async def work() -> None:
        world = World({"a": [keeps("slow", first_s=1), refuses(500), Script([(0.1, CLOSE)]), STAYS]})
        client = world.client(Policy(keep_alive_s=9, tries_each=1, breaker=BreakerPolicy(least_failures=1, open_s=1)))
        slow = asyncio.create_task(get(client))
        await asyncio.sleep(0.5)
        with pytest.raises(RequestFailed):
            await get(client)
        assert client.breakers["a"] is BreakerState.OPEN
        await slow
        await asyncio.sleep(1)
        assert len((await get(client)).attempts) == 2
        assert client.breakers["a"] is BreakerState.CLOSED
        assert connections(world) == [1, 2, 1, 3]

    run(work())


def test_a_probe_that_has_no_time_to_ask_again_leaves_its_place_to_another() -> None:
    async def work() -> None:
        world = World({"a": [keeps("slow", first_s=1), refuses(500), Script([(0.28, CLOSE)]), STAYS]})
        client = world.client(Policy(keep_alive_s=9, tries_each=1, breaker=BreakerPolicy(least_failures=1, open_s=1)))
        slow = asyncio.create_task(get(client))
        await asyncio.sleep(0.5)
        with pytest.raises(RequestFailed):
            await get(client)
        await slow
        await asyncio.sleep(1)
        with pytest.raises(RequestFailed):
            await get(client, budget_s=0.3)
        assert client.breakers["a"] is BreakerState.HALF_OPEN
        assert ends(await get(client)) == [("a", AttemptEnd.COMPLETED)]

    run(work())


@pytest.mark.parametrize("closes_s", [0.57, 0.3])
def test_the_budget_holds_where_a_kept_connection_had_been_closed(closes_s: float) -> None:
    async def work() -> None:
        world = World({"a": [STAYS, Script([(closes_s, CLOSE)]), SILENT]})
        client = world.client(KEEPING)
        await get(client)
        took_s, found = await elapsed(get(client, budget_s=0.6))
        assert isinstance(found, RequestFailed)
        assert took_s <= 0.6 + 1e-6
        assert len(found.answer.attempts) == (1 if closes_s > 0.55 else 2)  # none begins with less than the least

    run(work())


@pytest.mark.parametrize("how", ["stale", "silent", "not reached"])
def test_a_failure_of_the_path_drops_all_that_are_kept(how: str) -> None:
    bad = {
        "stale": Script([(0.1, CLOSE)]),
        "silent": SILENT,
        "not reached": Script([(0.1, CHUNKED_HEAD), (0.1, CLOSE)]),
    }

    async def work() -> None:
        world = World({"a": [STAYS, STAYS, bad[how], STAYS]})
        client = world.client(Policy(keep_alive_s=30, first_token_s=2))
        await asyncio.gather(get(client), get(client))
        await get(client)
        assert connections(world) == [1, 2, 2, 3]
        assert None not in (closed_s(world, 1), closed_s(world, 2))
        assert world.num_dialers == (
            2 if how == "not reached" else 1
        )  # only then may its name stand for another machine
        await client.aclose()

    run(work())


@KINDS
def test_a_hedge_takes_a_kept_connection_and_its_loser_gives_none_back(kind: str) -> None:
    async def work() -> None:
        slow = keeps("slow ", "answer", first_s=5)
        world = World({"a": [STAYS, slow, STAYS], "b": [STAYS]})
        client = world.client(Policy(keep_alive_s=30, hedge_after_s=1, first_token_s=8))
        await get(client, kind)
        answer = await get(client, kind)
        assert ends(answer) == [("a", AttemptEnd.CANCELLED), ("b", AttemptEnd.COMPLETED)]
        assert world.seen[1].closed_s == pytest.approx(world.seen[2].at_s + 0.1, abs=0.01)
        await get(client, kind)
        assert connections(world) == [1, 1, 2, 3]
        await client.aclose()

    run(work())


def test_a_hedge_whose_kept_connection_had_been_closed_is_asked_again_as_a_hedge() -> None:
    async def work() -> None:
        world = World({"a": [STAYS, keeps("slow", first_s=1), SILENT, Script([(0.1, CLOSE)]), STAYS]})
        client = world.client(Policy(keep_alive_s=30, hedge_after_s=2, first_token_s=8))
        await asyncio.gather(get(client), get(client))
        answer = await get(client)
        assert [attempt.end for attempt in answer.attempts] == [
            AttemptEnd.CANCELLED,
            AttemptEnd.NOT_REACHED,
            AttemptEnd.COMPLETED,
        ]
        assert [attempt.is_hedge for attempt in answer.attempts] == [False, True, True]
        await client.aclose()

    run(work())
