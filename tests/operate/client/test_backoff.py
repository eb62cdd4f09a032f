"""How long is paused."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.operate.client.backoff import choose_pause, full_jitter, parse_retry_after

SECONDS = st.floats(0.001, 1000, allow_nan=False)


@given(SECONDS, SECONDS, st.integers(1, 5000))
def test_a_pause_is_within_its_window_and_the_cap_however_many_failures(
    base_s: float, most_s: float, number: int
) -> None:
    window_s = base_s * 2.0 ** min(number - 1, 900)
    assert 0 <= full_jitter(base_s, most_s)(number) <= min(window_s, most_s) * (1 + 1e-12)


def test_the_draw_is_from_all_of_the_window_and_not_from_its_upper_part() -> None:
    random.seed(7)
    draw = full_jitter(1.0, 100.0)
    drawn = [draw(4) for _ in range(400)]  # the window is 8 s
    assert min(drawn) < 0.4
    assert max(drawn) > 7.6
    assert 3.5 < sum(drawn) / len(drawn) < 4.5


# the dates are those of RFC 9110, 5.6.7: three forms of one moment, 784111777 s after the epoch
@pytest.mark.parametrize(
    "date", ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
)
def test_retry_after_may_be_a_date_in_each_form_of_http(date: str) -> None:
    assert parse_retry_after(date, 784111777.0 - 12) == 12
    assert parse_retry_after(date, 784111777.0 + 12) == 0


def test_a_date_counts_from_the_servers_own_clock_where_it_says_its_time() -> None:
    until, sent = "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:30 GMT"
    assert parse_retry_after(until, 0.0, sent) == 7


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("0", 0), (" 120 ", 120), ("4, 9", 4), ("1.5", None), ("-1", None), ("soon", None), ("", None)],
)
def test_retry_after_is_a_whole_number_of_seconds_and_nothing_else(value: str, seconds: float | None) -> None:
    assert parse_retry_after(value, 0.0) == seconds


@given(SECONDS, st.none() | SECONDS, st.floats(-10, 1000), SECONDS)
def test_a_pause_keeps_to_what_was_asked_for_and_never_takes_more_than_there_is(
    drawn_s: float, asked_s: float | None, room_s: float, most_s: float
) -> None:
    pause_s = choose_pause(drawn_s, asked_s, room_s, most_s)
    if pause_s is None:
        assert room_s <= 0 or (asked_s is not None and asked_s > min(room_s, most_s))
        return
    assert (asked_s or 0) <= pause_s <= room_s
    assert pause_s <= (asked_s or 0) + drawn_s
