"""How is a chart put together? The palette, the frame, the axes and the layers that all charts share.

In:   rows of plain values, ranges, labels that `units` wrote
Out:  pieces of a Vega-Lite specification
Leaves out: what any chart shows
Read next by: the other modules here; render and report take the palette.

A spec is complete for any Vega-Lite renderer. Its colours are the light ones of `PALETTE`, each used for one role only,
so that a page can put its own (dark) colour in the place of each. The plot area is fixed in pixels and does not depend
on how wide some font is, so a label can follow the slope of a line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from inference_bench.units import format_count, format_number, format_si

Spec = dict[str, Any]
Row = dict[str, Any]

WIDE_PX: Final = 720
NARROW_PX: Final = 340
_NARROW_BELOW_PX: Final = 480
_FONT_PX: Final = 12
_LETTER_PX: Final = 6.8  # of an average letter at that size, in the fonts that are wide
_LEGEND_GAP_PX: Final = 14
_LEGEND_SYMBOL_PX: Final = 22
_LEGEND_ROW_PX: Final = 20
_TITLE_PX: Final = 26
_WIDE_TICK: Final = 100_000

# Role: (light, dark). Colours of one chart stay apart under each kind of colour blindness, and 3:1 from the paper.
PALETTE: Final[Mapping[str, tuple[str, str]]] = {
    "paper": ("#fdfdfb", "#14171b"),
    "ink": ("#1b1f24", "#e8eaed"),
    "muted": ("#5b636e", "#9aa4af"),
    "grid": ("#e4e6e9", "#2a3037"),
    "decode": ("#1d5fbf", "#6cabff"),
    "prefill": ("#c8560b", "#ff9d57"),
    "finding": ("#b4123d", "#ff5c7a"),
    "c1": ("#00796b", "#2fc4a5"),
    "c2": ("#8a3fb0", "#cf9bff"),
    "c3": ("#a67c00", "#e6c04d"),
    "c4": ("#30353d", "#f3f4f6"),
}
LIGHT: Final = {role: light for role, (light, _) in PALETTE.items()}

_SERIES: Final = ("c1", "c2", "c3", "c4")
_SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_CONFIG: Final[Spec] = {
    "aria": False,
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelFontSize": _FONT_PX,
        "titleFontSize": _FONT_PX,
        "titleFontWeight": "normal",
        "labelColor": LIGHT["muted"],
        "titleColor": LIGHT["muted"],
        "gridColor": LIGHT["grid"],
        "domain": False,
        "ticks": False,
        "labelPadding": 6,
        "titlePadding": 8,
    },
    "legend": {
        "labelFontSize": _FONT_PX,
        "labelColor": LIGHT["ink"],
        "labelLimit": 200,
        "symbolSize": 70,
        "symbolOpacity": 1,
        "symbolStrokeWidth": 1.75,
        "columnPadding": _LEGEND_GAP_PX,
    },
    "text": {"fontSize": _FONT_PX, "color": LIGHT["ink"]},
    "point": {"opacity": 1},
    "line": {"strokeWidth": 1.75},
}


def is_narrow(width_px: int) -> bool:
    """Whether a drawing is for a small screen: fewer ticks, shorter labels."""
    return width_px < _NARROW_BELOW_PX


@dataclass(frozen=True, slots=True)
class Frame:
    """The drawing's outer width, the height of its plot area, and the room around it.

    Unit:  CSS pixels
    """

    width: int
    height: int
    left: int
    right: int = 14
    top: int = _TITLE_PX + 8
    bottom: int = 42

    @property
    def plot_width(self) -> int:
        """Width of the plot area."""
        return self.width - self.left - self.right


def chart(frame: Frame, description: str, encoding: Spec, layers: Iterable[Spec]) -> Spec:
    """One drawing of several layers over the same axes; layers without rows are left out."""
    padding = {"left": frame.left, "right": frame.right, "top": frame.top, "bottom": frame.bottom}
    return {
        "description": description,
        "width": frame.plot_width,
        "height": frame.height,
        "padding": padding,
        "autosize": {"type": "none"},
        "background": None,
        "encoding": encoding,
        "layer": [layer for layer in layers if layer["data"]["values"]],
        "config": _CONFIG,
    }


def layer(mark: Spec, rows: Sequence[Row], **encoding: Spec | None) -> Spec:
    """One kind of mark, a mark for each row; None takes away what the chart's own encoding says, so that a rule spans it."""
    return {"data": {"values": list(rows)}, "mark": mark, "encoding": encoding}


