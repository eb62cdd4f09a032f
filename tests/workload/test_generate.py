"""Workloads hold what was asked, or refuse it; the same seed gives the same one."""

from __future__ import annotations

import json
import math
import time
from array import array
from pathlib import Path
from typing import Any

import pytest

from inference_bench.errors import RequestError
from inference_bench.workload import (
    ClosedLoop,
    Constant,
    Fixed,
    OpenLoop,
    Poisson,
    Requests,
    RequestShape,
    UniformLengths,
    Workload,
    closed_loop,
    generate,
    open_loop,
    reference_workload,
)

SHORT, LONG = RequestShape(10, 5), RequestShape(1000, 50)


def test_a_closed_loop_takes_the_shapes_in_turn() -> None:
    workload = closed_loop("mixed", (SHORT, LONG), 2, 5)
    assert [workload.shape_of(index) for index in range(5)] == [SHORT, LONG, SHORT, LONG, SHORT]
    assert workload.arrival == ClosedLoop(2, 5)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "4", None])
def test_lengths_and_numbers_of_requests_are_whole_and_above_zero(value: Any) -> None:
    for build in (
        lambda: RequestShape(value, 1),
        lambda: RequestShape(1, value),
        lambda: ClosedLoop(value, 1),
        lambda: ClosedLoop(1, value),
        lambda: closed_loop("loop", [SHORT], value, 1),
        lambda: closed_loop("loop", [SHORT], 1, value),
        lambda: generate(Poisson(1.0), Fixed(1), Fixed(1), value),
        lambda: reference_workload(1.0, count=value),
    ):
        with pytest.raises(RequestError, match="whole number of at least 1"):
            build()


def test_a_closed_loop_without_a_shape_is_refused() -> None:
    with pytest.raises(RequestError, match="'empty' has no request shape"):
        closed_loop("empty", (), 1, 1)


def test_requests_and_arrivals_differ_in_number_only_in_an_error() -> None:
    with pytest.raises(RequestError, match="has 2 requests and 3 arrivals"):
        Workload("odd", Requests.of([SHORT, LONG]), ClosedLoop(1, 3))
    with pytest.raises(RequestError, match="has 2 requests and 1 arrivals"):
        Workload("odd", Requests.of([SHORT, LONG]), open_loop([0.0]))


def test_an_output_longer_than_the_stated_limit_is_refused() -> None:
    assert (
        Workload("w", Requests.of([SHORT, LONG]), open_loop([0.0, 1.0]), max_output_tokens=50).max_output_tokens == 50
    )
    with pytest.raises(RequestError, match=r"request 1 .* has 50 output tokens, more than the 49"):
        Workload("w", Requests.of([SHORT, LONG]), open_loop([0.0, 1.0]), max_output_tokens=49)


# count / last arrival, from an independent implementation of the same rules (golden/scheduling.json)
REALISED = {
    0.1: 0.11222942296524308,
    0.2: 0.22445884593048615,
    0.25: 0.2805735574131076,
    0.3: 0.33668826889572917,
    0.35: 0.39280298037835043,
    0.4: 0.4489176918609723,
}


@pytest.mark.parametrize(("rate", "realised"), REALISED.items())
def test_the_reference_workload_has_the_realised_rates_of_the_reference_case(rate: float, realised: float) -> None:
    workload = reference_workload(rate)
    assert isinstance(workload.arrival, OpenLoop)
    assert workload.arrival.realised_rate == realised
    assert workload.arrival.nominal_rate == rate
    assert len(workload) == 300


def test_the_reference_workload_is_drawn_as_its_rules_say() -> None:
    import math
    import random

    rng, now_s = random.Random(7), 0.0
    workload = reference_workload(0.25, count=50, seed=7)
    assert isinstance(workload.arrival, OpenLoop)
    for index in range(50):
        now_s += rng.expovariate(0.25)
        assert workload.arrival.times_s[index] == now_s
        prompt = rng.randint(2000, 6000)
        output = min(4000, max(16, int(rng.lognormvariate(math.log(1500), 0.6))))
        assert workload.shape_of(index) == RequestShape(prompt, output)


