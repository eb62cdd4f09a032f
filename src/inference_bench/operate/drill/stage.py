"""One scenario is played: steady requests, a failure, its end, and requests until the server is used again.

In:   servers, time limits, a Scenario
Out:  Played: both books and the times of the failure; ScenarioResult once it is known what the servers say undisturbed
Leaves out: which scenarios (scenarios, flow)
Read next by: flow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from inference_bench.errors import ServerStartError
from inference_bench.measure.target import Target
from inference_bench.operate.answers import Answer
from inference_bench.operate.client import BreakerPolicy, BreakerState, Policy, Upstream
from inference_bench.operate.drill.accounting import (
    Baselines,
    Books,
    first_answer_s,
    first_spoiled_s,
    list_requests,
    tally,
)
from inference_bench.operate.drill.proxy import FaultProxy
from inference_bench.operate.drill.results import FALLBACK, PRIMARY, Measured, ScenarioResult, Span
from inference_bench.operate.drill.scenarios import Act, Scenario
from inference_bench.operate.drill.servers import Server
from inference_bench.operate.drill.traffic import Asking, Traffic
from inference_bench.stats import median
from inference_bench.units import format_seconds

_OPEN_S: Final = 0.5
_WINDOW_S: Final = 5.0
_POLL_S: Final = 0.005
_OVERLOAD: Final = 8.0  # × the usual rate
_STARTS_WITHIN_S: Final = 120.0
_MOST_RECOVERY_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Site:
    """What a drill plays with: two servers, how they are asked, what is asked, and how often at least.

    Where:    target has the route, key, model and extra fields of the requests to a server of that name
    """

    servers: dict[str, Server]
    targets: dict[str, Target] = field(repr=False)
    asking: Asking
    least_requests: int
    on_answer: Callable[[Answer], None] | None = None

    def upstream(self, name: str, url: str | None = None) -> Upstream:
        """A server, or its proxy, as an endpoint of the client."""
        target = self.targets[name]
        place = str(self.servers[name].address) if url is None else url
        return Upstream(name, replace(target, base_url=f"{place}{target.path}"))


@dataclass(frozen=True, slots=True)
class Played:
    """What happened. Unit: seconds of the drill's clock.

    Where:    seen_until_s is as long as attempts of the fault's time may still time out; started_s is when the scenario began
    """

    scenario: Scenario
    books: Books
    faulty: frozenset[str]
    begin_s: float
    end_s: float
    seen_until_s: float
    breaker_changes: Sequence[tuple[float, str, BreakerState]]
    notes: tuple[str, ...] = ()
    started_s: float = 0.0


def policy_of(limits: Measured) -> Policy:
    """The client's rules, at the pace of the drill: a breaker that opens after three failures and looks again soon."""
    return Policy(
        budget_s=limits.budget_s,
        connect_s=1.0,
        first_token_s=limits.first_token_s,
        stall_s=limits.stall_s,
        tries_each=2,
        most_attempts=4,
        backoff_base_s=0.05,
        backoff_most_s=0.4,
        breaker=BreakerPolicy(
            window_s=max(_WINDOW_S, 10 * limits.interval_s),
            least_failures=3,
            failure_fraction=0.5,
            open_s=open_s_of(limits),
        ),
    )


def open_s_of(limits: Measured) -> float:
    """How long the breaker stays open: a few requests go elsewhere before one of them finds out."""
    return max(_OPEN_S, 3 * limits.interval_s)


@asynccontextmanager
async def proxied(site: Site) -> AsyncIterator[dict[str, FaultProxy]]:
    """A proxy before each server, for as long as the block lasts.

    Raises:   ServerStartError
    """
    proxies = {name: FaultProxy(name, server.address, time.perf_counter) for name, server in site.servers.items()}
    try:
        for proxy in proxies.values():
            await proxy.open()
        yield proxies
    finally:
        for proxy in proxies.values():
            await proxy.shut()


async def play(scenario: Scenario, site: Site, limits: Measured) -> Played:
    """Play one scenario from its first request to the last answer.

    Raises:   InferenceBenchError where a server of ours does not start again
    """
    async with proxied(site) as proxies:
        upstreams = [site.upstream(name, proxy.url) for name, proxy in proxies.items()]
        traffic = Traffic(upstreams, policy_of(limits), site.asking, time.perf_counter, site.on_answer)
        lag = asyncio.create_task(traffic.watch_lag())
        try:
            return await _Play(scenario, site, limits, proxies, traffic).run()
        finally:
            lag.cancel()
            await traffic.stop()
            await asyncio.gather(lag, return_exceptions=True)


