"""Rates, growth and restarts over a window; every expected figure is counted by hand."""

from __future__ import annotations

import math

import pytest

from inference_bench.operate.watch.history import History
from inference_bench.operate.watch.page import PageRead, read_metrics
from inference_bench.operate.watch.states import Figures
from operate.watch.fake_servers import vllm_page


def page(at_s: float, **values: float) -> PageRead:
    return read_metrics(vllm_page(**values), at_s, 0.01)


def figures(history: History, now_s: float) -> Figures:
    found = history.figures(now_s, cache_tokens=16_000, most_running=8)
    assert found is not None
    return found


def test_rates_are_differences_over_the_time_between_the_pages() -> None:
    history = History(60)
    history.add(page(10, tokens=100, preemptions=1, waiting=2, prefix_cache_hits_total=0, prefix_cache_queries_total=0))
    history.add(
        page(
            14,
            tokens=500,
            preemptions=3,
            waiting=10,
            cache=0.75,
            running=6,
            prefix_cache_hits_total=30,
            prefix_cache_queries_total=120,
        )
    )
    found = figures(history, 15)
    assert (found.output_tokens_per_s, found.preemptions_per_s, found.queue_growth_per_s) == (100.0, 0.5, 2.0)
    assert (found.prefix_hit_fraction, found.cache_headroom_tokens, found.free_requests) == (0.25, 4_000.0, 2.0)
    assert (found.age_s, found.window_s) == (1.0, 4.0)


def test_the_mean_time_to_the_first_token_is_of_the_window_and_not_since_the_start() -> None:
    history = History(60)
    for at_s, total_s, count in ((0, 1000.0, 10.0), (5, 1003.0, 12.0)):
        history.add(page(at_s, time_to_first_token_seconds_sum=total_s, time_to_first_token_seconds_count=count))
    assert figures(history, 5).ttft_mean_s == 1.5


def test_one_page_has_gauges_and_no_rates() -> None:
    history = History(60)
    history.add(page(0, waiting=3))
    found = figures(history, 0)
    assert (found.waiting, found.output_tokens_per_s, found.queue_growth_per_s, found.ttft_mean_s) == (
        3.0,
        None,
        None,
        None,
    )


def test_a_counter_that_goes_back_is_a_restart_and_what_came_before_is_forgotten() -> None:
    history = History(60)
    assert not history.add(page(0, tokens=5_000))
    assert not history.add(page(1, tokens=6_000))
    assert history.add(page(2, tokens=10))
    assert figures(history, 2).output_tokens_per_s is None
    assert not history.add(page(3, tokens=40))
    assert figures(history, 3).output_tokens_per_s == 30.0


def test_growth_is_the_slope_of_the_least_squares_line() -> None:
    history = History(60)
    for at_s, waiting in ((0, 0), (1, 4), (2, 2), (3, 6)):
        history.add(page(at_s, waiting=waiting))
    assert figures(history, 3).queue_growth_per_s == pytest.approx(1.6)  # 8 / 5, by hand


def test_pages_older_than_the_window_are_left_out() -> None:
    history = History(10)
    for at_s in range(30):
        history.add(page(at_s, tokens=100 * at_s))
    assert figures(history, 29).window_s == 10.0


def test_without_limits_headroom_is_unknown() -> None:
    history = History(10)
    history.add(page(0))
    found = history.figures(0, None, None)
    assert found is not None
    assert (found.cache_headroom_tokens, found.free_requests) == (None, None)


def test_values_beyond_everything_leave_the_figures_that_they_are_not_in() -> None:
    history = History(60)
    for at_s, sign in enumerate((1, -1, 1)):
        history.add(page(at_s, running=2, waiting=1e308, tokens=sign * 1e308, cache=0.5))
    found = figures(history, 3)
    assert (found.running, found.cache_used_fraction) == (2, 0.5)
    assert (found.waiting, found.queue_growth_per_s, found.output_tokens_per_s) == (None, None, None)


def test_the_largest_values_that_are_read_have_finite_figures() -> None:
    history = History(60)
    for at_s, waiting in enumerate((1e18, 0.0, 1e18)):
        history.add(page(at_s * 0.001, waiting=waiting, tokens=at_s * 1e17, preemptions=at_s * 1e17))
    found = figures(history, 1)
    values = (found.queue_growth_per_s, found.output_tokens_per_s, found.preemptions_per_s)
    assert all(value is not None and math.isfinite(value) for value in values)
