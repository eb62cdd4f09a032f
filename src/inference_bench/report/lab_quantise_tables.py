"""What are the tables of the quantise lab?

In:   QuantiseResult
Out:  Tables: methods by what they change, files, outliers, known answers, formats
Leaves out: sentences (lab_quantise)
Read next by: lab_quantise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from inference_bench.labs.quantise.result import (
    ACTIVATIONS,
    KV_FAMILY,
    OUTLIER_RATIO,
    SENSITIVITY,
    MethodRow,
    OutlierRow,
    QuantiseResult,
)
from inference_bench.report.table import Cells, Column, Table
from inference_bench.units import NOT_AVAILABLE, format_bytes, format_count, format_fraction, format_number, format_si

_APART: Final = (KV_FAMILY, SENSITIVITY, *ACTIVATIONS)
_NUM_OUTLIERS: Final = 8
_MEASURED: Final = "measured"
_MOST_LOSS: Final = 600.0  # nats, beyond which a perplexity is no number any more
_AS_FACTOR: Final = 1.0  # a perplexity twice as large or more is said as a factor

_CACHE_COLUMNS: Final = (Column("a token", "r", "counted", "a token: bytes of its keys and values, scales included."),)
_WEIGHT_COLUMNS: Final = (
    Column("bits", "r", "counted", "bits: a weight of the linear layers, scales included."),
    Column("error", "r", _MEASURED, "error: |W − W'| / |W| of the matrices that were changed."),
)


def method_tables(result: QuantiseResult) -> tuple[Table, ...]:
    """Weights alone; with activations; the cache; one kind of layer at a time; then what the model can still do."""
    parts = {
        "Weights alone": [row for row in result.methods if row.family not in _APART],
        "Weights and activations": [row for row in result.methods if row.family in ACTIVATIONS],
        "KV cache, weights as they are": [row for row in result.methods if row.family == KV_FAMILY],
        SENSITIVITY: [row for row in result.methods if row.family == SENSITIVITY],
    }
    note = (
        f"Perplexity over {format_count(result.scored_tokens)} tokens of {result.text_name}, in windows of "
        f"{format_count(result.window_tokens)}."
    )
    quality = [_quality_table(title, rows, "" if index else note) for index, (title, rows) in enumerate(parts.items())]
    return (*quality, _task_table(result.methods))


def _quality_table(title: str, rows: Sequence[MethodRow], note: str) -> Table:
    is_cache = any(row.family == KV_FAMILY for row in rows)
    has_interval = any(row.loss_change_interval is not None for row in rows)
    columns = (
        Column("method", "l"),
        *(_CACHE_COLUMNS if is_cache else _WEIGHT_COLUMNS),
        Column("perplexity", "r", _MEASURED),
        Column("change", "r", _MEASURED, "change: perplexity over float32's."),
        *(
            [Column("from…to", "r", _MEASURED, "from…to: its 95 % interval, by the windows' own differences.")]
            * has_interval
        ),
    )
    cells = tuple(
        (
            row.name,
            *([format_si(row.cache_bytes_per_token, "B")] if is_cache else _bits_and_error(row)),
            format_number(row.perplexity, 4),
            change(row),
            *([interval(row)] * has_interval),
        )
        for row in rows
    )
    return Table(title, columns, cells, note)


def _bits_and_error(row: MethodRow) -> tuple[str, str]:
    return format_number(row.bits_per_weight, 4), format_fraction(row.weight_error)


def _task_table(rows: Sequence[MethodRow]) -> Table:
    columns = (
        Column("method", "l"),
        Column("copied", "r", _MEASURED, "copied: repeated random tokens that are the most likely ones."),
        Column("JSON", "r", _MEASURED, "JSON: greedy answers that parse, with the keys and types that were shown."),
    )
    cells = tuple(
        (row.name, format_fraction(row.exact_copy_fraction), format_fraction(row.json_valid_fraction))
        for row in rows
        if row.exact_copy_fraction is not None
    )
    return Table("What the model can still do", columns, cells)


def change(row: MethodRow) -> str:
    """How much larger the perplexity is than float32's."""
    return signed(ratio_change(row.loss_change))


def ratio_change(loss_change: float) -> float:
    """The change of the perplexity that a change of the mean loss is.

    Formula:  exp(Δ) - 1
    """
    return math.expm1(min(loss_change, _MOST_LOSS))


def interval(row: MethodRow) -> str:
    """The same of the interval's ends."""
    known = row.loss_change_interval
    if known is None:
        return NOT_AVAILABLE
    return f"{signed(ratio_change(known.low), 2)}…{signed(ratio_change(known.high), 2)}"


def signed(fraction: float, significant: int = 3) -> str:
    """A change with its sign, as a factor where it is large.

    >>> signed(0.0512), signed(-0.002), signed(41.0)
    ('+5.12 %', '-0.200 %', '× 42.0')
    """
    if fraction >= _AS_FACTOR:
        return f"× {format_number(fraction + 1, significant)}"
    return f"{'+' if fraction > 0 else ''}{format_fraction(fraction, significant)}"


