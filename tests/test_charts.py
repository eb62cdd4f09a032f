from __future__ import annotations

import itertools
import json
import math
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.charts import (
    NARROW_PX,
    PALETTE,
    WIDE_PX,
    Spec,
    batch_curve_chart,
    gap_chart,
    group_labels,
    latency_chart,
    point_name,
    probe_chart,
    roofline_chart,
)
from inference_bench.charts.grammar import linear_ticks, log_ticks
from inference_bench.compare import Phase, Verdict
from inference_bench.render import svg
from inference_bench.roofline import Roof
from inference_bench.stats import Interval
from inference_bench.verify.result import CurvePoint, VerifyResult
from report.sample import (
    BANDWIDTH,
    PEAK,
    SHARES,
    bare_result,
    group,
    hostile_result,
    no_ceiling_result,
    point,
    sample_result,
    smollm2,
    with_findings,
)

CHARTS = (roofline_chart, batch_curve_chart, gap_chart, latency_chart, probe_chart)
RESULTS = ((sample_result, 5), (with_findings, 5), (bare_result, 2), (no_ceiling_result, 2), (hostile_result, 5))
WIDTHS = (WIDE_PX, NARROW_PX)
Maker = Callable[[], VerifyResult]


def walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key and value of a nested dict, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


def drawn(chart: Callable[[VerifyResult, int], Spec | None], result: VerifyResult, width: int = WIDE_PX) -> Spec:
    spec = chart(result, width)
    assert spec is not None
    return spec


def layers(spec: Spec, mark: str) -> list[Spec]:
    return [layer for layer in spec["layer"] if layer["mark"]["type"] == mark]


def rows(layer: Spec) -> list[dict[str, Any]]:
    return list(layer["data"]["values"])


def labels(spec: Spec) -> list[str]:
    return [row["label"] for layer in layers(spec, "text") for row in rows(layer)]


# ── every chart ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("make", "num_charts"), RESULTS)
def test_a_chart_holds_all_its_data_and_names_no_address(make: Maker, num_charts: int, width: int) -> None:
    found = [spec for chart in CHARTS if (spec := chart(make(), width)) is not None]
    assert len(found) == num_charts
    for spec in found:
        check_spec(spec, width)


def check_spec(spec: Spec, width: int) -> None:
    text = json.dumps(spec, allow_nan=False)
    assert "url" not in {key for key, _ in walk(spec)}
    assert "http" not in text.replace(spec["description"], "")
    assert spec["layer"]
    assert all(rows(layer) for layer in spec["layer"])
    assert spec["width"] + spec["padding"]["left"] + spec["padding"]["right"] == width
    assert "title" not in spec


def test_a_whole_result_draws_every_chart_at_both_widths() -> None:
    assert all(chart(sample_result(), width) for chart in CHARTS for width in WIDTHS)


def test_charts_without_data_are_left_out() -> None:
    bare = bare_result()
    nothing = replace(bare, points=())
    assert probe_chart(bare) is None
    assert latency_chart(bare) is None
    assert batch_curve_chart(bare) is None
    assert [chart(nothing) for chart in (roofline_chart, batch_curve_chart, gap_chart)] == [None, None, None]
    assert gap_chart(no_ceiling_result()) is None


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("chart", CHARTS)
def test_each_numeric_axis_has_a_written_label_for_each_tick_and_a_title_with_its_unit(
    chart: Callable[[VerifyResult, int], Spec | None], width: int
) -> None:
    spec = drawn(chart, sample_result(), width)
    axes = [
        encoding["axis"] for key, encoding in walk(spec) if key in {"x", "y"} and "values" in encoding.get("axis", {})
    ]
    assert axes
    for axis in axes:
        written = json.loads(axis["labelExpr"].partition("[round")[0])
        assert len(written) == len(axis["values"]) >= 2
        assert len(set(written)) == len(written)
        assert not any("e+" in label or "e-" in label for label in written)
        assert axis["title"]


@pytest.mark.parametrize("chart", CHARTS)
def test_the_narrow_drawing_has_letters_of_11_pixels_or_more_and_no_more_ticks_than_the_wide_one(
    chart: Callable[[VerifyResult, int], Spec | None],
) -> None:
    wide, narrow = (drawn(chart, sample_result(), width) for width in WIDTHS)
    sizes = [value for key, value in walk(narrow) if key.lower().endswith("fontsize")]
    assert sizes
    assert min(sizes) >= 11
    ticks = [
        [len(axis["values"]) for key, axis in walk(spec) if key == "axis" and "values" in axis]
        for spec in (wide, narrow)
    ]
    assert all(few <= many for many, few in zip(*ticks, strict=True))


