"""What the client says about itself, worked by hand: doubts about stamps, what they move, pauses, old run folders."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from inference_bench.measure.client_health import (
    ClientHealth,
    ErrorBound,
    ProcessWatch,
    health_values,
    judge_client,
)
from inference_bench.measure.error_bounds import bound_errors
from inference_bench.measure.http1 import Part
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.receipts import Doubt, Receipt, Receipts
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage


def record(times_s: tuple[float, ...], request_id: str = "r", output_tokens: int | None = None) -> RequestRecord:
    return RequestRecord(
        request_id,
        Origin.MEASURED,
        Stage.MEASURE,
        RequestStatus.COMPLETED,
        0.0,
        0.001,
        times_s[-1],
        times_s,
        output_tokens=output_tokens,
    )


def part(time_s: float, read_s: float, drained_s: float, is_kernel: bool = True, is_whole: bool = True) -> Part:
    return Part(time_s, b"", read_s, drained_s, is_kernel, is_whole)


def chunks_in_doubt(receipt: Receipt) -> list[tuple[int, float, float]]:
    return [
        (chunk, doubt.drained_s, doubt.read_s) for doubt in receipt.doubts() for chunk in range(doubt.begin, doubt.end)
    ]


def receipts_of(receipt: Receipt, request_id: str = "r") -> Receipts:
    receipts = Receipts()
    receipts.add(request_id, receipt)
    return receipts


def test_of_chunks_with_one_stamp_only_the_last_is_known_exactly() -> None:
    receipt = Receipt()
    receipt.note(part(1.0, 1.01, 0.5), 1)
    for num_chunks in (2, 3, 4):  # three chunks of one read, a part each
        receipt.note(part(2.0, 2.03, 1.01), num_chunks)
    receipt.note(part(3.0, 3.02, 2.03), 4)  # a part that completes no chunk
    assert chunks_in_doubt(receipt) == [(1, 1.01, 2.03), (2, 1.01, 2.03)]
    assert (receipt.num_chunks, receipt.num_shared, receipt.num_user) == (4, 2, 0)
    assert list(receipt.read_delays_s) == pytest.approx([0.01, 0.03, 0.02])


def test_a_read_that_ends_within_an_event_leaves_its_chunks_in_doubt() -> None:
    receipt = Receipt()
    receipt.note(part(1.0, 1.01, 0.5, is_whole=False), 2)
    assert list(receipt.doubts()) == [Doubt(0, 2, 0.5, 1.01)]


def test_a_chunk_that_is_read_with_what_follows_it_is_counted() -> None:
    receipt, receipts = Receipt(), Receipts()
    receipt.note(part(1.0, 1.01, 0.5), 1)
    receipt.note(part(2.0, 2.01, 1.01), 2, is_last=False)
    receipt.note(part(3.0, 3.01, 2.01), 2, is_last=False)  # what follows comes alone
    receipts.add("a", receipt)
    assert receipts.num_closing == 1


def test_chunks_the_kernel_did_not_stamp_are_in_doubt() -> None:
    receipt = Receipt()
    receipt.note(part(1.01, 1.01, 0.5, is_kernel=False), 1)
    receipt.note(part(2.0, 2.01, 1.01), 2)
    assert list(receipt.doubts()) == [Doubt(0, 1, 0.5, 1.01)]
    assert (receipt.num_user, len(receipt.read_delays_s)) == (1, 1)


def test_without_doubts_no_percentile_moves() -> None:
    receipt = Receipt()
    receipt.note(part(1.0, 1.2, 0.5), 1)
    receipt.note(part(2.0, 2.2, 1.2), 2)
    bounds = bound_errors([record((1.0, 2.0))], receipts_of(receipt), 0.2)
    assert {bound.metric for bound in bounds} == {"ttft_s", "e2e_s", "chunk_gap_s"}
    assert all(bound.bound_s == 0 and bound.is_valid for bound in bounds)


@pytest.mark.parametrize(
    ("lateness_s", "hidden_s"),
    [
        (0.05, 0.03),  # the client reads at most 50 ms late: 2.02 - 0.05 = 1.97, so 2.00 is late by at most 0.03
        (10.0, 0.9),  # nothing had come at 1.1, when the read before left nothing
        (0.0, 0.0),
    ],
)
def test_what_a_shared_stamp_hides_ends_where_the_client_would_have_read(lateness_s: float, hidden_s: float) -> None:
    receipt = Receipt()
    receipt.note(part(1.0, 1.1, 0.5), 1)
    receipt.note(part(2.0, 2.02, 1.1), 3)
    bounds = {
        (bound.metric, bound.percentile): bound
        for bound in bound_errors([record((1.0, 2.0, 2.0), output_tokens=3)], receipts_of(receipt), lateness_s)
    }
    assert bounds["ttft_s", "p50"].bound_s == 0
    assert bounds["e2e_s", "p50"].bound_s == 0  # the last chunk of the read has its own stamp
    assert bounds["tpot_s", "p50"].bound_s == 0
    # gaps 0 and 1; the chunk between may have come hidden_s earlier: the ends are (0, 1 - h) and (h, 1)
    assert bounds["itl_s", "p99"].bound_s == pytest.approx(0.98 * hidden_s, rel=0.03)
    assert bounds["itl_s", "p50"].bound_s == pytest.approx(hidden_s / 2)


def test_a_bound_above_two_percent_makes_the_run_invalid_in_a_sentence() -> None:
    fine = ErrorBound("ttft_s", "p50", 1.0, 0.02)
    off = ErrorBound("itl_s", "p99", 0.010, 0.0005)
    worse = ErrorBound("chunk_gap_s", "p99", 0.010, 0.001)
    zero = ErrorBound("itl_s", "p50", 0.0, 0.001)
    assert [bound.is_valid for bound in (fine, off, worse, zero)] == [True, False, False, True]
    assert ClientHealth(None, None, error_bounds=(fine, zero)).invalid_because is None
    health = ClientHealth(None, None, error_bounds=(fine, off, worse, zero))
    assert health.invalid_because == (
        "invalid: this client may have moved the p99 of chunk gap (10.0 ms) by 1.00 ms, more than 2 %, and 1 more percentile"
    )
    values = health_values(health)
    assert (values["valid"], values["invalid_because"]) == (False, health.invalid_because)
    assert json.loads(json.dumps(values))["gc"] == {"count": 0, "longest_s": 0.0, "total_s": 0.0}


def test_a_run_with_user_stamps_is_as_uncertain_as_the_loop_is_late() -> None:
    receipt = Receipt()
    receipt.note(part(1.0, 1.0, 0.5, is_kernel=False), 1)
    receipt.note(part(2.0, 2.0, 1.0, is_kernel=False), 2)
    with ProcessWatch() as watch:
        pass
    health = judge_client([record((1.0, 2.0))], receipts_of(receipt), [0.0415] * 50, watch)
    assert health.stamp_source is StampSource.USER
    assert health.read_delay_p99_s is None
    bound = next(bound for bound in health.error_bounds if bound.metric == "ttft_s")
    assert bound.bound_s == pytest.approx(0.0405)  # less the millisecond by which timers are rounded up
    assert health.invalid_because is not None


def test_a_run_without_a_chunk_has_no_stamps_to_judge() -> None:
    with ProcessWatch() as watch:
        pass
    failed = replace(record((1.0,)), status=RequestStatus.FAILED, chunk_times_s=())
    health = judge_client([failed], receipts_of(Receipt()), [], watch)
    assert (health.censored_fraction, health.user_stamped_fraction, health.error_bounds) == (None, None, ())
    assert health.invalid_because is None


def test_garbage_collections_and_processor_time_are_watched_while_it_lasts() -> None:
    num_callbacks = len(gc.callbacks)
    with ProcessWatch() as watch:
        gc.collect()
        gc.collect()
        begin_s = time.process_time()
        while time.process_time() - begin_s < 0.02:
            pass
        pauses = watch.gc_pauses
    gc.collect()
    assert pauses.count >= 2
    assert 0 < pauses.longest_s <= pauses.total_s
    assert watch.cpu_share is not None
    assert 0.05 < watch.cpu_share < 1.5
    assert len(gc.callbacks) == num_callbacks


def test_python_does_not_collect_by_itself_while_a_load_runs_and_does_again_after_it() -> None:
    assert gc.isenabled()
    num_frozen = gc.get_freeze_count()
    with ProcessWatch() as watch:
        assert not gc.isenabled()
        assert gc.get_freeze_count() > num_frozen
        rings = [list[object]() for _ in range(100_000)]
        for ring in rings:
            ring.append(ring)
        del rings
        pauses = watch.gc_pauses
    assert pauses.count == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    gc.collect()


def test_a_program_that_has_switched_collection_off_finds_it_off() -> None:
    gc.disable()
    try:
        with ProcessWatch():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_watch_ends_with_a_run_that_fails() -> None:
    num_callbacks = len(gc.callbacks)

    async def fail() -> None:
        with ProcessWatch():
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        asyncio.run(fail())
    assert len(gc.callbacks) == num_callbacks


def test_a_run_folder_from_before_there_were_stamps_still_loads(tmp_path: Path) -> None:
    from inference_bench.measure.store import read_records

    (tmp_path / "meta.json").write_text('{"schema_version": 1, "name": "load"}', encoding="utf-8")
    (tmp_path / "requests.jsonl").write_text(
        '{"request_id":"measure-00001","origin":"measured","stage":"measure","status":"completed","planned_s":0.0,'
        '"sent_s":0.001,"end_s":0.05,"chunk_times_s":[0.02,0.04],"prompt_tokens":3,"cached_prompt_tokens":null,'
        '"output_tokens":2,"requested_output_tokens":2,"token_count_source":"server_usage","finish_reason":"length",'
        '"http_status":200,"error":null,"group":"","server_timings":null}\n',
        encoding="utf-8",
    )
    (old,) = read_records(tmp_path).records
    assert old.chunk_times_s == (0.02, 0.04)
