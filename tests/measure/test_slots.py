"""A closed loop is one loop from warm-up to cool-down: its parts are marked, and it does not drain in between."""

from __future__ import annotations

import os
import socket
import time
from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from inference_bench import workload as asked
from inference_bench.errors import MeasurementError, RequestError
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.load import LoadOptions, LoadResult, run_load
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.target import Target
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.token_window import token_window
from inference_bench.workload import ClosedLoop, Requests, RequestShape, Segment, Workload, open_loop

from .truth_server import Request, TruthServer

QUICK = Timeouts(connect_s=5.0, idle_s=5.0, total_s=10.0)


@pytest.fixture(scope="module")
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


def loop(concurrency: int, num_requests: int, output_tokens: int = 5) -> Workload:
    return asked.closed_loop("test", [RequestShape(12, output_tokens)], concurrency, num_requests)


def of(result: LoadResult, stage: Stage) -> list[RequestRecord]:
    return [record for record in result.records if record.stage is stage]


def wait_for(condition: object, what: str) -> None:
    assert callable(condition)
    deadline_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.01)


def test_stages_are_marked_by_when_a_request_was_planned_and_slots_are_handed_over_without_draining(
    server: TruthServer,
) -> None:
    options = LoadOptions(timeouts=QUICK, warmup_s=0.5, duration_s=1.0, cooldown_s=1.0)
    result = run_load(Target(server.url("slow")), loop(4, 1000), options)
    assert result.measured_s is not None
    begin_s, end_s = result.measured_s
    assert end_s - begin_s == pytest.approx(1.0)
    for record in result.records:
        expected = (
            Stage.WARMUP
            if record.planned_s < begin_s
            else Stage.MEASURE
            if record.planned_s < end_s
            else Stage.COOLDOWN
        )
        assert record.stage is expected
    assert min(len(of(result, stage)) for stage in (Stage.WARMUP, Stage.MEASURE)) >= 4
    for edge_s in (begin_s, end_s - 0.1):
        around = token_window(result.records, edge_s - 0.05, edge_s + 0.05)
        assert around is not None
        assert around.mean_concurrency > 3.5


def test_without_a_cool_down_what_is_in_flight_at_the_end_is_cancelled_and_the_server_stops(
    server: TruthServer,
) -> None:
    before = len(server.of("slow"))
    options = LoadOptions(timeouts=QUICK, duration_s=0.3)
    result = run_load(Target(server.url("slow")), loop(3, 1000, output_tokens=200), options)
    assert [record.status for record in result.records] == [RequestStatus.CANCELLED] * 3
    assert all(record.stage is Stage.MEASURE and record.chunk_times_s for record in result.records)
    assert result.measured_s is not None
    late_s = [record.end_s - result.measured_s[1] for record in result.records]
    assert 0 <= min(late_s) <= max(late_s) < 0.25  # their replies would take 4 s

    def sent() -> list[int]:
        return [request.num_content_sent for request in server.of("slow")[before:]]

    time.sleep(0.3)
    num_sent = sent()
    time.sleep(0.2)
    assert sent() == num_sent
    assert max(num_sent) < 100


def test_with_a_cool_down_what_was_measured_ends_under_load_and_the_run_with_it(server: TruthServer) -> None:
    options = LoadOptions(timeouts=QUICK, duration_s=0.3, cooldown_s=5.0)
    result = run_load(Target(server.url("slow")), loop(3, 1000, output_tokens=20), options)
    measured = of(result, Stage.MEASURE)
    assert {record.status for record in measured} == {RequestStatus.COMPLETED}
    cooling = of(result, Stage.COOLDOWN)
    assert all(record.planned_s >= max(record.sent_s for record in measured) for record in cooling)
    assert {record.status for record in cooling} <= {RequestStatus.CANCELLED}
    assert max(record.end_s for record in result.records) < max(record.end_s for record in measured) + 0.5