# ── roofline ───────────────────────────────────────────────────────────────────────────────────────


def test_every_measured_point_stands_at_its_counted_intensity_and_measured_rate() -> None:
    result = with_findings()
    marks = layers(drawn(roofline_chart, result), "point")
    filled = next(layer for layer in marks if layer["mark"].get("filled") and "shape" in layer["encoding"])
    expected = {
        (point.bound.flops / point.bound.num_bytes, point.bound.flops / point.measured.seconds)
        for point in result.points
    }
    assert {(row["intensity_flops_per_byte"], row["flops_per_s"]) for row in rows(filled)} == expected
    assert len(rows(filled)) == 9


def test_the_ceiling_straight_above_a_point_is_the_lower_of_peak_and_intensity_times_bandwidth() -> None:
    hollow = next(
        layer for layer in layers(drawn(roofline_chart, sample_result()), "point") if not layer["mark"]["filled"]
    )
    assert len(rows(hollow)) == 8
    for row in rows(hollow):
        expected = min(PEAK, row["intensity_flops_per_byte"] * BANDWIDTH)
        assert row["ceiling_flops_per_s"] == pytest.approx(expected, rel=1e-12)


def test_the_roof_rises_with_the_bandwidth_to_the_ridge_and_is_flat_after_it() -> None:
    low, ridge, high = rows(layers(drawn(roofline_chart, sample_result()), "line")[0])
    assert low["flops_per_s"] == pytest.approx(low["intensity_flops_per_byte"] * BANDWIDTH)
    assert ridge["intensity_flops_per_byte"] == pytest.approx(PEAK / BANDWIDTH)
    assert ridge["flops_per_s"] == high["flops_per_s"] == PEAK
    assert "ridge 8.49" in labels(drawn(roofline_chart, sample_result()))


def test_without_a_peak_only_the_slope_is_drawn() -> None:
    spec = drawn(roofline_chart, bare_result())
    roof = rows(layers(spec, "line")[0])
    assert [row["flops_per_s"] for row in roof] == pytest.approx(
        [row["intensity_flops_per_byte"] * BANDWIDTH for row in roof]
    )
    assert "memory 20.5 GB/s" in labels(spec)
    assert not [label for label in labels(spec) if label.startswith(("compute", "ridge"))]


def test_without_any_ceiling_there_is_no_roof_and_no_hollow_mark() -> None:
    spec = drawn(roofline_chart, no_ceiling_result())
    assert layers(spec, "line") == []
    assert [layer["mark"]["filled"] for layer in layers(spec, "point")] == [True]


def test_the_label_of_the_memory_roof_has_the_slope_of_the_line_on_the_screen() -> None:
    for width in WIDTHS:
        spec = drawn(roofline_chart, sample_result(), width)
        low, ridge, _ = rows(layers(spec, "line")[0])
        domains = [spec["encoding"][axis]["scale"]["domain"] for axis in "xy"]
        across, up = (
            size * math.log(ridge[field] / low[field]) / math.log(domain[1] / domain[0])
            for size, field, domain in zip(
                (spec["width"], spec["height"]), ("intensity_flops_per_byte", "flops_per_s"), domains, strict=True
            )
        )
        angle = next(layer["mark"]["angle"] for layer in layers(spec, "text") if "angle" in layer["mark"])
        assert angle == pytest.approx(-math.degrees(math.atan2(up, across)))


def test_the_memory_roof_is_longer_than_its_label_even_where_the_ridge_is_far_to_the_left() -> None:
    result = sample_result()
    steep = Roof(result.ceiling.bandwidth_bytes_per_s, PEAK / 4, "fp32")
    points = tuple(point(smollm2(), steep, key, 0.02) for key in SHARES)
    for width in WIDTHS:
        spec = drawn(roofline_chart, replace(result, ceiling=steep, points=points), width)
        low, ridge, _ = rows(layers(spec, "line")[0])
        (low_x, high_x), (low_y, high_y) = (spec["encoding"][axis]["scale"]["domain"] for axis in "xy")
        rise = math.log(ridge["flops_per_s"] / max(low["flops_per_s"], low_y))
        length = math.hypot(
            spec["width"] * rise / math.log(high_x / low_x), spec["height"] * rise / math.log(high_y / low_y)
        )
        assert length > 6 * len("memory 20.5 GB/s")


