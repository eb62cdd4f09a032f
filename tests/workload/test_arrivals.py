"""Arrival processes keep their mean rate, and a schedule that cannot be is refused."""

from __future__ import annotations

import math
import statistics
from array import array
from itertools import islice, pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.errors import QuantityError, RequestError
from inference_bench.workload import (
    Arrivals,
    ClosedLoop,
    Constant,
    GammaArrivals,
    OnOff,
    OpenLoop,
    Poisson,
    open_loop,
    parse_arrivals,
)

RATES = st.floats(0.01, 1000.0)
PROCESSES = st.one_of(
    st.builds(Poisson, RATES),
    st.builds(Constant, RATES),
    st.builds(GammaArrivals, RATES, st.floats(0.2, 3.0)),
)


def gaps(process: Arrivals, count: int, seed: int = 0) -> list[float]:
    times_s = list(islice(process.times_s(Random(seed)), count))
    return [times_s[0], *(after - before for before, after in pairwise(times_s))]


@settings(deadline=None, max_examples=40)
@given(process=PROCESSES, seed=st.integers(0, 2**32))
def test_the_mean_gap_is_the_one_that_the_mean_rate_says(process: Arrivals, seed: int) -> None:
    found = gaps(process, 4000, seed)
    error_of_the_mean = statistics.pstdev(found) / math.sqrt(len(found))
    assert abs(statistics.fmean(found) - 1 / process.mean_rate) <= 6 * error_of_the_mean + 1e-9 / process.mean_rate


@settings(deadline=None, max_examples=20)
@given(process=PROCESSES, seed=st.integers(0, 2**32))
def test_the_same_generator_gives_the_same_times_and_they_never_go_back(process: Arrivals, seed: int) -> None:
    times_s = list(islice(process.times_s(Random(seed)), 200))
    assert times_s == list(islice(process.times_s(Random(seed)), 200))
    assert OpenLoop(array("d", times_s), process.name, process.mean_rate).realised_rate == 200 / times_s[-1]


@given(rate=RATES)
def test_constant_arrivals_lie_at_multiples_of_the_gap_and_do_not_drift(rate: float) -> None:
    rng = Random(0)
    times_s = list(islice(Constant(rate).times_s(rng), 1000))
    assert times_s == [number / rate for number in range(1, 1001)]
    assert rng.getstate() == Random(0).getstate()


def test_gaps_of_constant_arrivals_are_equal() -> None:
    assert set(gaps(Constant(4.0), 100)) == {0.25}


@pytest.mark.parametrize("cv", [0.25, 0.5, 2.0])
def test_gamma_gaps_have_the_coefficient_of_variation_that_was_asked(cv: float) -> None:
    found = gaps(GammaArrivals(3.0, cv), 40_000)
    assert statistics.pstdev(found) / statistics.fmean(found) == pytest.approx(cv, rel=0.05)


def test_gamma_gaps_with_a_cv_of_one_are_those_of_poisson() -> None:
    found = sorted(gaps(GammaArrivals(1.0, 1.0), 40_000))
    # quantiles of the exponential distribution: -ln(1 - q)
    assert found[20_000] == pytest.approx(math.log(2), rel=0.03)
    assert found[36_000] == pytest.approx(math.log(10), rel=0.03)


@pytest.mark.parametrize("off_share", [0.0, 0.25])
def test_bursts_keep_their_mean_rate(off_share: float) -> None:
    process = OnOff.of_mean_rate(5.0, on_s=2.0, off_s=6.0, off_share=off_share)
    assert process.mean_rate == pytest.approx(5.0, rel=1e-12)
    assert process.rate_off == off_share * process.rate_on
    # the number in a span of 20,000 s has mean 100,000; bursts make its standard deviation about 2,500 (2.5 %)
    times_s = process.times_s(Random(1))
    assert sum(1 for _ in iter(lambda: next(times_s) < 20_000, False)) == pytest.approx(100_000, rel=0.1)


def test_bursts_are_silent_between_on_periods_only() -> None:
    found = gaps(OnOff(rate_on=100.0, on_s=1.0, off_s=9.0), 20_000)
    silent = [gap for gap in found if gap > 0.5]  # while on, a gap of half a second has a chance of exp(-50)
    assert len(silent) == pytest.approx(20_000 / 100, rel=0.25)  # one an on period of 100 requests
    assert statistics.fmean(silent) == pytest.approx(9.0, rel=0.25)


