"""Which connections are kept, for how long, and that each reply on one has limits of its own."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from inference_bench.operate.answers import AttemptEnd
from inference_bench.operate.client import Interrupted, Policy, RequestFailed
from inference_bench.operate.client.connections import MOST_IDLE
from operate.client.world import (
    CHUNKED_HEAD,
    CLOSE,
    END,
    FINISH,
    LAST_CHUNK,
    RESET,
    SILENT,
    STREAM_HEAD,
    Script,
    Step,
    World,
    ask,
    chunk,
    elapsed,
    ends,
    event,
    get,
    keeps,
    refuses,
    run,
    token,
)

KEEPING = Policy(keep_alive_s=4)
STAYS = keeps("one ", "two")
KINDS = pytest.mark.parametrize("kind", ["complete", "stream"])


def connections(world: World) -> list[int]:
    return [seen.connection for seen in world.seen]


def closed_s(world: World, connection: int) -> float | None:
    """When it was closed."""
    return [seen.closed_s for seen in world.seen if seen.connection == connection][-1]


@KINDS
@pytest.mark.parametrize(("keep_alive_s", "expected"), [(4, [1, 1, 1]), (0, [1, 2, 3])])
def test_one_connection_serves_one_request_after_another_where_the_policy_says_so(
    kind: str, keep_alive_s: float, expected: list[int]
) -> None:
    async def work() -> None:
        world = World({"a": [STAYS]})
        async with world.client(Policy(keep_alive_s=keep_alive_s)) as client:
            for _ in range(3):
                answer = await get(client, kind)
                assert (answer.output_tokens, ends(answer)) == (5, [("a", AttemptEnd.COMPLETED)])
        assert connections(world) == expected
        assert [seen.headers.get("connection") for seen in world.seen] == [None if keep_alive_s else "close"] * 3
        assert world.seen[-1].closed_s is not None

    run(work())


@KINDS
@pytest.mark.parametrize(
    ("then", "is_kept"),
    [
        ([(0.0, chunk(END)), (0.5, LAST_CHUNK)], True),
        ([(0.0, chunk(END)), (0.1, chunk(b": bye\n\n")), (0.1, LAST_CHUNK[:3]), (0.1, LAST_CHUNK[3:])], True),
        ([(0.0, chunk(END))], False),
        ([(0.0, chunk(END)), (0.1, LAST_CHUNK + b"x")], False),
        ([(0.0, chunk(END)), (0.1, b"no chunk\r\n")], False),
        ([(0.0, chunk(END)), (0.1, CLOSE)], False),
        ([(0.0, chunk(END)), (0.1, chunk(b": \n\n" * 2000)), (0.1, LAST_CHUNK)], False),
    ],
)
def test_an_end_that_is_still_to_come_is_waited_for_and_nobody_waits_with_it(
    kind: str, then: list[Step], is_kept: bool
) -> None:
    async def work() -> None:
        world = World({"a": [Script([(0.0, CHUNKED_HEAD), (0.1, chunk(token("word"))), *then]), STAYS]})
        client = world.client(Policy(keep_alive_s=4, max_reply_bytes=4096))
        took_s, _ = await elapsed(get(client, kind))
        assert took_s == pytest.approx(0.1, abs=0.01)
        await get(client)  # while the end of the first is not there
        assert connections(world) == [1, 2]
        await asyncio.sleep(1)
        await asyncio.gather(get(client), get(client))
        assert sorted(connections(world)[2:]) == ([1, 2] if is_kept else [2, 3])
        await asyncio.sleep(5)
        assert all(closed_s(world, connection) is not None for connection in connections(world))

    run(work())


def test_an_end_that_never_comes_is_waited_for_as_long_as_an_idle_connection() -> None:
    async def work() -> None:
        comments: list[Step] = [(1.0, chunk(b": still here\n\n"))] * 20
        world = World({"a": [Script([(0.0, CHUNKED_HEAD), (0.0, chunk(token("word") + END)), *comments])]})
        await get(world.client(KEEPING))
        await asyncio.sleep(10)
        assert world.seen[0].closed_s == pytest.approx(104, abs=0.01)

    run(work())


NOT_KEPT = {
    "it said so": keeps("word", head="Connection: close"),
    "it said so among others": keeps("word", head="Connection: foo, Close"),
    "an old server": Script([(0.0, CHUNKED_HEAD.replace(b"/1.1", b"/1.0")), (0.1, chunk(token("word") + END) + LAST_CHUNK)]),
    "two lengths": keeps("word", head="Content-Length: 5"),
    "no end of its own": Script([(0.0, STREAM_HEAD), (0.1, token("word") + END)]),
    "surplus": Script([(0.0, CHUNKED_HEAD), (0.1, chunk(token("word") + END) + LAST_CHUNK + b"HTTP/1.1 200 OK\r\n")]),
    "surplus later": keeps("word", idle=[(0.5, b"HTTP/1.1 200 OK\r\n")]),
    "no reason to end": Script([(0.0, CHUNKED_HEAD), (0.1, chunk(token("word")) + LAST_CHUNK)]),
    "an error": Script([(0.0, CHUNKED_HEAD), (0.1, chunk(token("word") + event({"error": "x"})) + LAST_CHUNK)]),
    "an error status": refuses(400),
    "garbage": Script([(0.0, CHUNKED_HEAD), (0.1, chunk(token("word") + b"data: {\n\n") + LAST_CHUNK)]),
    "after the reason to end": Script([(0.0, CHUNKED_HEAD), (0.1, chunk(token("word") + FINISH + b"data: {\n\n") + LAST_CHUNK)]),
    "broken framing": Script([(0.0, CHUNKED_HEAD), (0.1, chunk(token("word") + FINISH) + b"no chunk\r\n")]),
    "a stall": Script([(0.0, CHUNKED_HEAD), (0.1, chunk(token("word")))]),
    "it closed while idle": keeps("word", idle=[(0.5, CLOSE)]),
    "it reset while idle": keeps("word", idle=[(0.5, RESET)]),
}  # fmt: skip


@KINDS
@pytest.mark.parametrize("how", NOT_KEPT)
def test_a_connection_is_dropped_where_anything_else_was_said_than_one_whole_answer(how: str, kind: str) -> None:
    async def work() -> None:
        world = World({"a": [NOT_KEPT[how], STAYS]})
        client = world.client(Policy(keep_alive_s=4, stall_s=1))
        with suppress(RequestFailed, Interrupted):
            await get(client, kind)
        await asyncio.sleep(0.6)
        answer = await get(client, kind)
        assert connections(world) == [1, 2]
        assert world.seen[0].closed_s is not None
        assert world.seen[0].closed_s <= world.seen[1].at_s
        assert ends(answer) == [("a", AttemptEnd.COMPLETED)]  # and never through a closed one
        assert answer.output_tokens == 5

    run(work())


def test_an_old_server_that_keeps_its_connections_and_a_length_are_fine_too() -> None:
    body = token("word") + END
    old = f"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\nConnection: Keep-Alive\r\nContent-Length: {len(body)}"

    async def work() -> None:
        world = World({"a": [Script([(0.1, f"{old}\r\n\r\n".encode() + body)])]})
        client = world.client(KEEPING)
        await get(client)
        await get(client)
        assert connections(world) == [1, 1]
        await client.aclose()

    run(work())


@pytest.mark.parametrize("how", ["left", "cancelled"])
def test_a_reply_that_was_left_or_cancelled_ends_its_connection(how: str) -> None:
    async def work() -> None:
        world = World({"a": [keeps("one ", "two ", "three", gap_s=0.5), STAYS]})
        client = world.client(KEEPING)

        async def leave() -> None:
            async with client.stream(ask()) as reply:
                async for _ in reply:
                    if how == "left":
                        break

        task = asyncio.create_task(leave())
        await asyncio.sleep(0.3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert world.seen[0].closed_s == pytest.approx(100.1 if how == "left" else 100.3)
        await get(client)
        assert connections(world) == [1, 2]

    run(work())


def test_one_that_was_left_is_closed_although_the_reason_to_end_had_come() -> None:
    steps: list[Step] = [(0.1, chunk(token("word") + FINISH)), (1.0, chunk(END) + LAST_CHUNK)]

    async def work() -> None:
        world = World({"a": [Script([(0.0, CHUNKED_HEAD), *steps])]})
        async with world.client(KEEPING).stream(ask()) as reply:
            await anext(reply)
        assert world.seen[0].closed_s == pytest.approx(100.1)

    run(work())


def test_a_block_that_is_left_late_leaves_the_next_request_alone() -> None:
    async def work() -> None:
        world = World({"a": [STAYS, keeps("slow", first_s=1)]})
        client = world.client(KEEPING)
        async with client.stream(ask()) as reply:
            async for _ in reply:
                pass
            second = asyncio.create_task(get(client))
            await asyncio.sleep(0.5)
            await client.aclose()
        assert ends(await second) == [("a", AttemptEnd.COMPLETED)]
        assert connections(world) == [1, 1]

    run(work())


def test_an_idle_connection_is_closed_after_its_time_and_not_before() -> None:
    async def work() -> None:
        world = World({"a": [STAYS]})
        client = world.client(KEEPING)
        await get(client)
        await asyncio.sleep(3.9)
        await get(client)  # which begins its time anew
        used_s = asyncio.get_running_loop().time()
        await asyncio.sleep(3.9)
        assert world.seen[1].closed_s is None
        await asyncio.sleep(0.2)
        assert world.seen[1].closed_s == pytest.approx(used_s + 4, abs=0.01)
        await get(client)
        assert connections(world) == [1, 1, 2]

    run(work())


def test_one_whose_time_is_over_is_not_used_where_the_loop_was_late() -> None:
    async def work() -> None:
        world, ahead_s = World({"a": [STAYS]}), [0.0]
        loop = asyncio.get_running_loop()
        client = world.client(KEEPING, clock=lambda: loop.time() + ahead_s[0])
        await get(client)
        ahead_s[0] = 4.5
        await get(client)
        assert connections(world) == [1, 2]
        assert world.seen[0].closed_s is not None

    run(work())


@pytest.mark.parametrize("before_s", [1, 60])
def test_no_time_limit_of_a_reply_strikes_while_idle_and_each_reply_has_its_own(before_s: float) -> None:
    async def work() -> None:
        slow = Script([(0.0, CHUNKED_HEAD), (0.1, chunk(token("word")))])
        world = World({"a": [STAYS, STAYS, slow]})
        client = world.client(Policy(keep_alive_s=30, stall_s=3))
        await get(client, budget_s=2)
        await asyncio.sleep(10)  # the first one's budget is long over
        answer = await get(client, budget_s=before_s)
        assert ends(answer) == [("a", AttemptEnd.COMPLETED)]
        took_s, found = await elapsed(get(client, budget_s=1.5))
        assert isinstance(found, Interrupted)
        assert took_s == pytest.approx(1.5)
        took_s, found = await elapsed(get(client, budget_s=20))
        assert isinstance(found, Interrupted)
        assert took_s == pytest.approx(3.1)
        assert connections(world) == [1, 1, 1, 2]

    run(work())


def test_silence_counts_from_the_request_and_not_from_the_reply_before() -> None:
    async def work() -> None:
        world = World({"a": [STAYS, SILENT]})
        client = world.client(Policy(keep_alive_s=4))
        await get(client, budget_s=5)
        await asyncio.sleep(2)
        took_s, found = await elapsed(get(client, budget_s=10))
        assert isinstance(found, RequestFailed)
        assert took_s == pytest.approx(10)
        assert connections(world) == [1, 1]

    run(work())


@KINDS
def test_the_first_token_has_its_limit_on_a_kept_connection(kind: str) -> None:
    async def work() -> None:
        world = World({"a": [STAYS, SILENT, STAYS]})
        client = world.client(Policy(keep_alive_s=30, first_token_s=2))
        await get(client, kind)
        first, second = (await get(client, kind)).attempts
        assert (first.end, first.ended_s) == (AttemptEnd.TIMED_OUT, pytest.approx(2))
        assert second.end is AttemptEnd.COMPLETED
        assert connections(world) == [1, 1, 2]

    run(work())


def test_the_time_to_connect_does_not_apply_to_a_kept_one() -> None:
    async def work() -> None:
        world = World({"a": [STAYS, keeps("late", first_s=1)]})
        client = world.client(Policy(keep_alive_s=4, connect_s=0.1))
        await get(client)
        assert ends(await get(client)) == [("a", AttemptEnd.COMPLETED)]

    run(work())


def test_the_bytes_of_a_reply_are_counted_for_each_reply() -> None:
    size = sum(len(what) for _, what in STAYS.steps if isinstance(what, bytes))

    async def work() -> None:
        world = World({"a": [STAYS, STAYS, keeps(*["word "] * 9)]})
        client = world.client(Policy(keep_alive_s=4, max_reply_bytes=size))
        await get(client)
        assert ends(await get(client)) == [("a", AttemptEnd.COMPLETED)]
        with pytest.raises(Interrupted, match=f"larger than {size} bytes"):
            await get(client)
        assert connections(world) == [1, 1, 1]

    run(work())


def test_two_requests_at_once_have_two_connections_and_the_last_one_kept_is_taken_first() -> None:
    async def work() -> None:
        world = World({"a": [keeps("slow", first_s=1), keeps("quick"), STAYS]})
        client = world.client(KEEPING)
        await asyncio.gather(get(client), get(client))
        await get(client)
        assert connections(world) == [1, 2, 1]
        await client.aclose()

    run(work())


def test_endpoints_do_not_share_connections() -> None:
    async def work() -> None:
        world = World({"a": [STAYS, refuses(500)], "b": [STAYS]})
        client = world.client(Policy(keep_alive_s=4, tries_each=1))
        await get(client)
        await get(client)
        await get(client)
        assert [(seen.host, seen.connection) for seen in world.seen] == [
            ("a", 1),
            ("a", 1),
            ("b", 2),
            ("a", 3),
            ("b", 2),
        ]
        await client.aclose()

    run(work())


def test_so_many_are_kept_and_the_oldest_goes_first() -> None:
    async def work() -> None:
        world = World({"a": [keeps("word", first_s=0.1 + 0.001 * number) for number in range(MOST_IDLE + 3)]})
        client = world.client(KEEPING)
        await asyncio.gather(*(get(client) for _ in range(MOST_IDLE + 3)))
        assert [seen.connection for seen in world.seen if seen.closed_s is not None] == [1, 2, 3]
        await client.aclose()
        assert all(seen.closed_s is not None for seen in world.seen)

    run(work())


def test_after_closing_nothing_is_kept() -> None:
    async def work() -> None:
        world = World({"a": [STAYS]})
        async with world.client(KEEPING) as client:
            await get(client)
            late = asyncio.create_task(get(client))
            await asyncio.sleep(0.05)
        assert world.seen[1].closed_s is None  # a request that goes on is not cut off
        await late
        await get(client)
        assert connections(world) == [1, 1, 2]
        assert all(seen.closed_s is not None for seen in world.seen[1:])
        await client.aclose()

    run(work())
