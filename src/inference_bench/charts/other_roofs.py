"""How do the roofs of several machines stand in one plot? The others' lines, everyone's names, the others' whole steps.

In:   the plot of the first machine's roof, and the RooflineTables of all
Out:  layers
Leaves out: the first machine's operations (ceilings)
Read next by: ceilings.

A name stands at the bend of its roof, above all points, which lie on their roofs or below; where another is in the way it
stands higher, joined to the bend by a rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from inference_bench.charts.callouts import Box, Callout
from inference_bench.charts.grammar import LIGHT, Row, Spec, is_narrow, layer, shortened, spoken, text_px
from inference_bench.charts.labels import Labels, Place
from inference_bench.charts.roof_plot import RoofPlot
from inference_bench.predict.phases import RooflineTable
from inference_bench.roofline import Bound
from inference_bench.units import format_number

_DASHES: Final = ([7, 3], [2, 2], [9, 3, 2, 3], [4, 4])  # once round, then again
_STEP_PX: Final = 15
_ABOVE_PX: Final = 14  # from a bend to the middle of its name
_ASIDE_PX: Final = 5
_NAME_SHARE: Final = 0.7  # of the plot's width that a name may take
_CORNER_PX: Final = 4
_HALO_PX: Final = 4


class _Bend(NamedTuple):
    """A machine and the place that its name points at: where its roof bends, or leaves the plot where it does not."""

    name: str
    ridge: str
    x: float
    y: float


def known_others(others: Sequence[RooflineTable]) -> list[RooflineTable]:
    """Those whose roof can be drawn: at least one of its rates is known."""
    return [
        other
        for other in others
        if other.ceiling.bandwidth_bytes_per_s is not None or other.ceiling.peak_flops_per_s is not None
    ]


def drawn_phases(other: RooflineTable) -> list[Bound]:
    """The phases that have a place: prompts have none where no compute rate is known, as memory does not limit them."""
    known = other.ceiling.peak_flops_per_s is not None
    return [phase for phase in other.phases if known or phase.name == "decode"]


def above_px(num_others: int, width_px: int) -> int:
    """How much higher a plot is for the names of so many others; more where they do not fit beside one another."""
    return _STEP_PX * (num_others + (2 if is_narrow(width_px) else 0)) if num_others else 0


def other_roof_layers(plot: RoofPlot, others: Sequence[RooflineTable]) -> Iterator[Spec]:
    """A thin dashed line for each other machine."""
    for index, other in enumerate(others):
        dash = _DASHES[index % len(_DASHES)]
        line = {"type": "line", "stroke": LIGHT["muted"], "strokeWidth": 1.5, "strokeDash": dash, "clip": True}
        yield layer(line, plot.roof_rows(other.ceiling))


def other_point_layer(rows: Sequence[Row], shape: str) -> Spec:
    """The whole steps of the others, hollow."""
    mark: Spec = {"type": "point", "filled": True, "color": LIGHT["paper"], "size": 65, "strokeWidth": 1.5}
    return spoken({**mark, "shape": shape}, rows, stroke={"field": "ink", "type": "nominal", "scale": None})


def point_boxes(plot: RoofPlot, rows: Sequence[Row]) -> list[Box]:
    """What the points of the others cover: nothing is to be written there."""
    places = [(plot.x_px(row["intensity_flops_per_byte"]), plot.y_px(row["flops_per_s"])) for row in rows]
    return [Box(x - _CORNER_PX, y - _CORNER_PX, x + _CORNER_PX, y + _CORNER_PX) for x, y in places]


def haloed(spec: Spec) -> list[Spec]:
    """A layer of texts, over the same in the colour of the paper so that lines behind it break off."""
    if spec["mark"]["type"] != "text":
        return [spec]
    return [{**spec, "mark": {**spec["mark"], "stroke": LIGHT["paper"], "strokeWidth": _HALO_PX}}, spec]


def name_layers(
    plot: RoofPlot, tables: Sequence[RooflineTable], callouts: Sequence[Callout], points: Sequence[Row]
) -> Iterator[Spec]:
    """The name and the ridge of every machine at the bend of its roof, the lowest first; written in pixels."""
    width = plot.frame.plot_width
    labels = Labels(Box(0, 0, width, plot.frame.height))
    labels.written += [*plot.flat_label_boxes(tables[0].ceiling), *(item.box for item in callouts)]
    labels.taken += point_boxes(plot, points)
    labels.keep_off_curve(plot.place_px(row) for row in plot.roof_rows(tables[0].ceiling))
    bends, leaders = [bend for table in tables if (bend := _bend(plot, table)) is not None], []
    for bend in sorted(bends, key=lambda bend: -bend.y):
        said = f"{shortened(bend.name, _NAME_SHARE * width - text_px(bend.ridge))}{bend.ridge}"
        end = labels.put(said, _places(bend, text_px(said), width)).bottom
        leaders.append({**plot.at_px(bend.x, bend.y), "end": plot.rate_at_px(end)})
    yield layer({"type": "rule", "stroke": LIGHT["muted"]}, leaders, y2={"field": "end"})
    for spec in labels.layers()[1:]:
        rows = [{**plot.at_px(row["x"], row["y"]), "label": row["label"]} for row in spec["data"]["values"]]
        yield {**spec, "data": {"values": rows}}


def _bend(plot: RoofPlot, table: RooflineTable) -> _Bend | None:
    """Where the roof of a machine bends on the screen, and what is written there."""
    ceiling = table.ceiling
    ridge, peak, bandwidth = ceiling.ridge_flops_per_byte, ceiling.peak_flops_per_s, ceiling.bandwidth_bytes_per_s
    if ridge is not None and peak is not None:
        return _Bend(table.machine, f", ridge {format_number(ridge)}", plot.x_px(ridge), plot.y_px(peak))
    if peak is not None:
        return _Bend(table.machine, "", plot.frame.plot_width, plot.y_px(peak))
    if bandwidth is None:
        return None
    y = 2.0 * _ABOVE_PX  # as high as the name of a line that only rises can stand
    x = plot.x_px(plot.rate_at_px(y) / bandwidth)
    return _Bend(table.machine, "", min(x, plot.frame.plot_width), y)


def _places(bend: _Bend, size: float, width: float) -> Iterator[Place]:
    """Above the bend, ending there or beginning there, then ever higher; one that is too long begins at the left edge."""
    up = 0.0
    while up == 0.0 or bend.y - _ABOVE_PX - up > 0:
        y = bend.y - _ABOVE_PX - up
        yield Place(bend.x - _ASIDE_PX, y, "right")
        yield Place(bend.x + _ASIDE_PX, y, "left")
        yield Place(min(max(bend.x, size / 2), width - size / 2), y, "center")
        up += _STEP_PX / 3
