"""Where do the measured steps of two runs lie, on one roofline?

In:   RunComparison
Out:  the roofline as a Spec; how each step moved from the first run to the second
Read next by: report, cli.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from inference_bench.charts.grammar import (
    LIGHT,
    WIDE_PX,
    Row,
    Spec,
    chart,
    is_narrow,
    layer,
    nominal,
    place_legends,
    series_shapes,
    text,
)
from inference_bench.charts.roof_plot import RoofPlot, roof_point
from inference_bench.compare_runs.flow import PointPair, RunComparison
from inference_bench.compare_runs.side import SidePoint
from inference_bench.roofline import Roof
from inference_bench.units import format_count

SIDES: Final = ("first run", "second run")
_COLOURS: Final = ("decode", "prefill")  # of the palette: two that are told apart in both themes
_UNKNOWN: Final = Roof(None, None, None)
_MOVE: Final[Spec] = {"type": "rule", "stroke": LIGHT["muted"], "strokeWidth": 1}


def two_runs_chart(result: RunComparison, width_px: int = WIDE_PX) -> Spec | None:
    """Work done a second over work per byte for every step that both runs measured; a line joins the two of a pair.

    Unit:    FLOP/s over FLOP/byte, both on log scales
    Ignores: the second run's own roof where both machines' rates differ by less than is drawn: it is dashed
    """
    pairs = [(pair, _row(pair.first, SIDES[0]), _row(pair.second, SIDES[1])) for pair in result.points]
    if not pairs:
        return None
    rows = [row for _, mine, theirs in pairs for row in (mine, theirs)]
    ceiling = result.first.ceiling or result.second.ceiling or _UNKNOWN
    other = result.second.ceiling if result.first.ceiling and result.second.ceiling != result.first.ceiling else None
    plot = RoofPlot.around(rows, ceiling, width_px, [other] if other else [])
    phases = list(dict.fromkeys(row["phase"] for row in rows))
    frame, (colour, shape) = place_legends(
        plot.frame,
        nominal("run", SIDES, [LIGHT[name] for name in _COLOURS]),
        nominal(
            "phase", phases, series_shapes(phases), symbolFillColor=LIGHT["muted"], symbolStrokeColor=LIGHT["muted"]
        ),
    )
    moves = [
        {**mine, "to_x": theirs["intensity_flops_per_byte"], "to_y": theirs["flops_per_s"]} for _, mine, theirs in pairs
    ]
    return chart(
        frame,
        _words(result, pairs),
        plot.encoding(),
        [
            *plot.roof_layers(ceiling),
            *([_dashed(plot, other)] if other else []),
            layer(_MOVE, moves, x2={"field": "to_x"}, y2={"field": "to_y"}),
            layer({"type": "point", "filled": True, "size": 80}, rows, color=colour, shape=shape),
            text(_labels(rows, is_narrow(width_px)), baseline="top", dy=9),
        ],
    )


def _dashed(plot: RoofPlot, other: Roof) -> Spec:
    line = {"type": "line", "stroke": LIGHT["muted"], "strokeWidth": 1.5, "strokeDash": [7, 3], "clip": True}
    return layer(line, plot.roof_rows(other))


def _row(point: SidePoint, run: str) -> Row:
    place = roof_point(point.flops / point.num_bytes, point.flops / point.seconds)
    ceiling = None if point.bound_s is None else point.flops / point.bound_s
    name = f"B{point.batch}" if point.phase == "decode" else f"prompt {format_count(point.context_tokens)}"
    return {**place, "ceiling_flops_per_s": ceiling, "run": run, "phase": point.phase, "name": name}


def _labels(rows: Sequence[Row], narrow: bool) -> list[Row]:
    """Each batch named once, under its lowest point; prompts where there is room."""
    lowest: dict[str, Row] = {}
    for row in rows:
        if row["phase"] != "decode" and narrow:
            continue
        known = lowest.get(row["name"])
        if known is None or row["flops_per_s"] < known["flops_per_s"]:
            lowest[row["name"]] = row
    return [roof_point(row["intensity_flops_per_byte"], row["flops_per_s"], label=name) for name, row in lowest.items()]


def _words(result: RunComparison, pairs: Sequence[tuple[PointPair, Row, Row]]) -> str:
    faster = sum(theirs["flops_per_s"] > mine["flops_per_s"] for _, mine, theirs in pairs)
    return f"Roofline with {len(pairs)} steps of {result.first.name} and {result.second.name}; {faster} are faster in the second."
