"""Was the load as predicted? First tokens of every request at each rate, and the figures over the rate, predicted beside measured.

In:   LoadCheck, CapacityCheck
Out:  Specs, or None where no load was measured; `description` says in words what each shows
Leaves out: a load that was not predicted (load_latency, load_curve)
Read next by: report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Final, NamedTuple

from inference_bench.charts.grammar import LIGHT, WIDE_PX, Row, Spec, layer, nominal, place_legends, spoken
from inference_bench.charts.panels import (
    DASHED,
    Panel,
    Scale,
    Shown,
    empty_frame,
    fraction_tick,
    label,
    limit_layers,
    number_tick,
    on_paper,
    panels_chart,
    rule,
    rules,
    seconds_tick,
    side_by_side,
    stacked,
)
from inference_bench.units import format_count, format_fraction, format_number, format_seconds
from inference_bench.verify.closed_loop import CapacityCheck, Figure, LoadCheck, LoadRow

_MEASURED: Final = "measured"
_PREDICTED: Final = "predicted"
_COLOURS: Final = {_MEASURED: LIGHT["decode"], _PREDICTED: LIGHT["prefill"]}
_DASHES: Final = {_MEASURED: [1, 0], _PREDICTED: DASHED}
_SHAPES: Final = {_MEASURED: "circle", _PREDICTED: "diamond"}
_PANEL: Final[Spec] = {"field": "panel", "type": "nominal"}
_ORDER: Final[Spec] = {"field": "order", "type": "quantitative"}
_LOG_RATIO: Final = 10


# ── every request's first token ────────────────────────────────────────────────────────────────────


def load_check_cdf_chart(check: LoadCheck, width_px: int = WIDE_PX) -> Spec | None:
    """Which share of the requests had their first token within which time: a panel for each rate.

    Where: a request that did not complete has none, so that the measured line ends below 100 %
    Unit:  seconds; fractions of all requests
    """
    rows = [row for row in check.rows if row.num_completed]
    if not rows:
        return None
    frame = empty_frame(width_px)
    looks: Spec = {"symbolType": "stroke", "symbolSize": 300}
    frame, (colour,) = place_legends(frame, nominal("series", list(_COLOURS), list(_COLOURS.values()), **looks))
    dash = {**nominal("series", list(_DASHES), list(_DASHES.values())), "legend": colour["legend"]}
    panels = side_by_side(
        frame,
        [
            (Shown(f"{row.place}, {format_number(row.rate)} requests/s", Scale(0.0, 1.0), fraction_tick), scale)
            for row, scale in zip(rows, (Scale.over(_known(row), _LOG_RATIO) for row in rows), strict=True)
        ],
        "TTFT",
        shares_y=True,
    )
    points = [point for row, panel in zip(rows, panels, strict=True) for point in _cdf_points(row, panel)]
    line: Spec = {"type": "line", "interpolate": "step-after"}
    drawn = layer(line, points, color=colour, strokeDash=dash, detail=_PANEL, order=_ORDER)
    return panels_chart(frame, _cdf_words(rows), panels, [drawn])


def _known(row: LoadRow) -> list[float]:
    return [*row.predicted_ttft_s, *_measured(row)]


def _measured(row: LoadRow) -> list[float]:
    return [value for value in row.measured_ttft_s if value is not None]


def _cdf_points(row: LoadRow, panel: Panel) -> Iterator[Row]:
    for name, values in ((_MEASURED, _measured(row)), (_PREDICTED, row.predicted_ttft_s)):
        order = sorted(values)
        for number, value in enumerate((*order[:1], *order)):  # up from nothing
            yield {
                **panel.place(value, number / row.num_requests),
                "series": name,
                "panel": row.place,
                "order": number,
            }


def _cdf_words(rows: Sequence[LoadRow]) -> str:
    said = "; ".join(
        f"{row.place} the knee at {format_number(row.rate)} requests/s: "
        + ", ".join(
            f"{name} {_said(row.figure(field))}" for name, field in (("p50", "ttft_p50_s"), ("p99", "ttft_p99_s"))
        )
        for row in rows
    )
    return f"TTFT of {format_count(sum(row.num_requests for row in rows))} requests, predicted before they were sent and measured: {said}."


def _said(figure: Figure | None) -> str:
    if figure is None or figure.predicted is None:
        return "n/a"
    return f"{format_seconds(figure.measured)} for {format_seconds(figure.predicted)} predicted"


# ── figures over the rate ──────────────────────────────────────────────────────────────────────────


class _Shown(NamedTuple):
    """A figure that has a panel of its own."""

    title: str
    field: str
    is_time: bool = True

    def values(self, row: LoadRow) -> dict[str, float]:
        """Measured and predicted, where they are known."""
        figure = row.figure(self.field)
        pairs = () if figure is None else ((_MEASURED, figure.measured), (_PREDICTED, figure.predicted))
        return {name: value for name, value in pairs if value is not None}


_FIGURES: Final = (
    _Shown("p50 TTFT", "ttft_p50_s"),
    _Shown("p99 TTFT", "ttft_p99_s"),
    _Shown("output tokens/s", "output_tokens_per_s", is_time=False),
)
_OF_LIMIT: Final = "ttft_p99_s"


def load_check_rate_chart(
    check: LoadCheck, capacity: CapacityCheck | None = None, width_px: int = WIDE_PX
) -> Spec | None:
    """p50 and p99 TTFT and output tokens/s over the rate, predicted and measured, with the objective and the predicted capacity.

    Unit:  seconds; requests/s; tokens/s
    """
    rows = _by_rate(check, capacity)
    if not any(row.num_completed for row in rows):
        return None
    frame, (colour,) = place_legends(empty_frame(width_px), nominal("series", list(_COLOURS), list(_COLOURS.values())))
    legend = colour["legend"]
    shape = {**nominal("series", list(_SHAPES), list(_SHAPES.values())), "legend": legend}
    dash = {**nominal("series", list(_DASHES), list(_DASHES.values())), "legend": None}
    limit_s = None if capacity is None else _limit_s(capacity)
    panels = stacked(
        frame,
        [_panel_of(figure, rows, limit_s) for figure in _FIGURES],
        Scale.from_zero(row.rate for row in rows),
        "requests/s",
    )
    points = [point for place in zip(_FIGURES, panels, strict=True) for point in _rate_points(rows, *place)]
    return panels_chart(
        frame,
        _rate_words(rows, capacity),
        panels,
        [
            *_capacity_marks(capacity, panels),
            layer({"type": "line"}, points, color=colour, strokeDash=dash, detail=_PANEL, order=_ORDER),
            spoken({"type": "point", "filled": True, "size": 60}, points, color=colour, shape=shape),
        ],
    )


def _by_rate(check: LoadCheck, capacity: CapacityCheck | None) -> list[LoadRow]:
    """Every load once, in order of its rate."""
    extra = () if capacity is None else (capacity.at_rate, capacity.above_rate)
    rows = {row.rate: row for row in (*check.rows, *extra) if row is not None}
    return [rows[rate] for rate in sorted(rows)]


def _panel_of(figure: _Shown, rows: Sequence[LoadRow], limit_s: float | None) -> Shown:
    values = [value for row in rows for value in figure.values(row).values()]
    if not figure.is_time:
        return Shown(figure.title, Scale.from_zero(values), number_tick)
    if figure.field == _OF_LIMIT and limit_s is not None:
        values.append(limit_s)
    return Shown(figure.title, Scale.over(values, _LOG_RATIO), seconds_tick)


def _rate_points(rows: Sequence[LoadRow], figure: _Shown, panel: Panel) -> Iterator[Row]:
    for order, row in enumerate(rows):
        for name, value in figure.values(row).items():
            yield {
                **panel.place(row.rate, value),
                "series": name,
                "panel": figure.title,
                "order": order,
                "said": f"{figure.title} {name} at {format_number(row.rate)} requests/s: {panel.y_format(value)}",
            }


def _capacity_marks(capacity: CapacityCheck | None, panels: Sequence[Panel]) -> list[Spec]:
    """The objective as a dashed level, and the predicted capacity as an upright line through all panels."""
    if capacity is None or capacity.predicted_rate is None:
        return []
    rate = capacity.predicted_rate
    lines = [rule(panel.at_x(rate), panel.top, panel.at_x(rate), panel.bottom) for panel in panels]
    said = label("predicted capacity", panels[0].at_x(rate) - 5, panels[0].top + 3)
    of_limit = next(panel for panel, figure in zip(panels, _FIGURES, strict=True) if figure.field == _OF_LIMIT)
    limit_s = _limit_s(capacity)
    return [
        rules(lines, stroke=LIGHT["ink"], strokeWidth=1),
        *on_paper([said], align="right", baseline="top"),
        *([] if limit_s is None else limit_layers(of_limit, limit_s, f"objective {seconds_tick(limit_s)}")),
    ]


def _limit_s(capacity: CapacityCheck) -> float | None:
    """The limit of the p99 TTFT, where there is one to draw."""
    return capacity.ttft_s if capacity.ttft_s is not None and isfinite(capacity.ttft_s) else None


def _rate_words(rows: Sequence[LoadRow], capacity: CapacityCheck | None) -> str:
    said = "; ".join(
        f"at {format_number(row.rate)} requests/s p99 TTFT {_said(row.figure('ttft_p99_s'))}, output tokens/s {_error(row)} off"
        for row in rows
    )
    reading = "" if capacity is None else f" {capacity.reading[:1].upper()}{capacity.reading[1:]}."
    return f"Loads at {format_count(len(rows))} rates, predicted before they were sent: {said}.{reading}"


def _error(row: LoadRow) -> str:
    figure = row.figure("output_tokens_per_s")
    return format_fraction(None if figure is None or figure.error is None else abs(figure.error))
