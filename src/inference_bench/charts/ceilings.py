"""Where do phases and operations sit under a machine's roof, and what does a larger batch buy at best?

In:   RooflineTable
Out:  two Specs
Leaves out: measurements (see roofline and batch)
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from inference_bench.charts.callouts import Box, Callout, Named, place_callouts
from inference_bench.charts.grammar import (
    LIGHT,
    WIDE_PX,
    Frame,
    Row,
    Spec,
    axis,
    batch_axis,
    chart,
    layer,
    log_scale,
    log_ticks,
    nominal,
    place_legends,
    short_label,
    text,
    vertical,
)
from inference_bench.charts.roofline import RoofPlot
from inference_bench.predict.phases import RooflineTable
from inference_bench.roofline import Bound, Roof
from inference_bench.units import format_count, format_number, format_si

_COLOURS: Final = {"prefill": LIGHT["prefill"], "decode": LIGHT["decode"], "hybrid": LIGHT["c1"]}
_SHAPES: Final = {"whole step": "diamond", "operation": "circle"}
_SAME_PX: Final = 7
_RIGHT_PX: Final = 170  # of the rightmost point, for its label
_COMPUTE_PX: Final = 230  # right of the ridge, for what the flat part is
_LEAST_HEIGHT_PX: Final = 360
_ROOMS_PX: Final = (120, 180, 240, 300, 360, 420, 480)  # below the lowest point
_DASHED: Final = [5, 4]
_LINE_PX: Final = 17
_FIRST_BATCHES: Final = 4  # whose labels end before any other begins


def ceiling_chart(result: RooflineTable, width_px: int = WIDE_PX) -> Spec | None:
    """The roof, and on it each phase and operation at its own intensity: a bound lies on the roof by definition.

    Unit:  FLOP/s over FLOP/byte, both on log scales
    """
    rows = [*_rows(result.phases, None), *_rows([item for _, item in result.operations], result)]
    ceiling = result.ceiling
    if not rows or ceiling.bandwidth_bytes_per_s is None:
        return None
    phases = [phase.name for phase in result.phases]
    plot, callouts = _placed(RoofPlot.around(rows, ceiling, width_px), rows, ceiling)
    frame, (colour, shape) = place_legends(
        plot.frame,
        nominal("phase", phases, [_COLOURS[name] for name in phases]),
        nominal("kind", list(_SHAPES), list(_SHAPES.values()), symbolFillColor=LIGHT["muted"], symbolStrokeWidth=0),
    )
    return chart(
        frame,
        _words(result),
        plot.encoding(),
        [
            *plot.named_roof_layers(ceiling),
            text(_ridge_label(ceiling), align="right", baseline="bottom", dx=-4, dy=-6, color=LIGHT["muted"]),
            layer({"type": "rule", "stroke": LIGHT["muted"]}, _leaders(plot, callouts), y2={"field": "end"}),
            *_labels(plot, callouts),
            layer({"type": "point", "filled": True, "size": 90}, rows, color=colour, shape=shape),
        ],
    )


def _rows(items: Sequence[Bound], of: RooflineTable | None) -> list[Row]:
    """A row for each bound with an intensity; the phase of an operation is found in the table, a phase is its own."""
    phases = [item.name for item in items] if of is None else [phase for phase, _ in of.operations]
    return [
        {
            "phase": phase,
            "kind": "whole step" if of is None else "operation",
            "name": f"{item.name}, whole step" if of is None else item.name,
            "intensity_flops_per_byte": item.intensity,
            "flops_per_s": item.flops / item.seconds,
            "ceiling_flops_per_s": None,
        }
        for phase, item in zip(phases, items, strict=True)
        if item.intensity and item.seconds
    ]


def _placed(plot: RoofPlot, rows: Sequence[Row], ceiling: Roof) -> tuple[RoofPlot, list[Callout]]:
    """The plot with as much room on its right and below its points as their labels need, and where these go."""
    last = max(row["intensity_flops_per_byte"] for row in rows)
    for intensity, room in ((last, _RIGHT_PX), (ceiling.ridge_flops_per_byte or last, _COMPUTE_PX)):
        needed = plot.low_x * (intensity / plot.low_x) ** (plot.frame.plot_width / (plot.frame.plot_width - room))
        plot = replace(plot, high_x=max(plot.high_x, needed))
    lowest = min(row["flops_per_s"] for row in rows)
    for need in _ROOMS_PX:
        height = max(_LEAST_HEIGHT_PX, need * 3 // 2)
        low_y = plot.high_y * (lowest / plot.high_y) ** (height / (height - need))
        plot = replace(plot, frame=replace(plot.frame, height=height), low_y=low_y)
        callouts = _callouts(plot, rows, ceiling)
        if all(item.is_free for item in callouts):
            break
    return plot, callouts


def _callouts(plot: RoofPlot, rows: Sequence[Row], ceiling: Roof) -> list[Callout]:
    """One label for all points of a phase that lie at one place, each name on a line of its own."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["intensity_flops_per_byte"]):
        here = plot.x_px(row["intensity_flops_per_byte"])
        near = next((key for key in groups if key[0] == row["phase"] and abs(key[1] - here) <= _SAME_PX), None)
        groups.setdefault(near or (row["phase"], round(here)), []).append(row)
    return place_callouts(
        [_group_point(plot, group) for group in groups.values()],
        lambda x: plot.y_px(ceiling.attainable_flops_per_s(_intensity_at(plot, x)) or plot.low_y),
        Box(0, 0, plot.frame.plot_width, plot.frame.height),
    )


