"""What does a matrix say, as tables? For one sequence, the largest batch and a prompt: bytes promised beside what was gained.

In:   MatrixResult
Out:  Tables
Leaves out: sentences (matrix_words)
Read next by: matrix_report, matrix_html.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from inference_bench.charts.matrix import short_name, value_name
from inference_bench.origin import Origin
from inference_bench.report.table import Cells, Column, Table
from inference_bench.report.wording import ESTIMATE, tokens_per_s
from inference_bench.units import (
    NOT_AVAILABLE,
    format_bytes,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
)
from inference_bench.verify.matrix_result import Gain, MatrixPoint, MatrixResult, MatrixRow, Pick, gain

_BASE = "base"
_NOTE = (
    "Cache is what a step moves beside the weights: the cache it reads and writes, and rows of the input table. A gain in brackets "
    "is none for sure: the rounds of the two overlap."
)


def times(value: float | None) -> str:
    """A factor, in words that are short."""
    return NOT_AVAILABLE if value is None else f"×{format_number(value)}"


def gained(found: Gain | None) -> str:
    """A measured factor; in brackets where the rounds of the two steps overlap, so that they are not told apart."""
    said = times(found.measured if found else None)
    return f"({said})" if found is not None and found.is_apart is False else said


def matrix_tables(result: MatrixResult) -> tuple[Table, ...]:
    """One table a kind of step; those that were measured. What there is to know is said below the first."""
    kinds: tuple[tuple[str, Pick], ...] = (
        ("One sequence", lambda row: row.alone),
        ("Largest batch", result.largest),
        ("A prompt", lambda row: row.prefill),
    )
    found = [table for title, pick in kinds if (table := _table(result, title, pick)) is not None]
    return tuple(table if table is found[0] else replace(table, note="") for table in found)


def _table(result: MatrixResult, title: str, pick: Pick) -> Table | None:
    points = [(row, point) for row in result.measured if (point := pick(row)) is not None]
    if not points:
        return None
    alike = result.alike(pick)
    columns = (
        Column("combination", "l"),
        Column("weights", origin=Origin.COUNTED),
        Column("cache", origin=Origin.COUNTED),
        Column("bound tok/s", origin=Origin.BOUND),
        Column("tok/s", origin=Origin.MEASURED),
        Column("of bound", origin=ESTIMATE),
        Column("limit", "l", Origin.BOUND),
        Column("promised", origin=Origin.BOUND),
        Column("gained", origin=Origin.MEASURED),
    )
    base = result.base
    over_point = pick(base) if base is not None else None
    rows = tuple(_cells(row, point, over_point, (row, point) in alike, result) for row, point in points)
    over = f"Gains are over {short_name(base, result)}. " if base else ""
    return Table(f"{title}: {_sizes(point for _, point in alike)}", columns, rows, note=f"{over}{_NOTE}")


def _size(point: MatrixPoint) -> str:
    if point.tokens > point.batch:
        return f"prefill of {format_count(point.context_tokens)} tokens"
    return f"batch {point.batch} at {format_count(point.context_tokens)} tokens"


def _sizes(points: Iterable[MatrixPoint]) -> str:
    """One step as several servers counted it, which may be a few tokens apart."""
    ordered = sorted(points, key=lambda point: point.context_tokens)
    least, most = ordered[0], ordered[-1]
    if least.context_tokens == most.context_tokens:
        return _size(least)
    tokens = f"{format_count(least.context_tokens)} to {format_count(most.context_tokens)} tokens"
    return _size(least).replace(f"{format_count(least.context_tokens)} tokens", tokens)


def _cells(row: MatrixRow, point: MatrixPoint, over: MatrixPoint | None, is_alike: bool, result: MatrixResult) -> Cells:
    """A row; one whose step is another says which, and has no gain."""
    is_base = row is result.base
    found = gain(point, over) if is_alike else None
    share = None if point.bound_tokens_per_s is None else point.tokens_per_s / point.bound_tokens_per_s
    return (
        value_name(row, result) if is_alike else f"{value_name(row, result)} (at {format_count(point.context_tokens)})",
        format_bytes(row.weight_bytes),
        format_bytes(row.cache_bytes(point)),
        tokens_per_s(point.bound_tokens_per_s),
        tokens_per_s(point.tokens_per_s),
        format_fraction(share, 2),
        str(point.bound.limited_by),
        _BASE if is_base else times(found.promised if found else None),
        _BASE if is_base else gained(found),
    )


def batching_table(result: MatrixResult) -> Table | None:
    """What the largest batch gains over one sequence, combination by combination."""
    rows = []
    for row in result.measured:
        alone, largest = row.alone, result.largest(row)
        found = gain(largest, alone)
        if alone is None or largest is None or found is None:
            continue
        rows.append(
            (
                value_name(row, result),
                tokens_per_s(alone.tokens_per_s),
                tokens_per_s(largest.tokens_per_s),
                times(found.promised),
                gained(found),
            )
        )
    columns = (
        Column("combination", "l"),
        Column("tok/s alone", origin=Origin.MEASURED),
        Column("tok/s in the largest batch", origin=Origin.MEASURED),
        Column("promised", origin=Origin.BOUND),
        Column("gained", origin=Origin.MEASURED),
    )
    return Table("What batching bought", columns, tuple(rows)) if rows else None


def rounds_table(result: MatrixResult) -> Table | None:
    """How far the rounds of a combination lie apart: what is smaller than that is no difference."""
    rows = []
    for row in result.measured:
        for point in row.points:
            if point.rounds_apart is not None:
                step = f"{point.phase}, {_size(point)}" if point.tokens == point.batch else _size(point)
                each = " and ".join(format_seconds(seconds) for seconds in point.rounds_s)
                rows.append((value_name(row, result), step, each, format_fraction(point.rounds_apart, 2)))
    columns = (
        Column("combination", "l"),
        Column("step", "l"),
        Column("in each round", origin=Origin.MEASURED),
        Column("apart"),
    )
    return Table("Each round", columns, tuple(rows)) if rows else None
