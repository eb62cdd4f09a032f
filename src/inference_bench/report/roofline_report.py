"""The roofline table, as JSON with stable keys and as text for a terminal.

In:   RooflineTable
Out:  a dict ready for JSON or a text of at most 100 columns
"""

from __future__ import annotations

from typing import Any

from inference_bench.report.text import table, wrap
from inference_bench.roofline import Bound, RooflineTable
from inference_bench.units import format_bytes, format_count, format_fraction, format_number, format_seconds, format_si


def _bound_json(item: Bound) -> dict[str, Any]:
    return {
        "name": item.name,
        "flops": item.flops,
        "bytes": item.num_bytes,
        "intensity": item.intensity,
        "bound_s": item.seconds,
        "limited_by": item.limited_by,
        "fraction_of_peak": item.fraction_of_peak,
    }


def roofline_json(result: RooflineTable) -> dict[str, Any]:
    """The stable keys of `roofline --json`."""
    return {
        "schema": "inference-bench/roofline/1",
        "model": result.model,
        "machine": result.machine,
        "compute_format": result.ceiling.compute_format,
        "bandwidth_bytes_per_s": result.ceiling.bandwidth_bytes_per_s,
        "peak_flops_per_s": result.ceiling.peak_flops_per_s,
        "ridge_flops_per_byte": result.ceiling.ridge_flops_per_byte,
        "context_tokens": result.context_tokens,
        "batch": result.batch,
        "prompt_tokens": result.prompt_tokens,
        "phases": [_bound_json(item) for item in result.phases],
        "operations": [{"phase": phase, **_bound_json(item)} for phase, item in result.operations],
        "origin": "bound",
        "assumptions": list(result.assumptions),
    }


def roofline_text(result: RooflineTable) -> str:
    """The same for a terminal."""
    ceiling = result.ceiling
    head = wrap(
        f"{result.model} on {result.machine}: {format_si(ceiling.bandwidth_bytes_per_s, 'B/s')}, "
        f"{format_si(ceiling.peak_flops_per_s, 'FLOP/s')} {ceiling.compute_format or ''} dense, ridge "
        f"{format_number(ceiling.ridge_flops_per_byte)} FLOP/byte; decode of {format_count(result.batch)} sequence(s) at "
        f"{format_count(result.context_tokens)} tokens, prefill of {format_count(result.prompt_tokens)} tokens"
    )
    rows = []
    for phase in result.phases:
        rows.append(_row(phase.name, phase))
        rows += [_row(f"  {item.name}", item) for name, item in result.operations if name == phase.name]
    headers = ("phase, operation", "FLOPs", "bytes", "FLOP/byte", "bound", "limited by", "of peak")
    assumptions = "\n".join(["assumptions", *(wrap(line, indent="  - ") for line in result.assumptions)])
    return "\n\n".join([head, table(headers, rows, "lrrrrlr"), assumptions])


def _row(name: str, item: Bound) -> tuple[str, ...]:
    return (
        name,
        format_si(item.flops, "", 3) if item.flops else "0",
        format_bytes(item.num_bytes),
        format_number(item.intensity),
        format_seconds(item.seconds),
        str(item.limited_by),
        format_fraction(item.fraction_of_peak),
    )