def _group_point(plot: RoofPlot, group: Sequence[Row]) -> Named:
    """The lowest point of a group, with the names of all; whole steps first."""
    first = group[0]
    names = sorted(group, key=lambda row: row["kind"] != "whole step")
    return Named(
        str(first["phase"]),
        plot.x_px(first["intensity_flops_per_byte"]),
        plot.y_px(first["flops_per_s"]),
        tuple(str(row["name"]) for row in names),
    )


def _intensity_at(plot: RoofPlot, x_px: float) -> float:
    intensity: float = plot.low_x * (plot.high_x / plot.low_x) ** (x_px / plot.frame.plot_width)
    return intensity


def _ridge_label(ceiling: Roof) -> list[Row]:
    """Where the roof bends, above it."""
    ridge, peak = ceiling.ridge_flops_per_byte, ceiling.peak_flops_per_s
    if ridge is None or peak is None:
        return []
    label = f"ridge {format_number(ridge)}"
    return [{"intensity_flops_per_byte": ridge, "flops_per_s": peak, "label": label}]


def _leaders(plot: RoofPlot, callouts: Sequence[Callout]) -> list[Row]:
    return [{**_at(plot, item, item.y), "end": plot.rate_at_px(item.leader.bottom)} for item in callouts]


def _labels(plot: RoofPlot, callouts: Sequence[Callout]) -> list[Spec]:
    """The texts in the colours of their phases, on the right of their rules and on the left of them."""
    colour: Spec = {"field": "ink", "type": "nominal", "scale": None}
    found = []
    for is_right, align, dx in ((True, "left", 5), (False, "right", -5)):
        rows = [
            {**_at(plot, item, item.text_top), "ink": _COLOURS[item.series], "label": "\n".join(item.lines)}
            for item in callouts
            if item.is_right is is_right
        ]
        found.append(
            text(rows, {"color": colour}, align=align, baseline="top", dx=dx, dy=2, lineBreak="\n", lineHeight=15)
        )
    return found


def _at(plot: RoofPlot, item: Callout, y_px: float) -> Row:
    return {"intensity_flops_per_byte": _intensity_at(plot, item.x), "flops_per_s": plot.rate_at_px(y_px)}


def _words(result: RooflineTable) -> str:
    ceiling = result.ceiling
    return (
        f"Roofline of {result.model} on {result.machine}: memory {format_si(ceiling.bandwidth_bytes_per_s, 'B/s')}, compute "
        f"{format_si(ceiling.peak_flops_per_s, 'FLOP/s')}, ridge {format_number(ceiling.ridge_flops_per_byte)} FLOP/byte; "
        f"decode of {format_count(result.batch)} sequences at {format_count(result.context_tokens)} tokens, "
        f"prefill of {format_count(result.prompt_tokens)} tokens."
    )


# ── decode over batch ──────────────────────────────────────────────────────────────────────────────


