"""A verification for a terminal: what to know first, then everything behind it.

In:   VerifyResult
Out:  text of at most 100 columns
Leaves out: charts, and where the report file is
Read next by: text, which hands it on.
"""

from __future__ import annotations

from collections.abc import Iterable

from inference_bench.report.identity_rows import client_rows, engine_rows, model_rows, run_rows
from inference_bench.report.key_figures import findings, key_figures
from inference_bench.report.result_tables import (
    Table,
    batch_table,
    bandwidth_table,
    cache_table,
    engine_cache_rows,
    latency_table,
    points_table,
    requests_table,
)
from inference_bench.report.text import MAX_COLUMNS, table, wrap
from inference_bench.report.wording import clean, engine_name, model_name
from inference_bench.verify.result import VerifyResult

_POINT_COLUMNS = (0, 1, 2, 4, 5, 6, 8, 9, 10, 11, 16)


def verification(result: VerifyResult) -> str:
    """The whole text."""
    sections = [
        wrap(f"{model_name(result)} on {clean(result.machine.name)} by {engine_name(result.engine)}"),
        _figures(result),
        _list("findings", findings(result)),
        _list("reading", result.reading),
        _table(points_table(result), _POINT_COLUMNS),
        _table(batch_table(result)),
        _table(requests_table(result)),
        _table(latency_table(result)),
        _table(cache_table(result)),
        _pairs("engine's cache", [(name, f"{value} {origin}".rstrip()) for name, value, origin in engine_cache_rows(result)]),
        _table(bandwidth_table(result)),
        _pairs("client", client_rows(result)),
        _pairs("model", model_rows(result)),
        _pairs("engine", engine_rows(result)),
        _list("assumptions", result.assumptions),
        _list("notes", result.notes),
        _pairs("run", run_rows(result)),
    ]
    return "\n\n".join(section for section in sections if section)


def _figures(result: VerifyResult) -> str:
    rows = [(item.name, f"{item.value} {item.unit}".rstrip(), item.origin, item.detail) for item in key_figures(result)]
    names, values, origins, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = []
    for name, value, origin, detail in rows:
        indent = f"{name.ljust(names)}  {value.rjust(values)}  {origin.ljust(origins)}  "
        lines.append(wrap(detail, indent=indent))
    return "\n".join(lines)


def _list(title: str, lines: Iterable[str]) -> str:
    shown = [wrap(clean(line), indent="  - ") for line in lines]
    return "\n".join([title, *shown]) if shown else ""


def _pairs(title: str, rows: Iterable[tuple[str, str]]) -> str:
    shown = [wrap(value, indent=f"  {name}: ") for name, value in rows]
    return "\n".join([title, *shown]) if shown else ""


def _table(shown: Table | None, chosen: Iterable[int] | None = None) -> str:
    """A table; its origins stand behind the headers, and its note below."""
    if shown is None or not shown.rows:
        return ""
    indexes = list(range(len(shown.columns)) if chosen is None else chosen)
    columns = [shown.columns[index] for index in indexes]
    cells = [tuple(row[index] for index in indexes) for row in shown.rows]
    align = "".join(column.align for column in columns)
    text = table([column.title for column in columns], cells, align, MAX_COLUMNS)
    return f"{text}\n{wrap(shown.note)}" if shown.note else text
