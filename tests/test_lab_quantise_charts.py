"""The charts of the quantise lab: what they hold, and that they can be drawn and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from chart_checks import WIDTHS, check_colours, check_whole, rows
from inference_bench.charts import WIDE_PX, Spec
from inference_bench.charts.lab_quantise import compared, outlier_chart, pareto_front, quality_chart
from inference_bench.labs.quantise.result import QuantiseResult
from labs.quantise.sample import method, sample_result

CHARTS: tuple[Callable[[QuantiseResult, int], Spec | None], ...] = (quality_chart, outlier_chart)


def drawn(make: Callable[[QuantiseResult, int], Spec | None], width: int = WIDE_PX) -> Spec:
    spec = make(sample_result(), width)
    assert spec is not None
    return spec


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", CHARTS)
def test_a_chart_is_whole_as_wide_as_asked_and_says_in_words_what_it_shows(
    make: Callable[[QuantiseResult, int], Spec | None], width: int
) -> None:
    check_whole(drawn(make, width), width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", CHARTS)
def test_a_chart_is_drawn_in_the_pages_own_colours(
    make: Callable[[QuantiseResult, int], Spec | None], width: int
) -> None:
    check_colours(drawn(make, width))


def test_a_point_for_each_method_that_stores_most_weights_in_few_bits() -> None:
    names = {row["said"].partition(":")[0] for row in rows(drawn(quality_chart), "point")}
    assert names == {
        "int8 channel",
        "int4 channel",
        "int4 group 64",
        "GPTQ int4 group 64",
        "W8A8 static",
        "SmoothQuant 0.8 static",
    }


def test_fewer_bits_lie_further_left_and_a_larger_perplexity_higher() -> None:
    points = {row["said"].partition(":")[0]: row for row in rows(drawn(quality_chart), "point")}
    assert points["int4 channel"]["x"] < points["int4 group 64"]["x"] < points["int8 channel"]["x"]
    assert points["int4 channel"]["y"] < points["int4 group 64"]["y"] < points["int8 channel"]["y"]


def test_the_front_holds_what_nothing_else_beats_in_both() -> None:
    front = [row.name for row in pareto_front(compared(sample_result()))]
    assert front == ["int4 channel", "GPTQ int4 group 64", "int8 channel"]


def test_a_method_that_is_worse_in_one_and_equal_in_the_other_is_not_on_the_front() -> None:
    equal = [method("a", "x", 4.0, 30.0), method("b", "x", 4.0, 31.0), method("c", "x", 5.0, 30.0)]
    assert [row.name for row in pareto_front(equal)] == ["a"]


def test_the_front_is_named_in_the_drawing() -> None:
    labels = [row["label"] for row in rows(drawn(quality_chart), "text")]
    assert {"int4 channel", "GPTQ int4 group 64", "int8 channel", "float32"} <= set(labels)


def test_every_input_is_a_point_and_the_largest_is_said() -> None:
    spec = drawn(outlier_chart)
    assert len(rows(spec, "point")) == 6
    assert "32.0 times" in spec["description"]
    highest = min(rows(spec, "point"), key=lambda row: row["y"])
    assert highest["ratio"] == 32.0


def test_nothing_is_drawn_of_nothing() -> None:
    empty = replace(sample_result(), methods=(), outliers=())
    assert quality_chart(empty) is None
    assert outlier_chart(empty) is None


def test_a_method_that_breaks_the_model_does_not_hide_the_others() -> None:
    broken = method("int2 group 64", "Rounding to nearest", 2.25, 1e6)
    with_it = replace(sample_result(), methods=(*sample_result().methods, broken))
    assert quality_chart(with_it) == quality_chart(sample_result())
