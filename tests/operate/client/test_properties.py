"""Whatever servers do: the budget holds, attempts are bounded, nothing is asked after the first token, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.operate.answers import AttemptEnd
from inference_bench.operate.client import BreakerPolicy, Interrupted, Policy, RequestFailed
from inference_bench.operate.client.backoff import full_jitter
from inference_bench.records import RequestStatus
from operate.client.world import (
    CHUNKED_HEAD,
    CLOSE,
    DONE,
    END,
    LAST_CHUNK,
    RESET,
    STREAM_HEAD,
    Script,
    Step,
    World,
    ask,
    chunk,
    event,
    refuses,
    run,
    token,
)

WAITS = st.floats(0, 4)
PARTS = st.sampled_from([
    token("word "), token("word "), END, DONE, event({"error": "x"}), b": ping\n\n", b"data: {\n\n", CLOSE, RESET,
])  # fmt: skip


@st.composite
def scripts(draw: Any) -> Script:
    kind = draw(st.sampled_from(["stream", "stream", "stream", "refusal", "connect"]))
    if kind == "connect":
        return Script(connect_s=draw(st.sampled_from([None, 0.5, 3.0])), refused=draw(st.booleans()))
    if kind == "refusal":
        wait = draw(st.sampled_from([(), ("Retry-After: 1",), ("Retry-After: 50",)]))
        return refuses(draw(st.sampled_from([400, 408, 429, 500, 503])), *wait, after_s=draw(WAITS))
    steps: list[Step] = [(draw(WAITS), STREAM_HEAD), *draw(st.lists(st.tuples(WAITS, PARTS), max_size=8))]
    return Script(steps)


WORLDS = st.dictionaries(st.sampled_from("abc"), st.lists(scripts(), min_size=1, max_size=4), min_size=1)
POLICIES = st.builds(
    Policy,
    budget_s=st.floats(0.1, 12),
    connect_s=st.just(1.0),
    first_token_s=st.floats(0.5, 6),
    stall_s=st.floats(0.5, 6),
    tries_each=st.integers(1, 3),
    most_attempts=st.integers(1, 6),
    hedge_after_s=st.none() | st.floats(0.1, 3),
    breaker=st.just(BreakerPolicy(least_failures=2, open_s=1)),
)


@settings(max_examples=150, deadline=None)
@given(WORLDS, POLICIES, st.sampled_from(["complete", "stream"]), st.none() | st.floats(0.01, 8))
def test_whatever_servers_do(
    servers: dict[str, Sequence[Script]], policy: Policy, kind: str, cancelled_after_s: float | None
) -> None:
    run(one_request({name: list(scripts) for name, scripts in servers.items()}, policy, kind, cancelled_after_s))


async def one_request(
    servers: dict[str, list[Script]], policy: Policy, kind: str, cancelled_after_s: float | None
) -> None:
    world, loop = World(servers), asyncio.get_running_loop()
    client = world.client(policy, backoff=full_jitter(policy.backoff_base_s, policy.backoff_most_s))
    handed_out: list[str] = []
    first_token_s: list[float] = []

    async def ask_once() -> None:
        if kind == "complete":
            handed_out.append((await client.complete(ask())).text)
            return
        async with client.stream(ask()) as reply:
            async for piece in reply:
                first_token_s.append(loop.time())
                handed_out.append(piece.text)

    begin_s = loop.time()
    task = asyncio.create_task(ask_once())
    if cancelled_after_s is not None:
        loop.call_later(cancelled_after_s, task.cancel)
    (result,) = await asyncio.gather(task, return_exceptions=True)
    took_s = loop.time() - begin_s

    assert took_s <= policy.budget_s + 1e-6  # the budget holds
    (answer,) = world.answers  # one record for one request
    sent = [attempt for attempt in answer.attempts if attempt.end is not AttemptEnd.BREAKER_OPEN]
    assert len(sent) == len(world.seen) <= policy.most_attempts  # every attempt is accounted for, and they are bounded
    for host in servers:
        assert sum(attempt.endpoint.name == host and not attempt.is_hedge for attempt in sent) <= policy.tries_each
    assert sum(attempt.is_hedge for attempt in sent) <= (policy.hedge_after_s is not None)
    assert [attempt.number for attempt in answer.attempts] == list(range(1, len(answer.attempts) + 1))
    connected = [seen for seen in world.seen if seen.message]
    assert all(seen.closed_s is not None for seen in connected)  # nothing is left open
    for first_s in first_token_s[:1]:
        assert all(seen.at_s <= first_s for seen in world.seen)  # nothing is asked after the first token
    num_with_text = sum(attempt.end in (AttemptEnd.COMPLETED, AttemptEnd.INTERRUPTED) for attempt in sent)
    assert num_with_text <= 1  # no duplicated output
    text = "".join(handed_out)
    assert text == "word " * text.count("word")
    if isinstance(result, Interrupted):
        assert answer is result.answer
        assert kind == "complete" or result.text == text
        assert answer.output_tokens is not None
    elif isinstance(result, RequestFailed):
        assert (answer.answered_by, text) == (None, "")
    elif isinstance(result, asyncio.CancelledError):
        assert answer.status is RequestStatus.CANCELLED
    else:
        assert result is None
        assert (answer.status, answer.finish_reason) == (RequestStatus.COMPLETED, "stop")


STRAY = CHUNKED_HEAD + chunk(token("stray ") + END) + LAST_CHUNK
ENDINGS: list[list[Step]] = [
    [(0.0, chunk(END) + LAST_CHUNK)],
    [(0.0, chunk(END) + LAST_CHUNK), (2.5, CLOSE)],
    [(0.0, chunk(END)), (0.2, LAST_CHUNK)],
    [(0.0, chunk(END)), (0.2, LAST_CHUNK[:2]), (0.2, LAST_CHUNK[2:])],
    [(0.0, chunk(END))],
    [(0.0, chunk(END) + LAST_CHUNK + STRAY)],
    [(0.0, chunk(END)), (0.2, LAST_CHUNK + STRAY)],
    [(0.0, chunk(END) + LAST_CHUNK), (0.2, STRAY)],
    [(0.0, chunk(END) + LAST_CHUNK), (0.2, CLOSE)],
    [(0.0, CLOSE)],
    [(0.3, RESET)],
    [(0.0, b"no chunk\r\n")],
]


@st.composite
def keeping_scripts(draw: Any) -> tuple[Script, ...]:
    """Each says its own number, so that a piece of another's reply shows."""
    scripts = []
    for number in range(draw(st.integers(4, 12))):
        kind = draw(st.sampled_from(["stream", "stream", "stream", "stream", "close at once", "refusal"]))
        if kind == "stream":
            words: list[Step] = [(0.1, chunk(token(f"{number} ")))] * draw(st.integers(1, 3))
            scripts.append(Script([(0.1, CHUNKED_HEAD), *words, *draw(st.sampled_from(ENDINGS))]))
        else:
            scripts.append(Script([(0.1, CLOSE)]) if kind == "close at once" else refuses(503))
    return (*scripts, Script([(0.0, CHUNKED_HEAD), (0.1, chunk(token("x ") + END) + LAST_CHUNK)]))


