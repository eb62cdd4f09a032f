"""A canary's verdict, as text of at most 100 columns, as JSON with stable keys, and as one page: the answer first.

In:   Decision; for the page Provenance, and what draws a chart specification as SVG
Out:  a text; a dict ready for JSON; HTML text
Leaves out: every number's arithmetic (compare_runs) and drawing (render)
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from inference_bench.charts.canary import canary_chart, in_unit, rule_name, worsening
from inference_bench.compare_runs.decide import Decision, Verdict
from inference_bench.compare_runs.differences import finite
from inference_bench.compare_runs.evidence import POWER, Evidence, Outcome, shown_evidence
from inference_bench.compare_runs.resampling import RESAMPLES
from inference_bench.compare_runs.rules import Rule, Unit
from inference_bench.compare_runs.side import Side
from inference_bench.operate.rollout.suite_outcome import SuiteOutcome
from inference_bench.origin import Origin
from inference_bench.report import html_pieces as pieces
from inference_bench.report.compare_runs_report import facts_table
from inference_bench.report.html_pieces import Draw, Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.report_html import (
    Head,
    Part,
    Provenance,
    assumptions_part,
    charts_part,
    reading_part,
    repeat_part,
    report_page,
    sentence,
)
from inference_bench.report.table import Column, Table
from inference_bench.report.text import clean, table_text, wrap
from inference_bench.stats import Interval
from inference_bench.units import NOT_AVAILABLE, format_count, format_fraction, format_number, format_seconds

SCHEMA: Final = "inference-bench/compare-decision/1"
_MOST_PRACTICABLE: Final = 1_000_000  # requests of a run
_POINTS: Final = "pt: percentage points of the requests"
_FOREST: Final = (
    "Each rule against its limit",
    "A point is how much worse the canary is, its line the interval; 0 is no change, 1 the most that the rule allows. A rule is kept "
    "where the whole line lies left of 1, and broken where all of it lies beyond; what reaches an edge goes on behind it.",
)


def decision_text(found: Decision) -> str:
    """The verdict, why, and the evidence."""
    blocks = [
        f"verdict   {found.verdict.upper()}\nbaseline  {_runs(found.baselines)}\ncanary    {_runs(found.canaries)}",
        *(wrap(sentence(reason)) for reason in _said(found)),
        f"Rules ({clean(found.rules.name)})\n{table_text(rules_table(found))}",
        table_text(facts_table(found.changed, "baseline", "canary")),
        *(wrap(f"note: {note}") for note in (*found.notes, *_rules_said(found))),
    ]
    return "\n\n".join(filter(None, blocks))


def _runs(sides: Sequence[Side]) -> str:
    return "\n          ".join(clean(side.name) for side in sides)


def _said(found: Decision) -> Iterator[str]:
    yield from found.reasons
    beyond = [each for each in found.evidence if each.outcome is Outcome.UNTOLD and each.needed is None]
    if found.needed is not None and found.needed > _MOST_PRACTICABLE:
        yield (
            "no practicable number of requests would tell, if the differences stay as they are (about "
            f"{format_count(found.needed)} in each run): the canary is very near to a limit"
        )
    elif found.needed is not None:
        have = found.pooled.baseline.num_each
        yield (
            f"about {format_count(found.needed)} requests in each run would tell, with a chance of {format_fraction(POWER, 2)}, if the "
            f"differences stay as they are: {format_count(found.needed - have)} more than now"
        )
    if found.verdict is Verdict.HOLD and beyond and not found.is_copy:
        names = ", ".join(rule_name(each.rule.figure) for each in beyond)
        yield f"no number of requests can be named that would tell {names}; the table says why"


def _rules_said(found: Decision) -> Iterator[str]:
    rules, each = found.rules, format_fraction(found.rules.each_confidence)
    yield (
        f"kept: the whole {each} interval of the worsening lies within the limit. Promoting takes every rule, so many rules make no wrong "
        "promotion likelier"
    )
    yield (
        f"broken: all of the {format_fraction(rules.family_confidence, 4)} interval lies beyond the limit. One broken rule rolls back, so "
        f"each of the {len(rules.rules)} rules of the set gets its part of the error"
        f"{f', and of it each of {rules.looks} looks' if rules.looks > 1 else ''}"
    )
    yield (
        f"intervals: {format_count(RESAMPLES)} resamplings of the same blocks of neighbouring requests in every run, and of the runs; of "
        "shares the wider of that and what the counts alone allow. A failed request is longer than any time"
    )
    yield f"goodput counts requests with {found.objective.rule}"


def rules_table(found: Decision) -> Table:
    """Every rule with its evidence."""
    columns = (
        Column("rule", "l"),
        Column("limit"),
        Column("baseline"),
        Column("canary"),
        Column("worse by"),
        Column("interval"),
        Column("says", "l"),
        Column("samples"),
    )
    rows = tuple(_cells(each) for each in found.evidence)
    marked = frozenset(index for index, each in enumerate(found.evidence) if each.outcome is Outcome.BROKEN)
    return Table("Rules", columns, rows, f"{'. '.join(map(sentence, _why(found)))}. {_POINTS}", marked)


def _why(found: Decision) -> Iterator[str]:
    """What there is to know of a rule, those of which it is the same together."""
    named: dict[str, list[str]] = {}
    for each in found.evidence:
        if each.said:
            named.setdefault(each.said, []).append(rule_name(each.rule.figure))
    return (f"{', '.join(names)}: {said}" for said, names in named.items())


def _cells(each: Evidence) -> tuple[str, ...]:
    interval = NOT_AVAILABLE
    if each.interval is not None:
        interval = f"{worsening(each.rule, each.interval.low)} to {worsening(each.rule, each.interval.high)}"
    return (
        rule_name(each.rule.figure),
        _limit(each.rule),
        _value(each.rule, each.baseline),
        _value(each.rule, each.canary),
        worsening(each.rule, each.worse),
        interval,
        each.outcome.value,
        " / ".join(dict.fromkeys(map(str, each.counts))),  # one number where both sides have as many
    )


def _limit(rule: Rule) -> str:
    if rule.about.unit is Unit.ITEMS:
        return format_count(round(rule.most_worse))
    return in_unit(rule, rule.most_worse)


def _value(rule: Rule, value: float | None) -> str:
    if rule.figure.endswith("_per_s"):
        return NOT_AVAILABLE if value is None else f"{format_number(value)}/s"
    if rule.about.unit is Unit.ITEMS:
        return NOT_AVAILABLE if value is None else f"{round(value)} right"
    return format_fraction(value) if rule.about.unit is Unit.POINTS else format_seconds(value)


# ── JSON ───────────────────────────────────────────────────────────────────────────────────────────


def decision_json(found: Decision) -> dict[str, Any]:
    """The stable keys of a verdict; an end of an interval that is longer than any time is null."""
    return {
        "schema": SCHEMA,
        "verdict": found.verdict.value,
        "reasons": list(found.reasons),
        "needed_requests": found.needed,
        "part": found.part,
        "baseline": [_side_json(side) for side in found.baselines],
        "canary": [_side_json(side) for side in found.canaries],
        "num_requests": {
            "baseline": len(found.pooled.baseline.records),
            "canary": len(found.pooled.canary.records),
            "left_out": found.pooled.num_left_out,
        },
        "rules": [_evidence_json(each) for each in found.evidence],
        "rule_set": {
            "name": found.rules.name,
            "least_requests": found.rules.least_requests,
            "confidence": found.rules.confidence,
            "looks": found.rules.looks,
            "each_confidence": found.rules.each_confidence,
            "family_confidence": found.rules.family_confidence,
        },
        "goodput_rule": found.objective.rule,
        "objective": asdict(found.objective),
        "changed": {name: {"baseline": mine, "canary": theirs} for name, mine, theirs in found.changed},
        "notes": list(found.notes),
        "origin": Origin.MEASURED,
    }


def _side_json(side: Side) -> dict[str, Any]:
    return {
        "run_dir": str(side.path),
        "finished": side.is_whole,
        "manifest_sha256": side.manifest_sha256,
        "facts": dict(side.facts),
        "suite": None if side.suite is None else _suite_json(side.suite),
    }


def _suite_json(suite: SuiteOutcome) -> dict[str, Any]:
    return {
        "suite": suite.name,
        "suite_sha256": suite.digest,
        "num_items": len(suite.answers),
        "num_right": suite.num_right,
        "num_failed": suite.num_failed,
    }


def _evidence_json(each: Evidence) -> dict[str, Any]:
    return {
        "figure": each.rule.figure,
        "most_worse": each.rule.most_worse,
        "unit": each.rule.about.unit.value,
        "outcome": each.outcome.value,
        "baseline": each.baseline,
        "canary": each.canary,
        "worse": finite(each.worse),
        "interval": _interval_json(each.interval),
        "interval_of_all_rules": _interval_json(each.all_rules),
        "counts": list(each.counts),
        "needed_requests": each.needed,
        "why": each.said or None,
    }


def _interval_json(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {"low": finite(interval.low), "high": finite(interval.high), "confidence": interval.confidence}


# ── page ───────────────────────────────────────────────────────────────────────────────────────────


def decision_html(found: Decision, made: Provenance, draw: Draw | None) -> str:
    """The whole page."""
    drawings = [Drawing(*_FOREST, partial(canary_chart, found))]
    parts = (
        reading_part(map(sentence, _said(found))),
        charts_part(drawings if canary_chart(found) is not None else [], draw),
        Part(
            "rules",
            "Rules",
            "Rule by rule",
            pieces.origins((Origin.MEASURED,)) + pieces.table(rules_table(found), has_heading=False),
        ),
        Part(
            "differs",
            "What differs",
            "What differs",
            pieces.table(facts_table(found.changed, "baseline", "canary"), has_heading=False),
        ),
        assumptions_part(tuple(map(sentence, _rules_said(found))), tuple(map(sentence, found.notes))),
        repeat_part(made),
    )
    place = f"{_names(found.canaries)} against {_names(found.baselines)}"
    head = Head(f"May the canary take over? {found.verdict.value.capitalize()}.", place)
    return report_page(head, made, tuple(_key_figures(found)), (), parts)


def _names(sides: Sequence[Side]) -> str:
    more = f" and {len(sides) - 1} more" if len(sides) > 1 else ""
    return f"{clean(sides[0].name)}{more}"


def _key_figures(found: Decision) -> Iterator[KeyFigure]:
    order = {Outcome.BROKEN: 0, Outcome.UNTOLD: 1, Outcome.KEPT: 2}
    for each in sorted(shown_evidence(found.evidence), key=lambda each: order[each.outcome])[:5]:
        cells = _cells(each)
        yield KeyFigure(
            cells[0],
            cells[4],
            "",
            Origin.MEASURED,
            f"{cells[6]}, limit {cells[1]}",
            f"interval {cells[5]}",
            is_finding=each.outcome is Outcome.BROKEN,
        )
