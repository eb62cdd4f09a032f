"""The answers to `fit` as text for a terminal; fit_json holds the same for programs.

In:   FitAnswer, Suggestions, MachineRows, NaiveRows
Out:  text of at most 100 columns
Leaves out: arithmetic; every number was computed before, and most are put into words by fit_tables
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from inference_bench.predict.fit import FitAnswer
from inference_bench.report import fit_tables as tables
from inference_bench.report.text import MAX_COLUMNS, table, table_text, wrap
from inference_bench.units import (
    KIBI,
    NOT_AVAILABLE,
    format_bytes,
    format_bytes_binary,
    format_count,
    format_number,
    format_seconds,
)

if TYPE_CHECKING:
    from inference_bench.predict.engine_command import EngineCommand
    from inference_bench.predict.naive_error import NaiveRow
    from inference_bench.predict.suggest import MachineRow, Suggestion

_OPTION_ROOM: Final = 20  # for the value of an option and the mark that the line goes on


def fit_text(
    answer: FitAnswer, commands: Sequence[EngineCommand] = (), suggestions: Sequence[Suggestion] | None = None
) -> str:
    """The verdict first, then where it comes from, what would fit, and how to run it."""
    sections = [
        _paragraphs(tables.verdict(answer)),
        table_text(tables.memory_table(answer)),
        _with_notes(table_text(tables.cache_table(answer)), tables.cache_notes(answer)),
        _with_notes(table_text(tables.speed_table(answer)), tables.speed_notes(answer)),
        "" if suggestions is None else _suggestions(suggestions),
        _commands(commands),
        "\n".join(["assumptions", *(wrap(line, indent="  - ") for line in answer.assumptions)]),
    ]
    return "\n\n".join(section for section in sections if section)


def _paragraphs(lines: Sequence[str]) -> str:
    return "\n".join(map(wrap, lines))


def _with_notes(shown: str, notes: Sequence[str]) -> str:
    return "\n".join(filter(None, [shown, _paragraphs(notes)]))


def _suggestions(suggestions: Sequence[Suggestion]) -> str:
    return table_text(tables.suggestion_table(suggestions)) if suggestions else tables.NOTHING_FITS


def _commands(commands: Sequence[EngineCommand]) -> str:
    lines = [
        wrap(f"{item.engine}: no; {item.note}", indent="  ")
        if item.command is None
        else f"  {item.engine}, which {item.note}\n{_continued(item.command)}"
        for item in commands
    ]
    return "\n".join(["to run it", *lines]) if lines else ""


def _continued(command: str) -> str:
    """A command over several lines that a shell reads as one; it breaks before an option."""
    lines = [""]
    for index, word in enumerate(command.split(" ")):
        if word.startswith("-") and index and len(lines[-1]) + len(word) + _OPTION_ROOM > MAX_COLUMNS:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else f"    {word}"
    return " \\\n  ".join(lines)


def ranking_text(rows: Sequence[MachineRow]) -> str:
    """One model on every machine: those it fits first, the fastest first among them."""
    words = {True: "yes", False: "no", None: NOT_AVAILABLE}
    cells = [
        (
            row.answer.machine.name if row.answer.machine else NOT_AVAILABLE,
            words[row.answer.fits],
            _signed(row.answer.headroom_bytes),
            format_count(row.answer.max_context_tokens),
            format_count(row.answer.max_sequences),
            format_number(row.decode_bound_tokens_per_s),
            format_seconds(row.answer.prefill.seconds if row.answer.prefill else None),
        )
        for row in rows
    ]
    headers = ("machine", "fits", "to spare", "longest context", "most sequences", "decode tokens/s", "prefill")
    return f"{table(headers, cells, 'llrrrrr')}\nSpeeds are bounds."


def _signed(num_bytes: int | None) -> str:
    if num_bytes is None or num_bytes >= 0:
        return format_bytes(num_bytes)
    return f"-{format_bytes(-num_bytes)}"


def naive_error_text(rows: Sequence[NaiveRow], median: float | None) -> str:
    """The same table as Markdown, which also reads in a terminal."""
    contexts = [f"{count.context_tokens // KIBI}k" for count in rows[0].counts] if rows else []
    lines = [
        "| model | layers | " + " | ".join(f"usual, true at {name} | factor" for name in contexts) + " |",
        "|---|---|" + "---:|---:|" * len(contexts),
    ]
    for row in rows:
        cells = [
            f"{format_bytes_binary(count.naive_bytes)}, {format_bytes_binary(count.total_bytes)} | {format_number(count.naive_factor)}"
            for count in row.counts
        ]
        lines.append(f"| {row.model} | {row.layer_types} | {' | '.join(cells)} |")
    wrong = sum(not row.is_uniform for row in rows)
    lines.append(
        f"\nThe usual formula charges every layer for the whole context. It is right on {len(rows) - wrong} of {len(rows)} models "
        f"and wrong on {wrong}, by a median factor of {format_number(median)} at the longest context."
    )
    return "\n".join(lines)
