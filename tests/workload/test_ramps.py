"""Ramps are linear in time, steps hold, and both are where their cumulative rate puts them."""

from __future__ import annotations

import math
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.errors import QuantityError, RequestError
from inference_bench.workload import (
    Constant,
    Fixed,
    OpenLoop,
    Poisson,
    Ramp,
    Steps,
    closed_loop,
    generate,
    generate_conversations,
    parse_arrivals,
    says_its_rates,
)
from inference_bench.workload.requests import RequestShape

RATES = st.floats(0.01, 1000.0)
SPANS = st.floats(0.1, 1000.0)


def times(process: Ramp | Steps, count: int, seed: int = 0) -> list[float]:
    return list(islice(process.times_s(Random(seed)), count))


def test_an_even_ramp_from_nothing_is_at_the_square_roots() -> None:
    # the rate 0.2 t makes 0.1 t² arrivals by t, so the k-th comes at √(10 k)
    assert times(Ramp(0.0, 2.0, 10.0, is_even=True), 12) == pytest.approx(
        [*(math.sqrt(10 * k) for k in range(1, 11)), 10.5, 11.0]
    )


@given(RATES, RATES, SPANS, st.floats(0.0, 3.0))
def test_time_and_count_are_each_others_inverse(first: float, last: float, span_s: float, share: float) -> None:
    ramp = Ramp(first, last, span_s)
    time_s = share * span_s
    assert ramp.time_of(ramp.count_by(time_s)) == pytest.approx(time_s, rel=1e-6, abs=1e-9 * span_s)


@pytest.mark.parametrize("process", [Ramp(3.0, 40.0, 7.0), Ramp(40.0, 3.0, 7.0), Steps((2.0, 0.0, 9.0, 1.0), 3.0)])
def test_the_cumulative_rate_is_the_integral_of_the_rate(process: Ramp | Steps) -> None:
    def rate_at(time_s: float) -> float:
        if isinstance(process, Steps):
            return process.rates[min(int(time_s / process.step_s), len(process.rates) - 1)]
        return process.from_rate + (process.to_rate - process.from_rate) * min(time_s / process.span_s, 1.0)

    width_s = 0.001
    total = sum(rate_at((number + 0.5) * width_s) * width_s for number in range(14_000))
    assert process.count_by(14.0) == pytest.approx(total, rel=1e-4)


def test_a_ramp_grows_with_time_and_not_with_the_number_of_requests() -> None:
    ramp = Ramp(0.0, 20.0, 10.0)  # 100 in all, a quarter of them in the first half
    early = [sum(time_s < 5.0 for time_s in times(ramp, 300, seed)) for seed in range(200)]
    assert sum(early) / len(early) == pytest.approx(25.0, abs=5 * math.sqrt(25 / 200))


def test_a_step_without_a_rate_is_silent_and_the_last_one_stays() -> None:
    found = times(Steps((2.0, 0.0, 4.0), 5.0, is_even=True), 32)
    assert found[:10] == pytest.approx([0.5 * k for k in range(1, 11)])
    assert found[10:] == pytest.approx([10 + 0.25 * k for k in range(1, 23)])


@pytest.mark.parametrize("process", [Ramp(1.0, 5.0, 10.0), Steps((1.0, 5.0), 5.0)])
def test_a_stretched_process_has_its_times_stretched(process: Ramp | Steps) -> None:
    assert times(process.stretched(3.0), 40) == pytest.approx([3.0 * time_s for time_s in times(process, 40)])


def test_a_workload_knows_the_process_it_is_drawn_from() -> None:
    workload = generate(Ramp(1.0, 9.0, 4.0), Fixed(8), Fixed(2), 20, seed=3)
    assert isinstance(workload.arrival, OpenLoop)
    assert workload.arrival.drawn_from == Ramp(1.0, 9.0, 4.0)
    assert workload.arrival.nominal_rate == 5.0
    assert workload.arrival.process == "poisson ramp from 1 to 9 requests/s in 4 s"


def test_a_person_names_ramps_and_steps_without_a_rate() -> None:
    assert parse_arrivals("ramp:1:20:1min", None) == Ramp(1.0, 20.0, 60.0)
    assert parse_arrivals("ramp:0:2.5:500ms:even", None) == Ramp(0.0, 2.5, 0.5, is_even=True)
    assert parse_arrivals("steps:1,2,4:30s", None) == Steps((1.0, 2.0, 4.0), 30.0)
    assert parse_arrivals("poisson", 2.0) == Poisson(2.0)
    assert [says_its_rates(text) for text in (None, "poisson", "gamma:2", "ramp:1:2:3", "Steps:1:2")] == [
        False,
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("text", "rate", "said"),
    [
        ("ramp:1:2:10s", 3.0, "give no rate beside them"),
        ("poisson", None, "need a rate"),
        ("ramp:1:2", None, "write ramp:FROM:TO:TIME"),
        ("ramp:1:0:10s", None, "rate at the end of the ramp"),
        ("ramp:-1:2:10s", None, "rate at the start of the ramp"),
        ("ramp:1:2:0s", None, "duration of the ramp"),
        ("ramp:1:inf:5s", None, "rate at the end of the ramp"),
        ("ramp:1:2:5s:bursty", None, "write poisson or even"),
        ("steps:1,0:5s", None, "rate of the last step"),
    ],
)
def test_what_is_no_ramp_is_refused(text: str, rate: float | None, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        parse_arrivals(text, rate)


def test_a_rate_that_is_no_number_is_refused() -> None:
    with pytest.raises(QuantityError, match="rate of a step"):
        parse_arrivals("steps:1,x:5s", None)


def test_the_requests_until_a_time_are_the_first_ones() -> None:
    workload = generate(Constant(10.0), Fixed(8), Fixed(2), 50)
    part = workload.until(1.05)
    assert isinstance(part.arrival, OpenLoop)
    assert list(part.arrival.times_s) == pytest.approx([0.1 * k for k in range(1, 11)])
    assert len(part.requests) == 10
    assert part.arrival.drawn_from == Constant(10.0)
    with pytest.raises(RequestError, match=r"before 0\.05 s"):
        workload.until(0.05)
    with pytest.raises(RequestError, match="closed loop"):
        closed_loop("loop", [RequestShape(8, 2)], 1, 4).until(1.0)


def test_turns_know_their_conversation_and_their_place_in_it() -> None:
    workload = generate_conversations(Poisson(2.0), Fixed(10), Fixed(5), 41, seed=1, num_turns=4, think_s=3.0)
    sessions, turns = workload.requests.session, workload.requests.turn
    assert sessions is not None
    assert turns is not None
    seen: dict[int, list[int]] = {}
    for session, turn, tokens in zip(sessions, turns, workload.requests.prompt_tokens, strict=True):
        seen.setdefault(session, []).append(turn)
        assert tokens == 10 + turn * 15  # each turn holds the ones before it and their answers
    assert all(found == list(range(len(found))) for found in seen.values())
    assert sorted(map(len, seen.values())) == [1, *[4] * 10]
    part = workload.until(2.0).requests
    assert part.session == sessions[: len(part)]
