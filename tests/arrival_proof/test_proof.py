"""Kept runs are called kept, and saboteurs are caught; a few seeds here, a thousand in benchmarks/arrival_proof.py."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from random import Random

import pytest

from arrival_proof.runs import (
    BEGIN_S,
    PROCESSES,
    RANDOM,
    SABOTEURS,
    drawn,
    kept,
    lateness,
    record,
    relative_sleep,
    schedule,
    sent,
    shared_seed_unplanned,
)
from inference_bench.arrival_proof import Verdict, prove_arrivals, realised_concurrency
from inference_bench.records import Stage
from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.settings import KvMemory, SchedulerSettings, ServerSetup
from inference_bench.simulate.step_time import Coefficients, StepTime
from inference_bench.simulate.summary import records_of
from inference_bench.workload import (
    ClosedLoop,
    Constant,
    Fixed,
    GammaArrivals,
    OnOff,
    Poisson,
    generate,
    open_loop,
)

SEEDS = range(200)


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: f"{process.name} {process.mean_rate:g}")
def test_correct_runs_raise_fewer_than_one_false_alarm_in_a_hundred(process: Poisson) -> None:
    alarms = [seed for seed in SEEDS if prove_arrivals(*kept(process, Random(seed))).verdict is not Verdict.KEPT]
    assert len(alarms) <= 2


@pytest.mark.parametrize("name", SABOTEURS)
def test_saboteurs_are_caught(name: str) -> None:
    for process in RANDOM:
        proofs = [prove_arrivals(*SABOTEURS[name](process, Random(seed))) for seed in range(12)]
        assert all(proof.verdict is Verdict.BROKEN and proof.reasons for proof in proofs), process


def test_shared_seeds_are_caught_by_sends_alone_and_drift_of_clockwork_too() -> None:
    for seed in range(12):
        proof = prove_arrivals(*shared_seed_unplanned(Poisson(40), Random(seed)))
        assert proof.verdict is Verdict.BROKEN
        assert any("share a seed" in reason for reason in proof.reasons)
        assert prove_arrivals(*relative_sleep(Constant(20), Random(seed))).verdict is Verdict.BROKEN


def test_the_rate_is_gaps_over_time_and_lateness_is_sent_less_planned() -> None:
    asked = schedule(Constant(2.0), [number / 2 for number in range(1, 31)])
    proof = prove_arrivals(sent(asked.times_s, [0.001] * 29 + [0.004]), asked)
    assert proof.verdict is Verdict.KEPT
    assert proof.realised_rate == pytest.approx(29 / 14.503)
    assert proof.lateness is not None
    assert (proof.lateness.p50_s, proof.lateness.max_s) == (pytest.approx(0.001), pytest.approx(0.004))
    assert proof.lateness.drift_fraction == pytest.approx(0.0, abs=1e-9)
    assert (proof.repeated_gap_fraction, proof.plan_fit) == (1.0, None)


def test_sends_that_take_one_percent_longer_than_their_plan_drift_by_one_percent() -> None:
    asked = schedule(Constant(10.0), [number / 10 for number in range(1, 101)])
    proof = prove_arrivals(sent(asked.times_s, [at * 0.01 for at in asked.times_s]), asked)
    assert proof.lateness is not None
    assert proof.lateness.drift_fraction == pytest.approx(0.01)
    assert proof.verdict is Verdict.BROKEN


def test_every_gap_twice_says_so() -> None:
    gaps_s = [gap for number in range(1, 16) for gap in (number / 10, number / 10)]
    asked = schedule(Poisson(1.25), accumulate(gaps_s))
    proof = prove_arrivals(sent(asked.times_s, [0.0] * 30), asked)
    assert proof.repeated_gap_fraction == pytest.approx(28 / 29)  # of 29 gaps between sends, 0.1 stands once
    assert any("share a seed" in reason for reason in proof.reasons)


def test_lateness_that_blurs_the_gaps_is_no_evidence_against_them() -> None:
    asked = drawn(Poisson(1000), Random(3))
    proof = prove_arrivals(sent(asked.times_s, lateness(Random(4))), asked)
    assert (proof.verdict, proof.send_fit) == (Verdict.KEPT, None)
    assert any("lateness" in note for note in proof.notes)


def test_sends_far_behind_their_plan_are_no_kept_arrivals() -> None:
    asked = drawn(Poisson(40), Random(3))
    proof = prove_arrivals(sent(asked.times_s, [0.0] * 390 + [0.5] * 10), asked)
    assert proof.verdict is Verdict.BROKEN
    assert any("late" in reason for reason in proof.reasons)


def test_a_plan_that_is_not_the_schedule_or_not_all_of_it_is_caught() -> None:
    asked = open_loop([number * 0.7 for number in range(40)], "replay")
    right = sent(asked.times_s, [0.0] * 40)
    assert prove_arrivals(right, asked).verdict is Verdict.KEPT
    assert "no process" in prove_arrivals(right, asked).notes[0]
    moved = sent([*list(asked.times_s)[:-1], asked.times_s[-1] + 0.2], [0.0] * 40)
    assert "off the schedule" in prove_arrivals(moved, asked).reasons[0]
    assert "39 requests were sent of the 40" in prove_arrivals(right[:-1], asked).reasons[0]


def test_few_requests_prove_nothing_and_warm_up_is_left_out() -> None:
    asked = drawn(Poisson(5), Random(0), 10)
    records = [*sent(asked.times_s, [0.0] * 10), replace(record(0.0, 0.0), stage=Stage.WARMUP)]
    proof = prove_arrivals(records, asked)
    assert (proof.verdict, proof.num_requests) == (Verdict.UNDECIDED, 10)


def test_concurrency_is_swept_over_exact_beginnings_and_ends() -> None:
    # one: 0 to 4, two: 1 to 3, three: 3 to 5, where two ends. In flight 1, 2, 2, 1 over 1, 2, 1, 1 s: 8 / 5
    found = realised_concurrency([record(0, 0, 4), record(1, 1, 3), record(3, 3, 5)])
    assert found is not None
    assert (found.peak, found.mean, found.steady_mean) == (2, pytest.approx(1.6), pytest.approx(2.0))
    assert realised_concurrency([]) is None


def test_a_closed_loop_is_kept_with_full_slots_and_broken_above_or_below_them() -> None:
    def waves(num_slots: int, pause_s: float) -> list[object]:
        return [record(at, at, at + 1 - pause_s) for at in range(20) for _ in range(num_slots)]

    full = prove_arrivals(waves(4, 0.01), ClosedLoop(4, 80))  # type: ignore[arg-type]
    assert (full.verdict, full.concurrency and full.concurrency.peak) == (Verdict.KEPT, 4)
    above = prove_arrivals(waves(5, 0.01), ClosedLoop(4, 100))  # type: ignore[arg-type]
    assert "5 requests were in flight" in above.reasons[0]
    below = prove_arrivals(waves(4, 0.5), ClosedLoop(4, 80))  # type: ignore[arg-type]
    assert "2.00 requests were in flight on average" in below.reasons[0]
    assert prove_arrivals(waves(4, 0.5), ClosedLoop(4, 80, 0.5)).verdict is Verdict.KEPT  # type: ignore[arg-type]


def test_a_closed_loop_that_never_had_as_many_in_flight_as_asked_is_not_reached() -> None:
    few = prove_arrivals([record(0, 0, 2)] * 3, ClosedLoop(8, 3))
    assert (few.verdict, few.reasons) == (Verdict.NOT_REACHED, ("at most 3 in flight of 8 asked",))
    assert few.completed_rate == 1.5  # 3 in 2 s
    thinking = prove_arrivals([record(0, 0, 2)] * 3, ClosedLoop(8, 3, 1.0))
    assert thinking.verdict is Verdict.KEPT


def test_the_warm_up_fills_slots_too() -> None:
    warm = [replace(record(0, 0, 3), stage=Stage.WARMUP)] * 2
    assert prove_arrivals([*warm, *[record(1, 1, 2)] * 2], ClosedLoop(4, 2)).verdict is Verdict.KEPT


@pytest.mark.parametrize("process", [Poisson(4), GammaArrivals(4, 2), OnOff.of_mean_rate(4, 2, 2, 0.1), Constant(4)])
def test_a_scaled_schedule_is_held_against_the_scaled_process(process: Poisson) -> None:
    workload = generate(process, Fixed(10), Fixed(2), 400, seed=2).at_rate(9.0)
    assert not isinstance(workload.arrival, ClosedLoop)
    assert workload.arrival.drawn_from is not None
    assert workload.arrival.drawn_from.mean_rate == pytest.approx(9.0)
    proof = prove_arrivals(sent(workload.arrival.times_s, [0.0] * 400), workload.arrival)
    assert proof.verdict is Verdict.KEPT


def test_simulated_records_are_proved_by_the_same_call() -> None:
    workload = generate(Poisson(8), Fixed(20), Fixed(3), 200, seed=1)
    setup = ServerSetup(SchedulerSettings(), KvMemory.of_blocks(1000, 16, 1000))
    steps = StepTime(Coefficients(1e9, 1000, 1e9, 1000, 1e12, 1e14))
    records = list(records_of(simulate(workload, setup, steps, engine=Engine.REFERENCE)))
    proof = prove_arrivals(records, workload.arrival)
    assert (proof.verdict, proof.num_requests) == (Verdict.KEPT, 200)
    assert proof.lateness is not None
    assert proof.lateness.max_s == 0.0


def test_the_first_planned_time_may_be_anywhere() -> None:
    assert BEGIN_S > 0
    asked = drawn(Poisson(40), Random(11))
    at_zero = [record(at, at) for at in asked.times_s]
    assert prove_arrivals(at_zero, asked).verdict is Verdict.KEPT
