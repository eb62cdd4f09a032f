"""Tests of fit against published tables, closed forms and SciPy, which share no code with them."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest
from scipy import special, stats

from inference_bench.arrival_proof.asked import blur_of, hazards_of, relative_spread_of, uniforms_of
from inference_bench.arrival_proof.fit_tests import (
    dispersion_of,
    gamma_cdf,
    ks_p_value,
    ks_statistic,
    rate_p_value,
    repeat_p_value,
    shortest_p_value,
)
from inference_bench.workload import Constant, GammaArrivals, OnOff, Poisson


def test_the_statistic_is_the_worst_distance_from_the_diagonal() -> None:
    # steps to 1/3, 2/3, 1 at 0.1, 0.2, 0.9: the worst is 2/3 - 0.2
    assert ks_statistic([0.9, 0.1, 0.2]) == pytest.approx(2 / 3 - 0.2)
    assert ks_statistic([0.5]) == 0.5


@pytest.mark.parametrize(
    ("count", "statistic", "p"),  # Miller 1956, Table of percentage points of Kolmogorov statistics
    [(20, 0.29408, 0.05), (50, 0.18841, 0.05), (100, 0.13403, 0.05), (20, 0.35240, 0.01), (100, 0.16081, 0.01)],
)
def test_the_critical_values_are_those_of_the_published_table(count: int, statistic: float, p: float) -> None:
    assert ks_p_value(statistic, count) == pytest.approx(p, rel=0.03)


@pytest.mark.parametrize("count", [20, 100, 400, 5000])
def test_p_values_agree_with_the_exact_distribution(count: int) -> None:
    for p in (0.5, 0.1, 0.01, 1e-4):
        assert ks_p_value(float(stats.kstwo.isf(p, count)), count) == pytest.approx(p, rel=0.06 if p > 0.001 else 0.3)
    assert ks_p_value(0.0, count) == 1.0


@pytest.mark.parametrize("shape", [0.01, 0.25, 1.0, 2.0, 11.0, 400.0, 10_000.0])
def test_the_gamma_distribution_agrees_with_scipy(shape: float) -> None:
    for quantile in (0.001, 0.1, 0.5, 0.9, 0.999):
        x = float(special.gammaincinv(shape, quantile))
        assert gamma_cdf(shape, x) == pytest.approx(float(special.gammainc(shape, x)), rel=1e-9, abs=1e-12)
    assert gamma_cdf(shape, 0.0) == 0.0


def test_poisson_gaps_become_one_minus_exp() -> None:
    assert uniforms_of(Poisson(2.0), [math.log(2) / 2, math.log(4) / 2], 0.0) == pytest.approx([0.5, 0.75])
    assert hazards_of([0.5, 0.75]) == pytest.approx([math.log(2), math.log(4)])
    assert uniforms_of(Constant(2.0), [0.5], 0.0) is None


def test_interrupted_bursts_have_hyperexponential_gaps() -> None:
    # Kuczura 1973: with nothing while off, gaps are independent, exponential at a or b with weights w and 1 - w
    on, leave, enter = 40.0, 1 / 2, 1 / 6
    root = math.sqrt((on + leave + enter) ** 2 - 4 * on * enter)
    a, b = (on + leave + enter + root) / 2, (on + leave + enter - root) / 2
    w = (on - b) / (a - b)
    gaps_s = [0.001, 0.03, 5.0, 0.0002, 11.0]
    expected = [1 - w * math.exp(-a * gap) - (1 - w) * math.exp(-b * gap) for gap in gaps_s]
    assert uniforms_of(OnOff(40.0, 2.0, 6.0), gaps_s, 0.0) == pytest.approx(expected)


def test_bursts_at_one_rate_are_poisson_however_the_states_change() -> None:
    gaps_s = [0.1, 0.5, 0.02]
    assert uniforms_of(OnOff(5.0, 2.0, 6.0, 5.0), gaps_s, 0.0) == pytest.approx(uniforms_of(Poisson(5.0), gaps_s, 0.0))


def test_gaps_below_the_resolution_of_the_times_are_drawn_from_those_they_may_be() -> None:
    found = uniforms_of(Poisson(1.0), [0.0] * 1000, 0.5)
    assert found is not None
    least = 1 - math.exp(-0.5)
    assert max(found) < least
    assert ks_p_value(ks_statistic([u / least for u in found]), 1000) > 0.001


def test_the_dispersion_of_ten_a_bin_is_zero_and_improbable() -> None:
    index, p = dispersion_of([1.0] * 400) or (None, None)
    assert index == pytest.approx(0.0, abs=0.03)  # 10 in each of 40 bins, but for one at an edge
    assert p is not None
    assert p < 1e-6
    assert dispersion_of([1.0] * 50) is None


def test_the_rate_is_judged_by_the_time_of_all_gaps() -> None:
    # gamma of shape 100 has deviation 10: 100 in 100 is the middle, 100 in 140 is 1 in 10,000
    assert rate_p_value([1.0] * 100) == pytest.approx(1.0, abs=0.05)
    assert rate_p_value([1.4] * 100) == pytest.approx(2 * float(stats.gamma.sf(140, 100)), rel=0.2)


def test_gaps_that_come_again_are_found_at_their_distance_and_others_are_not() -> None:
    rng = Random(1)
    some = [rng.random() for _ in range(200)]
    assert repeat_p_value([u for u in some for _ in range(2)]) < 1e-9
    assert repeat_p_value([*some, *some]) < 1e-9
    assert repeat_p_value([rng.random() for _ in range(400)]) > 0.01


def test_the_shortest_gap_is_one_minus_its_probability_to_the_power_of_all() -> None:
    assert shortest_p_value([0.1, 0.2]) == pytest.approx(0.81)


def test_what_lateness_blurs_is_a_share_of_the_gaps() -> None:
    assert blur_of(Poisson(10.0), [0.1], 0.01) == pytest.approx(1 - math.exp(-0.1))
    assert blur_of(OnOff(40.0, 2, 6), [0.1], 0.01) == pytest.approx(1 - math.exp(-0.4))
    assert blur_of(GammaArrivals(10.0, 1.0), [0.1], 0.01) == pytest.approx(1 - math.exp(-0.1))


def test_the_spread_of_the_time_of_all_is_that_of_many_draws() -> None:
    for process in (Poisson(5), GammaArrivals(5, 2), OnOff.of_mean_rate(5, 1, 3, 0.2)):
        ends_s = []
        for seed in range(300):
            times_s = process.times_s(Random(seed))
            ends_s.append([next(times_s) for _ in range(400)][-1])
        mean_s = sum(ends_s) / len(ends_s)
        spread = math.sqrt(sum((end - mean_s) ** 2 for end in ends_s) / len(ends_s)) / mean_s
        assert relative_spread_of(process, 400) == pytest.approx(spread, rel=0.15)


def test_uniforms_of_correlated_bursts_are_uniform_and_independent() -> None:
    process = OnOff.of_mean_rate(10, 1, 3, 0.2)
    times = process.times_s(Random(5))
    uniforms = uniforms_of(process, [b - a for a, b in pairwise([next(times) for _ in range(5000)])], 0.0)
    assert uniforms is not None
    assert float(stats.kstest(uniforms, "uniform").pvalue) > 0.01
    assert abs(float(stats.spearmanr(uniforms[:-1], uniforms[1:]).statistic)) < 0.04
