"""The answers to `plan` as text for a terminal; plan_json holds the same for programs, plan_html for a browser.

In:   Plans
Out:  text of at most 100 columns: each figure with its unit and origin
Leaves out: what is said (plan_tables, plan_cost_report, plan_interval_report)
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Sequence

from inference_bench.predict.plan import Plan
from inference_bench.report import plan_tables as tables
from inference_bench.report.plan_cost_report import cost_table
from inference_bench.report.plan_interval_report import interval_table, serving_table
from inference_bench.report.text import table_text, wrap


def plan_text(answer: Plan) -> str:
    """The verdict, then memory, latency, load, replicas, cost, how far they may be off, checks, speculation, assumptions."""
    shown = (
        tables.objectives_table(answer),
        tables.memory_table(answer),
        tables.latency_table(answer),
        tables.loads_table(answer),
        tables.replicas_table(answer),
        cost_table(answer),
        interval_table(answer),
        tables.checks_table(answer),
        serving_table(answer),
        tables.speculation_table(answer),
    )
    sections = [_verdict(answer), *map(table_text, shown), _listed("assumptions", answer.assumptions)]
    return "\n\n".join(section for section in sections if section)


def _verdict(answer: Plan) -> str:
    said, fixes = tables.verdict(answer), tables.fixes_words(answer)
    lines = [wrap(said), *([fixes] if fixes else []), *(wrap(fix, indent="  - ") for fix in answer.verdict.fixes)]
    return "\n".join(lines)


def comparison_text(answers: Sequence[Plan]) -> str:
    """Several machines beside each other on one scenario: a row a figure."""
    first, shared = answers[0], tables.shared_assumptions(answers)
    lines = [wrap(f"{first.model}, {tables.traffic_words(first)}"), table_text(tables.compared_table(answers))]
    lines += [_no(answer) for answer in answers if not answer.verdict.answer]
    lines.append(_listed("assumptions of all", shared))
    for answer in answers:
        own = tables.own_assumptions(answer, shared)
        lines += [_listed(wrap(f"and of {tables.where(answer)}"), own)] if own else []
    return "\n\n".join(lines)


def _listed(title: str, said: Sequence[str]) -> str:
    return "\n".join([title, *(wrap(line, indent="  - ") for line in said)])


def _no(answer: Plan) -> str:
    fixes = [wrap(fix, indent="  - ") for fix in answer.verdict.fixes]
    return "\n".join([wrap(f"{tables.where(answer)}: no, {answer.verdict.reason}"), *fixes])
