"""What does a lab's result say, before it is printed or drawn? One form for all six.

In:   a lab's result, by the module that reads it (lab_machine, lab_cache, lab_quantise, lab_speculate, lab_batch, lab_grammar)
Out:  LabPage; the same as text, as HTML, and as the figures of a page in docs
Leaves out: what each lab says
Read next by: cli, notebook.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inference_bench.labs.checks import Check, missed
from inference_bench.labs.head import LabHead
from inference_bench.report import html_pieces as pieces
from inference_bench.report.html_pieces import Draw, Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.load_page_pieces import folded
from inference_bench.report.report_html import (
    Head,
    Part,
    Provenance,
    all_tables,
    assumptions_part,
    charts_part,
    reading_part,
    repeat_part,
    report_page,
    sentence,
)
from inference_bench.report.table import Column, Table
from inference_bench.report.text import clean, table_text, wrap
from inference_bench.units import format_bytes, format_count, format_number, format_seconds


@dataclass(frozen=True, slots=True)
class LabPage:
    """Everything that is said of one result.

    Where:  reading begins with the answer; the first of drawings is the chart a person gets who asks for one; tables are printed,
            details stand folded on the page alone
    """

    head: LabHead
    checks: tuple[Check, ...]
    figures: tuple[KeyFigure, ...]
    reading: tuple[str, ...]
    tables: tuple[Table, ...]
    drawings: tuple[Drawing, ...]
    details: tuple[Table, ...] = ()


def lab_text(page: LabPage) -> str:
    """The whole for a terminal."""
    blocks = [wrap(clean(_place(page.head))), *(wrap(sentence(clean(line))) for line in page.reading)]
    blocks += [
        f"{table.title}\n{table_text(table)}" for table in (*page.tables, checks_table(page.checks)) if table.rows
    ]
    blocks += ["\n".join(wrap(f"note: {clean(line)}") for line in _notes(page.head))]
    return "\n\n".join(filter(None, blocks))


def lab_html(page: LabPage, made: Provenance, draw: Draw | None) -> str:
    """The whole page; without `draw` it has every table and says why there are no charts."""
    odd = [(f"{check.name}: {check.found}, allowed {check.allowed}") for check in missed(page.checks)]
    details = "".join(
        folded(table.title, pieces.table(table, has_heading=False)) for table in page.details if table.rows
    )
    parts = (
        reading_part(sentence(line) for line in page.reading),
        charts_part(page.drawings, draw),
        Part("figures", "Figures", "Figure by figure", all_tables(page.tables) + details),
        Part(
            "checks",
            "Checks",
            "What would have shown it wrong",
            pieces.table(checks_table(page.checks), has_heading=False),
        ),
        assumptions_part(page.head.assumptions, page.head.left_out),
        Part("subject", "Subject", "What was measured where", pieces.facts(subject_rows(page.head))),
        repeat_part(made, (page.head.seed,)),
    )
    return report_page(
        Head(page.head.question, _place(page.head)),
        made,
        page.figures,
        (("Checks that did not hold", odd),) if odd else (),
        parts,
    )


def lab_markdown(page: LabPage) -> str:
    """The figures of a docs page: where and when, what they say, every printed table."""
    lines = [f"Measured {page.head.started_at[:10]}: {clean(_place(page.head))}.", ""]
    lines += [f"- {sentence(clean(line))}" for line in page.reading]
    for table in (*page.tables, checks_table(page.checks)):
        if table.rows:
            lines += ["", f"**{table.title}**", "", *_markdown_table(table)]
            notes = " ".join(filter(None, [*(column.note for column in table.columns), table.note]))
            lines += ["", notes] if notes else []
    lines += ["", *(f"- {sentence(clean(line))}" for line in _notes(page.head))]
    return "\n".join(lines) + "\n"


def checks_table(checks: Sequence[Check]) -> Table:
    """Every check, those that did not hold marked."""
    columns = (Column("check", "l"), Column("holds", "l"), Column("found", "l"), Column("allowed", "l"))
    rows = tuple((clean(c.name), "yes" if c.is_met else "NO", clean(c.found), clean(c.allowed)) for c in checks)
    return Table("Checks", columns, rows, marked=frozenset(i for i, check in enumerate(checks) if not check.is_met))


def subject_rows(head: LabHead) -> list[tuple[str, str]]:
    """The model, the machine, and how long it took."""
    subject, rows = head.subject, list[tuple[str, str]]()
    if subject is not None:
        rows += [
            ("model", subject.name),
            ("from", subject.source),
            *([("revision", subject.revision)] if subject.revision else []),
            ("SHA-256", subject.sha256),
            ("parameters", format_count(subject.num_parameters)),
            ("computed in", subject.dtype),
        ]
    return [
        *rows,
        ("machine", head.machine),
        ("threads", format_count(head.num_threads)),
        ("load before", format_number(head.load_average_1min)),
        ("started", head.started_at),
        ("took", format_seconds(head.elapsed_s)),
        ("memory at most", format_bytes(head.peak_memory_bytes)),
        *((f"version of {name}", version) for name, version in head.software.items()),
    ]


def _place(head: LabHead) -> str:
    subject = "" if head.subject is None else f"{head.subject.name} in {head.subject.dtype} on "
    threads = f"{head.num_threads} thread{'' if head.num_threads == 1 else 's'}"
    return f"{subject}{head.machine}, {threads}{', quick' if head.is_quick else ''}"


def _notes(head: LabHead) -> Iterator[str]:
    yield from head.assumptions
    yield from (f"left out: {line}" for line in head.left_out)
    yield f"took {format_seconds(head.elapsed_s)}, at most {format_bytes(head.peak_memory_bytes)} of memory, seed {head.seed}"


def _markdown_table(table: Table) -> Iterator[str]:
    def cell(text: str) -> str:
        return clean(text).replace("|", "\\|")

    yield f"| {' | '.join(cell(_title(column)) for column in table.columns)} |"
    yield f"|{'|'.join('---:' if column.align == 'r' else '---' for column in table.columns)}|"
    for row in table.rows:
        yield f"| {' | '.join(map(cell, row))} |"


def _title(column: Column) -> str:
    return f"{column.title} ({column.origin})" if column.origin else column.title
