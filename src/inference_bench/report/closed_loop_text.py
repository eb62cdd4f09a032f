"""The closed loop for a terminal: the verdict, the fit, loads, capacity and memory in as few lines as they need.

In:   VerifyResult
Out:  blocks of text of at most 100 columns; an empty one where that part was not run
Leaves out: parts of a step, changes, candidates and observations, which the report holds
Read next by: text_result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from inference_bench.calibrate.steps.forms import StepCalibration
from inference_bench.report import closed_loop_tables as tables
from inference_bench.report.closed_loop_answers import Answer
from inference_bench.report.closed_loop_words import form_words, held_out_words
from inference_bench.report.table import Table
from inference_bench.report.text import clean, table, wrap
from inference_bench.units import NOT_AVAILABLE, format_fraction
from inference_bench.verify.closed_loop import CapacityCheck, LoadCheck, MemoryRow

_LOAD_COLUMNS: Final = range(7)
_PARAMETER_COLUMNS: Final = range(4)
_MEMORY_COLUMNS: Final = (0, 1, 2, 3, 4, 5)
_MEMORY_ROWS: Final = 6


def answers_text(found: tuple[Answer, ...]) -> str:
    """The verdict: a paragraph for each question."""
    lines: list[str] = []
    for item in found:
        lines += [wrap(clean(f"{item.question} {item.mark}.")), wrap(clean(item.said), indent="  ")]
    return "\n".join(lines)


def fit_text(found: StepCalibration | None) -> str:
    """The formula, its numbers, and how right it is."""
    if found is None:
        return ""
    kinds = ", ".join(f"{kind} {format_fraction(error)}" for kind, error in found.held_out_error_by_kind.items())
    held = f"held out: {held_out_words(found)}{f'; medians by kind: {kinds}' if kinds else ''}"
    return "\n".join(
        [
            wrap(f"fit: {form_words(found.form)}"),
            plain_table(tables.parameters_table(found), _PARAMETER_COLUMNS),
            wrap(held),
        ]
    )


def load_text(found: LoadCheck | None) -> str:
    """The figures of every load that have a target, predicted and measured; every figure where none has one."""
    if found is None or not found.rows:
        return ""
    return plain_table(tables.load_table(tables.judged_rows(found.rows)), _LOAD_COLUMNS)


def capacity_text(found: CapacityCheck | None) -> str:
    """What was predicted, and what the runs say."""
    if found is None:
        return ""
    facts = [f"{name} {value}" for name, value in tables.capacity_facts(found)[1:] if value != NOT_AVAILABLE]
    return "\n".join([wrap(f"capacity within {clean(found.objective)}"), wrap("; ".join(facts), indent="  ")])


def memory_text(rows: tuple[MemoryRow, ...]) -> str:
    """The figures that differ, then others, as many as a screen should hold."""
    if not rows:
        return ""
    shown = tuple(sorted(rows, key=lambda row: row.agrees))[:_MEMORY_ROWS]
    more = len(rows) - len(shown)
    said = f"memory: {tables.memory_summary(rows)}"
    return "\n".join(
        [
            wrap(said + (f"; {more} more in the report" if more else "")),
            plain_table(tables.memory_table(shown), _MEMORY_COLUMNS),
        ]
    )


def plain_table(shown: Table, chosen: Iterable[int]) -> str:
    """The chosen columns of a table without its notes, which the report has; nothing when it has no rows."""
    if not shown.rows:
        return ""
    indexes = list(chosen)
    columns = [shown.columns[index] for index in indexes]
    cells = [tuple(row[index] for index in indexes) for row in shown.rows]
    return table([column.title for column in columns], cells, "".join(column.align for column in columns))