@pytest.mark.parametrize("rate", [0, -1.0, math.nan, math.inf, "3", True, 10**400])
def test_a_rate_that_is_no_rate_is_refused(rate: Any) -> None:
    for build in (
        lambda: Poisson(rate),
        lambda: Constant(rate),
        lambda: GammaArrivals(rate, 1.0),
        lambda: OnOff(rate, 1.0, 1.0),
        lambda: OnOff.of_mean_rate(rate, 1.0, 1.0),
        lambda: OnOff(1.0, rate, 1.0),
        lambda: OnOff(1.0, 1.0, rate),
    ):
        with pytest.raises(RequestError, match="finite number above 0"):
            build()


def test_other_parameters_that_cannot_be_are_refused() -> None:
    with pytest.raises(RequestError, match=r"lie between 0\.01 and 100"):
        GammaArrivals(1.0, 1000.0)
    with pytest.raises(RequestError, match="rate while off is -1"):
        OnOff(1.0, 1.0, 1.0, -1.0)
    with pytest.raises(RequestError, match="between 0 and 1"):
        OnOff.of_mean_rate(1.0, 1.0, 1.0, 2.0)
    with pytest.raises(RequestError, match="think time is -1"):
        ClosedLoop(1, 1, -1.0)


@pytest.mark.parametrize(
    ("times_s", "message"),
    [
        ([], "no arrival time"),
        ([0.0, math.nan, 1.0], r"arrival 1 \(counted from 0\) is at nan s"),
        ([0.0, 1.0, math.inf], "arrival 2 .* is at inf s"),
        ([-0.5, 1.0], r"first arrival is at -0\.5 s"),
        ([0.0, 2.0, 1.0, 3.0], r"arrival 2 .* is at 1\.0 s, before the one in front of it at 2\.0 s"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(times_s: list[float], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        open_loop(times_s)


def test_the_realised_rate_is_the_count_over_the_last_arrival() -> None:
    assert open_loop([1.0, 2.0, 8.0]).realised_rate == 3 / 8
    assert open_loop([0.0, 0.0]).realised_rate is None


@pytest.mark.parametrize(
    ("text", "process"),
    [
        ("poisson", Poisson(2.0)),
        ("Constant", Constant(2.0)),
        ("gamma:0.5", GammaArrivals(2.0, 0.5)),
        ("on-off:10:30", OnOff(8.0, 10.0, 30.0)),
        ("on-off:1min:60s:50%", OnOff(2.0 * 120 / 90, 60.0, 60.0, 120 / 90)),
    ],
)
def test_a_process_is_read_as_a_person_writes_it(text: str, process: Arrivals) -> None:
    assert parse_arrivals(text, 2.0) == process
    assert process.mean_rate == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("posson", "no arrival process is called 'posson'; write one of poisson, constant, gamma:CV"),
        ("", "no arrival process is called ''"),
        ("poisson:3", "has 1 fields; write poisson"),
        ("gamma", "has 0 fields; write gamma:CV"),
        ("on-off:3", "write on-off:ON:OFF"),
        ("gamma:nan", "finite number above 0"),
    ],
)
def test_a_process_that_is_not_known_is_refused_with_what_is(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_arrivals(text, 2.0)


@pytest.mark.parametrize("text", ["gamma:x", "on-off:3:x", "on-off:3:4:5"])
def test_a_field_that_is_not_a_number_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_arrivals(text, 2.0)


@pytest.mark.parametrize(
    ("times_s", "message"),
    [
        ([0.0, 4e18], "the last arrival is at 4e\\+18 s; times count from the start"),
        ([0.0, 1e-320], "which is no rate that can be kept"),
        ([0.0, 1e-300, 2e-13], "at most 1e\\+12 requests/s"),
    ],
)
def test_a_schedule_whose_steps_a_clock_could_not_tell_apart_is_refused(times_s: list[float], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        open_loop(times_s)
    assert open_loop([0.0, 1e9]).realised_rate == 2e-9


def test_users_who_think_for_centuries_are_refused() -> None:
    with pytest.raises(RequestError, match="of thinking alone"):
        ClosedLoop(2, 6, 1e9)
    assert ClosedLoop(2, 2, 1e300).thinking_s == 0.0


@pytest.mark.parametrize("process", [OnOff.of_mean_rate(1.0, 1e-9, 1e9), OnOff(1e-9, 1e-3, 1e-3)])
def test_bursts_that_bring_no_request_are_refused_and_not_waited_for(process: OnOff) -> None:
    with pytest.raises(RequestError, match="100,000 periods in a row brought no request"):
        list(islice(process.times_s(Random(0)), 300))
