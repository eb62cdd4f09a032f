"""A page of metrics is read as the format says, and a hostile one ends in one error that does not repeat it."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.errors import ServerError
from inference_bench.measure.prometheus_text import MAX_PAGE_BYTES, parse_prometheus


def values(text: str) -> list[tuple[str, dict[str, str], float]]:
    return [(series.name, dict(series.labels), series.value) for series in parse_prometheus(text)]


def test_names_labels_and_numbers_are_read_and_comments_are_not() -> None:
    page = '# TYPE a gauge\na 1\n\nb_total{x="1",y="2",} -2.5e3\r\n  c{ x = "z" }\t.5\n# EOF\n'
    assert values(page) == [("a", {}, 1.0), ("b_total", {"x": "1", "y": "2"}, -2500.0), ("c", {"x": "z"}, 0.5)]


def test_escapes_braces_and_commas_inside_a_label_belong_to_it() -> None:
    assert values('a{x="q\\"}, {\\\\ \\n"} 1\n') == [("a", {"x": 'q"}, {\\ \n'}, 1.0)]


def test_the_infinities_and_nan_are_numbers() -> None:
    found = [value for _, _, value in values("a +Inf\nb -Inf\nc NaN\n")]
    assert found[:2] == [math.inf, -math.inf]
    assert math.isnan(found[2])


def test_times_and_exemplars_behind_the_number_are_left_out() -> None:
    page = 'a 1 1395066363000\nb_bucket{le="1"} 3 # {trace_id="x"} 0.5 1.7e9\n'
    assert [value for _, _, value in values(page)] == [1.0, 3.0]


def test_lines_of_other_names_are_passed_over_even_where_they_are_broken() -> None:
    page = "good 1\nbad{ 1\nbad two\n"
    assert [series.name for series in parse_prometheus(page, {"good"})] == ["good"]
    with pytest.raises(ServerError, match="line 2"):
        parse_prometheus(page)


@pytest.mark.parametrize(
    "line",
    [
        *("a", "a b", "a{", 'a{x="1"', "a{x=1} 2", 'a{x="1"y="2"} 2', 'a{x="1",x="2"} 2', "a 1 2 3", "a 0x10"),
        *("a 1_0", "9 1", "a{} ", "é 1", "a ١", "a+1", 'a{x="\\"} 1', "<html>", '{"error": 1}x'),
    ],
)
def test_what_is_no_series_is_an_error_that_does_not_repeat_it(line: str) -> None:
    if line.startswith("{"):  # a name in quotes is passed over, whatever it is
        assert values(line) == []
        return
    with pytest.raises(ServerError, match="line 1 of the page of metrics") as error:
        parse_prometheus(line)
    assert "html" not in str(error.value)


def test_a_page_or_line_or_number_of_series_beyond_the_limits_is_refused() -> None:
    with pytest.raises(ServerError, match="8 MiB"):
        parse_prometheus("#" * (MAX_PAGE_BYTES + 1))
    with pytest.raises(ServerError, match="too long"):
        parse_prometheus(f'a{{x="{"y" * 20_000}"}} 1')
    with pytest.raises(ServerError, match="20000 series"):
        parse_prometheus("a 1\n" * 20_001)
    many = ",".join(f'l{index}="v"' for index in range(65))
    with pytest.raises(ServerError, match="labels"):
        parse_prometheus(f"a{{{many}}} 1")


def test_a_line_made_to_be_slow_is_not() -> None:
    begin_s = time.process_time()
    for line in ("a " + "1" * 16_000 + "x", 'a{x="' + "\\" * 16_000, "a 1" + " " * 16_000 + "x", "a{" + " " * 16_000):
        with pytest.raises(ServerError):
            parse_prometheus(line)
    assert time.process_time() - begin_s < 5  # quadratic steps would take minutes


@given(st.text(max_size=200))
def test_any_text_gives_series_or_the_one_error(text: str) -> None:
    try:
        found = parse_prometheus(text)
    except ServerError:
        return
    assert all(isinstance(series.value, float) for series in found)


names = st.from_regex(r"[a-z_:][a-z0-9_:]{0,8}", fullmatch=True)
labels = st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True), st.text(max_size=10), max_size=3)


@given(names, labels, st.floats(allow_nan=False))
def test_what_was_written_comes_back(name: str, given_labels: dict[str, str], value: float) -> None:
    escaped = {
        key: text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"') for key, text in given_labels.items()
    }
    inside = ",".join(f'{key}="{text}"' for key, text in escaped.items())
    line = f"{name}{{{inside}}} {value!r}\n"
    assert values(line) == [(name, given_labels, value)]
