"""Dispersion is 0 for clockwork, 1 for Poisson, more for bursts; and nothing where there is too little."""

from __future__ import annotations

import statistics
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.errors import RequestError
from inference_bench.workload import (
    Constant,
    GammaArrivals,
    Poisson,
    index_of_dispersion,
    open_loop,
    summarise_arrivals,
)


def test_dispersion_is_the_variance_of_the_counts_over_their_mean() -> None:
    # bins from 10.0: [3, 0, 1], and 13.2 lies in the partial last bin; mean 4/3, variance 14/9
    assert index_of_dispersion([10.0, 10.1, 10.9, 12.0, 13.2]) == pytest.approx((14 / 9) / (4 / 3))


@given(
    gaps=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=200), bin_s=st.floats(0.2, 4.0), start=st.integers(0, 1000)
)
def test_dispersion_agrees_with_counting_bin_by_bin(gaps: list[float], bin_s: float, start: int) -> None:
    times_s = [float(start)]
    for gap in gaps:
        times_s.append(times_s[-1] + gap)
    num_bins = int((times_s[-1] - times_s[0]) / bin_s)
    found = index_of_dispersion(times_s, bin_s)
    if num_bins < 2:
        assert found is None
        return
    counts = [sum(int((time_s - start) / bin_s) == index for time_s in times_s) for index in range(num_bins)]
    assert found == pytest.approx(statistics.pvariance(counts) / statistics.fmean(counts), abs=1e-9)


def test_clockwork_poisson_and_bursts_differ() -> None:
    clockwork, poisson, bursts = (
        index_of_dispersion(list(islice(process.times_s(Random(0)), 20_000)))
        for process in (Constant(4.0), Poisson(4.0), GammaArrivals(4.0, 4.0))
    )
    assert clockwork == pytest.approx(0.0, abs=1e-9)
    assert poisson == pytest.approx(1.0, abs=0.1)
    assert bursts is not None
    assert bursts > 5


@pytest.mark.parametrize("times_s", [[], [3.0], [3.0, 4.9]])
def test_too_few_bins_give_no_dispersion(times_s: list[float]) -> None:
    assert index_of_dispersion(times_s) is None


def test_a_bin_that_is_no_span_is_refused() -> None:
    with pytest.raises(RequestError, match="bin is 0"):
        index_of_dispersion([1.0, 2.0], 0)


def test_a_long_quiet_trace_costs_no_bin_each() -> None:
    # 3 arrivals in 1e9 bins: variance / mean is 1 - 3e-9 + (two share a bin) 2/3
    assert index_of_dispersion([0.0, 0.5, 5e8, 1e9]) == pytest.approx(5 / 3)


def test_a_summary_says_the_nominal_and_the_realised_rate_and_the_dispersion() -> None:
    summary = summarise_arrivals(open_loop([0.5, 1.5, 2.5, 4.0], "poisson", 2.0))
    assert (summary.nominal_rate, summary.realised_rate) == (2.0, 1.0)
    assert summary.text == (
        "poisson: 4 requests, 2.00 nominal, 1.00 realised requests/s, index of dispersion 0 over bins of 1 s"
    )
    assert "n/a nominal" in summarise_arrivals(open_loop([0.5], "replay")).text
