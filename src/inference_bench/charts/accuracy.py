"""How right are the predictions? Predicted over measured times, a small picture for each class of machines.

In:   ScoreReport and the width of the drawing in CSS pixels
Out:  one Spec, or None where nothing was scored
Leaves out: scores (report); rows that their table calls suspect
Read next by: cli, scripts/write_accuracy.py.

All pictures share one scale and are laid out here in pixels, so that the whole is one drawing of layers like any other.
Rows that fall on one another are one point, larger the more there are: a drawing of 5,000 rows stays small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from inference_bench.charts.grammar import (
    LIGHT,
    WIDE_PX,
    Frame,
    Row,
    Spec,
    chart,
    is_narrow,
    layer,
    log_ticks,
    nominal,
    place_legends,
    text,
    text_px,
)
from inference_bench.predict.efficiency.parameters import INTERVAL_SHARE
from inference_bench.score.scoring import ScoredRow
from inference_bench.score.summary import Score, ScoreReport
from inference_bench.stats import quantile
from inference_bench.units import format_count, format_fraction, format_seconds

# phase → its name in the legend and its colour's role
_PHASES: Final = {
    "decode": ("decode step", "decode"),
    "prefill": ("prefill", "prefill"),
    "e2e": ("static batch", "c1"),
    "serving_tpot": ("serving TPOT", "c2"),
    "serving_ttft": ("serving TTFT", "c3"),
}
_GAP_PX: Final = 16
_HEAD_PX: Final = 38  # above each picture: its class, and how right it is
_LINE_PX: Final = 15
_CELL_PX: Final = 3.5  # rows nearer than this are one point
_SMALLEST: Final = 9.0  # area of a point of one row
_GROWTH: Final = 0.5  # of the area with the rows
_MARGIN: Final = 1.3  # beyond the shortest and the longest time, as a factor
_LEAST_FOR_BAND: Final = 10


@dataclass(frozen=True, slots=True)
class _Panel:
    """One class of machines, and where its picture lies.

    Unit:  CSS pixels from the upper left of the plot area; seconds
    """

    name: str
    score: Score
    rows: Sequence[ScoredRow]
    left: float
    top: float
    side: float
    low_s: float
    high_s: float

    def along(self, seconds: float) -> float:
        """How far along its axis a time lies."""
        inside = min(max(seconds, self.low_s), self.high_s)
        return self.side * math.log(inside / self.low_s) / math.log(self.high_s / self.low_s)

    def x(self, seconds: float) -> float:
        """Where a measured time lies."""
        return self.left + self.along(seconds)

    def y(self, seconds: float) -> float:
        """Where a predicted time lies."""
        return self.top + self.side - self.along(seconds)


def accuracy_chart(found: ScoreReport, width_px: int = WIDE_PX) -> Spec | None:
    """Predicted over measured time by class of machines; on the diagonal both are the same.

    Where:  the band holds 80 % of a picture's rows
    Unit:   seconds
    """
    rows = [row for row in found.scored if not row.case.row.is_suspect]
    if not rows:
        return None
    columns = 2 if is_narrow(width_px) else 3
    frame = Frame(width_px, 0, left=52, bottom=48)
    side = (frame.plot_width - _GAP_PX * (columns - 1)) / columns
    panels = list(_panels(found, rows, columns, side))
    height = round(panels[-1].top + side)
    phases = [phase for phase in _PHASES if any(row.form.question.phase.value == phase for row in rows)]
    names, roles = zip(*(_PHASES[phase] for phase in phases), strict=True)
    frame, (colour,) = place_legends(
        Frame(width_px, height, left=52, bottom=48), nominal("phase", names, [LIGHT[role] for role in roles])
    )
    ticks = log_ticks(panels[0].low_s, panels[0].high_s, 3 if is_narrow(width_px) else 5)
    return chart(
        frame,
        _words(found),
        {"x": _pixels("x", frame.plot_width), "y": _pixels("y", height, reverse=True)},
        [*_grids(panels, ticks), *_lines(panels), _points(panels, colour), *_texts(panels, ticks, columns)],
    )


def _pixels(field: str, length: float, *, reverse: bool = False) -> Spec:
    scale = {"domain": [0, length], "nice": False, "zero": False, "reverse": reverse}
    return {"field": field, "type": "quantitative", "axis": None, "scale": scale}


def _panels(found: ScoreReport, rows: Sequence[ScoredRow], columns: int, side: float) -> Iterator[_Panel]:
    times = [seconds for row in rows for seconds in (row.measured_s, row.predicted_s)]
    low, high = min(times) / _MARGIN, max(times) * _MARGIN
    shown = [(name, score) for name, score in found.by_hardware.items() if score.scored]
    for index, (name, score) in enumerate(shown):
        own = [row for row in rows if row.form.question.setting.pool == name]
        down, across = divmod(index, columns)
        top = _HEAD_PX + down * (side + _GAP_PX + _HEAD_PX)
        yield _Panel(name, score, own, across * (side + _GAP_PX), top, side, low, high)


def _grids(panels: Sequence[_Panel], ticks: Sequence[float]) -> list[Spec]:
    """Lines at the ticks, each over its own picture."""
    rows = []
    for panel in panels:
        right, bottom = panel.left + panel.side, panel.top + panel.side
        rows += [_rule(panel.x(tick), panel.top, panel.x(tick), bottom) for tick in ticks]
        rows += [_rule(panel.left, panel.y(tick), right, panel.y(tick)) for tick in ticks]
    return [_rules(rows, stroke=LIGHT["grid"])]


def _lines(panels: Sequence[_Panel]) -> list[Spec]:
    """The diagonal of each picture, and beside it the band that holds most of its rows."""
    diagonals = [
        _rule(panel.x(panel.low_s), panel.y(panel.low_s), panel.x(panel.high_s), panel.y(panel.high_s))
        for panel in panels
    ]
    edges = [edge for panel in panels if len(panel.rows) >= _LEAST_FOR_BAND for edge in _edges(panel)]
    return [
        _rules(diagonals, stroke=LIGHT["muted"]),
        _rules(edges, stroke=LIGHT["muted"], strokeDash=[3, 3], strokeWidth=1),
    ]


def _edges(panel: _Panel) -> Iterator[Row]:
    factor = band_factor(panel.rows)
    if factor * panel.low_s >= panel.high_s:
        return
    near, far = panel.low_s * factor, panel.high_s / factor
    yield _rule(panel.x(panel.low_s), panel.y(near), panel.x(far), panel.y(panel.high_s))
    yield _rule(panel.x(near), panel.y(panel.low_s), panel.x(panel.high_s), panel.y(far))


def band_factor(rows: Sequence[ScoredRow]) -> float:
    """The factor, up or down, within which four of five predictions lie."""
    return math.exp(quantile((abs(math.log(row.predicted_s / row.measured_s)) for row in rows), INTERVAL_SHARE))


def _rule(x: float, y: float, x2: float, y2: float) -> Row:
    return {"x": round(x, 1), "y": round(y, 1), "x2": round(x2, 1), "y2": round(y2, 1)}


def _rules(rows: Sequence[Row], **mark: object) -> Spec:
    return layer({"type": "rule", **mark}, rows, x2={"field": "x2"}, y2={"field": "y2"})


def _points(panels: Sequence[_Panel], colour: Spec) -> Spec:
    rows = [row for panel in panels for row in _cells(panel)]
    rows.sort(key=lambda row: -row["rows"])  # small ones on top
    size = {"field": "area", "type": "quantitative", "scale": None, "legend": None}
    return layer({"type": "point", "filled": True, "opacity": 0.55}, rows, color=colour, size=size)


def _cells(panel: _Panel) -> Iterator[Row]:
    """A point for the rows of a phase that fall into one small square, at their middle."""
    cells: dict[tuple[str, int, int], list[tuple[float, float]]] = {}
    for row in panel.rows:
        x, y = panel.x(row.measured_s), panel.y(row.predicted_s)
        cells.setdefault((row.form.question.phase.value, int(x / _CELL_PX), int(y / _CELL_PX)), []).append((x, y))
    for (phase, *_), places in cells.items():
        yield {
            "phase": _PHASES[phase][0],
            "class": panel.name,
            "rows": len(places),
            "area": round(_SMALLEST * len(places) ** _GROWTH, 1),
            "x": round(fmean(x for x, _ in places), 1),
            "y": round(fmean(y for _, y in places), 1),
        }


def _texts(panels: Sequence[_Panel], ticks: Sequence[float], columns: int) -> list[Spec]:
    below = [panel for index, panel in enumerate(panels) if index + columns >= len(panels)]
    across = [label for panel in below for label in _labels_below(panel, ticks)]
    up = [_label(format_seconds(tick, 1), -6, panel.y(tick)) for panel in panels[::columns] for tick in ticks]
    first, last = panels[0], panels[-1]
    titles = [
        _label("predicted, log scale", -44, first.top - _HEAD_PX - 6),
        _label("measured, log scale", 0, max(panel.top for panel in below) + last.side + 40),
    ]
    names = [_label(panel.name, panel.left, panel.top - 5 - _LINE_PX) for panel in panels]
    scores = [_label(_score_words(panel), panel.left, panel.top - 5) for panel in panels]
    muted = LIGHT["muted"]
    return [
        text(across, baseline="top", color=muted),
        text(up, align="right", baseline="middle", color=muted),
        text(titles, align="left", baseline="bottom", color=muted),
        text(names, align="left", baseline="bottom", fontWeight="bold"),
        text(scores, align="left", baseline="bottom", color=muted),
    ]


def _labels_below(panel: _Panel, ticks: Sequence[float]) -> Iterator[Row]:
    """Tick labels that do not reach into the next picture."""
    for tick in ticks:
        label, x = format_seconds(tick, 1), panel.x(tick)
        half = text_px(label) / 2
        if (panel.left == 0 or x - half >= panel.left) and x + half < panel.left + panel.side + _GAP_PX:
            yield _label(label, x, panel.top + panel.side + 8)


def _score_words(panel: _Panel) -> str:
    """How many rows and how far off they are, in the words that the picture has room for."""
    rows, error = format_count(panel.score.scored), format_fraction(panel.score.median_ape)
    wide = f"{rows} rows, median error {error}"
    return wide if text_px(wide) <= panel.side else f"{rows} rows, {error}"


def _label(label: str, x: float, y: float) -> Row:
    return {"label": label, "x": round(x, 1), "y": round(y, 1)}


def _words(found: ScoreReport) -> str:
    return (
        f"Predicted over measured time of {format_count(found.overall.scored)} rows by class of machines, one on the diagonal "
        f"being right; median error {format_fraction(found.overall.median_ape)}. Between the dashed lines lie four of five."
    )
