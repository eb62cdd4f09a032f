"""How far off is the usual KV-cache formula? Its factor model by model, and the cache over the context beside the truth.

In:   ModelRows of one length, CacheCurves, and the width of the drawing in CSS pixels
Out:  one Spec, or None where nothing is wrong; every point says in words what it is
Leaves out: counting (predict.naive_rows, predict.naive_examples)
Read next by: report.article.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from inference_bench.charts.grammar import (
    LIGHT,
    WIDE_PX,
    Frame,
    Row,
    Spec,
    chart,
    is_narrow,
    layer,
    nominal,
    place_legends,
    spoken,
    text,
    text_px,
)
from inference_bench.charts.panels import (
    DASHED,
    TITLE_PX,
    Panel,
    Scale,
    empty_frame,
    label,
    number_tick,
    on_paper,
    panels_chart,
    pixels,
    rule,
    rules,
)
from inference_bench.predict.naive_causes import Cause
from inference_bench.predict.naive_examples import CacheCurve
from inference_bench.predict.naive_rows import ModelRow
from inference_bench.units import KIBI, MEBI, format_bytes_binary, format_count, format_number

# cause → its name in the legend, its colour's role and its shape: no two look the same without colours either
_MARKS: Final[dict[Cause, tuple[str, str, str]]] = {
    Cause.WINDOW: ("window", "decode", "circle"),
    Cause.CHUNK: ("chunk", "c3", "square"),
    Cause.LATENT: ("latent", "prefill", "triangle-up"),
    Cause.COMPRESSED: ("compressed", "c2", "diamond"),
    Cause.INDEX: ("index keys", "c2", "triangle-right"),
    Cause.NO_ATTENTION: ("no attention", "c1", "square"),
    Cause.STATE: ("fixed state", "c1", "triangle-right"),
    Cause.SHARED: ("shared", "c4", "triangle-down"),
    Cause.SHAPE: ("unlike heads", "c4", "triangle-left"),
    Cause.CROSS: ("cross-attention", "finding", "cross"),
}
_NARROW_NAME_CHARS: Final = 18
_ROW_PX: Final = 9
_NAME_PX: Final = 15  # from one name to the next
_ASIDE_PX: Final = 8
_BELOW_PX: Final = 30  # below a line that rises, so far that a text of its length is clear of it
_EDGE_PX: Final = 9
_MARGIN: Final = 1.12
_USUAL: Final = "usual formula"
_TRUE: Final = "true"
_PANEL_PX: Final = 150
_NARROW_PANEL_PX: Final = 110
_ACROSS_PX, _DOWN_PX = 20, 50  # between panels


def tokens_name(context_tokens: int) -> str:
    """A length as the field writes it where it is a multiple of 1024, written out where it is not.

    >>> tokens_name(32768), tokens_name(1048576), tokens_name(448)
    ('32k', '1M', '448')
    """
    for factor, letter in ((MEBI, "M"), (KIBI, "k")):
        if context_tokens >= factor and context_tokens % factor == 0:
            return f"{context_tokens // factor}{letter}"
    return format_count(context_tokens)


# ── the factor of every model ──────────────────────────────────────────────────────────────────────


def factor_chart(rows: Sequence[ModelRow], named: Sequence[str] = (), width_px: int = WIDE_PX) -> Spec | None:
    """Every model that the usual formula is wrong about, by how many times the truth it says; 1 is right.

    Where:  the highest stands above; `named` get their name first, others where there is room for it
    """
    shown = sorted((row for row in rows if row.factor and not row.is_right), key=lambda row: -(row.factor or 0.0))
    if not shown:
        return None
    causes = [cause for cause in _MARKS if any(row.cause is cause for row in shown)]
    names, roles, forms = zip(*(_MARKS[cause] for cause in causes), strict=True)
    frame, (colour,) = place_legends(
        Frame(width_px, _ROW_PX * (len(shown) - 1) + 2 * _EDGE_PX, left=12, top=10, bottom=44),
        nominal("cause", names, [LIGHT[role] for role in roles]),
    )
    shape = {**nominal("cause", names, forms), "legend": colour["legend"]}
    labelled = _labelled(shown, named)
    labels = [_name(row, width_px) for row in shown]
    scale = _factor_scale(shown, {index: labels[index] for index in labelled}, frame.plot_width)
    points = [_factor_point(row, index, scale, frame.plot_width) for index, row in enumerate(shown)]
    one = _across(scale, 1.0, frame.plot_width)
    stems = [rule(one, point["y"], point["x"], point["y"]) for point in points]
    return chart(
        frame,
        _factor_words(shown, rows),
        {"x": pixels("x", frame.plot_width), "y": pixels("y", frame.height, is_down=True)},
        [
            *_factor_axis(scale, frame),
            rules(stems, stroke=LIGHT["muted"], strokeWidth=1),
            *on_paper(_factor_names(points, labels, labelled, one), align="left", baseline="middle"),
            spoken({"type": "point", "filled": True, "size": 42}, points, color=colour, shape=shape),
        ],
    )


def _labelled(shown: Sequence[ModelRow], named: Sequence[str]) -> list[int]:
    """Which rows get their name: the named ones and the first, the rest where no name stands nearby."""
    chosen: list[int] = []
    wanted = [index for index, row in enumerate(shown) if row.model in named]
    for index in [0, *wanted, *range(len(shown))]:
        if all(abs(index - other) * _ROW_PX >= _NAME_PX for other in chosen):
            chosen.append(index)
    return sorted(chosen)


def short_name(model: str, width_px: int) -> str:
    """A model's name, or its beginning in a narrow drawing."""
    is_short = not is_narrow(width_px) or len(model) <= _NARROW_NAME_CHARS
    return model if is_short else f"{model[: _NARROW_NAME_CHARS - 1]}…"


