"""Open loops: every request is planned for its time in the schedule, whatever the server and this client are doing."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Iterator
from itertools import pairwise

import pytest

from inference_bench.errors import MeasurementError, StorageError
from inference_bench.measure import load, schedule
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.load import LoadOptions, count_possible_in_flight, run_load, send_load
from inference_bench.measure.target import Target
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.workload import (
    ClosedLoop,
    Constant,
    Fixed,
    Requests,
    RequestShape,
    Segment,
    Workload,
    closed_loop,
    generate,
    open_loop,
)

from .truth_server import TruthServer

QUICK = Timeouts(connect_s=5.0, idle_s=5.0, total_s=10.0)


@pytest.fixture(scope="module")
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


def at(times_s: list[float], output_tokens: int = 5) -> Workload:
    shapes = [RequestShape(12, output_tokens)] * len(times_s)
    return Workload("test", Requests.of(shapes), open_loop(times_s))


def by_plan(records: tuple[RequestRecord, ...]) -> list[RequestRecord]:
    return sorted(records, key=lambda record: (record.planned_s, record.request_id))


def test_requests_are_planned_for_their_times_in_the_schedule_and_sent_while_others_run(server: TruthServer) -> None:
    times_s = [0.0, 0.05, 0.05, 0.07, 0.3]
    records = by_plan(
        run_load(Target(server.url("slow")), at(times_s, output_tokens=10), LoadOptions(timeouts=QUICK)).records
    )
    begin_s = records[0].planned_s
    assert [record.planned_s - begin_s for record in records] == pytest.approx(times_s, abs=1e-9)
    assert all(record.sent_s >= record.planned_s for record in records)
    assert all(record.status is RequestStatus.COMPLETED for record in records)
    assert records[3].sent_s < records[0].end_s  # a reply takes 0.2 s; nobody waited for it
    assert [record.request_id for record in records] == [f"measure-{number:05d}" for number in range(5)]


def test_a_rate_is_kept_by_absolute_times(server: TruthServer) -> None:
    workload = generate(Constant(100.0), Fixed(8), Fixed(2), 40)
    records = by_plan(run_load(Target(server.url("at_once")), workload, LoadOptions(timeouts=QUICK)).records)
    planned_s = [record.planned_s for record in records]
    assert [after - before for before, after in pairwise(planned_s)] == pytest.approx([0.01] * 39, abs=1e-9)
    assert planned_s[-1] - planned_s[0] == pytest.approx(0.39, abs=1e-9)


def test_a_client_that_is_late_says_so_and_moves_no_plan(server: TruthServer) -> None:
    def slow_writer(record: RequestRecord) -> None:
        time.sleep(0.1)

    times_s = [0.0, 0.02, 0.04, 0.06, 0.08, 0.1]
    options = LoadOptions(writer=slow_writer, timeouts=QUICK)
    result = run_load(Target(server.url("at_once")), at(times_s), options)
    records = by_plan(result.records)
    assert [record.planned_s - records[0].planned_s for record in records] == pytest.approx(times_s, abs=1e-9)
    assert result.health.send_delay_p99_s is not None
    assert result.health.send_delay_p99_s >= 0.05


def test_lengths_reach_the_server_in_the_order_of_the_workload(server: TruthServer) -> None:
    before = len(server.of("at_once"))
    shapes = [RequestShape(10, 3), RequestShape(50, 7), RequestShape(20, 2)]
    workload = Workload("test", Requests.of(shapes), open_loop([0.0, 0.05, 0.1]))
    run_load(Target(server.url("at_once")), workload, LoadOptions(timeouts=QUICK))
    seen = server.of("at_once")[before:]
    assert [(len(request.prompt.split()), request.num_tokens) for request in seen] == [(10, 3), (50, 7), (20, 2)]


def test_prompts_that_share_segments_share_their_words_and_no_more(server: TruthServer) -> None:
    before = len(server.of("at_once"))
    prompts = ((Segment(0, 40), Segment(1, 10)), (Segment(0, 40), Segment(2, 10)), (Segment(3, 50),))
    requests = Requests(array("q", [50] * 3), array("q", [2] * 3), prompts)
    workload = Workload("test", requests, open_loop([0.0, 0.05, 0.1]))
    run_load(Target(server.url("at_once")), workload, LoadOptions(timeouts=QUICK))
    first, second, third = (request.prompt.split() for request in server.of("at_once")[before:])
    assert len(first) == len(second) == len(third) == 50
    assert first[:40] == second[:40]
    assert first[40:] != second[40:]
    assert first[:10] != third[:10]


def test_a_server_that_cannot_answer_stops_the_schedule(server: TruthServer) -> None:
    with pytest.raises(MeasurementError, match="every one of the first 5 requests"):
        run_load(
            Target(server.url("not_found")), at([0.01 * number for number in range(200)]), LoadOptions(timeouts=QUICK)
        )


def test_more_in_flight_than_this_client_can_hold_stops_the_schedule(
    server: TruthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "count_possible_in_flight", lambda: 3)
    records: list[RequestRecord] = []
    options = LoadOptions(writer=records.append, timeouts=QUICK)
    with pytest.raises(MeasurementError, match=r"3 requests are in flight.*lower the rate"):
        run_load(Target(server.url("slow")), at([0.0] * 10, output_tokens=50), options)
    assert [record.status for record in records] == [RequestStatus.CANCELLED] * 3


def test_this_process_can_hold_some_requests() -> None:
    assert 1 <= count_possible_in_flight() <= load.MOST_IN_FLIGHT


def test_a_writer_that_fails_stops_the_schedule_with_its_own_error(server: TruthServer) -> None:
    def full(record: RequestRecord) -> None:
        raise StorageError("could not write: no space left on device")

    with pytest.raises(StorageError, match="no space left"):
        run_load(
            Target(server.url("steady")),
            at([0.01 * number for number in range(500)]),
            LoadOptions(writer=full, timeouts=QUICK),
        )


def test_a_cancelled_schedule_writes_the_requests_in_flight_and_passes_on(server: TruthServer) -> None:
    records: list[RequestRecord] = []

    async def cancel_soon() -> None:
        options = LoadOptions(writer=records.append, timeouts=QUICK)
        task = asyncio.create_task(send_load(Target(server.url("silent")), at([0.0, 0.0, 60.0]), options))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_soon())
    assert [record.status for record in records] == [RequestStatus.CANCELLED] * 2


def test_a_user_who_thinks_plans_the_next_request_that_much_later(server: TruthServer) -> None:
    workload = closed_loop("thinking", [RequestShape(8, 2)], 1, 4, think_s=0.05)
    records = run_load(Target(server.url("at_once")), workload, LoadOptions(timeouts=QUICK)).records
    assert isinstance(workload.arrival, ClosedLoop)
    assert len(records) == 4
    for before, after in pairwise(records):
        assert after.planned_s == before.end_s + 0.05
        assert after.sent_s >= after.planned_s
