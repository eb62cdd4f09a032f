"""One run of this package's client in a process of its own: `python own.py '{"url": ..., "requests": 64, ...}'`.

It sends, decodes, summarises, and prints how it fared as JSON; with `dump` it also writes every stamp to that file, which
costs processor time and is not done where that is measured.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any

from inference_bench.measure.client_health import health_values
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.load import LoadOptions, run_load
from inference_bench.measure.target import Endpoint, Target
from inference_bench.metrics import summarise
from inference_bench.records import RequestStatus
from inference_bench.workload import RequestShape, closed_loop


def run(asked: dict[str, Any]) -> dict[str, Any]:
    if asked.get("niceness"):
        os.nice(asked["niceness"])
    target = Target(asked["url"], model="conform", endpoint=Endpoint.CHAT)
    workload = closed_loop("paced", [RequestShape(16, asked["tokens"])], asked["streams"], asked["requests"])
    options = LoadOptions(clock=time.perf_counter, stamps=StampSource(asked["stamps"]))
    result = run_load(target, workload, options)
    metrics = summarise(result.records)
    failed = [record.error for record in result.records if record.status is not RequestStatus.COMPLETED]
    if asked.get("dump"):
        times = [(record.sent_s, tuple(record.chunk_times_s)) for record in result.records]
        Path(asked["dump"]).write_bytes(pickle.dumps(times))
    health = health_values(result.health)
    shown = ("stamp_source", "censored_fraction", "read_delay_p99_s", "cpu_share", "valid", "invalid_because", "loop")
    return {
        "failed": failed[:1],
        "completed": metrics.requests.completed,
        "health": {name: health.get(name) for name in shown},
    }


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1])), default=str))