def _name(row: ModelRow, width_px: int) -> str:
    return f"{short_name(row.model, width_px)} {format_number(row.factor)}"


def _factor_scale(shown: Sequence[ModelRow], labels: Mapping[int, str], width: float) -> Scale:
    """A log scale wide enough for the names to the right of their points.

    Where:  with names of c pixels at u = log(factor / low) the scale has to be u · width / (width - c) long
    """
    low = min(1.0, *(row.factor or 1.0 for row in shown)) / _MARGIN
    rights = [math.log(max(row.factor or 1.0, 1.0) * _MARGIN / low) for row in shown]
    for index, said in labels.items():
        name_px = text_px(said) + _ASIDE_PX
        reach = math.log(max(shown[index].factor or 1.0, 1.0) / low)
        rights.append(reach * width / max(width - name_px, width / 4))
    return Scale(low, low * math.exp(max(rights)), is_log=True)


def _across(scale: Scale, factor: float, width: float) -> float:
    return round(width * scale.along(factor), 1)


def _factor_point(row: ModelRow, index: int, scale: Scale, width: float) -> Row:
    count = row.count
    return {
        "x": _across(scale, row.factor or 1.0, width),
        "y": _EDGE_PX + index * _ROW_PX,
        "cause": _MARKS[row.cause or Cause.WINDOW][0],
        "model": row.model,
        "factor": row.factor,
        "said": (
            f"{row.model}: {format_number(row.factor)} times the true cache; {format_bytes_binary(count.naive_bytes)} by the "
            f"usual formula, {format_bytes_binary(count.total_bytes)} true at {format_count(count.context_tokens)} tokens "
            f"({row.cause})"
        ),
    }


def _factor_names(points: Sequence[Row], labels: Sequence[str], labelled: Sequence[int], one: float) -> list[Row]:
    return [label(labels[index], max(points[index]["x"], one) + _ASIDE_PX, points[index]["y"]) for index in labelled]


def _factor_axis(scale: Scale, frame: Frame) -> list[Spec]:
    ticks = scale.ticks(5 if is_narrow(frame.width) else 9)
    lines = [rule(x, 0, x, frame.height) for x in (_across(scale, tick, frame.plot_width) for tick in ticks)]
    one = _across(scale, 1.0, frame.plot_width)
    numbers = [label(number_tick(tick), _across(scale, tick, frame.plot_width), frame.height + 6) for tick in ticks]
    title = "usual figure over true cache, log scale" + ("" if is_narrow(frame.width) else "; 1 is right")
    return [
        rules(lines, stroke=LIGHT["grid"]),
        rules([rule(one, 0, one, frame.height)], stroke=LIGHT["ink"], strokeWidth=1),
        text(numbers, baseline="top", color=LIGHT["muted"]),
        text([label(title, frame.plot_width / 2, frame.height + 24)], baseline="top", color=LIGHT["muted"]),
    ]


