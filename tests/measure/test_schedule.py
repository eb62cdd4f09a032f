"""Schedules with stages, with a duration, and with turns that wait for the answer before them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace

import pytest

from inference_bench.measure import jobs
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.jobs import AHEAD_S, LEAST_AHEAD, JobLine, JobMaker
from inference_bench.measure.load import LoadOptions, run_load
from inference_bench.measure.schedule import Schedule
from inference_bench.measure.target import Endpoint, Target
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.workload import (
    Constant,
    Fixed,
    OpenLoop,
    Requests,
    RequestShape,
    Segment,
    Workload,
    generate,
    open_loop,
)

from .truth_server import TruthServer

QUICK = Timeouts(connect_s=5.0, idle_s=5.0, total_s=10.0)


@pytest.fixture(scope="module")
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


def by_index(records: tuple[RequestRecord, ...]) -> list[RequestRecord]:
    return sorted(records, key=lambda record: record.index or 0)


def test_a_schedule_is_cut_at_its_duration_and_its_stages_are_marked_by_plan(server: TruthServer) -> None:
    workload = generate(Constant(20.0), Fixed(8), Fixed(2), 100)
    options = LoadOptions(timeouts=QUICK, warmup_s=0.225, duration_s=0.5, cooldown_s=0.2)
    records = by_index(run_load(Target(server.url("slow")), workload, options).records)
    stages = [record.stage for record in records]
    assert stages[:14] == [Stage.WARMUP] * 4 + [Stage.MEASURE] * 10
    assert set(stages[14:]) <= {Stage.COOLDOWN}
    assert len(stages) <= 18  # the last at 0.9 s of 0.925
    assert all(record.status is RequestStatus.COMPLETED for record in records[:14])


def test_at_the_end_of_a_duration_what_is_in_flight_is_cancelled(server: TruthServer) -> None:
    workload = generate(Constant(20.0), Fixed(8), Fixed(200), 100)
    options = LoadOptions(timeouts=QUICK, duration_s=0.5)
    records = run_load(Target(server.url("slow")), workload, options).records
    assert [record.status for record in records] == [RequestStatus.CANCELLED] * 9
    assert max(record.end_s for record in records) - min(record.planned_s for record in records) < 1.5


def test_the_first_requests_of_a_schedule_can_be_warm_up(server: TruthServer) -> None:
    workload = generate(Constant(50.0), Fixed(8), Fixed(2), 10)
    records = by_index(
        run_load(Target(server.url("at_once")), workload, LoadOptions(timeouts=QUICK, warmup_requests=3)).records
    )
    assert [record.stage for record in records] == [Stage.WARMUP] * 3 + [Stage.MEASURE] * 7


def conversations(times_s: list[float], sessions: list[int], turns: list[int], output_tokens: int) -> Workload:
    prompts: list[tuple[Segment, ...]] = []
    for number, (session, turn) in enumerate(zip(sessions, turns, strict=True)):
        before = prompts[number - sessions[number::-1].index(session, 1)] if turn else ()
        answer = (Segment(1000 + 10 * session + turn - 1, output_tokens),) if turn else ()
        prompts.append((*before, *answer, Segment(10 * session + turn, 8)))
    lengths = array("q", [sum(segment.num_tokens for segment in prompt) for prompt in prompts])
    requests = Requests(
        lengths,
        array("q", [output_tokens] * len(times_s)),
        tuple(prompts),
        answers=array("q", [1000 + 10 * session + turn for session, turn in zip(sessions, turns, strict=True)]),
        session=array("q", sessions),
        turn=array("q", turns),
    )
    return Workload("talk", requests, open_loop(times_s))


def test_a_turn_waits_for_the_answer_before_it_and_keeps_its_plan(server: TruthServer) -> None:
    workload = conversations([0.0, 0.05, 0.1, 0.6], [0, 1, 0, 1], [0, 0, 1, 1], output_tokens=15)
    first, other, second, late = by_index(
        run_load(Target(server.url("slow")), workload, LoadOptions(timeouts=QUICK)).records
    )
    assert (second.session, second.turn, other.session, other.turn) == (0, 1, 1, 0)
    assert second.planned_s - first.planned_s == pytest.approx(0.1)
    assert second.sent_s >= first.end_s > second.planned_s  # a reply takes 0.3 s
    assert other.sent_s < first.end_s  # other conversations do not wait
    assert late.sent_s - late.planned_s < 0.2  # its answer was there long before


def test_a_conversation_is_sent_as_messages_where_the_route_takes_them(server: TruthServer) -> None:
    before = len(server.of("at_once"))
    workload = conversations([0.0, 0.1, 0.2], [0, 0, 0], [0, 1, 2], output_tokens=4)
    target = Target(server.url("at_once"), endpoint=Endpoint.CHAT)
    run_load(target, workload, LoadOptions(timeouts=QUICK))
    first, second, third = (request.body["messages"] for request in server.of("at_once")[before:])
    assert [message["role"] for message in third] == ["user", "assistant", "user", "assistant", "user"]
    assert third[: len(second)] == second
    assert second[: len(first)] == first


def test_bodies_are_made_for_the_next_seconds_and_not_for_all(server: TruthServer) -> None:
    workload = generate(Constant(100.0), Fixed(8), Fixed(2), 20_000)
    assert isinstance(workload.arrival, OpenLoop)
    options = LoadOptions()
    made: list[int] = []

    class Counting(JobMaker):
        def make(self, index: int):  # type: ignore[no-untyped-def]
            made.append(index)
            return super().make(index)

    maker = Counting(Target(server.url("steady")), workload, options)
    (line,) = Schedule(workload, workload.arrival, maker, options).lines
    assert isinstance(line, JobLine)
    assert not line.fill(60.0)
    assert len(made) == pytest.approx(AHEAD_S * 100, abs=2)
    assert line.take() is not None
    assert line.is_short()
    few = replace(workload, requests=workload.requests.first(100), arrival=open_loop(workload.arrival.times_s[:100]))
    made.clear()
    (line,) = Schedule(few, few.arrival, Counting(Target(server.url("steady")), few, options), options).lines  # type: ignore[arg-type]
    assert not line.fill(60.0)
    assert len(made) == 100 < LEAST_AHEAD


def test_large_bodies_are_made_ahead_only_as_far_as_they_can_be_held(
    server: TruthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MOST_AHEAD_BYTES", 10_000)
    workload = Workload("test", Requests.of([RequestShape(1000, 2)] * 50), open_loop([0.0] * 50))
    line = JobLine(JobMaker(Target(server.url("steady")), workload, LoadOptions()), iter(range(50)), lambda _: 50)
    assert not line.fill(60.0)
    taken = 0
    while not line.is_short():
        assert line.take() is not None
        taken += 1
    assert taken == 1  # each is about 5 kB: two lay ready
    assert sum(1 for _ in iter(line.take, None)) == 49


def test_bodies_that_are_not_made_in_time_are_made_when_they_are_due(server: TruthServer) -> None:
    shapes = [RequestShape(8, 2)] * 3
    workload = Workload("test", Requests.of(shapes), open_loop([0.0, 0.0, 0.0]))
    line = JobLine(JobMaker(Target(server.url("steady")), workload, LoadOptions()), iter(range(3)), lambda _: 0)
    jobs = [line.take() for _ in range(4)]
    assert [None if job is None else job.index for job in jobs] == [0, 1, 2, None]
