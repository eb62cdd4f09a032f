"""Which share of its ceiling did each measured point reach, and what limits it there?

In:   VerifyResult
Out:  horizontal bars as a Spec
Read next by: report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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
    text,
    unlisted,
)
from inference_bench.compare import ComparedPoint, Phase, Verdict
from inference_bench.units import format_count, format_fraction
from inference_bench.verify.result import VerifyResult

_ROW_PX: Final = 26
_BAR: Final[Spec] = {"type": "bar", "height": 14}
_CEILING: Final = 1.0


def gap_chart(result: VerifyResult, width_px: int = WIDE_PX) -> Spec | None:
    """The fraction of the ceiling each point reached; what lies above 100 % is drawn in a colour of its own.

    Unit:  fraction, printed as percent
    """
    narrow = is_narrow(width_px)
    rows = [_bar_row(point, point.fraction_of_bound, narrow) for point in result.points if point.fraction_of_bound]
    if not rows:
        return None
    above = [row for row in rows if row["verdict"] == Verdict.ABOVE]
    frame = Frame(width_px, _ROW_PX * len(rows), left=98 if narrow else 180, right=120 if narrow else 140, top=26)
    colour = unlisted(nominal("phase", [str(phase) for phase in Phase], [LIGHT[phase] for phase in Phase]))
    below = [row for row in rows if row["verdict"] != Verdict.ABOVE]
    column: Spec = {"x": {"value": frame.plot_width + 10}, "y": _point_axis(rows)}
    line = {"type": "rule", "stroke": LIGHT["ink"], "strokeWidth": 1.5}
    mark = [{"fraction_of_bound": _CEILING, "label": "ceiling"}]
    return chart(
        frame,
        f"Share of the ceiling reached by each of {len(rows)} measured points; {len(above)} lie above it.",
        {"x": _share_axis(rows, narrow)},
        [
            layer(_BAR, rows, y=_point_axis(rows), color=colour),
            layer(_BAR | {"color": LIGHT["finding"]}, above, y=_point_axis(rows), x2={"field": "ceiling"}),
            layer(line, mark),
            text(mark, {"y": {"value": 0}}, baseline="bottom", dy=-6),
            text(below, column, align="left"),
            text(above, column, align="left", color=LIGHT["finding"], fontWeight="bold"),
        ],
    )


def _bar_row(point: ComparedPoint, fraction: float, narrow: bool) -> Row:
    measured = point.measured
    return {
        "point": point_name(point, is_short=narrow),
        "phase": str(measured.phase),
        "batch": measured.batch,
        "context_tokens": measured.nominal_context_tokens,
        "fraction_of_bound": fraction,
        "ceiling": _CEILING,
        "verdict": str(point.verdict),
        "label": f"{format_fraction(fraction)} {point.bound.limited_by}",
    }


def point_name(point: ComparedPoint, *, is_short: bool = False) -> str:
    """What was measured, in words."""
    measured = point.measured
    context = format_count(measured.nominal_context_tokens)
    if measured.phase is Phase.PREFILL:
        return f"prefill {context}" if is_short else f"prefill, prompt of {context}"
    return f"B {measured.batch} at {context}" if is_short else f"decode, batch {measured.batch} at {context}"


def _point_axis(rows: Sequence[Row]) -> Spec:
    names = [row["point"] for row in rows]
    shown = {"title": None, "labelColor": LIGHT["ink"], "labelLimit": 180, "grid": False}
    return {"field": "point", "type": "nominal", "sort": names, "axis": shown}


def _share_axis(rows: Sequence[Row], narrow: bool) -> Spec:
    """From nothing to beyond the ceiling, with room for a label after the longest bar."""
    longest = max(_CEILING, *(row["fraction_of_bound"] for row in rows))
    ticks = linear_ticks(longest * 1.02, 3 if narrow else 6)
    labels = [format_fraction(tick, 1) for tick in ticks]
    return axis("fraction_of_bound", "share of the ceiling", ticks, labels, {"domain": [0, longest * 1.02]})
