"""Charts of the calculator: what lies where, what is said, that no label lies over another, and that nothing warns."""

from __future__ import annotations

import itertools
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from inference_bench.charts.batch_panels import batch_panels_chart
from inference_bench.charts.break_even import break_even_chart
from inference_bench.charts.ceilings import ceiling_chart, decode_curve_chart
from inference_bench.charts.context import context_chart
from inference_bench.charts.grammar import NARROW_PX, PALETTE, WIDE_PX, Spec, doubling_ticks, short_log_ticks, shortened
from inference_bench.charts.memory import memory_chart
from inference_bench.facts.hardware import hardware
from inference_bench.facts.load import known_loaded_model
from inference_bench.predict.context_curve import context_curve
from inference_bench.predict.cost_curve import cost_curve
from inference_bench.predict.fit import FitAnswer, FitRequest, fit
from inference_bench.predict.memory_parts import memory_parts
from inference_bench.predict.phases import RooflineTable
from inference_bench.predict.plan import Plan
from inference_bench.render import svg
from predict.scenarios import changed, planned
from report.sample import sample_result
from test_ceiling_charts import result
from test_charts import CHARTS as VERIFY_CHARTS
from test_charts import check_spec, labels, layers, rows, walk
from test_simulation_charts import CHARTS as SIMULATION_CHARTS

WIDTHS = (WIDE_PX, 700, NARROW_PX)
GEMMA = FitRequest(
    None, None, 32768, 8, "vllm"
)  # 10 full and 52 sliding layers, rounded to blocks, too much for an H100


@cache
def answer(name: str = "gemma-3-27b", machine: str | None = "h100", request: FitRequest = GEMMA) -> FitAnswer:
    return fit(known_loaded_model(name), hardware(machine) if machine else None, request)


@cache
def table(name: str = "qwen3-8b", machine: str = "h100", batch: int = 32) -> RooflineTable:
    return result(name, machine, {"batch": batch})


@cache
def money(*, is_even: bool = True) -> Plan:
    return planned(changed(traffic={"peak_factor": 1.5 if is_even else 4.0}, drop=("owned",)))


def context_of(name: str, machine: str | None, request: FitRequest, width: int) -> Spec | None:
    return context_chart(
        context_curve(known_loaded_model(name), hardware(machine) if machine else None, request), width
    )


CHARTS: dict[str, Callable[[int], Spec | None]] = {
    "memory": lambda width: memory_chart(answer(), width),
    "memory without a machine": lambda width: memory_chart(answer("qwen3-8b", None, FitRequest()), width),
    "memory of a rank": lambda width: memory_chart(
        answer("deepseek-v3", "h200", FitRequest("fp8", None, 65536, 4, devices=8)), width
    ),
    "memory of a state": lambda width: memory_chart(
        answer("Qwen3-Next-80B-A3B-Instruct", "b200", FitRequest(None, None, 65536, 16, "vllm")), width
    ),
    "batch": lambda width: batch_panels_chart(table(), width, 57),
    "batch that does not fit": lambda width: batch_panels_chart(table("gemma-3-27b", "rtx-4090"), width, 0),
    "batch alone": lambda width: batch_panels_chart(table("SmolLM2-135M", "t4", 1), width),
    "context": lambda width: context_of("gemma-3-27b", "h100", GEMMA, width),
    "context without a machine": lambda width: context_of("qwen3-8b", None, FitRequest(), width),
    "context of a pipeline": lambda width: context_of("deepseek-v3", "h200", FitRequest("fp8", devices=8), width),
    "break-even": lambda width: break_even_chart(money(), width),
    "no break-even": lambda width: break_even_chart(money(is_even=False), width),
    "rent alone": lambda width: break_even_chart(
        planned(changed(drop=("owned", "prices.hosted_input", "prices.hosted_output", "prices.hosted_cached"))), width
    ),
    "roofs": lambda width: ceiling_chart(
        table(), width, [table(machine=name) for name in ("b200", "rtx-4090", "h200", "mi300x")]
    ),
    "roofs of the slow": lambda width: ceiling_chart(
        table(machine="rtx-4090"), width, [table(machine="Server DDR5-6400 x12 (Xeon 6 Granite Rapids)")]
    ),
}


def drawn(name: str, width: int = WIDE_PX) -> Spec:
    spec = CHARTS[name](width)
    assert spec is not None
    return spec


