"""The charts of the roofline command: what they hold, and that no label lies over another."""

from __future__ import annotations

import itertools
import json
import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.accounting.weights import count_loaded_weights
from inference_bench.charts import NARROW_PX, PALETTE, WIDE_PX, Spec
from inference_bench.charts.callouts import Box, Named, place_callouts
from inference_bench.charts.ceilings import ceiling_chart, decode_curve_chart
from inference_bench.cli.picture import write_chart
from inference_bench.errors import RequestError
from inference_bench.facts.hardware import hardware, hardware_from_description
from inference_bench.facts.load import known_model
from inference_bench.facts.models import LoadedModel
from inference_bench.predict.phases import RooflineTable, roofline_table
from shapes import cache_in

CASES = [
    ("qwen3-8b", "h100", {}),
    ("qwen3-8b", "h100", {"batch": 300}),
    ("gemma-3-27b", "rtx-4090", {"prefill_chunk": 512}),
    ("qwen3-30b-a3b", "h100", {"devices": 4, "prefill_chunk": 256}),
    ("deepseek-v3", "b200", {"devices": 8, "context_tokens": 30_000}),
    ("Qwen3-Next-80B-A3B-Instruct", "b200", {"prompt_tokens": 64}),
    ("SmolLM2-135M", "t4", {"batch": 1}),
]


def result(name: str, machine: str, asked: dict[str, int]) -> RooflineTable:
    known = known_model(name)
    model = known if isinstance(known, LoadedModel) else LoadedModel(known)
    lengths = {"context_tokens": 4096, "batch": 32, "prompt_tokens": 4096, **asked}
    weights = count_loaded_weights(model, None)
    return roofline_table(model.spec, weights, cache_in("bf16"), hardware(machine), **lengths)  # type: ignore[arg-type]


def drawn(spec: Spec | None) -> Spec:
    assert spec is not None
    return spec


def rows(spec: Spec, mark: str) -> list[dict[str, Any]]:
    return [row for layer in spec["layer"] if layer["mark"]["type"] == mark for row in layer["data"]["values"]]


@pytest.mark.parametrize(("name", "machine", "asked"), CASES)
def test_every_phase_and_operation_with_an_intensity_is_a_named_point_on_the_roof(
    name: str, machine: str, asked: dict[str, int]
) -> None:
    found = result(name, machine, asked)
    spec = drawn(ceiling_chart(found))
    points = rows(spec, "point")
    expected = [item for item in (*found.phases, *(item for _, item in found.operations)) if item.intensity]
    assert len(points) == len(expected)
    for point in points:
        roof = found.ceiling.attainable_flops_per_s(point["intensity_flops_per_byte"])
        assert point["flops_per_s"] == pytest.approx(roof)
    labels = "\n".join(row["label"] for row in rows(spec, "text")).splitlines()
    assert {row["name"] for row in points} <= set(labels)
    assert json.dumps(spec, allow_nan=False)


OTHERS = ((), ("h200", "mi300x", "b200", "rtx-4090"))


@pytest.mark.parametrize("others", OTHERS, ids=len)
@pytest.mark.parametrize("width", [WIDE_PX, NARROW_PX])
@pytest.mark.parametrize(("name", "machine", "asked"), CASES)
def test_no_label_lies_over_another_or_under_the_edge(
    name: str, machine: str, asked: dict[str, int], width: int, others: tuple[str, ...]
) -> None:
    vl_convert = pytest.importorskip("vl_convert")
    beside = [result(name, other, asked) for other in others]
    spec = drawn(ceiling_chart(result(name, machine, asked), width, beside))
    boxes = [box for box in _text_boxes(vl_convert.vegalite_to_svg(spec, vl_version="6.4")) if box is not None]
    assert len(boxes) > 8
    assert all(box.left >= 0 and box.right <= width + 6 for _, box in boxes)
    overlapping = [(a, b) for a, b in itertools.combinations(boxes, 2) if a[1].meets(b[1])]
    assert not overlapping


def others_of(*machines: str, asked: dict[str, int] | None = None) -> list[RooflineTable]:
    return [result("qwen3-8b", machine, asked or {}) for machine in machines]


