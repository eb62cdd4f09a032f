"""What does a server do as the rate grows? Policies beside one another, and a capacity with what lies around it.

In:   CaseResults of a sweep; a Capacity
Out:  Specs, or None where nothing can be drawn; `description` says in words what each shows
Leaves out: single runs (simulation_runs)
Read next by: cli, scripts/write_policies.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Final, NamedTuple

from inference_bench.charts.grammar import LIGHT, WIDE_PX, Row, Spec, is_narrow, layer, nominal, place_legends, spoken
from inference_bench.charts.panels import (
    Panel,
    Scale,
    Shown,
    empty_frame,
    label,
    limit_layers,
    number_tick,
    on_paper,
    panels_chart,
    rule,
    rules,
    seconds_tick,
    series_encodings,
    stacked,
)
from inference_bench.metrics import Objective
from inference_bench.simulate.capacity import Capacity, Tried
from inference_bench.simulate.summary import SimulatedRow
from inference_bench.simulate.sweep import CaseResult
from inference_bench.stats import median
from inference_bench.units import format_count, format_number

_POINT: Final[Spec] = {"type": "point", "filled": True, "size": 55}
_PANEL: Final[Spec] = {"field": "panel", "type": "nominal"}  # a line never runs from one panel into the next
_RATE_TITLE: Final = "rate asked for (requests/s)"


class _Measure(NamedTuple):
    """A figure of a row that has a panel of its own, and what was promised of it."""

    title: str
    value: Callable[[SimulatedRow], float | None]
    limit: float | None

    def scale(self, rows: Sequence[SimulatedRow]) -> Scale:
        """A scale that holds every row, and the limit."""
        values = [value for row in rows if (value := self.value(row)) is not None]
        return Scale.over(values if self.limit is None else [*values, self.limit])

    def said(self, panel: Panel, value: float) -> str:
        """A value of it in words."""
        return f"{self.title.partition(' (')[0]} {panel.y_format(value)}"

    def shown(self, rows: Sequence[SimulatedRow]) -> Shown:
        """Its panel."""
        return Shown(self.title, self.scale(rows))


# ── policies over rates ────────────────────────────────────────────────────────────────────────────


def rate_chart(results: Sequence[CaseResult], width_px: int = WIDE_PX) -> Spec | None:
    """p99 TTFT, p99 ITL and goodput over the rate asked for, a line for each label; the median of several seeds.

    Where:  an upright stroke is the range over seeds; a case that could not run is counted in the description only
    Unit:   seconds; requests/s
    """
    kept = [(result, result.row) for result in results if result.row is not None and result.row.nominal_rate]
    if not kept:
        return None
    rows, names = [row for _, row in kept], list(dict.fromkeys(result.case.label for result, _ in kept))
    measures = _rate_measures({result.case.objective for result, _ in kept}, is_narrow(width_px))
    colour, shape, dash = series_encodings(names)
    frame, (colour,) = place_legends(empty_frame(width_px), colour)
    x = Scale.from_zero(row.nominal_rate or 0.0 for row in rows)
    most = Scale.from_zero(value or 0.0 for row in rows for value in (row.goodput_requests_per_s, row.realised_rate))
    goodput = Shown(measures[-1].title, most, number_tick)  # from 0: it may be none at all
    panels = stacked(frame, [*(each.shown(rows) for each in measures[:-1]), goodput], x, _RATE_TITLE)
    points = [point for place in zip(measures, panels, strict=True) for point in _rate_points(kept, names, *place)]
    spreads = [point for point in points if point["y2"] != point["y3"]]
    ends: Spec = {"y": {"field": "y2", "type": "quantitative"}, "y2": {"field": "y3"}}
    return panels_chart(
        frame,
        _rate_words(results, rows, names),
        panels,
        [
            *_every_request(rows, panels[-1]),
            layer({"type": "rule", "strokeWidth": 2}, spreads, color=colour, **ends),
            layer(
                {"type": "line"}, points, color=colour, strokeDash={**dash, "legend": colour["legend"]}, detail=_PANEL
            ),
            spoken(_POINT, points, color=colour, shape={**shape, "legend": colour["legend"]}),
            *_limits(measures, panels),
        ],
    )


def _rate_measures(objectives: set[Objective], is_short: bool) -> tuple[_Measure, ...]:
    """The three panels; limits only where all cases have the same."""
    objective = next(iter(objectives)) if len(objectives) == 1 else None
    ttft_s, gap_s = (None, None) if objective is None else (objective.max_ttft_s, objective.max_gap_s)
    said = "" if objective is None or is_short else f", of requests with {objective.rule}"
    return (
        _Measure("p99 TTFT", lambda row: row.ttft_p99_s, ttft_s),
        _Measure("p99 ITL", lambda row: row.itl_p99_s, gap_s),
        _Measure(f"goodput (requests/s){said}", lambda row: row.goodput_requests_per_s, None),
    )


def _rate_points(
    kept: Sequence[tuple[CaseResult, SimulatedRow]], names: Sequence[str], measure: _Measure, panel: Panel
) -> Iterator[Row]:
    """A point for each label and rate: the median over seeds, and its range as y2 to y3."""
    found: dict[tuple[str, float], list[float]] = {}
    for result, row in kept:
        value = measure.value(row)
        if value is not None:
            found.setdefault((result.case.label, row.nominal_rate or 0.0), []).append(value)
    for (name, rate), values in sorted(found.items(), key=lambda item: (names.index(item[0][0]), item[0][1])):
        yield {
            **panel.place(rate, median(values)),
            "y2": panel.at_y(min(values)),
            "y3": panel.at_y(max(values)),
            "series": name,
            "panel": measure.title,
            "rate": rate,
            "value": median(values),
            "said": f"{name} at {format_number(rate)} requests/s: {measure.said(panel, median(values))}",
        }


def _every_request(rows: Sequence[SimulatedRow], panel: Panel) -> list[Spec]:
    """Where goodput would lie if every request were good: the rate that there really was."""
    realised: dict[float, list[float]] = {}
    for row in rows:
        if row.realised_rate is not None:
            realised.setdefault(row.nominal_rate or 0.0, []).append(row.realised_rate)
    line = [(rate, fmean(values)) for rate, values in sorted(realised.items())]
    if len(line) < 2:
        return []
    rate, most = line[-1]
    said = label("every request good", panel.at_x(rate) - 8, panel.at_y(most) - 1)
    points = [panel.place(*point) for point in line]
    return [
        layer({"type": "line", "stroke": LIGHT["muted"], "strokeWidth": 1}, points),
        *on_paper([said], align="right", baseline="bottom", color=LIGHT["muted"]),
    ]


def _limits(measures: Sequence[_Measure], panels: Sequence[Panel]) -> Iterator[Spec]:
    for measure, panel in zip(measures, panels, strict=True):
        if measure.limit is not None:
            yield from limit_layers(panel, measure.limit, f"objective {seconds_tick(measure.limit)}")


def _rate_words(results: Sequence[CaseResult], rows: Sequence[SimulatedRow], names: Sequence[str]) -> str:
    rates = sorted({row.nominal_rate or 0.0 for row in rows})
    lost = len(results) - len(rows)
    return (
        f"p99 TTFT, p99 ITL and goodput of {', '.join(names)} at {format_count(len(rates))} rates from "
        f"{format_number(rates[0])} to {format_number(rates[-1])} requests/s"
        + (f"; {format_count(lost)} cases are not drawn." if lost else ".")
    )


# ── the capacity and what lies around it ───────────────────────────────────────────────────────────

_KEPT: Final = "keeps the objectives"
_MISSED: Final = "misses them"


def capacity_chart(found: Capacity, width_px: int = WIDE_PX) -> Spec | None:
    """The promised percentiles over the rate, around the capacity that was found.

    Where:  the upright line is the capacity, the band its interval over seeds, the diamond the same rate with more requests
    Unit:   seconds; requests/s
    """
    if found.nominal_rate is None or found.row is None:
        return None
    tried = sorted(
        (*found.below, Tried(found.nominal_rate, found.row, True), *found.nearby), key=lambda each: each.rate
    )
    measures = _promised(found)
    longer = [] if found.longer is None else [found.longer]
    series = {_KEPT: ("decode", "circle"), _MISSED: ("finding", "square")}
    if found.longer is not None:
        series[_longer_name(found.longer)] = ("ink", "diamond")
    names, looks = list(series), list(series.values())
    frame, (colour,) = place_legends(
        empty_frame(width_px), nominal("series", names, [LIGHT[role] for role, _ in looks])
    )
    shape = {**nominal("series", names, [form for _, form in looks]), "legend": colour["legend"]}
    rows = [each.row for each in (*tried, *longer)]
    panels = stacked(
        frame,
        [each.shown(rows) for each in measures],
        Scale.from_zero([each.rate for each in tried] + ([found.interval.high] if found.interval else [])),
        _RATE_TITLE,
    )
    points = [point for place in zip(measures, panels, strict=True) for point in _tried_points(tried, longer, *place)]
    return panels_chart(
        frame,
        _capacity_words(found),
        panels,
        [
            *_found_rate(found, panels),
            layer({"type": "line", "stroke": LIGHT["muted"]}, [p for p in points if p["is_tried"]], detail=_PANEL),
            *_limits(measures, panels),
            spoken({**_POINT, "size": 70}, points, color=colour, shape=shape),
        ],
    )


def _promised(found: Capacity) -> tuple[_Measure, ...]:
    return tuple(_Measure(each.name, each.value, each.limit_s) for each in found.limits.promised)


def _longer_name(longer: Tried) -> str:
    return f"with {format_count(longer.row.num_requests)} requests"


def _tried_points(tried: Sequence[Tried], longer: Sequence[Tried], measure: _Measure, panel: Panel) -> Iterator[Row]:
    named = [(each, _KEPT if each.is_met else _MISSED, True) for each in tried]
    for each, name, is_tried in (*named, *((one, _longer_name(one), False) for one in longer)):
        value = measure.value(each.row)
        if value is not None:
            place = panel.place(each.rate, value)
            said = f"{format_number(each.rate)} requests/s {name}: {measure.said(panel, value)}"
            yield {
                **place, "series": name, "panel": measure.title, "rate": each.rate, "value": value, "is_tried": is_tried,
                "said": said,
            }  # fmt: skip


def _found_rate(found: Capacity, panels: Sequence[Panel]) -> list[Spec]:
    """The capacity as an upright line through all panels, over the band of its interval."""
    rate, interval = found.nominal_rate or 0.0, found.interval
    bands = [] if interval is None else [_band(panel, interval.low, interval.high) for panel in panels]
    lines = [rule(panel.at_x(rate), panel.top, panel.at_x(rate), panel.bottom) for panel in panels]
    said = label(f"{format_number(rate)} requests/s", panels[0].at_x(rate) - 5, panels[0].top + 3)
    return [
        layer({"type": "rect", "color": LIGHT["grid"]}, bands, x2={"field": "x2"}, y2={"field": "y2"}),
        rules(lines, stroke=LIGHT["ink"], strokeWidth=1),
        *on_paper([said], align="right", baseline="top"),
    ]


def _band(panel: Panel, low: float, high: float) -> Row:
    return rule(panel.at_x(low), panel.top, panel.at_x(high), panel.bottom)


def _capacity_words(found: Capacity) -> str:
    interval = found.interval
    over = (
        ""
        if interval is None
        else f", {format_number(interval.low)} to {format_number(interval.high)} over {len(found.seed_rates)} seeds"
    )
    return f"{found.limits.text}: {format_number(found.nominal_rate)} requests/s{over}; rates below and around it."
