"""How do several pictures stand in one drawing? Panels laid out in pixels, each with its own scales, ticks and title.

In:   ranges of values, places in pixels
Out:  layers of rules and texts, and where a value lies
Leaves out: what a panel shows
Read next by: simulation, simulation_runs, batch_panels, context, break_even.

The whole is one drawing of layers like any other, so that one picture has one size, one legend and one description.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from inference_bench.charts.grammar import (
    LIGHT,
    Frame,
    Row,
    Spec,
    chart,
    doubling_ticks,
    is_narrow,
    layer,
    linear_ticks,
    log_ticks,
    nominal,
    series_colours,
    series_shapes,
    short_log_ticks,
    text,
    text_px,
)
from inference_bench.units import format_bytes, format_fraction, format_number, format_seconds

DASHED: Final = [5, 4]
_DASHES: Final = ([1, 0], DASHED, [2, 2])  # once round the colours, twice, three times
_NUM_COLOURS: Final = 4
_LOG_RATIO: Final = 20  # values further apart than this are shown on a log scale
_SHORT_RATIO: Final = 10  # a log scale within which 1, 2 and 5 are too few ticks
_MARGIN: Final = 1.15  # beyond the values of a log scale, as a factor
_ROOM: Final = 1.08  # above the values of a linear scale
_HALO: Final = 4  # width of the paper around a text that lies on lines
TITLE_PX: Final = 24  # above a panel: its title
_TICKS_PX: Final = 18  # below a panel: its tick labels
_LEFT_PX: Final = 62
_BOTTOM_PX: Final = 46
_GAP_PX: Final = 6
_LINE_PX: Final = 15
_BEYOND_PX: Final = 14  # that a tick label may reach out of its panel
_HIGH_PX, _LOW_PX, _TALL_PX = 150, 120, 220  # panels above one another, in a narrow drawing, beside one another
Format = Callable[[float], str]


def _without_zeros(said: str) -> str:
    """A number and its unit without zeros that say nothing."""
    number, space, unit = said.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number}{space}{unit}"


def seconds_tick(value: float) -> str:
    """A time at a tick."""
    return _without_zeros(format_seconds(value))


def number_tick(value: float) -> str:
    """A plain number at a tick."""
    return _without_zeros(format_number(value))


def bytes_tick(value: float) -> str:
    """A size at a tick."""
    return _without_zeros(format_bytes(round(value)))


def fraction_tick(value: float) -> str:
    """A fraction at a tick, as percent."""
    return _without_zeros(format_fraction(value))


@dataclass(frozen=True, slots=True)
class Scale:
    """A range of values along one side of a panel.

    Where:  base is that of the ticks of a log scale: 10, or 2 for what comes in powers of two
    """

    low: float
    high: float
    is_log: bool = False
    base: int = 10

    @classmethod
    def over(cls, values: Iterable[float], log_ratio: float = _LOG_RATIO) -> Scale:
        """A scale that holds all of these: logarithmic where they lie far apart, else from 0."""
        known = list(values)
        least = min((value for value in known if value > 0), default=1.0)
        most = max((value for value in known if value > 0), default=1.0)
        if most / least > log_ratio:
            return cls(least / _MARGIN, most * _MARGIN, is_log=True)
        return cls(0.0, most * _ROOM)

    @classmethod
    def doubling(cls, values: Iterable[float]) -> Scale:
        """A log scale with ticks at powers of two that holds all of these, each above 0."""
        known = list(values)
        return cls(min(known) / _MARGIN, max(known) * _MARGIN, is_log=True, base=2)

    @classmethod
    def from_zero(cls, values: Iterable[float]) -> Scale:
        """A linear scale from 0 that holds all of these."""
        return cls(0.0, (max(values, default=0.0) or 1.0) * _ROOM)

    def along(self, value: float) -> float:
        """How far along the scale a value lies, from 0 to 1; one outside lies at the end."""
        inside = min(max(value, self.low), self.high)
        if self.is_log:
            return math.log(inside / self.low) / math.log(self.high / self.low)
        return (inside - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[float]:
        """Round values on the scale."""
        if self.is_log and self.base == 2:
            return doubling_ticks(self.low, self.high, most)
        if self.is_log and self.high / self.low < _SHORT_RATIO:
            return short_log_ticks(self.low, self.high, most)
        return log_ticks(self.low, self.high, most) if self.is_log else linear_ticks(self.high, most)


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: where it stands, its scales, and how their ticks are written.

    Where:  x_title None is a panel whose ticks are written below another one, and without has_y_labels beside another one
    Unit:   CSS pixels from the upper left of the plot area
    """

    left: float
    top: float
    width: float
    height: float
    x: Scale
    y: Scale
    title: str
    x_title: str | None
    x_format: Format = number_tick
    y_format: Format = seconds_tick
    has_y_labels: bool = True

    @property
    def bottom(self) -> float:
        """Where the panel ends."""
        return self.top + self.height

    def at_x(self, value: float) -> float:
        """Where a value lies, from the left."""
        return round(self.left + self.width * self.x.along(value), 2)

    def at_y(self, value: float) -> float:
        """Where a value lies, from above."""
        return round(self.bottom - self.height * self.y.along(value), 2)

    def place(self, x: float, y: float) -> Row:
        """Where a point lies."""
        return {"x": self.at_x(x), "y": self.at_y(y)}

    @property
    def heading(self) -> str:
        """What is written above."""
        return f"{self.title}, log scale" if self.y.is_log else self.title

    @property
    def x_heading(self) -> str:
        """What is written below."""
        return f"{self.x_title}, log scale" if self.x.is_log else str(self.x_title)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a panel says and how far it reaches, before it has a place."""

    title: str
    y: Scale
    y_format: Format = seconds_tick


def empty_frame(width_px: int) -> Frame:
    """The frame of a drawing of panels, whose height they give."""
    return Frame(width_px, 0, left=_LEFT_PX, top=6, bottom=_BOTTOM_PX)


def stacked(
    frame: Frame,
    shown: Sequence[Shown],
    x: Scale,
    x_title: str,
    x_format: Format = number_tick,
    height: float | None = None,
) -> list[Panel]:
    """Panels above one another with the same x, whose ticks stand below the last."""
    height = height or (_LOW_PX if is_narrow(frame.width) else _HIGH_PX)
    last = len(shown) - 1
    return [
        Panel(0, TITLE_PX + index * (height + TITLE_PX + _GAP_PX), frame.plot_width, height, x, each.y, each.title,
              x_title if index == last else None, x_format, each.y_format)
        for index, each in enumerate(shown)
    ]  # fmt: skip


def side_by_side(frame: Frame, shown: Sequence[tuple[Shown, Scale]], x_title: str, *, shares_y: bool) -> list[Panel]:
    """Panels beside one another, or above one another in a narrow drawing, each with its own x in seconds."""
    columns = 1 if is_narrow(frame.width) else len(shown)
    gap = _GAP_PX * 3 if shares_y else _LEFT_PX
    width = (frame.plot_width - gap * (columns - 1)) / columns
    height = min(_TALL_PX, width)
    panels = []
    for index, (each, x) in enumerate(shown):
        down, across = divmod(index, columns)
        top = TITLE_PX + down * (height + TITLE_PX + _GAP_PX + _BOTTOM_PX)
        panels.append(
            Panel(across * (width + gap), top, width, height, x, each.y, each.title, x_title, seconds_tick, each.y_format,
                  has_y_labels=not shares_y or across == 0)
        )  # fmt: skip
    return panels


def pixels(field: str, length: float, *, is_down: bool = False) -> Spec:
    """An axis that is the drawing's own pixels."""
    scale = {"domain": [0, length], "nice": False, "zero": False, "reverse": is_down}
    return {"field": field, "type": "quantitative", "axis": None, "scale": scale}