def _factor_words(shown: Sequence[ModelRow], rows: Sequence[ModelRow]) -> str:
    first, last = shown[0], shown[-1]
    return (
        f"The usual KV-cache formula as a multiple of the true cache, for the {format_count(len(shown))} of "
        f"{format_count(len(rows))} models it is wrong about here and gives a figure for: from "
        f"{format_number(first.factor)} times for {first.model} down to {format_number(last.factor)} for {last.model}."
    )


# ── the cache over the context ─────────────────────────────────────────────────────────────────────


def growth_chart(curves: Sequence[CacheCurve], width_px: int = WIDE_PX) -> Spec | None:
    """The cache of one sequence over its length, a panel a model: by the usual formula, and as it is.

    Unit:   bytes; tokens
    """
    if not curves:
        return None
    names = [_USUAL, _TRUE]
    looks = nominal("series", names, [LIGHT["finding"], LIGHT["decode"]], symbolType="stroke")
    frame, (colour,) = place_legends(empty_frame(width_px), looks)
    dash = {**nominal("series", names, [DASHED, [1, 0]]), "legend": colour["legend"]}
    panels = _panels(curves, frame)
    lines = [row for curve, panel in zip(curves, panels, strict=True) for row in _lines(curve, panel)]
    ends = [_end(curve, panel) for curve, panel in zip(curves, panels, strict=True)]
    mark = {"type": "point", "filled": True, "size": 18, "color": LIGHT["decode"]}
    return panels_chart(
        frame,
        _growth_words(curves),
        panels,
        [
            layer({"type": "line"}, lines, color=colour, strokeDash=dash, detail={"field": "model", "type": "nominal"}),
            rules([end for end, _ in ends], stroke=LIGHT["ink"], strokeWidth=1),
            spoken(mark, [row for row in lines if row["series"] == _TRUE]),
            *on_paper([said for _, said in ends], align="right", baseline="middle"),
        ],
    )


def _panels(curves: Sequence[CacheCurve], frame: Frame) -> list[Panel]:
    """Two beside one another, or all above one another in a narrow drawing, on the same scales."""
    columns = 1 if is_narrow(frame.width) else 2
    width = (frame.plot_width - _ACROSS_PX * (columns - 1)) / columns
    height = _NARROW_PANEL_PX if columns == 1 else _PANEL_PX
    x = Scale.doubling(tokens for curve in curves for tokens, _, _ in curve.points)
    y = Scale.doubling(size for curve in curves for _, *sizes in curve.points for size in sizes if size)
    panels = []
    for index, curve in enumerate(curves):
        down, across = divmod(index, columns)
        is_last = index + columns >= len(curves)
        place = (across * (width + _ACROSS_PX), TITLE_PX + down * (height + _DOWN_PX))
        title = "tokens of one sequence" if is_last else None
        name = short_name(curve.model, frame.width)
        panels.append(Panel(*place, width, height, x, y, name, title, _tokens_tick, _bytes_tick, across == 0))
    return panels


def _tokens_tick(value: float) -> str:
    return tokens_name(round(value))


def _bytes_tick(value: float) -> str:
    return format_bytes_binary(round(value), 1)


def _lines(curve: CacheCurve, panel: Panel) -> list[Row]:
    rows = []
    for tokens, usual, true in curve.points:
        said = (
            f"{curve.model} at {format_count(tokens)} tokens: {format_bytes_binary(usual)} by the usual formula, "
            f"{format_bytes_binary(true)} true"
        )
        for series, size in ((_USUAL, usual), (_TRUE, true)):
            if size:
                rows.append({**panel.place(tokens, size), "series": series, "model": curve.model, "said": said})
    return rows


def _end(curve: CacheCurve, panel: Panel) -> tuple[Row, Row]:
    """The distance between the two at the longest context: a stroke, and below it how many times that is."""
    tokens, usual, true = curve.points[-1]
    x, above, below = panel.at_x(tokens), *sorted((panel.at_y(max(usual, 1)), panel.at_y(max(true, 1))))
    said = "the same" if usual == true else f"{format_number(curve.last_factor)} times"
    return rule(x, above, x, below), label(said, x, below + _BELOW_PX)


def _growth_words(curves: Sequence[CacheCurve]) -> str:
    ends = []
    for curve in curves:
        tokens, usual, true = curve.points[-1]
        ends.append(
            f"{curve.model} {format_bytes_binary(usual)} and {format_bytes_binary(true)} at {format_count(tokens)}"
        )
    return f"Cache of one sequence over its tokens, by the usual formula and true: {'; '.join(ends)}."
