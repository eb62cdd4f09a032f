"""What does a result look like? Vega-Lite specifications as plain dicts, with their data inside.

In:   a typed result and the width of the drawing in CSS pixels; here are the charts of a verification, the others by module
Out:  one Spec a chart, or None where there is nothing to draw; its `description` says in words what it shows
Leaves out: turning a spec into an image (render), captions and numbers in tables (report)
Read next by: render, report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inference_bench.charts.grammar import NARROW_PX, PALETTE, WIDE_PX, Spec

if TYPE_CHECKING:
    from inference_bench.charts.batch import batch_curve_chart as batch_curve_chart
    from inference_bench.charts.batch import probe_chart as probe_chart
    from inference_bench.charts.gap import gap_chart as gap_chart
    from inference_bench.charts.gap import point_name as point_name
    from inference_bench.charts.latency import group_labels as group_labels
    from inference_bench.charts.latency import latency_chart as latency_chart
    from inference_bench.charts.roofline import roofline_chart as roofline_chart

_HOME = {
    "batch_curve_chart": "batch",
    "probe_chart": "batch",
    "gap_chart": "gap",
    "point_name": "gap",
    "group_labels": "latency",
    "latency_chart": "latency",
    "roofline_chart": "roofline",
}
__all__ = ["NARROW_PX", "PALETTE", "WIDE_PX", "Spec", *_HOME]


def __getattr__(name: str) -> Any:
    """The chart of that name, from the module it lives in: what verify draws is loaded when it is first drawn."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