def rule(x: float, y: float, x2: float, y2: float) -> Row:
    """A straight line between two places."""
    return {"x": round(x, 1), "y": round(y, 1), "x2": round(x2, 1), "y2": round(y2, 1)}


def rules(rows: Sequence[Row], **mark: object) -> Spec:
    """Straight lines."""
    return layer({"type": "rule", **mark}, rows, x2={"field": "x2"}, y2={"field": "y2"})


def label(said: str, x: float, y: float) -> Row:
    """A text at a place."""
    return {"label": said, "x": round(x, 1), "y": round(y, 1)}


def on_paper(rows: Sequence[Row], **mark: Any) -> list[Spec]:
    """Texts that can be read where lines run behind them."""
    return [text(rows, stroke=LIGHT["paper"], strokeWidth=_HALO, **mark), text(rows, **mark)]


def panels_chart(frame: Frame, description: str, panels: Sequence[Panel], layers: Iterable[Spec]) -> Spec:
    """One drawing of panels: their grids first, what they show, their ticks and titles."""
    frame = replace(frame, height=math.ceil(max(panel.bottom for panel in panels)))
    encoding = {"x": pixels("x", frame.plot_width), "y": pixels("y", frame.height, is_down=True)}
    return chart(frame, description, encoding, [*_grids(panels, frame), *layers, *_texts(panels, frame)])


