from __future__ import annotations

import math
import random

import pytest

from inference_bench.compare_runs.resampling import (
    Share,
    Values,
    interval_of,
    quantile_change,
    relative_change,
    resample,
    share_change,
)
from inference_bench.stats import quantile


def test_a_weighted_quantile_is_that_of_the_values_written_out() -> None:
    draws = random.Random(3)
    each = [[draws.random() for _ in range(draws.randrange(4))] for _ in range(50)]
    weights = [draws.randrange(4) for _ in each]
    written = [value for values, times in zip(each, weights, strict=True) for value in values * times]
    for q in (0.0, 0.5, 0.9, 0.99, 1.0):
        assert Values.of(each).weighted_quantile(weights, q) == pytest.approx(quantile(written, q))


def test_many_values_give_the_same_by_either_way_of_summing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    draws = random.Random(4)
    each = [[draws.random()] for _ in range(6000)]
    weights = [draws.randrange(3) for _ in each]
    quick, quick_share = Values.of(each), Share.of([draws.random() < 0.3 for _ in each])
    assert not isinstance(quick.owners, list)
    monkeypatch.setattr("inference_bench.compare_runs.resampling._MANY", 1 << 60)
    plain, plain_share = Values.of(each), Share(list(quick_share.all_of), list(quick_share.among))
    assert isinstance(plain.owners, list)
    assert quick.weighted_quantile(weights, 0.99) == plain.weighted_quantile(weights, 0.99)
    assert quick_share.weighted(weights) == plain_share.weighted(weights)


def test_a_request_that_failed_is_longer_than_any_time() -> None:
    found = Values.of([[1.0], [2.0], [math.inf]])
    assert found.quantile(0.5) == 2.0
    assert found.quantile(0.6) == math.inf
    assert Values.of([[], []]).quantile(0.5) is None


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [(1.0, 1.2, 0.2), (1.0, math.inf, math.inf), (math.inf, 1.0, -1.0), (math.inf, math.inf, None), (0.0, 1.0, None)],
)
def test_a_change_from_or_to_what_is_longer_than_any_time(before: float, after: float, change: float | None) -> None:
    assert relative_change(before, after) == (None if change is None else pytest.approx(change))


def test_both_sides_see_the_same_blocks_so_that_what_they_share_is_no_difference() -> None:
    draws = random.Random(5)
    each = [[draws.lognormvariate(0, 1)] for _ in range(200)]
    twice = [[2 * value for value in values] for values in each]
    (changes,) = resample([quantile_change(Values.of(each), Values.of(twice), 0.5)], 200, (1, 1), resamples=50)
    assert changes == [pytest.approx(1.0)] * 50


def test_what_differs_from_run_to_run_widens_the_interval_of_several_runs() -> None:
    draws = random.Random(6)
    own = [[value * slow for value in [draws.lognormvariate(0, 0.05) for _ in range(100)]] for slow in (1.0, 1.5, 0.7)]
    pooled = Values.of([[value] for run in own for value in run])
    alike = Values.of([[value] for _ in range(3) for value in own[0]])
    (wide,) = resample([quantile_change(alike, pooled, 0.5)], 100, (3, 3), resamples=200)
    (narrow,) = resample([quantile_change(alike, alike, 0.5)], 100, (3, 3), resamples=200)
    assert max(wide) - min(wide) > 0.3
    assert max(narrow) - min(narrow) < 0.1


def test_an_interval_keeps_an_end_that_is_longer_than_any_time_and_needs_half_of_the_draws() -> None:
    found = interval_of([0.1, 0.2, math.inf, math.inf], 0.95, 4)
    assert found is not None
    assert found.high == math.inf
    assert interval_of([0.1, 0.2], 0.95, 5) is None


def test_a_share_counts_only_whom_it_is_about() -> None:
    share = Share.of([True, False, None, True])
    assert (share.counts, share.value) == ((2, 3), pytest.approx(2 / 3))
    assert Share.of([None, None]).value is None
    (changes,) = resample([share_change(Share.of([False] * 20), Share.of([True] * 20))], 20, (1, 1), resamples=5)
    assert changes == [1.0] * 5
