"""Where do the products of two libraries lie under this machine's roof?

In:   MachineResult
Out:  the roofline as a Spec
Read next by: report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
    spoken,
    text,
)
from inference_bench.charts.roof_plot import RoofPlot, roof_point
from inference_bench.labs.machine.result import LabProduct, Library, MachineResult, Orientation
from inference_bench.units import format_count, format_fraction, format_number, format_seconds, format_si

_COLOURS = ("decode", "prefill")
_BFLOAT16 = "PyTorch, bfloat16"


def machine_chart(result: MachineResult, width_px: int = WIDE_PX) -> Spec | None:
    """Rates of products over their intensity, under the highest ceilings; PyTorch's own roof dashed.

    Unit:  FLOP/s over FLOP/byte, both on log scales
    """
    rows = [_row(each) for each in (*result.products, *result.bfloat16_products)]
    if not rows:
        return None
    roof, own = result.ceilings.roof, result.torch_ceilings.roof
    plot = replace(RoofPlot.around(rows, roof, width_px, [own]), says_compute=not is_narrow(width_px))
    names = [*map(str, Library), *([_BFLOAT16] if result.bfloat16_products else [])]
    shapes = [str(orientation) for orientation in Orientation]
    muted = LIGHT["muted"]
    frame, (colour, shape) = place_legends(
        plot.frame,
        nominal("series", names, [LIGHT[role] for role in (*_COLOURS, "c2")[: len(names)]]),
        nominal("orientation", shapes, series_shapes(shapes), symbolFillColor=muted, symbolStrokeColor=muted),
    )
    dashed = {"type": "line", "stroke": muted, "strokeWidth": 1.5, "strokeDash": [7, 3], "clip": True}
    return chart(
        frame,
        _words(result),
        plot.encoding(),
        [
            *plot.roof_layers(roof),
            *([layer(dashed, plot.roof_rows(own))] if own != roof else []),
            spoken({"type": "point", "filled": True, "size": 60}, rows, color=colour, shape=shape),
            text(_labels(rows, is_narrow(width_px)), baseline="top", dy=9),
        ],
    )


def _row(product: LabProduct) -> Row:
    row = product.row
    series = str(product.library) if product.dtype == "float32" else _BFLOAT16
    said = (
        f"{series}, {product.orientation}, B = {format_count(row.batch)}: {format_seconds(row.seconds)}, "
        f"{format_si(row.flops_per_s, 'FLOP/s')}, {format_si(row.bytes_per_s, 'B/s')}, "
        f"spread {format_fraction(row.spread_fraction)}"
    )
    return roof_point(
        row.intensity_flops_per_byte,
        row.flops_per_s,
        ceiling_flops_per_s=None,
        series=series,
        orientation=str(product.orientation),
        batch=row.batch,
        said=said,
    )


def _labels(rows: Sequence[Row], narrow: bool) -> list[Row]:
    """Each B once, below its lowest float32 point; every second one where there is little room."""
    lowest: dict[int, Row] = {}
    for row in rows:
        known = lowest.get(row["batch"])
        if row["series"] != _BFLOAT16 and (known is None or row["flops_per_s"] < known["flops_per_s"]):
            lowest[row["batch"]] = row
    shown = sorted(lowest)
    shown = shown[:: 3 if narrow and len(shown) > 6 else 1]
    return [roof_point(lowest[b]["intensity_flops_per_byte"], lowest[b]["flops_per_s"], label=f"B{b}") for b in shown]


def _words(result: MachineResult) -> str:
    best, own = result.ceilings, result.torch_ceilings
    return (
        f"Roofline of products of a {result.matrix_size} × {result.matrix_size} matrix. Highest of both libraries: memory "
        f"{format_si(best.bandwidth_bytes_per_s, 'B/s')}, compute {format_si(best.peak_flops_per_s, 'FLOP/s')}, ridge "
        f"{format_number(best.roof.ridge_flops_per_byte)} FLOP/byte. PyTorch alone, dashed: "
        f"{format_si(own.bandwidth_bytes_per_s, 'B/s')} and {format_si(own.peak_flops_per_s, 'FLOP/s')}."
    )
