"""The waterfall of a step and the picture of a fit: what they hold, and that they can be drawn and read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from chart_checks import WIDTHS, check_colours, check_whole, check_words_apart, labels, rows
from gap.sample import MAXIMUM_SHARES, decode_step, prompt_step, sample_calibration
from inference_bench.calibrate.steps.forms import StepCalibration
from inference_bench.charts import PALETTE, WIDE_PX, Spec
from inference_bench.charts.step_fit import step_fit_chart
from inference_bench.charts.waterfall import waterfall_chart
from inference_bench.gap.parts import Cause, GapPart, StepGap
from inference_bench.gap.reading import read_gap

ERRORS = (-0.03, 0.02, 0.01, 0.04, -0.05)


def waterfall(width: int = WIDE_PX, calibration: StepCalibration | None = None) -> Spec:
    spec = waterfall_chart(read_gap(calibration or sample_calibration(errors=ERRORS)).steps, width)
    assert spec is not None
    return spec


def step_fit(width: int = WIDE_PX, calibration: StepCalibration | None = None) -> Spec:
    spec = step_fit_chart(calibration or sample_calibration(errors=ERRORS), width)
    assert spec is not None
    return spec


CHARTS: tuple[Callable[[int], Spec], ...] = (waterfall, step_fit)


# ── both ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", CHARTS)
def test_a_chart_is_whole_as_wide_as_asked_and_says_in_words_what_it_shows(
    make: Callable[[int], Spec], width: int
) -> None:
    check_whole(make(width), width, ("rect", "point"))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", CHARTS)
def test_a_chart_is_drawn_in_the_pages_own_colours(make: Callable[[int], Spec], width: int) -> None:
    check_colours(make(width))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", CHARTS)
def test_no_text_lies_over_another_or_beyond_the_edge(make: Callable[[int], Spec], width: int) -> None:
    check_words_apart(make(width), more_than=10)


# ── waterfall ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", WIDTHS)
def test_every_bar_begins_where_the_one_before_ends_and_the_last_is_what_was_measured(width: int) -> None:
    steps = read_gap(sample_calibration(errors=ERRORS)).steps
    spec = waterfall(width)
    bars = rows(spec, "rect")
    whole = [index for index, bar in enumerate(bars) if bar["part"] == "measured"]
    assert len(whole) == len(steps) == 3
    for step, low, high in zip(steps, [0, *(end + 1 for end in whole)], whole, strict=False):
        parts, total = bars[low:high], bars[high]
        assert math.fsum(bar["seconds"] for bar in parts) == pytest.approx(step.measured_s)
        assert total["seconds"] == step.measured_s
        px_per_s = (total["x2"] - total["x"]) / total["seconds"]
        place = total["x"]
        for bar in parts:
            start, end = (bar["x"], bar["x2"]) if bar["seconds"] >= 0 else (bar["x2"], bar["x"])
            assert start == pytest.approx(place, abs=0.15)
            assert end - start == pytest.approx(bar["seconds"] * px_per_s, abs=0.25)
            place = end
        assert place == pytest.approx(total["x2"], abs=0.3)
        assert [bar["y"] for bar in (*parts, total)] == sorted(bar["y"] for bar in (*parts, total))


def test_what_is_unexplained_below_zero_leads_back() -> None:
    spec = waterfall(calibration=sample_calibration(errors=[-0.1]))
    unexplained = [row for row in rows(spec, "rect") if row["kind"] == "unexplained"]
    assert len(unexplained) == 3
    assert all(row["seconds"] < 0 and row["x"] < row["x2"] for row in unexplained)
    assert any(label.startswith("−") and label.endswith("%") for label in labels(spec))


def test_the_bound_of_each_step_is_a_line_with_its_name() -> None:
    steps = read_gap(sample_calibration(errors=ERRORS)).steps
    spec = waterfall()
    (lines,) = [layer for layer in spec["layer"] if layer["mark"].get("stroke") == PALETTE["finding"][0]]
    bars = [row for row in rows(spec, "rect") if row["part"] == "measured"]
    for step, line, bar in zip(steps, lines["data"]["values"], bars, strict=True):
        share = (line["x"] - bar["x"]) / (bar["x2"] - bar["x"])
        assert share == pytest.approx(step.bound_s / step.measured_s, abs=0.002)
    assert sum(label.startswith("bound ") for label in set(labels(spec))) == 3


def test_parts_too_small_to_see_are_one_bar_and_no_more_than_three_steps_are_drawn() -> None:
    small = tuple(GapPart(cause, 1e-6, 1e-3, "") for cause in (Cause.CACHE, Cause.FIXED, Cause.REQUEST))
    rest = GapPart(Cause.WEIGHTS, 1e-3 - 3e-6, 1 - 3e-3, "")
    step = StepGap("decode", 1e-3, 9e-4, 1e-3, (rest, *small, GapPart(Cause.UNEXPLAINED, 0.0, 0.0, "")))
    spec = waterfall_chart([step] * 5)
    assert spec is not None
    bars = rows(spec, "rect")
    assert [bar["part"] for bar in bars[:4]] == [
        "weights at full bandwidth",
        "smaller parts",
        "unexplained",
        "measured",
    ]
    assert bars[1]["seconds"] == pytest.approx(3e-6)
    assert sum(bar["part"] == "measured" for bar in bars) == 3
    assert waterfall_chart([]) is None


def test_the_axis_of_errors_ends_where_a_prediction_cannot_be_further_off() -> None:
    """A prediction of nothing is off by -100 %; one of three times what is measured by +200 %."""
    spec = step_fit(calibration=sample_calibration(errors=[0.0, -0.7, 2.0]))
    said = {str(row["label"]) for row in rows(spec, "text") if str(row["label"])[0] in "+−"}
    assert said == {"−100 %", "+100 %", "+200 %"}


# ── the fit ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", WIDTHS)
def test_every_step_has_its_error_and_what_was_held_out_is_hollow(width: int) -> None:
    calibration = sample_calibration(errors=ERRORS)
    spec = step_fit(width, calibration)
    found = [row for row in rows(spec, "point")]
    cut = [each for each in calibration.observations if len(each.observation.batches) > 1]
    curves = [each for each in calibration.observations if each.observation.kind == "decode" and each not in cut]
    assert len(found) == len(calibration.observations) + len(curves)
    for layer in spec["layer"]:
        if layer["mark"]["type"] == "point":
            hollow = layer["mark"]["filled"] is False
            assert all(row["is_held_out"] is hollow for row in layer["data"]["values"])
    for row in found:
        assert row["error"] == pytest.approx(row["predicted_s"] / row["measured_s"] - 1)
    assert "6 of them held out" in spec["description"]


def test_the_formula_is_a_curve_at_each_context_with_its_name() -> None:
    spec = step_fit()
    lines = [layer for layer in spec["layer"] if layer["mark"]["type"] == "line"]
    assert [len(layer["data"]["values"]) for layer in lines] == [8, 8, 8]
    assert {"41 tokens", "265 tokens", "777 tokens"} <= set(labels(spec))


def test_without_decoding_over_batches_there_are_errors_alone() -> None:
    prompts = [prompt_step(tokens) for tokens in (32, 64, 128)]
    spec = step_fit(calibration=sample_calibration(steps=prompts))
    assert not [layer for layer in spec["layer"] if layer["mark"]["type"] == "line"]
    assert len(rows(spec, "point")) == 3
    nothing = replace(sample_calibration(), observations=())
    assert step_fit_chart(nothing) is None


@pytest.mark.parametrize("width", WIDTHS)
def test_large_batches_and_errors_beyond_any_expectation_still_lie_in_the_picture(width: int) -> None:
    steps = [decode_step(batch, context) for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256) for context in (42, 8000)]
    spec = step_fit(width, sample_calibration(MAXIMUM_SHARES, steps=steps, errors=[0.0, -0.7, 2.0]))
    for row in rows(spec, "point"):
        assert 0 <= row["x"] <= spec["width"]
        assert 0 <= row["y"] <= spec["height"]
    assert all(len(layer["data"]["values"]) <= 64 for layer in spec["layer"] if layer["mark"]["type"] == "line")
