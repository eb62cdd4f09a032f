"""The pictures of the speculate lab: what they hold, and that they can be drawn and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from chart_checks import WIDTHS, check_colours, check_whole, rows
from inference_bench.charts import WIDE_PX, Spec
from inference_bench.charts.lab_speculate import MEASURED, PREDICTED, position_chart, speed_up_chart
from inference_bench.labs.speculate.result import SpeculateResult
from inference_bench.render import svg
from labs.speculate.sample import EXIT, sample

CHARTS: tuple[Callable[..., Spec | None], ...] = (speed_up_chart, position_chart)


def drawn(make: Callable[..., Spec | None], result: SpeculateResult | None = None, width: int = WIDE_PX) -> Spec:
    spec = make(result or sample(), width)
    assert spec is not None
    return spec


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", CHARTS)
def test_a_chart_is_whole_as_wide_as_asked_and_says_in_words_what_it_shows(
    make: Callable[..., Spec | None], width: int
) -> None:
    check_whole(drawn(make, width=width), width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", CHARTS)
def test_a_chart_is_drawn_in_the_pages_own_colours(make: Callable[..., Spec | None], width: int) -> None:
    check_colours(drawn(make, width=width))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", CHARTS)
def test_every_draft_is_named_in_the_legend(make: Callable[..., Spec | None], width: int) -> None:
    pytest.importorskip("vl_convert")
    said = svg({**drawn(make, width=width), "description": "without the names of drafts"})
    assert ">lookup<" in said
    assert f">{EXIT}<" in said


@pytest.mark.parametrize("make", CHARTS)
def test_without_a_run_there_is_no_chart(make: Callable[..., Spec | None]) -> None:
    assert make(replace(sample(), runs=())) is None


def test_every_draft_and_length_has_a_measured_and_a_predicted_point() -> None:
    found = {(row["draft"], row["gamma"], row["kind"]): row["speed_up"] for row in rows(drawn(speed_up_chart), "point")}
    assert found == {
        ("lookup", 2, MEASURED): 0.85,
        ("lookup", 2, PREDICTED): 0.95,
        ("lookup", 4, MEASURED): 1.12,
        ("lookup", 4, PREDICTED): 1.25,
        (EXIT, 2, MEASURED): 0.29,
        (EXIT, 2, PREDICTED): 0.3,
    }


def test_a_line_marks_where_nothing_is_gained() -> None:
    (mark,) = rows(drawn(speed_up_chart), "rule")
    assert (mark["speed_up"], mark["label"]) == (1.0, "no gain")


def test_places_are_those_of_each_drafts_longest_run() -> None:
    found = rows(drawn(position_chart), "point")
    assert [(row["draft"], row["place"]) for row in found] == [
        *(("lookup", place) for place in (1, 2, 3, 4)),
        *((EXIT, place) for place in (1, 2)),
    ]
    assert found[0]["share"] == pytest.approx(0.62)


def test_a_place_that_was_never_judged_has_no_point() -> None:
    result = sample()
    first = result.runs[1].by_position[0]
    unseen = replace(result.runs[1].by_position[3], num_trials=0, num_accepted=0)
    run = replace(result.runs[1], by_position=(first, unseen))
    assert [row["place"] for row in rows(drawn(position_chart, replace(result, runs=(run,))), "point")] == [1]