class _Play:
    """The acts of one scenario."""

    def __init__(
        self, scenario: Scenario, site: Site, limits: Measured, proxies: dict[str, FaultProxy], traffic: Traffic
    ) -> None:
        self._scenario, self._site, self._limits = scenario, site, limits
        self._proxies, self._traffic = proxies, traffic
        both = frozenset(site.servers)
        self._faulty = both if scenario.act is Act.SHUT_BOTH else frozenset({PRIMARY})

    async def run(self) -> Played:
        """Before, during, after."""
        traffic, least = self._traffic, self._site.least_requests
        started_s = time.perf_counter()
        if self._scenario.act is not Act.COLD:
            await traffic.pace(self._limits.interval_s, lambda: len(traffic.outcomes) * 4 >= least)
        await self._break()
        begin_s, num_before = time.perf_counter(), len(traffic.outcomes)
        until_s = begin_s + self._scenario.holds * self._limits.first_token_s
        interval_s = self._limits.interval_s / (_OVERLOAD if self._scenario.act is Act.OVERLOAD else 1.0)

        def is_enough() -> bool:
            return time.perf_counter() >= until_s and len(traffic.outcomes) - num_before >= least / 2

        await traffic.pace(interval_s, is_enough)
        await self._mend()
        end_s = time.perf_counter()
        give_up_s = end_s + min(_MOST_RECOVERY_S, 2 * self._limits.budget_s + 4 * open_s_of(self._limits))

        def is_back() -> bool:
            is_answered = first_answer_s(traffic.outcomes, self._faulty, end_s) is not None
            return time.perf_counter() >= give_up_s or (is_answered and len(traffic.outcomes) >= least)

        await traffic.pace(self._limits.interval_s, is_back)
        await traffic.drain()
        deliveries = [delivery for proxy in self._proxies.values() for delivery in proxy.deliveries]
        books = Books(traffic.outcomes, deliveries, traffic.longest_lag_s, traffic.strays)
        seen_until_s = end_s + self._limits.first_token_s
        changes, notes = traffic.breaker_changes, self._notes()
        return Played(self._scenario, books, self._faulty, begin_s, end_s, seen_until_s, changes, notes, started_s)

    async def _break(self) -> None:
        scenario, primary = self._scenario, self._proxies[PRIMARY]
        if scenario.act in (Act.COLD, Act.SHUT_BOTH):
            for name in self._faulty:
                await self._proxies[name].shut()
        elif scenario.act is Act.KILL:
            await self._wait_midway()
            self._site.servers[PRIMARY].kill()
        elif scenario.fault is not None:
            primary.fault = scenario.fault(self._limits)

    async def _wait_midway(self) -> None:
        """Until an answer of the first server is half way: that is when a kill costs most."""
        give_up_s = time.perf_counter() + self._limits.budget_s
        deliveries = self._proxies[PRIMARY].deliveries
        self._traffic.send()
        while not any(each.num_events and each.ended_s is None and not each.is_whole for each in deliveries):
            if time.perf_counter() >= give_up_s:
                return
            await asyncio.sleep(_POLL_S)

    async def _mend(self) -> None:
        scenario, primary = self._scenario, self._proxies[PRIMARY]
        primary.fault = None
        if scenario.act in (Act.COLD, Act.SHUT_BOTH):
            for name in self._faulty:
                await self._proxies[name].open()
        elif scenario.act is Act.KILL:
            await self._start_primary()

    async def _start_primary(self) -> None:
        """Start it again while requests go on; the fault is over once it answers."""
        server = self._site.servers[PRIMARY]
        server.begin_start()
        give_up_s = time.perf_counter() + _STARTS_WITHIN_S
        await self._traffic.pace(self._limits.interval_s, lambda: server.is_up or time.perf_counter() > give_up_s)
        if not server.is_up:
            raise ServerStartError(f"the killed server did not start again within {_STARTS_WITHIN_S:g} s")
        self._proxies[PRIMARY].retarget(server.address)

    def _notes(self) -> tuple[str, ...]:
        if self._scenario.act is not Act.COLD:
            return ()
        ttft_s = [
            answer.ttft_s - attempt.started_s
            for outcome in self._traffic.outcomes
            for answer in outcome.answers
            if answer.is_fallback and answer.ttft_s is not None and (attempt := answer.attempts[-1])
        ]
        if not ttft_s:
            return ("the fallback answered nothing",)
        usual = f", later ones {format_seconds(median(ttft_s[1:]))} in the middle" if len(ttft_s) > 1 else ""
        which = (
            "cold fallback" if self._site.servers[FALLBACK].is_ours else "fallback (which others may have asked before)"
        )
        return (f"the first answer of the {which} began after {format_seconds(ttft_s[0])}{usual}",)


def judge(played: Played, baselines: Baselines) -> ScenarioResult:
    """The scenario's result, once it is known what the servers say undisturbed."""
    scenario, outcomes = played.scenario, played.books.outcomes
    detected_s = first_spoiled_s(outcomes, played.faulty, played.begin_s)
    recovered_s = first_answer_s(outcomes, played.faulty, played.end_s)
    problems = []
    if detected_s is None and scenario.is_always_seen:
        problems.append("no attempt met the fault: nothing was exercised")
    if recovered_s is None:
        problems.append("the server that had failed was not used again in time")
    opened_s = [
        at_s - played.begin_s
        for at_s, name, state in played.breaker_changes
        if state is BreakerState.OPEN and name in played.faulty and played.begin_s <= at_s <= played.seen_until_s
    ]
    found, notes = tally(played.books, baselines), list(played.notes)
    if found.failed and len(baselines) > 1 and scenario.act not in (Act.SHUT_BOTH, Act.OVERLOAD):
        notes.append(
            f"{found.failed} requests failed although the fallback was up; a burst may ask more of it than it can answer in time"
        )
    return ScenarioResult(
        scenario.name,
        scenario.question,
        found,
        detected_s,
        min(opened_s, default=None),
        recovered_s,
        played.end_s - played.begin_s,
        tuple(problems),
        tuple(notes),
        fault=Span(played.begin_s - played.started_s, played.end_s - played.started_s),
        requests=list_requests(outcomes, played.started_s),
    )
