from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.report.text import MAX_COLUMNS, display_columns, pad, printable, shorten, table, wrap

WORDS = st.text(alphabet=string.ascii_letters + "通义千问é ", max_size=60)
NUMBERS = st.integers(-(10**12), 10**12).map(lambda value: f"{value:,}")


def test_numbers_stand_to_the_right_under_their_header_and_texts_to_the_left() -> None:
    assert table(("part", "bytes"), [("weights", "96"), ("cache", "1,024")], "lr").splitlines() == [
        "part     bytes",
        "-------  -----",
        "weights     96",
        "cache    1,024",
    ]


def test_a_table_without_rows_is_its_header() -> None:
    assert table(("part", "bytes"), [], "lr").splitlines() == ["part  bytes", "----  -----"]


def test_a_wide_character_takes_two_columns_and_a_combining_mark_none() -> None:
    assert display_columns("通义") == 4
    assert display_columns("e\u0301") == 1
    lines = table(("name", "n"), [("通义", "1"), ("abcd", "22")], "lr").splitlines()
    assert lines[2:] == ["通义   1", "abcd  22"]


@given(st.lists(st.tuples(WORDS, NUMBERS, NUMBERS, WORDS, NUMBERS), max_size=6))
def test_no_line_of_a_table_is_wider_than_the_terminal_and_no_number_is_cut(rows: list[tuple[str, ...]]) -> None:
    text = table(("first column", "one", "two", "a text", "three"), rows, "lrrlr")
    assert max(map(display_columns, text.splitlines())) <= MAX_COLUMNS
    for row in rows:
        for number in (row[1], row[2], row[4]):
            assert number in text.split()


def test_a_table_of_many_numbers_is_folded_and_every_part_starts_with_the_first_column() -> None:
    headers = ("model", *(f"column {index}" for index in range(20)))
    text = table(headers, [("tiny", *(f"{index}00,000" for index in range(20)))], "l" + "r" * 20)
    blocks = text.split("\n\n")
    assert len(blocks) > 1
    assert all(block.startswith("model") for block in blocks)
    assert all(display_columns(line) <= MAX_COLUMNS for line in text.splitlines())
    assert {f"{index}00,000" for index in range(20)} <= set(text.split())


def test_a_row_with_another_number_of_cells_is_refused() -> None:
    with pytest.raises(ValueError, match="2 columns"):
        table(("a", "b"), [("1",)], "lr")


@given(
    st.text(alphabet=string.ascii_lowercase + "通义 ", min_size=1, max_size=400),
    st.sampled_from(["", "  - ", "name: "]),
)
def test_a_wrapped_paragraph_keeps_every_character_in_order_within_the_width(text: str, indent: str) -> None:
    wrapped = wrap(text, indent=indent, max_columns=40)
    assert max(map(display_columns, wrapped.splitlines()), default=0) <= 40
    assert wrapped.startswith(indent)
    assert "".join(wrapped.removeprefix(indent).split()) == "".join(text.split())


def test_further_lines_of_a_paragraph_stand_under_the_first() -> None:
    assert wrap("one two three", indent="- ", max_columns=9).splitlines() == ["- one two", "  three"]


def test_a_number_is_not_parted_from_its_percent_sign() -> None:
    assert wrap("it reached 62.0 % of it", max_columns=16).splitlines() == ["it reached", "62.0 % of it"]


def test_a_text_that_is_too_long_ends_in_an_ellipsis_and_is_never_wider_than_asked() -> None:
    assert shorten("attention projections", 12) == "attention p…"
    assert display_columns(shorten("通义千问", 4)) <= 4
    assert shorten("short", 12) == "short"


def test_padding_counts_columns_and_not_characters() -> None:
    assert pad("通", 4) == "通  "
    assert pad("7", 4, "r") == "   7"


def test_a_text_from_outside_cannot_move_the_cursor_or_turn_the_writing_direction() -> None:
    shown = printable("a\x1b[2J\u202eb\r\nc\x00")
    assert shown.isprintable()
    assert [char for char in shown if char.isascii()] == list("a[2Jbc")
    assert "\x1b" not in table(("a\x1b[31m",), [("b\x1b[0m",)], "l")


def test_a_percent_sign_keeps_what_follows_it_and_stays_with_its_number() -> None:
    assert wrap("within 15.0 %, so (12 %). Then") == "within 15.0 %, so (12 %). Then"
    assert wrap("about 15.0 %, so", max_columns=9).splitlines() == ["about", "15.0 %,", "so"]
