"""A server's contract as text for a terminal, as JSON with stable keys, and as a page.

In:   Contract, Needs
Out:  text of at most 100 columns; a dict ready for JSON; HTML
Leaves out: judging; every row was judged before
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from inference_bench.operate.contract.catalog import GROUPS
from inference_bench.operate.contract.divergence import MARGIN_NATS, MOST_SHIFT_NATS, NOT_ROUNDING_NATS
from inference_bench.operate.contract.rows import Contract, Need, Row, Verdict
from inference_bench.origin import Origin
from inference_bench.report import html_pieces as pieces
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.report_html import Head, Part, Provenance, assumptions_part, repeat_part, report_page
from inference_bench.report.table import Column, Table
from inference_bench.report.text import MAX_COLUMNS, clean, pad, wrap
from inference_bench.units import format_count, format_seconds

_VERDICT_COLUMNS: Final = 9
_ASKED_COLUMNS: Final = 46
_SEEN_COLUMNS: Final = MAX_COLUMNS - 2 - _VERDICT_COLUMNS - _ASKED_COLUMNS
_ANSWERS: Final = {
    Verdict.YES: "as the question says",
    Verdict.PARTLY: "with a catch",
    Verdict.NO: "not as the question says",
    Verdict.UNKNOWN: "nothing to tell by",
}
_COLUMNS: Final = (
    Column("asked", "l", is_wrapped=True),
    Column("answer", "l"),
    Column("seen", "l", is_wrapped=True),
    Column("what to do", "l", is_wrapped=True),
    Column("id", "l"),  # last: a narrow screen shows what stands before it
)
_ASSUMPTIONS: Final = (
    "Each answer is that of one server, at one moment, for one model; another model's template or another start may change it.",
    "Outputs are short. A field is called honoured where the output shows it, not where it is taken without an error.",
    "A keyword of a schema is called enforced where the model breaks it without the keyword and keeps it with it.",
    f"Greedy answers part by a near tie where the token that won was likelier by no more than {MARGIN_NATS} nats plus twice the largest "
    f"change of log-probabilities seen before (which counts up to {MOST_SHIFT_NATS}); a change beyond {NOT_ROUNDING_NATS} is called a bug.",
)


def check_json(found: Contract, needs: Sequence[Need]) -> dict[str, Any]:
    """The stable keys of `check --json`."""
    return {
        "schema": "inference-bench/check/1",
        "target": found.base_url,
        "model": found.model,
        "route": found.route,
        "started_at": found.started_at,
        "elapsed_s": found.elapsed_s,
        "num_requests": found.num_requests,
        "is_quick": found.is_quick,
        "groups": list(found.groups),
        "counts": {verdict.value: count_of(found, verdict) for verdict in Verdict},
        "rows": [_row_json(row) for row in found.rows],
        "needs": [{"name": need.name, "is_met": need.is_met, "why": clean(need.why) or None} for need in needs],
        "to_migrate": [{"action": action, "ids": ids} for action, ids in to_migrate(found).items()],
        "trouble": None if found.lost is None else clean(found.lost),
        "is_interrupted": found.is_interrupted,
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "id": row.id,
        "group": row.group,
        "asked": row.asked,
        "verdict": row.verdict.value,
        "seen": clean(row.seen),
        "action": row.action or None,
        "figures": dict(row.figures),
    }


def count_of(found: Contract, verdict: Verdict) -> int:
    """How many questions have this answer."""
    return sum(row.verdict is verdict for row in found.rows)


def to_migrate(found: Contract) -> dict[str, list[str]]:
    """Each thing to do once, with the rows that ask for it."""
    steps: dict[str, list[str]] = {}
    for row in found.rows:
        if row.action:
            steps.setdefault(row.action, []).append(row.id)
    return steps


def _steps(found: Contract) -> list[str]:
    return [f"{', '.join(ids)}: {action}" for action, ids in to_migrate(found).items()]


def check_text(found: Contract, needs: Sequence[Need]) -> str:
    """Every group as a table, then what to do, what was needed, and what went wrong."""
    asked = f"{format_count(found.num_requests)} requests in {format_seconds(found.elapsed_s)}, most by {found.route}"
    lines = [wrap(f"{found.base_url}, model {clean(found.model or 'not named')}: {asked}.")]
    for group in found.groups:
        rows = [row for row in found.rows if row.group == group]
        lines += ["", GROUPS[group], *(line for row in rows for line in _row_lines(row))]
    counts = ", ".join(f"{count_of(found, verdict)} {verdict}" for verdict in Verdict)
    lines += ["", f"{len(found.rows)} questions: {counts}."]
    if steps := _steps(found):
        lines += ["", "To migrate", *(wrap(step, indent="- ") for step in steps)]
    if needs:
        lines += ["", "Needed", *(wrap(_need_words(need), indent="- ") for need in needs)]
    if odd := _odd(found):
        lines += ["", *map(wrap, odd)]
    return "\n".join(lines)


def _row_lines(row: Row) -> Iterator[str]:
    seen = wrap(clean(row.seen), max_columns=_SEEN_COLUMNS).splitlines()
    head = pad(row.verdict.value, _VERDICT_COLUMNS) + pad(row.asked, _ASKED_COLUMNS)
    for index, line in enumerate(seen):
        yield f"  {head if index == 0 else pad('', _VERDICT_COLUMNS + _ASKED_COLUMNS)}{line}".rstrip()


def _need_words(need: Need) -> str:
    return f"{need.name}: {'met' if need.is_met else f'NOT MET ({clean(need.why)})'}"


def _odd(found: Contract) -> list[str]:
    lines = [] if found.lost is None else [f"The check is not whole: {clean(found.lost)}."]
    return [*lines, *(["The check is not whole: it was interrupted."] if found.is_interrupted else [])]


def check_html(found: Contract, needs: Sequence[Need], made: Provenance) -> str:
    """The whole page."""
    head = Head(
        "What does this server do with a request?", f"{clean(found.model or 'no model named')} at {found.base_url}"
    )
    figures = [
        KeyFigure(verdict.value, str(count_of(found, verdict)), "", Origin.MEASURED, "", _ANSWERS[verdict])
        for verdict in Verdict
    ]
    unmet = [_need_words(need) for need in needs if not need.is_met]
    steps = _steps(found)
    parts = [
        Part("migrate", "To migrate", "What to do when you move to it", pieces.bullets(steps) if steps else ""),
        *(
            Part(group, GROUPS[group], GROUPS[group], pieces.table(_table(found, group), has_heading=False))
            for group in found.groups
        ),
        assumptions_part(_ASSUMPTIONS),
        repeat_part(made),
    ]
    return report_page(head, made, figures, [("Needed and not met", unmet), ("Trouble", _odd(found))], parts)


def _table(found: Contract, group: str) -> Table:
    rows = [row for row in found.rows if row.group == group]
    cells = tuple((row.asked, row.verdict.value, row.seen, row.action, row.id) for row in rows)
    marked = frozenset(index for index, row in enumerate(rows) if row.verdict is Verdict.NO and row.action)
    return Table(GROUPS[group], _COLUMNS, cells, marked=marked)
