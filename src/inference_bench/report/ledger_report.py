"""A ledger for a terminal, as JSON and as a page: what was paid for, what was computed, what users got, kept apart.

In:   Ledger
Out:  text of at most 100 columns; a dict for JSON; HTML
Leaves out: reading and sums (operate.ledger)
Read next by: cli.

In order: `ledger_tables` (the tables), `ledger_notes`, `ledger_json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from inference_bench.charts.ledger import coloured_by, ledger_chart
from inference_bench.operate.ledger.content_log import Purge
from inference_bench.operate.ledger.flow import Ledger
from inference_bench.origin import Origin
from inference_bench.report import html_pieces as pieces
from inference_bench.report.html_pieces import Draw, Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.ledger_json import ledger_json as ledger_json
from inference_bench.report.ledger_notes import ledger_notes
from inference_bench.report.ledger_tables import (
    RULES,
    apart_table,
    detail_tables,
    paid_words,
    reading,
)
from inference_bench.report.plan_cost_report import format_usd
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
from inference_bench.report.text import clean, table_text, wrap
from inference_bench.units import format_bytes, format_count, format_fraction

PURGE_SCHEMA: Final = "inference-bench/ledger-purge/1"
_CHART_TITLE: Final = "From what was paid for to what was of use"


def ledger_text(ledger: Ledger) -> str:
    """The three apart, the answer in words, the tables."""
    blocks = [_sources_line(ledger), table_text(apart_table(ledger)), *map(wrap, map(sentence, reading(ledger)))]
    blocks += [f"{table.title}\n{table_text(table)}" for table in detail_tables(ledger) if table.rows]
    blocks += [wrap(f"note: {note}") for note in ledger_notes(ledger)]
    return "\n\n".join(filter(None, blocks))


def _sources_line(ledger: Ledger) -> str:
    names = ", ".join(clean(source.path.name) for source in ledger.sources[:3])
    more = f" and {len(ledger.sources) - 3} more" if len(ledger.sources) > 3 else ""
    return wrap(f"{names}{more}: {format_count(ledger.sums.num_requests)} requests; {paid_words(ledger)}")


def ledger_html(ledger: Ledger, made: Provenance, draw: Draw | None) -> str:
    """The whole page; without `draw` it has every table and says why there are no charts."""
    parts = (
        reading_part(map(sentence, reading(ledger))),
        Part(
            "apart",
            "Apart",
            "Paid for, computed, completed, of use",
            pieces.table(apart_table(ledger), has_heading=False),
        ),
        charts_part([Drawing(_CHART_TITLE, _caption(ledger), partial(ledger_chart, ledger))], draw),
        Part("figures", "Figures", "Figures", all_tables(table for table in detail_tables(ledger) if table.rows)),
        assumptions_part(RULES, ledger_notes(ledger)),
        repeat_part(made),
    )
    names = ", ".join(clean(source.path.name) for source in ledger.sources[:3])
    return report_page(
        Head("What was paid for, and what was of use?", names), made, tuple(_key_figures(ledger)), (), parts
    )


def _caption(ledger: Ledger) -> str:
    """How the chart is read."""
    by = coloured_by(ledger)
    colours = "" if by is None else f"; colours are {by}s"
    return (
        f"Output tokens. Each bar is the one before without what was lost on the way{colours}. What was paid for is known only where "
        "a capacity was given."
    )


def _key_figures(ledger: Ledger) -> Iterator[KeyFigure]:
    sums, paid, money = ledger.sums, ledger.paid, ledger.money
    measured = Origin.MEASURED
    if money is not None and money.usd is not None:
        yield KeyFigure(
            "paid", format_usd(money.usd), "USD", Origin.GIVEN, paid_words(ledger), "price an hour times hours"
        )
    yield KeyFigure(
        "busy",
        format_fraction(paid.busy_fraction),
        "",
        measured,
        "of the hours paid for",
        "a request or more was in flight",
        fraction=paid.busy_fraction,
    )
    answered = sums.num_requests - sums.num_warm_up
    share = sums.num_useful / answered if answered else None
    yield KeyFigure(
        "of use",
        format_fraction(share),
        "",
        measured,
        "of all requests",
        "whole, and not refused afterwards",
        fraction=share,
    )
    yield KeyFigure(
        "wasted",
        format_fraction(sums.wasted_output_fraction),
        "",
        measured,
        "of output tokens computed",
        "of use to nobody",
        fraction=sums.wasted_output_fraction,
    )
    if money is not None and money.usd_per_million_useful is not None:
        yield KeyFigure(
            "a million of use",
            format_usd(money.usd_per_million_useful),
            "USD",
            measured,
            "output tokens",
            "at the hours bought",
        )


def purge_text(found: Sequence[tuple[Path, Purge]]) -> str:
    """What was deleted, folder by folder."""
    return "\n".join(
        wrap(
            f"{clean(folder)}: {format_count(purge.num_deleted)} files deleted ({format_bytes(purge.num_deleted_bytes)}), "
            f"{format_count(purge.num_kept)} kept until their retention time ends"
            + (f", {format_count(purge.num_failed)} could not be deleted" if purge.num_failed else "")
        )
        for folder, purge in found
    )


def purge_json(found: Sequence[tuple[Path, Purge]]) -> dict[str, Any]:
    """The stable keys of `ledger purge --json`."""
    return {
        "schema": PURGE_SCHEMA,
        "folders": [
            {
                "folder": str(folder),
                "deleted": purge.num_deleted,
                "deleted_bytes": purge.num_deleted_bytes,
                "kept": purge.num_kept,
                "failed": purge.num_failed,
            }
            for folder, purge in found
        ],
    }
