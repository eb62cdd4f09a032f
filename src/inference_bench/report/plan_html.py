"""The answers to `plan` as one page that needs nothing else: no script, no font, no picture from anywhere.

In:   Plans, Provenance, and what draws a chart specification as SVG
Out:  HTML text
Leaves out: what is said (plan_figures, plan_tables, plan_cost_report, plan_interval_report), drawing (render)
Read next by: cli, bridge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from inference_bench.charts import WIDE_PX
from inference_bench.charts.break_even import break_even_chart
from inference_bench.origin import Origin
from inference_bench.predict.plan import Plan
from inference_bench.report import html_pieces as pieces
from inference_bench.report import plan_tables as tables
from inference_bench.report.html_pieces import Draw, Drawing
from inference_bench.report.plan_cost_report import cost_table
from inference_bench.report.plan_figures import (
    asked_rows,
    comparison_figures,
    comparison_odd,
    plan_figures,
    plan_odd,
)
from inference_bench.report.plan_interval_report import interval_table, serving_table
from inference_bench.report.report_html import (
    Body,
    Head,
    Part,
    Provenance,
    all_tables,
    assumptions_part,
    charts_part,
    reading_part,
    repeat_part,
    report_page,
)
from inference_bench.report.table import Table

# of every figure in its tables
_ORIGINS: Final = (Origin.PREDICTED, Origin.BOUND, Origin.COUNTED, Origin.GIVEN, Origin.PUBLISHED)


def plan_html(answer: Plan, made: Provenance, draw: Draw | None) -> str:
    """The whole page of one machine; without `draw` it has every table and says why there are no charts."""
    body = plan_body(answer)
    head = Head(_QUESTION, f"{answer.model} on {tables.where(answer)}, {tables.traffic_words(answer)}")
    parts = (reading_part((body.said,)), charts_part(plan_drawings([answer]), draw), *body.parts, repeat_part(made))
    return report_page(head, made, body.figures, body.odd, parts)


def plan_body(answer: Plan, notes: Sequence[str] = ()) -> Body:
    """One machine: from its verdict to what it rests on; notes are what else was assumed."""
    doubts = (interval_table(answer), tables.checks_table(answer), serving_table(answer))
    parts = (
        _part("promises", "Promises", "What was promised", tables.objectives_table(answer)),
        Part(
            "memory",
            "Memory",
            "What fits",
            pieces.origins(_ORIGINS) + pieces.table(tables.memory_table(answer), has_heading=False),
        ),
        _part("latency", "Latency", "One request alone", tables.latency_table(answer)),
        _part("load", "Load", "A replica that is never idle", tables.loads_table(answer)),
        _part("replicas", "Replicas", "What carries the daily volume", tables.replicas_table(answer)),
        _part("cost", "Cost", "What it costs", cost_table(answer)),
        Part("sure", "How sure", "How far off it may be", all_tables(doubts)),
        _part("speculation", "Speculation", "When drafts gain", tables.speculation_table(answer)),
        Part("asked", "Asked", "What was asked", pieces.facts(asked_rows([answer]))),
        assumptions_part((*notes, *answer.assumptions)),
    )
    return Body(tables.verdict(answer), tuple(plan_figures(answer)), tuple(plan_odd(answer)), parts)


BREAK_EVEN: Final = (
    "From which volume it pays",
    "What a day costs over the requests of a day. Machines are paid for by the hour, so they rise by a step for each replica "
    "that the peak needs; a hosted model is paid for by the token. A ring is where both cost the same first; the upright line is "
    "the volume that was asked for. A replica carries no more than its peak and its target load allow: where not even a full one "
    "costs less than its requests do at the hosted price, more of them do not either.",
)
_QUESTION: Final = "How many users, on how many machines, at what cost?"


def _part(anchor: str, link: str, title: str, shown: Table | None) -> Part:
    return Part(anchor, link, title, pieces.table(shown, has_heading=False))


def comparison_html(answers: Sequence[Plan], made: Provenance, draw: Draw | None) -> str:
    """The whole page of several machines on one scenario."""
    first, body = answers[0], comparison_body(answers)
    head = Head("Which machine carries it, and at what cost?", f"{first.model}, {tables.traffic_words(first)}")
    parts = (charts_part(plan_drawings(answers), draw), *body.parts, repeat_part(made))
    return report_page(head, made, body.figures, body.odd, parts)


def comparison_body(answers: Sequence[Plan], notes: Sequence[str] = ()) -> Body:
    """Several machines side by side; notes are what else was assumed."""
    first = answers[0]
    parts = (
        _part("machines", "Machines", "Side by side", tables.compared_table(answers)),
        Part("asked", "Asked", "What was asked", pieces.facts(asked_rows(answers))),
        Part("assumptions", "Assumptions", "Assumptions", "".join(_assumptions(answers, notes))),
    )
    said = f"{first.model}, {tables.traffic_words(first)}: {len(answers)} machines side by side."
    return Body(said, tuple(comparison_figures(answers)), tuple(comparison_odd(answers)), parts)


def plan_drawings(answers: Sequence[Plan]) -> list[Drawing]:
    """A day's cost over its volume, where there is a price."""
    make = partial(break_even_chart, answers)
    return [] if make(WIDE_PX) is None else [Drawing(*BREAK_EVEN, make)]


def _assumptions(answers: Sequence[Plan], notes: Sequence[str]) -> Iterator[str]:
    """What all of them rest on, then what each alone does."""
    shared = tables.shared_assumptions(answers)
    yield pieces.bullets((*notes, *shared))
    for answer in answers:
        own = tables.own_assumptions(answer, shared)
        if own:
            yield f"<h3>and of {pieces.say(tables.where(answer))}</h3>\n{pieces.bullets(own)}"
