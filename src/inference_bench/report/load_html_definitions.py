"""What would other tools have printed of this run? Their figures as tables of a page.

In:   Recomputed
Out:  Tables, one a metric, each tool's reason to differ below
Leaves out: cells and reasons, which the terminal shows too (proof_report)
Read next by: load_html.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.definitions import METRICS, Recomputed
from inference_bench.report.proof_report import definition_cells, tools_by_reason
from inference_bench.report.table import Column, Table

_NAMES: Final = {
    "ttft": "TTFT",
    "ttfa": "Time to first answer",
    "tpot": "TPOT",
    "itl": "ITL",
    "e2e": "E2E",
    "output_tokens_per_s": "Output tokens a second",
    "goodput_requests_per_s": "Goodput",
}


def definition_tables(found: Sequence[Recomputed]) -> Iterator[Table]:
    """A table a metric, in the usual order."""
    for metric in METRICS:
        mine = [one for one in found if one.rule.metric == metric]
        if mine:
            yield _table(_NAMES.get(metric, metric), mine)


def _table(name: str, found: Sequence[Recomputed]) -> Table:
    is_time = any(one.rule.of for one in found)
    values = ("mean", "p50", "p99") if is_time else ("value",)
    columns = (Column("tool", "l"), Column("its word", "l"), Column("formula", "l"), *map(Column, values))
    rows = tuple(definition_cells(one, is_time) for one in found)
    note = " ".join(f"{', '.join(named)}: {reason}." for reason, named in tools_by_reason(found).items())
    return Table(name, columns, rows, note)
