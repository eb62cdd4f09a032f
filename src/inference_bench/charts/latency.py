"""How long did each request wait for its first token, and how long did it take? Every request a dot.

In:   VerifyResult
Out:  the strips as a Spec
Read next by: report.
"""

from __future__ import annotations

from collections import Counter
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
    log_ticks,
    nominal,
    place_legends,
    text,
)
from inference_bench.stats import median
from inference_bench.units import format_count, format_seconds
from inference_bench.verify.result import GroupMetrics, VerifyResult

_LOG_RATIO: Final = 20
_ROW_PX: Final = 44
_TTFT: Final = "to first token"
_E2E: Final = "to last token"
_SERIES: Final = {_TTFT: LIGHT["prefill"], _E2E: LIGHT["muted"]}


def latency_chart(result: VerifyResult, width_px: int = WIDE_PX) -> Spec | None:
    """Time to the first token and to the end of each completed request, a row for each part of the run.

    Unit:  seconds
    """
    narrow = is_narrow(width_px)
    names = group_labels(result.groups, narrow)
    rows: list[Row] = [
        {"group": name, "series": series, "seconds": seconds}
        for name, group in zip(names, result.groups, strict=True)
        for series, values in ((_TTFT, group.ttft_s), (_E2E, group.e2e_s))
        for seconds in values
        if seconds > 0
    ]
    if not rows:
        return None
    frame, (colour,) = place_legends(
        Frame(width_px, _ROW_PX * len(names), left=104 if narrow else 212, top=14),
        nominal("series", list(_SERIES), list(_SERIES.values())),
    )
    dot = {"type": "point", "filled": True, "opacity": 0.5, "size": 30 if narrow else 45}
    middle = {"type": "tick", "thickness": 2.5, "size": 16, "opacity": 1}
    return chart(
        frame,
        f"Latency of {sum(len(group.e2e_s) for group in result.groups)} requests in {len(names)} groups, a dot each.",
        {"x": _seconds_axis([row["seconds"] for row in rows], narrow), "y": _group_axis(names), "yOffset": _offset()},
        [
            layer(dot, rows, color=colour),
            layer(middle, _medians(rows), color=colour),
            text(_empty_groups(names, rows), {"x": {"value": 8}}, align="left", color=LIGHT["muted"]),
        ],
    )


def group_labels(groups: Sequence[GroupMetrics], is_short: bool = False) -> list[str]:
    """What each part of the run was, in words; numbered where two would read the same."""
    labels = [_short_label(group) if is_short else _long_label(group) for group in groups]
    repeats, seen = Counter(labels), Counter[str]()
    numbered = []
    for label in labels:
        seen[label] += 1
        numbered.append(f"{label} #{seen[label]}" if repeats[label] > 1 else label)
    return numbered


def _long_label(group: GroupMetrics) -> str:
    return (
        f"{format_count(group.concurrency)} at a time, "
        f"{format_count(group.prompt_tokens)} → {format_count(group.output_tokens)} tokens"
    )


def _short_label(group: GroupMetrics) -> str:
    return f"{group.concurrency}× {group.prompt_tokens}→{group.output_tokens}"


def _medians(rows: Sequence[Row]) -> list[Row]:
    pools: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        pools.setdefault((row["group"], row["series"]), []).append(row["seconds"])
    return [{"group": group, "series": series, "seconds": median(pool)} for (group, series), pool in pools.items()]


def _empty_groups(names: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    shown = {row["group"] for row in rows}
    return [{"group": name, "series": _TTFT, "label": "no request completed"} for name in names if name not in shown]


def _seconds_axis(values: Sequence[float], narrow: bool) -> Spec:
    low, high = min(values), max(values)
    most = 4 if narrow else 7
    if high / low > _LOG_RATIO:
        ticks, scale, kind = log_ticks(low / 1.3, high * 1.3, most), log_scale(low / 1.3, high * 1.3), ", log scale"
    else:
        ticks, scale, kind = linear_ticks(high * 1.05, most), {"domain": [0, high * 1.05]}, ""
    return axis("seconds", f"time since the request was due{kind}", ticks, [format_seconds(t, 1) for t in ticks], scale)


def _group_axis(names: Sequence[str]) -> Spec:
    shown = {"title": None, "labelColor": LIGHT["ink"], "labelLimit": 204, "grid": False}
    return {"field": "group", "type": "nominal", "sort": list(names), "axis": shown, "scale": {"domain": list(names)}}


def _offset() -> Spec:
    return {"field": "series", "type": "nominal", "sort": list(_SERIES), "scale": {"domain": list(_SERIES)}}
