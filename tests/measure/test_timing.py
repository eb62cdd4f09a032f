from __future__ import annotations

import pytest

from inference_bench.errors import MeasurementError
from inference_bench.measure.timing import RawTiming, Repeats, time_calls, wall_clock


class FakeClock:
    """A clock that only moves when the timed call says so."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.num_calls = 0

    def __call__(self) -> float:
        return self.now_s

    def call_taking(self, *durations_s: float) -> object:
        def call() -> None:
            self.now_s += durations_s[min(self.num_calls, len(durations_s) - 1)]
            self.num_calls += 1

        return call


def test_values_are_seconds_per_call_and_warm_ups_stay_apart() -> None:
    clock = FakeClock()
    # the cold call takes 8 s, the call that sets the loop count 2 s, then the values
    call = clock.call_taking(8.0, 2.0, 1.0, 1.5, 1.25)
    timing = time_calls(call, Repeats(num_values=3, min_values=1, min_value_s=0.5), wall_clock(clock))
    assert timing == RawTiming(values_s=(1.0, 1.5, 1.25), warmup_values_s=(8.0, 2.0), inner_loops=1)
    assert timing.median_s == 1.25


def test_a_short_call_is_repeated_until_one_value_is_long_enough() -> None:
    clock = FakeClock()
    timing = time_calls(
        clock.call_taking(0.25), Repeats(num_values=4, num_warmups=0, min_value_s=1.5), wall_clock(clock)
    )
    assert timing.inner_loops == 8  # 0.25, 0.5, 1.0 are too short; 2.0 is the first at or above 1.5
    assert timing.values_s == (0.25, 0.25, 0.25, 0.25)
    assert timing.warmup_values_s == (0.25, 0.25, 0.25, 0.25)
    assert clock.num_calls == (1 + 2 + 4 + 8) + 4 * 8


def test_a_value_at_exactly_the_least_length_is_long_enough() -> None:
    clock = FakeClock()
    timing = time_calls(clock.call_taking(0.5), Repeats(num_values=4, min_value_s=0.5), wall_clock(clock))
    assert timing.inner_loops == 1


def test_a_spent_budget_ends_the_repeats_but_not_before_the_fewest() -> None:
    clock = FakeClock()
    # cold 1 + calibration 1 + values; the sixth value would end at 8 s
    timing = time_calls(clock.call_taking(1.0), Repeats(num_values=50, budget_s=7.0), wall_clock(clock))
    assert len(timing.values_s) == 5
    timing = time_calls(clock.call_taking(1.0), Repeats(num_values=50, min_values=4, budget_s=0.0), wall_clock(clock))
    assert len(timing.values_s) == 4


def test_spread_is_half_the_interquartile_range_over_the_median() -> None:
    timing = RawTiming((1.0, 2.0, 3.0, 4.0, 5.0), (), 1)
    assert timing.spread_fraction == pytest.approx((4.0 - 2.0) / (2 * 3.0))
    assert RawTiming((1.0, 2.0, 3.0), (), 1).spread_fraction is None


def test_a_clock_that_stands_still_is_an_error() -> None:
    with pytest.raises(MeasurementError, match="clock stands still"):
        time_calls(lambda: None, Repeats(), wall_clock(lambda: 5.0))


@pytest.mark.parametrize(
    "wrong", [{"num_values": 3, "min_values": 4}, {"min_values": 0}, {"num_warmups": -1}, {"min_value_s": 0.0}]
)
def test_repeats_that_cannot_be_timed_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="cannot be timed"):
        Repeats(**wrong)


def test_the_default_clock_times_a_real_call() -> None:
    timing = time_calls(lambda: sum(range(100)), Repeats(num_values=4, min_value_s=0.0005))
    assert len(timing.values_s) == 4
    assert all(value > 0 for value in timing.values_s)
    assert timing.inner_loops > 1


def test_an_interrupt_passes_through() -> None:
    def call() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        time_calls(call)
