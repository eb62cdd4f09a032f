"""A plan on the page: its figures, what is odd, its tables; or several machines side by side.

In:   Plans, and where drawings go
Out:  HTML text
Leaves out: words and tables that the reports share (plan_figures, plan_tables, plan_cost_report); drawing
Read next by: plan_view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from inference_bench.predict.plan import Plan
from inference_bench.report import html_pieces as pieces
from inference_bench.report import plan_tables as tables
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.plan_cost_report import cost_table, format_usd
from inference_bench.report.plan_figures import asked_rows, comparison_figures, comparison_odd, plan_figures, plan_odd
from inference_bench.report.plan_interval_report import interval_table, serving_table
from inference_bench.report.table import Table
from inference_bench.units import format_count, format_number


def plan_html(answers: Sequence[Plan], *, drawings: str = "", notes: Sequence[str] = ()) -> str:
    """The whole answer; drawings is HTML that stands below the figures, and notes are what else was assumed."""
    first = answers[0]
    if len(answers) == 1:
        shown = _head(tables.verdict(first), (*plan_figures(first), *_per_day(first)), plan_odd(first))
        return "\n".join([*shown, drawings, *_tables(first), _assumed((*notes, *first.assumptions))])
    said = f"{first.model}, {tables.traffic_words(first)}: {len(answers)} machines side by side"
    return "\n".join(
        [
            *_head(said, comparison_figures(answers), comparison_odd(answers)),
            drawings,
            _section("machines", "Side by side", tables.compared_table(answers)),
            pieces.section("asked", "What was asked", pieces.facts(asked_rows(answers))),
            pieces.section("assumptions", "Assumptions", *_all_assumed(answers, notes)),
        ]
    )


def plan_status(answers: Sequence[Plan]) -> str:
    """The answer in so few words that they can be read out at every change."""
    return "; ".join(
        f"{tables.where(each)}: {'' if each.verdict.answer else 'no, '}{each.verdict.reason}" for each in answers
    )


def plan_rows(answers: Sequence[Plan]) -> dict[str, Table]:
    """The tables that are worth taking along."""
    if len(answers) > 1:
        return {"machines": tables.compared_table(answers)}
    (answer,) = answers
    found = {
        "memory": tables.memory_table(answer),
        "latency": tables.latency_table(answer),
        "load": tables.loads_table(answer),
        "replicas": tables.replicas_table(answer),
        "cost": cost_table(answer),
    }
    return {name: table for name, table in found.items() if table is not None}


def _per_day(answer: Plan) -> Iterator[KeyFigure]:
    always_on = None if answer.cost is None else answer.cost.always_on
    if always_on is not None:
        usd, count = format_number(always_on.usd_per_day), format_count(always_on.replicas)
        a_request = format_usd(always_on.usd_per_request, "USD/request")
        yield KeyFigure("a day", usd, "USD", answer.times_origin, f"{count} replica(s), always on", a_request)


def _head(said: str, figures: Iterable[KeyFigure], odd: Iterable[tuple[str, Sequence[str]]]) -> Iterator[str]:
    yield f'<div class="verdict"><p class="first">{pieces.say(said)}</p></div>'
    yield pieces.key_figures(figures)
    for title, lines in odd:
        yield pieces.findings(lines, title)


def _tables(answer: Plan) -> Iterator[str]:
    yield _section("promises", "What was promised", tables.objectives_table(answer))
    yield _section("memory", "What fits", tables.memory_table(answer))
    yield _section("latency", "One request alone", tables.latency_table(answer))
    yield _section("load", "A replica that is never idle", tables.loads_table(answer))
    yield _section("replicas", "What carries the daily volume", tables.replicas_table(answer))
    yield _section("cost", "What it costs", cost_table(answer))
    doubts = (interval_table(answer), tables.checks_table(answer), serving_table(answer))
    yield pieces.section("sure", "How far off it may be", *map(pieces.table, doubts)) if any(doubts) else ""


def _section(anchor: str, title: str, shown: Table | None) -> str:
    return "" if shown is None else pieces.section(anchor, title, pieces.table(shown, has_heading=False))


def _assumed(lines: Sequence[str]) -> str:
    return pieces.section("assumptions", "Assumptions", pieces.bullets(lines))


def _all_assumed(answers: Sequence[Plan], notes: Sequence[str]) -> Iterator[str]:
    """What all of them rest on, then what each alone does."""
    shared = tables.shared_assumptions(answers)
    yield pieces.bullets((*notes, *shared))
    for answer in answers:
        own = tables.own_assumptions(answer, shared)
        if own:
            yield f"<h3>and of {pieces.say(tables.where(answer))}</h3>\n{pieces.bullets(own)}"