def _grids(panels: Sequence[Panel], frame: Frame) -> list[Spec]:
    rows = []
    for panel in panels:
        right = panel.left + panel.width
        xs, ys = _ticks(panel, frame)
        rows += [rule(panel.at_x(tick), panel.top, panel.at_x(tick), panel.bottom) for tick in xs]
        rows += [rule(panel.left, panel.at_y(tick), right, panel.at_y(tick)) for tick in ys]
    return [rules(rows, stroke=LIGHT["grid"])]


def _ticks(panel: Panel, frame: Frame) -> tuple[list[float], list[float]]:
    most_x = max(3, min(4 if is_narrow(frame.width) else 9, int(panel.width / 55)))
    return panel.x.ticks(most_x), panel.y.ticks(max(3, int(panel.height / 30)))


def _texts(panels: Sequence[Panel], frame: Frame) -> list[Spec]:
    below, aside, titles, x_titles = [], [], [], []
    for panel in panels:
        xs, ys = _ticks(panel, frame)
        if panel.has_y_labels:
            aside += [label(panel.y_format(tick), panel.left - 6, panel.at_y(tick)) for tick in ys]
        titles.append(label(panel.heading, panel.left, panel.top - 8))
        if panel.x_title is not None:
            below += _labels_below(panel, xs)
            x_titles.append(label(panel.x_heading, panel.left + panel.width / 2, panel.bottom + _TICKS_PX + 4))
    muted = LIGHT["muted"]
    return [
        text(below, baseline="top", color=muted),
        text(aside, align="right", baseline="middle", color=muted),
        text(titles, align="left", baseline="bottom"),
        text(x_titles, align="center", baseline="top", color=muted),
    ]


def _labels_below(panel: Panel, ticks: Sequence[float]) -> list[Row]:
    """Tick labels, but for those that would touch the one before or reach into what is on the right."""
    rows, free, end = [], -math.inf, panel.left + panel.width + _BEYOND_PX
    for tick in ticks:
        said, x = panel.x_format(tick), panel.at_x(tick)
        half = text_px(said) / 2
        if x - half > free and x + half < end:
            rows.append(label(said, x, panel.bottom + 6))
            free = x + half + 4
    return rows


# ── series ─────────────────────────────────────────────────────────────────────────────────────────


def series_dashes(names: Sequence[str]) -> list[list[int]]:
    """A dash each: unbroken for the first round of colours, then others."""
    return [_DASHES[index // _NUM_COLOURS % len(_DASHES)] for index in range(len(names))]


def series_encodings(names: Sequence[str]) -> tuple[Spec, Spec, Spec]:
    """Colour, shape and dash of each series: no two of twelve look the same without colours either."""
    colour = nominal("series", names, series_colours(names))
    shape = nominal("series", names, series_shapes(names))
    dash = {**nominal("series", names, series_dashes(names)), "legend": None}
    return colour, shape, dash


def upright(panels: Sequence[Panel], value: float, **mark: object) -> Spec:
    """An upright line at one value of x through every panel."""
    x = panels[0].at_x(value)
    return rules([rule(x, panel.top, x, panel.bottom) for panel in panels], **mark)


def beyond(panels: Sequence[Panel], value: float) -> Spec:
    """A band from one value of x to the right end of every panel."""
    rows = [
        rule(panel.at_x(value), panel.top, panel.left + panel.width, panel.bottom)
        for panel in panels
        if value < panel.x.high
    ]
    return layer({"type": "rect", "color": LIGHT["grid"]}, rows, x2={"field": "x2"}, y2={"field": "y2"})


def level(panel: Panel, value: float) -> Spec:
    """A dashed line at one value of y; nothing where that lies outside the panel."""
    y = panel.at_y(value)
    rows = [rule(panel.left, y, panel.left + panel.width, y)] if panel.y.low <= value <= panel.y.high else []
    return rules(rows, stroke=LIGHT["ink"], strokeDash=DASHED, strokeWidth=1)


def limit_layers(panel: Panel, limit: float, said: str) -> list[Spec]:
    """A dashed line at a limit, with its name at the left end, just above it, or below where there is no room."""
    if not panel.y.low <= limit <= panel.y.high:
        return []
    y = panel.at_y(limit)
    baseline, name_y = ("bottom", y - 3) if y - panel.top >= _LINE_PX else ("top", y + 4)
    return [
        level(panel, limit),
        *on_paper([label(said, panel.left + 5, name_y)], align="left", baseline=baseline),
    ]