def test_a_point_above_its_ceiling_is_ringed_and_one_below_is_not() -> None:
    ring = next(
        layer for layer in layers(drawn(roofline_chart, with_findings()), "point") if layer["mark"]["size"] > 200
    )
    assert [(row["phase"], row["batch"]) for row in rows(ring)] == [("decode", 8)]
    assert not [
        layer for layer in layers(drawn(roofline_chart, sample_result()), "point") if layer["mark"]["size"] > 200
    ]


def test_everything_on_the_roofline_lies_inside_its_axes() -> None:
    for make in (sample_result, with_findings, bare_result):
        spec = drawn(roofline_chart, make())
        (low_x, high_x), (low_y, high_y) = (spec["encoding"][axis]["scale"]["domain"] for axis in "xy")
        points = [row for layer in layers(spec, "point") for row in rows(layer)]
        assert points
        assert all(low_x < row["intensity_flops_per_byte"] < high_x for row in points)
        assert all(low_y < row["flops_per_s"] < high_y for row in points)


# ── batch ──────────────────────────────────────────────────────────────────────────────────────────


def test_measured_decode_is_tokens_over_step_time_and_its_interval_is_turned_over() -> None:
    result = sample_result()
    spec = drawn(batch_curve_chart, result)
    decode = [point.measured for point in result.points if point.measured.phase is Phase.DECODE]
    shown = {(row["batch"], row["context_tokens"]): row for row in rows(layers(spec, "point")[0])}
    assert len(shown) == len(decode) == 6
    for measured in decode:
        row = shown[measured.batch, measured.nominal_context_tokens]
        assert row["tokens_per_s"] == pytest.approx(measured.batch / measured.seconds)
        if measured.interval is None:
            assert (row["low_tokens_per_s"], row["high_tokens_per_s"]) == (None, None)
        else:
            assert row["low_tokens_per_s"] == pytest.approx(measured.batch / measured.interval.high)
            assert row["low_tokens_per_s"] < row["tokens_per_s"] < row["high_tokens_per_s"]
    assert all(row["low_tokens_per_s"] is not None for row in rows(layers(spec, "rule")[0]))


def test_an_interval_lies_inside_the_axis_however_wide_it_is() -> None:
    result = sample_result()
    wide = tuple(
        replace(
            item,
            measured=replace(
                item.measured, interval=Interval(item.measured.seconds / 9, item.measured.seconds * 9, 0.95)
            ),
        )
        for item in result.points
    )
    spec = drawn(batch_curve_chart, replace(result, points=wide))
    low, high = spec["encoding"]["y"]["scale"]["domain"]
    bars = rows(layers(spec, "rule")[0])
    assert len(bars) == 6
    assert all(low <= row["low_tokens_per_s"] < row["high_tokens_per_s"] <= high for row in bars)


def test_batches_are_ticked_at_powers_of_two_where_there_are_many() -> None:
    result = sample_result()
    many = tuple(CurvePoint(128, batch, 0.01, batch / 0.01) for batch in (1, 2, 3, 4, 6, 8, 12, 16))
    ticks = drawn(batch_curve_chart, replace(result, curve=many), NARROW_PX)["encoding"]["x"]["axis"]["values"]
    assert ticks == [1, 2, 4, 8, 16]


def test_the_ceiling_is_dashed_in_the_colour_of_its_context() -> None:
    result = sample_result()
    line = layers(drawn(batch_curve_chart, result), "line")[0]
    ceiling = [row for row in rows(line) if row["kind"] == "ceiling"]
    assert [(row["context_tokens"], row["batch"], row["tokens_per_s"]) for row in ceiling] == [
        (item.context_tokens, item.batch, item.tokens_per_s) for item in result.curve
    ]
    assert line["encoding"]["color"]["field"] == "context"
    assert line["encoding"]["color"]["scale"]["domain"] == ["128 tokens", "1,024 tokens"]
    dashes = dict(zip(*(line["encoding"]["strokeDash"]["scale"][key] for key in ("domain", "range")), strict=True))
    assert dashes == {"measured": [1, 0], "ceiling": [5, 4]}


