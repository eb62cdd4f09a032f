"""The pictures of the grammar lab: what they hold, and that they can be drawn and read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from chart_checks import WIDTHS, check_colours, check_whole, check_words_apart, rows
from inference_bench.charts import WIDE_PX, Spec
from inference_bench.charts.lab_grammar import allowed_chart, parts_chart
from labs.grammar.sample import ALLOWED, TOKENS, result


def allowed(width: int = WIDE_PX) -> Spec:
    spec = allowed_chart(result(), width)
    assert spec is not None
    return spec


def parts(width: int = WIDE_PX) -> Spec:
    spec = parts_chart(result(), width)
    assert spec is not None
    return spec


CHARTS: tuple[Callable[[int], Spec], ...] = (allowed, parts)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", CHARTS)
def test_a_chart_is_whole_as_wide_as_asked_and_says_in_words_what_it_shows(
    make: Callable[[int], Spec], width: int
) -> None:
    spec = make(width)
    check_whole(spec, width)
    for row in rows(spec, "point"):
        assert 0 <= row["x"] <= spec["width"]
        assert 0 <= row["y"] <= spec["height"]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", CHARTS)
def test_a_chart_is_drawn_in_the_pages_own_colours(make: Callable[[int], Spec], width: int) -> None:
    check_colours(make(width))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", CHARTS)
def test_no_text_lies_over_another_or_beyond_the_edge(make: Callable[[int], Spec], width: int) -> None:
    check_words_apart(make(width), more_than=10)


@pytest.mark.parametrize("width", WIDTHS)
def test_each_step_is_a_point_higher_the_more_its_mask_allows(width: int) -> None:
    points = rows(allowed(width), "point")
    assert [row["num_allowed"] for row in points] == list(ALLOWED)
    assert [row["x"] for row in points] == sorted(row["x"] for row in points)
    by_count = sorted(points, key=lambda row: row["num_allowed"])
    assert all(low["y"] >= high["y"] for low, high in itertools.pairwise(by_count))
    assert {row["kind"] for row in points if row["num_allowed"] == 1} == {"one token allowed"}
    assert {row["kind"] for row in points if row["num_allowed"] > 1} == {"a choice"}


def test_the_tokens_taken_at_choices_are_named_and_forced_ones_are_not() -> None:
    spec = allowed()
    said = {row["label"] for row in rows(spec, "text")}
    chosen = {token for token, count in zip(TOKENS, ALLOWED, strict=True) if count > 1}
    assert {"M", "ate", "cook"} <= said
    assert "role" not in said
    assert len(chosen & said) >= 6
    assert "the whole vocabulary, 49,152" in said
    assert "at 8 (50.0 %) just one; at most 49,000" in spec["description"]


def test_each_part_has_its_median_its_percentile_and_its_longest_on_one_level() -> None:
    points = rows(parts(), "point")
    assert len(points) == 3 * 7
    for start in range(0, len(points), 3):
        three = points[start : start + 3]
        assert len({row["y"] for row in three}) == 1
        assert [row["figure"] for row in three] == ["median", "90th percentile", "longest"]
        assert three[0]["x"] <= three[1]["x"] <= three[2]["x"]
    model, mask = points[0]["x"], points[3]["x"]
    assert model > mask


def test_without_documents_there_is_nothing_to_draw() -> None:
    assert allowed_chart(replace(result(), example=None)) is None
    assert parts_chart(replace(result(), step_parts=())) is None
