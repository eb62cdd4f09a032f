"""A machine's measured ceilings, as JSON with stable keys and as text for a terminal.

In:   ProbeResult
Out:  a dict ready for JSON or a text of at most 100 columns
"""

from __future__ import annotations

import dataclasses
from typing import Any

from inference_bench.measure.ceilings import ProbeResult
from inference_bench.report.text import table, wrap
from inference_bench.units import format_bytes, format_fraction, format_number, format_seconds, format_si


def probe_json(result: ProbeResult) -> dict[str, Any]:
    """The stable keys of `probe --json`; raw values of every row are kept."""
    return {
        "schema": "inference-bench/probe/1",
        "bandwidth_bytes_per_s": result.bandwidth_bytes_per_s,
        "bandwidth_method": result.bandwidth_method,
        "peak_flops_per_s": result.peak_flops_per_s,
        "peak_batch": result.peak_batch,
        "ridge_flops_per_byte": result.ridge_flops_per_byte,
        "compute_format": result.compute_format,
        "other_peaks": dict(result.other_peaks),
        "matrix_size": result.matrix_size,
        "rows": [
            {
                "batch": row.batch,
                "seconds": row.seconds,
                "flops": row.counted_flops,
                "bytes": row.counted_bytes,
                "flops_per_s": row.flops_per_s,
                "bytes_per_s": row.bytes_per_s,
                "intensity_flops_per_byte": row.intensity_flops_per_byte,
                "spread_fraction": row.spread_fraction,
                "values_s": list(row.timing.values_s),
            }
            for row in result.rows
        ],
        "bandwidth_rows": [
            {
                "method": row.method,
                "description": row.description,
                "is_read_dominated": row.is_read_dominated,
                "num_threads": row.num_threads,
                "counted_bytes": row.counted_bytes,
                "array_over_cache": row.array_over_cache,
                "seconds": row.seconds,
                "bytes_per_s": row.bytes_per_s,
                "spread_fraction": row.spread_fraction,
                "values_s": list(row.timing.values_s),
            }
            for row in result.bandwidth_rows
        ],
        "identity": dataclasses.asdict(result.identity),
        "gpu": dataclasses.asdict(result.gpu) if result.gpu else None,
        "method": result.method,
        "notes": list(result.notes),
        "seed": result.seed,
        "elapsed_s": result.elapsed_s,
        "origin": result.origin,
    }


def probe_text(result: ProbeResult) -> str:
    """The same for a terminal: the two ceilings first, then every row behind them."""
    peaks = {result.compute_format: result.peak_flops_per_s, **result.other_peaks}
    rates = [f"{format_si(peak, 'FLOP/s')} {name}" for name, peak in peaks.items()]
    head = wrap(
        f"{_device(result)}: {format_si(result.bandwidth_bytes_per_s, 'B/s')} memory bandwidth, "
        f"{', '.join(rates)}, ridge "
        f"{format_number(result.ridge_flops_per_byte)} FLOP/byte (measured)"
    )
    moved = [
        (
            row.description,
            format_bytes(row.counted_bytes),
            format_seconds(row.seconds),
            format_si(row.bytes_per_s, "B/s"),
            format_fraction(row.spread_fraction),
        )
        for row in result.bandwidth_rows
    ]
    products = [
        (
            str(row.batch),
            format_seconds(row.seconds),
            format_si(row.flops_per_s, "FLOP/s"),
            format_si(row.bytes_per_s, "B/s"),
            format_number(row.intensity_flops_per_byte),
            format_fraction(row.spread_fraction),
        )
        for row in result.rows
    ]
    size = f"{result.matrix_size} x {result.matrix_size}"
    notes = [wrap(f"note: {note}") for note in result.notes]
    return "\n\n".join(
        [
            head,
            table(("data moved", "counted bytes", "median", "rate", "spread"), moved, "lrrrr"),
            table((f"{size} times B columns", "median", "rate", "traffic", "FLOP/byte", "spread"), products, "rrrrrr"),
            "\n".join([wrap(f"method: {result.method}"), *notes]),
        ]
    )


def _device(result: ProbeResult) -> str:
    """The card where one was probed, else the processor and its cores."""
    if result.gpu is not None:
        return result.gpu.name
    identity = result.identity
    return f"{identity.cpu_model or identity.architecture}, {identity.num_usable_cores} core(s)"
