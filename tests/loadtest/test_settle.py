"""Between two levels the server becomes idle, and how long that took is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from inference_bench.loadtest import settle
from inference_bench.loadtest.settle import Settled, Settler
from inference_bench.measure.load import LoadOptions
from inference_bench.measure.server_metrics import ServerSample
from inference_bench.records import Origin, RequestRecord, RequestStatus, Stage, TokenCountSource

DONE = RequestRecord(
    request_id="r",
    origin=Origin.MEASURED,
    stage=Stage.MEASURE,
    status=RequestStatus.COMPLETED,
    planned_s=0.0,
    sent_s=0.0,
    end_s=2.0,
    chunk_times_s=(1.0,),
    output_tokens=1,
    token_count_source=TokenCountSource.SERVER_USAGE,
)
CANCELLED = replace(DONE, status=RequestStatus.CANCELLED)


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, time_s: float) -> None:
        self.now_s += time_s


@dataclass
class Watch:
    """A server's own word: three run until a moment, none after it."""

    clock: Clock
    busy_until_s: float

    @property
    def result(self) -> Any:
        now_s = self.clock()
        running = 3.0 if now_s < self.busy_until_s else 0.0
        return SimpleNamespace(samples=(ServerSample(now_s, 0.001, running=running, waiting=0.0),))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(settle, "time", SimpleNamespace(monotonic=clock, sleep=clock.sleep))
    return clock


def session(clock: Clock, watch: Watch | None = None) -> Any:
    return SimpleNamespace(watch=watch, options=LoadOptions(clock=clock), target=None)


def answering(monkeypatch: pytest.MonkeyPatch, clock: Clock, waits_s: Iterator[float]) -> list[LoadOptions]:
    sent: list[LoadOptions] = []

    def run(_target: object, _workload: object, options: LoadOptions) -> Any:
        sent.append(options)
        wait_s = next(waits_s)
        clock.now_s += wait_s
        return SimpleNamespace(records=(replace(DONE, chunk_times_s=(wait_s,), end_s=wait_s),))

    monkeypatch.setattr(settle, "run_load", run)
    return sent


def test_nothing_is_waited_for_where_all_ended(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    sent = answering(monkeypatch, clock, iter([0.1]))
    settler = Settler(session(clock))
    settler.learn()
    assert settler.wait_after([DONE, DONE]) is None
    assert len(sent) == 1


@pytest.mark.parametrize("status", [RequestStatus.CANCELLED, RequestStatus.TIMED_OUT])
def test_after_something_was_given_up_short_requests_are_sent_until_one_is_answered_as_soon_as_the_first(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, status: RequestStatus
) -> None:
    sent = answering(monkeypatch, clock, iter([0.1, 4.0, 2.0, 0.11]))
    settler = Settler(session(clock))
    settler.learn()
    found = settler.wait_after([DONE, replace(DONE, status=status)])
    assert found is not None
    assert (found.waited_s, found.is_idle) == (pytest.approx(4.0 + 2.0 + 0.11 + 2 * 0.25), True)
    assert len(sent) == 4
    assert all(options.stage is Stage.WARMUP and options.duration_s is None for options in sent)
    assert found.is_worth_saying
    assert "waited 6.61 s before concurrency 8" in found.said("concurrency 8")


def test_the_servers_own_word_is_taken_where_it_gives_one(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    sent = answering(monkeypatch, clock, iter(()))
    settler = Settler(session(clock, Watch(clock, busy_until_s=103.0)))
    settler.learn()
    found = settler.wait_after([DONE])
    assert found is not None
    assert (found.waited_s, found.is_idle) == (pytest.approx(3.0, abs=0.3), True)
    assert sent == []


def test_the_wait_has_an_end_and_a_server_that_is_still_busy_is_named(clock: Clock) -> None:
    settler = Settler(session(clock, Watch(clock, busy_until_s=1000.0)))
    short = settler.wait_after([CANCELLED], most_s=5.0)
    assert short is not None
    assert (short.waited_s, short.is_idle) == (pytest.approx(5.0, abs=0.3), False)
    found = settler.wait_after([CANCELLED])
    assert found is not None
    assert (found.waited_s, found.is_idle) == (pytest.approx(30.0, abs=0.3), False)
    assert found.is_worth_saying
    assert not Settled(0.1, is_idle=True).is_worth_saying
    assert "still busy" in found.said("rate 4")
