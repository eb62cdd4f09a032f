from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.errors import TooFewSamplesError
from inference_bench.stats import median, quantile, quantile_interval, relative_spread

finite = st.floats(-1e9, 1e9)


@given(st.lists(finite, min_size=1, max_size=50))
def test_the_median_is_the_standard_librarys(values: list[float]) -> None:
    assert median(values) == pytest.approx(statistics.median(values))


@given(st.lists(finite, min_size=2, max_size=50))
def test_quantiles_equal_the_standard_librarys_inclusive_method(values: list[float]) -> None:
    expected = statistics.quantiles(values, n=100, method="inclusive")
    assert [quantile(values, index / 100) for index in range(1, 100)] == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(st.lists(finite, min_size=1, max_size=30), st.randoms())
def test_the_order_of_the_values_does_not_matter(values: list[float], rng: random.Random) -> None:
    shuffled = list(values)
    rng.shuffle(shuffled)
    assert quantile(shuffled, 0.9) == quantile(values, 0.9)


def test_no_values_is_an_error_and_not_zero() -> None:
    with pytest.raises(TooFewSamplesError):
        quantile([], 0.5)


def test_a_quantile_outside_0_to_1_is_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        quantile([1.0], 1.5)


@pytest.mark.parametrize(
    ("count", "q", "ranks"),
    # ranks tabulated for the sign-test interval of the median (Conover, Practical Nonparametric Statistics)
    [(6, 0.5, (1, 6)), (10, 0.5, (2, 9)), (20, 0.5, (6, 15)), (25, 0.5, (8, 18))],
)
def test_median_intervals_lie_at_the_tabulated_ranks(count: int, q: float, ranks: tuple[int, int]) -> None:
    interval = quantile_interval([float(rank) for rank in range(1, count + 1)], q)
    assert interval is not None
    assert (interval.low, interval.high) == ranks


@pytest.mark.parametrize(("count", "q"), [(0, 0.5), (5, 0.5), (200, 0.99)])
def test_too_small_a_sample_has_no_interval(count: int, q: float) -> None:
    assert quantile_interval([float(value) for value in range(count)], q) is None


def test_intervals_cover_the_true_median_as_often_as_they_claim() -> None:
    rng = random.Random(7)
    covered = 0
    for _ in range(400):
        interval = quantile_interval([rng.gauss(0, 1) for _ in range(30)], 0.5)
        assert interval is not None
        covered += interval.low <= 0 <= interval.high
    assert covered / 400 >= 0.93


def test_spread_is_half_the_interquartile_range_over_the_median() -> None:
    assert relative_spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(1 / 3)
    assert relative_spread([1.0, 2.0, 3.0]) is None
