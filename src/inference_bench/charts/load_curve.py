"""How do latency and throughput go together as the load rises? A sweep's points on the curve that everybody asks for.

In:   LoadPoints: what was asked, and the Metrics of what came, with its steady window
Out:  Specs, None for fewer than two points; `description` says in words what each shows
Leaves out: what happened within a point (load_latency, load_timeline)
Read next by: report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from inference_bench.charts.callouts import Box
from inference_bench.charts.grammar import (
    LIGHT,
    WIDE_PX,
    Row,
    Spec,
    is_narrow,
    layer,
    nominal,
    place_legends,
    spoken,
    text_px,
)
from inference_bench.charts.panels import (
    TITLE_PX,
    Panel,
    Scale,
    Shown,
    empty_frame,
    label,
    limit_layers,
    number_tick,
    on_paper,
    panels_chart,
    seconds_tick,
    stacked,
)
from inference_bench.metrics import Metrics, Objective, Percentiles
from inference_bench.records import RequestRecord
from inference_bench.token_window import TokenWindow
from inference_bench.units import format_count, format_number, format_seconds

_PANEL: Final[Spec] = {"field": "panel", "type": "nominal"}
_DOT: Final[Spec] = {"type": "point", "filled": True, "size": 55}
_SERIES: Final = {"p50": (LIGHT["decode"], "circle"), "p99": (LIGHT["prefill"], "square")}
_HIGH_PX, _FOOT_PX, _LEFT_PX = 220, 52, 62
_STEP_PX: Final = 4
_TOKENS, _GOOD, _SENT = "output tokens/s", "good requests/s", "sent requests/s"
STEADY: Final = "steady window"
WHOLE: Final = "whole run"


@dataclass(frozen=True, slots=True)
class Delivered:
    """What came a second, and over which time: the steady window where there is one, without ramp and drain.

    Formula:  tokens, completions and good requests a second of the window; else those of the whole run
    Unit:     tokens/s, requests/s; None where that is not known
    """

    output_tokens_per_s: float | None
    requests_per_s: float | None
    good_per_s: float | None
    over: str

    @classmethod
    def of(cls, metrics: Metrics, window: TokenWindow | None) -> Delivered:
        """Of one run, or of one load."""
        if window is not None:
            return cls(window.output_tokens_per_s, window.requests_per_s, window.good_requests_per_s, STEADY)
        completed, span_s = metrics.requests.completed, metrics.span_s
        rate = completed / span_s if span_s > 0 else None
        return cls(metrics.output_tokens_per_s, rate, metrics.goodput_requests_per_s, WHOLE)


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One point of a sweep.

    Where:  asked is the rate in requests/s or the number in flight that was asked for, label how it is called; is_open says
            that requests came on a schedule, so that a queue could grow
    """

    label: str
    asked: float
    metrics: Metrics
    records: Sequence[RequestRecord] = ()
    is_open: bool = True
    window: TokenWindow | None = None

    @property
    def delivered(self) -> Delivered:
        """What came a second."""
        return Delivered.of(self.metrics, self.window)

    @property
    def tokens_per_s(self) -> float:
        """Output tokens a second; 0 where they are not known."""
        return self.delivered.output_tokens_per_s or 0.0


