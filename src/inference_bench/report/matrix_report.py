"""A matrix for a terminal and as JSON.

In:   MatrixResult
Out:  text of at most 100 columns; plain values of schema inference-bench/verify-matrix/1
Leaves out: charts (matrix_html)
Read next by: cli.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from inference_bench.origin import Origin
from inference_bench.report import matrix_words as words
from inference_bench.report.matrix_tables import batching_table, matrix_tables
from inference_bench.report.text import clean, table_text, wrap
from inference_bench.units import format_seconds
from inference_bench.verify.matrix_result import Gain, MatrixPoint, MatrixResult, MatrixRow, gain

Json = dict[str, Any]


def matrix_text(result: MatrixResult) -> str:
    """The verdict, what must not be missed, a table a kind of step, what the numbers say."""
    count = f"{len(result.measured)} of {len(result.rows)} combinations measured in {format_seconds(result.elapsed_s)}"
    tables = [table for table in (*matrix_tables(result), batching_table(result)) if table is not None]
    sections = [
        wrap(f"{clean(result.model)} on {clean(result.machine.name)}: {count}"),
        wrap(clean(words.verdict(result))),
        _list("findings", words.odd(result)),
        *(f"{table.title}\n{table_text(table)}" for table in tables),
        _list("what the numbers say", words.reading(result)),
        _list("not composed", words.not_composed_lines(result)),
        _list("notes", result.notes),
    ]
    return "\n\n".join(section for section in sections if section)


def _list(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *(wrap(clean(line), indent="  - ") for line in lines)]) if lines else ""


def matrix_json(result: MatrixResult) -> Json:
    """The stable keys of a matrix."""
    base = result.base
    return {
        "schema": "inference-bench/verify-matrix/1",
        "started_at": result.started_at,
        "elapsed_s": result.elapsed_s,
        "axes": {axis: list(getattr(result.axes, axis)) for axis in ("weights", "kv", "engine")},
        "model": {"name": result.model, "sha256": result.model_sha256},
        "machine": {
            "name": result.machine.name,
            "bandwidth_bytes_per_s": result.machine.bandwidth_bytes_per_s,
            "peak_flops_per_s": dict(result.machine.peak_flops_per_s),
            "origin": str(result.machine.origin),
        },
        "largest_batch": result.largest_batch,
        "base": None if base is None else base.combination.slug,
        "combinations": [_row(row, result) for row in result.rows],
        "verdict": words.verdict(result),
        "reading": list(words.reading(result)),
        "findings": list(words.odd(result)),
        "notes": list(result.notes),
        "rounds": result.num_rounds,
        "seed": result.seed,
        "run_dir": str(result.folder),
        "is_interrupted": result.is_interrupted,
    }


def _row(row: MatrixRow, result: MatrixResult) -> Json:
    combination = row.combination
    return {
        "name": combination.slug,
        "weights": combination.weights,
        "kv": combination.kv,
        "engine": combination.engine,
        "outcome": str(row.outcome),
        "said": row.said or None,
        "engine_version": row.engine or None,
        "weight_formats": row.weights or None,
        "cache_format": row.cache or None,
        "weight_bytes": row.weight_bytes,
        "points": [_point(row, point, result.base) for point in row.points],
        "batching": _gain(gain(result.largest(row), row.alone)),
        "runs": [str(path) for path in row.runs],
        "notes": list(row.notes),
    }


def _point(row: MatrixRow, point: MatrixPoint, base: MatrixRow | None) -> Json:
    return {
        "phase": str(point.phase),
        "batch": point.batch,
        "nominal_context_tokens": point.step.nominal_context_tokens,
        "context_tokens": point.context_tokens,
        "flops": point.bound.flops,
        "bytes": point.bound.num_bytes,
        "cache_bytes": row.cache_bytes(point),
        "bound_s": point.bound.seconds,
        "limited_by": str(point.bound.limited_by),
        "bound_tokens_per_s": point.bound_tokens_per_s,
        "seconds": point.seconds,
        "rounds_s": list(point.rounds_s),
        "tokens_per_s": point.tokens_per_s,
        "gain": _gain(gain(point, base.at(point))) if base is not None else None,
        "origin": str(Origin.MEASURED),
    }


def _gain(found: Gain | None) -> Json | None:
    return None if found is None else dataclasses.asdict(found)
