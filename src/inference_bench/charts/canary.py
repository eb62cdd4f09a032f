"""How far is each figure of a canary from the most that it may be worse by?

In:   Decision and the width of the drawing in CSS pixels
Out:  one Spec, a line for each rule with an interval; None without any
Leaves out: rules that count (a suite's questions) and rules without an interval: they are in the table
Read next by: report, cli.

The axis is in limits: 0 is no difference, 1 all that the rule allows, whatever its unit, so that all rules share it.
"""

from __future__ import annotations

import math
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
    nominal,
    place_legends,
    shortened,
    spoken,
    text,
    unlisted,
)
from inference_bench.compare_runs.decide import Decision
from inference_bench.compare_runs.evidence import Evidence, Outcome
from inference_bench.compare_runs.rules import Rule, Unit
from inference_bench.units import NOT_AVAILABLE, format_fraction, format_number

_ROW_PX: Final = 30
_NAMES: Final = {
    "goodput_requests_per_s": "goodput",
    "document_valid_fraction": "valid JSON",
    "length_limited_fraction": "cut at limit",
    "suite_regressions": "suite lost",
}
_LOW, _HIGH = -3.0, 5.0  # limits; what lies beyond is drawn at the edge, and says so
_COLOURS: Final = {Outcome.KEPT: "c1", Outcome.UNTOLD: "c3", Outcome.BROKEN: "finding"}
_SHAPES: Final = {Outcome.KEPT: "circle", Outcome.UNTOLD: "diamond", Outcome.BROKEN: "square"}


def canary_chart(found: Decision, width_px: int = WIDE_PX) -> Spec | None:
    """How much worse the canary is, with intervals, in limits; left of the line at 1 a rule is kept.

    Unit:    limits: the worsening over the most that the rule allows
    """
    judged = [each for each in found.evidence if _is_drawn(each)]
    if not judged:
        return None
    narrow = is_narrow(width_px)
    left, height = (112 if narrow else 190), _ROW_PX * len(judged)
    outcomes = [outcome for outcome in _COLOURS if any(each.outcome is outcome for each in judged)]
    frame, (colour,) = place_legends(
        Frame(width_px, height, left=left, right=20 if narrow else 210),
        nominal("outcome", outcomes, [LIGHT[_COLOURS[outcome]] for outcome in outcomes]),
    )
    shape = unlisted(nominal("outcome", outcomes, [_SHAPES[outcome] for outcome in outcomes]))
    rows = [_row(each, height - _ROW_PX * (number + 0.5)) for number, each in enumerate(judged)]
    low, high = _range(rows)
    ticks = [float(tick) for tick in range(low, high + 1)]
    across = axis("worse", "worse by, in limits of its rule", ticks, list(map(_tick, ticks)), {"domain": [low, high]})
    up = {"field": "place", "type": "quantitative", "axis": None, "scale": {"domain": [0, height], "nice": False}}
    marks = [{"worse": at, "place": 0, "to": height, "kind": kind} for at, kind in ((0.0, "none"), (1.0, "limit"))]
    names = [{**row, "label": shortened(row["name"], left - 16), "worse": low} for row in rows]
    said = [{**row, "label": row["change"], "worse": high} for row in rows]
    return chart(
        frame,
        _words(found, judged),
        {"x": across, "y": up},
        [
            layer({"type": "rule", "stroke": LIGHT["muted"], "strokeWidth": 1}, marks[:1], y2={"field": "to"}),
            layer({"type": "rule", "stroke": LIGHT["ink"], "strokeDash": [6, 3]}, marks[1:], y2={"field": "to"}),
            layer(
                {"type": "rule", "strokeWidth": 2},
                rows,
                x={**across, "field": "low"},
                x2={"field": "high"},
                color=colour,
            ),
            spoken({"type": "point", "filled": True, "size": 90}, rows, color=colour, shape=shape),
            text(names, align="right", baseline="middle", dx=-8),
            *([] if narrow else [text(said, align="left", baseline="middle", dx=8, color=LIGHT["muted"])]),
        ],
    )


def _is_drawn(each: Evidence) -> bool:
    has_both = each.interval is not None and each.worse is not None and math.isfinite(each.worse)
    return has_both and each.rule.most_worse > 0 and each.outcome in _COLOURS


def _range(rows: Sequence[Row]) -> tuple[int, int]:
    """Whole limits that hold every interval, and what is no change and all that is allowed."""
    return min(-1, math.floor(min(row["low"] for row in rows))), max(2, math.ceil(max(row["high"] for row in rows)))


def _row(each: Evidence, place: float) -> Row:
    low, high = (each.interval.low, each.interval.high) if each.interval is not None else (math.nan, math.nan)
    limits = [value / each.rule.most_worse for value in (low, each.worse or 0.0, high)]
    inside = [min(max(value, _LOW), _HIGH) for value in limits]
    worse, lower, upper, most = (worsening(each.rule, value) for value in (each.worse, low, high, each.rule.most_worse))
    change = f"{worse} ({lower} to {upper})"
    beyond = " It reaches beyond the drawing." if inside != limits else ""
    return {
        "name": rule_name(each.rule.figure),
        "outcome": each.outcome.value,
        "place": place,
        "low": inside[0],
        "worse": inside[1],
        "high": inside[2],
        "change": change,
        "said": f"{rule_name(each.rule.figure)}: worse by {change}, limit {most}: {each.outcome}.{beyond}",
    }


def rule_name(figure: str) -> str:
    """A figure as it is said: its unit is beside it.

    >>> rule_name("ttft_p99_s"), rule_name("goodput_requests_per_s"), rule_name("failed_fraction")
    ('TTFT p99', 'goodput', 'failed')
    """
    if figure in _NAMES:
        return _NAMES[figure]
    first, _, rest = figure.removesuffix("_s").removesuffix("_fraction").partition("_")
    head = first.upper() if first in ("ttft", "tpot", "itl", "e2e") else first
    return " ".join(filter(None, [head, rest.replace("_", " ")]))


def worsening(rule: Rule, change: float | None) -> str:
    """How much worse, signed, in the rule's unit; what is better is below zero."""
    if change is None or math.isnan(change):
        return NOT_AVAILABLE
    if math.isinf(change):
        return "beyond any" if change > 0 else "below any"
    if rule.about.unit is Unit.ITEMS:
        return f"{round(change)}"
    return f"{'+' if change > 0 else ''}{in_unit(rule, change)}"


def in_unit(rule: Rule, value: float) -> str:
    """A share of the baseline in percent, a difference of shares of the requests in points."""
    said = format_fraction(value)
    return said.replace(" %", " pt") if rule.about.unit is Unit.POINTS else said


def _tick(tick: float) -> str:
    return {0.0: "0", 1.0: "limit"}.get(tick, format_number(tick, 1))


def _words(found: Decision, judged: list[Evidence]) -> str:
    kept = sum(each.outcome is Outcome.KEPT for each in judged)
    return (
        f"How much worse the canary is, in limits of each rule: of {len(judged)} rules with an interval {kept} lie within their limit. "
        f"Verdict: {found.verdict}."
    )
