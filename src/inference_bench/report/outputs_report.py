"""Which output came from what? The records of a run's outputs as text, as JSON, and as lines of a file.

In:   OutputRecords
Out:  text of at most 100 columns; a dict ready for JSON; a line of JSON for each output
Leaves out: prompt and answer, which no record holds
Read next by: cli.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from inference_bench.manifest.outputs import Kind, OutputProvenance, OutputRecords
from inference_bench.report.table import Column, Table
from inference_bench.report.text import clean, table_text, wrap
from inference_bench.units import NOT_AVAILABLE, format_count, format_seconds

SCHEMA: Final = "inference-bench/manifest-outputs/1"
LINE_SCHEMA: Final = "inference-bench/manifest-output/1"
_MOST_ROWS: Final = 8  # of a terminal; file and JSON hold all
_MOST_NAMES: Final = 6
_NO_DIGEST: Final = {
    Kind.RUN: f"{NOT_AVAILABLE}: the folder holds no manifest",
    Kind.RECORDS: f"{NOT_AVAILABLE}: the records do not all name one; each has its own, where the client knew it",
}


def outputs_lines(found: OutputRecords) -> str:
    """One object a line, each with its own schema: a line may leave its file."""
    return "".join(
        f"{json.dumps({'schema': LINE_SCHEMA, **asdict(each)}, allow_nan=False)}\n" for each in found.outputs
    )


def outputs_json(found: OutputRecords, name: str, written: Path | None) -> dict[str, Any]:
    """All of them in one object; those that were written to a file are counted, and stand there."""
    return {
        "schema": SCHEMA,
        "run": name,
        "kind": found.kind.value,
        "manifest_sha256": found.manifest_sha256,
        "counts": _counts(found.outputs),
        "notes": list(found.notes),
        "path": None if written is None else str(written),
        "outputs": None if written is not None else [asdict(each) for each in found.outputs],
    }


def _counts(outputs: Iterable[OutputProvenance]) -> dict[str, int]:
    counts = Counter(outputs=0, answered=0, fallback=0)
    for each in outputs:
        counts.update(outputs=1, answered=each.answered_by is not None, fallback=each.is_fallback)
    return dict(counts)


def outputs_text(found: OutputRecords, name: str, written: Path | None) -> str:
    """How many, from what, by whom; the first of them as a table."""
    counts = _counts(found.outputs)
    lines = [
        wrap(clean(name), "outputs of        "),
        wrap(found.manifest_sha256 or _NO_DIGEST[found.kind], "manifest SHA-256  "),
        wrap(_counted(counts), "records           "),
        wrap(_most(each.answered_by or "nobody" for each in found.outputs), "answered by       "),
        wrap(_most(each.finish_reason or "not said" for each in found.outputs), "finish reasons    "),
    ]
    blocks = ["\n".join(lines), table_text(_table(found.outputs)), *map(wrap, found.notes)]
    if written is not None:
        blocks.append(f"written to {clean(written)}")
    return "\n\n".join(filter(None, blocks))


def _counted(counts: dict[str, int]) -> str:
    total, answered, fallback = (format_count(counts[name]) for name in ("outputs", "answered", "fallback"))
    return f"{total}, of which {answered} were answered, {fallback} by a fallback"


def _most(names: Iterable[str]) -> str:
    """Each name with how often it came, the most frequent first."""
    count = Counter(map(clean, names))
    shown = [f"{name} {format_count(number)}" for name, number in count.most_common(_MOST_NAMES)]
    more = len(count) - len(shown)
    return ", ".join([*shown, *([f"{format_count(more)} more"] if more > 0 else [])]) or NOT_AVAILABLE


def _table(outputs: tuple[OutputProvenance, ...]) -> Table:
    columns = (
        Column("request", "l"),
        Column("in"),
        Column("out"),
        Column("finish", "l"),
        Column("TTFT"),
        Column("E2E"),
        Column("answered by", "l"),
        Column("fallback", "l"),
    )
    hidden = len(outputs) - _MOST_ROWS
    note = f"{format_count(hidden)} more are in the lines of a file, and in the JSON." if hidden > 0 else ""
    return Table("Outputs", columns, tuple(map(_row, outputs[:_MOST_ROWS])), note)


def _row(each: OutputProvenance) -> tuple[str, ...]:
    return (
        clean(each.request_id),
        format_count(each.prompt_tokens),
        format_count(each.output_tokens),
        clean(each.finish_reason or NOT_AVAILABLE),
        format_seconds(each.ttft_s),
        format_seconds(each.e2e_s),
        clean(each.answered_by or NOT_AVAILABLE),
        "yes" if each.is_fallback else "no",
    )
