"""What does a longer context take and cost: the true cache beside the usual formula, and the pace of decoding?

In:   ContextCurve
Out:  one Spec of two panels over the same contexts, or of the first alone where no rate is known
Leaves out: what engines allocate and reach
Read next by: report, the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.charts.grammar import LIGHT, WIDE_PX, Row, Spec, layer, nominal, place_legends, spoken
from inference_bench.charts.labels import Labels, along_level
from inference_bench.charts.panels import (
    DASHED,
    Panel,
    Scale,
    Shown,
    bytes_tick,
    empty_frame,
    level,
    number_tick,
    panels_chart,
    stacked,
    upright,
)
from inference_bench.predict.context_curve import ContextCurve, ContextPoint
from inference_bench.units import format_bytes, format_count, format_number

_TRUE: Final = "by layer type"
_USUAL: Final = "usual formula"
_PACE: Final = "decoding"
_LOG_RATIO: Final = 2  # sizes that differ at all are on log scales, as contexts are
_HEIGHT_PX: Final = 150  # of a panel, in a narrow drawing too, which has as many labels
_NEAR: Final = 100  # a limit further than this from the curves, as a factor, is said but not drawn
_DOT: Final[Spec] = {"type": "point", "filled": True, "size": 45}
_RING: Final[Spec] = {"type": "point", "filled": False, "size": 170, "stroke": LIGHT["ink"], "strokeWidth": 1.5}
_LINES: Final[Spec] = {"symbolType": "stroke", "symbolSize": 300}


def context_chart(curve: ContextCurve, width_px: int = WIDE_PX) -> Spec | None:
    """The cache over the context by both counts, with the memory left for it as a limit; below, what each user gets.

    Unit:  bytes; tokens/s; tokens
    """
    if len(curve.points) < 2 or not any(point.cache_bytes for point in curve.points):
        return None
    names = [_TRUE] if curve.asked.usual_bytes is None else [_TRUE, _USUAL]
    roles, dashes = ("decode", "prefill"), ([1, 0], DASHED)
    frame, (colour,) = place_legends(
        empty_frame(width_px), nominal("series", names, [LIGHT[role] for role in roles[: len(names)]], **_LINES)
    )
    dash = {**nominal("series", names, dashes[: len(names)]), "legend": colour["legend"]}
    x = Scale.doubling([point.context_tokens for point in curve.points])
    panels = stacked(frame, list(_shown(curve)), x, "context (tokens)", format_tokens, _HEIGHT_PX)
    cache, rates = list(_cache_points(curve, panels[0])), list(_rate_points(curve, panels[1:]))
    limit = _drawn_limit(curve)
    return panels_chart(
        frame,
        _words(curve),
        panels,
        [
            upright(panels, curve.context_tokens, stroke=LIGHT["muted"]),
            *([] if limit is None else [level(panels[0], limit)]),
            layer({"type": "line"}, cache, color=colour, strokeDash=dash),
            spoken(_DOT, cache[::-1], color=colour),  # the true count lies above
            layer({"type": "line", "stroke": LIGHT["decode"]}, rates),
            spoken({**_DOT, "color": LIGHT["decode"]}, rates),
            layer(_RING, [row for row in (*cache, *rates) if row["context_tokens"] == curve.context_tokens]),
            *_cache_labels(curve, panels[0], cache, limit),
            *_rate_labels(curve, panels[1:], rates),
        ],
    )


def format_tokens(value: float) -> str:
    """A context at a tick."""
    return format_count(round(value))


def _shown(curve: ContextCurve) -> Iterator[Shown]:
    """The panels: each as far as what it holds."""
    sizes = [size for point in curve.points for size in (point.cache_bytes, point.usual_bytes) if size]
    limit = _drawn_limit(curve)
    of = "" if curve.sequences == 1 else f" of {format_count(curve.sequences)} sequences"
    title = f"cache{of}" if curve.devices == 1 else f"cache{of}, one device"
    yield Shown(title, Scale.over([*sizes, *([] if limit is None else [limit])], _LOG_RATIO), bytes_tick)
    rates = [point.sequence_tokens_per_s for point in curve.points if point.sequence_tokens_per_s is not None]
    if rates:
        yield Shown("decode bound, each (tokens/s)", Scale.over(rates), number_tick)


def _drawn_limit(curve: ContextCurve) -> float | None:
    """What is free for the cache, where there is anything and it is near enough to the curves to be drawn."""
    free, sizes = curve.free_bytes, [point.cache_bytes for point in curve.points if point.cache_bytes]
    if free is None or free <= 0:
        return None
    most = max(point.usual_bytes or point.cache_bytes for point in curve.points)
    return float(free) if min(sizes) / _NEAR <= free <= most * _NEAR else None


def _cache_points(curve: ContextCurve, panel: Panel) -> Iterator[Row]:
    for point in curve.points:
        for name, size in ((_TRUE, point.cache_bytes), (_USUAL, point.usual_bytes)):
            if size:
                yield {
                    **panel.place(point.context_tokens, size),
                    "series": name,
                    "context_tokens": point.context_tokens,
                    "num_bytes": size,
                    "said": _said(point),
                }


def _rate_points(curve: ContextCurve, panels: Sequence[Panel]) -> Iterator[Row]:
    for panel in panels:
        for point in curve.points:
            if point.sequence_tokens_per_s is not None:
                yield {
                    **panel.place(point.context_tokens, point.sequence_tokens_per_s),
                    "series": _PACE,
                    "context_tokens": point.context_tokens,
                    "tokens_per_s": point.sequence_tokens_per_s,
                    "said": _said(point),
                }


def _said(point: ContextPoint) -> str:
    usual = "" if point.usual_bytes is None else f" (usual formula {format_bytes(point.usual_bytes)})"
    rate = point.sequence_tokens_per_s
    pace = "" if rate is None else f", {format_number(rate)} tokens/s each at best"
    return f"{format_count(point.context_tokens)} tokens: cache {format_bytes(point.cache_bytes)}{usual}{pace}"


def _cache_labels(curve: ContextCurve, panel: Panel, points: Sequence[Row], limit: float | None) -> list[Spec]:
    """The sizes at the context asked for, and what is free."""
    labels, asked = Labels.of_panel(panel), curve.asked
    for name in (_TRUE, _USUAL):
        labels.keep_off([row for row in points if row["series"] == name])
    labels.keep_off_lines([panel.at_x(asked.context_tokens)], [] if limit is None else [panel.at_y(limit)])
    if limit is not None:
        labels.put(f"free for it: {format_bytes(curve.free_bytes)}", along_level(panel, panel.at_y(limit)))
    x = panel.at_x(asked.context_tokens)
    for size in dict.fromkeys((asked.usual_bytes, asked.cache_bytes)):
        if size:
            labels.put_joined(format_bytes(size), x, panel.at_y(size))
    return labels.layers()


def _rate_labels(curve: ContextCurve, panels: Sequence[Panel], points: Sequence[Row]) -> Iterator[Spec]:
    for panel in panels:
        labels, rate = Labels.of_panel(panel), curve.asked.sequence_tokens_per_s
        labels.keep_off(points)
        x = panel.at_x(curve.context_tokens)
        labels.keep_off_lines([x])
        if rate is not None:
            said = f"{format_count(curve.context_tokens)} tokens: {format_number(rate)} each"
            labels.put_joined(said, x, panel.at_y(rate))
        yield from labels.layers()


def _words(curve: ContextCurve) -> str:
    last, free = curve.points[-1], curve.free_bytes
    left = "" if free is None else f" {format_bytes(max(free, 0))} of {curve.machine} are free for it."
    if free is not None and free <= 0:
        left = f" Weights and overhead alone take more than the memory of {curve.machine}."
    return (
        f"Cache of {format_count(curve.sequences)} sequence(s) of {curve.model} over the context. At "
        f"{_said(curve.asked)}. At {_said(last)}.{left}"
    )