@pytest.mark.parametrize("width", [WIDE_PX, NARROW_PX])
def test_every_further_machine_has_its_roof_its_name_and_its_whole_steps(width: int) -> None:
    first, others = result("qwen3-8b", "h100", {}), others_of("b200", "rtx-4090", "h200", "mi300x")
    spec = drawn(ceiling_chart(first, width, others))
    lines = [layer for layer in spec["layer"] if layer["mark"]["type"] == "line"]
    assert len(lines) == 5
    assert len({json.dumps(layer["mark"].get("strokeDash")) for layer in lines}) == 5
    labels = [row["label"] for row in rows(spec, "text")]
    for table in (first, *others):
        assert f"{table.machine}, ridge {table.ceiling.ridge_flops_per_byte:.0f}" in labels
    hollow = next(layer for layer in spec["layer"] if layer["mark"].get("color") == PALETTE["paper"][0])
    found = hollow["data"]["values"]
    assert len(found) == 2 * len(others)
    for table, row in zip([table for table in others for _ in range(2)], found, strict=True):
        assert row["said"].startswith(table.machine)
        assert row["flops_per_s"] == pytest.approx(
            table.ceiling.attainable_flops_per_s(row["intensity_flops_per_byte"])
        )
    (low_x, high_x), (low_y, high_y) = (spec["encoding"][axis]["scale"]["domain"] for axis in "xy")
    for row in rows(spec, "point"):
        assert low_x < row["intensity_flops_per_byte"] < high_x
        assert low_y < row["flops_per_s"] < high_y
    assert "Beside it: B200 (ridge 281), RTX 4090 (ridge 164)" in spec["description"]


@pytest.mark.parametrize("width", [WIDE_PX, NARROW_PX])
def test_names_of_machines_stand_apart_from_one_another(width: int) -> None:
    cases = [("h100", ("b200", "rtx-4090", "h200", "mi300x")), ("b200", ("h100", "h200")), ("rtx-4090", ("h100",))]
    for machine, others in cases:
        spec = drawn(ceiling_chart(result("qwen3-8b", machine, {}), width, others_of(*others)))
        height, width_px = spec["height"], spec["width"]
        (low_x, high_x), (low_y, high_y) = (spec["encoding"][axis]["scale"]["domain"] for axis in "xy")
        boxes = []
        for layer in spec["layer"]:
            if layer["mark"]["type"] == "text" and "stroke" not in layer["mark"]:
                for row in (row for row in layer["data"]["values"] if "ridge" in row["label"]):
                    x = width_px * math.log(row["intensity_flops_per_byte"] / low_x) / math.log(high_x / low_x)
                    y = height * math.log(high_y / row["flops_per_s"]) / math.log(high_y / low_y)
                    size = 6.0 * len(row["label"])
                    left = x - {"left": 0.0, "center": size / 2, "right": size}[layer["mark"]["align"]]
                    boxes.append(Box(left, y - 5, left + size, y + 5))
        assert len(boxes) == len(others) + 1
        assert all(box.left >= 0 and box.top >= 0 and box.right <= width_px + 6 for box in boxes)
        for one, other in itertools.combinations(boxes, 2):
            assert not one.meets(other)


def test_the_picture_of_one_machine_is_the_same_with_no_others() -> None:
    found = result("qwen3-8b", "h100", {})
    assert ceiling_chart(found) == ceiling_chart(found, WIDE_PX, [])
    unknown = replace(found, ceiling=replace(found.ceiling, bandwidth_bytes_per_s=None, peak_flops_per_s=None))
    assert ceiling_chart(found) == ceiling_chart(found, WIDE_PX, [unknown])


def test_a_further_machine_without_a_compute_rate_is_a_slope_with_its_decode_step_alone() -> None:
    found, (other,) = result("qwen3-8b", "rtx-4090", {}), others_of("Server DDR5-6400 x12 (Xeon 6 Granite Rapids)")
    assert other.ceiling.peak_flops_per_s is None
    spec = drawn(ceiling_chart(found, WIDE_PX, [other]))
    hollow = next(layer for layer in spec["layer"] if layer["mark"].get("color") == PALETTE["paper"][0])
    assert [row["phase"] for row in hollow["data"]["values"]] == ["decode"]
    assert "Server DDR5-6400 x12 (Xeon 6 Granite Rapids)" in [row["label"] for row in rows(spec, "text")]


def _text_boxes(svg: str) -> list[tuple[str, Box] | None]:
    """Boxes of the callouts' texts, about as wide as a sans-serif font draws them, one a line."""
    root = ElementTree.fromstring(svg)
    found: list[tuple[str, Box] | None] = []
    spaces = "{http://www.w3.org/2000/svg}"
    colours = {light for role, (light, _) in PALETTE.items() if role in {"prefill", "decode", "c1"}}
    for text in root.iter(f"{spaces}text"):
        if text.get("fill") not in colours:
            continue
        x, y = _translation(text.get("transform", ""))
        for number, line in enumerate(text.iter(f"{spaces}tspan") if len(text) else [text]):
            width = 6.2 * len(line.text or "")
            left = x - width if text.get("text-anchor") == "end" else x
            top = y - 9 + 15 * number
            found.append((line.text or "", Box(left + 3, top + 3, left + width - 3, top + 8)))
    return found


