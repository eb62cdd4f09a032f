"""The pictures of the cache lab: what they hold, and that they can be drawn and read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chart_checks import WIDTHS, check_colours, check_whole, check_words_apart, rows
from inference_bench.charts import PALETTE, WIDE_PX, Spec
from inference_bench.charts.lab_cache import append_chart, time_chart, unseen_chart
from labs.cache.sample import EMITTED, comparison, length_points, planted, store_points


def unseen(width: int = WIDE_PX) -> Spec:
    spec = unseen_chart((comparison(), *planted("toy"), *planted()), width)
    assert spec is not None
    return spec


def times(width: int = WIDE_PX) -> Spec:
    spec = time_chart(length_points(), width)
    assert spec is not None
    return spec


def appends(width: int = WIDE_PX) -> Spec:
    spec = append_chart(store_points(), width)
    assert spec is not None
    return spec


CHARTS: tuple[Callable[[int], Spec], ...] = (unseen, times, appends)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", CHARTS)
def test_a_chart_is_whole_as_wide_as_asked_and_says_in_words_what_it_shows(
    make: Callable[[int], Spec], width: int
) -> None:
    check_whole(make(width), width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", CHARTS)
def test_a_chart_is_drawn_in_the_pages_own_colours(make: Callable[[int], Spec], width: int) -> None:
    check_colours(make(width))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", CHARTS)
def test_no_text_lies_over_another_or_beyond_the_edge(make: Callable[[int], Spec], width: int) -> None:
    check_words_apart(make(width), more_than=6)


def test_a_line_reaches_from_the_first_wrong_logits_to_the_first_other_token() -> None:
    spec = unseen()
    (lines,) = [layer for layer in spec["layer"] if layer["mark"].get("stroke") == PALETTE["finding"][0]]
    px = spec["layer"][0]["data"]["values"]
    zero, unit = px[0]["x"], None
    points = rows(spec, "point")
    logits = {(round(row["y"], 1)): row for row in points if row["shown_by"] == "logits show it"}
    tokens = {(round(row["y"], 1)): row for row in points if row["shown_by"] == "tokens show it"}
    assert [row["token"] for row in logits.values()] == [2, 2, 3, 1]
    assert [row["token"] for row in tokens.values()] == [7, 1]
    for line in lines["data"]["values"]:
        y = round(line["y"], 1)
        unit = (logits[y]["x"] - zero) / logits[y]["token"]
        end = tokens[y]["token"] if y in tokens else EMITTED
        assert line["x2"] == pytest.approx(zero + unit * end, abs=unit / 5)


def test_faults_of_the_toy_and_sound_runs_are_not_drawn() -> None:
    assert len([row for row in rows(unseen(), "point") if row["shown_by"] == "logits show it"]) == len(planted())
    assert unseen_chart([comparison()]) is None


def test_each_length_is_a_point_of_both_series_and_says_how_many_times_longer() -> None:
    spec = times()
    assert len(rows(spec, "point")) == 6
    said = {row["label"] for row in rows(spec, "text")}
    assert {f"× {ratio}" for ratio in ("3.1", "7.8", "24")} <= said
    assert {"32", "128", "512"} <= said
    assert time_chart([]) is None
    assert append_chart([]) is None