def test_a_cool_down_that_is_too_short_cancels_what_is_measured_too(server: TruthServer) -> None:
    options = LoadOptions(timeouts=QUICK, duration_s=0.2, cooldown_s=0.2)
    result = run_load(Target(server.url("silent")), loop(2, 1000), options)
    assert [(record.stage, record.status) for record in result.records] == [
        (Stage.MEASURE, RequestStatus.CANCELLED)
    ] * 2


def test_warm_up_requests_come_on_top_of_the_measured_ones(server: TruthServer) -> None:
    before = len(server.of("steady"))
    result = run_load(Target(server.url("steady")), loop(2, 6), LoadOptions(timeouts=QUICK, warmup_requests=5))
    assert len(of(result, Stage.WARMUP)) == 5
    measured = of(result, Stage.MEASURE)
    assert sorted(record.index for record in measured if record.index is not None) == list(range(6))
    assert min(record.planned_s for record in measured) >= sorted(r.planned_s for r in of(result, Stage.WARMUP))[-1]
    prompts = [request.prompt for request in server.of("steady")[before:]]
    assert len(prompts) == len(set(prompts)) == 11


def test_a_count_with_a_cool_down_keeps_the_load_up_until_the_last_measured_one_has_ended(server: TruthServer) -> None:
    workload = asked.closed_loop("mixed", [RequestShape(12, 2), RequestShape(12, 40)], 2, 2)
    result = run_load(Target(server.url("slow")), workload, LoadOptions(timeouts=QUICK, cooldown_s=10.0))
    measured, cooling = of(result, Stage.MEASURE), of(result, Stage.COOLDOWN)
    assert [record.status for record in measured] == [RequestStatus.COMPLETED] * 2
    assert len(cooling) >= 1
    assert {record.index for record in measured} == {0, 1}
    assert max(record.end_s for record in cooling) < max(record.end_s for record in measured) + 0.5


def test_slots_start_spread_over_the_ramp_which_is_warm_up(server: TruthServer) -> None:
    options = LoadOptions(timeouts=QUICK, ramp_s=0.8, duration_s=0.4)
    result = run_load(Target(server.url("slow")), loop(4, 1000, output_tokens=100), options)
    planned_s = sorted(record.planned_s for record in result.records)[:4]
    assert [after - before for before, after in pairwise(planned_s)] == pytest.approx([0.2] * 3)
    assert {record.stage for record in result.records} == {Stage.WARMUP}


def test_with_a_duration_the_requests_begin_anew_with_new_prompts_unless_told_not_to(server: TruthServer) -> None:
    before = len(server.of("steady"))
    shapes = [RequestShape(12, 2), RequestShape(20, 3)]
    workload = asked.closed_loop("two", shapes, 1, 2)
    result = run_load(Target(server.url("steady")), workload, LoadOptions(timeouts=QUICK, duration_s=0.5))
    seen = server.of("steady")[before:]
    assert len(seen) >= 6
    assert [(len(request.prompt.split()), request.num_tokens) for request in seen[:6]] == [(12, 2), (20, 3)] * 3
    assert len({request.prompt for request in seen}) == len(seen)
    assert [record.index for record in result.records] == list(range(len(result.records)))
    options = LoadOptions(timeouts=QUICK, duration_s=5.0, repeats=False)
    started_s = time.monotonic()
    once = run_load(Target(server.url("steady")), workload, options)
    assert [record.status for record in once.records] == [RequestStatus.COMPLETED] * 2
    assert time.monotonic() - started_s < 4


def test_prompts_that_begin_anew_keep_what_several_share_and_nothing_else(server: TruthServer) -> None:
    before = len(server.of("steady"))
    prompts = ((Segment(0, 30), Segment(1, 10)), (Segment(0, 30), Segment(2, 10)))
    requests = Requests(array("q", [40, 40]), array("q", [2, 2]), prompts)
    workload = Workload("shared", requests, ClosedLoop(1, 2))
    run_load(Target(server.url("steady")), workload, LoadOptions(timeouts=QUICK, duration_s=0.3))
    seen = [request.prompt.split() for request in server.of("steady")[before:]]
    assert len(seen) >= 4
    assert len({tuple(words[:30]) for words in seen}) == 1
    assert len({tuple(words[30:]) for words in seen}) == len(seen)


