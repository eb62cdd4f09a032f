"""What does a verification look like? Vega-Lite specifications as plain dicts, with their data inside.

In:   VerifyResult and the width of the drawing in CSS pixels
Out:  one Spec a chart, or None where there is nothing to draw; its `description` says in words what it shows
Leaves out: turning a spec into an image (render), captions and numbers in tables (report)
Read next by: render, report.
"""

from inference_bench.charts.batch import batch_curve_chart, probe_chart
from inference_bench.charts.gap import gap_chart, point_name
from inference_bench.charts.grammar import NARROW_PX, PALETTE, WIDE_PX, Spec
from inference_bench.charts.latency import group_labels, latency_chart
from inference_bench.charts.roofline import roofline_chart

__all__ = [
    "NARROW_PX",
    "PALETTE",
    "WIDE_PX",
    "Spec",
    "batch_curve_chart",
    "gap_chart",
    "group_labels",
    "latency_chart",
    "point_name",
    "probe_chart",
    "roofline_chart",
]
