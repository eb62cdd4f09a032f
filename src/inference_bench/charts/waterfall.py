"""What is a measured step made of? Its parts one after another, from nothing to what was measured.

In:   StepGaps, at most three of which are drawn, and the width of the drawing in CSS pixels
Out:  one Spec, or None without a step
Leaves out: what would help (report)
Read next by: report.

Each step has a scale of its own: a decode step and a prompt differ a hundredfold. Every bar begins where the one before ends;
a formula that says more than was measured has a last bar that leads back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from inference_bench.charts.grammar import (
    LIGHT,
    WIDE_PX,
    Frame,
    Row,
    Spec,
    chart,
    is_narrow,
    linear_ticks,
    nominal,
    place_legends,
    shortened,
    spoken,
    text,
    text_px,
)
from inference_bench.charts.panels import label, on_paper, pixels, rule, rules, seconds_tick
from inference_bench.gap.parts import Cause, CauseKind, StepGap
from inference_bench.units import format_fraction, format_seconds

_MOST_STEPS: Final = 3
_LEAST_SHARE: Final = 0.005  # of a step: parts that are less are one bar together
_SMALL: Final = "smaller parts"
_MEASURED: Final = "measured"
_ROLES: Final = {
    str(CauseKind.FULL_RATE): "c1",
    str(CauseKind.LOST): "prefill",
    str(CauseKind.OVERHEAD): "c2",
    _SMALL: "c3",
    str(CauseKind.UNEXPLAINED): "muted",
    _MEASURED: "c4",
}
_BAR_PX: Final = 13
_NAME_PX: Final = 17  # above a bar of a narrow drawing: its name
_HEAD_PX: Final = 40  # above the first bar: what the step is, and the name of the bound
_FOOT_PX: Final = 22  # below the last bar: the ticks' labels
_GAP_PX: Final = 18
_MARGIN_PX: Final = 8
_ROOM: Final = 1.02
_NAMES_PX, _VALUES_PX, _SHARES_PX = 204, 66, 62  # columns of a wide drawing


class _Bar(NamedTuple):
    """A part of a step, from where the one before ends.

    Unit:  seconds
    """

    name: str
    kind: str
    start_s: float
    end_s: float
    share: float

    @property
    def seconds(self) -> float:
        """What it takes; below 0 where it leads back."""
        return self.end_s - self.start_s

    @property
    def said(self) -> str:
        """What it is, in words."""
        return f"{self.name}: {_time(self.seconds)}, {_percent(self.share)} of the step"


@dataclass(frozen=True, slots=True)
class _Panel:
    """One step: its bars, and where they stand.

    Unit:  CSS pixels from the upper left of the plot area; seconds
    """

    step: StepGap
    bars: tuple[_Bar, ...]
    top: float
    left: float
    width: float
    row_px: float
    most_s: float

    @property
    def first(self) -> float:
        """Where the first row begins."""
        return self.top + _HEAD_PX

    @property
    def bottom(self) -> float:
        """Where the last row ends."""
        return self.first + self.row_px * len(self.bars)

    def x(self, seconds: float) -> float:
        """Where a time lies."""
        return self.left + self.width * seconds / self.most_s

    def y(self, index: int) -> float:
        """The upper edge of a bar, at the foot of its row."""
        return self.first + self.row_px * (index + 1) - _BAR_PX - 3


def waterfall_chart(steps: Sequence[StepGap], width_px: int = WIDE_PX) -> Spec | None:
    """The parts of each step, bars one after another up to what was measured; a dashed line is the bound.

    Unit:  seconds, and the share of the measured step
    """
    if not steps:
        return None
    narrow = is_narrow(width_px)
    frame = Frame(width_px, 0, left=_MARGIN_PX, right=_MARGIN_PX, top=6, bottom=6)
    panels = _panels(steps[:_MOST_STEPS], frame, narrow=narrow)
    kinds = [kind for kind in _ROLES if any(bar.kind == kind for panel in panels for bar in panel.bars)]
    height = round(panels[-1].bottom + _FOOT_PX)
    frame = Frame(width_px, height, left=_MARGIN_PX, right=_MARGIN_PX, top=6, bottom=6)
    frame, (colour,) = place_legends(frame, nominal("kind", kinds, [LIGHT[_ROLES[kind]] for kind in kinds]))
    encoding = {"x": pixels("x", frame.plot_width), "y": pixels("y", height, is_down=True)}
    return chart(frame, _words(panels), encoding, _layers(panels, colour, frame, narrow=narrow))


def _panels(steps: Sequence[StepGap], frame: Frame, *, narrow: bool) -> list[_Panel]:
    left, width = 0.0, float(frame.plot_width)
    if not narrow:
        left, width = _NAMES_PX, frame.plot_width - _NAMES_PX - _VALUES_PX - _SHARES_PX
    row_px = _BAR_PX + (_NAME_PX + 5 if narrow else 7)
    panels, top = [], 0.0
    for step in steps:
        bars = tuple(_bars(step))
        most = max(step.bound_s, *(max(bar.start_s, bar.end_s) for bar in bars)) * _ROOM
        panels.append(_Panel(step, bars, top, left, width, row_px, most))
        top = panels[-1].bottom + _FOOT_PX + _GAP_PX
    return panels


def _bars(step: StepGap) -> Iterator[_Bar]:
    """The parts one after another, small ones together before what is unexplained, and the whole step."""
    small = [part for part in step.parts if abs(part.share) < _LEAST_SHARE and part.cause is not Cause.UNEXPLAINED]
    bars = [(str(part.cause), str(part.cause.kind), part.seconds) for part in step.parts if part not in small]
    if small:
        bars.insert(len(bars) - 1, (_SMALL, _SMALL, sum(part.seconds for part in small)))
    end = 0.0
    for name, kind, seconds in bars:
        yield _Bar(name, kind, end, end + seconds, seconds / step.measured_s)
        end += seconds
    yield _Bar(_MEASURED, _MEASURED, 0.0, step.measured_s, 1.0)


# ── layers ─────────────────────────────────────────────────────────────────────────────────────────


def _layers(panels: Sequence[_Panel], colour: Spec, frame: Frame, *, narrow: bool) -> Iterator[Spec]:
    ticks = [(panel, linear_ticks(panel.most_s, 3 if narrow else 5)) for panel in panels]
    grid = [rule(panel.x(tick), panel.first, panel.x(tick), panel.bottom) for panel, found in ticks for tick in found]
    yield rules(grid, stroke=LIGHT["grid"])
    yield spoken(
        {"type": "rect"},
        [row for panel in panels for row in _rects(panel)],
        color=colour,
        x2={"field": "x2"},
        y2={"field": "y2"},
    )
    yield rules([row for panel in panels for row in _joints(panel)], stroke=LIGHT["muted"], strokeWidth=1)
    bounds = [panel for panel in panels if panel.step.bound_s > 0]
    lines = [
        rule(panel.x(panel.step.bound_s), panel.first - 4, panel.x(panel.step.bound_s), panel.bottom)
        for panel in bounds
    ]
    yield rules(lines, stroke=LIGHT["finding"], strokeDash=[4, 3], strokeWidth=1.5)
    yield from on_paper(
        [_bound_name(panel) for panel in bounds], align="left", baseline="bottom", color=LIGHT["finding"]
    )
    titles = [label(shortened(_title(panel.step), frame.plot_width), 0, panel.top + 14) for panel in panels]
    yield text(titles, align="left", baseline="bottom", fontWeight="bold")
    yield from _names(panels, frame, narrow=narrow)
    below = [
        label(seconds_tick(tick) if tick else "0", panel.x(tick), panel.bottom + 6)
        for panel, found in ticks
        for tick in found
    ]
    yield text(below, align="center", baseline="top", color=LIGHT["muted"])


def _rects(panel: _Panel) -> Iterator[Row]:
    for index, bar in enumerate(panel.bars):
        place = rule(
            panel.x(min(bar.start_s, bar.end_s)),
            panel.y(index),
            panel.x(max(bar.start_s, bar.end_s)),
            panel.y(index) + _BAR_PX,
        )
        yield {
            **place,
            "kind": bar.kind,
            "part": bar.name,
            "seconds": bar.seconds,
            "share": bar.share,
            "said": bar.said,
        }


def _joints(panel: _Panel) -> Iterator[Row]:
    """From the end of each bar to the beginning of the next, and from the last part's to the whole."""
    for index, bar in enumerate(panel.bars[:-1]):
        yield rule(panel.x(bar.end_s), panel.y(index) + _BAR_PX, panel.x(bar.end_s), panel.y(index + 1))