def test_a_curve_starts_at_zero_unless_its_ceiling_is_so_far_above_that_a_log_scale_is_needed() -> None:
    result = sample_result()
    near = drawn(batch_curve_chart, result)["encoding"]["y"]
    assert near["scale"]["domain"][0] == 0
    far = tuple(replace(item, tokens_per_s=item.tokens_per_s * 100) for item in result.curve)
    assert drawn(batch_curve_chart, replace(result, curve=far))["encoding"]["y"]["scale"]["type"] == "log"
    assert "log scale" in drawn(batch_curve_chart, replace(result, curve=far))["encoding"]["y"]["axis"]["title"]


def test_the_probe_s_roof_is_the_lower_of_its_peak_and_intensity_times_its_bandwidth() -> None:
    result = sample_result()
    spec = drawn(probe_chart, result)
    shown = rows(layers(spec, "point")[0])
    assert [row["batch"] for row in shown] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    for row in shown:
        intensity = 2 * 8192 * 8192 * row["batch"] / (4 * (8192 * 8192 + 2 * 8192 * row["batch"]))
        assert row["roof_flops_per_s"] == pytest.approx(min(PEAK, intensity * BANDWIDTH), rel=1e-9)
        assert row["low_flops_per_s"] < row["flops_per_s"] < row["high_flops_per_s"]


# ── latency and gap ────────────────────────────────────────────────────────────────────────────────


def test_every_request_is_a_dot_for_its_first_and_one_for_its_last_token_and_the_tick_is_their_median() -> None:
    result = sample_result()
    spec = drawn(latency_chart, result)
    dots = rows(layers(spec, "point")[0])
    assert len(dots) == sum(len(item.ttft_s) + len(item.e2e_s) for item in result.groups) == 72
    ticks = {(row["group"], row["series"]): row["seconds"] for row in rows(layers(spec, "tick")[0])}
    first = group_labels(result.groups)[0]
    assert ticks[first, "to first token"] == pytest.approx(statistics.median(result.groups[0].ttft_s))
    assert ticks[first, "to last token"] == pytest.approx(statistics.median(result.groups[0].e2e_s))


def test_a_part_of_the_run_in_which_nothing_completed_keeps_its_row_and_says_so() -> None:
    spec = drawn(latency_chart, with_findings())
    assert labels(spec) == ["no request completed"]
    assert len(spec["encoding"]["y"]["scale"]["domain"]) == 5


def test_latencies_far_apart_take_a_log_scale() -> None:
    near, far = sample_result(), replace(sample_result(), groups=(group("slow", 1, 2.5),))
    assert "type" not in drawn(latency_chart, near)["encoding"]["x"]["scale"]
    assert drawn(latency_chart, far)["encoding"]["x"]["scale"]["type"] == "log"


def test_parts_of_a_run_that_would_read_the_same_are_numbered() -> None:
    names = group_labels(with_findings().groups)
    assert names[2:4] == ["4 at a time, 128 → 32 tokens #1", "4 at a time, 128 → 32 tokens #2"]
    assert len(set(names)) == len(names)


def test_a_bar_is_as_long_as_the_share_reached_even_beyond_the_ceiling() -> None:
    result = with_findings()
    bars, beyond = layers(drawn(gap_chart, result), "bar")
    assert [row["fraction_of_bound"] for row in rows(bars)] == [point.fraction_of_bound for point in result.points]
    assert [round(row["fraction_of_bound"], 9) for row in rows(beyond)] == [1.34]
    assert beyond["mark"]["color"] == PALETTE["finding"][0]


def test_each_bar_says_how_much_was_reached_and_what_limits_it() -> None:
    said = labels(drawn(gap_chart, with_findings()))
    assert "62.0 % memory" in said
    assert "71.0 % compute" in said
    assert "134 % compute" in said
    assert "ceiling" in said


def test_the_ceiling_is_marked_at_100_percent_and_lies_inside_the_axis() -> None:
    for make in (sample_result, with_findings):
        spec = drawn(gap_chart, make())
        assert [row["fraction_of_bound"] for row in rows(layers(spec, "rule")[0])] == [1.0]
        assert spec["encoding"]["x"]["scale"]["domain"][1] > 1.0


def test_no_two_points_have_the_same_name() -> None:
    points = with_findings().points
    assert {point.verdict for point in points} == {Verdict.BELOW, Verdict.NEAR, Verdict.ABOVE}
    for is_short in (False, True):
        assert len({point_name(point, is_short=is_short) for point in points}) == len(points)


# ── ticks ──────────────────────────────────────────────────────────────────────────────────────────


