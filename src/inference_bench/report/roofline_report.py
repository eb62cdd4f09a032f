"""The roofline table, as JSON with stable keys and as text for a terminal.

In:   RooflineTable
Out:  a dict ready for JSON or a text of at most 100 columns
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from inference_bench.predict.phases import RooflineTable
from inference_bench.report import roofline_tables as tables
from inference_bench.report.text import pad, shorten, table_text, wrap
from inference_bench.roofline import Bound
from inference_bench.units import (
    format_number,
    format_si,
)

_NAME_COLUMNS: Final = 24
_AXIS_COLUMNS: Final = 64


def _bound_json(item: Bound) -> dict[str, Any]:
    return {
        "name": item.name,
        "flops": item.flops,
        "bytes": tables.moved(item),
        "intensity": item.intensity,
        "bound_s": item.seconds,
        "limited_by": item.limited_by,
        "fraction_of_peak": item.fraction_of_peak,
        "interconnect_bytes": item.link_bytes,
    }


def roofline_json(result: RooflineTable) -> dict[str, Any]:
    """The stable keys of `roofline --json`."""
    ceiling = result.ceiling
    return {
        "schema": "inference-bench/roofline/1",
        "model": result.model,
        "machine": result.machine,
        "devices": result.devices,
        "compute_format": ceiling.compute_format,
        "bandwidth_bytes_per_s": ceiling.bandwidth_bytes_per_s,
        "peak_flops_per_s": ceiling.peak_flops_per_s,
        "interconnect_one_way_bytes_per_s": ceiling.link_bytes_per_s,
        "ridge_flops_per_byte": ceiling.ridge_flops_per_byte,
        "context_tokens": result.context_tokens,
        "batch": result.batch,
        "prompt_tokens": result.prompt_tokens,
        "prefill_chunk": result.prefill_chunk,
        "phases": [_bound_json(item) for item in result.phases],
        "operations": [{"phase": phase, **_bound_json(item)} for phase, item in result.operations],
        "intensities": [asdict(row) for row in result.intensities],
        "balance_batch": asdict(result.balance),
        "batch_curve": _curve_json(result),
        "origin": "bound",
        "assumptions": list(result.assumptions),
    }


def _curve_json(result: RooflineTable) -> dict[str, Any]:
    limits = result.limits
    return {
        "rows": [
            {
                "batch": row.batch,
                "step_s": row.step_s,
                "tokens_per_s_per_sequence": row.sequence_tokens_per_s,
                "tokens_per_s": row.tokens_per_s,
            }
            for row in result.curve
        ],
        "limit_tokens_per_s": limits.tokens_per_s,
        "memory_limit_tokens_per_s": limits.memory_tokens_per_s,
        "compute_limit_tokens_per_s": limits.compute_tokens_per_s,
        "interconnect_limit_tokens_per_s": limits.interconnect_tokens_per_s,
    }


def roofline_text(result: RooflineTable) -> str:
    """The same for a terminal."""
    blocks = [
        wrap(tables.asked(result)),
        table_text(tables.bounds_table(result)),
        "\n".join(_strip(result)),
        table_text(tables.intensity_table(result)),
        _balance(result),
        table_text(tables.curve_table(result)),
        "\n".join(["assumptions", *(wrap(line, indent="  - ") for line in result.assumptions)]),
    ]
    return "\n\n".join(block for block in blocks if block)


# ── the roof as text: intensity along a line, the ridge across all of them ─────────────────────────


def _strip(result: RooflineTable) -> Iterator[str]:
    """A line a phase and operation: where its intensity is, left (memory) or right (compute) of the ridge."""
    ridge = result.ceiling.ridge_flops_per_byte
    shown = list(_points(result))
    if not shown:
        return
    values = [intensity for _, intensity, _ in shown] + ([ridge] if ridge else [])
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    scale = (low, max(high, low + 1))
    ticks = [(10.0**power, "|") for power in range(scale[0], scale[1] + 1)]
    yield pad("FLOP/byte, log scale", _NAME_COLUMNS + 10) + _tick_labels(scale)
    yield pad("", _NAME_COLUMNS + 10) + _line([*ticks], scale, "-")
    for name, intensity, mark in shown:
        marks = [*([(ridge, ":")] if ridge else []), (intensity, mark)]
        text = f"{pad(shorten(name, _NAME_COLUMNS), _NAME_COLUMNS)} {pad(tables.intensity_text(intensity), 8, 'r')} "
        yield f"{text}{_line(marks, scale, ' ')}".rstrip()
    if ridge:
        yield pad("", _NAME_COLUMNS + 10) + _ridge_note(ridge, scale)


def _points(result: RooflineTable) -> Iterator[tuple[str, float, str]]:
    """Each phase and its operations under it, with their intensities; what has none is left out."""
    for phase in result.phases:
        items = [("", "#", phase), *(("  ", "o", item) for name, item in result.operations if name == phase.name)]
        for indent, mark, item in items:
            if item.intensity:
                yield f"{indent}{item.name}", item.intensity, mark


def _column(value: float, scale: tuple[int, int]) -> int:
    share = (math.log10(value) - scale[0]) / (scale[1] - scale[0])
    return min(max(round(share * (_AXIS_COLUMNS - 1)), 0), _AXIS_COLUMNS - 1)


def _line(marks: Sequence[tuple[float, str]], scale: tuple[int, int], ground: str) -> str:
    cells = [ground] * _AXIS_COLUMNS
    for value, mark in marks:
        cells[_column(value, scale)] = mark
    return "".join(cells)


def _tick_labels(scale: tuple[int, int]) -> str:
    cells = [" "] * _AXIS_COLUMNS
    every = math.ceil((scale[1] - scale[0] + 1) / 8)
    for power in range(scale[0], scale[1] + 1, every):
        label = format_si(10.0**power, "", 1)
        start = min(max(_column(10.0**power, scale) - len(label) // 2, 0), _AXIS_COLUMNS - len(label))
        cells[start : start + len(label)] = label
    return "".join(cells).rstrip()


def _ridge_note(ridge: float, scale: tuple[int, int]) -> str:
    """The ridge under its column, on the side with room."""
    column, label = _column(ridge, scale), f"ridge {format_number(ridge)}"
    if column > len(label):
        return f"{pad(label, column - 1, 'r')} :"
    return f"{' ' * column}: {label}"


# ── intensities, balance, batch ────────────────────────────────────────────────────────────────────


def _balance(result: RooflineTable) -> str:
    lines = tables.balance(result)
    if not lines:
        return "balance batch: n/a, as it takes both the bandwidth and the compute rate"
    return "\n".join([tables.BALANCE, *(wrap(line, indent="  - ") for line in lines)])