def _bound_name(panel: _Panel) -> Row:
    """What the dashed line is, beginning at it, or ending at the right edge where it would not fit."""
    said = f"bound {format_seconds(panel.step.bound_s)}"
    x = min(panel.x(panel.step.bound_s) - 2, panel.left + panel.width - text_px(said))
    return label(said, x, panel.first - 5)


def _title(step: StepGap) -> str:
    return f"{step.title[:1].upper()}{step.title[1:]}: {format_seconds(step.measured_s)}"


def _names(panels: Sequence[_Panel], frame: Frame, *, narrow: bool) -> Iterator[Spec]:
    """The name of every bar and what it takes: beside it, or above it in a narrow drawing."""
    names, values, shares = [], [], []
    up = _NAME_PX / 2 + 2 if narrow else -_BAR_PX / 2
    right = frame.plot_width
    for panel in panels:
        for index, bar in enumerate(panel.bars):
            y = panel.y(index) - up
            names.append(label(bar.name, 0, y))
            values.append(label(_time(bar.seconds), right - _SHARES_PX, y))
            shares.append(label(_percent(bar.share), right, y))
    for rows, mark in ((names, {"align": "left"}), (values, {"align": "right"})):
        yield from on_paper(rows, baseline="middle", **mark)
    yield from on_paper(shares, align="right", baseline="middle", color=LIGHT["muted"])


def _time(seconds: float) -> str:
    """A time, with a minus that is as wide as a plus."""
    return format_seconds(seconds).replace("-", "−")


def _percent(share: float) -> str:
    """A share to about a tenth of a percent."""
    significant = 3 if abs(share) >= 0.1 else 2 if abs(share) >= 0.01 else 1
    return format_fraction(share, significant).replace("-", "−")


# ── words ──────────────────────────────────────────────────────────────────────────────────────────


def _words(panels: Sequence[_Panel]) -> str:
    return f"What measured steps are made of. {' '.join(map(_step_words, panels))}"


def _step_words(panel: _Panel) -> str:
    step = panel.step
    parts = ", ".join(f"{bar.name} {_time(bar.seconds)}" for bar in panel.bars[:-1])
    bound = f"; no step of this work takes less than {format_seconds(step.bound_s)}" if step.bound_s else ""
    return f"{_title(step)}: {parts}{bound}."
