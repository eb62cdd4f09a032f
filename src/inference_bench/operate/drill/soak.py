"""Kill -9 at random moments under a steady load: is every request accounted for?

In:   two servers of ours, time limits, how long, a seed
Out:  SoakResult
Leaves out: faults that a proxy makes (stage); the proxies only keep the books here
Read next by: flow.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Final

from inference_bench.engines.base import Progress
from inference_bench.errors import InferenceBenchError
from inference_bench.operate.drill.accounting import Baselines, Books, list_requests, tally
from inference_bench.operate.drill.proxy import FaultProxy
from inference_bench.operate.drill.results import PRIMARY, Measured, SoakResult, Span
from inference_bench.operate.drill.servers import Server
from inference_bench.operate.drill.stage import Site, policy_of, proxied
from inference_bench.operate.drill.traffic import Traffic
from inference_bench.units import format_seconds

_LEAST_DOWN_S: Final = 0.1
_MOST_DOWN_S: Final = 1.5
_POLL_S: Final = 0.05


@dataclass(slots=True)
class _Kills:
    """What was done to the server so far. Unit: seconds of the drill's clock."""

    num: int = 0
    starts: int = 0
    down: list[tuple[float, float]] = field(default_factory=list)
    problem: str | None = None


def run_soak(
    site: Site,
    limits: Measured,
    baselines: Baselines,
    duration_s: float,
    kill_every_s: float,
    seed: int,
    progress: Progress,
) -> SoakResult:
    """Keep a steady load for so long while the first server is killed again and again.

    Where:    after Ctrl-C what had ended by then is judged; what was under way is left out
    """
    soak = _Soak(site, limits, duration_s, kill_every_s, seed, progress)
    is_interrupted = False
    try:
        asyncio.run(soak.run())
    except KeyboardInterrupt:
        is_interrupted = True
    return soak.result(baselines, is_interrupted)


class _Soak:
    """One soak."""

    def __init__(
        self, site: Site, limits: Measured, duration_s: float, kill_every_s: float, seed: int, progress: Progress
    ) -> None:
        self._site, self._limits, self._progress = site, limits, progress
        self._duration_s, self._kill_every_s, self._seed = duration_s, kill_every_s, seed
        self._kills = _Kills()
        self._traffic: Traffic | None = None
        self._proxies: dict[str, FaultProxy] = {}
        self._begin_s = self._ended_s = 0.0

    async def run(self) -> None:
        """Load and kills, until the time is over."""
        async with proxied(self._site) as self._proxies:
            upstreams = [self._site.upstream(name, proxy.url) for name, proxy in self._proxies.items()]
            policy, clock = policy_of(self._limits), time.perf_counter
            traffic = self._traffic = Traffic(upstreams, policy, self._site.asking, clock, self._site.on_answer)
            self._begin_s = clock()
            beside = [asyncio.create_task(each) for each in (traffic.watch_lag(), self._kill_again_and_again())]
            try:
                await traffic.pace(self._limits.interval_s, self._is_over)
                beside[1].cancel()
                await traffic.drain()
            finally:
                self._ended_s = clock()
                for task in beside:
                    task.cancel()
                await traffic.stop()
                await asyncio.gather(*beside, return_exceptions=True)

    def _is_over(self) -> bool:
        return self._kills.problem is not None or time.perf_counter() - self._begin_s >= self._duration_s

    async def _kill_again_and_again(self) -> None:
        draw, server, kills = random.Random(self._seed), self._site.servers[PRIMARY], self._kills
        while True:
            await asyncio.sleep(draw.expovariate(1.0 / self._kill_every_s))
            server.kill()
            kills.num += 1
            down_since_s = time.perf_counter()
            try:
                await asyncio.sleep(draw.uniform(_LEAST_DOWN_S, _MOST_DOWN_S))
                await self._start(server)
            except InferenceBenchError as error:
                kills.problem = f"the killed server did not start again: {error}"
                return
            finally:
                kills.down.append((down_since_s, time.perf_counter()))

    async def _start(self, server: Server) -> None:
        server.begin_start()
        while not server.is_up:
            await asyncio.sleep(_POLL_S)
        self._proxies[PRIMARY].retarget(server.address)
        self._kills.starts += 1
        elapsed_s = time.perf_counter() - self._begin_s
        self._progress(f"soak: {format_seconds(elapsed_s)}, {self._kills.num} kills")

    def result(self, baselines: Baselines, is_interrupted: bool) -> SoakResult:
        """Both books, compared."""
        kills, traffic = self._kills, self._traffic
        problems = [] if kills.problem is None else [kills.problem]
        if not kills.num and not is_interrupted:
            problems.append("nothing was killed: give it more time")
        outcomes = [] if traffic is None else traffic.outcomes
        if is_interrupted:
            outcomes = [each for each in outcomes if each.ended_s is not None]
        deliveries = [delivery for proxy in self._proxies.values() for delivery in proxy.deliveries]
        lag_s, strays = (0.0, 0) if traffic is None else (traffic.longest_lag_s, traffic.strays)
        return SoakResult(
            tally(Books(outcomes, deliveries, lag_s, strays), baselines),
            kills.num,
            kills.starts,
            max(0.0, self._ended_s - self._begin_s),
            sum(end_s - begin_s for begin_s, end_s in kills.down),
            self._seed,
            tuple(problems),
            is_interrupted,
            tuple(Span(begin_s - self._begin_s, end_s - self._begin_s) for begin_s, end_s in kills.down),
            list_requests(outcomes, self._begin_s),
        )
