"""What the resilient client costs beside the raw sender: processor time of the same streams, in the same run, by turns.

Method: the pacing server in a process of its own (load_parts/pacer.py) answers every request with a stream of paced tokens. This
process starts requests at an even rate and follows them in six ways, in turn: `raw` is measure/sender.py, which keeps no text;
`raw+text` the same where somebody examines the text, which it does in a thread; `complete` and `stream` are the client's, which hand
all of the text to their caller, whole or piece by piece. These four open a connection for each stream. `complete kept` and `stream kept`
are a client with `keep_alive_s` of 4, which opens one only where none is idle: beside `raw` they also save what a connection costs,
which is the client's doing, and no merit of its rules. The order is turned round from one round to the next. What counts is this
process's own processor time (user and system) for a turn, divided by its streams. A round's ratio is that of neighbours in time, so
that what else the machine does strikes all; printed is the median of the rounds' ratios, and their range. Requests that are not
answered in full are counted and named: they make a round worthless.

The last lines say what one decision costs without a server: a breaker's leave and end, a budget, a letter.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import platform
import time
from collections.abc import Awaitable, Callable
from statistics import median

from load_parts.truth import Truth

from inference_bench.measure.client_loop import find_loop_factory, name_of_loop
from inference_bench.measure.http1 import RunClock
from inference_bench.measure.sender import Ask, Sender
from inference_bench.measure.target import Endpoint, Target
from inference_bench.measure.text_checks import TextFindings
from inference_bench.operate.client import Client, Policy, Request, Upstream
from inference_bench.operate.client.breaker import Breaker
from inference_bench.operate.client.budget import Budget
from inference_bench.operate.client.policy import BreakerPolicy, Health
from inference_bench.operate.client.request import Letter, RequestHead
from inference_bench.records import RequestStatus

TARGET_RATIO = 1.05
KEEP_ALIVE_S = 4.0
PROMPT = "Write a few words about the sea. " * 8

One = Callable[[int], Awaitable[bool]]


def raw_ways(target: Target, num_tokens: int) -> dict[str, One]:
    """How the load generator follows one stream; each says whether it got all of it."""
    sender = Sender(target, RunClock())

    async def send(ask: Ask) -> bool:
        record = await sender.send(ask, target.build_body(PROMPT, num_tokens))
        return record.status is RequestStatus.COMPLETED and record.output_tokens == num_tokens

    async def raw(number: int) -> bool:
        return await send(Ask(f"r{number}", PROMPT, num_tokens, 0.0))

    async def raw_with_text(number: int) -> bool:
        return await send(Ask(f"r{number}", PROMPT, num_tokens, 0.0, examine=lambda _: TextFindings()))

    return {"raw": raw, "raw+text": raw_with_text}


def client_ways(client: Client, num_tokens: int, more: str = "") -> dict[str, One]:
    """How the client does."""

    def request() -> Request:
        fields = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": num_tokens, "temperature": 0}
        return Request(fields)

    async def complete(_number: int) -> bool:
        done = await client.complete(request())
        return done.answer.output_tokens == num_tokens

    async def stream(_number: int) -> bool:
        async with client.stream(request()) as reply:
            async for _ in reply:
                pass
        return reply.answer.output_tokens == num_tokens

    return {f"complete{more}": complete, f"stream{more}": stream}


async def turn(one: One, rate: float, num_streams: int) -> tuple[float, float, int]:
    """Processor time a stream, the rate that was kept, and how many were not answered in full."""
    gc.collect()
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[bool]] = []
    cpu_s, begin_s = time.process_time(), loop.time()
    while len(tasks) < num_streams:
        due = min(num_streams, int((loop.time() - begin_s) * rate) + 1)
        tasks += [asyncio.ensure_future(one(number)) for number in range(len(tasks), due)]
        await asyncio.sleep(0.002)
    started_s = loop.time() - begin_s
    results = await asyncio.gather(*tasks, return_exceptions=True)
    cpu_s = time.process_time() - cpu_s
    return cpu_s / num_streams, num_streams / started_s, sum(result is not True for result in results)


async def compare(options: argparse.Namespace, url: str) -> None:
    target = Target(url, model="conform", endpoint=Endpoint.CHAT)
    async with (
        Client([Upstream("local", target)], Policy(budget_s=60.0)) as client,
        Client([Upstream("local", target)], Policy(budget_s=60.0, keep_alive_s=KEEP_ALIVE_S)) as keeping,
    ):
        own = client_ways(client, options.tokens) | client_ways(keeping, options.tokens, " kept")
        await compare_ways(options, raw_ways(target, options.tokens) | own)


async def compare_ways(options: argparse.Namespace, kinds: dict[str, One]) -> None:
    found: dict[str, list[float]] = {name: [] for name in kinds}
    kept: list[float] = []
    for one in kinds.values():
        await turn(one, options.rate, options.streams // 4)  # warm
    for number in range(options.rounds):
        order = list(kinds) if number % 2 == 0 else list(kinds)[::-1]
        said = []
        for name in order:
            cost_s, rate, num_failed = await turn(kinds[name], options.rate, options.streams)
            found[name].append(cost_s)
            kept.append(rate)
            said.append(
                f"{name} {cost_s * 1e6:.0f} µs at {rate:.0f}/s" + (f" ({num_failed} FAILED)" if num_failed else "")
            )
        print(f"round {number + 1}: " + ", ".join(said), flush=True)
    print(f"\nevent loop {name_of_loop()}, {options.tokens} tokens a stream, {options.streams} streams a turn")
    for name, costs in found.items():
        ratio, low, high = ratios(costs, found["raw"])
        beside_text = ratios(costs, found["raw+text"])[0]
        print(
            f"{name:13s} {median(costs) * 1e6:7.0f} µs a stream, × raw {ratio:.3f} ({low:.3f} to {high:.3f}), "
            f"× raw+text {beside_text:.3f}"
        )
    for name, how in (
        ("complete", "both open a connection a stream"),
        ("complete kept", "raw opens one a stream, the client keeps them"),
    ):
        met = "met" if ratios(found[name], found["raw"])[0] <= TARGET_RATIO else "not met"
        print(f"target: {name} at most {TARGET_RATIO} × raw ({how}): {met}")
    if median(kept) < 0.95 * options.rate:
        print(f"the rate was not kept (median {median(kept):.0f}/s): the machine is too busy to judge by")


def ratios(costs: list[float], base: list[float]) -> tuple[float, float, float]:
    """The median of the rounds' ratios, the least and the most."""
    found = [cost / beside for cost, beside in zip(costs, base, strict=True)]
    return median(found), min(found), max(found)


