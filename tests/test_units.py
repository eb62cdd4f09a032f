from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench import units
from inference_bench.errors import QuantityError

DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}


@pytest.mark.parametrize(("prefix", "factor"), [*DECIMAL.items(), *BINARY.items()])
def test_every_prefix_is_read_as_the_power_it_names(prefix: str, factor: int) -> None:
    assert units.parse_bytes(f"3 {prefix}B") == 3 * factor
    assert units.parse_count(f"3{prefix}") == 3 * factor


@given(st.floats(1, 999.0), st.sampled_from(list(DECIMAL.items())))
def test_a_printed_decimal_quantity_reads_back_within_its_digits(mantissa: float, prefix: tuple[str, int]) -> None:
    value = mantissa * prefix[1]
    assert units.parse_rate(units.format_si(value, "B/s", 4), "B/s") == pytest.approx(value, rel=1e-3)


@given(st.integers(0, 2**70))
def test_a_printed_binary_size_reads_back_within_its_digits(value: int) -> None:
    text = units.format_bytes_binary(value, 6)
    number, unit = text.split()
    assert float(number) * BINARY.get(unit.removesuffix("B"), 1) == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(999.6e9, "1.00 TB/s"), (999e9, "999 GB/s"), (1e12, "1.00 TB/s"), (0, "0 B/s"), (12, "12 B/s"), (None, "n/a")],
)
def test_rounding_never_prints_a_thousand_of_the_smaller_prefix(value: float | None, expected: str) -> None:
    assert units.format_si(value, "B/s") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0009996, "1.00 ms"),
        (0.5, "500 ms"),
        (1.0, "1.00 s"),
        (2e-6, "2.00 µs"),
        (0.0, "0 s"),
        (3e-8, "30.0 ns"),
        (None, "n/a"),
    ],
)
def test_durations_print_in_the_unit_that_suits_them(value: float | None, expected: str) -> None:
    assert units.format_seconds(value) == expected


@pytest.mark.parametrize(
    "text",
    ["", "abc", "1.5.2", "12 XB", "-1", "1e400", "nan", "inf", "0.5", "5 GB extra", "½", "١", "1,٠٠٠", "1\n", "\v1"],
)
def test_text_that_is_no_amount_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        units.parse_bytes(text, "size")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"), [("3", 3.0), ("100ms", 0.1), ("2 min", 120.0), ("5us", 5e-6), ("1h", 3600.0)]
)
def test_durations_are_read_in_every_unit(text: str, seconds: float) -> None:
    assert units.parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["3 fortnights", "-1s", "s", "MB", "١s", "1s\n"])
def test_a_duration_in_no_known_unit_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        units.parse_seconds(text)


def test_a_rate_needs_its_unit() -> None:
    with pytest.raises(QuantityError, match="B/s"):
        units.parse_rate("3.35 TB", "B/s")
    with pytest.raises(QuantityError, match="above zero"):
        units.parse_rate("0 B/s", "B/s")


def test_lengths_in_tokens_follow_the_fields_powers_of_two() -> None:
    assert [units.parse_tokens(text) for text in ("4k", "32K", "128k", "1M", "32000")] == [
        4096,
        32768,
        131072,
        1048576,
        32000,
    ]
    with pytest.raises(QuantityError, match="suffix"):
        units.parse_tokens("32GB")


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.format_number(1.2345e-30), "1.23e-30"),
        (units.format_number(-1.2345e-300), "-1.23e-300"),
        (units.format_number(1.2345e300), "1.23e+300"),
        (units.format_number(9.996e14), "1.00e+15"),
        (units.format_number(9.99e14), "999,000,000,000,000"),
        (units.format_number(1e-9), "0.00000000100"),
        (units.format_seconds(5e-324), "4.94e-315 ns"),
        (units.format_seconds(1e300), "1.00e+300 s"),
        (units.format_fraction(1e-300), "1.00e-298 %"),
        (units.format_si(1e300, "B/s"), "1.00e+282 EB/s"),
    ],
)
def test_a_number_of_any_size_is_short(shown: str, text: str) -> None:
    assert shown == text


@pytest.mark.parametrize("text", ["1%%", "%1", "1%5", "%", "1 % %"])
def test_a_share_has_one_percent_sign_behind_its_number(text: str) -> None:
    with pytest.raises(QuantityError):
        units.parse_fraction(text)


def test_a_percentage_may_have_spaces() -> None:
    assert units.parse_fraction(" 25 % ") == 0.25


def test_a_share_is_of_plain_digits_on_one_line() -> None:
    for text in ("٢٥%", "25%\n"):
        with pytest.raises(QuantityError):
            units.parse_fraction(text)


def test_a_size_may_have_the_spaces_of_a_page_it_was_copied_from() -> None:
    assert units.parse_bytes("24\N{NO-BREAK SPACE}GB") == 24 * units.GIGA


@pytest.mark.parametrize(
    "value",
    [10**400, -(10**400), 1e300, float("nan"), float("inf"), True, "1", None, [1]],
    ids=lambda value: repr(value)[:9],
)
def test_what_is_no_quantity_in_somebody_s_json_is_no_number(value: object) -> None:
    assert units.plain_number(value) is None


def test_a_number_in_somebody_s_json_is_itself() -> None:
    assert [units.plain_number(value) for value in (3, -0.5, 10**20, 0)] == [3.0, -0.5, 1e20, 0.0]
