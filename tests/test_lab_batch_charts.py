"""The chart of the batch lab: what it holds, and that it can be drawn and read."""

from __future__ import annotations

import pytest

from chart_checks import WIDTHS, check_colours, check_whole, rows
from inference_bench.charts import WIDE_PX, Spec
from inference_bench.charts.lab_batch import batch_chart
from inference_bench.render import svg
from labs.batch.sample import sample_result


def drawn(width: int = WIDE_PX) -> Spec:
    spec = batch_chart(sample_result(), width)
    assert spec is not None
    return spec


@pytest.mark.parametrize("width", WIDTHS)
def test_the_chart_is_whole_as_wide_as_asked_and_says_in_words_what_it_shows(width: int) -> None:
    check_whole(drawn(width), width)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_chart_is_drawn_in_the_pages_own_colours(width: int) -> None:
    check_colours(drawn(width))


def test_each_batch_of_each_format_is_a_point_in_both_panels() -> None:
    points = rows(drawn(), "point")
    assert len(points) == 2 * 2 * 5
    rates = {(row["series"], row["batch"], round(row["tokens_per_s"], 6)) for row in points}
    assert ("float32", 16, 200.0) in rates  # the whole batch: 16 / 0.08 s
    assert ("float32", 16, 12.5) in rates  # each


def test_a_higher_rate_lies_higher() -> None:
    whole = [row for row in rows(drawn(), "point") if row["series"] == "float32"][:5]
    assert [row["y"] for row in whole] == sorted((row["y"] for row in whole), reverse=True)


def test_nothing_measured_is_no_chart() -> None:
    from dataclasses import replace

    assert batch_chart(replace(sample_result(), runs=())) is None


def test_both_formats_have_an_entry_in_the_legend() -> None:
    pytest.importorskip("vl_convert")
    text = svg(drawn())
    assert text.count(">float32<") == 1
    assert text.count(">bfloat16<") == 1
