"""From which volume do machines cost less than a hosted model? A day's cost over the requests of a day.

In:   Plans of one scenario on one machine or several
Out:  one Spec, or None where no machine has a price
Leaves out: arithmetic (predict.cost_curve)
Read next by: report, the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.charts.grammar import (
    LIGHT,
    WIDE_PX,
    Row,
    Spec,
    is_narrow,
    layer,
    nominal,
    place_legends,
    series_colours,
    short_label,
    spoken,
)
from inference_bench.charts.labels import Labels, Place, along_upright
from inference_bench.charts.panels import (
    Panel,
    Scale,
    Shown,
    empty_frame,
    panels_chart,
    series_dashes,
    stacked,
    upright,
)
from inference_bench.predict.cost_curve import BreakEven, CostCurve, cost_curve
from inference_bench.predict.plan import Plan
from inference_bench.units import format_count, format_number

_HEIGHT_PX, _NARROW_HEIGHT_PX = 230, 210
_HOSTED_DASHES: Final = ([6, 4], [2, 2])
_LOG_RATIO: Final = 2
_DOT: Final[Spec] = {"type": "point", "filled": True, "size": 55}
_RING: Final[Spec] = {"type": "point", "filled": False, "size": 170, "stroke": LIGHT["ink"], "strokeWidth": 1.5}
_LINES: Final[Spec] = {"symbolType": "stroke", "symbolSize": 300}


def break_even_chart(plans: Plan | Sequence[Plan], width_px: int = WIDE_PX) -> Spec | None:
    """A day's cost over its requests: replicas as a staircase, the hosted model as a line, rings where they break even.

    Where:  the upright line is the volume asked for; a break-even that no replica carries is said, not drawn
    Unit:   USD a day over requests a day, both on log scales
    """
    curve = cost_curve([plans] if isinstance(plans, Plan) else plans)
    if curve is None or _has_nothing_to_scale(curve):
        return None
    names = [line.name for line in curve.lines]
    frame, (colour,) = place_legends(empty_frame(width_px), nominal("series", names, series_colours(names), **_LINES))
    dash = {**nominal("series", names, _dashes(curve)), "legend": colour["legend"]}
    costs = [usd for line in curve.lines for _, usd in line.corners]
    height = _NARROW_HEIGHT_PX if is_narrow(width_px) else _HEIGHT_PX
    shown = Shown("USD a day", Scale.over(costs, _LOG_RATIO), short_label)
    panels = stacked(frame, [shown], Scale(curve.low, curve.high, is_log=True), "requests a day", short_label, height)
    asked = curve.asked_requests_per_day
    lines, met = list(_line_rows(curve, panels[0])), list(_break_even_rows(curve, panels[0]))
    order: Spec = {"field": "order", "type": "quantitative"}
    return panels_chart(
        frame,
        _words(curve),
        panels,
        [
            *([] if asked is None else [upright(panels, asked, stroke=LIGHT["muted"])]),
            layer({"type": "line"}, lines, color=colour, strokeDash=dash, order=order),
            spoken(_DOT, list(_asked_rows(curve, panels[0])), color=colour),
            spoken(_RING, met),
            *_labels(curve, panels[0], lines, met),
        ],
    )


def _has_nothing_to_scale(curve: CostCurve) -> bool:
    """Whether something costs nothing, or is asked of nothing: a log scale has no place for it."""
    return curve.low <= 0 or any(usd <= 0 for line in curve.lines for _, usd in line.corners)


def _dashes(curve: CostCurve) -> list[list[int]]:
    """Machines unbroken, hosted lines dashed."""
    machines = [line.name for line in curve.lines if not line.is_hosted]
    return [*series_dashes(machines), *_HOSTED_DASHES[: len(curve.lines) - len(machines)]]


def _line_rows(curve: CostCurve, panel: Panel) -> Iterator[Row]:
    for line in curve.lines:
        for order, (volume, usd) in enumerate(line.corners):
            yield {
                **panel.place(volume, usd),
                "series": line.name,
                "order": order,
                "requests_per_day": volume,
                "usd_per_day": usd,
            }


def _asked_rows(curve: CostCurve, panel: Panel) -> Iterator[Row]:
    """What the volume asked for costs on each line."""
    asked = curve.asked_requests_per_day
    for line in curve.lines if asked is not None else ():
        if asked is not None and line.asked_usd_per_day is not None:
            count = "" if line.asked_replicas is None else f"{format_count(line.asked_replicas)} replica(s), "
            yield {
                **panel.place(asked, line.asked_usd_per_day),
                "series": line.name,
                "usd_per_day": line.asked_usd_per_day,
                "said": f"{line.name}, {_requests(asked)}: {count}{format_number(line.asked_usd_per_day)} USD a day",
            }


def _break_even_rows(curve: CostCurve, panel: Panel) -> Iterator[Row]:
    for found in curve.break_evens:
        if found.requests_per_day is not None and found.usd_per_day is not None:
            yield {
                **panel.place(found.requests_per_day, found.usd_per_day),
                "requests_per_day": found.requests_per_day,
                "said": f"{found.machine.name} breaks even with {found.hosted.name} at {_requests(found.requests_per_day)}",
            }


def _requests(volume: float) -> str:
    return f"{format_count(round(volume))} requests a day"


def _labels(curve: CostCurve, panel: Panel, lines: Sequence[Row], met: Sequence[Row]) -> list[Spec]:
    """The volumes that break even, the one asked for, and where there is none to break even, that there is none."""
    labels, asked = Labels.of_panel(panel), curve.asked_requests_per_day
    for line in curve.lines:
        labels.keep_off([row for row in lines if row["series"] == line.name])
    if asked is not None:
        labels.keep_off_lines([panel.at_x(asked)])
    for row in met:
        volume = format_count(round(row["requests_per_day"]))
        labels.put_joined(f"break-even {volume}", row["x"], row["y"])
    if asked is not None:
        labels.put(f"asked for: {format_count(round(asked))}", along_upright(panel, panel.at_x(asked)))
    if curve.break_evens and not met:
        labels.put("hosted costs less at every volume", _corners(panel))
    return labels.layers()


def _corners(panel: Panel) -> Iterator[Place]:
    """Places for a note: upper left, then lower, then at the right."""
    for y in range(12, int(panel.height) - 8, 16):
        yield Place(panel.left + 6, panel.top + y, "left")
    for y in range(int(panel.height) - 12, 8, -16):
        yield Place(panel.left + panel.width - 6, panel.top + y, "right")


def _words(curve: CostCurve) -> str:
    asked = curve.asked_requests_per_day
    costs = "" if asked is None else f" At {_requests(asked)}: " + "; ".join(_asked_words(curve)) + "."
    carried = ", ".join(f"{name} {_requests(volume)}" for name, volume in curve.replica_requests_per_day)
    met = " ".join(map(_met_words, curve.break_evens))
    return f"Cost a day over requests a day. One replica carries: {carried}.{costs}{f' {met}' if met else ''}"


def _asked_words(curve: CostCurve) -> Iterator[str]:
    for line in curve.lines:
        replicas = "" if line.asked_replicas is None else f" on {format_count(line.asked_replicas)} replica(s)"
        yield f"{line.name} {format_number(line.asked_usd_per_day)} USD{replicas}"


def _met_words(found: BreakEven) -> str:
    pair, first, last = (
        f"{found.machine.name} and {found.hosted.name}",
        found.requests_per_day,
        found.for_good_requests_per_day,
    )
    if found.replica_buys_per_day is None:
        return f"{pair} never break even: a request costs more power than it is sold for."
    if first is None:
        return f"{pair} never break even: {_requests(found.replica_buys_per_day)} are more than a replica carries."
    good = "" if last is None or last == first else f"; from {_requests(last)} on the machines always cost less"
    return f"{pair} break even at {_requests(first)}{good}."