# ── every chart ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_holds_its_data_and_is_as_wide_as_asked(name: str, width: int) -> None:
    spec = drawn(name, width)
    check_spec(spec, width)
    assert json.loads(json.dumps(spec, allow_nan=False)) == spec
    assert len(spec["description"]) > 60


@pytest.mark.parametrize("name", CHARTS)
def test_colours_are_roles_of_the_palette_and_letters_are_large_enough(name: str) -> None:
    spec = drawn(name, NARROW_PX)
    used = set(re.findall(r'"(#[0-9a-f]+)"', json.dumps(spec)))
    assert used
    assert used <= {light for light, _ in PALETTE.values()}
    assert min(value for key, value in walk(spec) if key.lower().endswith("fontsize")) >= 11


ALL_CHARTS: dict[str, Callable[[int], Spec | None]] = {
    **CHARTS,
    **{f"simulated {name}": chart for name, chart in SIMULATION_CHARTS.items()},
    **{chart.__name__: lambda width, chart=chart: chart(sample_result(), width) for chart in VERIFY_CHARTS},  # type: ignore[misc]
    "ceilings": lambda width: ceiling_chart(table(), width),
    "decode curve": lambda width: decode_curve_chart(table(), width),
}


@pytest.mark.parametrize("name", ALL_CHARTS)
def test_nothing_in_a_chart_makes_vega_lite_warn(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    vl_convert = pytest.importorskip("vl_convert")
    bad = {
        "mark": "point",
        "encoding": {"x": {"field": "a", "type": "quantitative", "scale": {"type": "log", "zero": False}}},
    }
    vl_convert.vegalite_to_svg({"data": {"values": [{"a": 1}]}, **bad}, vl_version="6.4", show_warnings=True)
    assert "zero" in capfd.readouterr().err, "a warning would be seen here"
    spec = ALL_CHARTS[name](WIDE_PX)
    assert spec is not None
    vl_convert.vegalite_to_svg(spec, vl_version="6.4", show_warnings=True)
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


SPOKEN = (
    "memory", "batch", "context", "break-even", "roofs", "ceilings", "simulated rate", "simulated capacity", "simulated timeline",
)  # fmt: skip


@pytest.mark.parametrize("name", SPOKEN)
def test_marks_say_what_they_are_in_the_drawing(name: str) -> None:
    spec = ALL_CHARTS[name](WIDE_PX)
    assert spec is not None
    said = [row["said"] for layer in spec["layer"] if layer["mark"].get("aria") for row in rows(layer)]
    assert len(said) >= 2
    assert all(re.search(r"\d", text) for text in said)
    picture = svg(spec)
    root = ElementTree.fromstring(picture)
    named = [element.get("aria-label") for element in root.iter() if element.get("aria-label")]
    assert named[0] == spec["description"]
    assert sorted(named[1:]) == sorted(said)
    assert len(picture) < (100_000 if name == "simulated timeline" else 60_000)


# ── labels ─────────────────────────────────────────────────────────────────────────────────────────

LABELLED = (
    "batch",
    "batch that does not fit",
    "batch alone",
    "context",
    "context without a machine",
    "break-even",
    "rent alone",
)


def _boxes(spec: Spec) -> Iterator[tuple[str, float, float, float]]:
    """Left, right and middle of each text, about as a sans-serif font draws it; its halo only once."""
    for layer in layers(spec, "text"):
        if "stroke" in layer["mark"]:
            continue
        align, baseline = layer["mark"].get("align", "center"), layer["mark"].get("baseline", "alphabetic")
        for row in rows(layer):
            size = 5.6 * len(row["label"])
            left = row["x"] - {"left": 0.0, "center": size / 2, "right": size}[align]
            middle = row["y"] + {"top": 6, "bottom": -6}.get(baseline, 0)
            yield row["label"], left, left + size, middle


@pytest.mark.parametrize("width", [WIDE_PX, NARROW_PX])
@pytest.mark.parametrize("name", LABELLED)
def test_no_text_lies_over_another_or_outside(name: str, width: int) -> None:
    spec = drawn(name, width)
    boxes = list(_boxes(spec))
    assert len(boxes) > 6
    for said, left, right, _ in boxes:
        assert left >= -spec["padding"]["left"], said
        assert right <= spec["width"] + spec["padding"]["right"] + 6, said
    for one, other in itertools.combinations(boxes, 2):
        is_apart = one[2] < other[1] or other[2] < one[1] or abs(one[3] - other[3]) > 9
        assert is_apart, (one, other)


# ── memory ─────────────────────────────────────────────────────────────────────────────────────────


def bars(spec: Spec) -> list[list[dict[str, Any]]]:
    """The segments of each bar, from the left."""
    by_top: dict[float, list[dict[str, Any]]] = {}
    for row in rows(next(layer for layer in layers(spec, "rect") if layer["mark"].get("aria"))):
        by_top.setdefault(row["top"], []).append(row)
    return [sorted(found, key=lambda row: row["start"]) for _, found in sorted(by_top.items())]


@pytest.mark.parametrize("name", [name for name in CHARTS if name.startswith("memory")])
def test_segments_lie_end_to_end_from_nothing(name: str) -> None:
    for bar in bars(drawn(name)):
        assert bar[0]["start"] == 0
        assert all(one["end"] == other["start"] for one, other in itertools.pairwise(bar))
        assert all(row["end"] - row["start"] == row["num_bytes"] > 0 for row in bar)


def test_one_bar_is_what_is_needed_and_the_other_what_the_usual_formula_says() -> None:
    found = answer()
    true, usual = bars(drawn("memory"))
    assert true[-1]["end"] == found.needed_bytes
    assert usual[-1]["end"] == found.naive_needed_bytes
    assert [(row["part"], row["num_bytes"]) for row in true] == [
        (part.name, part.num_bytes) for part in memory_parts(found).parts
    ]
    assert [row["part"] for row in true] == [
        "weights", "sliding attention", "full attention", "rounding of vLLM", "overhead"
    ]  # fmt: skip


def test_the_machine_s_memory_is_a_line_and_what_lies_beyond_is_outlined() -> None:
    spec, found = drawn("memory"), answer()
    memory = hardware("h100").memory_bytes
    (line,) = [row for layer in layers(spec, "rule") for row in rows(layer)]
    assert line["start"] == memory
    assert any(said.startswith("H100 SXM5 80GB: 85.") for said in labels(spec))
    outlined = rows(next(layer for layer in layers(spec, "rect") if layer["mark"].get("filled") is False))
    assert [(row["start"], row["end"]) for row in outlined] == [
        (memory, found.needed_bytes), (memory, found.naive_needed_bytes)
    ]  # fmt: skip
    assert list(dict.fromkeys(said for said in labels(spec) if said.endswith("too much"))) == [
        "by layer type: 87.0 GB, 1.43 GB too much", "by the usual formula: 191 GB, 105 GB too much"
    ]  # fmt: skip


def test_what_is_left_of_the_memory_is_free_and_the_bar_ends_at_the_line() -> None:
    found = answer("qwen3-8b", "rtx-4090", FitRequest("int4-g128", None, 32768, 2))
    spec = memory_chart(found)
    assert spec is not None
    for bar in bars(spec):
        assert bar[-1]["part"] == "free"
        assert bar[-1]["num_bytes"] == found.headroom_bytes
        assert bar[-1]["end"] == hardware("rtx-4090").memory_bytes
    assert not [layer for layer in layers(spec, "rect") if layer["mark"].get("filled") is False]
    assert any(said.endswith("18.2 GB, fits") for said in labels(spec))


def test_without_a_machine_there_is_no_line_and_nothing_is_free() -> None:
    spec = drawn("memory without a machine")
    assert layers(spec, "rule") == []
    assert {row["part"] for bar in bars(spec) for row in bar} == {
        "weights", "full attention", "overhead", "cache by the usual formula"
    }  # fmt: skip
    assert not any("fits" in said or "too much" in said for said in labels(spec))


def test_of_several_devices_it_is_the_fullest() -> None:
    spec = drawn("memory of a rank")
    found = answer("deepseek-v3", "h200", FitRequest("fp8", None, 65536, 4, devices=8))
    assert bars(spec)[0][0]["num_bytes"] == found.placement.weight_bytes < found.weights.total / 7
    assert "H200 SXM 141GB: 151 GB each" in labels(spec)
    assert "fullest of 8 devices" in spec["description"]


def test_parts_differ_by_texture_as_well_as_by_colour_and_the_key_says_how_large_each_is() -> None:
    for name in ("memory", "memory of a state"):
        spec = drawn(name)
        fills = {(row["ink"], row["fill"]) for bar in bars(spec) for row in bar}
        hatched = [layer for layer in layers(spec, "line") if layer["mark"]["stroke"] != PALETTE["paper"][0]]
        assert {fill for _, fill in fills} == {0, 1}
        assert hatched, "what is not there is hollow and hatched"
        said = labels(spec)
        assert {row["said"] for bar in bars(spec) for row in bar} - set(said) <= {"free 3.89 GB"}
    two = [row for row in bars(drawn("memory"))[0] if "attention" in row["part"]]
    assert two[0]["ink"] == two[1]["ink"]
    paper = next(layer for layer in layers(drawn("memory"), "line") if layer["mark"]["stroke"] == PALETTE["paper"][0])
    xs = [row["start"] for row in rows(paper) if row["start"] is not None]
    assert not any(two[0]["start"] < x < two[0]["end"] for x in xs)
    assert sum(two[1]["start"] < x < two[1]["end"] for x in xs) > 10


@pytest.mark.parametrize("width", [WIDE_PX, NARROW_PX])
def test_entries_of_the_key_stand_apart(width: int) -> None:
    for name in (name for name in CHARTS if name.startswith("memory")):
        spec = drawn(name, width)
        key = rows(layers(spec, "text")[-1])
        px = spec["width"] / spec["encoding"]["x"]["scale"]["domain"][1]
        places = sorted((row["top"], row["start"] * px, row["start"] * px + 6.2 * len(row["label"])) for row in key)
        assert len(places) >= 3
        for one, other in itertools.pairwise(places):
            assert one[0] + 15 < other[0] or one[2] + 12 < other[1], (name, one, other)
        assert all(right <= spec["width"] + spec["padding"]["right"] for _, _, right in places)


def test_layer_types_too_small_to_be_seen_are_one_part() -> None:
    found = answer()
    few = replace(
        found,
        placement=replace(found.placement, cache_bytes=sum(range(1, 4)), allocation=None),
        cache=replace(
            found.cache,
            layers=tuple(
                replace(found.cache.layers[0], layer_type=kind, num_bytes=size)
                for size, kind in enumerate(("full_attention", "sliding_attention", "chunked_attention"), 1)
            ),
            num_bytes=6,
        ),
    )  # type: ignore[arg-type]
    spec = memory_chart(few)
    assert spec is not None
    others = [row for row in bars(spec)[0] if row["part"] == "other layers"]
    assert [row["num_bytes"] for row in others] == [6]


# ── batch ──────────────────────────────────────────────────────────────────────────────────────────


def test_both_panels_have_every_batch_and_each_sequence_gets_its_share() -> None:
    spec, found = drawn("batch"), table()
    points = rows(next(layer for layer in layers(spec, "point") if layer["mark"].get("aria")))
    panels = {name: [row for row in points if row["panel"] == name] for name in {row["panel"] for row in points}}
    total, each = panels["all sequences (tokens/s)"], panels["each sequence (tokens/s)"]
    assert [row["batch"] for row in total] == [row["batch"] for row in each] == [row.batch for row in found.curve]
    for one, other in zip(total, each, strict=True):
        assert one["x"] == other["x"]
        assert one["tokens_per_s"] == pytest.approx(other["tokens_per_s"] * one["batch"])
    assert [row["y"] for row in total] == sorted((row["y"] for row in total), reverse=True)
    assert [row["y"] for row in each] == sorted(row["y"] for row in each)
    assert max(row["y"] for row in total) < min(row["y"] for row in each), "the panels do not overlap"


def test_the_batch_asked_for_is_ringed_in_both_panels_and_its_rates_are_said() -> None:
    spec, found = drawn("batch"), table()
    (rings,) = [layer for layer in layers(spec, "point") if layer["mark"]["size"] > 100]
    assert {row["batch"] for row in rows(rings)} == {32}
    assert len(rows(rings)) == 2
    asked = next(row for row in found.curve if row.batch == 32)
    assert {"batch 32: 3,110", "97.2 each"} <= set(labels(spec))
    assert asked.tokens_per_s == pytest.approx(3110, abs=0.5)
    assert asked.sequence_tokens_per_s == pytest.approx(97.2, abs=0.05)


def test_the_limit_the_balance_and_what_fits_are_lines_with_their_names() -> None:
    spec, found = drawn("batch"), table()
    said = labels(spec)
    assert "limit 5,547: reading caches" in said
    assert found.limits.tokens_per_s == pytest.approx(5547, abs=0.5)
    assert "weight products turn at 295" in said
    assert "largest that fits: 57" in said
    (band,) = layers(spec, "rect")
    assert len(rows(band)) == 2
    points = rows(next(layer for layer in layers(spec, "point") if layer["mark"].get("aria")))
    inside = {row["batch"] for row in points if row["x"] < rows(band)[0]["x"]}
    assert max(inside) == 32
    assert {row["x2"] for row in rows(band)} == {spec["width"]}


def test_where_nothing_fits_everything_is_shaded_and_where_nobody_asks_nothing_is() -> None:
    spec = drawn("batch that does not fit")
    assert {(row["x"], row["x2"]) for row in rows(layers(spec, "rect")[0])} == {(0, spec["width"])}
    assert "no batch fits" in labels(spec)
    assert layers(drawn("batch alone"), "rect") == []
    beyond = batch_panels_chart(table(), max_batch=5000)
    assert beyond is not None
    assert layers(beyond, "rect") == []
    assert "The largest batch that fits is 5,000." in beyond["description"]


def test_without_a_rate_there_is_no_curve() -> None:
    assert batch_panels_chart(replace(table(), curve=())) is None


# ── context ────────────────────────────────────────────────────────────────────────────────────────


def test_both_counts_are_drawn_and_the_usual_formula_lies_above() -> None:
    spec = drawn("context")
    curve = context_curve(known_loaded_model("gemma-3-27b"), hardware("h100"), GEMMA)
    cache, rates = [rows(layer) for layer in layers(spec, "line")]
    for name, field in (("by layer type", "cache_bytes"), ("usual formula", "usual_bytes")):
        shown = {row["context_tokens"]: row["num_bytes"] for row in cache if row["series"] == name}
        assert shown == {point.context_tokens: getattr(point, field) for point in curve.points}
    places = {(row["series"], row["context_tokens"]): row["y"] for row in cache}
    assert places["usual formula", 32768] < places["by layer type", 32768]
    assert places["usual formula", 1024] == places["by layer type", 1024]
    assert [row["tokens_per_s"] for row in rates] == [point.sequence_tokens_per_s for point in curve.points]


def test_what_is_free_is_a_line_between_the_contexts_that_fit_and_those_that_do_not() -> None:
    spec = drawn("context")
    curve = context_curve(known_loaded_model("gemma-3-27b"), hardware("h100"), GEMMA)
    assert curve.free_bytes is not None
    assert "free for it: 28.2 GB" in labels(spec)
    (limit,) = [row for layer in layers(spec, "rule") for row in rows(layer) if layer["mark"].get("strokeDash")]
    cache = {row["context_tokens"]: row for row in rows(layers(spec, "line")[0]) if row["series"] == "by layer type"}
    fits = {tokens for tokens, row in cache.items() if row["y"] > limit["y"]}
    assert fits == {point.context_tokens for point in curve.points if point.cache_bytes < curve.free_bytes}
    assert fits >= {1024}
    assert 131072 not in fits


def test_the_context_asked_for_is_ringed_on_every_curve() -> None:
    spec = drawn("context")
    (rings,) = [layer for layer in layers(spec, "point") if layer["mark"]["size"] > 100]
    assert [row["context_tokens"] for row in rows(rings)] == [32768] * 3
    assert {"25.0 GB", "133 GB"} <= set(labels(spec))


def test_without_a_machine_there_is_one_panel_and_without_a_cache_no_chart() -> None:
    alone, both = drawn("context without a machine"), drawn("context")
    assert alone["height"] < both["height"] / 1.8
    assert not any("tokens/s" in said for said in labels(alone))
    curve = context_curve(known_loaded_model("qwen3-8b"))
    assert context_chart(replace(curve, points=curve.points[:1])) is None
    bare = tuple(replace(point, cache_bytes=0, usual_bytes=None) for point in curve.points)
    assert context_chart(replace(curve, points=bare)) is None


def test_weights_that_do_not_fit_leave_no_line_and_the_words_say_so() -> None:
    curve = context_curve(known_loaded_model("deepseek-v3"), hardware("h100"), FitRequest())
    assert (curve.free_bytes or 0) < 0
    spec = context_chart(curve)
    assert spec is not None
    assert not any(said.startswith("free") for said in labels(spec))
    assert "Weights and overhead alone take more than the memory of H100 SXM5 80GB" in spec["description"]


# ── break-even ─────────────────────────────────────────────────────────────────────────────────────


def test_lines_are_those_of_the_cost_curve() -> None:
    curve = cost_curve([money()])
    assert curve is not None
    (line,) = layers(drawn("break-even"), "line")
    for expected in curve.lines:
        shown = [row for row in rows(line) if row["series"] == expected.name]
        assert [(row["requests_per_day"], row["usd_per_day"]) for row in shown] == list(expected.corners)
    stairs = [row for row in rows(line) if row["series"] == "24 GB card"]
    assert all(one["x"] == other["x"] or one["y"] == other["y"] for one, other in itertools.pairwise(stairs[:20]))


def test_break_evens_are_ringed_where_the_lines_cross_and_said() -> None:
    spec = drawn("break-even")
    (rings,) = [layer for layer in layers(spec, "point") if layer["mark"]["size"] > 100]
    assert [round(row["requests_per_day"]) for row in rows(rings)] == [10_000, 12_903]
    assert {"break-even 10,000", "break-even 12,903", "asked for: 2,000"} <= set(labels(spec))
    line = rows(layers(spec, "line")[0])
    first = min((row for row in line if row["series"] == "24 GB card"), key=lambda row: row["x"])
    assert {row["y"] for row in rows(rings)} == {first["y"]}, "on the first step"


def test_a_break_even_that_no_replica_carries_is_not_drawn_but_said() -> None:
    spec = drawn("no break-even")
    assert not [layer for layer in layers(spec, "point") if layer["mark"]["size"] > 100]
    assert "hosted costs less at every volume" in labels(spec)
    assert "never break even: 10,000 requests a day are more than a replica carries" in spec["description"]


def test_the_volume_asked_for_has_its_cost_on_every_line() -> None:
    spec = drawn("break-even")
    points = rows(layers(spec, "point")[0])
    assert {row["series"]: round(row["usd_per_day"], 2) for row in points} == {
        "24 GB card": 24.0, "hosted": 4.8, "hosted, prefix cached": 3.72
    }  # fmt: skip
    assert points[0]["said"] == "24 GB card, 2,000 requests a day: 1 replica(s), 24.0 USD a day"
    nobody = planned(changed(drop=("owned", "traffic.requests_per_day", "traffic.peak_factor")))
    without = break_even_chart(nobody)
    assert without is not None
    assert not any(said.startswith("asked") for said in labels(without))


def test_without_prices_there_is_no_chart() -> None:
    assert break_even_chart(planned(changed(drop=("prices", "owned")))) is None
    assert break_even_chart([]) is None


def test_several_plans_are_several_staircases() -> None:
    other = planned(changed(drop=("owned",), machine={"name": "another", "bandwidth": "3 TB/s"}))
    spec = break_even_chart([money(), other])
    assert spec is not None
    domain = layers(spec, "line")[0]["encoding"]["color"]["scale"]["domain"]
    assert domain == ["24 GB card", "another", "hosted", "hosted, prefix cached"]


# ── pieces ─────────────────────────────────────────────────────────────────────────────────────────


def test_doubling_ticks_are_powers_of_two_and_few() -> None:
    assert doubling_ticks(0.9, 1200, 12) == [float(1 << power) for power in range(11)]
    assert doubling_ticks(0.9, 1200, 4) == [1, 8, 64, 512]
    assert doubling_ticks(900, 1000, 4) == []


def test_short_log_ticks_fill_a_range_that_has_few_round_numbers() -> None:
    assert short_log_ticks(53, 210, 5) == [70, 100, 150, 200]
    assert short_log_ticks(1, 9, 3) == [1, 2, 5]


def test_a_name_without_room_loses_its_end() -> None:
    assert shortened("RTX 4090", 200) == "RTX 4090"
    assert shortened("Server DDR5-6400 x12", 68) == "Server DD…"
