"""Two made run folders: a load on a schedule, or a verification."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from inference_bench.loadtest.workload_memory import META_KEY, asked_of, asked_to_json
from inference_bench.measure.store import RunFolder
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.workload import OpenLoop, Requests, Workload

COUNT = 60
TIMES_S = tuple(index * 0.5 for index in range(COUNT))


def workload(times_s: tuple[float, ...] = TIMES_S, output_tokens: int = 11) -> Workload:
    requests = Requests(array("q", [100] * len(times_s)), array("q", [output_tokens] * len(times_s)))
    return Workload("made", requests, OpenLoop(array("d", times_s), "made"), 0)


def record(index: int, ttft_s: float, gap_s: float = 0.01, **changes: Any) -> RequestRecord:
    planned_s = TIMES_S[index]
    times = tuple(planned_s + ttft_s + gap_s * number for number in range(11))
    values: dict[str, Any] = {
        "request_id": f"measure-{index:05d}",
        "origin": Origin.MEASURED,
        "stage": Stage.MEASURE,
        "status": RequestStatus.COMPLETED,
        "planned_s": planned_s,
        "sent_s": planned_s,
        "end_s": times[-1],
        "chunk_times_s": times,
        "prompt_tokens": 100,
        "output_tokens": 11,
        "requested_output_tokens": 11,
        "group": "measure",
        "index": index,
    }
    return RequestRecord(**{**values, **changes})


def load_run(
    folder: Path,
    name: str,
    ttft_s: Callable[[int], float],
    asked: Workload | None = None,
    result: dict[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """A run folder with one record a request."""
    run = RunFolder.create(folder, f"{name}-load")
    run.update_meta({META_KEY: {"measure": asked_to_json(asked_of(asked or workload()))}})
    with run.open_writer() as writer:
        for index in range(COUNT):
            writer.append(record(index, ttft_s(index), **changes))
    if result is not None:
        (run.path / "result.json").write_text(json.dumps(result))
    return run.path


def point(seconds: float, batch: int = 1, low: float = 0.99, high: float = 1.01, **changes: Any) -> dict[str, Any]:
    return {
        "phase": "decode",
        "batch": batch,
        "nominal_context_tokens": 128,
        "measured_s": seconds,
        "interval_s": {"low": low * seconds, "high": high * seconds, "confidence": 0.95},
        "bound_s": 0.004,
        "flops": 2.7e8 * batch,
        "bytes": 9.9e7,
        **changes,
    }


def verify_run(
    folder: Path,
    name: str,
    points: list[dict[str, Any]],
    num_waves: int = 3,
    load: Workload | None = None,
    output_tokens: int = 11,
    **result: Any,
) -> Path:
    """A verification: waves of one step of its sweep, which have no place in a workload, and the load that it sent."""
    run = RunFolder.create(folder, f"{name}-verify")
    if load is not None:
        run.update_meta({META_KEY: {"load-below": asked_to_json(asked_of(load))}})
    with run.open_writer() as writer:
        for index in range(num_waves):
            wave = record(index, 0.1, group="c1-p128", requested_output_tokens=output_tokens)
            writer.append(replace(wave, index=None, request_id=f"sweep-{index:05d}"))
        for index in range(0 if load is None else COUNT):
            writer.append(record(index, 0.1, group="load-below", request_id=f"load-{index:05d}"))
    values = {
        "schema": "inference-bench/verify/1",
        "machine": {
            "name": "made",
            "bandwidth_bytes_per_s": 2e10,
            "peak_flops_per_s": 1.2e11,
            "compute_format": "fp32",
        },
        "engine": {"name": "llama.cpp", "version": name, "settings": {"num_threads": 2}},
        "model": {"name": "tiny <b>", "weights": {"format": "Q4_1"}},
        "points": points,
        **result,
    }
    (run.path / "result.json").write_text(json.dumps(values))
    return run.path
