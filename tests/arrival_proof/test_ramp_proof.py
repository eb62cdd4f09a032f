"""Arrivals whose rate changes are judged on a clock on which it does not."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from random import Random

import pytest

from arrival_proof.runs import BEGIN_S, COUNT, drawn, kept, lateness, record, schedule, sent
from inference_bench.arrival_proof import Verdict, prove_arrivals
from inference_bench.records import RequestRecord
from inference_bench.workload import OpenLoop, Poisson, Ramp, Steps

RAMP = Ramp(5.0, 75.0, 10.0)  # 400 requests on average
STEPS = Steps((10.0, 40.0, 30.0), 5.0)


@pytest.mark.parametrize("process", [RAMP, STEPS, replace(RAMP, is_even=True), Ramp(75.0, 5.0, 10.0)])
def test_correct_ramps_raise_hardly_any_alarm(process: Ramp | Steps) -> None:
    alarms = [seed for seed in range(100) if prove_arrivals(*kept(process, Random(seed))).verdict is not Verdict.KEPT]
    assert len(alarms) <= 1


def by_index(rng: Random) -> tuple[list[RequestRecord], OpenLoop]:
    """A ramp over the number of requests, which is what a loop over requests makes of it."""
    rates = [5.0 + 70.0 * number / COUNT for number in range(COUNT)]
    times_s = list(accumulate(rng.expovariate(rate) for rate in rates))
    return sent(times_s, lateness(rng)), schedule(RAMP, times_s)


def flat(rng: Random) -> tuple[list[RequestRecord], OpenLoop]:
    times_s = drawn(Poisson(RAMP.mean_rate), rng).times_s
    return sent(times_s, lateness(rng)), schedule(RAMP, times_s)


@pytest.mark.parametrize("make", [by_index, flat])
def test_a_ramp_over_the_number_of_requests_and_none_at_all_are_caught(make: object) -> None:
    assert callable(make)
    proofs = [prove_arrivals(*make(Random(seed))) for seed in range(12)]
    assert all(proof.verdict is Verdict.BROKEN and proof.reasons for proof in proofs)


def test_a_ramp_that_should_be_even_and_is_not_is_caught() -> None:
    even = replace(RAMP, is_even=True)
    times_s = drawn(RAMP, Random(1)).times_s
    proof = prove_arrivals(sent(times_s, lateness(Random(2))), schedule(even, times_s))
    assert proof.verdict is Verdict.BROKEN
    assert "off the ramp" in proof.reasons[0]


def test_a_turn_that_waits_for_the_answer_before_it_is_not_late() -> None:
    times_s = [0.1 * number for number in range(60)]
    records = [
        replace(
            record(BEGIN_S + at, BEGIN_S + at + (0.25 if number % 2 else 0.0), BEGIN_S + at + 0.35),
            session=number // 2,
            turn=number % 2,
        )
        for number, at in enumerate(times_s)
    ]
    arrival = schedule(Poisson(10.0), times_s)
    arrival = replace(arrival, drawn_from=None)
    proof = prove_arrivals(records, arrival)
    assert proof.lateness is not None
    assert proof.lateness.max_s == pytest.approx(0.0, abs=1e-9)
    assert proof.verdict is Verdict.KEPT
    assert any("30 turns were sent later than planned" in note for note in proof.notes)
    alone = prove_arrivals([replace(one, session=None, turn=None) for one in records], arrival)
    assert alone.verdict is Verdict.BROKEN
