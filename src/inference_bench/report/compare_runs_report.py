"""Two runs beside each other, as text of at most 100 columns, as JSON with stable keys, and as one page.

In:   RunComparison; for the page Provenance, and what draws a chart specification as SVG
Out:  a text; a dict ready for JSON; HTML text
Leaves out: every number's arithmetic (compare_runs) and drawing (render)
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from inference_bench.charts.two_runs import two_runs_chart
from inference_bench.compare_runs import flow
from inference_bench.compare_runs.differences import NUM_PAIRS, Difference
from inference_bench.compare_runs.side import Side
from inference_bench.origin import Origin
from inference_bench.report import html_pieces as pieces
from inference_bench.report.html_pieces import Draw, Drawing
from inference_bench.report.key_figure import KeyFigure
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
from inference_bench.report.table import Column, Table
from inference_bench.report.text import clean, shorten, table_text, wrap
from inference_bench.units import NOT_AVAILABLE, format_fraction, format_number, format_seconds

SCHEMA: Final = "inference-bench/compare/1"
_ROOFLINE: Final = (
    "Both runs on one roofline",
    "Every step that both measured: the same work, so points of one name lie at the same intensity unless the formats of weights "
    "or cache differ. A line joins the two. Dashed is the second machine's roof, where it is another.",
)
_INTERVALS: Final = "an interval that leaves out 0 % is a clear difference"
_RULES: Final = (
    "the same work: the same parts, schedules to the last bit, requested lengths, and prompts of as many tokens; of two "
    "verifications the same steps, however many waves of each there was time for",
    f"intervals of requests are from {NUM_PAIRS} resamplings of the same blocks of neighbouring requests in both runs; those of steps "
    "are from both medians' own intervals",
    "a failed request counts as longer than any time: a percentile that touches one is n/a",
)
_FACT_CHARS: Final = 60


def compare_runs_text(result: flow.RunComparison) -> str:
    """What changed, the answer, the tables."""
    blocks = [f"first   {clean(result.first.name)}\nsecond  {clean(result.second.name)}"]
    blocks += [table_text(changed_table(result)), *map(wrap, map(sentence, result.reading))]
    blocks += [f"{table.title}\n{table_text(table)}" for table in _tables(result)]
    blocks += [wrap(f"note: {note}") for note in (*result.notes, _INTERVALS)]
    return "\n\n".join(filter(None, blocks))


def changed_table(result: flow.RunComparison) -> Table:
    """What is other in the second run."""
    return facts_table(result.changed, "first", "second")


def facts_table(changed: Sequence[tuple[str, str | None, str | None]], first: str, second: str) -> Table:
    """Facts that differ between two sides; one row that says so where nothing is known to."""
    rows = tuple(
        (clean(name), *(shorten(clean(value), _FACT_CHARS) if value is not None else NOT_AVAILABLE for value in values))
        for name, *values in changed
    ) or (("nothing that the runs say of themselves", "", ""),)
    return Table("What differs", (Column("what", "l"), Column(first, "l"), Column(second, "l")), rows)


def figures_table(title: str, found: Sequence[Difference], first: str = "first", second: str = "second") -> Table:
    """Figures of requests with the samples behind them."""
    return _table(title, list(found), with_counts=True, sides=(first, second))


def _tables(result: flow.RunComparison) -> Iterator[Table]:
    if result.points:
        yield _table("Measured steps", [pair.difference for pair in result.points], with_counts=False)
    for part in result.parts:
        name = f"Requests of {clean(part.name)}" if len(result.parts) > 1 else "Requests"
        yield _table(name, list(part.figures), with_counts=True)


def _table(
    title: str, found: list[Difference], with_counts: bool, sides: tuple[str, str] = ("first", "second")
) -> Table:
    columns = [
        Column("figure", "l"),
        Column(sides[0]),
        Column(sides[1]),
        Column("change"),
        Column("interval"),
        Column(f"{sides[1]} is", "l"),
    ]
    rows = [_cells(each) for each in found]
    if with_counts:
        columns.append(Column("samples"))
        rows = [(*row, " / ".join(map(str, each.counts))) for row, each in zip(rows, found, strict=True)]
    marked = frozenset(index for index, each in enumerate(found) if each.is_improvement is False)
    return Table(title, tuple(columns), tuple(rows), marked=marked)


def _cells(each: Difference) -> tuple[str, ...]:
    interval = NOT_AVAILABLE
    if each.interval is not None:
        interval = f"{_signed(each.interval.low)} to {_signed(each.interval.high)}"
    words = {True: "better", False: "worse", None: "not told apart"}[each.is_improvement]
    name = each.name.removesuffix("_s").removesuffix("_per").removesuffix("_fraction").replace("_", " ")
    name = f"{name}/s" if each.name.endswith("_per_s") else name
    return name, _value(each, each.first), _value(each, each.second), _signed(each.change), interval, words


def _value(each: Difference, value: float | None) -> str:
    if each.name.endswith("_fraction"):
        return format_fraction(value)
    return format_number(value) if each.name.endswith("_per_s") else format_seconds(value)


def _signed(change: float | None) -> str:
    return NOT_AVAILABLE if change is None else f"{'+' if change > 0 else ''}{format_fraction(change)}"


# ── JSON ───────────────────────────────────────────────────────────────────────────────────────────


def compare_runs_json(result: flow.RunComparison) -> dict[str, Any]:
    """The stable keys of `compare --json`."""
    return {
        "schema": SCHEMA,
        "first": _side_json(result.first),
        "second": _side_json(result.second),
        "changed": {name: {"first": mine, "second": theirs} for name, mine, theirs in result.changed},
        "points": [
            {
                "phase": pair.first.phase,
                "batch": pair.first.batch,
                "context_tokens": pair.first.context_tokens,
                "bound_s": {"first": pair.first.bound_s, "second": pair.second.bound_s},
                **difference_json(pair.difference),
                "name": "measured_s",
            }
            for pair in result.points
        ],
        "parts": [
            {"part": part.name, "figures": {each.name: difference_json(each) for each in part.figures}}
            for part in result.parts
        ],
        "reading": list(result.reading),
        "notes": list(result.notes),
    }


def _side_json(side: Side) -> dict[str, Any]:
    return {"run_dir": str(side.path), "finished": side.is_whole, "facts": dict(side.facts)}


def difference_json(each: Difference) -> dict[str, Any]:
    """One figure in both runs."""
    return {
        "name": each.name,
        "first": each.first,
        "second": each.second,
        "change": each.change,
        "interval": None if each.interval is None else asdict(each.interval),
        "is_improvement": each.is_improvement,
        "counts": list(each.counts),
        "origin": Origin.MEASURED,
    }


# ── page ───────────────────────────────────────────────────────────────────────────────────────────


def compare_runs_html(result: flow.RunComparison, made: Provenance, draw: Draw | None) -> str:
    """The whole page; without `draw` it has every table and says why there are no charts."""
    chart = partial(two_runs_chart, result)
    drawings = [Drawing(*_ROOFLINE, chart)] if result.points else []
    parts = (
        reading_part(map(sentence, result.reading)),
        Part("differs", "What differs", "What differs", pieces.table(changed_table(result), has_heading=False)),
        charts_part(drawings, draw),
        Part(
            "figures", "Figures", "Figure by figure", pieces.origins((Origin.MEASURED,)) + all_tables(_tables(result))
        ),
        assumptions_part((*_RULES, _INTERVALS), result.notes),
        repeat_part(made),
    )
    head = Head("What changed between two runs?", f"{clean(result.first.name)} and {clean(result.second.name)}")
    return report_page(head, made, tuple(_key_figures(result)), (), parts)


def _key_figures(result: flow.RunComparison) -> Iterator[KeyFigure]:
    found = [pair.difference for pair in result.points][:4] or list(result.parts[0].figures)[:5]
    for each in found:
        cells = _cells(each)
        yield KeyFigure(cells[0], cells[3], "", Origin.MEASURED, f"{cells[1]} to {cells[2]}", f"interval {cells[4]}")
