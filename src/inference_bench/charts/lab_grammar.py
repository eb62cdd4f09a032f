"""Where does a grammar leave a model a choice, and what does asking it cost?

In:   GrammarResult and the width of the drawing in CSS pixels
Out:  one Spec each, or None without a document or without steps
Leaves out: the figures in tables (report)
Read next by: report.

The first picture is one document: how many tokens its mask allowed at each step, with the token that was taken at every choice. The
second is the parts of a step on one log scale, since the mask is hundreds of times shorter than the model's own work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from inference_bench.charts.callouts import Box
from inference_bench.charts.grammar import (
    LIGHT,
    WIDE_PX,
    Frame,
    Row,
    Spec,
    is_narrow,
    nominal,
    place_legends,
    spoken,
)
from inference_bench.charts.labels import Labels, Place, around
from inference_bench.charts.panels import (
    TITLE_PX,
    Panel,
    Scale,
    empty_frame,
    label,
    limit_layers,
    number_tick,
    on_paper,
    panels_chart,
    rule,
    rules,
    seconds_tick,
)
from inference_bench.labs.grammar.result import ExampleDocument, GrammarResult, StepPart
from inference_bench.units import format_count, format_fraction, format_seconds

CHOICE, FORCED = "a choice", "one token allowed"
MEDIAN, P90, MOST = "median", "90th percentile", "longest"
_COLOURS: Final = {CHOICE: "decode", FORCED: "muted"}
_SHAPES: Final = {CHOICE: "circle", FORCED: "square"}
_PART_SHAPES: Final = {MEDIAN: "circle", P90: "square", MOST: "triangle-up"}
_HEIGHT_PX: Final = 240
_ROW_PX: Final = 40
_MOST_TOKEN_CHARS: Final = 12
_ABOVE_PX: Final = 13
_NUM_NEAR: Final = 6
_POINT: Final[Spec] = {"type": "point", "filled": True}


def allowed_chart(result: GrammarResult, width_px: int = WIDE_PX) -> Spec | None:
    """Tokens that the mask allows over the steps of one document; None without one.

    Unit:    tokens, on a log scale from one to the whole vocabulary
    """
    example = result.example
    if example is None or not example.steps:
        return None
    names = [CHOICE, FORCED]
    frame, (colour,) = place_legends(
        empty_frame(width_px), nominal("kind", names, [LIGHT[_COLOURS[name]] for name in names])
    )
    shape = {**nominal("kind", names, [_SHAPES[name] for name in names]), "legend": colour["legend"]}
    panel = _allowed_panel(frame, example)
    rows = [_step_row(panel, number, example) for number in range(len(example.steps))]
    stems = [rule(row["x"], panel.bottom, row["x"], row["y"]) for row in rows if row["kind"] == CHOICE]
    return panels_chart(
        frame,
        _allowed_words(example),
        [panel],
        [
            *limit_layers(
                panel, example.num_vocabulary, f"the whole vocabulary, {format_count(example.num_vocabulary)}"
            ),
            rules(stems, stroke=LIGHT["decode"], strokeWidth=1.5, strokeOpacity=0.5),
            spoken({**_POINT, "size": 42}, rows, color=colour, shape=shape),
            *_taken_labels(panel, rows, frame.width).layers(),
        ],
    )


def _allowed_panel(frame: Frame, example: ExampleDocument) -> Panel:
    x = Scale(0.0, len(example.steps) + 1.0)
    y = Scale(0.6, example.num_vocabulary * 3.0, is_log=True)
    return Panel(
        0,
        TITLE_PX,
        frame.plot_width,
        _HEIGHT_PX,
        x,
        y,
        "tokens allowed",
        "step of the document",
        number_tick,
        _whole_tick,
    )


def _whole_tick(value: float) -> str:
    return format_count(round(value))


def _step_row(panel: Panel, number: int, example: ExampleDocument) -> Row:
    step = example.steps[number]
    kind = FORCED if step.is_forced else CHOICE
    token = step.token or ""
    taken = token if len(token) <= _MOST_TOKEN_CHARS else f"{token[: _MOST_TOKEN_CHARS - 1]}…"
    return {
        **panel.place(number + 1, step.num_allowed),
        "kind": kind,
        "taken": "" if step.token is None else taken.strip() or "␣",
        "num_allowed": step.num_allowed,
        "said": f"step {number + 1}: {format_count(step.num_allowed)} allowed"
        + ("" if step.token is None else f", {taken!r} taken"),
    }


def _taken_labels(panel: Panel, rows: Sequence[Row], width_px: int) -> Labels:
    """The token taken at each choice, those with most alternatives first; where there is no room for one, it is left out."""
    labels = Labels.of_panel(panel)
    labels.taken += [Place(row["x"], row["y"], "center").box("i") for row in rows]
    labels.taken += [Box(row["x"], row["y"], row["x"], panel.bottom) for row in rows if row["kind"] == CHOICE]
    most = 8 if is_narrow(width_px) else 16
    choices = sorted(
        (row for row in rows if row["kind"] == CHOICE and row["taken"]), key=lambda row: -row["num_allowed"]
    )
    for row in choices[:most]:
        above = Place(row["x"], row["y"] - _ABOVE_PX, "center")
        beside = list(around(row["x"], row["y"]))[:_NUM_NEAR]
        if free := [place for place in (above, *beside) if _is_free(labels, place.box(row["taken"]))]:
            labels.put(row["taken"], free[:1])
    return labels


def _is_free(labels: Labels, box: Box) -> bool:
    """Whether a label lies inside its panel, and on no point, no line and no other label."""
    area = labels.area
    is_inside = box.left >= area.left and box.right <= area.right and box.top >= area.top and box.bottom <= area.bottom
    return is_inside and not any(box.meets(other) for other in (*labels.written, *labels.taken))


def _allowed_words(example: ExampleDocument) -> str:
    forced = sum(step.is_forced for step in example.steps)
    most = max(example.steps, key=lambda step: step.num_allowed)
    share = format_fraction(forced / len(example.steps))
    return (
        f"Tokens that the mask allows at each of the {len(example.steps)} steps of a document of {example.schema}, on a log scale up "
        f"to the vocabulary of {format_count(example.num_vocabulary)}: at {forced} ({share}) just one; at most "
        f"{format_count(most.num_allowed)}."
    )


def parts_chart(result: GrammarResult, width_px: int = WIDE_PX) -> Spec | None:
    """How long each part of a step takes, with masks and without; None without steps.

    Unit:    seconds, on a log scale
    """
    parts = result.step_parts
    if not parts:
        return None
    names = [MEDIAN, P90, MOST]
    frame, (shape,) = place_legends(
        replace(empty_frame(width_px), left=26, top=0),
        nominal(
            "figure",
            names,
            [_PART_SHAPES[name] for name in names],
            symbolFillColor=LIGHT["muted"],
            symbolStrokeColor=LIGHT["muted"],
        ),
    )
    panel = _parts_panel(frame, parts)
    kinds = ["with the schema's masks", "without"]
    colour = {**nominal("kind", kinds, [LIGHT["decode"], LIGHT["prefill"]]), "legend": None}
    rows = [row for number, part in enumerate(parts) for row in _part_rows(panel, number, part, kinds)]
    lines = [rule(rows[i]["x"], rows[i]["y"], rows[i + 2]["x"], rows[i]["y"]) for i in range(0, len(rows), 3)]
    named = [label(_part_name(part), panel.left + 5, panel.at_y(number + 0.34)) for number, part in enumerate(parts)]
    return panels_chart(
        frame,
        _parts_words(parts),
        [panel],
        [
            rules(lines, stroke=LIGHT["muted"], strokeWidth=1),
            spoken({**_POINT, "size": 52}, rows, color=colour, shape=shape),
            *on_paper(named, align="left", baseline="middle"),
        ],
    )


class _Rows(Scale):
    """One row below the other, without ticks."""

    def ticks(self, most: int) -> list[float]:  # noqa: ARG002 - as Scale has it
        """None."""
        return []

    def along(self, value: float) -> float:
        """From above."""
        return 1 - value / self.high


def _parts_panel(frame: Frame, parts: Sequence[StepPart]) -> Panel:
    least, most = min(part.median_s for part in parts), max(part.max_s for part in parts)
    x = Scale(10.0 ** math.floor(math.log10(least)), most * 1.5, is_log=True)
    height = _ROW_PX * len(parts)
    y = _Rows(0.0, float(len(parts)))
    return Panel(
        0, TITLE_PX, frame.plot_width, height, x, y, "parts of a step", "seconds", seconds_tick, has_y_labels=False
    )


def _part_name(part: StepPart) -> str:
    return f"{part.name}, {'with masks' if part.is_constrained else 'without'}"


def _part_rows(panel: Panel, number: int, part: StepPart, kinds: Sequence[str]) -> list[Row]:
    kind = kinds[0] if part.is_constrained else kinds[1]
    figures = ((MEDIAN, part.median_s), (P90, part.p90_s), (MOST, part.max_s))
    return [
        {
            **panel.place(value, number + 0.72),
            "kind": kind,
            "figure": name,
            "said": f"{_part_name(part)}: {name} {format_seconds(value)}",
        }
        for name, value in figures
    ]


def _parts_words(parts: Sequence[StepPart]) -> str:
    said = "; ".join(f"{_part_name(part)} {format_seconds(part.median_s)}" for part in parts)
    return (
        f"The parts of a step on a log scale, each with its median, 90th percentile and longest time. Medians: {said}."
    )
