"""Where do phases and operations sit under a machine's roof, and what does a larger batch buy at best?

In:   RooflineTable
Out:  two Specs
Leaves out: measurements (see roofline and batch)
Read next by: cli, the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from inference_bench.charts.batch_panels import limit_cause
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
    is_narrow,
    layer,
    log_scale,
    log_ticks,
    nominal,
    place_legends,
    short_label,
    spoken,
    text,
    vertical,
)
from inference_bench.charts.other_roofs import (
    above_px,
    drawn_phases,
    haloed,
    known_others,
    name_layers,
    other_point_layer,
    other_roof_layers,
    point_boxes,
)
from inference_bench.charts.roof_plot import RoofPlot
from inference_bench.predict.phases import RooflineTable
from inference_bench.roofline import Bound, Roof
from inference_bench.units import format_count, format_number, format_seconds, format_si

_COLOURS: Final = {"prefill": LIGHT["prefill"], "decode": LIGHT["decode"], "hybrid": LIGHT["c1"]}
_SHORT_NAMES: Final = {"attention projections": "projections", "norms and other": "norms, other"}
_SHAPES: Final = {"whole step": "diamond", "operation": "circle"}
_SAME_PX: Final = 7
_RIGHT_PX: Final = 170  # of the rightmost point, for its label
_NARROW_RIGHT_PX: Final = 128  # the same in a narrow drawing, where names are shorter
_COMPUTE_PX: Final = 230  # right of the ridge, for what the flat part is
_LEAST_HEIGHT_PX: Final = 360
_ROOMS_PX: Final = (120, 180, 240, 300, 360, 420, 480)  # below the lowest point
_DASHED: Final = [5, 4]
_LINE_PX: Final = 17
_FIRST_BATCHES: Final = 4  # whose labels end before any other begins


def ceiling_chart(result: RooflineTable, width_px: int = WIDE_PX, others: Sequence[RooflineTable] = ()) -> Spec | None:
    """The roof, and on it each phase and operation at its own intensity: a bound lies on the roof by definition.

    Where:  others are the same question on other machines: their roofs with their names, and their whole steps hollow
    Unit:   FLOP/s over FLOP/byte, both on log scales
    """
    rows = [*_rows(result, result.phases), *_rows(result, [item for _, item in result.operations], are_phases=False)]
    ceiling, others = result.ceiling, known_others(others)
    if not rows or ceiling.bandwidth_bytes_per_s is None:
        return None
    others_rows = [row for other in others for row in _rows(other, drawn_phases(other), is_other=True)]
    phases = [phase.name for phase in result.phases]
    around = RoofPlot.around([*rows, *others_rows], ceiling, width_px, [other.ceiling for other in others])
    plot, callouts = _placed(around, rows, ceiling, others_rows, above_px(len(others), width_px))
    frame, (colour, shape) = place_legends(
        plot.frame,
        nominal("phase", phases, [_COLOURS[name] for name in phases]),
        nominal("kind", list(_SHAPES), list(_SHAPES.values()), symbolFillColor=LIGHT["muted"], symbolStrokeWidth=0),
    )
    ridge = text(_ridge_label(ceiling), align="right", baseline="bottom", dx=-4, dy=-6, color=LIGHT["muted"])
    return chart(
        frame,
        _words(result, others),
        plot.encoding(),
        [
            *other_roof_layers(plot, others),
            *(spec for part in plot.named_roof_layers(ceiling) for spec in (haloed(part) if others else [part])),
            *(name_layers(plot, [result, *others], callouts, [*rows, *others_rows]) if others else [ridge]),
            layer({"type": "rule", "stroke": LIGHT["muted"]}, _leaders(plot, callouts), y2={"field": "end"}),
            *_labels(plot, callouts, is_on_lines=bool(others)),
            spoken({"type": "point", "filled": True, "size": 90}, rows, color=colour, shape=shape),
            other_point_layer(others_rows, _SHAPES["whole step"]),
        ],
    )


def _rows(of: RooflineTable, items: Sequence[Bound], *, are_phases: bool = True, is_other: bool = False) -> list[Row]:
    """A row for each bound with an intensity; the phase of an operation is found in the table, a phase is its own."""
    phases = [item.name for item in items] if are_phases else [phase for phase, _ in of.operations]
    return [
        {
            "phase": phase,
            "ink": _COLOURS[phase],
            "kind": "whole step" if are_phases else "operation",
            "name": f"{item.name}, whole step" if are_phases else item.name,
            "intensity_flops_per_byte": item.intensity,
            "flops_per_s": item.flops / item.seconds,
            "ceiling_flops_per_s": None,
            "said": _said(of, phase, item, are_phases=are_phases, is_other=is_other),
        }
        for phase, item in zip(phases, items, strict=True)
        if item.intensity and item.seconds
    ]


def _said(of: RooflineTable, phase: str, item: Bound, *, are_phases: bool, is_other: bool) -> str:
    """A point in words: what it is, where it lies, and what limits it."""
    sizes = {"prefill": f"prompt of {format_count(of.prompt_tokens)}", "decode": f"batch {format_count(of.batch)}"}
    what = ", ".join([*([of.machine] if is_other else []), phase, *([sizes[phase]] if phase in sizes else [])])
    rate = item.flops / item.seconds if item.seconds else None
    return (
        f"{what}, {'whole step' if are_phases else item.name}: {format_number(item.intensity)} FLOP/byte, "
        f"{format_si(rate, 'FLOP/s')}, {format_seconds(item.seconds)}, limited by {item.limited_by}"
    )


def _placed(
    plot: RoofPlot, rows: Sequence[Row], ceiling: Roof, others: Sequence[Row], above: int
) -> tuple[RoofPlot, list[Callout]]:
    """The plot with as much room on its right, above, and below its points as labels need, and where these go."""
    last, is_small = max(row["intensity_flops_per_byte"] for row in rows), is_narrow(plot.frame.width)
    plot = replace(plot, says_compute=not is_small)
    right, compute = (_NARROW_RIGHT_PX, plot.flat_label_px(ceiling)) if is_small else (_RIGHT_PX, _COMPUTE_PX)
    for intensity, room in ((last, right), (ceiling.ridge_flops_per_byte or last, compute)):
        needed = plot.low_x * (intensity / plot.low_x) ** (plot.frame.plot_width / (plot.frame.plot_width - room))
        plot = replace(plot, high_x=max(plot.high_x, needed))
    lowest = min(row["flops_per_s"] for row in (*rows, *others))
    high_y = plot.high_y
    for need in _ROOMS_PX:
        height = max(_LEAST_HEIGHT_PX, need * 3 // 2)
        low_y = high_y * (lowest / high_y) ** (height / (height - need))
        top_y = high_y * (high_y / low_y) ** (above / height)
        plot = replace(plot, frame=replace(plot.frame, height=height + above), low_y=low_y, high_y=top_y)
        callouts = _callouts(plot, rows, ceiling, point_boxes(plot, others))
        if all(item.is_free for item in callouts):
            break
    return plot, callouts


def _callouts(plot: RoofPlot, rows: Sequence[Row], ceiling: Roof, obstacles: Sequence[Box]) -> list[Callout]:
    """One label for all points of a phase that lie at one place, each name on a line of its own."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["intensity_flops_per_byte"]):
        here = plot.x_px(row["intensity_flops_per_byte"])
        near = next((key for key in groups if key[0] == row["phase"] and abs(key[1] - here) <= _SAME_PX), None)
        groups.setdefault(near or (row["phase"], round(here)), []).append(row)
    return place_callouts(
        [_group_point(plot, group) for group in groups.values()],
        lambda x: plot.y_px(ceiling.attainable_flops_per_s(plot.intensity_at(x)) or plot.low_y),
        Box(0, 0, plot.frame.plot_width, plot.frame.height),
        obstacles,
    )


