"""Where do the combinations of a matrix lie under one roof, and what did fewer bytes buy?

In:   MatrixResult
Out:  the roofline of all of them, and promised beside measured gains, each as a Spec
Leaves out: each combination's own charts, which its run folder holds
Read next by: report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from inference_bench.charts.callouts import Box
from inference_bench.charts.grammar import (
    LIGHT,
    WIDE_PX,
    Frame,
    Row,
    Spec,
    axis,
    chart,
    is_narrow,
    layer,
    linear_ticks,
    nominal,
    place_legends,
    series_colours,
    series_shapes,
    text_px,
)
from inference_bench.charts.labels import Labels
from inference_bench.charts.other_roofs import point_boxes
from inference_bench.charts.roof_plot import RoofPlot
from inference_bench.compare import Phase
from inference_bench.roofline import Roof
from inference_bench.units import format_count, format_number
from inference_bench.verify.matrix_result import MatrixPoint, MatrixResult, MatrixRow, gain

_GAP: Final[Spec] = {"type": "rule", "stroke": LIGHT["muted"], "strokeWidth": 1}
_POINT: Final[Spec] = {"type": "point", "filled": True, "size": 75}
_SEEN_THROUGH: Final[Spec] = {**_POINT, "opacity": 0.8, "stroke": LIGHT["paper"], "strokeWidth": 1}
_ROW_PX: Final = 24
_NAME_GAP_PX: Final = 14
_RIGHT_PX: Final = 26
_WITHOUT_GAIN: Final = 1.0


def set_up(row: MatrixRow, result: MatrixResult) -> str:
    """What is varied besides the weights, in words; nothing where that is nothing."""
    combination, axes = row.combination, result.axes
    cache = f"{combination.kv} cache" if len(axes.kv) > 1 else ""
    engine = combination.engine if len(axes.engine) > 1 else ""
    return ", ".join(filter(None, (cache, engine)))


def short_name(row: MatrixRow, result: MatrixResult) -> str:
    """A combination by what is varied alone."""
    weights = f"{row.combination.weights} weights" if len(result.axes.weights) > 1 else ""
    return ", ".join(filter(None, (weights, set_up(row, result)))) or row.combination.name


def value_name(row: MatrixRow, result: MatrixResult) -> str:
    """The same without saying what each value is of: for a small screen, and for a table."""
    combination, axes = row.combination, result.axes
    varied = ((combination.weights, axes.weights), (combination.kv, axes.kv), (combination.engine, axes.engine))
    return ", ".join(value for value, values in varied if len(values) > 1) or combination.weights


def matrix_roofline_chart(result: MatrixResult, width_px: int = WIDE_PX) -> Spec | None:
    """Every measured step under one roof: colour says how weights are stored, shape the cache and the engine.

    Unit:  FLOP/s over FLOP/byte, both on log scales
    """
    rows = [_point_row(row, point, result) for row in result.measured for point in row.points if point.bound.intensity]
    ceiling = next((row.ceiling for row in result.measured if row.ceiling is not None), None)
    if not rows or ceiling is None:
        return None
    plot = RoofPlot.around(rows, ceiling, width_px)
    weights = [name for name in result.axes.weights if any(row["weights"] == name for row in rows)]
    kinds = list(dict.fromkeys(row["set_up"] for row in rows))
    grey = {"symbolFillColor": LIGHT["muted"], "symbolStrokeColor": LIGHT["muted"]}
    encodings = [nominal("weights", weights, series_colours(weights))]
    if kinds != [""]:
        encodings.append(nominal("set_up", kinds, series_shapes(kinds), **grey))
    frame, placed = place_legends(plot.frame, *encodings)
    shown = dict(zip(("color", "shape"), placed, strict=False))
    capped = [row for row in rows if row["ceiling_flops_per_s"] is not None]
    return chart(
        frame,
        f"Roofline with {len(rows)} measured steps of {len(result.measured)} combinations.",
        plot.encoding(),
        [
            layer(_GAP, capped, y2={"field": "ceiling_flops_per_s"}),
            *plot.roof_layers(ceiling),
            layer(_SEEN_THROUGH, rows, **shown),
            *_batch_labels(replace(plot, frame=frame), ceiling, rows),
        ],
    )


def _point_row(row: MatrixRow, point: MatrixPoint, result: MatrixResult) -> Row:
    return {
        "weights": row.combination.weights,
        "set_up": set_up(row, result),
        "phase": str(point.phase),
        "batch": point.batch,
        "context_tokens": point.context_tokens,
        "intensity_flops_per_byte": point.bound.intensity,
        "flops_per_s": point.flops_per_s,
        "ceiling_flops_per_s": point.bound.flops / point.bound.seconds if point.bound.seconds else None,
    }


def _batch_labels(plot: RoofPlot, ceiling: Roof, rows: Sequence[Row]) -> Iterator[Spec]:
    """Each batch named once, at its lowest point and on no other's name; prompts where there is room."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        is_decode = row["phase"] == Phase.DECODE
        name = f"B{row['batch']}" if is_decode else f"prompt {format_count(row['context_tokens'])}"
        if is_decode or not is_narrow(plot.frame.width):
            groups.setdefault(name, []).append(row)
    labels = Labels(Box(0, 0, plot.frame.plot_width, plot.frame.height))
    labels.written += plot.flat_label_boxes(ceiling)
    labels.taken += point_boxes(plot, rows)
    labels.keep_off_curve(plot.place_px(row) for row in plot.roof_rows(ceiling))
    lowest = [(name, min(group, key=lambda row: row["flops_per_s"])) for name, group in groups.items()]
    for name, row in sorted(lowest, key=lambda item: item[1]["flops_per_s"]):
        labels.put_joined(name, **plot.place_px(row))
    rules, *names = labels.layers()
    yield layer(rules["mark"], _on_axes(plot, rules), x2={"field": "end_x"}, y2={"field": "end_y"})
    for spec in names:
        yield {**spec, "data": {"values": _on_axes(plot, spec)}}


