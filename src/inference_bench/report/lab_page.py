"""What does a lab's result say, before it is printed or drawn? One form for all six.

In:   a lab's result, by the module that reads it (lab_machine, lab_cache, lab_quantise, lab_speculate, lab_batch, lab_grammar)
Out:  LabPage; the same as text, as HTML, and as the figures of a page in docs
Leaves out: what each lab says
Read next by: cli, notebook.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from inference_bench.charts import Spec
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
    page = _cleaned(page)
    blocks = [wrap(_place(page.head)), *map(wrap, _reading(page))]
    blocks += [f"{wrap(table.title)}\n{table_text(table)}" for table in page.tables if table.rows]
    blocks += ["\n".join(["Checks", *_check_lines(page.checks)]) if page.checks else ""]
    blocks += ["\n".join(wrap(f"note: {line}") for line in _notes(page.head))]
    return "\n\n".join(filter(None, blocks))


def lab_html(page: LabPage, made: Provenance, draw: Draw | None) -> str:
    """The whole page; without `draw` it has every table and says why there are no charts."""
    page = _cleaned(page)
    odd = [(f"{check.name}: {check.found}, allowed {check.allowed}") for check in missed(page.checks)]
    details = "".join(
        folded(table.title, pieces.table(table, has_heading=False)) for table in page.details if table.rows
    )
    parts = (
        reading_part(_reading(page)),
        charts_part(page.drawings, draw),
        Part("figures", "Figures", "Figure by figure", all_tables(page.tables) + details),
        Part(
            "checks",
            "Checks",
            "What would have shown it wrong",
            pieces.table(checks_table(page.checks), has_heading=False),
        ),
        Part("left-out", "Left out", "What was left out", _bullets(page.head.left_out)),
        Part("assumptions", "Assumptions", "Assumptions", _bullets(page.head.assumptions)),
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


def first_chart(page: LabPage, width_px: int) -> Spec | None:
    """The chart a person gets who asks for one: the first that has data."""
    return next((spec for drawing in page.drawings if (spec := drawing.make(width_px)) is not None), None)


def repeated(head: LabHead) -> Provenance:
    """How a result came about that no command line made, told from the result alone."""
    words = ["inference-bench", "lab", head.lab]
    if head.subject is not None and head.subject.revision is not None:
        words += ["--model", head.subject.name, "--revision", head.subject.revision]
    words += ["--quick"] if head.is_quick else []
    words += ["--threads", str(head.num_threads), "--seed", str(head.seed)]
    made_at = head.started_at.replace("T", " ").replace("+00:00", " UTC")
    return Provenance("lab", shlex.join(words), made_at, head.software)


def lab_markdown(page: LabPage) -> str:
    """The figures of a docs page: where and when, what they say, every printed table."""
    page = _cleaned(page)
    lines = [f"Measured {page.head.started_at[:10]}: {_as_text(_place(page.head))}.", ""]
    lines += [f"- {_as_text(line)}" for line in _reading(page)]
    for table in (*page.tables, checks_table(page.checks)):
        if table.rows:
            lines += ["", f"**{_as_text(table.title)}**", "", *_markdown_table(table)]
            notes = " ".join(filter(None, [*(column.note for column in table.columns), table.note]))
            lines += ["", _as_text(notes)] if notes else []
    lines += ["", *(f"- {_as_text(sentence(line))}" for line in _notes(page.head))]
    return "\n".join(lines) + "\n"


def _cleaned(page: LabPage) -> LabPage:
    """The page with every text as it may be shown: printable, and without the name of whoever ran this."""
    cleaned: LabPage = _each_text(page)
    return cleaned


def _each_text(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, tuple):
        return tuple(map(_each_text, value))
    if isinstance(value, Mapping):
        return {_each_text(key): _each_text(each) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: _each_text(getattr(value, each.name)) for each in fields(value)})
    return value


def checks_table(checks: Sequence[Check]) -> Table:
    """Every check, those that did not hold marked."""
    columns = (Column("check", "l"), Column("holds", "l"), Column("found", "l"), Column("allowed", "l"))
    rows = tuple((c.name, "yes" if c.is_met else "NO", c.found, c.allowed) for c in checks)
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


def _reading(page: LabPage) -> Iterator[str]:
    """What the figures say, and whether they may be believed."""
    odd, num_checks = missed(page.checks), len(page.checks)
    said = [*page.reading]
    if odd:
        checks = f"check{'' if num_checks == 1 else 's'}"
        said += [f"{len(odd)} of {num_checks} {checks} did not hold: {'; '.join(check.name for check in odd)}"]
    elif num_checks:
        said += ["its one check held" if num_checks == 1 else f"all {num_checks} checks held"]
    yield from (f"{sentence(line).rstrip('.')}." for line in said if line)


def _check_lines(checks: Sequence[Check]) -> Iterator[str]:
    """Every check for a terminal, whole: its words are what it is worth."""
    for check in checks:
        mark = "held  " if check.is_met else "MISSED"
        yield wrap(f"{check.name}: {check.found}; allowed: {check.allowed}", indent=f"  {mark}  ")


def _bullets(lines: Sequence[str]) -> str:
    return pieces.bullets([sentence(line) for line in lines]) if lines else ""


def _place(head: LabHead) -> str:
    subject = "" if head.subject is None else f"{head.subject.name} in {head.subject.dtype} on "
    threads = f"{head.num_threads} thread{'' if head.num_threads == 1 else 's'}"
    return f"{subject}{head.machine}, {threads}{', quick' if head.is_quick else ''}"


def _notes(head: LabHead) -> Iterator[str]:
    yield from head.assumptions
    yield from (f"left out: {line}" for line in head.left_out)
    yield f"took {format_seconds(head.elapsed_s)}, at most {format_bytes(head.peak_memory_bytes)} of memory, seed {head.seed}"


def _as_text(text: str) -> str:
    """A text inside Markdown, which is nothing but text there: no element, no cell and no line of its own."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _markdown_table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(_as_text(_title(column)) for column in table.columns)} |"
    yield f"|{'|'.join('---:' if column.align == 'r' else '---' for column in table.columns)}|"
    for row in table.rows:
        yield f"| {' | '.join(map(_as_text, row))} |"


def _title(column: Column) -> str:
    return f"{column.title} ({column.origin})" if column.origin else column.title
