"""What became of the output tokens? Paid for, computed, completed and of use, each a bar in parts.

In:   a Ledger and the width of the drawing in CSS pixels
Out:  one Spec, or None where no output token was counted
Leaves out: input tokens and money (report.ledger_report)
Read next by: report.

Each bar is the one before without what was lost on the way, at one scale. Its parts are what the ledger was first told apart by, such as
applications. Capacity that was paid for has no parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

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
    series_colours,
    short_label,
    shortened,
    spoken,
    text,
)
from inference_bench.charts.panels import label, on_paper, pixels, rule, rules
from inference_bench.operate.ledger.flow import Group, Ledger
from inference_bench.operate.ledger.totals import REST, By, Sums
from inference_bench.units import format_fraction, format_si

_MOST_NAMES: Final = 4  # colours that are told apart
_PAID: Final = "paid for"
_COMPUTED: Final = "computed"
_STAGES: Final = (_COMPUTED, "completed", "of use")
_ROW_PX, _BAR_PX, _NAME_PX = 30, 16, 17
_NAMES_PX, _VALUES_PX = 84, 150  # columns of a wide drawing
_MARGIN_PX: Final = 8
_FOOT_PX: Final = 22
_ROOM: Final = 1.02
_NAME_CHARS_PX: Final = 160


class _Part(NamedTuple):
    """The tokens of one name in one bar."""

    name: str
    tokens: float


class _Bar(NamedTuple):
    stage: str
    parts: tuple[_Part, ...]

    @property
    def tokens(self) -> float:
        return sum(part.tokens for part in self.parts)


class _Place(NamedTuple):
    """Where bars stand: pixels from the upper left of the plot area."""

    left: float
    width: float
    row_px: float
    most: float

    def x(self, tokens: float) -> float:
        return self.left + self.width * tokens / self.most

    def y(self, index: int) -> float:
        return self.row_px * (index + 1) - _BAR_PX - 3


def ledger_chart(ledger: Ledger, width_px: int = WIDE_PX) -> Spec | None:
    """Output tokens paid for, computed, completed and of use, as stacked bars.

    Unit:  tokens
    """
    bars = _bars(ledger)
    if not bars or bars[-len(_STAGES)].tokens <= 0:
        return None
    narrow = is_narrow(width_px)
    row_px = _ROW_PX + (_NAME_PX if narrow else 0)
    height = round(row_px * len(bars)) + _FOOT_PX
    frame = Frame(width_px, height, left=_MARGIN_PX, right=_MARGIN_PX, top=6, bottom=6)
    left, room = (0.0, 0.0) if narrow else (float(_NAMES_PX), float(_VALUES_PX))
    place = _Place(left, frame.plot_width - left - room, row_px, max(bar.tokens for bar in bars) * _ROOM)
    names = list(dict.fromkeys(part.name for bar in bars for part in bar.parts))
    colours = [LIGHT["muted"] if name == _PAID else None for name in names]
    shown = iter(series_colours([name for name in names if name != _PAID]))
    frame, (colour,) = place_legends(frame, nominal("name", names, [each or next(shown) for each in colours]))
    encoding = {"x": pixels("x", frame.plot_width), "y": pixels("y", height, is_down=True)}
    return chart(frame, _words(bars), encoding, _layers(bars, place, colour, frame, narrow=narrow))


def coloured_by(ledger: Ledger) -> By | None:
    """What the colours tell apart: the first that was asked for, None where nothing was."""
    return next(iter(ledger.groups), None)


def _bars(ledger: Ledger) -> list[_Bar]:
    """The bars from the top: capacity where it is known, then each stage with the largest groups apart."""
    by = coloured_by(ledger)
    groups = () if by is None else ledger.groups[by]
    largest = groups if len(groups) <= _MOST_NAMES else _largest(groups)
    bars = []
    paid = ledger.paid.capacity_output_tokens
    if paid is not None:
        bars.append(_Bar(_PAID, (_Part(_PAID, paid),)))
    totals = _stages(ledger.sums)
    for index, stage in enumerate(_STAGES):
        parts = [_Part(shortened(group.name, _NAME_CHARS_PX), _stages(group.sums)[index]) for group in largest]
        rest = totals[index] - sum(part.tokens for part in parts)
        if len(groups) > len(largest):
            parts.append(_Part(REST, rest))
        bars.append(_Bar(stage, tuple(parts)))
    return bars


def _largest(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Those with the most tokens, in the order they came in, which of hours is theirs."""
    found = sorted(groups, key=lambda group: -group.sums.computed_output_tokens)[: _MOST_NAMES - 1]
    return tuple(group for group in groups if group in found)


def _stages(sums: Sums) -> tuple[int, int, int]:
    return sums.computed_output_tokens, sums.completed_output_tokens, sums.useful_output_tokens


def _layers(bars: Sequence[_Bar], place: _Place, colour: Spec, frame: Frame, *, narrow: bool) -> Iterator[Spec]:
    bottom = place.row_px * len(bars)
    ticks = linear_ticks(place.most, 3 if narrow else 5)
    yield rules([rule(place.x(tick), 0, place.x(tick), bottom) for tick in ticks], stroke=LIGHT["grid"])
    rects = [row for index, bar in enumerate(bars) for row in _rects(bar, index, place)]
    yield spoken({"type": "rect"}, rects, color=colour, x2={"field": "x2"}, y2={"field": "y2"})
    up = _NAME_PX / 2 + 2 if narrow else -_BAR_PX / 2
    names = [label(bar.stage, 0, place.y(index) - up) for index, bar in enumerate(bars)]
    say = on_paper if narrow else _plain  # in a narrow drawing, lines run behind them
    yield from say(names, baseline="middle", align="left")
    values = [label(_value(bars, index), frame.plot_width, place.y(index) - up) for index in range(len(bars))]
    yield from say(values, baseline="middle", align="right")
    below = [label(short_label(tick), place.x(tick), bottom + 6) for tick in ticks]
    yield text(below, align="center", baseline="top", color=LIGHT["muted"])


def _plain(rows: Sequence[Row], **mark: Any) -> list[Spec]:
    return [text(rows, **mark)]


def _rects(bar: _Bar, index: int, place: _Place) -> Iterator[Row]:
    begin = 0.0
    for part in bar.parts:
        end = begin + part.tokens
        yield {
            **rule(place.x(begin), place.y(index), place.x(end), place.y(index) + _BAR_PX),
            "name": part.name,
            "stage": bar.stage,
            "tokens": part.tokens,
            "said": f"{bar.stage}, {part.name}: {_tokens(part.tokens)}",
        }
        begin = end


def _value(bars: Sequence[_Bar], index: int) -> str:
    """How many tokens, and the share of the bar before: of the first bar, of nothing."""
    said = _tokens(bars[index].tokens)
    before = bars[index - 1].tokens if index else 0.0
    return f"{said} ({format_fraction(bars[index].tokens / before)})" if before else said


def _tokens(tokens: float) -> str:
    return format_si(tokens, "tok").strip()


def _words(bars: Sequence[_Bar]) -> str:
    stages = "; ".join(f"{bar.stage} {_value(bars, index)}" for index, bar in enumerate(bars))
    return f"Output tokens from what was paid for to what users could use, each with its share of the one before: {stages}."
