"""A verification for a terminal: what to know in a minute.

In:   VerifyResult
Out:  text of at most 100 columns
Leaves out: charts, and every table that only the report and the JSON hold
Read next by: cli, notebook.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from inference_bench.report.closed_loop_answers import answers
from inference_bench.report.closed_loop_text import (
    answers_text,
    capacity_text,
    fit_text,
    load_text,
    memory_text,
    plain_table,
)
from inference_bench.report.findings import findings
from inference_bench.report.key_figures import key_figures
from inference_bench.report.result_tables import few_points, points_table
from inference_bench.report.text import clean, pad, shorten, table_text, wrap
from inference_bench.report.wording import engine_name, model_name
from inference_bench.verify.result import VerifyResult

_NAME_COLUMNS: Final = 22
_VALUE_COLUMNS: Final = 15
_ORIGIN_COLUMNS: Final = 9
_POINT_COLUMNS: Final = range(10)


def verify_text(result: VerifyResult) -> str:
    """The whole text: the verdict, the figures, what is odd, the points, the fit, loads, capacity, memory."""
    odd = _list("findings", findings(result))
    sections = [
        wrap(f"{model_name(result)} on {clean(result.machine.name)} by {engine_name(result.engine)}"),
        odd if result.disturbances else "",
        answers_text(answers(result)),
        _figures(result),
        "" if result.disturbances else odd,
        _points(result),
        fit_text(result.calibration),
        load_text(result.load),
        capacity_text(result.capacity),
        memory_text(result.memory),
        _list("notes", result.notes),
        wrap("Parts of a step, changes, requests, assumptions and identities are in the report and result.json."),
    ]
    return "\n\n".join(section for section in sections if section)


def _points(result: VerifyResult) -> str:
    """The points; of many, the smallest and largest batch of each context. Where little else is said, what columns mean."""
    if result.calibration is None:
        return table_text(points_table(result), _POINT_COLUMNS)
    few = few_points(result.points)
    shown = plain_table(points_table(replace(result, points=few)), _POINT_COLUMNS)
    more = len(result.points) - len(few)
    return f"{shown}\n{wrap(f'{more} more points are in the report')}" if more else shown


def _figures(result: VerifyResult) -> str:
    """One figure after another: what, how much, how far to trust it, beside what; after a verdict one line each."""
    lines = []
    for item in key_figures(result):
        value = shorten(f"{clean(item.value)} {clean(item.unit)}".rstrip(), _VALUE_COLUMNS)
        start = (
            f"{pad(item.name, _NAME_COLUMNS)}  {pad(value, _VALUE_COLUMNS, 'r')}  {pad(item.origin, _ORIGIN_COLUMNS)}  "
        )
        said = wrap(clean("; ".join(filter(None, (item.beside, item.detail)))), indent=start)
        is_short = result.calibration is None or "\n" not in said
        lines.append(said if is_short else wrap(clean(item.beside), indent=start))
    return "\n".join(lines)


def _list(title: str, lines: Iterable[str]) -> str:
    shown = [wrap(clean(line), indent="  - ") for line in lines]
    return "\n".join([title, *shown]) if shown else ""
