"""Which faults of a cache would nobody see in the text, and what does a cache save?

In:   the comparisons, lengths and store points of a CacheResult; the width of the drawing in CSS pixels
Out:  one Spec each, or None without data
Leaves out: the toy (report)
Read next by: report.

The first is a line for each fault and prompt: it begins where logits are off by more than rounding, and ends where the tokens part.
As long as the line is, the fault is in the text and the text looks right. The others are two series over a length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from inference_bench.charts.grammar import (
    LIGHT,
    WIDE_PX,
    Frame,
    Row,
    Spec,
    is_narrow,
    layer,
    nominal,
    place_legends,
    spoken,
    text,
    text_px,
)
from inference_bench.charts.labels import Labels, Place
from inference_bench.charts.panels import (
    TITLE_PX,
    Panel,
    Scale,
    empty_frame,
    label,
    on_paper,
    panels_chart,
    rule,
    rules,
    seconds_tick,
)
from inference_bench.labs.cache.faults import Fault
from inference_bench.labs.cache.result import (
    CONCATENATING,
    MODEL,
    PREALLOCATED,
    LengthPoint,
    PathComparison,
    StorePoint,
)
from inference_bench.units import format_count, format_number, format_seconds

_HEADING_PX: Final = 26  # above the lines of a fault: its name
_LINE_PX: Final = 14
_NAMES_PX: Final = 66  # on the right of the lines: their prompts
_BELOW_LINES_PX: Final = 8
_HEIGHT_PX: Final = 260
_MARGIN_PX: Final = 16
_POINT: Final[Spec] = {"type": "point", "size": 52, "strokeWidth": 1.6}
_SHOWN_BY: Final = ("logits show it", "tokens show it")
_MARKS: Final = (("circle", "finding"), ("square", "ink"))
_TWO: Final = (("circle", "decode"), ("square", "prefill"))


@dataclass(frozen=True, slots=True)
class _Marked(Scale):
    """A scale with a tick at each of some places; at none of them for lines that stand one below the other."""

    places: tuple[int, ...] = ()

    def ticks(self, most: int) -> list[float]:
        """Every place, or every n-th where they are many."""
        return [float(place) for place in self.places[:: max(1, math.ceil(len(self.places) / most))]]

    @classmethod
    def lengths(cls, places: Sequence[int]) -> _Marked:
        """A log scale from a little before the first to a little after the last."""
        return cls(min(places) / 1.2, max(places) * 1.2, is_log=True, base=2, places=tuple(places))


# ── faults ─────────────────────────────────────────────────────────────────────────────────────────


def unseen_chart(comparisons: Sequence[PathComparison], width_px: int = WIDE_PX) -> Spec | None:
    """For each fault planted in the real model and each prompt: from the first wrong logits to the first wrong token.

    Unit:  emitted tokens
    """
    planted = [each for each in comparisons if each.subject == MODEL and each.fault is not None]
    if not planted:
        return None
    groups = [(fault, [each for each in planted if each.fault is fault]) for fault in Fault]
    groups = [(fault, group) for fault, group in groups if group]
    shape = nominal("shown_by", _SHOWN_BY, [shape for shape, _ in _MARKS])
    colour = nominal("shown_by", _SHOWN_BY, [LIGHT[role] for _, role in _MARKS])
    frame, (colour,) = place_legends(replace(empty_frame(width_px), left=_MARGIN_PX), colour)
    panel = _fault_panel(groups, frame)
    headings, lines, names, points = [], [], [], list[Row]()
    y = panel.top
    for fault, group in groups:
        y += _HEADING_PX
        headings.append(label(_fault_heading(fault, group, is_narrow(width_px)), panel.left + 4, y - 15))
        for each in group:
            lines.append(_fault_line(each, panel, y))
            names.append(label(each.prompt, panel.left + panel.width + 8, y))
            points += _fault_points(each, panel, y)
            y += _LINE_PX
        y += _BELOW_LINES_PX
    drawn = [
        rules(lines, stroke=LIGHT["finding"], strokeWidth=3, opacity=0.45),
        spoken({**_POINT, "filled": True}, points, color=colour, shape={**shape, "legend": colour["legend"]}),
        *on_paper(headings, align="left", baseline="middle"),
        text(names, align="left", baseline="middle", color=LIGHT["muted"]),
    ]
    return panels_chart(frame, _fault_words(planted), [panel], drawn)


def _fault_panel(groups: Sequence[tuple[Fault, Sequence[PathComparison]]], frame: Frame) -> Panel:
    height = sum(_HEADING_PX + _LINE_PX * len(group) + _BELOW_LINES_PX for _, group in groups)
    most = max(each.num_emitted for _, group in groups for each in group)
    title = "from the first wrong logits to the first wrong token"
    if is_narrow(frame.width):
        title = "first wrong logits to first wrong token"
    x, lines = Scale(0.0, most + 1.0), _Marked(0.0, 1.0)
    width = float(frame.plot_width - _NAMES_PX)
    return Panel(0.0, float(TITLE_PX), width, float(height), x, lines, title, "emitted token", has_y_labels=False)


def _fault_heading(fault: Fault, group: Sequence[PathComparison], narrow: bool) -> str:
    unseen = sum(not each.tokens_part for each in group)
    if narrow:
        return f"{fault}: text same on {unseen} of {len(group)}"
    worst = format_number(max(each.max_logit_error for each in group), 2)
    prompts = f"{len(group)} prompt{'' if len(group) == 1 else 's'}"
    return f"{fault}: logits off by up to {worst}, no token differs on {unseen} of {prompts}"


def _ends(each: PathComparison) -> tuple[int, int]:
    """Tokens, counted from 1: where logits show the fault, and where the line ends."""
    last = each.num_equal_tokens + 1 if each.tokens_part else each.num_emitted
    return (last if each.first_over_tolerance is None else each.first_over_tolerance + 1), last


def _fault_line(each: PathComparison, panel: Panel, y: float) -> Row:
    first, last = _ends(each)
    return rule(panel.at_x(first), y, panel.at_x(last), y)


def _fault_points(each: PathComparison, panel: Panel, y: float) -> Iterator[Row]:
    first, last = _ends(each)
    said = f"{each.fault}, prompt “{each.prompt}”"
    if each.tokens_part:
        yield {
            "x": panel.at_x(last), "y": round(y, 1), "shown_by": _SHOWN_BY[1], "token": last,
            "said": f"{said}: token {format_count(last)} is the first that differs",
        }  # fmt: skip
    if each.first_over_tolerance is not None:
        worst = format_number(each.max_logit_error, 2)
        yield {
            "x": panel.at_x(first), "y": round(y, 1), "shown_by": _SHOWN_BY[0], "token": first,
            "said": f"{said}: logits are off from token {format_count(first)} on, by up to {worst}",
        }  # fmt: skip


def _fault_words(planted: Sequence[PathComparison]) -> str:
    alone = sum(each.is_seen_by_logits_alone for each in planted)
    parted = [each.num_equal_tokens + 1 for each in planted if each.tokens_part]
    most = max(each.num_emitted for each in planted)
    where = (
        f"; in the others it is token {min(parted)} at the earliest and {max(parted)} at the latest" if parted else ""
    )
    return (
        f"{len(planted)} runs of the real model with a fault in its cache, a line each from the first token whose logits are wrong "
        f"to the first token that differs: in {alone} of them none of {most} tokens differs{where}."
    )


# ── two series over a length ───────────────────────────────────────────────────────────────────────


def time_chart(points: Sequence[LengthPoint], width_px: int = WIDE_PX) -> Spec | None:
    """Seconds to generate so many tokens with a cache and without, and how many times longer it takes without.

    Unit:  seconds over emitted tokens, both on log scales
    """
    series = {
        "with a cache": [(each.num_emitted, each.cached_s, "") for each in points],
        "without": [(each.num_emitted, each.uncached_s, f"× {format_number(each.speedup, 2)}") for each in points],
    }
    if not points:
        return None
    last = points[-1]
    words = (
        f"Time to generate {format_count(points[0].num_emitted)} to {format_count(last.num_emitted)} tokens: at the longest "
        f"{format_seconds(last.cached_s)} with a cache and {format_seconds(last.uncached_s)} without, "
        f"{format_number(last.speedup, 2)} times as long."
    )
    return _two_series(series, "time to generate so many tokens", "emitted tokens", words, width_px)


def append_chart(points: Sequence[StorePoint], width_px: int = WIDE_PX) -> Spec | None:
    """Seconds to add one token's keys and values to every layer, joined anew and written into its place.

    Unit:  seconds over positions, both on log scales
    """
    series = {
        CONCATENATING: [(each.num_positions, each.concatenating_s, "") for each in points],
        PREALLOCATED: [(each.num_positions, each.preallocated_s, "") for each in points],
    }
    if not points:
        return None
    last = points[-1]
    words = (
        f"Time to add one token to the cache of every layer, at {format_count(points[0].num_positions)} to "
        f"{format_count(last.num_positions)} positions: at the longest {format_seconds(last.concatenating_s)} by joining and "
        f"{format_seconds(last.preallocated_s)} into room set aside."
    )
    return _two_series(series, "time to add one token to every layer", "positions", words, width_px)


def _two_series(
    series: dict[str, list[tuple[int, float, str]]], title: str, x_title: str, words: str, width_px: int
) -> Spec:
    """Two lines with their points, those of the second labelled above."""
    names = list(series)
    shape = nominal("series", names, [shape for shape, _ in _TWO])
    colour = nominal("series", names, [LIGHT[role] for _, role in _TWO])
    frame, (colour,) = place_legends(empty_frame(width_px), colour)
    every = [point for points in series.values() for point in points]
    seconds = [value for _, value, _ in every]
    scale = Scale(min(seconds) / 1.4, max(seconds) * 1.8, is_log=True)
    panel = Panel(0.0, float(TITLE_PX), float(frame.plot_width), float(_HEIGHT_PX), _Marked.lengths([x for x, _, _ in series[names[0]]]),
                  scale, title, x_title, lambda value: format_count(round(value)), seconds_tick)  # fmt: skip
    lines, points, written = [], list[Row](), Labels.of_panel(panel)
    for (name, found), stroke in zip(series.items(), colour["scale"]["range"], strict=True):
        rows = [
            {
                **panel.place(x, value),
                "series": name,
                "seconds": value,
                "said": f"{name}, {format_count(x)}: {format_seconds(value)}",
            }
            for x, value, _ in found
        ]
        lines.append(layer({"type": "line", "stroke": stroke}, rows))
        points += rows
        for row, (_, _, said) in zip(rows, found, strict=True):
            if said:
                half = text_px(said) / 2
                x = min(max(row["x"], panel.left + half), panel.left + panel.width - half)
                written.put(said, [Place(x, row["y"] - 14, "center"), Place(x, row["y"] + 16, "center")])
    marks = spoken({**_POINT, "filled": True}, points, color=colour, shape={**shape, "legend": colour["legend"]})
    return panels_chart(frame, words, [panel], [*lines, marks, *written.layers()])
