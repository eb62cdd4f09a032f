"""Up to which rate does a server keep its promise? Every rate that a search ran, and the share of its requests that were good.

In:   RateTried, the share that was promised, both ends of the interval
Out:  the panels as a Spec, None where no rate was judged; `description` says in words what they show
Leaves out: single requests, how a rate was judged (loadtest.capacity_search)
Read next by: report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from inference_bench.charts.grammar import LIGHT, WIDE_PX, Spec, layer, nominal, place_legends, spoken
from inference_bench.charts.panels import (
    Panel,
    Scale,
    Shown,
    empty_frame,
    fraction_tick,
    limit_layers,
    panels_chart,
    rule,
    stacked,
)
from inference_bench.loadtest.capacity_search import Judgement, RateTried
from inference_bench.units import format_count, format_fraction, format_number

_DOT: Final[Spec] = {"type": "point", "filled": True, "size": 70}
_LOOKS: Final = {
    "kept the promise": (LIGHT["decode"], "circle"),
    "broke it": (LIGHT["finding"], "cross"),
    "not decided": (LIGHT["muted"], "triangle-up"),
}
_NAMES: Final = dict(zip((Judgement.PASS, Judgement.FAIL, Judgement.UNDECIDED), _LOOKS, strict=True))
_LEAST_MISSES: Final = 10.0  # times fewer than are allowed: so far down the lower panel reaches at least
_FAR_APART: Final = 8.0


def capacity_trials_chart(
    trials: Sequence[RateTried], share: float, interval: tuple[float | None, float | None], width_px: int = WIDE_PX
) -> Spec | None:
    """The share of good requests at each rate, and below it that of the others on a log scale, with the promise dashed.

    Where:  the grey band is the interval in which the server begins to break its promise; a rate without a miss stands
            at the lower edge
    Unit:   requests/s; shares of the requests
    """
    judged = [each for each in trials if each.num_requests]
    if not judged:
        return None
    names = [name for judgement, name in _NAMES.items() if any(each.verdict is judgement for each in judged)]
    frame, (colour,) = place_legends(
        empty_frame(width_px), nominal("series", names, [_LOOKS[name][0] for name in names])
    )
    shape = {**nominal("series", names, [_LOOKS[name][1] for name in names]), "legend": colour["legend"]}
    misses = [missed for each in judged if (missed := _missed(each)) > 0]
    lowest = min([*misses, (1 - share) / _LEAST_MISSES])
    panels = stacked(
        frame,
        [
            Shown("good requests", Scale.from_zero([1.0]), fraction_tick),
            Shown("requests that were late or failed", Scale(lowest / 1.5, 1.5, is_log=True), fraction_tick),
        ],
        Scale.over((each.rate for each in judged), _FAR_APART),
        "requests/s",
    )
    rows = [
        {**panel.place(each.rate, value), "series": _NAMES[each.verdict], "said": _said(each)}
        for each in judged
        for panel, value in zip(panels, (1 - _missed(each), _missed(each)), strict=True)
    ]
    promises = (
        *limit_layers(panels[0], share, f"{format_fraction(share)} promised"),
        *limit_layers(panels[1], 1 - share, f"{format_fraction(1 - share)} allowed"),
    )
    words = f"{format_count(len(judged))} rates that were tried; {'; '.join(map(_said, judged))}."
    band = _band(panels, interval)
    return panels_chart(frame, words, panels, [band, *promises, spoken(_DOT, rows, color=colour, shape=shape)])


def _missed(each: RateTried) -> float:
    return 1 - each.num_good / each.num_requests


def _said(each: RateTried) -> str:
    return (
        f"{format_number(each.rate)} requests/s: {format_fraction(each.num_good / each.num_requests, 4)} good, "
        f"{_NAMES[each.verdict]}"
    )


def _band(panels: Sequence[Panel], interval: tuple[float | None, float | None]) -> Spec:
    low, high = interval
    known = low is not None and high is not None
    rows = [rule(panel.at_x(low or 0.0), panel.top, panel.at_x(high or 0.0), panel.bottom) for panel in panels if known]
    return layer({"type": "rect", "color": LIGHT["grid"]}, rows, x2={"field": "x2"}, y2={"field": "y2"})