def decode_curve_chart(result: RooflineTable, width_px: int = WIDE_PX) -> Spec | None:
    """The bound of decode over batch, and the rate it tends to: the cache is read for each sequence.

    Unit:  tokens/s of the whole batch over sequences, both on log scales
    """
    if not result.curve:
        return None
    rows = [{"batch": row.batch, "tokens_per_s": row.tokens_per_s} for row in result.curve]
    limit, batches = result.limits.tokens_per_s, [row.batch for row in result.curve]
    rates = [row["tokens_per_s"] for row in rows] + ([limit] if limit else [])
    low, high = min(rates) / 1.5, max(rates) * 1.6
    ticks = log_ticks(low, high, 6)
    frame = Frame(width_px, 300, left=58)
    title = f"decode bound (tokens/s, whole batch at {format_count(result.context_tokens)} tokens, log scale)"
    scale = axis("tokens_per_s", title, ticks, [short_label(tick) for tick in ticks], log_scale(low, high))
    limits = [{"tokens_per_s": limit, "batch": batches[0], "label": _limit_label(result)}] if limit else []
    asked = [row for row in rows if row["batch"] == result.batch]
    blue = LIGHT["decode"]
    return chart(
        frame,
        f"Bound of decode tokens a second over batch for {result.model} on {result.machine}.",
        {
            "x": batch_axis(frame, batches, "batch (sequences decoding together)"),
            "y": vertical(frame, scale),
        },
        [
            layer({"type": "rule", "stroke": LIGHT["muted"], "strokeDash": _DASHED}, limits, x=None),
            text(limits, align="left", baseline="bottom", dy=-6, color=LIGHT["muted"]),
            *_balance_layers(result, batches, low),
            layer({"type": "line", "stroke": blue}, rows),
            layer({"type": "point", "filled": True, "size": 50, "color": blue}, rows),
            *_asked_layers(result, asked, low),
        ],
    )


def _limit_label(result: RooflineTable) -> str:
    limits = result.limits
    does = {limits.interconnect_tokens_per_s: "sending", limits.compute_tokens_per_s: "computing"}
    what = does.get(limits.tokens_per_s, "reading caches")
    return f"limit {format_number(limits.tokens_per_s)} tokens/s: {what} alone"


def _asked_layers(result: RooflineTable, asked: Sequence[Row], low: float) -> list[Spec]:
    """A ring around the batch that was asked for, and its rate at the foot of the plot, where no curve comes."""
    rows = [
        {
            **row,
            "foot": low,
            "label": f"batch {format_count(row['batch'])}: {format_number(row['tokens_per_s'])} tokens/s",
        }
        for row in asked
    ]
    first, last = result.curve[0].batch, result.curve[-1].batch
    side = {"align": "right", "dx": -6} if result.batch**2 > first * last else {"align": "left", "dx": 6}
    ring: Spec = {"type": "point", "filled": False, "size": 190, "stroke": LIGHT["ink"], "strokeWidth": 1.5}
    foot: Spec = {"y": {"field": "foot", "type": "quantitative"}}
    above = _LINE_PX if result.batch > _FIRST_BATCHES else 0  # of the label of the balance batch
    return [
        layer({"type": "rule", "stroke": LIGHT["muted"]}, rows, y2={"field": "foot"}),
        layer(ring, rows),
        text(rows, foot, baseline="bottom", dy=-5 - above, stroke=LIGHT["paper"], strokeWidth=5, **side),
        text(rows, foot, baseline="bottom", dy=-5 - above, **side),
    ]


def _balance_layers(result: RooflineTable, batches: Sequence[int], low: float) -> list[Spec]:
    """Where weight products turn from memory to compute, when that is among the batches drawn."""
    balance = result.balance.products
    if balance is None or not batches[0] < balance < batches[-1]:
        return []
    rows = [{"batch": balance, "tokens_per_s": low, "label": f"weight products turn at {format_number(balance)}"}]
    rule: Spec = {"type": "rule", "stroke": LIGHT["muted"], "strokeDash": [2, 3]}
    return [
        layer(rule, rows, y=None),
        text(rows, align="right", baseline="bottom", dx=-6, dy=-5, color=LIGHT["muted"]),
    ]
