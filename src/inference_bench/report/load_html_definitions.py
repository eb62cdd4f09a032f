"""What would other tools have printed of this run? Their figures as tables of a page.

In:   Recomputed
Out:  Tables, one a metric, each tool's reason to differ below
Read next by: load_html.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.definitions import METRICS, Recomputed
from inference_bench.report.table import Cells, Column, Table
from inference_bench.units import NOT_AVAILABLE, format_number, format_seconds

LETTERS: Final = (
    "p planned send, s actual send, f first chunk, l last chunk, a and z those of the answer without reasoning, e end of the "
    "reply; n tokens, k in the first chunk."
)
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
    rows = tuple(
        (one.rule.tool, one.rule.word or NOT_AVAILABLE, one.rule.formula, *_cells(one, is_time)) for one in found
    )
    tools: dict[str, list[str]] = {}
    for one in found:
        for reason in filter(None, (one.missing or one.rule.reason).split("; ")):
            tools.setdefault(reason, []).append(one.rule.tool)
    note = " ".join(f"{', '.join(named)}: {reason}." for reason, named in tools.items())
    return Table(name, columns, rows, note)


def _cells(one: Recomputed, is_time: bool) -> Cells:
    if not is_time:
        return (format_number(one.value),)
    return tuple(format_seconds(time_s) for time_s in (one.mean_s, one.p50_s, one.p99_s))