def test_the_same_seed_gives_the_same_workload_and_another_seed_another() -> None:
    assert reference_workload(1.0, seed=3) == reference_workload(1.0, seed=3)
    assert reference_workload(1.0, seed=3) != reference_workload(1.0, seed=4)


def test_scaling_multiplies_the_times_and_keeps_the_requests() -> None:
    workload = generate(Poisson(2.0), UniformLengths(1, 9), UniformLengths(1, 9), 20)
    slower = workload.scaled(4.0)
    assert isinstance(workload.arrival, OpenLoop)
    assert isinstance(slower.arrival, OpenLoop)
    assert list(slower.arrival.times_s) == [4 * time_s for time_s in workload.arrival.times_s]
    assert slower.requests is workload.requests
    assert slower.arrival.nominal_rate == 0.5


def test_a_rate_is_reached_by_scaling_the_nominal_one_or_the_realised_one_of_a_replay() -> None:
    generated = generate(Constant(1.0), Fixed(1), Fixed(1), 10).at_rate(4.0)
    assert isinstance(generated.arrival, OpenLoop)
    assert (generated.arrival.nominal_rate, generated.arrival.times_s[-1]) == (4.0, 2.5)
    replay = Workload("replay", Requests.of([SHORT] * 4), open_loop([0.0, 1.0, 1.0, 8.0], "replay")).at_rate(2.0)
    assert isinstance(replay.arrival, OpenLoop)
    assert (replay.arrival.realised_rate, replay.arrival.nominal_rate) == (2.0, 2.0)


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), 10**400])
def test_factors_and_rates_are_finite_and_above_zero(value: float) -> None:
    workload = generate(Poisson(2.0), Fixed(1), Fixed(1), 2)
    for scale in (workload.scaled, workload.at_rate):
        with pytest.raises(RequestError, match="finite number above 0"):
            scale(value)


def test_what_cannot_be_scaled_is_refused() -> None:
    for scale in (closed_loop("loop", [SHORT], 1, 1).scaled, closed_loop("loop", [SHORT], 1, 1).at_rate):
        with pytest.raises(RequestError, match="closed loop, which has no arrival times"):
            scale(2.0)
    with pytest.raises(RequestError, match="arrive at once"):
        Workload("w", Requests.of([SHORT]), open_loop([0.0])).at_rate(1.0)
    with pytest.raises(RequestError, match="finite"):
        Workload("w", Requests.of([SHORT]), open_loop([1e9])).scaled(1e300)
    with pytest.raises(RequestError, match=r"the last arrival is at 1e\+300 s"):
        Workload("w", Requests.of([SHORT]), open_loop([1.0])).scaled(1e300)


def test_a_seed_is_a_whole_number() -> None:
    for seed in (math.nan, 1.5, True, None):
        with pytest.raises(RequestError, match=r"seed is .*; it must be a whole number"):
            reference_workload(1.0, 3, seed)  # type: ignore[arg-type]


def test_times_of_a_schedule_are_those_of_its_array() -> None:
    assert open_loop([0, 1]).times_s == array("d", [0.0, 1.0])


def test_two_hundred_thousand_requests_take_a_second_or_two() -> None:
    begin_s = time.perf_counter()
    assert len(reference_workload(1.0, count=200_000)) == 200_000
    assert time.perf_counter() - begin_s < 10  # half a second on an idle core


GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "scheduling.json"


@pytest.mark.corpus
@pytest.mark.skipif(not GOLDEN.is_file(), reason="the shared golden files are not beside this checkout")
def test_the_realised_rates_here_are_those_of_the_golden_file() -> None:
    rows = json.loads(GOLDEN.read_text())["rows"]
    found = {float(name.partition("@")[2]): row["realised"] for name, row in rows.items()}
    assert found == REALISED