def _group_point(plot: RoofPlot, group: Sequence[Row]) -> Named:
    """The lowest point of a group, with the names of all; whole steps first."""
    first = group[0]
    names = sorted(group, key=lambda row: row["kind"] != "whole step")
    return Named(
        str(first["phase"]),
        plot.x_px(first["intensity_flops_per_byte"]),
        plot.y_px(first["flops_per_s"]),
        tuple(_shown_name(row, is_short=is_narrow(plot.frame.width)) for row in names),
    )


def _shown_name(row: Row, *, is_short: bool) -> str:
    name = str(row["name"])
    return _SHORT_NAMES.get(name, name.replace(", whole step", " step")) if is_short else name


def _ridge_label(ceiling: Roof) -> list[Row]:
    """Where the roof bends, above it."""
    ridge, peak = ceiling.ridge_flops_per_byte, ceiling.peak_flops_per_s
    if ridge is None or peak is None:
        return []
    label = f"ridge {format_number(ridge)}"
    return [{"intensity_flops_per_byte": ridge, "flops_per_s": peak, "label": label}]


def _leaders(plot: RoofPlot, callouts: Sequence[Callout]) -> list[Row]:
    return [{**plot.at_px(item.x, item.y), "end": plot.rate_at_px(item.leader.bottom)} for item in callouts]


def _labels(plot: RoofPlot, callouts: Sequence[Callout], *, is_on_lines: bool) -> list[Spec]:
    """The texts in the colours of their phases, on the right of their rules and on the left of them."""
    colour: Spec = {"field": "ink", "type": "nominal", "scale": None}
    found = []
    for is_right, align, dx in ((True, "left", 5), (False, "right", -5)):
        rows = [
            {**plot.at_px(item.x, item.text_top), "ink": _COLOURS[item.series], "label": "\n".join(item.lines)}
            for item in callouts
            if item.is_right is is_right
        ]
        looks: Spec = {"align": align, "baseline": "top", "dx": dx, "dy": 2, "lineBreak": "\n", "lineHeight": 15}
        if is_on_lines:
            found.append(text(rows, stroke=LIGHT["paper"], strokeWidth=4, **looks))
        found.append(text(rows, {"color": colour}, **looks))
    return found


def _words(result: RooflineTable, others: Sequence[RooflineTable]) -> str:
    ceiling = result.ceiling
    beside = ", ".join(
        f"{other.machine} (ridge {format_number(other.ceiling.ridge_flops_per_byte)})" for other in others
    )
    return (
        f"Roofline of {result.model} on {result.machine}: memory {format_si(ceiling.bandwidth_bytes_per_s, 'B/s')}, compute "
        f"{format_si(ceiling.peak_flops_per_s, 'FLOP/s')}, ridge {format_number(ceiling.ridge_flops_per_byte)} FLOP/byte; "
        f"decode of {format_count(result.batch)} sequences at {format_count(result.context_tokens)} tokens, "
        f"prefill of {format_count(result.prompt_tokens)} tokens.{f' Beside it: {beside}.' if beside else ''}"
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
    return f"limit {format_number(result.limits.tokens_per_s)} tokens/s: {limit_cause(result)} alone"


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
