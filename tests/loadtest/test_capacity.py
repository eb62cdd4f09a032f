"""The capacity of a real server: what is good, what is growing, and a server with a queue of known capacity."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference_bench.errors import MeasurementError, RequestError
from inference_bench.loadtest.capacity import (
    Limits,
    LoadTrials,
    Question,
    find_load_capacity,
    is_good,
    is_growing,
)
from inference_bench.loadtest.capacity_search import Answer, CapacityFound, SearchPlan, Stop, Trial, search_capacity
from inference_bench.loadtest.shards_merge import ShardedResult
from inference_bench.measure.client_health import ClientHealth
from inference_bench.measure.load import LoadOptions, LoadResult
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.store import RunFolder, read_records
from inference_bench.measure.target import Target
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource
from inference_bench.report.capacity_load_report import capacity_found_json, capacity_found_text
from inference_bench.workload import Fixed, OpenLoop, Poisson, RequestShape, Workload, closed_loop, generate

from .queue_model import md1_capacity
from .queue_server import queue_server

SERVICE_S = 0.005
LIMIT = 10.0


def workload_of(count: int, seed: int) -> Workload:
    return generate(Poisson(1.0), Fixed(1), Fixed(1), count, seed)


def record(planned_s: float = 0.0, chunks_s: tuple[float, ...] = (0.5, 0.6, 0.7), **more: Any) -> RequestRecord:
    values: dict[str, Any] = {
        "request_id": f"r{planned_s}", "origin": Origin.MEASURED, "stage": Stage.MEASURE, "status": RequestStatus.COMPLETED,
        "planned_s": planned_s, "sent_s": planned_s, "end_s": planned_s + chunks_s[-1] if chunks_s else planned_s,
        "chunk_times_s": tuple(planned_s + time_s for time_s in chunks_s), "output_tokens": len(chunks_s),
        "token_count_source": TokenCountSource.SERVER_USAGE,
    }  # fmt: skip
    return RequestRecord(**(values | more))


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        (Limits(ttft_p99_s=0.5), True),
        (Limits(ttft_p99_s=0.49), False),
        (Limits(e2e_p99_s=0.71), True),
        (Limits(e2e_p99_s=0.69), False),
        (Limits(itl_p99_s=0.11), True),
        (Limits(itl_p99_s=0.09), False),
        (Limits(tpot_p99_s=0.11), True),
        (Limits(tpot_p99_s=0.09), False),
        (Limits(ttft_p99_s=1.0, itl_p99_s=0.09), False),
    ],
)
def test_a_request_is_good_when_it_keeps_every_objective(limits: Limits, good: bool) -> None:
    assert is_good(record(), limits, 0.99) is good


@pytest.mark.parametrize("status", [status for status in RequestStatus if status is not RequestStatus.COMPLETED])
def test_a_request_that_did_not_complete_is_a_miss_however_fast(status: RequestStatus) -> None:
    assert not is_good(record(status=status), Limits(ttft_p99_s=10.0), 0.99)
    assert not is_good(record(chunks_s=()), Limits(ttft_p99_s=10.0), 0.99)


def test_one_long_pause_in_a_hundred_and_more_is_forgiven_at_99_percent() -> None:
    times_s = [0.01 * number for number in range(150)]
    times_s[100:] = [time_s + 5.0 for time_s in times_s[100:]]
    assert is_good(record(chunks_s=tuple(times_s)), Limits(itl_p99_s=0.1), 0.99)
    assert not is_good(record(chunks_s=tuple(times_s)), Limits(itl_p99_s=0.1), 0.999)


def served(rate: float, service_s: float, count: int = 400) -> list[RequestRecord]:
    """What one clerk makes of evenly spaced requests."""
    records, free_s = [], 0.0
    for number in range(count):
        planned_s = number / rate
        free_s = max(planned_s, free_s) + service_s
        records.append(record(planned_s, (free_s - planned_s,)))
    return records


def test_a_backlog_grows_above_the_service_rate_and_not_below() -> None:
    assert is_growing(served(12.0, 0.1, count=2000))
    assert not is_growing(served(9.9, 0.1))
    assert not is_growing(served(12.0, 0.1, count=10))


class FakeServer:
    """Answers as `served` does, without a network; `slow` sends late, as a client at its limit would."""

    def __init__(self, service_s: float, slow: float = 1.0) -> None:
        self.service_s, self.slow = service_s, slow
        self.asked: list[tuple[Workload, LoadOptions]] = []

    def __call__(self, target: Target, workload: Workload, options: LoadOptions) -> LoadResult:
        self.asked.append((workload, options))
        arrival, free_s, records = workload.arrival, 0.0, []
        times_s = list(arrival.times_s) if isinstance(arrival, OpenLoop) else [0.0] * len(workload)
        last_s = times_s[-1] - options.cooldown_s
        for planned_s in times_s:
            free_s = max(planned_s, free_s) + self.service_s
            is_warm, is_cold = planned_s < options.warmup_s, planned_s >= last_s
            stage = Stage.WARMUP if is_warm else Stage.COOLDOWN if is_cold and options.cooldown_s else Stage.MEASURE
            made = record(planned_s, (free_s - planned_s,), stage=stage, sent_s=planned_s * self.slow)
            records.append(made)
            if options.writer is not None:
                options.writer(made)
        return LoadResult(tuple(records), ClientHealth(None, None), target)


def question(limit_s: float, **plan: Any) -> Question:
    return Question(Target("http://127.0.0.1:1"), workload_of, Limits(ttft_p99_s=limit_s), SearchPlan(**plan))


def test_a_run_has_its_ends_cut_off_a_group_of_its_own_and_the_schedule_of_its_seed() -> None:
    server, written = FakeServer(0.001), list[RequestRecord]()
    asked = question(0.5, share=0.9)
    trials = LoadTrials(asked, LoadOptions(writer=written.append), server)
    trial = trials.run(20.0, 200, seed=4)
    trials.run(10.0, 200, seed=4)
    (first, options), (second, later) = server.asked
    assert (options.group, later.group) == ("trial-001", "trial-002")
    assert options.warmup_s == options.cooldown_s == trials.settle_s == 0.5
    assert trial.num_sent == len(first) == 200 + 2 * 10
    assert 180 <= len(trial.misses) <= 220
    assert len(written) == len(first) + len(second)
    assert isinstance(first.arrival, OpenLoop)
    assert isinstance(second.arrival, OpenLoop)
    assert first.arrival.nominal_rate == 20.0
    ratios = [slow / fast for slow, fast in zip(second.arrival.times_s, first.arrival.times_s, strict=False)]
    assert all(ratio == pytest.approx(2.0) for ratio in ratios)


def test_a_client_that_sends_late_is_not_taken_for_a_slow_server() -> None:
    trials = LoadTrials(question(0.5, share=0.9), LoadOptions(), FakeServer(0.001, slow=1.2))
    trial = trials.run(20.0, 200, seed=0)
    assert trial.client_limit is not None
    assert "this client sent" in trial.client_limit
    assert not trial.is_growing


def test_a_search_begins_at_half_of_what_a_closed_loop_is_answered() -> None:
    server = FakeServer(0.01)
    assert LoadTrials(question(0.5), LoadOptions(), server).guess_rate() == pytest.approx(50.0, rel=0.1)


@pytest.mark.parametrize(("most", "first_rate"), [(100_000, 50.0), (300, 300 / (3 * 5.0))])
def test_a_search_that_may_send_little_begins_at_a_rate_it_can_afford(most: int, first_rate: float) -> None:
    rates: list[float] = []

    def noted(target: Target, workload: Workload, options: LoadOptions) -> LoadResult:
        if isinstance(workload.arrival, OpenLoop):
            rates.append(workload.arrival.nominal_rate or 0.0)
        return FakeServer(0.01)(target, workload, options)

    asked = question(0.5, share=0.9, max_requests=most)
    find_load_capacity(asked, LoadOptions(), send=noted)
    assert rates[0] == pytest.approx(first_rate, rel=0.1)


def test_a_server_on_which_nothing_completes_has_no_capacity() -> None:
    def broken(target: Target, workload: Workload, options: LoadOptions) -> LoadResult:
        return replace(FakeServer(0.01)(target, workload, options), records=(record(status=RequestStatus.FAILED),))

    with pytest.raises(MeasurementError, match="there is no capacity to find"):
        find_load_capacity(question(0.5), LoadOptions(), send=broken)


def test_more_in_flight_than_the_client_holds_is_a_failure_of_the_rate_not_of_the_search() -> None:
    server = FakeServer(0.01)

    def full(target: Target, workload: Workload, options: LoadOptions) -> LoadResult:
        result = server(target, workload, options)
        if isinstance(workload.arrival, OpenLoop) and (workload.arrival.nominal_rate or 0) > 60:
            raise MeasurementError("as many requests are in flight as this client can hold")
        return result

    found = find_load_capacity(question(0.5, share=0.9, half_width=0.1), LoadOptions(), send=full)
    assert found.high_rate is not None
    assert found.high_rate > 60
    assert found.low_rate is not None
    assert found.low_rate <= 60


def test_a_closed_loop_has_no_rate_to_look_for() -> None:
    def loop(count: int, seed: int) -> Workload:
        return closed_loop("loop", [RequestShape(1, 1)], 1, count, seed)

    asked = replace(question(0.5), workload_of=loop)
    with pytest.raises(RequestError, match="arrivals of their own"):
        find_load_capacity(asked, LoadOptions(), send=FakeServer(0.01))


def found_with(answer: str) -> CapacityFound:
    plan = SearchPlan(share=0.9, least_rate=0.5, most_rate=8.0, max_requests=100 if answer == "unknown" else 100_000)
    bad = {"none_passes": 0.0, "all_pass": 1e9, "interval": 3.0, "unknown": 3.0}[answer]

    def trial(rate: float, count: int, seed: int) -> Any:
        is_missed = [index % 10 == 0 if answer == "unknown" else rate > bad for index in range(count)]
        return Trial(count, bytes(is_missed))

    return search_capacity(trial, plan)


@pytest.mark.parametrize(
    ("answer", "words", "is_known"),
    [
        ("interval", "lies between", True),
        ("all_pass", "Every rate up to 8.000 requests/s keeps", True),
        ("none_passes", "No rate keeps", False),
        ("unknown", "was not found in", False),
    ],
)
def test_every_answer_has_its_sentence_and_its_keys(answer: str, words: str, is_known: bool) -> None:
    capacity, limits = found_with(answer), Limits(ttft_p99_s=0.5)
    assert capacity.answer == answer
    assert (capacity.low_rate is not None) is is_known
    text = capacity_found_text(capacity, limits)
    assert words in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100
    found = capacity_found_json(capacity, limits)
    assert found["answer"] == answer
    assert found["interval"]["low_rate"] == capacity.low_rate
    assert found["objectives"]["ttft_p99_s"] == 0.5
    assert found["trials"]
    assert {"rate", "num_requests", "num_good", "verdict"} <= found["trials"][0].keys()


def test_the_capacity_of_a_server_with_a_queue_is_found_over_http(tmp_path: Path) -> None:
    """A wide interval, and a limit well above what a busy machine adds: the search itself is tested elsewhere."""
    truth = md1_capacity(LIMIT, 0.8) / SERVICE_S
    folder = RunFolder.create(tmp_path, "load")
    limits = Limits(ttft_p99_s=(LIMIT + 1) * SERVICE_S)
    plan = SearchPlan(share=0.8, half_width=0.3, max_requests=5_000, most_rate=1000.0)
    with queue_server(SERVICE_S) as url, folder.open_writer() as writer:
        options = LoadOptions(prompts=PromptMaker(1), writer=writer.append)
        found = find_load_capacity(Question(Target(url, "queue"), workload_of, limits, plan), options)
    assert found.low_rate is not None or found.high_rate is not None
    assert found.low_rate is None or found.low_rate < truth * 1.05
    assert found.high_rate is None or found.high_rate > truth * 0.4  # a machine that others use answers late
    assert found.answer is not Answer.ALL_PASS or found.client_limit is not None
    groups = {each.group for each in read_records(folder.path).records}
    assert {"probe", "trial-001", "trial-002"} <= groups


def test_a_load_of_several_processes_is_one_a_search_can_use() -> None:
    assert issubclass(ShardedResult, LoadResult)


@pytest.mark.parametrize(("max_s", "num_runs"), [(5.9, 0), (6.6, 1)])
def test_a_run_that_would_last_longer_than_what_is_left_is_not_begun(max_s: float, num_runs: int) -> None:
    server, now_s = FakeServer(0.001), [0.0]

    def send(target: Target, workload: Workload, options: LoadOptions) -> LoadResult:
        now_s[0] += workload.arrival.times_s[-1] if isinstance(workload.arrival, OpenLoop) else 0.0
        return server(target, workload, options)

    asked = replace(question(0.5, share=0.9, first_rate=20.0), guesses_first_rate=False, max_s=max_s)
    found = find_load_capacity(asked, LoadOptions(clock=lambda: now_s[0]), send=send)
    assert len(server.asked) == num_runs  # 5 s of judged requests, half a second before and after them
    assert found.stopped_by is Stop.TIME
