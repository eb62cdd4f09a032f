"""Closed loops against a server of known behaviour: concurrency, counts, early stops, refused fields, health."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from inference_bench import workload as asked
from inference_bench.errors import MeasurementError, StorageError
from inference_bench.measure.floor import measure_client_floor
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.load import LoadOptions, find_refused_fields, run_closed_loop, send_load
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.store import RunFolder, read_records
from inference_bench.measure.target import ApiKey, Endpoint, Target
from inference_bench.metrics import summarise
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.workload import RequestShape, Workload

from .truth_server import TruthServer

QUICK = Timeouts(connect_s=5.0, idle_s=5.0, total_s=10.0)


@pytest.fixture(scope="module")
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


def workload(concurrency: int, num_requests: int, *shapes: RequestShape) -> Workload:
    return asked.closed_loop("test", shapes or (RequestShape(12, 5),), concurrency, num_requests)


def most_at_once(records: tuple[RequestRecord, ...]) -> int:
    edges = sorted([(record.sent_s, 1) for record in records] + [(record.end_s, -1) for record in records])
    running, most = 0, 0
    for _, step in edges:
        running += step
        most = max(most, running)
    return most


@pytest.mark.parametrize("concurrency", [1, 2, 4])
def test_a_closed_loop_sends_every_request_once_and_keeps_its_concurrency(
    server: TruthServer, concurrency: int
) -> None:
    before = len(server.of("steady"))
    result = run_closed_loop(Target(server.url("steady")), workload(concurrency, 12), timeouts=QUICK)
    assert len(result.records) == len(server.of("steady")) - before == 12
    assert all(record.status is RequestStatus.COMPLETED for record in result.records)
    assert len({record.request_id for record in result.records}) == 12
    assert most_at_once(result.records) == concurrency
    assert result.dropped_fields == ()


def test_a_slot_plans_its_next_request_for_the_moment_the_last_one_ended(server: TruthServer) -> None:
    records = run_closed_loop(Target(server.url("steady")), workload(1, 5), timeouts=QUICK).records
    assert len(records) == 5
    assert all(after.planned_s == before.end_s for before, after in pairwise(records))
    assert all(record.planned_s <= record.sent_s for record in records)


def test_no_more_slots_than_requests(server: TruthServer) -> None:
    assert len(run_closed_loop(Target(server.url("steady")), workload(8, 3), timeouts=QUICK).records) == 3


def test_shapes_and_prompts_reach_the_server_as_asked_and_no_prompt_comes_twice(server: TruthServer) -> None:
    before = len(server.of("at_once"))
    shapes = RequestShape(10, 3), RequestShape(50, 7)
    records = run_closed_loop(Target(server.url("at_once")), workload(1, 6, *shapes), timeouts=QUICK).records
    seen = server.of("at_once")[before:]
    assert [(len(request.prompt.split()), request.num_tokens) for request in seen] == [(10, 3), (50, 7)] * 3
    assert len({request.prompt.split()[0] for request in seen}) == 6
    assert [record.requested_output_tokens for record in records] == [3, 7] * 3


def test_one_prompt_maker_keeps_ids_and_prompts_apart_over_several_loads(server: TruthServer) -> None:
    prompts = PromptMaker(0)
    target = Target(server.url("at_once"))
    records = [
        record
        for stage in (Stage.WARMUP, Stage.MEASURE, Stage.MEASURE)
        for record in run_closed_loop(
            target, workload(1, 2), stage=stage, group="b1", prompts=prompts, timeouts=QUICK
        ).records
    ]
    assert [record.request_id for record in records] == [
        "warmup-b1-00000",
        "warmup-b1-00001",
        "measure-b1-00002",
        "measure-b1-00003",
        "measure-b1-00004",
        "measure-b1-00005",
    ]
    assert summarise(records).requests.sent == 4


def test_records_are_written_as_they_end_and_progress_is_told(server: TruthServer, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "load")
    written_when_told = []
    with run.open_writer() as writer:

        def progress(num_ended: int, num_planned: int) -> None:
            written_when_told.append((num_ended, num_planned, len(read_records(run.path).records)))

        result = run_closed_loop(
            Target(server.url("steady")), workload(1, 4), writer=writer.append, progress=progress, timeouts=QUICK
        )
    assert written_when_told == [(1, 4, 1), (2, 4, 2), (3, 4, 3), (4, 4, 4)]
    stored = read_records(run.path).records
    assert [record.request_id for record in stored] == [record.request_id for record in result.records]
    assert [record.chunk_times_s for record in stored] == [
        pytest.approx(record.chunk_times_s, abs=2e-6) for record in result.records
    ]


def test_failures_in_between_are_recorded_and_the_load_goes_on(server: TruthServer) -> None:
    result = run_closed_loop(Target(server.url("ends_without_finish")), workload(2, 8), timeouts=QUICK)
    assert [record.status for record in result.records] == [RequestStatus.TRUNCATED] * 8


@pytest.mark.parametrize("case", ["busy", "loading"])
def test_a_busy_server_is_not_a_dead_one(server: TruthServer, case: str) -> None:
    result = run_closed_loop(Target(server.url(case)), workload(1, 7), timeouts=QUICK)
    assert [record.status for record in result.records] == [RequestStatus.REJECTED] * 7


def test_a_server_that_stalls_gives_time_outs_and_the_load_ends(server: TruthServer) -> None:
    result = run_closed_loop(Target(server.url("stalls")), workload(3, 6), timeouts=Timeouts(5.0, 0.3, 5.0))
    assert [record.status for record in result.records] == [RequestStatus.TIMED_OUT] * 6


def test_a_dead_address_stops_the_load_early_with_the_first_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    records: list[RequestRecord] = []
    with pytest.raises(MeasurementError) as caught:
        run_closed_loop(Target(f"http://127.0.0.1:{port}"), workload(1, 1000), writer=records.append)
    assert "every one of the first 5 requests" in str(caught.value)
    assert "connection refused" in str(caught.value)
    assert len(records) == 5


@pytest.mark.parametrize(
    ("case", "said"),
    [("html", "text/html"), ("not_found", "does not exist"), ("silent", "no byte came"), ("reset_at_once", "reset")],
)
def test_a_server_that_cannot_answer_stops_a_single_request_load_too(server: TruthServer, case: str, said: str) -> None:
    with pytest.raises(MeasurementError, match=rf"^the request to http://127\.0\.0\.1:.*{said}"):
        run_closed_loop(Target(server.url(case)), workload(4, 1), timeouts=Timeouts(5.0, 0.3, 5.0))


def test_a_server_that_dies_later_keeps_every_record_and_does_not_raise() -> None:
    with TruthServer(dies_after=6) as mortal:
        result = run_closed_loop(Target(mortal.url("steady")), workload(1, 10), timeouts=QUICK)
    assert [record.status for record in result.records] == [RequestStatus.COMPLETED] * 6 + [RequestStatus.FAILED] * 4
    assert summarise(result.records).requests.failed == 4


def test_refused_fields_are_left_out_after_the_warm_up_and_named(server: TruthServer) -> None:
    target = Target(server.url("refuses_extras"), extra_body={"ignore_eos": True, "cache_prompt": False, "top_k": 1})
    warm = run_closed_loop(target, workload(2, 2), stage=Stage.WARMUP, timeouts=QUICK)
    assert sorted(warm.dropped_fields) == ["cache_prompt", "ignore_eos"]
    assert dict(warm.target.extra_body) == {"top_k": 1}
    assert [record.status for record in warm.records].count(RequestStatus.COMPLETED) == 2
    assert len({record.request_id for record in warm.records}) == len(warm.records)
    again = run_closed_loop(warm.target, workload(1, 2), timeouts=QUICK)
    assert [record.status for record in again.records] == [RequestStatus.COMPLETED] * 2


def test_a_server_without_stream_options_is_asked_without_them(server: TruthServer) -> None:
    warm = run_closed_loop(Target(server.url("refuses_usage")), workload(1, 1), stage=Stage.WARMUP, timeouts=QUICK)
    assert warm.dropped_fields == ("stream_options",)
    assert not warm.target.asks_usage
    assert warm.records[-1].output_tokens is None


def test_refused_fields_are_not_left_out_while_measuring(server: TruthServer) -> None:
    with pytest.raises(MeasurementError, match="HTTP 422: ignore_eos: Extra inputs are not permitted"):
        run_closed_loop(Target(server.url("refuses_extras"), extra_body={"ignore_eos": True}), workload(1, 2))


@pytest.mark.parametrize(
    ("http_status", "said", "refused"),
    [
        (400, "Unrecognized request argument supplied: cache_prompt", ("cache_prompt",)),
        (422, "Extra inputs are not permitted", ("cache_prompt", "stream_options")),
        (400, "stream_options is only allowed when stream is set", ("stream_options",)),
        (400, "request (5001 tokens) exceeds the available context size", ()),
        (404, "unknown model", ()),
        (400, None, ()),
    ],
)
def test_a_refusal_drops_only_what_it_is_about(http_status: int, said: str | None, refused: tuple[str, ...]) -> None:
    rejected = RequestRecord(
        "r", Origin.MEASURED, Stage.WARMUP, RequestStatus.REJECTED, 0.0, 0.0, 1.0, http_status=http_status, error=said
    )
    target = Target("http://host", extra_body={"cache_prompt": False})
    assert find_refused_fields(target, rejected) == refused
    assert find_refused_fields(target, replace(rejected, status=RequestStatus.FAILED)) == ()


def test_a_writer_that_fails_stops_the_load_with_its_own_error(server: TruthServer) -> None:
    def full(record: RequestRecord) -> None:
        raise StorageError("could not write: no space left on device")

    with pytest.raises(StorageError, match="no space left"):
        run_closed_loop(Target(server.url("steady")), workload(3, 50), writer=full, timeouts=QUICK)


def test_a_cancelled_load_writes_the_requests_in_flight_and_passes_on(server: TruthServer) -> None:
    records: list[RequestRecord] = []
    options = LoadOptions(writer=records.append, timeouts=QUICK)

    async def cancel_soon() -> None:
        task = asyncio.create_task(send_load(Target(server.url("slow")), workload(3, 50), options))
        while len(records) < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_soon())
    assert [record.status for record in records].count(RequestStatus.CANCELLED) == 3


def test_the_client_reports_how_well_it_kept_up(server: TruthServer) -> None:
    result = run_closed_loop(Target(server.url("slow")), workload(2, 4), timeouts=QUICK)
    delays_s = [record.sent_s - record.planned_s for record in result.records]
    assert result.health.send_delay_p99_s is not None
    assert min(delays_s) <= result.health.send_delay_p99_s <= max(delays_s)
    assert result.health.loop_lag_p99_s is not None
    assert result.health.loop_lag_p99_s >= 0


def test_a_blocked_event_loop_shows_as_lag(server: TruthServer) -> None:
    def slow_writer(record: RequestRecord) -> None:
        time.sleep(0.1)

    result = run_closed_loop(Target(server.url("steady")), workload(1, 3), writer=slow_writer, timeouts=QUICK)
    assert result.health.loop_lag_p99_s is not None
    assert result.health.loop_lag_p99_s >= 0.05
    assert result.health.send_delay_p99_s is not None
    assert result.health.send_delay_p99_s >= 0.09


def test_metrics_of_a_load_agree_with_what_the_server_did(server: TruthServer) -> None:
    target = Target(server.url("steady"), endpoint=Endpoint.CHAT, api_key=ApiKey("sk-1"))
    metrics = summarise(run_closed_loop(target, workload(2, 6), timeouts=QUICK).records)
    assert (metrics.requests.sent, metrics.requests.completed) == (6, 6)
    assert metrics.itl_s is not None
    assert metrics.itl_s.count == 6 * 4  # six requests of five tokens
    assert metrics.token_sources == {"server_usage": 6}
    assert metrics.output_tokens_per_s is not None
    assert metrics.output_tokens_per_s == pytest.approx(30 / metrics.span_s)


def test_the_clients_own_floor_is_measured_and_above_zero() -> None:
    floor = measure_client_floor(num_requests=4, num_chunks=400)  # enough to stand out of a busy machine's noise
    assert floor.ttft_s > 0
    assert floor.chunk_cpu_s is not None
    assert floor.chunk_cpu_s > 0
    assert floor.num_requests == 4
