"""The answer to `fit`, as JSON with stable keys and as text for a terminal.

In:   FitAnswer
Out:  a dict ready for JSON (raw SI numbers, None for no value) or a text of at most 100 columns
Leaves out: arithmetic; every number was computed before
"""

from __future__ import annotations

from typing import Any

from inference_bench.predict.fit import FitAnswer
from inference_bench.predict.latency import Range
from inference_bench.report.cache_json import cache_json
from inference_bench.report.text import table, wrap
from inference_bench.units import (
    NOT_AVAILABLE,
    format_bytes,
    format_bytes_binary,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
)


def fit_json(answer: FitAnswer) -> dict[str, Any]:
    """The stable keys of `fit --json`."""
    return {
        "schema": "inference-bench/fit/1",
        "model": _model_json(answer),
        "weights": {
            "bytes": answer.weights.total,
            "format": answer.weights.format_name,
            "bits_per_weight": answer.weights.bits_per_weight,
            "origin": answer.weights.origin,
        },
        "cache": cache_json(answer.cache),
        "allocation": _allocation_json(answer),
        "overhead_bytes": answer.overhead_bytes,
        "needed_bytes": answer.needed_bytes,
        "naive_needed_bytes": answer.naive_needed_bytes,
        "machine": _machine_json(answer),
        "fits": answer.fits,
        "naive_fits": answer.naive_fits,
        "headroom_bytes": answer.headroom_bytes,
        "max_context_tokens": answer.max_context_tokens,
        "max_sequences": answer.max_sequences,
        "decode": _decode_json(answer),
        "prefill": _prefill_json(answer),
        "assumptions": list(answer.assumptions),
    }


def _model_json(answer: FitAnswer) -> dict[str, Any]:
    return {
        "name": answer.model.name,
        "params_total": answer.params.total,
        "params_active": answer.params.active,
        "params_matmul": answer.params.matmul,
        "num_hidden_layers": answer.model.num_hidden_layers,
        "source": answer.model.source.title,
        "as_of": answer.model.source.as_of,
    }


def _allocation_json(answer: FitAnswer) -> dict[str, Any] | None:
    allocation = answer.allocation
    if allocation is None:
        return None
    return {
        "engine": allocation.engine,
        "bytes": allocation.num_bytes,
        "rule": allocation.rule,
        "context_tokens_per_sequence": allocation.context_tokens_per_sequence,
        "layers": [
            {
                "type": row.layer_type,
                "count": row.count,
                "cells": row.cells,
                "streams": row.streams,
                "bytes": row.num_bytes,
            }
            for row in allocation.layers
        ],
    }


def _machine_json(answer: FitAnswer) -> dict[str, Any] | None:
    machine = answer.machine
    if machine is None:
        return None
    return {
        "name": machine.name,
        "memory_bytes": machine.memory_bytes,
        "bandwidth_bytes_per_s": machine.bandwidth_bytes_per_s,
        "peak_flops_per_s": dict(machine.peak_flops_per_s),
        "origin": machine.origin,
        "source": machine.source.title,
        "as_of": machine.source.as_of,
    }


def _decode_json(answer: FitAnswer) -> dict[str, Any] | None:
    limit, expected = answer.decode, answer.decode_expected_s
    if limit is None:
        return None
    batch = answer.cache.sequences
    return {
        "bound_s": limit.seconds,
        "bound_tokens_per_s": batch / limit.seconds if limit.seconds else None,
        "expected_tokens_per_s": [batch / expected.high, batch / expected.low] if expected else None,
        "limited_by": limit.limited_by,
        "flops": limit.flops,
        "bytes": limit.num_bytes,
    }


def _prefill_json(answer: FitAnswer) -> dict[str, Any] | None:
    limit, expected = answer.prefill, answer.prefill_expected_s
    if limit is None:
        return None
    return {
        "prompt_tokens": answer.cache.context_tokens,
        "bound_s": limit.seconds,
        "expected_s": [expected.low, expected.high] if expected else None,
        "limited_by": limit.limited_by,
        "flops": limit.flops,
        "bytes": limit.num_bytes,
    }


def fit_text(answer: FitAnswer) -> str:
    """The same for a terminal: the verdict first, then where it comes from."""
    sections = [_verdict(answer), _memory_table(answer), _cache_table(answer), _speed_text(answer)]
    sections.append("\n".join(["assumptions", *(wrap(line, indent="  - ") for line in answer.assumptions)]))
    return "\n\n".join(section for section in sections if section)