def parts() -> None:
    """What the client's own decisions cost, each alone."""
    target = Target("http://127.0.0.1:1", model="conform", endpoint=Endpoint.CHAT)
    upstream, clock = Upstream("local", target), RunClock()
    heads, breaker = {"local": RequestHead(upstream, "Idempotency-Key")}, Breaker(BreakerPolicy(), clock)
    fields = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 16}

    def leave() -> None:
        permit = breaker.admit()
        if permit is not None:
            permit.has_token()
            permit.end(Health.GOOD)

    def letter() -> None:
        Letter(Request(fields), heads, "Idempotency-Key").bytes_for("local")

    for name, work in (("breaker", leave), ("budget", lambda: Budget(clock, 1.0).left_s()), ("letter", letter)):
        begin_s = time.process_time()
        for _ in range(20_000):
            work()
        print(f"{name:9s} {(time.process_time() - begin_s) / 20_000 * 1e6:7.1f} µs a request")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=1000.0, help="streams begun a second; default 1000")
    parser.add_argument("--streams", type=int, default=3000, help="of a turn; default 3000")
    parser.add_argument("--tokens", type=int, default=16, help="of a stream; default 16")
    parser.add_argument("--gap", type=float, default=0.01, help="seconds from token to token; default 0.01")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(__doc__.partition("\n\n")[2].strip())
    print(
        f"\n{platform.platform()}, CPython {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}\n"
    )
    with Truth() as truth, asyncio.Runner(loop_factory=find_loop_factory()) as runner:
        runner.run(compare(options, truth.url(f"paced,first=0.03,gap={options.gap}")))
    parts()


if __name__ == "__main__":
    main()
