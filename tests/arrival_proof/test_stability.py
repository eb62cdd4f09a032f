"""Queues counted by hand, and queues of servers whose load is known: below, at and above what they can serve."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from inference_bench.arrival_proof.stability import LittleCheck, Load, Stability, check_little, judge_stability
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage


def record(
    sent_s: float, first_s: float | None, end_s: float, status: RequestStatus = RequestStatus.COMPLETED
) -> RequestRecord:
    stamps = () if first_s is None else (first_s,)
    return RequestRecord(f"r{sent_s}", Origin.MEASURED, Stage.MEASURE, status, sent_s, sent_s, end_s, stamps)


def judged(records: Sequence[RequestRecord]) -> Stability:
    found = judge_stability(records)
    assert found is not None
    return found


# ── by hand ────────────────────────────────────────────────────────────────────────────────────────


def test_waiting_requests_are_counted_as_by_hand() -> None:
    # waiting: 1 in 10..11, 2 in 11..12, 3 in 12..13, then the first two get their tokens: 1 in 13..14, and at 14 the last comes
    found = judged([record(10, 13, 20), record(11, 13, 20), record(12, 15, 20), record(14, 16, 20)])
    assert (found.num_requests, found.peak_waiting, found.peak_at_s) == (4, 3, 2.0)
    assert (found.early_mean, found.late_mean) == (1.5, 2.0)  # over 10..12 and 12..14
    assert found.last_waiting == 2
    assert found.base_waiting == 1.0
    assert found.excess_fraction == pytest.approx((3 - 1) / 2)  # two had their token by 14
    assert found.load is Load.UNDECIDED


def test_a_request_that_ends_without_a_token_waits_until_it_ends() -> None:
    refused = record(10, None, 12, RequestStatus.REJECTED)
    found = judged([refused, record(11, 13, 20), record(14, 15, 20)])
    assert (found.peak_waiting, found.last_waiting, found.num_shed) == (2, 1, 1)
    # 1 in 10..11, 2 in 11..12; then 1 until 13, none until 14
    assert (found.early_mean, found.late_mean) == (1.5, 0.5)


def test_warm_up_requests_do_not_count_and_one_moment_is_no_time() -> None:
    warm = replace(record(0, 50, 60), stage=Stage.WARMUP)
    assert judged([warm, record(10, 13, 20), record(14, 15, 20)]).peak_waiting == 1
    assert judge_stability([record(10, 13, 20), record(10, 14, 20)]) is None
    assert judge_stability([warm]) is None
    assert judge_stability([]) is None


def test_at_one_moment_who_is_served_makes_room_for_who_comes() -> None:
    assert judged([record(float(at), at + 1.0, at + 2.0) for at in range(30)]).peak_waiting == 1


# ── servers of known load ──────────────────────────────────────────────────────────────────────────


def one_at_a_time(count: int, load: float, seed: int, always_waiting: int = 0) -> list[RequestRecord]:
    """Poisson arrivals at one a second for a server that takes `load` seconds for each; some wait a fixed time on top."""
    rng, now, free = random.Random(seed), 0.0, 0.0
    records = []
    for _ in range(count):
        now += rng.expovariate(1.0)
        free = max(now, free) + load
        records.append(record(now, free + always_waiting, free + always_waiting + 1))
    return records


def verdicts(count: int, load: float, always_waiting: int = 0) -> Counter[Load]:
    return Counter(judged(one_at_a_time(count, load, seed, always_waiting)).load for seed in range(100))


def test_a_server_at_half_its_capacity_keeps_up() -> None:
    assert verdicts(400, 0.5)[Load.KEPT_UP] >= 95


def test_a_server_a_fifth_over_its_capacity_falls_behind() -> None:
    found = verdicts(1000, 1.2)
    assert found[Load.FELL_BEHIND] >= 95
    assert found[Load.KEPT_UP] == 0


def test_a_server_exactly_at_its_capacity_is_not_said_to_keep_up() -> None:
    # there the queue has no slope: a straight line through it calls most of these runs healthy
    for count in (100, 400, 1000):
        assert verdicts(count, 1.0)[Load.KEPT_UP] <= 5


def test_how_much_too_much_was_asked_for_is_found() -> None:
    excess = [judged(one_at_a_time(2000, 1.25, seed)).excess_fraction or 0.0 for seed in range(20)]
    assert sum(excess) / len(excess) == pytest.approx(0.25, abs=0.03)


def test_a_queue_that_is_always_there_is_no_growth() -> None:
    # each request waits 8 s for its token, so about 8 wait at any time, of a server at a third of its capacity
    assert verdicts(1000, 0.3, always_waiting=8)[Load.FELL_BEHIND] == 0


def test_a_server_that_turns_requests_away_is_not_said_to_keep_up() -> None:
    records = one_at_a_time(400, 0.5, 1)
    assert judged(records).load is Load.KEPT_UP
    shed = [replace(r, status=RequestStatus.REJECTED, chunk_times_s=(), end_s=r.sent_s + 0.01) for r in records[::20]]
    kept = [r for index, r in enumerate(records) if index % 20]
    found = judged([*shed, *kept])
    assert (found.load, found.num_shed) == (Load.AT_THE_LIMIT, 20)
    assert "20 were turned away or timed out" in found.said


def test_each_verdict_says_what_it_rests_on() -> None:
    said = judged(one_at_a_time(400, 1.5, 1)).said
    assert said.startswith("the server fell behind: latencies say how long the run was: up to ")
    assert "more than it served" in said
    assert judged(one_at_a_time(400, 0.3, 1)).said.startswith("the server kept up with the requests: up to ")
    assert "too few requests" in judged(one_at_a_time(10, 0.3, 1)).said


# ── Little's law ───────────────────────────────────────────────────────────────────────────────────


def test_both_sides_of_little_s_law_are_as_by_hand() -> None:
    # one a second, each for two: 2 in flight but in the first second, when there is 1; sent in [0, 20): 20 in 20 s
    found = check_little([record(float(at), at + 0.5, at + 2.0) for at in range(21)])
    assert found == LittleCheck(in_flight=1.95, rate=1.0, time_s=2.0, error=pytest.approx(-0.025))
    assert found.is_kept
    assert found.said == ("Little's law holds: 1.95 in flight on average, 1.00 requests/s times 2.00 s each makes 2.00")


def test_requests_in_flight_from_before_and_after_the_measured_ones_count_as_in_flight() -> None:
    before = [replace(record(at - 2.0, at, at), stage=Stage.WARMUP) for at in (0.0, 1.0)]
    after = [replace(record(at, at + 1, at + 2.0), stage=Stage.COOLDOWN) for at in (21.0, 22.0)]
    found = check_little([*before, *(record(float(at), at + 0.5, at + 2.0) for at in range(21)), *after])
    assert found == LittleCheck(in_flight=2.0, rate=1.0, time_s=2.0, error=pytest.approx(0.0))


def test_a_closed_loop_in_lockstep_keeps_it_however_its_waves_are_cut() -> None:
    for last in range(
        2
    ):  # four at once, for 2 s each; then the window is cut just after a wave begins, or in its middle
        waves = [record(2.0 * wave, 2.0 * wave + 1, 2.0 * wave + 2) for wave in range(11) for _ in range(4)]
        found = check_little([*waves, record(22.0 + last, 23.5, 24.0)])
        assert found is not None
        assert found.is_kept


def test_requests_that_take_longer_and_longer_break_it() -> None:
    records = [record(at / 10, at / 10 + 0.5, at / 10 + 1.0) for at in range(400)]
    steady = check_little(records)
    assert steady is not None
    assert steady.is_kept
    late = [replace(r, end_s=r.sent_s + 8.0) if r.sent_s > 30 else r for r in records]
    found = check_little(late)
    assert found is not None
    assert not found.is_kept
    assert found.said.startswith("Little's law does not hold")


def test_a_run_shorter_than_ten_of_its_requests_says_nothing() -> None:
    assert check_little([record(float(at), at + 1.0, at + 4.0) for at in range(40)]) is None
    assert check_little([record(0, 1, 2)]) is None
    assert check_little([]) is None
    assert check_little([record(0, 1, 2), record(0, 1, 2)]) is None
