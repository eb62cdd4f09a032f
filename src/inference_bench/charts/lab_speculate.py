"""What does speculation gain by draft and γ, and where in the draft are proposals right?

In:   SpeculateResult and the width of the drawing in CSS pixels
Out:  one Spec a chart, or None where nothing was decoded
Leaves out: why prediction and stopwatch differ (report)
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
    log_scale,
    nominal,
    place_legends,
    series_colours,
    series_shapes,
    spoken,
    unlisted,
    vertical,
)
from inference_bench.charts.panels import number_tick, on_paper
from inference_bench.labs.speculate.result import DraftRun, SpeculateResult
from inference_bench.units import format_count, format_fraction, format_number

MEASURED, PREDICTED = "measured", "predicted"
_DASHES: Final = ([1, 0], [5, 4])
_HEIGHT_PX: Final = 240
_LEFT_PX: Final = 46
_ROOM: Final = 1.12
_MOST_TICKS: Final = 5
_POINT: Final[Spec] = {"type": "point", "size": 60, "strokeWidth": 1.6}


def speed_up_chart(result: SpeculateResult, width_px: int = WIDE_PX) -> Spec | None:
    """Speed-up over γ for each draft, measured and predicted; the line at 1 is where speculation begins to gain.

    Unit:  times as fast as plain decoding
    """
    rows = [row for run in result.runs for row in _speed_rows(run)]
    if not rows:
        return None
    drafts = list(dict.fromkeys(run.draft for run in result.runs))
    highest = max(1.0, *(row["speed_up"] for row in rows)) * _ROOM
    frame, (colour, dash) = place_legends(
        Frame(width_px, _HEIGHT_PX, left=_LEFT_PX),
        nominal("draft", drafts, series_colours(drafts), symbolType="square"),
        nominal("kind", (MEASURED, PREDICTED), _DASHES, symbolType="stroke", symbolSize=400),
    )
    ticks = linear_ticks(highest, _MOST_TICKS)
    up = axis(
        "speed_up",
        "times as fast as plain decoding",
        ticks,
        [number_tick(each) for each in ticks],
        {"domain": [0, highest]},
    )
    measured = [row for row in rows if row["kind"] == MEASURED]
    predicted = [row for row in rows if row["kind"] == PREDICTED]
    name = [{"speed_up": 1.0, "label": "no gain"}]
    return chart(
        frame,
        _speed_words(result.runs),
        {"x": _gammas(result.runs), "y": vertical(frame, up)},
        [
            layer({"type": "rule", "stroke": LIGHT["ink"], "strokeWidth": 1}, name, x=None),
            *on_paper(name, place={"x": {"value": 4}}, align="left", baseline="bottom", dy=-4, color=LIGHT["muted"]),
            layer({"type": "line"}, rows, color=colour, strokeDash=dash),
            spoken(_POINT | {"fill": LIGHT["paper"]}, predicted, color=unlisted(colour)),
            spoken(_POINT | {"filled": True}, measured, color=unlisted(colour)),
        ],
    )


def position_chart(result: SpeculateResult, width_px: int = WIDE_PX) -> Spec | None:
    """The share of judged proposals that were right, by their place in the draft, at each draft's longest γ.

    Unit:  fraction, printed as percent
    """
    runs = longest_runs(result.runs)
    rows = [row for run in runs for row in _position_rows(run)]
    if not rows:
        return None
    drafts = [run.draft for run in runs]
    frame, (colour,) = place_legends(
        Frame(width_px, _HEIGHT_PX, left=_LEFT_PX), nominal("draft", drafts, series_colours(drafts))
    )
    shape = {**nominal("draft", drafts, series_shapes(drafts)), "legend": colour["legend"]}  # one legend for both
    ticks = linear_ticks(1.0, _MOST_TICKS)
    up = axis(
        "share",
        "proposals that were right, of those judged",
        ticks,
        [format_fraction(each, 2) for each in ticks],
        {"domain": [0, 1.04]},
    )
    return chart(
        frame,
        _position_words(runs),
        {"x": _places(rows, width_px), "y": vertical(frame, up)},
        [
            layer({"type": "line"}, rows, color=colour),
            spoken(_POINT | {"filled": True}, rows, color=colour, shape=shape),
        ],
    )


def longest_runs(runs: Sequence[DraftRun]) -> list[DraftRun]:
    """Of each draft the run with the longest γ."""
    longest: dict[str, DraftRun] = {}
    for run in runs:
        if run.draft not in longest or run.gamma > longest[run.draft].gamma:
            longest[run.draft] = run
    return list(longest.values())


def _speed_rows(run: DraftRun) -> list[Row]:
    if run.speed_ups is None:
        return []
    values = {PREDICTED: run.speed_ups.predicted, MEASURED: run.speed_ups.measured}
    return [
        {
            "draft": run.draft,
            "gamma": run.gamma,
            "kind": kind,
            "speed_up": value,
            "said": f"{run.draft}, γ = {run.gamma}: {format_number(value)} times as fast, {kind}",
        }
        for kind, value in values.items()
    ]


def _gammas(runs: Sequence[DraftRun]) -> Spec:
    known = sorted({run.gamma for run in runs})
    scale = log_scale(known[0] / _ROOM, known[-1] * _ROOM, base=2)
    return axis("gamma", "tokens a draft proposes (γ), log scale", known, [format_count(each) for each in known], scale)


def _position_rows(run: DraftRun) -> list[Row]:
    return [
        {
            "draft": run.draft,
            "place": each.position,
            "share": each.num_accepted / each.num_trials,
            "said": f"{run.draft}, place {each.position}: {format_count(each.num_accepted)} of {format_count(each.num_trials)} right",
        }
        for each in run.by_position
        if each.num_trials
    ]


def _places(rows: Sequence[Row], width_px: int) -> Spec:
    last = max(row["place"] for row in rows)
    step = 1 + (last - 1) // (6 if is_narrow(width_px) else 16)
    ticks = list(range(1, last + 1, step))
    return axis(
        "place", "place in the draft", ticks, [format_count(each) for each in ticks], {"domain": [0.5, last + 0.5]}
    )


def _speed_words(runs: Sequence[DraftRun]) -> str:
    known = [(run, run.speed_ups) for run in runs if run.speed_ups is not None]
    best, speeds = max(known, key=lambda each: each[1].measured)
    return (
        f"Speed-up over the tokens a draft proposes, measured and predicted, {format_count(len(known))} runs: the fastest is "
        f"{best.draft} at γ = {best.gamma} with {format_number(speeds.measured)}, predicted {format_number(speeds.predicted)}; below 1 "
        "nothing is gained."
    )


def _position_words(runs: Sequence[DraftRun]) -> str:
    said = "; ".join(
        f"{run.draft} {format_fraction(first.num_accepted / first.num_trials)} at the first place"
        for run in runs
        if (first := run.by_position[0]).num_trials
    )
    return f"Share of judged proposals that were right, by place in the draft: {said}."