def _on_axes(plot: RoofPlot, spec: Spec) -> list[Row]:
    """The rows of a layer in pixels, in the units of the axes as well."""
    rows = []
    for row in spec["data"]["values"]:
        ends = {"end_x": plot.intensity_at(row["x2"]), "end_y": plot.rate_at_px(row["y2"])} if "x2" in row else {}
        rows.append({**row, **plot.at_px(row["x"], row["y"]), **ends})
    return rows


def matrix_gain_chart(result: MatrixResult, width_px: int = WIDE_PX) -> Spec | None:
    """What each combination gains over the one with most bytes: hollow what the bytes promised, filled what was measured.

    Unit:  times the tokens a second
    """
    narrow = is_narrow(width_px)
    rows = _gain_rows(result, narrow)
    if not rows:
        return None
    longest = max(max(row["gain"], row["promised"] or 0) for row in rows) * 1.08
    names = list(dict.fromkeys(row["name"] for row in rows))
    left = round(max(map(text_px, names))) + _NAME_GAP_PX
    frame = Frame(width_px, _ROW_PX * len(names), left=left, right=_RIGHT_PX, top=_NAME_GAP_PX)
    batches = list(dict.fromkeys(row["at"] for row in rows))
    frame, (colour,) = place_legends(frame, nominal("at", batches, series_colours(batches)))
    ticks = linear_ticks(longest, 4 if narrow else 8)
    x = axis(
        "gain", "times the tokens a second", ticks, [f"×{format_number(t, 2)}" for t in ticks], {"domain": [0, longest]}
    )
    shown = {"title": None, "labelColor": LIGHT["ink"], "labelLimit": left, "grid": True}
    y: Spec = {"field": "name", "type": "nominal", "sort": names, "axis": shown}
    offset: Spec = {"field": "at", "type": "nominal", "sort": batches}
    promised = [row for row in rows if row["promised"] is not None]
    at_promise: Spec = {"field": "promised", "type": "quantitative"}
    hollow = {"type": "point", "filled": False, "size": 75, "strokeWidth": 1.5, "shape": "circle"}
    return chart(
        frame,
        f"Promised and measured gain of {len(names)} combinations over the one with most bytes.",
        {"x": x, "y": y, "yOffset": offset},
        [
            layer(
                {"type": "rule", "stroke": LIGHT["ink"], "strokeDash": [2, 3]},
                [{"gain": _WITHOUT_GAIN}],
                y=None,
                yOffset=None,
            ),
            layer({"type": "rule", "strokeWidth": 1.5}, promised, x2={"field": "promised"}, color=colour),
            layer(hollow, promised, x=at_promise, color=colour),
            layer(_POINT, rows, color=colour),
        ],
    )


def _gain_rows(result: MatrixResult, narrow: bool) -> list[Row]:
    base = result.base
    rows: list[Row] = []
    for row in result.measured:
        if base is None or row is base:
            continue
        for name, point, over in (
            ("one sequence", row.alone, base.alone),
            ("largest batch", result.largest(row), result.largest(base)),
            ("prefill", row.prefill, base.prefill),
        ):
            found = gain(point, over)
            if found is not None:
                rows.append(
                    {
                        "name": value_name(row, result) if narrow else short_name(row, result),
                        "at": name,
                        "gain": found.measured,
                        "promised": found.promised,
                    }
                )
    return rows
