"""The answers to `fit` as JSON with stable keys.

In:   FitAnswer, Suggestions, MachineRows, NaiveRows
Out:  dicts ready for JSON: raw SI numbers, None for no value
Read next by: cli.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inference_bench.predict.fit import FitAnswer
from inference_bench.report.cache_json import cache_json

if TYPE_CHECKING:
    from inference_bench.predict.engine_command import EngineCommand
    from inference_bench.predict.naive_error import NaiveRow
    from inference_bench.predict.suggest import MachineRow, Suggestion

Json = dict[str, Any]


def fit_json(answer: FitAnswer, commands: Sequence[EngineCommand] = (), suggestions: Sequence[Suggestion] = ()) -> Json:
    """The stable keys of `fit --json`."""
    return {
        "schema": "inference-bench/fit/1",
        "model": _model(answer),
        "weights": {
            "bytes": answer.weights.total,
            "format": answer.weights.format_name,
            "bits_per_weight": answer.weights.bits_per_weight,
            "origin": answer.weights.origin,
        },
        "cache": cache_json(answer.cache),
        "allocation": _allocation(answer),
        "devices": _devices(answer),
        "offload": _offload(answer),
        "overhead_bytes": answer.overhead_bytes,
        "needed_bytes": answer.needed_bytes,
        "naive_needed_bytes": answer.naive_needed_bytes,
        "machine": _machine(answer),
        "fits": answer.fits,
        "naive_fits": answer.naive_fits,
        "headroom_bytes": answer.headroom_bytes,
        "max_context_tokens": answer.max_context_tokens,
        "max_sequences": answer.max_sequences,
        "decode": _decode(answer),
        "prefill": _prefill(answer),
        "commands": [dataclasses.asdict(command) for command in commands],
        "suggestions": [_suggestion(item) for item in suggestions],
        "assumptions": list(answer.assumptions),
    }


def _model(answer: FitAnswer) -> Json:
    params = answer.params
    return {
        "name": answer.model.name,
        "params_total": params.total,
        "params_active": params.active,
        "params_matmul": params.matmul,
        "params_matmul_active": params.matmul_active,
        "components": params.components,
        "apart": dict(params.apart),
        "num_hidden_layers": answer.model.num_hidden_layers,
        "source": answer.model.source.title,
        "as_of": answer.model.source.as_of,
    }


def _allocation(answer: FitAnswer) -> Json | None:
    allocation = answer.allocation
    if allocation is None:
        return None
    pool = allocation.pool
    return {
        "engine": allocation.engine,
        "bytes": allocation.num_bytes,
        "rule": allocation.rule,
        "context_tokens_per_sequence": allocation.context_tokens_per_sequence,
        "in_flight_tokens": allocation.in_flight_tokens,
        "layers": [
            {
                "type": row.layer_type,
                "count": row.count,
                "cells": row.cells,
                "streams": row.streams,
                "bytes": row.num_bytes,
                "holds": row.holds,
            }
            for row in allocation.layers
        ],
        "pool": None if pool is None else {
            **dataclasses.asdict(pool),
            "admission_bytes": pool.admission_bytes,
            "steady_bytes": pool.steady_bytes,
            "first_token_bytes": pool.first_token_bytes,
        },
    }  # fmt: skip


def _devices(answer: FitAnswer) -> Json:
    placement = answer.placement
    return {
        "count": placement.devices,
        "split": placement.split,
        "weight_bytes": placement.weight_bytes,
        "cache_bytes": placement.cache_bytes,
        "rule": placement.rule,
    }


def _offload(answer: FitAnswer) -> Json | None:
    split = answer.offload
    if split is None:
        return None
    return {
        "gpu_layers": split.gpu_layers,
        "num_hidden_layers": answer.model.num_hidden_layers,
        "gpu_bytes": split.gpu.total,
        "main_memory_bytes": split.cpu.total,
        "output_on_gpu": split.output_on_gpu,
        "duplicated_bytes": split.duplicated_bytes,
    }


def _machine(answer: FitAnswer) -> Json | None:
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
        "compute_format": answer.ceiling.compute_format if answer.ceiling else None,
        "ridge_flops_per_byte": answer.ceiling.ridge_flops_per_byte if answer.ceiling else None,
    }


def _decode(answer: FitAnswer) -> Json | None:
    limit, expected = answer.decode, answer.decode_expected_s
    if limit is None:
        return None
    batch = answer.cache.sequences
    return {
        "bound_s": limit.seconds,
        "bound_tokens_per_s": batch / limit.seconds if limit.seconds else None,
        "expected_tokens_per_s": [batch / expected.high, batch / expected.low] if expected else None,
        "expected_middle_tokens_per_s": batch / answer.decode_middle_s if answer.decode_middle_s else None,
        "expected_middle_s": answer.decode_middle_s,
        "expected_from": answer.expected_from,
        "limited_by": limit.limited_by,
        "flops": limit.flops,
        "bytes": limit.num_bytes,
        "intensity_flops_per_byte": limit.intensity,
        "fraction_of_peak": limit.fraction_of_peak,
    }


def _prefill(answer: FitAnswer) -> Json | None:
    limit, expected = answer.prefill, answer.prefill_expected_s
    if limit is None:
        return None
    return {
        "prompt_tokens": answer.cache.context_tokens,
        "bound_s": limit.seconds,
        "expected_s": [expected.low, expected.high] if expected else None,
        "expected_middle_s": answer.prefill_middle_s,
        "expected_from": answer.expected_from,
        "limited_by": limit.limited_by,
        "flops": limit.flops,
        "bytes": limit.num_bytes,
        "intensity_flops_per_byte": limit.intensity,
        "fraction_of_peak": limit.fraction_of_peak,
    }


def _suggestion(item: Suggestion) -> Json:
    answer = item.answer
    return {
        "weights": answer.weights.format_name,
        "bits_per_weight": item.bits_per_weight,
        "cache": answer.cache.number_format,
        "context_tokens": answer.cache.context_tokens,
        "sequences": answer.cache.sequences,
        "needed_bytes": answer.needed_bytes,
        "headroom_bytes": answer.headroom_bytes,
        "saved_bytes": item.saved_bytes,
        "decode_bound_tokens_per_s": item.decode_bound_tokens_per_s,
        "speed_up": item.speed_up,
    }


def ranking_json(rows: Sequence[MachineRow]) -> Json:
    """The stable keys of `fit MODEL --on all --json`."""
    return {
        "schema": "inference-bench/fit-ranking/1",
        "model": rows[0].answer.model.name if rows else None,
        "rows": [
            {
                "machine": _machine(row.answer),
                "fits": row.answer.fits,
                "needed_bytes": row.answer.needed_bytes,
                "headroom_bytes": row.answer.headroom_bytes,
                "max_context_tokens": row.answer.max_context_tokens,
                "max_sequences": row.answer.max_sequences,
                "decode_bound_tokens_per_s": row.decode_bound_tokens_per_s,
                "prefill_bound_s": row.answer.prefill.seconds if row.answer.prefill else None,
            }
            for row in rows
        ],
    }


def naive_error_json(rows: Sequence[NaiveRow], median: float | None) -> Json:
    """The stable keys of `models --naive-error --json`."""
    return {
        "schema": "inference-bench/naive-error/1",
        "models": len(rows),
        "uniform": sum(row.is_uniform for row in rows),
        "median_factor_where_wrong": median,
        "rows": [
            {
                "name": row.model,
                "layers": row.layer_types,
                "contexts": [
                    {
                        "context_tokens": count.context_tokens,
                        "naive_bytes": count.naive_bytes,
                        "true_bytes": count.total_bytes,
                        "factor": count.naive_factor,
                    }
                    for count in row.counts
                ],
            }
            for row in rows
        ],
    }
