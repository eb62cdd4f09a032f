from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest

from inference_bench.charts.accuracy import accuracy_chart, band_factor
from inference_bench.charts.grammar import NARROW_PX, WIDE_PX, Spec
from inference_bench.render import svg
from inference_bench.score.flow import score_tables
from inference_bench.score.summary import ScoreReport
from score.tables import PROMPTS, SERVING, WHOLE, write_table

MACHINES = ("H100 SXM", "RTX 4090", "M2 Max 30-core", "MI300X", "Ryzen 9 7950X")


@pytest.fixture
def found(tmp_path: Path) -> ScoreReport:
    rows = [
        {**kind, "hardware": machine, "batch_or_concurrency": str(batch)}
        for machine in MACHINES
        for kind in ({}, PROMPTS, WHOLE, SERVING, {**PROMPTS, **SERVING})
        for batch in (1, 1, 1, 4)
    ]
    return score_tables([write_table(tmp_path / "t.csv", *rows)])


def layers(spec: Spec, mark: str) -> list[Spec]:
    return [layer for layer in spec["layer"] if layer["mark"]["type"] == mark]


def labels(spec: Spec) -> list[str]:
    return [row["label"] for layer in layers(spec, "text") for row in layer["data"]["values"]]


@pytest.mark.parametrize("width", [WIDE_PX, NARROW_PX])
def test_every_scored_row_is_in_a_point_inside_the_drawing(found: ScoreReport, width: int) -> None:
    spec = accuracy_chart(found, width)
    assert spec is not None
    (points,) = layers(spec, "point")
    rows = points["data"]["values"]
    assert sum(row["rows"] for row in rows) == found.overall.scored == 100
    assert len(rows) < 100
    assert all(0 <= row["x"] <= spec["width"] and 0 <= row["y"] <= spec["height"] for row in rows)
    assert {row["phase"] for row in rows} == set(points["encoding"]["color"]["scale"]["domain"])
    assert spec["width"] + spec["padding"]["left"] + spec["padding"]["right"] == width


def test_each_class_of_machines_has_a_picture_with_its_name_and_error(found: ScoreReport) -> None:
    spec = accuracy_chart(found)
    assert spec is not None
    shown = labels(spec)
    assert set(found.by_hardware) <= set(shown)
    assert sum("20 rows, " in label for label in shown) == len(found.by_hardware) == 5


def test_labels_below_one_picture_do_not_reach_into_the_next(found: ScoreReport) -> None:
    for width in (WIDE_PX, NARROW_PX):
        spec = accuracy_chart(found, width)
        assert spec is not None
        below = next(layer for layer in layers(spec, "text") if layer["mark"].get("baseline") == "top")
        places = sorted(
            (row["y"], row["x"] - 3.4 * len(row["label"]), row["x"] + 3.4 * len(row["label"]))
            for row in below["data"]["values"]
        )
        assert all(one[0] != two[0] or one[2] <= two[1] for one, two in pairwise(places))


def test_a_right_prediction_lies_on_the_diagonal(found: ScoreReport) -> None:
    spec = accuracy_chart(found)
    assert spec is not None
    diagonal = layers(spec, "rule")[1]["data"]["values"]
    assert len(diagonal) == 5
    assert all(line["x2"] - line["x"] == pytest.approx(line["y"] - line["y2"], abs=0.3) for line in diagonal)


def test_the_band_is_the_factor_that_holds_four_of_five(found: ScoreReport) -> None:
    factor = band_factor(found.scored)
    ratios = [abs(math.log(row.predicted_s / row.measured_s)) for row in found.scored]
    assert sum(ratio <= math.log(factor) + 1e-12 for ratio in ratios) >= 80
    assert sum(ratio < math.log(factor) - 1e-12 for ratio in ratios) <= 80


def test_the_chart_is_plain_json_and_is_drawn(found: ScoreReport) -> None:
    spec = accuracy_chart(found)
    assert spec is not None
    assert json.loads(json.dumps(spec, allow_nan=False)) == spec
    assert svg(spec).startswith("<svg")
    assert "100 rows" in spec["description"]


def test_nothing_scored_is_no_chart(tmp_path: Path) -> None:
    assert accuracy_chart(score_tables([write_table(tmp_path / "t.csv", {"hardware": "Abacus"})])) is None


def test_one_row_is_a_chart(tmp_path: Path) -> None:
    spec = accuracy_chart(score_tables([write_table(tmp_path / "t.csv", {})]))
    assert spec is not None
    assert svg(spec)
