"""Metrics against figures worked out by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench import stats
from inference_bench.decode_window import steady_decode_window
from inference_bench.errors import TooFewSamplesError
from inference_bench.metrics import (
    Objective,
    chunk_gaps_s,
    e2e_s,
    has_one_token_per_chunk,
    longest_gap_s,
    output_tokens_per_s,
    percentiles,
    pooled_gaps_s,
    send_delay_s,
    summarise,
    time_to_close_s,
    tpot_s,
    ttft_s,
)
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource


def request(*chunk_times_s: float, tokens: int | None = None, **changes: object) -> RequestRecord:
    """A completed request planned at 1 s, sent at 1.25 s, over 0.5 s after its last chunk."""
    record = RequestRecord(
        request_id="r",
        origin=Origin.MEASURED,
        stage=Stage.MEASURE,
        status=RequestStatus.COMPLETED,
        planned_s=1.0,
        sent_s=1.25,
        end_s=(chunk_times_s[-1] if chunk_times_s else 1.5) + 0.5,
        chunk_times_s=chunk_times_s,
        prompt_tokens=100,
        output_tokens=tokens,
        token_count_source=TokenCountSource.UNKNOWN if tokens is None else TokenCountSource.SERVER_USAGE,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def test_latencies_count_from_the_planned_send() -> None:
    record = request(2.0, 2.5, 4.0, tokens=3)
    assert (ttft_s(record), send_delay_s(record), e2e_s(record), time_to_close_s(record)) == (1.0, 0.25, 3.0, 3.5)
    assert chunk_gaps_s(record) == (0.5, 1.5)
    assert tpot_s(record) == 1.0


def test_tpot_divides_by_the_servers_tokens_and_not_by_chunks() -> None:
    in_chunks_of_four = request(2.0, 3.0, 4.0, tokens=12)
    assert tpot_s(in_chunks_of_four) == pytest.approx(2.0 / 11)
    assert not has_one_token_per_chunk(in_chunks_of_four)


def test_tpot_leaves_out_all_tokens_of_the_first_chunk_where_they_are_known() -> None:
    # 20 tokens in five chunks of 4, 80 ms apart: 20 ms a token, where n - 1 would say 16.8
    times_s = [2.0, 2.08, 2.16, 2.24, 2.32]
    assert tpot_s(request(*times_s, tokens=20, chunk_tokens=(4,) * 5)) == pytest.approx(0.02)
    assert tpot_s(request(*times_s, tokens=20)) == pytest.approx(0.32 / 19)
    assert tpot_s(request(2.0, 3.0, tokens=4, chunk_tokens=(4, 0))) is None


def test_the_second_view_counts_failures_at_infinity_and_time_outs_beyond_the_wait() -> None:
    good = [request(2.0, 3.0, tokens=2) for _ in range(8)]
    slow = request(tokens=None, status=RequestStatus.TIMED_OUT, end_s=61.0)
    metrics = summarise([*good, slow, replace(slow, status=RequestStatus.FAILED)])
    view = metrics.all_requests.ttft_s
    assert metrics.ttft_s is not None
    assert view is not None
    assert (metrics.ttft_s.p99, view.p50.value_s, view.count) == (1.0, 1.0, 10)
    assert (view.p90.value_s, view.p90.above_s) == (None, None)  # position 8.1 of 0 to 9 touches the failure
    assert summarise([*good, slow]).all_requests.ttft_s.p99.above_s == 60.0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "record", [request(2.0, tokens=1), request(2.0, 3.0), request(2.0, tokens=5), request(tokens=5), request()]
)
def test_there_is_no_tpot_without_two_tokens_in_two_chunks(record: RequestRecord) -> None:
    assert tpot_s(record) is None


def test_without_content_there_is_no_latency_and_never_zero() -> None:
    assert (ttft_s(request()), e2e_s(request()), chunk_gaps_s(request())) == (None, None, ())
    metrics = summarise([request(tokens=0)])
    assert (metrics.ttft_s, metrics.e2e_s, metrics.tpot_s, metrics.itl_s, metrics.chunk_gap_s) == (None,) * 5
    assert metrics.requests.completed == 1


def test_every_ending_stays_in_the_count_and_only_complete_ones_in_the_latencies() -> None:
    endings = [request(2.0, tokens=1)] + [request(9.0, tokens=1, status=status) for status in RequestStatus]
    endings.append(request(99.0, tokens=1, stage=Stage.WARMUP))
    metrics = summarise(endings)
    counts = metrics.requests
    assert (counts.sent, counts.completed) == (7, 2)
    assert [counts.failed, counts.rejected, counts.timed_out, counts.truncated, counts.cancelled] == [1, 1, 1, 1, 1]
    assert metrics.ttft_s is not None
    assert (metrics.ttft_s.count, metrics.ttft_s.p50) == (2, 4.5)  # 1 s and 8 s


def test_gaps_are_called_itl_only_where_a_chunk_is_a_token() -> None:
    metrics = summarise([request(2.0, 2.5, tokens=2), request(2.0, 6.0, tokens=8), request(2.0, 3.0)])
    assert metrics.itl_s is not None
    assert metrics.chunk_gap_s is not None
    assert (metrics.itl_s.count, metrics.itl_s.p50) == (1, 0.5)
    assert (metrics.chunk_gap_s.count, metrics.chunk_gap_s.p50) == (3, 1.0)
    assert metrics.num_one_token_per_chunk == 1
    assert metrics.token_sources == {"server_usage": 2, "unknown": 1}


def test_gaps_are_pooled_and_not_averaged_per_request() -> None:
    steady, stalled = request(*range(2, 12), tokens=10), request(2.0, 3.0, 13.0, tokens=3)
    metrics = summarise([steady, stalled])
    assert metrics.itl_s is not None
    assert metrics.itl_s.count == 11  # ten gaps of 1 s and one of 10 s
    assert metrics.itl_s.p50 == 1.0
    assert metrics.itl_s.p99 == pytest.approx(1.0 + 9.0 * 0.9)  # position 9.9 of 0..10


def test_chunks_that_share_a_read_are_reported() -> None:
    assert summarise([request(2.0, 2.0, 3.0, 3.0, 4.0, tokens=5)]).shared_stamp_fraction == 0.5


def test_tokens_per_second_count_complete_requests_over_the_whole_span() -> None:
    records = [
        request(2.0, tokens=10),
        request(4.5, tokens=20, planned_s=2.0),
        request(3.0, tokens=7, status=RequestStatus.TRUNCATED, end_s=11.0),
    ]
    assert output_tokens_per_s(records) == 3.0  # 30 tokens from 1 s to 11 s


def test_tokens_per_second_are_unknown_when_one_count_is() -> None:
    assert output_tokens_per_s([request(2.0, tokens=10), request(2.0)]) is None
    assert output_tokens_per_s([request(2.0, tokens=10, status=RequestStatus.FAILED)]) is None


def test_without_a_measured_request_there_is_nothing_to_summarise() -> None:
    with pytest.raises(TooFewSamplesError):
        summarise([])
    with pytest.raises(TooFewSamplesError):
        summarise([request(2.0, stage=Stage.WARMUP)])


def test_percentiles_come_with_their_count_and_an_interval_only_when_there_are_enough() -> None:
    few = percentiles([3.0, None, 1.0])
    assert few is not None
    assert (few.p50, few.count, few.p50_interval, few.p99_interval) == (2.0, 2, None, None)
    many = percentiles(float(value) for value in range(101))
    assert many is not None
    assert (many.p50, many.p90, many.p99, many.count) == (50.0, 90.0, 99.0, 101)
    assert many.p50_interval is not None
    assert many.p50_interval.low < 50.0 < many.p50_interval.high
    assert many.p99_interval is None  # 95 % for a p99 needs several hundred samples
    assert percentiles([None]) is None


@settings(max_examples=30)
@given(times=st.lists(st.lists(st.floats(1.5, 60), min_size=1, max_size=6), min_size=1, max_size=6), seed=st.integers())
def test_the_order_of_records_does_not_matter(times: list[list[float]], seed: int) -> None:
    records = [request(*sorted(chunks), tokens=len(chunks)) for chunks in times]
    shuffled = random.Random(seed).sample(records, len(records))
    assert summarise(records) == summarise(shuffled)


def test_the_decode_window_holds_only_gaps_in_which_all_streams_decode() -> None:
    early = request(1.0, 2.0, 3.0, 4.0, 5.0, tokens=5, prompt_tokens=10)
    late = request(2.5, 3.5, 4.5, 5.5, 6.5, tokens=5, prompt_tokens=20)
    window = steady_decode_window([early, late])
    assert window is not None
    assert (window.begin_s, window.end_s, window.num_streams) == (2.5, 5.0, 2)
    # early: 3 to 4 and 4 to 5, after 3 and 4 tokens; late: 2.5 to 3.5 and 3.5 to 4.5, after 1 and 2 tokens
    assert window.gaps_s == (1.0, 1.0, 1.0, 1.0)
    assert window.mean_context_tokens == (13 + 14 + 21 + 22) / 4
    assert window.tokens_per_s == 2.0
    assert window.one_token_per_chunk


def test_one_stream_is_its_own_window() -> None:
    window = steady_decode_window([request(2.0, 3.0, 5.0, tokens=3)])
    assert window is not None
    assert (window.gaps_s, window.mean_context_tokens, window.tokens_per_s) == ((1.0, 2.0), 101.5, 2 / 3)


@pytest.mark.parametrize(
    "records",
    [
        [],
        [request(tokens=0)],
        [request(2.0, tokens=1)],
        [request(1.0, 2.0, tokens=2), request(3.0, 4.0, tokens=2)],
        [request(1.0, 4.0, tokens=2), request(2.0, 3.0, tokens=2, status=RequestStatus.TRUNCATED)],
        [request(1.0, 4.0, tokens=2), request(tokens=0)],
    ],
)
def test_without_a_common_gap_there_is_no_window(records: list[RequestRecord]) -> None:
    assert steady_decode_window(records) is None


def test_a_window_of_chunks_that_are_not_tokens_says_so_and_gives_no_token_figures() -> None:
    window = steady_decode_window([request(1.0, 2.0, 3.0, tokens=12), request(1.0, 2.0, 3.0, tokens=3)])
    assert window is not None
    assert len(window.gaps_s) == 4
    assert (window.one_token_per_chunk, window.mean_context_tokens, window.tokens_per_s) == (False, None, None)


def test_a_window_without_prompt_counts_has_no_context_length() -> None:
    window = steady_decode_window([request(1.0, 2.0, tokens=2, prompt_tokens=None)])
    assert window is not None
    assert window.mean_context_tokens is None


@settings(max_examples=50)
@given(
    streams=st.lists(
        st.tuples(st.floats(0, 5), st.lists(st.floats(0.001, 2), min_size=1, max_size=8)), min_size=1, max_size=5
    )
)
def test_a_window_lies_inside_every_stream(streams: list[tuple[float, list[float]]]) -> None:
    records = []
    for begin_s, gaps_s in streams:
        times_s = [2.0 + begin_s]
        for gap_s in gaps_s:
            times_s.append(times_s[-1] + gap_s)
        records.append(request(*times_s, tokens=len(times_s)))
    window = steady_decode_window(records)
    if window is not None:
        assert all(record.chunk_times_s[0] <= window.begin_s for record in records)
        assert all(record.chunk_times_s[-1] >= window.end_s for record in records)
        assert 0 < sum(window.gaps_s) <= len(records) * (window.end_s - window.begin_s) * (1 + 1e-9)


def test_the_longest_gap_is_what_the_objective_looks_at() -> None:
    record = request(2.0, 2.25, 3.0, 3.25, tokens=4)
    assert (longest_gap_s(record), longest_gap_s(request(2.0)), longest_gap_s(request())) == (0.75, 0.0, 0.0)
    assert Objective(3.0, 0.75).is_met_by(record)
    assert not Objective(3.0, 0.7).is_met_by(record)


def test_gaps_are_pooled_request_by_request() -> None:
    records = [request(2.0, 2.25, 3.0), request(), request(1.0), request(5.0, 5.5)]
    assert list(pooled_gaps_s(records)) == [0.25, 0.75, 0.5]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.floats(2, 1e4), min_size=1, max_size=8).map(sorted), min_size=1, max_size=8), st.booleans())
def test_numpy_changes_no_bit_of_any_metric(streams: list[list[float]], per_token: bool) -> None:
    pytest.importorskip("numpy")
    records = [request(*times_s, tokens=len(times_s) + (not per_token and i % 2)) for i, times_s in enumerate(streams)]
    few = summarise(records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stats, "_MANY", 1)
        assert repr(summarise(records)) == repr(few)