def throughput_latency_chart(
    points: Sequence[LoadPoint], objective: Objective | None = None, width_px: int = WIDE_PX
) -> Spec | None:
    """p50 and p99 of TTFT and of TPOT over output tokens a second, a dot for each point of the sweep, joined as load rises.

    Where:  percentiles are of completed requests; the dashed line is the objective
    Unit:   seconds; tokens/s
    """
    kept = [point for point in points if point.tokens_per_s]
    times = [(title, of) for title, of in _TIMES if any(of(point.metrics) for point in kept)]
    if len(kept) < 2 or not times:
        return None
    names, looks = list(_SERIES), list(_SERIES.values())
    frame, (colour,) = place_legends(empty_frame(width_px), nominal("series", names, [colour for colour, _ in looks]))
    shape = {**nominal("series", names, [form for _, form in looks]), "legend": colour["legend"]}
    panels = _grid(frame.plot_width, is_narrow(width_px), times, kept, objective)
    rows = [row for (title, of), panel in zip(times, panels, strict=True) for row in _rows(kept, title, of, panel)]
    limits = {"TTFT": objective.max_ttft_s} if objective is not None else {}
    drawn = [
        spec
        for (title, _), panel in zip(times, panels, strict=True)
        if title in limits
        for spec in limit_layers(panel, limits[title], _limit_name(limits[title]))
    ]
    order: Spec = {"field": "order", "type": "quantitative"}
    return panels_chart(
        frame,
        _words(kept),
        panels,
        [
            *drawn,
            layer({"type": "line"}, rows, color=colour, detail=_PANEL, order=order),
            spoken(_DOT, rows, color=colour, shape=shape),
            *on_paper(
                [each for panel in panels for each in _names(rows, panel, limits.get(panel.title))],
                align="left",
                baseline="middle",
            ),
        ],
    )


def _ttft(metrics: Metrics) -> Percentiles | None:
    return metrics.ttft_s


def _tpot(metrics: Metrics) -> Percentiles | None:
    return metrics.tpot_s


_TIMES: Final[tuple[tuple[str, Callable[[Metrics], Percentiles | None]], ...]] = (("TTFT", _ttft), ("TPOT", _tpot))


def _grid(
    plot_width: int,
    narrow: bool,
    times: Sequence[tuple[str, Callable[[Metrics], Percentiles | None]]],
    points: Sequence[LoadPoint],
    objective: Objective | None,
) -> list[Panel]:
    columns = 1 if narrow else len(times)
    width = (plot_width - _LEFT_PX * (columns - 1)) / columns
    x = Scale.from_zero(point.tokens_per_s for point in points)
    panels = []
    for index, (title, of) in enumerate(times):
        down, across = divmod(index, columns)
        known = [found for point in points if (found := of(point.metrics)) is not None]
        values = [value for found in known for value in (found.p50, found.p99)]
        values += [objective.max_ttft_s] if objective is not None and title == "TTFT" else []
        top = TITLE_PX + down * (_HIGH_PX + TITLE_PX + _FOOT_PX)
        left = across * (width + _LEFT_PX)
        panels.append(Panel(left, top, width, _HIGH_PX, x, Scale.over(values), title, _TOKENS, number_tick))
    return panels


def _rows(
    points: Sequence[LoadPoint], title: str, of: Callable[[Metrics], Percentiles | None], panel: Panel
) -> Iterator[Row]:
    for order, point in enumerate(points):
        found, rate = of(point.metrics), point.tokens_per_s
        if found is None:
            continue
        for series, value in (("p50", found.p50), ("p99", found.p99)):
            said = f"{point.label}: {series} {title} {format_seconds(value)} at {format_number(rate)} output tokens/s"
            place = panel.place(rate, value)
            yield {**place, "series": series, "panel": title, "order": order, "said": said, "name": point.label}


def _names(rows: Sequence[Row], panel: Panel, limit: float | None) -> Iterator[Row]:
    """What was asked, beside the upper dots, wherever it touches no dot, line or other name; the last first, which matters most."""
    here = [row for row in rows if row["panel"] == panel.title]
    taken = [box for series in _SERIES for box in _along([row for row in here if row["series"] == series])]
    if limit is not None and panel.y.low <= limit <= panel.y.high:
        y = panel.at_y(limit)
        taken.append(Box(panel.left, y - 18, panel.left + 12 + text_px(_limit_name(limit)), y + 2))
    for row in reversed([row for row in here if row["series"] == "p99"]):
        width = text_px(row["name"])
        for across, up in _places(width):
            x, y = row["x"] + across, row["y"] + up
            box = Box(x, y - 7, x + width, y + 7)
            is_inside = box.left >= panel.left and box.right <= panel.left + panel.width
            is_inside = is_inside and box.top >= panel.top and box.bottom <= panel.bottom
            if is_inside and not any(box.meets(other) for other in taken):
                taken.append(box)
                yield label(row["name"], x, y)
                break