def _verdict(answer: FitAnswer) -> str:
    cache = answer.cache
    what = (
        f"{answer.model.name}: {format_count(answer.params.total)} parameters, {cache.sequences} sequence(s) of "
        f"{format_count(cache.context_tokens)} tokens"
    )
    if answer.machine is None:
        return wrap(f"{what} need {_both(answer.needed_bytes)}; name a machine to see whether it fits.")
    if answer.fits is None:
        return wrap(
            f"{what} need {_both(answer.needed_bytes)}; how much memory {answer.machine.name} has is not known."
        )
    word = "fits" if answer.fits else "does not fit"
    spare = f"{_both(abs(answer.headroom_bytes or 0))} {'to spare' if answer.fits else 'too much'}"
    lines = [wrap(f"{what}: {word} {answer.machine.name}, {spare}.")]
    if answer.naive_fits != answer.fits:
        lines.append(
            wrap("The usual formula, which charges every layer for the whole context, would have said the opposite.")
        )
    return "\n".join(lines)


def _both(num_bytes: int | None) -> str:
    return f"{format_bytes(num_bytes)} ({format_bytes_binary(num_bytes)})"


def _memory_table(answer: FitAnswer) -> str:
    rows = [
        (f"weights, {answer.weights.format_name}", answer.weights.total, "counted"),
        (f"cache, {answer.cache.number_format}, true", answer.cache.num_bytes, "counted"),
        ("cache by the usual formula", answer.cache.naive_bytes, _factor(answer.cache.naive_factor)),
    ]
    if answer.allocation:
        rows.append(
            (f"cache as {answer.allocation.engine} allocates it", answer.allocation.num_bytes, "counted, its rule")
        )
    rows.append(("runtime overhead", answer.overhead_bytes, "assumed"))
    rows.append(("needed", answer.needed_bytes, "weights + cache + overhead"))
    if answer.machine and answer.machine.memory_bytes:
        rows.append((f"memory of {answer.machine.name}", answer.machine.memory_bytes, str(answer.machine.origin)))
    return table(
        ("memory", "bytes", "decimal", "binary", ""),
        [(name, format_count(size), format_bytes(size), format_bytes_binary(size), note) for name, size, note in rows],
        "lrrrl",
    )


def _factor(factor: float | None) -> str:
    return NOT_AVAILABLE if factor is None else f"{format_number(factor)} times the true cache"


def _cache_table(answer: FitAnswer) -> str:
    rows = [
        (
            str(layer.layer_type),
            str(layer.count),
            format_count(layer.sliding_window) if layer.sliding_window else "all",
            format_count(layer.positions),
            format_count(layer.bytes_per_position),
            format_bytes(layer.num_bytes),
        )
        for layer in answer.cache.layers
    ]
    text = table(("cache by layer type", "layers", "window", "positions kept", "bytes each", "total"), rows, "lrrrrr")
    slope = f"one more token adds {format_count(answer.cache.next_token_bytes)} bytes to a sequence at this length"
    return f"{text}\n{slope}"


def _speed_text(answer: FitAnswer) -> str:
    if answer.machine is None or answer.decode is None or answer.prefill is None:
        return ""
    batch = answer.cache.sequences
    rows = []
    for name, limit, expected, tokens in (
        (f"decode step, batch {batch}", answer.decode, answer.decode_expected_s, batch),
        (
            f"prefill, {format_count(answer.cache.context_tokens)} tokens",
            answer.prefill,
            answer.prefill_expected_s,
            answer.cache.context_tokens,
        ),
    ):
        rate = f"{format_number(tokens / limit.seconds)} tokens/s" if limit.seconds else NOT_AVAILABLE
        rows.append(
            (
                name,
                format_seconds(limit.seconds),
                rate,
                _range(expected),
                str(limit.limited_by),
                format_fraction(limit.fraction_of_peak),
            )
        )
    text = table(("speed", "bound", "at the bound", "expected", "limited by", "of peak compute"), rows, "lrrrlr")
    limits = (
        f"longest context for {batch} sequence(s): {format_count(answer.max_context_tokens)} tokens; "
        f"most sequences of {format_count(answer.cache.context_tokens)} tokens: {format_count(answer.max_sequences)}"
    )
    return f"{text}\n{limits}"


def _range(seconds: Range | None) -> str:
    return NOT_AVAILABLE if seconds is None else f"{format_seconds(seconds.low)} - {format_seconds(seconds.high)}"
