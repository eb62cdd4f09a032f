"""Which way of saving bits costs least, and where are the values that make it hard?

In:   QuantiseResult and the width of the drawing in CSS pixels
Out:  two Specs, or None without rows: perplexity over bits a weight, and outliers by block
Leaves out: methods that leave the weights as they are, or most of them (report)
Read next by: report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from inference_bench.charts.callouts import Box
from inference_bench.charts.grammar import (
    LIGHT,
    WIDE_PX,
    Frame,
    Row,
    Spec,
    is_narrow,
    layer,
    nominal,
    place_legends,
    series_shapes,
    spoken,
)
from inference_bench.charts.labels import Labels
from inference_bench.charts.panels import (
    TITLE_PX,
    Panel,
    Scale,
    empty_frame,
    level,
    limit_layers,
    number_tick,
    panels_chart,
)
from inference_bench.labs.quantise.result import ACTIVATIONS, OUTLIER_RATIO, MethodRow, OutlierRow, QuantiseResult
from inference_bench.units import format_count, format_number

MOST_BITS: Final = 10.0  # beyond which most of the weights were left as they are
MOST_TIMES: Final = 10.0  # the perplexity of float32, beyond which a model says nothing any more
_ROLES: Final = ("decode", "prefill", "c1", "c2", "c3", "c4")
_TOGETHER: Final = dict.fromkeys(ACTIVATIONS, "with 8-bit activations")
_HEIGHT_PX: Final = 300
_POINT: Final[Spec] = {"type": "point", "filled": True, "size": 64}
_MARGIN: Final = 1.15
_ASIDE_BITS: Final = 0.25
_POINT_PX: Final = 5


def compared(result: QuantiseResult) -> tuple[MethodRow, ...]:
    """The methods that store most weights in few bits, but for those so rough that they would hide all others."""
    return tuple(
        row
        for row in result.methods
        if row.bits_per_weight is not None
        and row.bits_per_weight < MOST_BITS
        and row.perplexity <= MOST_TIMES * result.float32_perplexity
    )


def series(row: MethodRow) -> str:
    """The heading that a method is drawn under: those that round activations too are one."""
    return _TOGETHER.get(row.family, row.family)


def pareto_front(rows: Iterable[MethodRow]) -> tuple[MethodRow, ...]:
    """Methods that no other beats in bits and in perplexity both, from few bits to many."""
    front: list[MethodRow] = []
    for row in sorted(rows, key=lambda row: (row.bits_per_weight or math.inf, row.perplexity)):
        if not front or row.perplexity < front[-1].perplexity:
            front.append(row)
    return tuple(front)


def quality_chart(result: QuantiseResult, width_px: int = WIDE_PX) -> Spec | None:
    """Perplexity over bits a weight, families apart; a line joins the methods that none beats in both.

    Unit:  bits a value of the linear layers, scales included
    """
    rows = compared(result)
    if not rows:
        return None
    families = list(dict.fromkeys(map(series, rows)))
    frame, colour, shape = _legend(families, width_px)
    perplexities = [result.float32_perplexity, *(row.perplexity for row in rows)]
    bits = [row.bits_per_weight or 0.0 for row in rows]
    y = Scale(min(perplexities) / _MARGIN, max(perplexities) * _MARGIN, is_log=True)
    x = _Bits(math.floor(min(bits)) - _ASIDE_BITS, math.ceil(max(bits)) + _ASIDE_BITS)
    panel = Panel(
        0, TITLE_PX, frame.plot_width, _HEIGHT_PX, x, y, "perplexity", "bits a weight", number_tick, number_tick
    )
    front = pareto_front(rows)
    points = [_method_point(row, panel) for row in rows]
    line = [panel.place(row.bits_per_weight or 0.0, row.perplexity) for row in front]
    return panels_chart(
        frame,
        _quality_words(result, front),
        [panel],
        [
            *limit_layers(panel, result.float32_perplexity, "float32"),
            layer({"type": "line", "stroke": LIGHT["muted"], "strokeWidth": 1.5}, line),
            spoken(_POINT, points, color=colour, shape=shape),
            *_names(result, front, panel, is_narrow(width_px)).layers(),
        ],
    )


class _Bits(Scale):
    """Whole bits from the least on, not from zero."""

    def ticks(self, most: int) -> list[float]:
        """Every bit, or every second one."""
        whole = [float(each) for each in range(math.ceil(self.low), math.floor(self.high) + 1)]
        return whole if len(whole) <= most else whole[::2]


def _legend(names: Sequence[str], width_px: int) -> tuple[Frame, Spec, Spec]:
    """The frame with its legend, and the colour and the shape of each name."""
    colours = [LIGHT[_ROLES[index % len(_ROLES)]] for index in range(len(names))]
    colour = nominal("series", names, colours)
    shape = nominal("series", names, series_shapes(names))
    frame, (colour,) = place_legends(empty_frame(width_px), colour)
    return frame, colour, {**shape, "legend": colour["legend"]}


def _method_point(row: MethodRow, panel: Panel) -> Row:
    bits = row.bits_per_weight or 0.0
    return {
        **panel.place(bits, row.perplexity),
        "series": series(row),
        "bits_per_weight": bits,
        "perplexity": row.perplexity,
        "said": f"{row.name}: {format_number(bits)} bits a weight, perplexity {format_number(row.perplexity, 4)}",
    }


def _names(result: QuantiseResult, front: Sequence[MethodRow], panel: Panel, narrow: bool) -> Labels:
    """The methods on the front by the first words of their names, every second one in a narrow drawing."""
    names = Labels.of_panel(panel)
    for row in compared(result):
        x, y = panel.at_x(row.bits_per_weight or 0.0), panel.at_y(row.perplexity)
        names.taken.append(Box(x - _POINT_PX, y - _POINT_PX, x + _POINT_PX, y + _POINT_PX))
    names.keep_off_curve([panel.place(row.bits_per_weight or 0.0, row.perplexity) for row in front])
    names.keep_off_lines(ys=[panel.at_y(result.float32_perplexity)])
    for row in front[:: 2 if narrow else 1]:
        said = row.name.partition(",")[0]
        names.put_joined(said, panel.at_x(row.bits_per_weight or 0.0), panel.at_y(row.perplexity))
    return names


def _quality_words(result: QuantiseResult, front: Sequence[MethodRow]) -> str:
    best = ", ".join(
        f"{row.name} ({format_number(row.bits_per_weight)} bits, {format_number(row.perplexity, 4)})" for row in front
    )
    return (
        f"Perplexity over bits a weight; float32 has {format_number(result.float32_perplexity, 4)}. "
        f"No method beats these in both: {best}."
    )


def outlier_chart(result: QuantiseResult, width_px: int = WIDE_PX) -> Spec | None:
    """How far the largest channel of each input stands above the median one, block by block.

    Formula:  max_j max|x_j| / median_j max|x_j|
    """
    rows = [row for row in result.outliers if row.block is not None and row.ratio]
    if not rows:
        return None
    kinds = list(dict.fromkeys(row.kind for row in rows))
    frame, colour, shape = _legend(kinds, width_px)
    ratios = [row.ratio or 1.0 for row in rows]
    y = Scale(min(*ratios, 1.0) / _MARGIN, max(*ratios, OUTLIER_RATIO) * 2, is_log=True)
    x = Scale(-0.5, max(row.block or 0 for row in rows) + 0.5)
    panel = Panel(
        0, TITLE_PX, frame.plot_width, _HEIGHT_PX, x, y, "largest channel over the median one", "block", number_tick,
        number_tick,
    )  # fmt: skip
    return panels_chart(
        frame,
        _outlier_words(rows),
        [panel],
        [
            level(panel, OUTLIER_RATIO),
            spoken(_POINT, [_outlier_point(row, panel) for row in rows], color=colour, shape=shape),
        ],
    )


def _outlier_point(row: OutlierRow, panel: Panel) -> Row:
    return {
        **panel.place(row.block or 0, row.ratio or 1.0),
        "series": row.kind,
        "ratio": row.ratio,
        "said": f"block {format_count(row.block)}, {row.kind}: {format_number(row.ratio)} times the median channel",
    }


def _outlier_words(rows: Sequence[OutlierRow]) -> str:
    worst = max(rows, key=lambda row: row.ratio or 0.0)
    return (
        f"Largest input channel over the median one of {format_count(len(rows))} inputs; the most is {format_number(worst.ratio)} "
        f"times, before {worst.kind} of block {format_count(worst.block)}."
    )
