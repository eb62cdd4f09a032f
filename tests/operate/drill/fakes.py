"""Servers that start in a moment and can be killed: the truth server in a process of its own, as a server of the drill."""

from __future__ import annotations

import os
from typing import Any

from inference_bench.conform.truth_process import TruthProcess
from inference_bench.measure.target import Endpoint, Target
from inference_bench.operate.answers import Answer, Attempt, AttemptEnd, EndpointIdentity
from inference_bench.operate.drill.proxy import Delivery
from inference_bench.operate.drill.results import FALLBACK, PRIMARY, Measured
from inference_bench.operate.drill.servers import Restartable
from inference_bench.operate.drill.stage import Site
from inference_bench.operate.drill.traffic import Asking, CallerEnd, Outcome
from inference_bench.records import RequestStatus

PACE = "paced,first=0.03,gap=0.005"
SLOW_PACE = "paced,first=0.03,gap=0.04"
NUM_TOKENS = 8
TEXT = " a" * NUM_TOKENS
LIMITS = Measured(0.03, 0.08, first_token_s=0.5, stall_s=0.4, budget_s=3.0, interval_s=0.04)
BASELINES = {name: {number: frozenset({TEXT}) for number in range(4)} for name in (PRIMARY, FALLBACK)}


class TruthEngine:
    """A server process that answers, and ends."""

    def __init__(self, pace: str = PACE) -> None:
        self._process = TruthProcess()
        self.base_url = self._process.url(pace)
        self.log = self._process.log

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        self._process.end()


def start(_name: str) -> TruthEngine:
    return TruthEngine()


def make_site(pace: str = PACE, **more: Any) -> Site:
    servers = {name: Restartable(lambda: TruthEngine(pace)) for name in (PRIMARY, FALLBACK)}
    targets = {name: Target(str(each.address), endpoint=Endpoint.CHAT) for name, each in servers.items()}
    return Site(dict(servers), targets, Asking.usual(NUM_TOKENS), 12, **more)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def answer(request_id: str = "one", who: str | None = PRIMARY, *attempts: Attempt) -> Answer:
    identity = None if who is None else EndpointIdentity(who, "http://127.0.0.1:1")
    attempts = attempts or (attempt(AttemptEnd.COMPLETED, 0.0, 0.1, who or PRIMARY),)
    return Answer(request_id, "2026-01-01T00:00:00Z", RequestStatus.COMPLETED, attempts, identity, False, 3.0, 0.1)


def attempt(end: AttemptEnd, started_s: float, ended_s: float, who: str = PRIMARY) -> Attempt:
    return Attempt(1, EndpointIdentity(who, "http://127.0.0.1:1"), end, started_s, ended_s)


def outcome(end: CallerEnd = CallerEnd.COMPLETED, text: str = TEXT, **more: Any) -> Outcome:
    settings: dict[str, Any] = {"began_s": 10.0, "budget_s": 3.0, "ended_s": 10.5, "answers": [answer()], **more}
    return Outcome("one", 0, is_read_whole=True, end=end, text=text, **settings)


def delivery(text: str = TEXT, *, is_whole: bool = True, **more: Any) -> Delivery:
    settings: dict[str, Any] = {"key": "one", "endpoint": PRIMARY, "num_asked": 0, "at_s": 10.0, **more}
    return Delivery(text=text, is_whole=is_whole, num_events=len(text) // 2, **settings)
