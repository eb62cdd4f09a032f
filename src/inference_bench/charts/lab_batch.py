"""What does a batch gain, and how far is each point from its bound?

In:   BatchResult
Out:  tokens a second of the whole batch, and of each sequence, as a Spec
Read next by: report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from inference_bench.charts.grammar import LIGHT, WIDE_PX, Row, Spec, is_narrow, layer, nominal, place_legends, spoken
from inference_bench.charts.panels import DASHED, TITLE_PX, Panel, Scale, empty_frame, number_tick, panels_chart
from inference_bench.labs.batch.result import BatchResult, DtypeRun, SpeedPoint
from inference_bench.units import format_count, format_fraction, format_number, format_seconds

_COLOURS: Final = ("decode", "prefill")
_HEIGHT_PX: Final = 220
_BETWEEN_PX: Final = 60
_BELOW_PX: Final = 48
_MARGIN: Final = 1.2
_Rates = Callable[[SpeedPoint], tuple[float, float]]


def batch_chart(result: BatchResult, width_px: int = WIDE_PX) -> Spec | None:
    """Decode rates over the batch: measured points, and dashed what the roofline allows.

    Unit:  tokens/s, on log scales
    """
    runs = [run for run in result.runs if run.points]
    if not runs:
        return None
    names = [run.dtype for run in runs]
    colour = nominal("series", names, [LIGHT[role] for role in _COLOURS[: len(names)]])
    frame, (colour,) = place_legends(empty_frame(width_px), colour)
    narrow = is_narrow(width_px)
    width = float(frame.plot_width) if narrow else (frame.plot_width - _BETWEEN_PX) / 2
    points = [point for run in runs for point in run.points]
    x = Scale.doubling([point.batch for point in points])
    top = float(TITLE_PX)
    second = (0.0, top + _HEIGHT_PX + _BELOW_PX + TITLE_PX) if narrow else (width + _BETWEEN_PX, top)
    panels = [
        _panel((0.0, top), width, x, points, "tokens/s of the whole batch", _whole),
        _panel(second, width, x, points, "tokens/s of each sequence", _each),
    ]
    layers = list(_lines(runs, panels, colour))
    return panels_chart(frame, _words(runs), panels, layers)


def _whole(point: SpeedPoint) -> tuple[float, float]:
    return point.tokens_per_s, point.bound_tokens_per_s


def _each(point: SpeedPoint) -> tuple[float, float]:
    return point.tokens_per_s_per_sequence, point.bound_tokens_per_s / point.batch


def _panel(
    place: tuple[float, float], width: float, x: Scale, points: Sequence[SpeedPoint], title: str, rates: _Rates
) -> Panel:
    values = [value for point in points for value in rates(point)]
    y = Scale(min(values) / _MARGIN, max(values) * _MARGIN, is_log=True)
    return Panel(*place, width, _HEIGHT_PX, x, y, title, "batch (dashed: the bound)", number_tick, number_tick)


def _lines(runs: Sequence[DtypeRun], panels: Sequence[Panel], colour: Spec) -> Iterator[Spec]:
    marks: list[Row] = []
    for panel, rates in zip(panels, (_whole, _each), strict=True):
        for run in runs:
            bound = [_row(panel, run, point, rates(point)[1]) for point in run.points]
            measured = [_row(panel, run, point, rates(point)[0]) for point in run.points]
            stroke = colour["scale"]["range"][colour["scale"]["domain"].index(run.dtype)]
            yield layer({"type": "line", "stroke": stroke, "strokeDash": DASHED, "strokeWidth": 1.5}, bound)
            yield layer({"type": "line", "stroke": stroke, "strokeWidth": 1.75}, measured)
            marks += measured
    yield spoken({"type": "point", "filled": True, "size": 55}, marks, color=colour)


def _row(panel: Panel, run: DtypeRun, point: SpeedPoint, rate: float) -> Row:
    said = (
        f"{run.dtype}, batch {format_count(point.batch)}: {format_number(point.tokens_per_s)} tokens/s, "
        f"{format_number(point.tokens_per_s_per_sequence)} each; a step takes {format_seconds(point.step_s)}, the bound is "
        f"{format_seconds(point.step_bound_s)} ({point.step_limited_by}), {format_fraction(point.step_fraction_of_bound)} of it"
    )
    return {
        **panel.place(point.batch, rate),
        "series": run.dtype,
        "batch": point.batch,
        "tokens_per_s": rate,
        "said": said,
    }


def _words(runs: Sequence[DtypeRun]) -> str:
    said = []
    for run in runs:
        first, last = run.points[0], run.points[-1]
        said.append(
            f"{run.dtype}: {format_number(first.tokens_per_s)} tokens/s at batch {format_count(first.batch)}, "
            f"{format_number(last.tokens_per_s)} at {format_count(last.batch)}, where the bound is "
            f"{format_number(last.bound_tokens_per_s)}"
        )
    return (
        f"Decode rates over the batch, of the whole batch and of each sequence, beside their bounds. {'; '.join(said)}."
    )
