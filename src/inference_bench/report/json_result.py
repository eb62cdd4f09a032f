"""A verification as JSON: raw SI numbers under stable keys, null where there is no value.

In:   VerifyResult
Out:  a dict that `json.dumps` takes with allow_nan=False
Leaves out: raw samples, which stay in the run folder
Read next by: cli, and whoever reads result.json later.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inference_bench.compare import ComparedPoint
from inference_bench.origin import Origin
from inference_bench.report.cache_json import cache_json
from inference_bench.report.closed_loop_json import closed_loop_json
from inference_bench.report.identity_rows import file_name
from inference_bench.report.probe_report import probe_json
from inference_bench.report.result_tables import counted_cache
from inference_bench.report.wording import ESTIMATE, FITTED, REPORTED
from inference_bench.verify.result import ClientNumbers, GroupMetrics, VerifyResult
from inference_bench.verify.saved import REPORT_FILE

Json = dict[str, Any]


def verify_json(result: VerifyResult) -> Json:
    """The stable keys of `verify --json`."""
    found = {
        "schema": "inference-bench/verify/1",
        "started_at": result.started_at,
        "elapsed_s": result.elapsed_s,
        "target": result.target,
        "machine": _machine(result),
        "model": _model(result),
        "engine": _engine(result),
        "cache": cache_json(counted_cache(result)),
        "cache_check": None if result.cache_check is None else dataclasses.asdict(result.cache_check),
        "points": [_point(point) for point in result.points],
        "curve": [{**dataclasses.asdict(item), "origin": Origin.BOUND} for item in result.curve],
        "batch_lines": [
            {**dataclasses.asdict(line), "is_telling": line.is_telling, "origin": FITTED} for line in result.batch_lines
        ],
        "groups": [_group(group) for group in result.groups],
        "client": _client(result.client),
        **closed_loop_json(result),
        "reading": result.reading,
        "assumptions": result.assumptions,
        "notes": result.notes,
        "disturbances": result.disturbances,
        "count_doubts": result.count_doubts,
        "trouble": result.trouble,
        "is_interrupted": result.is_interrupted,
        "versions": result.versions,
        "seed": result.seed,
        "manifest_sha256": result.manifest_sha256,
        "run_dir": result.run_dir,
        "report_path": result.run_dir / REPORT_FILE,
    }
    return {key: _plain(value) for key, value in found.items()}


def _plain(value: Any) -> Any:
    """Only what JSON knows; a number that is not finite is no value."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _client(client: ClientNumbers) -> Json:
    """The client's own numbers; shares of the processor are of all cores, while the engine was measured."""
    cpu = client.cpu
    shares = {} if cpu is None else {"client_share": cpu.client_share, "engine_share": cpu.engine_share}
    return {**dataclasses.asdict(client), "cpu": None if cpu is None else {**dataclasses.asdict(cpu), **shares}}


def _machine(result: VerifyResult) -> Json:
    machine, ceiling = result.machine, result.ceiling
    return {
        "name": machine.name,
        "memory_bytes": machine.memory_bytes,
        "bandwidth_bytes_per_s": ceiling.bandwidth_bytes_per_s,
        "peak_flops_per_s": ceiling.peak_flops_per_s,
        "compute_format": ceiling.compute_format,
        "ridge_flops_per_byte": ceiling.ridge_flops_per_byte,
        "origin": machine.origin,
        "source": machine.source.title,
        "as_of": machine.source.as_of,
        "note": machine.note,
        "probe": None if result.probe is None else probe_json(result.probe),
    }


def _model(result: VerifyResult) -> Json:
    model = result.model
    return {
        "name": model.spec.name,
        "model_type": model.spec.model_type,
        "params_total": model.params.total,
        "params_active": model.params.active,
        "params_matmul": model.params.matmul,
        "num_hidden_layers": model.spec.num_hidden_layers,
        "weights": {
            "bytes": model.weights.total,
            "format": model.weights.format_name,
            "bits_per_weight": model.weights.bits_per_weight,
            "origin": model.weights.origin,
        },
        "file_name": model.file_name,
        "file_bytes": model.file_bytes,
        "sha256": model.sha256,
        "source": model.spec.source.title,
        "as_of": model.spec.source.as_of,
    }


def _engine(result: VerifyResult) -> Json:
    engine, figures = result.engine, result.figures
    return {
        "name": engine.name,
        "version": engine.version,
        "build": engine.build,
        "source": engine.source,
        "model_name": engine.model_name,
        "model_file": None if engine.model_path is None else file_name(engine.model_path),
        "model_sha256": engine.model_sha256,
        "model_files": {file_name(name): digest for name, digest in engine.model_files.items()},
        "settings": dict(engine.flags),
        "figures": {**dataclasses.asdict(figures), "kv_bytes": figures.kv_bytes, "origin": REPORTED},
    }


def _point(point: ComparedPoint) -> Json:
    """One point; `origin` says what each of its times and estimates is."""
    measured = point.measured
    return {
        "phase": measured.phase,
        "batch": measured.batch,
        "context_tokens": measured.context_tokens,
        "nominal_context_tokens": measured.nominal_context_tokens,
        "measured_s": measured.seconds,
        "num_samples": measured.num_samples,
        "interval_s": None if measured.interval is None else dataclasses.asdict(measured.interval),
        "relative_spread": measured.relative_spread,
        "engine_s": measured.engine_s,
        "mean_s": measured.mean_s,
        "num_waves": measured.num_waves,
        "bound_s": point.bound.seconds,
        "fraction_of_bound": point.fraction_of_bound,
        "limited_by": point.bound.limited_by,
        "verdict": point.verdict,
        "flops": point.bound.flops,
        "bytes": point.bound.num_bytes,
        "intensity_flops_per_byte": point.bound.intensity,
        "measured_tokens_per_s": point.measured_tokens_per_s,
        "bound_tokens_per_s": point.bound_tokens_per_s,
        "mbu": point.mbu,
        "mfu": point.mfu,
        "origin": {
            "measured_s": Origin.MEASURED,
            "engine_s": REPORTED,
            "bound_s": Origin.BOUND,
            "flops": Origin.COUNTED,
            "bytes": Origin.COUNTED,
            "mbu": ESTIMATE,
            "mfu": ESTIMATE,
        },
    }


def _group(group: GroupMetrics) -> Json:
    return {
        "name": group.name,
        "concurrency": group.concurrency,
        "prompt_tokens": group.prompt_tokens,
        "requested_output_tokens": group.output_tokens,
        **dataclasses.asdict(group.metrics),
        "origin": Origin.MEASURED,
    }
