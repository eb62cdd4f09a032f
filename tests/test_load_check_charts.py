"""Charts of loads that were predicted: both lines where they belong, nothing that was not measured, words inside."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from inference_bench.charts.grammar import NARROW_PX, PALETTE, WIDE_PX, Spec
from inference_bench.charts.load_check import load_check_cdf_chart, load_check_rate_chart
from inference_bench.stats import Interval
from inference_bench.verify.closed_loop import CapacityCheck, Figure, LoadCheck, LoadRow
from test_charts import check_whole_chart, check_words_inside, labels, layers, rows, walk

WIDTHS = (WIDE_PX, 700, NARROW_PX)


def load(place: str, rate: float, scale: float, error: float = 0.9) -> LoadRow:
    """40 requests whose first tokens come after scale · 10 ms, 20 ms, …; measured they took 1 / error times as long."""
    predicted = tuple(scale * 0.01 * (1 + index * 7 % 40) for index in range(40))
    measured = tuple(value / error for value in predicted)
    figures = (
        Figure("ttft_p50_s", scale * 0.205, scale * 0.205 / error, 40, 0.15),
        Figure("ttft_p99_s", scale * 0.396, scale * 0.396 / error, 40, 0.25),
        Figure("output_tokens_per_s", 20 * rate, 19.8 * rate, 40, 0.05),
    )
    return LoadRow(place, rate, rate, 40, 40, figures, predicted, measured, predicted, measured)


CHECK = LoadCheck("40 requests", 4.0, ("rules",), (load("below", 2.0, 1), load("near", 3.4, 2), load("past", 5.0, 12)))
CAPACITY = CapacityCheck(
    "p99 TTFT <= 1.00 s", 1.0, 0.5, 3.4, Interval(2.5, 3.6, 0.9), CHECK.rows[1], load("above", 3.91, 3), True, 3.4,
    "confirmed: 3.40 requests/s keep the objective", 3.5,
)  # fmt: skip


def failed(row: LoadRow) -> LoadRow:
    """The same with every fourth request failed."""
    kept = tuple(value if index % 4 else None for index, value in enumerate(row.measured_ttft_s))
    return replace(row, num_completed=30, measured_ttft_s=kept)


CHARTS = {
    "cdf": lambda width: load_check_cdf_chart(CHECK, width),
    "cdf of one": lambda width: load_check_cdf_chart(replace(CHECK, rows=CHECK.rows[:1]), width),
    "cdf with failures": lambda width: load_check_cdf_chart(replace(CHECK, rows=tuple(map(failed, CHECK.rows))), width),
    "rates": lambda width: load_check_rate_chart(CHECK, CAPACITY, width),
    "rates without a capacity": lambda width: load_check_rate_chart(CHECK, None, width),
    "rates without an objective": lambda width: load_check_rate_chart(CHECK, replace(CAPACITY, ttft_s=None), width),
    "one rate": lambda width: load_check_rate_chart(replace(CHECK, rows=CHECK.rows[:1]), None, width),
}


def drawn(name: str, width: int = WIDE_PX) -> Spec:
    spec = CHARTS[name](width)
    assert spec is not None
    return spec


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_holds_its_data_lies_inside_its_width_and_is_drawn(name: str, width: int) -> None:
    spec = drawn(name, width)
    check_whole_chart(spec, width)
    check_words_inside(spec)


@pytest.mark.parametrize("name", CHARTS)
def test_colours_are_roles_of_the_palette_and_letters_are_large_enough(name: str) -> None:
    spec = drawn(name, NARROW_PX)
    used = set(re.findall(r'"(#[0-9a-f]+)"', json.dumps(spec)))
    assert used
    assert used <= {light for light, _ in PALETTE.values()}
    assert min(value for key, value in walk(spec) if key.lower().endswith("fontsize")) >= 11


def line_of(spec: Spec, panel: str, series: str) -> list[tuple[float, float]]:
    found = [
        row for each in layers(spec, "line") for row in rows(each) if (row["panel"], row["series"]) == (panel, series)
    ]
    return [(row["x"], row["y"]) for row in sorted(found, key=lambda row: row["order"])]


def test_each_rate_has_a_measured_and_a_dashed_predicted_line_that_never_falls() -> None:
    spec = drawn("cdf")
    dash = layers(spec, "line")[0]["encoding"]["strokeDash"]["scale"]
    assert dict(zip(dash["domain"], dash["range"], strict=True)) == {"measured": [1, 0], "predicted": [5, 4]}
    for panel in ("below", "near", "past"):
        for series in ("measured", "predicted"):
            line = line_of(spec, panel, series)
            assert len(line) == 41
            assert all(x <= next_x and y >= next_y for (x, y), (next_x, next_y) in pairwise(line))
        slower, quicker = line_of(spec, panel, "measured"), line_of(spec, panel, "predicted")
        assert all(x > other for (x, _), (other, _) in zip(slower, quicker, strict=True))


def test_a_measured_line_ends_at_the_share_that_completed() -> None:
    spec = drawn("cdf with failures")
    measured, predicted = (line_of(spec, "near", series) for series in ("measured", "predicted"))
    top, bottom = predicted[-1][1], predicted[0][1]
    assert measured[-1][1] == pytest.approx(bottom - 0.75 * (bottom - top), abs=0.1)


def test_the_rates_hold_the_run_above_the_capacity_and_mark_it_with_the_objective() -> None:
    spec = drawn("rates")
    assert len(line_of(spec, "p99 TTFT", "measured")) == 4
    assert len(line_of(drawn("rates without a capacity"), "p99 TTFT", "measured")) == 3
    assert "predicted capacity" in labels(spec)
    assert "objective 1 s" in labels(spec)
    assert "predicted capacity" not in labels(drawn("rates without a capacity"))
    assert "objective 1 s" not in labels(drawn("rates without an objective"))
    assert "Confirmed: 3.40 requests/s keep the objective." in spec["description"]


def test_what_was_not_measured_is_not_drawn() -> None:
    nothing = replace(
        CHECK.rows[0],
        num_completed=0,
        figures=tuple(replace(figure, measured=None) for figure in CHECK.rows[0].figures),
        measured_ttft_s=(None,) * 40,
    )
    assert load_check_cdf_chart(replace(CHECK, rows=(nothing,))) is None
    assert load_check_rate_chart(replace(CHECK, rows=(nothing,))) is None
    assert load_check_cdf_chart(replace(CHECK, rows=())) is None
    spec = load_check_rate_chart(replace(CHECK, rows=(nothing, *CHECK.rows[1:])))
    assert spec is not None
    assert len(line_of(spec, "p50 TTFT", "measured")) == 2
    assert len(line_of(spec, "p50 TTFT", "predicted")) == 3