def spoken(mark: Spec, rows: Sequence[Row], **encoding: Spec | None) -> Spec:
    """Marks that each say in words what they are, in the field `said`: for a tooltip, and for a screen reader."""
    return layer({**mark, "aria": True}, rows, description={"field": "said", "type": "nominal"}, **encoding)


def text(rows: Sequence[Row], place: Spec | None = None, **mark: Any) -> Spec:
    """Labels: the field `label` of each row, where the axes put it or where `place` says."""
    return layer({"type": "text", **mark}, rows, text={"field": "label", "type": "nominal"}, **(place or {}))


def nominal(field: str, names: Sequence[str], values: Sequence[Any], **legend: Any) -> Spec:
    """A colour, shape or dash for each name; `legend` is how its entries look, placed by `place_legends`."""
    scale = {"domain": list(names), "range": list(values)}
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend}


def unlisted(encoding: Spec) -> Spec:
    """The same encoding without a legend."""
    return {**encoding, "legend": None}


def text_px(label: str) -> float:
    """About how wide a label is; no font is known here."""
    return _LETTER_PX * len(label)


def shortened(name: str, room_px: float) -> str:
    """A name as long as there is room for, its end left out where there is less."""
    most = max(1, int(room_px / _LETTER_PX))
    return name if len(name) <= most else f"{name[: most - 1].rstrip()}…"


def place_legends(frame: Frame, *encodings: Spec) -> tuple[Frame, list[Spec]]:
    """The encodings with their legends side by side above the plot, and the frame with the room they take.

    Where:  a legend that does not fit beside the one before starts a new row; one wider than the drawing is folded.
            Widths are those of `text_px`
    """
    room = frame.width - 2 * _LEGEND_GAP_PX
    column, row, places = 0.0, 0, []
    for encoding in encodings:
        names = encoding["scale"]["domain"]
        entry = _LEGEND_SYMBOL_PX + max(map(text_px, names)) + _LEGEND_GAP_PX
        columns = min(len(names), max(1, int(room / entry)))
        columns = math.ceil(len(names) / math.ceil(len(names) / columns))  # rows about as long as one another
        if column > 0 and column + columns * entry > room:
            column, row = 0.0, row + 1
        places.append((column, row, columns))
        column, row = column + columns * entry, row + math.ceil(len(names) / columns) - 1
    top = frame.top + (row + 1) * _LEGEND_ROW_PX
    moved = [
        {
            **encoding,
            "legend": {**_flat_legend(columns, 8 - frame.left + x, y * _LEGEND_ROW_PX - top + 6), **encoding["legend"]},
        }
        for encoding, (x, y, columns) in zip(encodings, places, strict=True)
    ]
    return replace(frame, top=top), moved


def _flat_legend(columns: int, x: float, y: float) -> Spec:
    return {"title": None, "orient": "none", "direction": "horizontal", "columns": columns, "legendX": x, "legendY": y}


def series_colours(names: Sequence[str]) -> list[str]:
    """A colour each, in order, starting again after the last."""
    return [LIGHT[_SERIES[i % len(_SERIES)]] for i in range(len(names))]


def series_shapes(names: Sequence[str]) -> list[str]:
    """A shape each, in order, starting again after the last."""
    return [_SHAPES[i % len(_SHAPES)] for i in range(len(names))]


