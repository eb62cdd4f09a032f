"""A verification for a terminal: what to know in a minute.

In:   VerifyResult
Out:  text of at most 100 columns
Leaves out: charts, and every table that only the report and the JSON hold
Read next by: text, which hands it on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from inference_bench.report.key_figures import findings, key_figures
from inference_bench.report.result_tables import points_table
from inference_bench.report.text import clean, pad, shorten, table_text, wrap
from inference_bench.report.wording import engine_name, model_name
from inference_bench.verify.result import VerifyResult

_NAME_COLUMNS: Final = 22
_VALUE_COLUMNS: Final = 14
_ORIGIN_COLUMNS: Final = 9
_POINT_COLUMNS: Final = range(10)


def verify_text(result: VerifyResult) -> str:
    """The whole text: the figures, the reading, the points, what was assumed."""
    sections = [
        wrap(f"{model_name(result)} on {clean(result.machine.name)} by {engine_name(result.engine)}"),
        _figures(result),
        _list("findings", findings(result)),
        _list("reading", result.reading),
        table_text(points_table(result), _POINT_COLUMNS),
        _list("assumptions", result.assumptions),
        _list("notes", result.notes),
        wrap(
            "Requests, latencies, cache, machine and the identity of everything are in the report and in result.json."
        ),
    ]
    return "\n\n".join(section for section in sections if section)


def _figures(result: VerifyResult) -> str:
    """One line a figure: what, how much, how far to trust it, beside what."""
    lines = []
    for item in key_figures(result):
        value = shorten(f"{clean(item.value)} {clean(item.unit)}".rstrip(), _VALUE_COLUMNS)
        start = (
            f"{pad(item.name, _NAME_COLUMNS)}  {pad(value, _VALUE_COLUMNS, 'r')}  {pad(item.origin, _ORIGIN_COLUMNS)}  "
        )
        said = "; ".join(filter(None, (item.beside, item.detail)))
        lines.append(wrap(clean(said), indent=start))
    return "\n".join(lines)


def _list(title: str, lines: Iterable[str]) -> str:
    shown = [wrap(clean(line), indent="  - ") for line in lines]
    return "\n".join([title, *shown]) if shown else ""