def _places(width: float) -> Iterator[tuple[float, float]]:
    """Where a name may stand beside its dot, the best first."""
    for away in (9.0, 16.0, 26.0):
        for up in (-away, away):
            yield -8.0 - width, up
            yield 8.0, up
            yield -width / 2, 1.5 * up


def _along(rows: Sequence[Row]) -> Iterator[Box]:
    """Small boxes that follow a line from dot to dot."""
    for row in rows:
        yield Box(row["x"] - 5, row["y"] - 5, row["x"] + 5, row["y"] + 5)
    for start, end in pairwise(rows):
        across, down = end["x"] - start["x"], end["y"] - start["y"]
        steps = max(1, math.ceil(math.hypot(across, down) / _STEP_PX))
        for step in range(1, steps):
            x, y = start["x"] + across * step / steps, start["y"] + down * step / steps
            yield Box(x - 1, y - 1, x + 1, y + 1)


def _limit_name(limit: float) -> str:
    return f"objective {seconds_tick(limit)}"


def _words(points: Sequence[LoadPoint]) -> str:
    rates = [point.tokens_per_s for point in points]
    return (
        f"TTFT and TPOT, p50 and p99, over output tokens a second at {format_count(len(points))} loads from "
        f"{points[0].label} to {points[-1].label}: up to {format_number(max(rates))} tokens/s."
    )


# ── over what was asked ────────────────────────────────────────────────────────────────────────────


def delivered_chart(points: Sequence[LoadPoint], asked_title: str, width_px: int = WIDE_PX) -> Spec | None:
    """Output tokens a second, and good requests a second under those that were sent, over what was asked.

    Where:  what a closed loop sends follows from what it is answered, and is not shown
    Unit:   tokens/s, requests/s
    """
    if len(points) < 2 or points[0].asked == points[-1].asked:
        return None
    of: dict[str, Callable[[LoadPoint], float | None]] = {
        _TOKENS: lambda point: point.delivered.output_tokens_per_s,
        _SENT: lambda point: point.metrics.realised_rate if point.is_open else None,
        _GOOD: lambda point: point.delivered.good_per_s,
    }
    lines = {name: [(p.asked, value) for p in points if (value := take(p)) is not None] for name, take in of.items()}
    lines = {name: line for name, line in lines.items() if line}
    colours = {_TOKENS: LIGHT["prefill"], _SENT: LIGHT["muted"], _GOOD: LIGHT["decode"]}
    shown = [name for name in of if name in lines]
    if _TOKENS not in lines and _GOOD not in lines:
        return None
    frame, (colour,) = place_legends(
        empty_frame(width_px),
        nominal("series", shown, [colours[name] for name in shown], symbolType="stroke", symbolSize=300),
    )
    groups = [names for names in ((_TOKENS,), (_SENT, _GOOD)) if any(name in lines for name in names)]
    panels = stacked(
        frame,
        [
            Shown(
                names[0] if names == (_TOKENS,) else "requests/s" if _SENT in lines else _GOOD,
                Scale.from_zero(value for name in names for _, value in lines.get(name, [])),
                number_tick,
            )
            for names in groups
        ],
        Scale.from_zero(point.asked for point in points),
        asked_title,
    )
    rows = [
        {
            **panel.place(asked, value),
            "series": name,
            "panel": names[-1],
            "order": order,
            "said": f"{format_number(asked)} asked: {format_number(value)} {name}",
        }
        for names, panel in zip(groups, panels, strict=True)
        for name in names
        for order, (asked, value) in enumerate(lines.get(name, []))
    ]
    ordered: Spec = {"field": "order", "type": "quantitative"}
    return panels_chart(
        frame,
        f"Output tokens and good requests a second at {format_count(len(points))} loads.",
        panels,
        [
            layer({"type": "line"}, rows, color=colour, detail=_PANEL, order=ordered),
            spoken(_DOT, rows, color={**colour, "legend": None}),
        ],
    )
