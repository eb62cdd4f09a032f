"""What is known, from where, as of when: models, machines and number formats as rows.

In:   nothing, or one name
Out:  rows for JSON, or a table of at most 100 columns
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inference_bench.accounting.cache import count_cache
from inference_bench.accounting.params import count_params
from inference_bench.facts.formats import NumberFormat, known_formats, number_format
from inference_bench.facts.hardware import HardwareSpec, hardware, known_hardware
from inference_bench.facts.load import known_model, known_models
from inference_bench.facts.models import ModelSpec
from inference_bench.predict.fit import cache_format
from inference_bench.report.text import table, wrap
from inference_bench.units import format_bytes_binary, format_count, format_number, format_si

Row = dict[str, Any]


def models_rows(name: str | None) -> list[Row]:
    """The known models, or the one that was named."""
    return [_model_row(model) for model in ([known_model(name)] if name else known_models())]


def refreshed_rows(model: ModelSpec) -> list[Row]:
    """One model as its config reads now, in the same columns."""
    return [_model_row(model)]


def _model_row(model: ModelSpec) -> Row:
    params = count_params(model)
    return {
        "name": model.name,
        "model_type": model.model_type,
        "params_total": params.total,
        "params_active": params.active,
        "num_hidden_layers": model.num_hidden_layers,
        "layers": [
            {"type": layer.layer_type, "count": layer.count, "sliding_window": layer.sliding_window}
            for layer in count_cache(model, cache_format(None), 0).layers
        ],
        "max_position_embeddings": model.max_position_embeddings,
        "source": model.source.title,
        "as_of": model.source.as_of,
    }


def hardware_rows(name: str | None) -> list[Row]:
    """The known machines, or the one that was named."""
    return [_hardware_row(machine) for machine in ([hardware(name)] if name else known_hardware())]


def _hardware_row(machine: HardwareSpec) -> Row:
    return {
        "name": machine.name,
        "kind": machine.kind,
        "vendor": machine.vendor,
        "architecture": machine.architecture,
        "memory_bytes": machine.memory_bytes,
        "bandwidth_bytes_per_s": machine.bandwidth_bytes_per_s,
        "peak_flops_per_s": dict(machine.peak_flops_per_s),
        "acc16_flops_per_s": dict(machine.acc16_flops_per_s or {}),
        "interconnect_bytes_per_s": machine.interconnect_bytes_per_s,
        "tdp_w": machine.tdp_w,
        "printed": dict(machine.printed or {}),
        "origin": machine.origin,
        "note": machine.note,
        "source": machine.source.title,
        "as_of": machine.source.as_of,
    }


def formats_rows(name: str | None) -> list[Row]:
    """The known number formats, or the one that was named."""
    return [_format_row(fmt) for fmt in ([number_format(name)] if name else known_formats())]


def _format_row(fmt: NumberFormat) -> Row:
    return {
        "name": fmt.name,
        "bits_per_value": float(fmt.bits_per_value),
        "block_values": fmt.block_values,
        "block_bytes": fmt.block_bytes,
        "ggml_type": fmt.ggml_type,
        "note": fmt.note,
        "source": fmt.source.title,
        "as_of": fmt.source.as_of,
    }


def rows_json(kind: str, rows: Sequence[Row]) -> Row:
    """The rows under a schema name."""
    return {"schema": f"inference-bench/{kind}/1", "rows": list(rows)}


def rows_text(kind: str, rows: Sequence[Row]) -> str:
    """A table; a single row is followed by its source and note."""
    headers, cells, align = {"models": _models_table, "hardware": _hardware_table, "formats": _formats_table}[kind](
        rows
    )
    text = table(headers, cells, align)
    if len(rows) != 1:
        return text
    if kind == "hardware":
        text = f"{text}\n\n{_machine_details(rows[0])}"
    facts = [("source", rows[0]["source"]), ("as of", rows[0]["as_of"]), ("note", rows[0].get("note"))]
    return "\n".join([text, "", *(wrap(f"{name}: {fact}") for name, fact in facts if fact)])


def _machine_details(row: Row) -> str:
    """Every figure of one machine: the dense rates first, those with fp16 accumulation apart."""
    dense = "with fp32 accumulation (int32 for int8)"
    rows = [(f"{name} products", format_si(rate, "FLOP/s", 4), dense) for name, rate in row["peak_flops_per_s"].items()]
    apart = "with fp16 accumulation; never taken for the dense rate"
    rows += [
        (f"{name} products", format_si(rate, "FLOP/s", 4), apart) for name, rate in row["acc16_flops_per_s"].items()
    ]
    rows.append(("interconnect", format_si(row["interconnect_bytes_per_s"], "B/s"), "both directions summed"))
    rows.append(("power", format_si(row["tdp_w"], "W"), row["kind"] or ""))
    return table(("figure", "value", ""), rows, "lrl")


Table = tuple[Sequence[str], list[Sequence[str]], str]


def _models_table(rows: Sequence[Row]) -> Table:
    cells: list[Sequence[str]] = [
        (
            row["name"],
            row["model_type"],
            format_count(row["params_total"]),
            _layers(row),
            format_count(row["max_position_embeddings"]),
            row["as_of"],
        )
        for row in rows
    ]
    return ("model", "type", "parameters", "layers", "context", "as of"), cells, "llrlrl"


def _layers(row: Row) -> str:
    parts = []
    for layer in row["layers"]:
        window = f" {layer['sliding_window']}" if layer["sliding_window"] else ""
        parts.append(f"{layer['count']} {str(layer['type']).removesuffix('_attention')}{window}")
    return ", ".join(parts)


def _hardware_table(rows: Sequence[Row]) -> Table:
    cells: list[Sequence[str]] = []
    for row in rows:
        peaks = row["peak_flops_per_s"]
        rates = [format_si(peaks.get(name), "FLOP/s") for name in ("bf16", "fp8")]
        cells.append(
            (
                row["name"],
                format_bytes_binary(row["memory_bytes"]),
                format_si(row["bandwidth_bytes_per_s"], "B/s"),
                *rates,
                row["as_of"],
            )
        )
    return ("machine", "memory", "bandwidth", "bf16 dense", "fp8 dense", "as of"), cells, "lrrrrl"


def _formats_table(rows: Sequence[Row]) -> Table:
    cells: list[Sequence[str]] = [
        (
            row["name"],
            format_number(row["bits_per_value"], 10).rstrip("0").rstrip("."),
            str(row["block_values"]),
            str(row["block_bytes"]),
            row["note"],
        )
        for row in rows
    ]
    return ("format", "bits a value", "values a block", "bytes a block", "note"), cells, "lrrrl"
