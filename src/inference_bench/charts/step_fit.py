"""How well does the fitted formula say how long steps take, and how far is it off where it has not seen them?

In:   StepCalibration and the width of the drawing in CSS pixels
Out:  one Spec, or None without measured steps
Leaves out: the formula's numbers (report)
Read next by: report.

Two pictures: decoding over the batch with the formula as curves, where a kink is a change of kernel; and every step's error
over its time, which a diagonal from milliseconds to seconds would not show. Steps that were held out of the fit are hollow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.calibrate.steps.forms import FittedObservation, StepCalibration
from inference_bench.calibrate.steps.observations import StepKind
from inference_bench.charts.callouts import Box
from inference_bench.charts.grammar import (
    LIGHT,
    WIDE_PX,
    Frame,
    Row,
    Spec,
    context_label,
    is_narrow,
    layer,
    linear_ticks,
    nominal,
    place_legends,
    spoken,
)
from inference_bench.charts.labels import Labels, Place
from inference_bench.charts.panels import (
    DASHED,
    TITLE_PX,
    Panel,
    Scale,
    empty_frame,
    fraction_tick,
    label,
    on_paper,
    panels_chart,
    rule,
    rules,
    seconds_tick,
)
from inference_bench.simulate.step_time import StepPart
from inference_bench.stats import median
from inference_bench.units import format_count, format_fraction, format_seconds

_COLOURS: Final = {
    StepKind.DECODE: "decode",
    StepKind.PREFILL: "prefill",
    StepKind.CACHED_PREFILL: "c2",
    StepKind.MIXED: "c1",
}
_SHAPES: Final = {
    StepKind.DECODE: "circle",
    StepKind.PREFILL: "square",
    StepKind.CACHED_PREFILL: "triangle-up",
    StepKind.MIXED: "diamond",
}
_SAME_CONTEXT: Final = 1.25  # contexts nearer than this factor are one curve
_LEAST_ERROR: Final = 0.1  # the axis of errors reaches at least so far up and down
_MOST_CURVE_POINTS: Final = 64
_MOST_EVEN: Final = 16  # batches up to which they stand evenly apart
_MOST_TICKS: Final = 8
_HEIGHT_PX: Final = 230
_NAMES_PX: Final = 78  # on the right of the curves: their contexts
_BETWEEN_PX: Final = 62  # between the pictures: the ticks of the second
_BELOW_PX: Final = 50  # below the first picture in a narrow drawing: its ticks and their title
_ROOM: Final = 1.1
_MARGIN: Final = 1.3
_LINE_PX: Final = 14
_POINT_PX: Final = 5
_POINT: Final[Spec] = {"type": "point", "size": 48, "strokeWidth": 1.6}


@dataclass(frozen=True, slots=True)
class _AroundZero(Scale):
    """A scale as far below zero as above, but never below what a prediction of nothing would be off: −100 %."""

    def ticks(self, most: int) -> list[float]:
        """Zero, and round values on both sides of it."""
        above = linear_ticks(self.high, max(1, most // 2))
        below = [-tick for tick in reversed(above[1:]) if -tick >= self.low]
        return [*below, *above]


@dataclass(frozen=True, slots=True)
class _Curve:
    """Decode steps at about one context."""

    context: int
    points: tuple[FittedObservation, ...]


@dataclass(frozen=True, slots=True)
class _BatchScale(Scale):
    """A scale of batches with a tick at each that was measured."""

    batches: tuple[int, ...] = ()

    def ticks(self, most: int) -> list[float]:
        """The batches, or every n-th of them where they are many."""
        return [float(batch) for batch in self.batches[:: math.ceil(len(self.batches) / max(most, _MOST_TICKS))]]

    @classmethod
    def of(cls, curves: Sequence[_Curve]) -> _BatchScale:
        """From nothing, so that a formula of sums is a straight line; logarithmic where batches are many."""
        batches = tuple(sorted({_batch_of(each) for curve in curves for each in curve.points}))
        if batches[-1] > _MOST_EVEN:
            return cls(1 / _MARGIN, batches[-1] * _MARGIN, is_log=True, base=2, batches=batches)
        return cls(0.0, batches[-1] * _ROOM, batches=batches)


def step_fit_chart(calibration: StepCalibration, width_px: int = WIDE_PX) -> Spec | None:
    """Decode steps over the batch with the fitted formula, and the error of every step over its time.

    Formula:  error = predicted / measured - 1
    Unit:     seconds, fractions
    """
    if not calibration.observations:
        return None
    kinds = [kind for kind in StepKind if any(each.observation.kind is kind for each in calibration.observations)]
    colour = nominal("kind", [str(kind) for kind in kinds], [LIGHT[_COLOURS[kind]] for kind in kinds])
    shape = nominal("kind", [str(kind) for kind in kinds], [_SHAPES[kind] for kind in kinds])
    frame, (colour,) = place_legends(empty_frame(width_px), colour)
    curves = _curves(calibration.observations)
    batch_panel, error_panel = _panels(calibration, curves, frame)
    panels = [panel for panel in (batch_panel, error_panel) if panel is not None]
    points = [_point(each, error_panel, _seconds_of(each), each.error) for each in calibration.observations]
    layers = [*_error_lines(calibration, error_panel)]
    if batch_panel is not None:
        layers += _curve_layers(calibration, curves, batch_panel)
        points += [
            _point(each, batch_panel, float(_batch_of(each)), _seconds_of(each))
            for curve in curves
            for each in curve.points
        ]
    return panels_chart(
        frame,
        _words(calibration),
        panels,
        [*layers, *_point_layers(points, colour, {**shape, "legend": colour["legend"]})],
    )


# ── what is drawn ──────────────────────────────────────────────────────────────────────────────────


def _seconds_of(each: FittedObservation) -> float:
    return each.observation.seconds


def _batch_of(each: FittedObservation) -> int:
    return each.observation.num_sequences


def _curves(observations: Sequence[FittedObservation]) -> list[_Curve]:
    """Decode steps of one batch each, by about the same context, as far as a context has several batches."""
    decodes = [
        each for each in observations if each.observation.kind is StepKind.DECODE and len(each.observation.batches) == 1
    ]
    decodes.sort(key=lambda each: each.observation.mean_context_tokens)
    groups: list[list[FittedObservation]] = []
    for each in decodes:
        context = each.observation.mean_context_tokens
        if groups and context <= _SAME_CONTEXT * groups[-1][0].observation.mean_context_tokens:
            groups[-1].append(each)
        else:
            groups.append([each])
    found = [
        _Curve(round(median([e.observation.mean_context_tokens for e in group])), tuple(group)) for group in groups
    ]
    return [curve for curve in found if len({_batch_of(each) for each in curve.points}) > 1]


def _fitted_curve(calibration: StepCalibration, curve: _Curve) -> list[tuple[int, float]]:
    """The formula from one sequence to the largest batch: every batch, or about as many as can be told apart."""
    most = max(map(_batch_of, curve.points))
    batches = range(1, most + 1) if most <= _MOST_CURVE_POINTS else _spread(most)
    part = StepPart(curve.context, 1, True)
    return [(batch, calibration.step_time.step_s([part] * batch)) for batch in batches]


def _spread(most: int) -> list[int]:
    """Batches about evenly apart on a log scale."""
    return sorted({round(most ** (index / (_MOST_CURVE_POINTS - 1))) for index in range(_MOST_CURVE_POINTS)})


# ── where it is drawn ──────────────────────────────────────────────────────────────────────────────


def _panels(calibration: StepCalibration, curves: Sequence[_Curve], frame: Frame) -> tuple[Panel | None, Panel]:
    """Decoding over the batch, where there is a curve, and errors: beside one another, or one below the other."""
    narrow = is_narrow(frame.width)
    width = float(frame.plot_width) if narrow or not curves else (frame.plot_width - _BETWEEN_PX) / 2
    times = [_seconds_of(each) for each in calibration.observations]
    error = max(_LEAST_ERROR, *(abs(each.error) for each in calibration.observations)) * _ROOM
    x = Scale(min(times) / _MARGIN, max(times) * _MARGIN, is_log=True)
    left, top = 0.0, float(TITLE_PX)
    if curves:
        left, top = (0.0, TITLE_PX * 2 + _HEIGHT_PX + _BELOW_PX) if narrow else (width + _BETWEEN_PX, top)
    errors = Panel(
        left, top, width, _HEIGHT_PX, x, _AroundZero(-min(error, 1.0), error), "error of the formula, hollow: held out of the fit"
        if not narrow else "error, hollow: held out of the fit", "measured step", seconds_tick, _signed_tick,
    )  # fmt: skip
    if not curves:
        return None, errors
    found = [pair for curve in curves for pair in _fitted_curve(calibration, curve)]
    steps = [_seconds_of(each) for curve in curves for each in curve.points]
    batches = Panel(
        0.0, float(TITLE_PX), width - _NAMES_PX, _HEIGHT_PX, _BatchScale.of(curves),
        Scale.from_zero([*steps, *(seconds for _, seconds in found)]), "decode step, curves: the formula", "batch",
    )  # fmt: skip
    return batches, errors


def _signed_tick(error: float) -> str:
    """An error at a tick, with its sign."""
    sign = "−" if error < 0 else "+" if error > 0 else ""
    return f"{sign}{fraction_tick(abs(error))}"


# ── layers ─────────────────────────────────────────────────────────────────────────────────────────


def _curve_layers(calibration: StepCalibration, curves: Sequence[_Curve], panel: Panel) -> Iterator[Spec]:
    """The formula at each context, its name at its right end."""
    ends: list[tuple[float, float, str]] = []
    for curve in curves:
        rows = [panel.place(batch, seconds) for batch, seconds in _fitted_curve(calibration, curve)]
        yield layer({"type": "line", "stroke": LIGHT["decode"], "strokeWidth": 1.5}, rows)
        ends.append((rows[-1]["y"], rows[-1]["x"], context_label(curve.context)))
    names, lowest = [], math.inf
    for y, x, said in sorted(ends, reverse=True):
        lowest = min(y, lowest - _LINE_PX)
        names.append(label(said, x + 8, lowest))
    yield from on_paper(names, align="left", baseline="middle", color=LIGHT["muted"])


def _error_lines(calibration: StepCalibration, panel: Panel) -> Iterator[Spec]:
    """No error, and the median of what was held out on both sides of it; the interval of every measured step."""
    right, zero = panel.left + panel.width, panel.at_y(0.0)
    yield rules([rule(panel.left, zero, right, zero)], stroke=LIGHT["muted"], strokeWidth=1.5)
    held = calibration.held_out_error
    if held is not None and held < panel.y.high:
        shown = [error for error in (held, -held) if error >= panel.y.low]
        edges = [rule(panel.left, panel.at_y(error), right, panel.at_y(error)) for error in shown]
        yield rules(edges, stroke=LIGHT["ink"], strokeDash=DASHED, strokeWidth=1)
        yield from _edge_name(f"dashed: ±{format_fraction(held, 2)}, median of held out", calibration, panel)
    spans = [
        rule(panel.at_x(seen.seconds), panel.at_y(each.predicted_s / seen.interval.high - 1),
             panel.at_x(seen.seconds), panel.at_y(each.predicted_s / seen.interval.low - 1))
        for each in calibration.observations
        if (seen := each.observation).interval is not None and seen.interval.low > 0
    ]  # fmt: skip
    yield rules(spans, stroke=LIGHT["muted"], strokeWidth=1)


def _edge_name(said: str, calibration: StepCalibration, panel: Panel) -> list[Spec]:
    """What the dashed lines are, in a corner without points."""
    names = Labels.of_panel(panel)
    for each in calibration.observations:
        x, y = panel.at_x(_seconds_of(each)), panel.at_y(each.error)
        names.taken.append(Box(x - _POINT_PX, y - _POINT_PX, x + _POINT_PX, y + _POINT_PX))
    left, right = panel.left + 5, panel.left + panel.width - 5
    low, high = panel.bottom - 12, panel.top + 12
    names.put(
        said,
        [Place(right, low, "right"), Place(left, low, "left"), Place(right, high, "right"), Place(left, high, "left")],
    )
    return names.layers()


def _point(each: FittedObservation, panel: Panel, x: float, y: float) -> Row:
    seen = each.observation
    said = (
        f"{seen.kind}, {seen.setting}: {format_seconds(seen.seconds)} measured, {format_seconds(each.predicted_s)} by the "
        f"formula, {_signed_tick(each.error)}{', held out' if seen.is_held_out else ''}"
    )
    return {
        **panel.place(x, y),
        "kind": str(seen.kind),
        "measured_s": seen.seconds,
        "predicted_s": each.predicted_s,
        "error": each.error,
        "is_held_out": seen.is_held_out,
        "said": said,
    }


def _point_layers(points: Sequence[Row], colour: Spec, shape: Spec) -> Iterator[Spec]:
    """Filled points, and hollow ones over them for what was held out."""
    yield spoken(
        {**_POINT, "filled": True}, [row for row in points if not row["is_held_out"]], color=colour, shape=shape
    )
    held = [row for row in points if row["is_held_out"]]
    yield spoken({**_POINT, "filled": False, "fill": LIGHT["paper"]}, held, color=colour, shape=shape)


# ── words ──────────────────────────────────────────────────────────────────────────────────────────


def _words(calibration: StepCalibration) -> str:
    observations = calibration.observations
    held = sum(each.observation.is_held_out for each in observations)
    off = median([abs(each.error) for each in observations])
    worst = max(observations, key=lambda each: abs(each.error))
    unseen = calibration.held_out_error
    said = "" if unseen is None else f"; over those that were held out {format_fraction(unseen, 2)}"
    return (
        f"{format_count(len(observations))} measured steps, {format_count(held)} of them held out of the fit, beside the fitted "
        f"formula ({calibration.form}): it is off by {format_fraction(off, 2)} in the median{said}, most at "
        f"{worst.observation.kind}, {worst.observation.setting}: {_signed_tick(worst.error)}."
    )
