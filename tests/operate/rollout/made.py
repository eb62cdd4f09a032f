"""A made run folder of a load on a schedule, to be replayed."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

from inference_bench.loadtest.workload_memory import META_KEY, asked_of, asked_to_json
from inference_bench.measure.store import RunFolder
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.workload import ClosedLoop, OpenLoop, Requests, Workload

PRIMARY = "http://127.0.0.1:9"
TIMES_S = (0.0, 0.1 + 0.2, 0.4, 0.55)  # the second has no short decimal form


def record(index: int, **changes: Any) -> RequestRecord:
    planned_s = 7.0 + TIMES_S[index]  # on the run's own clock, in ticks
    values: dict[str, Any] = {
        "request_id": f"measure-{index:05d}",
        "origin": Origin.MEASURED,
        "stage": Stage.MEASURE,
        "status": RequestStatus.COMPLETED,
        "planned_s": planned_s,
        "sent_s": planned_s,
        "end_s": planned_s + 0.2,
        "chunk_times_s": (planned_s + 0.1, planned_s + 0.2),
        "prompt_tokens": 20 + index,
        "output_tokens": 2,
        "requested_output_tokens": 2 + index,
        "group": "measure",
        "index": index,
    }
    return RequestRecord(**{**values, **changes})


def recorded_run(folder: Path, is_closed: bool = False, target: str = PRIMARY, **changes: Any) -> Path:
    run = RunFolder.create(folder, "load")
    count = len(TIMES_S)
    requests = Requests(array("q", range(20, 20 + count)), array("q", range(2, 2 + count)))
    arrival = ClosedLoop(2, count) if is_closed else OpenLoop(array("d", TIMES_S), "made")
    asked = asked_to_json(asked_of(Workload("made", requests, arrival)))
    run.update_meta({META_KEY: {"measure": asked}, "target": target})
    with run.open_writer() as writer:
        for index in range(count):
            writer.append(record(index, **changes))
    (run.path / "result.json").write_text(json.dumps({"schema": "inference-bench/load/1"}))
    return run.path