@settings(max_examples=150, deadline=None)
@given(
    keeping_scripts(),
    st.lists(st.floats(0, 4), min_size=4, max_size=9),
    st.none() | st.floats(0.1, 1),
    st.floats(0.3, 3),
)
def test_whatever_happens_to_kept_connections_no_reply_gets_what_belongs_to_another(
    scripts: tuple[Script, ...], begin_s: list[float], hedge_after_s: float | None, keep_alive_s: float
) -> None:
    async def work() -> None:
        world = World({"a": list(scripts)})
        policy = Policy(budget_s=6, stall_s=1, keep_alive_s=keep_alive_s, tries_each=2, hedge_after_s=hedge_after_s)
        client = world.client(policy)

        async def ask_at(wait_s: float) -> str:
            await asyncio.sleep(wait_s)
            try:
                return (await client.complete(ask())).text
            except Interrupted as failure:
                return failure.text
            except RequestFailed:
                return ""

        texts = await asyncio.gather(*(ask_at(wait_s) for wait_s in begin_s))
        said = [words[0] for text in texts if (words := text.split()) and words[0] != "x"]
        assert all(len(set(text.split())) <= 1 for text in texts)
        assert len(set(said)) == len(said)
        assert "stray" not in said
        for answer in world.answers:
            stale = [attempt for attempt in answer.attempts if "a kept connection had been" in (attempt.error or "")]
            assert all(attempt.end is AttemptEnd.NOT_REACHED for attempt in stale)
            tried = [attempt for attempt in answer.attempts if attempt.end is not AttemptEnd.BREAKER_OPEN]
            assert len(tried) - len(stale) <= 2 + (hedge_after_s is not None)
            assert len(stale) <= 3
            assert answer.e2e_s <= 6 + 1e-6
        sent = sum(a.end is not AttemptEnd.BREAKER_OPEN for answer in world.answers for a in answer.attempts)
        assert sent == len(world.seen)
        await client.aclose()
        last = {seen.connection: seen for seen in world.seen}
        assert all(seen.closed_s is not None for seen in last.values())

    run(work())
