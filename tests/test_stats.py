from __future__ import annotations

import math
import random
import statistics
import sys
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench import stats
from inference_bench.errors import TooFewSamplesError
from inference_bench.stats import (
    median,
    ordered,
    proportion_interval,
    quantile,
    quantile_interval,
    relative_spread,
    sorted_quantile,
    sorted_quantile_interval,
)

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


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60), st.floats(0, 1))
def test_many_values_and_few_are_put_in_order_alike_to_the_last_bit(values: list[float], q: float) -> None:
    pytest.importorskip("numpy")
    few = ordered(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stats, "_MANY", 1)
        many = ordered(values)
    assert isinstance(few, list)
    assert isinstance(many, array)  # NumPy has been there
    assert few == list(many)
    if len(values) > 1 and math.isfinite(max(values) - min(values)):
        assert sorted_quantile(few, q).hex() == sorted_quantile(many, q).hex()
        assert sorted_quantile_interval(few, 0.5) == sorted_quantile_interval(many, 0.5)


def test_many_values_are_put_in_order_without_numpy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "_MANY", 1)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert ordered([3.0, 1.0, 2.0]) == [1.0, 2.0, 3.0]


def test_an_interval_of_millions_lies_where_the_normal_law_says() -> None:
    count = 2_000_000
    interval = sorted_quantile_interval(range(count), 0.99)
    assert interval is not None
    half = 1.959964 * math.sqrt(count * 0.99 * 0.01)
    assert interval.low == pytest.approx(count * 0.99 - half, abs=3)
    assert interval.high == pytest.approx(count * 0.99 + half, abs=3)


@pytest.mark.parametrize(("count", "q"), [(30, 0.1), (500, 0.5), (700, 0.99), (20_000, 0.999)])
def test_an_interval_is_that_of_the_exact_binomial(count: int, q: float) -> None:
    binom = pytest.importorskip("scipy.stats").binom
    interval = quantile_interval([float(rank) for rank in range(1, count + 1)], q)
    below = binom.cdf(range(count + 1), count, q)
    low = next(k for k, share in enumerate(below) if share > 0.025)
    high = next(k for k, share in enumerate(below) if share >= 0.975) + 1
    assert (None if interval is None else (interval.low, interval.high)) == ((low, high) if low > 0 else None)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (1, 1, 0.2065, 1.0), (0, 0, None, None)],
)
def test_the_interval_of_a_proportion_is_wilsons(
    successes: int, trials: int, low: float | None, high: float | None
) -> None:
    """Values of Wilson's score interval by R's prop.test(correct = FALSE), to four places."""
    interval = proportion_interval(successes, trials)
    found = (None, None) if interval is None else (interval.low, interval.high)
    assert found == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(("successes", "trials"), [(3, 40), (17, 40), (39, 40), (1, 7)])
def test_the_ends_of_a_proportions_interval_are_where_the_score_test_just_rejects(successes: int, trials: int) -> None:
    """Wilson's own definition: |p - share| is 1.96 standard errors, taken at p."""
    interval = proportion_interval(successes, trials)
    assert interval is not None
    for p in (interval.low, interval.high):
        assert abs(successes / trials - p) / math.sqrt(p * (1 - p) / trials) == pytest.approx(1.959964)


@pytest.mark.parametrize(("successes", "trials"), [(-1, 5), (6, 5)])
def test_more_successes_than_trials_cannot_be(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match=f"{successes} successes of {trials} trials"):
        proportion_interval(successes, trials)
