"""The chart of the machine lab: what it holds, and that it can be drawn and read."""

from __future__ import annotations

import pytest

from chart_checks import WIDTHS, check_colours, check_whole, rows
from inference_bench.charts import WIDE_PX, Spec
from inference_bench.charts.lab_machine import machine_chart
from labs.machine.sample import result_of


def drawn(width: int = WIDE_PX) -> Spec:
    spec = machine_chart(result_of(), width)
    assert spec is not None
    return spec


@pytest.mark.parametrize("width", WIDTHS)
def test_the_chart_is_whole_as_wide_as_asked_and_says_in_words_what_it_shows(width: int) -> None:
    check_whole(drawn(width), width)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_chart_is_drawn_in_the_pages_own_colours(width: int) -> None:
    check_colours(drawn(width))


def test_every_product_is_a_point_where_its_rate_and_intensity_are() -> None:
    points = rows(drawn(), "point")
    # by hand: [1000, 1000] times 64 columns in float32 is 128 MFLOP over 4.512 MB
    found = [row for row in points if row["batch"] == 64 and row["series"] == "NumPy"]
    assert len(points) == 7
    assert found[0]["intensity_flops_per_byte"] == pytest.approx(128 / 4.512)
    assert found[0]["flops_per_s"] == pytest.approx(100e9)


def test_a_lower_roof_of_pytorch_is_dashed() -> None:
    dashed = [layer for layer in drawn()["layer"] if layer["mark"].get("strokeDash") == [7, 3]]
    assert dashed[0]["data"]["values"][-1]["flops_per_s"] == pytest.approx(50e9 / 0.99)
