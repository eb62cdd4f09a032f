"""A window counts the tokens that arrive in it, whatever requests do at its edges."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inference_bench.metrics import output_tokens_per_s
from inference_bench.records import Origin, RequestRecord, RequestStatus, Stage, TokenCountSource
from inference_bench.token_window import steady_interval, token_window

WAIT_S, GAP_S, TOKENS = 0.5, 0.01, 50
PERIOD_S = WAIT_S + (TOKENS - 1) * GAP_S


def request(begin_s: float, tokens: int = TOKENS, wait_s: float = WAIT_S, gap_s: float = GAP_S) -> RequestRecord:
    times_s = tuple(begin_s + wait_s + gap_s * number for number in range(tokens))
    return RequestRecord(
        request_id=f"r{begin_s}",
        origin=Origin.MEASURED,
        stage=Stage.MEASURE,
        status=RequestStatus.COMPLETED,
        planned_s=begin_s,
        sent_s=begin_s,
        end_s=times_s[-1] if times_s else begin_s + wait_s,
        chunk_times_s=times_s,
        output_tokens=tokens,
        token_count_source=TokenCountSource.SERVER_USAGE,
    )


def closed_loop(num_slots: int, num_each: int, ramp_s: float) -> list[RequestRecord]:
    return [
        request(slot * ramp_s / num_slots + number * PERIOD_S)
        for slot in range(num_slots)
        for number in range(num_each)
    ]


@pytest.mark.parametrize("ramp_s", [0.99, 5.0, 12.0])
def test_steady_throughput_is_within_one_percent_of_the_truth_with_ramp_and_drain_present(ramp_s: float) -> None:
    records = closed_loop(16, 25, ramp_s)
    truth = 16 * TOKENS / PERIOD_S
    interval = steady_interval(records, concurrency=16)
    assert interval is not None
    begin_s = max(interval[0], ramp_s)
    first_end_s = 25 * PERIOD_S  # the first slot has no request left
    window = token_window(records, begin_s, first_end_s)
    assert window is not None
    assert window.output_tokens_per_s == pytest.approx(truth, rel=0.01)
    assert window.mean_concurrency == pytest.approx(16, rel=0.001)
    assert window.requests_per_s == pytest.approx(16 / PERIOD_S, rel=0.05)
    if ramp_s > 1:  # what whole requests over the whole run say is off by the ramp and the drain
        whole = output_tokens_per_s(records)
        assert whole is not None
        assert whole < 0.93 * truth


def test_a_loop_of_requests_in_turn_is_steady_from_its_full_slots_to_its_last_send() -> None:
    records = closed_loop(4, 5, ramp_s=0.2)
    assert steady_interval(records, concurrency=4) == pytest.approx((0.15 + WAIT_S, 0.15 + 4 * PERIOD_S))
    assert steady_interval(records) == pytest.approx((0.0, 0.15 + 4 * PERIOD_S))
    assert steady_interval([]) is None
    assert steady_interval([request(1.0)]) is None


def test_tokens_gaps_and_first_tokens_belong_to_the_moment_they_arrive() -> None:
    records = [request(0.0, tokens=4, wait_s=1.0, gap_s=1.0), request(0.5, tokens=2, wait_s=2.0, gap_s=0.25)]
    # arrivals: 1 2 3 4 and 2.5 2.75
    window = token_window(records, 2.0, 3.0)
    assert window is not None
    assert (window.num_tokens, window.output_tokens_per_s, window.estimated_fraction) == (3.0, 3.0, 0.0)
    assert window.requests_per_s == 1.0  # the second ends at 2.75
    assert window.mean_concurrency == pytest.approx(1.75)
    assert window.itl_s is not None
    assert window.chunk_gap_s is not None
    assert (window.itl_s.count, window.itl_s.p50) == (2, pytest.approx(0.625))  # gaps of 1 s and 0.25 s
    assert window.ttft_s is not None
    assert (window.ttft_s.count, window.ttft_s.p50) == (1, 2.0)


def test_the_end_of_a_window_is_outside_and_no_length_is_no_window() -> None:
    records = [request(0.0, tokens=3, wait_s=1.0, gap_s=1.0)]
    whole = token_window(records, 1.0, 3.0)
    assert whole is not None
    assert whole.num_tokens == 2.0
    assert token_window(records, 2.0, 2.0) is None


def test_chunks_of_several_tokens_count_as_the_server_says_or_are_shared_out() -> None:
    said = replace(request(0.0, tokens=3, wait_s=1.0, gap_s=1.0), output_tokens=9, chunk_tokens=(1, 3, 5))
    window = token_window([said], 1.5, 10.0)
    assert window is not None
    assert (window.num_tokens, window.estimated_fraction) == (8.0, 0.0)
    unsaid = replace(said, chunk_tokens=())
    window = token_window([unsaid], 1.5, 10.0)
    assert window is not None
    assert (window.num_tokens, window.estimated_fraction) == (6.0, 1.0)
    assert window.itl_s is None


def test_a_request_that_was_cut_off_counts_by_the_tokens_a_chunk_of_the_others() -> None:
    done = replace(request(0.0, tokens=4, wait_s=1.0, gap_s=1.0), output_tokens=8)
    cut = replace(
        request(0.0, tokens=3, wait_s=1.0, gap_s=1.0),
        status=RequestStatus.CANCELLED,
        output_tokens=None,
        token_count_source=TokenCountSource.UNKNOWN,
    )
    window = token_window([done, cut], 0.0, 10.0)
    assert window is not None
    assert window.num_tokens == 14.0
    assert window.requests_per_s == 0.1
    nobody_counted = token_window([cut], 0.0, 10.0)
    assert nobody_counted is not None
    assert (nobody_counted.num_tokens, nobody_counted.output_tokens_per_s) == (None, None)


def test_requests_of_every_stage_fill_the_window() -> None:
    records = [replace(request(0.0), stage=Stage.WARMUP), request(0.0), replace(request(0.0), stage=Stage.COOLDOWN)]
    window = token_window(records, 0.0, 2.0)
    assert window is not None
    assert window.num_tokens == 3 * TOKENS