def context_label(context_tokens: int) -> str:
    """How a context length is named in every chart."""
    return f"{format_count(context_tokens)} tokens"


# ── axes ───────────────────────────────────────────────────────────────────────────────────────────


def axis(field: str, title: str, ticks: Sequence[float], labels: Sequence[str], scale: Spec) -> Spec:
    """A numeric axis whose tick labels were written by `units`."""
    last = max(len(ticks) - 1, 1)
    shown = {
        "title": title,
        "values": list(ticks),
        "labelExpr": f"{json.dumps(list(labels), ensure_ascii=False)}[round(datum.index * {last})]",
        "labelOverlap": False,
        "labelFlush": False,
    }
    linear = {} if scale.get("type") == "log" else {"zero": False}  # a log scale has no zero to leave out
    return {"field": field, "type": "quantitative", "axis": shown, "scale": {"nice": False, **linear, **scale}}


def vertical(frame: Frame, encoding: Spec) -> Spec:
    """An axis as the vertical one, its title lying flat above it: read without turning the head."""
    title = {"titleAngle": 0, "titleAlign": "left", "titleBaseline": "bottom", "titleX": 8 - frame.left, "titleY": -10}
    return {**encoding, "axis": {**encoding["axis"], **title}}


def log_scale(low: float, high: float, base: int = 10) -> Spec:
    """A log scale over exactly this range."""
    return {"type": "log", "base": base, "domain": [low, high]}


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """1, 2 and 5 times the powers of ten in a range; or 1 and 3, the powers alone, every n-th: the first few enough."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**exponent for exponent in exponents for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= most:
            return ticks
    return ticks[:: math.ceil(len(ticks) / most)]


def short_log_ticks(low: float, high: float, most: int) -> list[float]:
    """Ticks about evenly apart in a range of less than a power of ten; as `log_ticks` where those are too many."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**exponent for exponent in exponents for digit in (1, 1.5, 2, 3, 5, 7)]
    ticks = [tick for tick in ticks if low <= tick <= high]
    return ticks if len(ticks) <= most else log_ticks(low, high, most)


def doubling_ticks(low: float, high: float, most: int) -> list[float]:
    """The powers of two in a range, or every n-th of them."""
    exponents = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    return [2.0**exponent for exponent in exponents[:: math.ceil(len(exponents) / most) or 1]]


def linear_ticks(high: float, most: int) -> list[float]:
    """Zero and the multiples of 1, 2 or 5 times a power of ten up to `high`, at most `most` of them above zero."""
    power = 10.0 ** math.floor(math.log10(high / most))
    steps = [digit * power for digit in (1, 2, 5, 10)]
    step, count = next((step, count) for step in steps if (count := math.floor(high / step)) <= most)
    return [float(f"{index * step:.9g}") for index in range(count + 1)]


def batch_axis(frame: Frame, batches: Iterable[int], title: str) -> Spec:
    """Batches on a log scale, with a tick for each or for the powers of two, every n-th where those are many."""
    known = sorted(set(batches))
    most = 6 if is_narrow(frame.width) else 12
    powers = [batch for batch in known if batch & (batch - 1) == 0]
    ticks = known if len(known) <= most or len(powers) < 2 else powers
    ticks = ticks[:: math.ceil(len(ticks) / most)]
    scale = log_scale(known[0] / 1.2, known[-1] * 1.2, base=2)
    return axis("batch", title, ticks, [format_count(tick) for tick in ticks], scale)


def plain_label(tick: float) -> str:
    """A tick's own number, whole where it is whole."""
    return format_count(int(tick)) if tick == int(tick) else format_number(tick, 1)


def short_label(tick: float) -> str:
    """A tick's own number, or with a prefix where it would be wider than the margin."""
    return plain_label(tick) if tick < _WIDE_TICK else format_si(tick, "", 1)