def prompts_of(requests: list[Request]) -> set[str]:
    return {request.prompt for request in requests}


def test_processes_that_share_a_workload_send_together_what_one_alone_would(server: TruthServer) -> None:
    target, workload = Target(server.url("at_once")), loop(1, 6)
    before = len(server.of("at_once"))
    alone = run_load(target, workload, LoadOptions(timeouts=QUICK, prompts=PromptMaker(7, salt="run")))
    middle = len(server.of("at_once"))
    shared = [
        run_load(
            target,
            workload,
            LoadOptions(timeouts=QUICK, prompts=PromptMaker(7, salt="run"), indices=indices, first_serial=0),
        )
        for indices in (range(0, 6, 2), range(1, 6, 2))
    ]
    assert [[record.index for record in each.records] for each in shared] == [[0, 2, 4], [1, 3, 5]]
    assert prompts_of(server.of("at_once")[before:middle]) == prompts_of(server.of("at_once")[middle:])
    assert {record.request_id for record in alone.records} == {
        record.request_id for each in shared for record in each.records
    }


def test_a_schedule_may_begin_at_a_time_that_others_share(server: TruthServer) -> None:
    clock = time.perf_counter
    begin_s = clock() + 0.4
    workload = Workload("test", Requests.of([RequestShape(12, 2)] * 2), open_loop([0.0, 0.1]))
    for each in (loop(1, 1), workload):
        begin_s = clock() + 0.4
        records = run_load(
            Target(server.url("at_once")), each, LoadOptions(timeouts=QUICK, clock=clock, begin_s=begin_s)
        ).records
        assert records[0].planned_s == begin_s
        assert records[0].sent_s >= begin_s


def test_later_loads_of_a_run_never_repeat_a_prompt_of_an_earlier_warm_up(server: TruthServer) -> None:
    before = len(server.of("at_once"))
    prompts = PromptMaker(0)
    for _ in range(2):
        options = LoadOptions(timeouts=QUICK, prompts=prompts, warmup_requests=3)
        run_load(Target(server.url("at_once")), loop(1, 2), options)
    assert len(prompts_of(server.of("at_once")[before:])) == 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"duration_s": 0.0}, "the duration is 0 s"),
        ({"warmup_s": -1.0}, "the warmup is -1.0 s"),
        ({"cooldown_s": float("inf")}, "the cooldown is inf s"),
        ({"warmup_s": 1.0, "warmup_requests": 2}, "give one of them"),
    ],
)
def test_stages_that_cannot_be_are_refused(options: dict[str, float], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        LoadOptions(**options)  # type: ignore[arg-type]


def num_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are counted where the system lists them")
@pytest.mark.parametrize("is_open", [False, True])
def test_ten_thousand_refused_connections_end_with_one_error_and_leave_no_file_open(is_open: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    requests = Requests.of([RequestShape(4, 1)] * 10_000)
    at_once = Workload("all at once", requests, open_loop([0.0] * 10_000) if is_open else ClosedLoop(10_000, 10_000))
    before = num_open_files()
    records: list[RequestRecord] = []
    with pytest.raises(MeasurementError, match=r"every one of the first 5 requests .*connection refused"):
        run_load(Target(f"http://127.0.0.1:{port}"), at_once, LoadOptions(writer=records.append, timeouts=QUICK))
    wait_for(lambda: num_open_files() <= before, "connections stay open")
    assert {record.status for record in records} <= {RequestStatus.FAILED, RequestStatus.CANCELLED}
    assert sum(record.status is RequestStatus.FAILED for record in records) >= 5
