"""What will come of a load: the simulated run of exactly the workload that is sent, written down before the first request.

In:   ServerModel, Workload
Out:  PredictedLoad, by the same records and metrics as a measured load; prediction.json
Leaves out: which rates (load_check), what came of it (load_rows)
Read next by: load_check, load_rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from inference_bench.errors import RunFolderError
from inference_bench.files import write_whole
from inference_bench.measure.store import RunFolder
from inference_bench.metrics import Metrics, e2e_s, summarise, ttft_s
from inference_bench.records import RequestRecord
from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.summary import records_of
from inference_bench.verify.engine_rules import ServerModel
from inference_bench.workload import OpenLoop, Workload

PREDICTION_FILE: Final = "prediction.json"
META_KEY: Final = "prediction"


@dataclass(frozen=True, slots=True)
class PredictedLoad:
    """A load before it is sent.

    Where:  place is where its rate lies: below, near or past the knee, at capacity or above it; workload is the object that is
            sent; records are in its order
    """

    place: str
    workload: Workload
    records: tuple[RequestRecord, ...]
    metrics: Metrics

    @property
    def rate(self) -> float:
        """What is asked for. Unit: requests/s."""
        arrival = self.workload.arrival
        return (arrival.nominal_rate or 0.0) if isinstance(arrival, OpenLoop) else 0.0

    @property
    def ttft_s(self) -> tuple[float, ...]:
        """Until the first token, request by request."""
        return tuple(value for record in self.records if (value := ttft_s(record)) is not None)

    @property
    def e2e_s(self) -> tuple[float, ...]:
        """Until the last token, request by request."""
        return tuple(value for record in self.records if (value := e2e_s(record)) is not None)


def predict_load(model: ServerModel, workload: Workload, place: str = "") -> PredictedLoad:
    """Simulate a workload on this server.

    Raises:  RequestError naming a request that can never run
    """
    outcome = simulate(workload, model.setup, model.step_time, engine=Engine.REFERENCE)
    records = tuple(records_of(outcome))
    return PredictedLoad(place, workload, records, summarise(records))


def write_prediction(
    folder: RunFolder, model: ServerModel, loads: Sequence[PredictedLoad], about: Mapping[str, Any]
) -> str:
    """All that is predicted, as prediction.json in the run's folder; its SHA-256, which the folder keeps too.

    Raises:  RunFolderError where the folder holds a prediction already: one that was sent is never written anew; StorageError
    """
    path = folder.path / PREDICTION_FILE
    if path.exists():
        raise RunFolderError(f"{folder.path.name} holds a prediction already; predict another load in a run of its own")
    values = {
        **about,
        "rules": list(model.rules.words),
        "step_time": {
            "source": model.step_time.source,
            "notes": list(model.step_time.notes),
            "coefficients": list(model.step_time.vector),
        },
        "request_s": model.request_s,
        "loads": [_values(load) for load in loads],
    }
    text = json.dumps(values, allow_nan=False) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    write_whole(path, text)
    folder.update_meta({META_KEY: {"file": PREDICTION_FILE, "sha256": digest}})
    return digest


def _values(load: PredictedLoad) -> dict[str, Any]:
    arrival, requests = load.workload.arrival, load.workload.requests
    return {
        "place": load.place,
        "rate": load.rate,
        "seed": load.workload.seed,
        "arrival_s": list(arrival.times_s) if isinstance(arrival, OpenLoop) else None,
        "prompt_tokens": list(requests.prompt_tokens),
        "output_tokens": list(requests.output_tokens),
        "ttft_s": list(load.ttft_s),
        "e2e_s": list(load.e2e_s),
        "output_tokens_per_s": load.metrics.output_tokens_per_s,
        "duration_s": load.metrics.span_s,
    }
