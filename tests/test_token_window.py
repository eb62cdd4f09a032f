"""A window counts the tokens that arrive in it, whatever requests do at its edges."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from inference_bench.metrics import Objective
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


def pooled_loop(num_slots: int, lengths: list[int], ramp_s: float = 0.0) -> list[RequestRecord]:
    """Slots that share one row of requests, as a real closed loop has them."""
    free_s, records = [slot * ramp_s / num_slots for slot in range(num_slots)], []
    for tokens in lengths:
        slot = min(range(num_slots), key=free_s.__getitem__)
        records.append(request(free_s[slot], tokens))
        free_s[slot] = records[-1].end_s
    return records


@pytest.mark.parametrize(("num_slots", "num_each"), [(4, 8), (1, 5), (3, 7), (16, 6), (2, 40)])
@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("ramp_s", [0.0, 0.37, 2.9])
def test_equal_requests_in_a_closed_loop_give_the_true_throughput_however_they_are_spread(
    num_slots: int, num_each: int, extra: int, ramp_s: float
) -> None:
    spread = 4 if ramp_s > 1 else 0  # a ramp uses up some requests before all slots are busy
    records = pooled_loop(num_slots, [TOKENS] * (num_slots * (num_each + spread) + extra), ramp_s)
    interval = steady_interval(records, num_slots)
    assert interval is not None
    window = token_window(records, *interval)
    assert window is not None
    assert window.output_tokens_per_s == pytest.approx(num_slots * TOKENS / PERIOD_S, rel=0.01)
    assert window.requests_per_s == pytest.approx(num_slots / PERIOD_S, rel=0.01)
    assert window.mean_concurrency == pytest.approx(num_slots, rel=0.01)


def test_requests_of_different_lengths_bias_the_window_by_less_than_a_percent_on_average() -> None:
    draw, ratios = Random(1), list[float]()
    for _ in range(200):
        records = pooled_loop(4, [draw.randrange(5, 95) for _ in range(48)])
        interval = steady_interval(records, 4)
        assert interval is not None
        window = token_window(records, *interval)
        assert window is not None
        assert window.output_tokens_per_s is not None
        ratios.append(window.output_tokens_per_s)
    truth = 4 * 49.5 / (WAIT_S + 48.5 * GAP_S)  # mean tokens of a request over its mean time
    assert sum(ratios) / len(ratios) == pytest.approx(truth, rel=0.01)


@pytest.mark.parametrize(("num_slots", "num_requests"), [(8, 8), (4, 16), (36, 8), (1, 4), (1, 1)])
def test_a_closed_loop_that_is_too_short_or_never_full_has_no_steady_window(num_slots: int, num_requests: int) -> None:
    assert steady_interval(pooled_loop(num_slots, [TOKENS] * num_requests), num_slots) is None


def test_an_open_loop_that_is_shorter_than_a_few_requests_has_no_steady_window() -> None:
    assert steady_interval([request(0.03 * number) for number in range(5)]) is None
    assert steady_interval([request(1.0 * number) for number in range(5)]) == (0.0, 4.0)


def test_what_was_good_counts_in_the_window_it_ended_in() -> None:
    records = [request(float(number)) for number in range(10)]
    window = token_window(records, 2.0, 6.0, Objective(max_ttft_s=1.0))
    assert window is not None
    assert window.good_requests_per_s == window.requests_per_s == 1.0
    strict = token_window(records, 2.0, 6.0, Objective(max_ttft_s=0.1))
    assert strict is not None
    assert (strict.good_requests_per_s, strict.requests_per_s) == (0.0, 1.0)


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
