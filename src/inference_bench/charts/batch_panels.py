"""What does a larger batch buy all users together, and what does it cost each of them?

In:   RooflineTable, and optionally the largest batch that fits
Out:  one Spec of two panels over the same batches
Leaves out: measurements (see batch)
Read next by: report, the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from inference_bench.charts.grammar import LIGHT, WIDE_PX, Row, Spec, layer, spoken
from inference_bench.charts.labels import Labels, along_level, along_upright
from inference_bench.charts.panels import (
    Panel,
    Scale,
    Shown,
    beyond,
    empty_frame,
    level,
    number_tick,
    panels_chart,
    stacked,
    upright,
)
from inference_bench.predict.latency import BatchRow
from inference_bench.predict.phases import RooflineTable
from inference_bench.units import format_count, format_number, format_seconds

_TITLE: Final = "batch (sequences decoding together)"
_HEIGHT_PX: Final = 150  # of a panel, in a narrow drawing too, which has as many labels
_LIMIT_RATIO: Final = 30  # a limit further above the curve than this is named but not drawn
_RING: Final[Spec] = {"type": "point", "filled": False, "size": 170, "stroke": LIGHT["ink"], "strokeWidth": 1.5}
_DOT: Final[Spec] = {"type": "point", "filled": True, "size": 45, "color": LIGHT["decode"]}
_DOTTED: Final[Spec] = {"stroke": LIGHT["muted"], "strokeDash": [2, 3]}
_FIRM: Final[Spec] = {"stroke": LIGHT["ink"], "strokeWidth": 1.5}
_LOG_RATIO: Final = 2  # rates that differ at all are on log scales, as batches are
_PANEL: Final[Spec] = {"field": "panel", "type": "nominal"}


def batch_panels_chart(result: RooflineTable, width_px: int = WIDE_PX, max_batch: int | None = None) -> Spec | None:
    """The bound of decode over batch, for all sequences together and for each; None where no rate is known.

    Where:  max_batch is the largest batch whose cache fits: what lies beyond is shaded, as it is a bound all the same
    Unit:   tokens/s over sequences
    """
    curve = result.curve
    if not curve:
        return None
    limit = _drawn_limit(result)
    frame = empty_frame(width_px)
    x = Scale.doubling([row.batch for row in curve])
    total = Scale.over([*(row.tokens_per_s for row in curve), *([limit] if limit else [])], _LOG_RATIO)
    each = Scale.over((row.sequence_tokens_per_s for row in curve), _LOG_RATIO)
    panels = stacked(
        frame,
        [Shown("all sequences (tokens/s)", total, number_tick), Shown("each sequence (tokens/s)", each, number_tick)],
        x,
        _TITLE,
        height=_HEIGHT_PX,
    )
    points, uprights = list(_points(result, panels)), _uprights(result, x, max_batch)
    return panels_chart(
        frame,
        _words(result, max_batch),
        panels,
        [
            *([] if max_batch is None else [beyond(panels, max(max_batch, x.low))]),
            *([] if limit is None else [level(panels[0], limit)]),
            upright(panels, result.batch, stroke=LIGHT["muted"]),
            *(upright(panels, value, **looks) for value, (_, looks) in uprights.items()),
            layer({"type": "line", "stroke": LIGHT["decode"]}, points, detail=_PANEL),
            spoken(_DOT, points),
            _rings(result, points),
            *_labels(result, panels, points, uprights),
        ],
    )


def _drawn_limit(result: RooflineTable) -> float | None:
    """The limit of all sequences together, where it is near enough to be drawn."""
    limit = result.limits.tokens_per_s
    return limit if limit and limit <= _LIMIT_RATIO * max(row.tokens_per_s for row in result.curve) else None


def _limit_words(result: RooflineTable) -> str:
    return f"limit {format_number(result.limits.tokens_per_s)}: {limit_cause(result)}"


def limit_cause(result: RooflineTable) -> str:
    """What a device does in the limit of large batches."""
    limits = result.limits
    does = {limits.interconnect_tokens_per_s: "sending", limits.compute_tokens_per_s: "computing"}
    return does.get(limits.tokens_per_s, "reading caches")


def _points(result: RooflineTable, panels: Sequence[Panel]) -> Iterator[Row]:
    for panel, is_total in zip(panels, (True, False), strict=True):
        for row in result.curve:
            rate = row.tokens_per_s if is_total else row.sequence_tokens_per_s
            yield {
                **panel.place(row.batch, rate),
                "panel": panel.title,
                "batch": row.batch,
                "tokens_per_s": rate,
                "said": _said(row),
            }


def _said(row: BatchRow) -> str:
    return (
        f"batch {format_count(row.batch)}: {format_number(row.tokens_per_s)} tokens/s together, "
        f"{format_number(row.sequence_tokens_per_s)} each, {format_seconds(row.step_s)} a step"
    )


def _uprights(result: RooflineTable, x: Scale, max_batch: int | None) -> dict[float, tuple[str, Spec]]:
    """Where weight products turn to compute, and what fits: each with its name and its looks."""
    found: dict[float, tuple[str, Spec]] = {}
    balance = result.balance.products
    if balance is not None and x.low < balance < x.high:
        found[balance] = (f"weight products turn at {format_number(balance)}", _DOTTED)
    if max_batch is not None and max_batch < x.low:
        found[x.low] = ("no batch fits", _FIRM)
    if max_batch is not None and x.low < max_batch < x.high:
        found[max_batch] = (f"largest that fits: {format_count(max_batch)}", _FIRM)
    return found


def _labels(
    result: RooflineTable, panels: Sequence[Panel], points: Sequence[Row], uprights: Mapping[float, tuple[str, Spec]]
) -> Iterator[Spec]:
    """The rates at the batch asked for, the limit, and below the rising curve what the upright lines are."""
    found, limit = next((row for row in result.curve if row.batch == result.batch), None), _drawn_limit(result)
    for panel, is_total in zip(panels, (True, False), strict=True):
        labels = Labels.of_panel(panel)
        labels.keep_off([row for row in points if row["panel"] == panel.title])
        labels.keep_off_lines([panel.at_x(value) for value in (result.batch, *uprights)])
        if is_total and limit is not None:
            labels.put(_limit_words(result), along_level(panel, panel.at_y(limit)))
        if found is not None:
            rate = found.tokens_per_s if is_total else found.sequence_tokens_per_s
            said = f"batch {format_count(found.batch)}: {format_number(rate)}" if is_total else _each(rate)
            labels.put_joined(said, panel.at_x(found.batch), panel.at_y(rate))
        for value, (said, _) in uprights.items() if is_total else ():
            labels.put(said, along_upright(panel, panel.at_x(value)))
        yield from labels.layers()


def _each(rate: float) -> str:
    return f"{format_number(rate)} each"


def _rings(result: RooflineTable, points: Sequence[Row]) -> Spec:
    return layer(_RING, [row for row in points if row["batch"] == result.batch])


def _words(result: RooflineTable, max_batch: int | None) -> str:
    first, last = result.curve[0], result.curve[-1]
    fits = "" if max_batch is None else f" The largest batch that fits is {format_count(max_batch)}."
    limit = result.limits.tokens_per_s
    tends = "" if limit is None else f", towards a limit of {format_number(limit)}"
    return (
        f"Bound of decode over batch for {result.model} on {result.machine} at {format_count(result.context_tokens)} tokens: "
        f"all sequences together from {format_number(first.tokens_per_s)} tokens/s at batch {format_count(first.batch)} to "
        f"{format_number(last.tokens_per_s)} at {format_count(last.batch)}{tends}; each of them from "
        f"{format_number(first.sequence_tokens_per_s)} to {format_number(last.sequence_tokens_per_s)}.{fits}"
    )