def file_table(result: QuantiseResult) -> Table:
    """The files that the engine served; the column of PyTorch with their weights where that was computed."""
    has_weights = any(row.weights_perplexity is not None for row in result.gguf)
    columns = (
        Column("file", "l"),
        Column("size", "r", "counted"),
        Column("perplexity", "r", _MEASURED, "perplexity: by the engine's own kernels;"),
        *([Column("weights", "r", _MEASURED, "weights: by PyTorch with the file's weights;")] * has_weights),
        Column("float32", "r", _MEASURED, "float32: by PyTorch without quantisation, all over the same tokens."),
        Column("decode", "r", _MEASURED),
        Column("gain", "r", _MEASURED, "gain: decode speed over that of the first file;"),
        Column("expected", "r", "predicted", "expected: from the bytes that a step reads."),
    )
    cells = tuple(
        (
            row.format,
            format_bytes(row.file_bytes),
            format_number(row.perplexity, 4),
            *([format_number(row.weights_perplexity, 4)] * has_weights),
            format_number(row.float32_perplexity_same_tokens, 4),
            f"{format_number(row.decode_tokens_per_s)} tok/s" if row.decode_tokens_per_s else NOT_AVAILABLE,
            times(row.measured_gain),
            times(row.predicted_gain),
        )
        for row in result.gguf
    )
    tokens = next((row.scored_tokens for row in result.gguf if row.scored_tokens is not None), None)
    return Table(
        "Files that the engine served", columns, cells, f"{format_count(tokens)} tokens scored." if cells else ""
    )


def times(factor: float | None) -> str:
    """A factor."""
    return NOT_AVAILABLE if factor is None else f"× {format_number(factor)}"


def worst_outliers(result: QuantiseResult) -> list[OutlierRow]:
    """Inputs by how far their largest channel stands above the median one."""
    return sorted(result.outliers, key=lambda row: -(row.ratio or 0.0))


def outlier_table(result: QuantiseResult, most: int = _NUM_OUTLIERS) -> Table:
    """The inputs with the largest outliers."""
    columns = (
        Column("input of", "l"),
        Column("block"),
        Column("largest |x|", "r", _MEASURED),
        Column("median channel", "r", _MEASURED),
        Column("ratio", "r", _MEASURED),
        Column("channel"),
        Column(
            "outliers", "r", _MEASURED, f"outliers: channels above {format_number(OUTLIER_RATIO)} times the median."
        ),
    )
    cells = tuple(
        (
            row.kind,
            format_count(row.block),
            format_number(row.largest),
            format_number(row.median_channel_max),
            format_number(row.ratio),
            format_count(row.largest_channel),
            f"{format_count(row.num_outlier_channels)} of {format_count(row.num_channels)}",
        )
        for row in worst_outliers(result)[:most]
    )
    return Table("Inputs with the largest outliers", columns, cells)


def reference_table(result: QuantiseResult) -> Table:
    """Published perplexities beside ours."""
    columns = (
        Column("setting", "l"),
        Column("published", "r", "published"),
        Column("here", "r", _MEASURED),
        Column("difference", "r", _MEASURED),
        Column("expected within"),
    )
    cells = tuple(
        (
            row.name,
            format_number(row.published, 6),
            format_number(row.ours, 6),
            NOT_AVAILABLE if row.difference_fraction is None else signed(row.difference_fraction),
            format_fraction(row.tolerance_fraction),
        )
        for row in result.references
    )
    off = frozenset(
        index
        for index, row in enumerate(result.references)
        if row.difference_fraction is not None and abs(row.difference_fraction) > row.tolerance_fraction
    )
    return Table("Known answers", columns, cells, result.reference_note or "", off)


def format_table(result: QuantiseResult) -> Table:
    """Every number format, by what it can hold."""
    columns = (
        Column("format", "l"),
        Column("element", "l"),
        Column("block"),
        Column("bits", "r", "counted", "bits: a value, scales of blocks included."),
        Column("largest", "r", "counted", "largest, smallest and step at 1: of one value, before its scale."),
        Column("smallest", "r", "counted"),
        Column("step at 1", "r", "counted"),
        Column("note", "l"),
    )
    cells: tuple[Cells, ...] = tuple(
        (
            row.name,
            row.element,
            format_count(row.block_values),
            format_number(row.bits_per_value, 4),
            format_number(row.largest),
            format_number(row.smallest),
            format_number(row.step_at_one),
            row.note,
        )
        for row in result.formats
    )
    return Table("Number formats", columns, cells)


def detail_table(result: QuantiseResult) -> Table:
    """What was set for each method, and what the whole model takes by it."""
    columns = (Column("family", "l"), Column("method", "l"), Column("model", "r", "counted"), Column("set to", "l"))
    cells = tuple((row.family, row.name, format_bytes(row.weight_bytes), row.detail) for row in result.methods)
    return Table("Settings of each method, and bytes of the whole model", columns, cells)