def _translation(transform: str) -> tuple[float, float]:
    x, y = transform.removeprefix("translate(").partition(")")[0].split(",")
    return float(x), float(y)


names = st.lists(st.text("abcdefgh ", min_size=1, max_size=24), min_size=1, max_size=3).map(tuple)


@given(st.lists(st.tuples(st.floats(0, 500), names), min_size=1, max_size=9))
@settings(deadline=None)
def test_labels_with_room_meet_neither_each_other_nor_any_rule(points: list[tuple[float, tuple[str, ...]]]) -> None:
    line = [Named("", x, 400 - x / 2, lines) for x, lines in points]
    placed = place_callouts(line, lambda x: 400 - x / 2, Box(0, 0, 720, 3000))
    assert len(placed) == len(points)
    assert all(one.is_free for one in placed)
    for one, other in itertools.combinations(placed, 2):
        assert not one.box.meets(other.box)
        assert not one.box.meets(other.leader)
        assert not other.box.meets(one.leader)


def test_a_label_without_room_is_still_there_and_says_so() -> None:
    line = [Named("", 10.0 * i, 100.0 - i, ("a long label",) * 3) for i in range(8)]
    placed = place_callouts(line, lambda x: 100 - x / 10, Box(0, 0, 200, 160))
    assert len(placed) == 8
    assert not all(one.is_free for one in placed)


@pytest.mark.parametrize(("name", "machine", "asked"), CASES)
def test_the_curve_rises_to_below_its_limit_and_names_both(name: str, machine: str, asked: dict[str, int]) -> None:
    found = result(name, machine, asked)
    spec = drawn(decode_curve_chart(found))
    (line,) = (layer for layer in spec["layer"] if layer["mark"]["type"] == "line")
    rates = [row["tokens_per_s"] for row in line["data"]["values"]]
    limit = found.limits.tokens_per_s
    assert limit is not None
    assert rates == sorted(rates)
    assert max(rates) <= limit * (1 + 1e-9)
    labels = [row["label"] for row in rows(spec, "text")]
    assert any(label.startswith("limit ") for label in labels)
    assert any(label.startswith(f"batch {found.batch}") for label in labels)


def test_what_has_no_rate_is_not_drawn() -> None:
    nothing = replace(result("qwen3-8b", "h100", {}), curve=())
    assert decode_curve_chart(nothing) is None
    no_roof = replace(nothing, ceiling=replace(nothing.ceiling, bandwidth_bytes_per_s=None))
    assert ceiling_chart(no_roof) is None
    with pytest.raises(RequestError, match="nothing to draw"):
        write_chart(None, "chart.json")


def test_a_machine_without_a_compute_rate_is_drawn_with_its_slope_alone() -> None:
    machine = hardware_from_description({"name": "plain", "bandwidth": "100 GB/s"}, "plain")
    model = known_model("qwen3-8b")
    loaded = model if isinstance(model, LoadedModel) else LoadedModel(model)
    weights = count_loaded_weights(loaded, None)
    found = roofline_table(
        loaded.spec, weights, cache_in("bf16"), machine, context_tokens=100, batch=1, prompt_tokens=100
    )
    labels = [row["label"] for row in rows(drawn(ceiling_chart(found)), "text")]
    assert any(label.startswith("memory") for label in labels)
    assert not any(label.startswith(("compute", "ridge")) for label in labels)


def test_a_chart_file_is_a_picture_a_page_or_the_specification(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    spec = ceiling_chart(result("qwen3-8b", "h100", {}))
    for kind in ("svg", "html", "json"):
        write_chart(spec, str(tmp_path / f"chart.{kind}"))
    picture = (tmp_path / "chart.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(picture)
    assert float(root.get("width", "0")) == 720
    assert "var(" not in picture
    page = (tmp_path / "chart.html").read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in page
    assert "var(--decode" in page
    assert "<script" not in page
    assert json.loads((tmp_path / "chart.json").read_text(encoding="utf-8")) == spec


def test_another_kind_of_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"\.svg, \.html, \.json"):
        write_chart({}, str(tmp_path / "chart.png"))
    assert not list(tmp_path.iterdir())