@given(st.floats(1e-9, 1e12), st.floats(1.5, 1e9), st.integers(2, 9))
def test_log_ticks_lie_in_their_range_and_are_few(low: float, ratio: float, most: int) -> None:
    ticks = log_ticks(low, low * ratio, most)
    assert len(ticks) <= most
    assert all(low <= tick <= low * ratio for tick in ticks)
    assert ticks == sorted(set(ticks))


@given(st.floats(1e-6, 1e12), st.integers(2, 9))
def test_linear_ticks_start_at_zero_are_even_and_end_in_the_last_step_below_the_top(high: float, most: int) -> None:
    ticks = linear_ticks(high, most)
    steps = {round((after - before) / high, 6) for before, after in itertools.pairwise(ticks)}
    assert ticks[0] == 0
    assert 2 <= len(ticks) <= most + 1
    assert len(steps) == 1
    assert high - ticks[-1] < ticks[1] * (1 + 1e-9)
    assert ticks[-1] <= high * (1 + 1e-9)


# ── colours ────────────────────────────────────────────────────────────────────────────────────────

# Machado, Oliveira and Fernandes 2009, table 1, severity 1.0: what people without one kind of cone see, in linear RGB
SIGHT = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}
TOGETHER = (("decode", "prefill", "finding"), ("c1", "c2", "c3", "c4"), ("prefill", "muted"))


def linear(colour: str) -> tuple[float, ...]:
    """sRGB to linear RGB, IEC 61966-2-1."""
    values = (int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5))
    return tuple(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values)


def luminance(colour: str) -> float:
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, contrast ratio."""
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def lab(colour: str, sight: str) -> tuple[float, float, float]:
    """CIE L*a*b* as seen with that sight, D65."""
    seen = [min(1.0, max(0.0, sum(a * b for a, b in zip(line, linear(colour), strict=True)))) for line in SIGHT[sight]]
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [sum(a * b for a, b in zip(line, seen, strict=True)) for line in to_xyz]
    x, y, z = (
        value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116
        for value in (xyz[0] / 0.9505, xyz[1], xyz[2] / 1.089)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_colour_stands_out_from_the_paper_and_text_can_be_read(theme: int) -> None:
    paper = PALETTE["paper"][theme]
    for role, colours in PALETTE.items():
        if role not in {"paper", "grid"}:
            assert contrast(colours[theme], paper) >= 3, role
    assert contrast(PALETTE["ink"][theme], paper) >= 7
    assert contrast(PALETTE["muted"][theme], paper) >= 4.5
    assert contrast(PALETTE["finding"][theme], paper) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_colours_that_stand_in_one_chart_are_told_apart_with_every_kind_of_sight(sight: str, theme: int) -> None:
    for roles in TOGETHER:
        for one, other in itertools.combinations(roles, 2):
            distance = math.dist(lab(PALETTE[one][theme], sight), lab(PALETTE[other][theme], sight))
            assert distance > 20, (one, other)


def test_each_colour_stands_for_one_role_so_that_a_page_can_replace_it() -> None:
    assert len({colours[0] for colours in PALETTE.values()}) == len(PALETTE)
    known = {colours[0] for colours in PALETTE.values()}
    for chart, width in itertools.product(CHARTS, WIDTHS):
        text = json.dumps(drawn(chart, sample_result(), width))
        used = set(re.findall(r'"(#[0-9a-f]+)"', text))
        assert used
        assert used <= known


def check_whole_chart(spec: Spec, width: int) -> None:
    """It is well made and can be drawn, and every place of its data lies inside."""
    check_spec(spec, width)
    assert json.loads(json.dumps(spec, allow_nan=False)) == spec
    assert svg(spec).startswith("<svg")
    places = [row for layer in spec["layer"] for row in rows(layer) if "label" not in row]
    assert places
    assert all(0 <= row["x"] <= spec["width"] and 0 <= row["y"] <= spec["height"] for row in places)


def check_words_inside(spec: Spec) -> None:
    """No word leaves the drawing, by the width of its letters."""
    left, right = -spec["padding"]["left"], spec["width"] + spec["padding"]["right"]
    for layer in layers(spec, "text"):
        align = layer["mark"].get("align", "center")
        for row in rows(layer):
            size = 6.0 * len(row["label"])
            start = row["x"] - {"left": 0.0, "center": size / 2, "right": size}[align]
            assert left <= start, row
            assert start + size <= right + 2, row
