"""Where do the measured points lie under this machine's roof, and how far below it?

In:   VerifyResult
Out:  the roofline as a Spec
Read next by: report.
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
    context_label,
    is_narrow,
    layer,
    nominal,
    place_legends,
    series_shapes,
    text,
)
from inference_bench.charts.roof_plot import RoofPlot, roof_point
from inference_bench.compare import ComparedPoint, Phase, Verdict
from inference_bench.roofline import Roof
from inference_bench.units import format_count, format_number, format_si
from inference_bench.verify.result import VerifyResult

_CEILING_MARK: Final[Spec] = {"type": "point", "filled": False, "size": 70, "strokeWidth": 1.5}
_ERASER: Final[Spec] = {"type": "point", "shape": "circle", "filled": True, "size": 70, "color": LIGHT["paper"]}
_RING: Final[Spec] = {"type": "point", "shape": "circle", "size": 280, "stroke": LIGHT["finding"], "strokeWidth": 2}
_GAP: Final[Spec] = {"type": "rule", "stroke": LIGHT["muted"], "strokeWidth": 1}


def roofline_chart(result: VerifyResult, width_px: int = WIDE_PX) -> Spec | None:
    """Work done a second over work per byte: the roof, each measured point, and its ceiling straight above it.

    Unit:  FLOP/s over FLOP/byte, both on log scales
    """
    rows = [row for row in map(_point_row, result.points) if row is not None]
    if not rows:
        return None
    plot = RoofPlot.around(rows, result.ceiling, width_px)
    contexts = [context_label(tokens) for tokens in sorted({row["context_tokens"] for row in rows})]
    frame, (colour, shape) = place_legends(
        plot.frame,
        nominal("phase", [str(phase) for phase in Phase], [LIGHT[phase] for phase in Phase]),
        nominal(
            "context",
            contexts,
            series_shapes(contexts),
            symbolFillColor=LIGHT["muted"],
            symbolStrokeColor=LIGHT["muted"],
        ),
    )
    capped = [row for row in rows if row["ceiling_flops_per_s"] is not None]
    above = [row for row in rows if row["verdict"] == Verdict.ABOVE]
    ceiling_y: Spec = {"field": "ceiling_flops_per_s", "type": "quantitative"}
    return chart(
        frame,
        _words(rows, result.ceiling),
        plot.encoding(),
        [
            *plot.roof_layers(result.ceiling),
            layer(_GAP, capped, y2={"field": "ceiling_flops_per_s"}),
            layer(_ERASER, capped, y=ceiling_y),
            layer(_CEILING_MARK, capped, y=ceiling_y, color=colour, shape=shape),
            layer({"type": "point", "filled": True, "size": 80}, rows, color=colour, shape=shape),
            layer(_RING, above),
            text(_point_labels(rows, is_narrow(width_px)), baseline="top", dy=9),
        ],
    )


def _point_row(point: ComparedPoint) -> Row | None:
    if not point.bound.intensity:
        return None
    measured = point.measured
    return {
        "phase": str(measured.phase),
        "batch": measured.batch,
        "context_tokens": measured.nominal_context_tokens,
        "context": context_label(measured.nominal_context_tokens),
        "intensity_flops_per_byte": point.bound.intensity,
        "flops_per_s": point.bound.flops / measured.seconds,
        "ceiling_flops_per_s": point.bound.flops / point.bound.seconds if point.bound.seconds else None,
        "verdict": str(point.verdict),
    }


def _point_labels(rows: Sequence[Row], narrow: bool) -> list[Row]:
    """Each batch named once, under its lowest point, as contexts lie close together; prompts where there is room."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        is_decode = row["phase"] == Phase.DECODE
        name = f"B{row['batch']}" if is_decode else f"prompt {format_count(row['context_tokens'])}"
        if is_decode or not narrow:
            groups.setdefault(name, []).append(row)
    lowest = {name: min(group, key=lambda row: row["flops_per_s"]) for name, group in groups.items()}
    return [roof_point(row["intensity_flops_per_byte"], row["flops_per_s"], label=name) for name, row in lowest.items()]


def _words(rows: Sequence[Row], ceiling: Roof) -> str:
    memory, compute = format_si(ceiling.bandwidth_bytes_per_s, "B/s"), format_si(ceiling.peak_flops_per_s, "FLOP/s")
    ridge = format_number(ceiling.ridge_flops_per_byte)
    return f"Roofline with {len(rows)} measured points. Memory {memory}, compute {compute}, ridge {ridge} FLOP/byte."
