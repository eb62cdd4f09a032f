"""`load`: one workload sent to a server, from its address to its metrics, kept in a run folder.

In:   LoadRequest: a workload, or the numbers of a closed loop
Out:  LoadRun: metrics, the client's own health and floor, and where the raw samples are
Leaves out: how requests are timed (load), what the workload is made from (workload)
Read next by: cli, report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from inference_bench.arrival_proof import ArrivalProof, prove_arrivals
from inference_bench.definitions import Recomputed, recompute
from inference_bench.errors import RequestError
from inference_bench.measure.client_health import health_values
from inference_bench.measure.floor import ClientFloor, measure_client_floor
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.load import MOST_IN_FLIGHT, ClientHealth, LoadOptions, run_load
from inference_bench.measure.machine_identity import MachineIdentity, identify_machine
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.sender import get_json
from inference_bench.measure.software import software_versions
from inference_bench.measure.store import RunFolder
from inference_bench.measure.target import ApiKey, Endpoint, Target
from inference_bench.measure.warmup import warm_up
from inference_bench.metrics import Metrics, summarise
from inference_bench.workload import ClosedLoop, OpenLoop, Requests, RequestShape, Workload, closed_loop

_MOST_REQUESTS: Final = 100_000  # their bodies are made before the clock starts, and held
_MOST_TOKENS: Final = 1 << 20
_MOST_TOKENS_IN_ALL: Final = 200_000_000  # about 1 GB of text


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What to send.

    Where:    without a workload it is a closed loop of `num_requests` alike, `concurrency` at once
    """

    url: str
    concurrency: int = 1
    num_requests: int = 16
    prompt_tokens: int = 128
    output_tokens: int = 64
    endpoint: str = "completions"
    served_model: str | None = None
    api_key: ApiKey | None = None
    runs: Path = Path("runs")
    seed: int = 0
    timeout_s: float = 120.0
    workload: Workload | None = None


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What came back."""

    target: str
    model: str | None
    workload: Workload
    metrics: Metrics
    health: ClientHealth
    floor: ClientFloor
    dropped_fields: tuple[str, ...]
    run_dir: Path
    client: MachineIdentity
    endpoint: str
    versions: Mapping[str, str]
    arrivals: ArrivalProof
    definitions: tuple[Recomputed, ...]


def measure_load(request: LoadRequest, progress: Callable[[str], None] | None = None) -> LoadRun:
    """Warm up, then send the workload to its end: in turn, or on its schedule.

    Raises:  RequestError, ServerError, MeasurementError, StorageError; samples measured by then are kept
    """
    say = progress or (lambda _text: None)
    workload = _workload_of(request)
    target = Target(
        request.url, request.served_model, Endpoint(request.endpoint), request.api_key, {"ignore_eos": True}
    )
    if target.model is None:
        target = Target(
            target.base_url,
            first_served_model(target, request.timeout_s),
            target.endpoint,
            request.api_key,
            target.extra_body,
        )
    floor = measure_client_floor()
    folder = RunFolder.create(request.runs, "load")
    folder.update_meta(
        {"target": target.base_url, "served_model": target.model, "seed": request.seed, "workload": workload.name}
    )
    with folder.open_writer() as writer:
        say("warming up")
        prompts = PromptMaker(request.seed, salt=folder.path.name)
        load = LoadOptions(
            writer=writer.append,
            progress=lambda ended, planned: say(f"{ended} of {planned} requests ended"),
            timeouts=Timeouts(total_s=request.timeout_s),
            prompts=prompts,
        )
        warm = warm_up(target, prompts, load)
        result = run_load(warm.target, workload, replace(load, group="measure"))
    folder.update_meta({"client": health_values(result.health)})
    metrics = summarise(result.records)
    return LoadRun(
        target=target.base_url,
        model=target.model,
        workload=workload,
        metrics=metrics,
        health=result.health,
        floor=floor,
        dropped_fields=warm.dropped_fields,
        run_dir=folder.path,
        client=identify_machine(),
        endpoint=request.endpoint,
        versions=software_versions(),
        arrivals=prove_arrivals(result.records, workload.arrival),
        definitions=recompute(result.records),
    )


def _workload_of(request: LoadRequest) -> Workload:
    """What is sent, no larger than its bodies can be held.

    Raises:  RequestError
    """
    if request.workload is not None:
        _require_small(request.workload.requests, request.workload.arrival)
        return request.workload
    _require_at_most(request.num_requests, _MOST_REQUESTS, "requests")
    shape = RequestShape(request.prompt_tokens, request.output_tokens)
    workload = closed_loop("closed loop", [shape], request.concurrency, request.num_requests, request.seed)
    _require_small(workload.requests, workload.arrival)
    return workload


def _require_small(requests: Requests, arrival: ClosedLoop | OpenLoop) -> None:
    _require_at_most(len(requests), _MOST_REQUESTS, "requests")
    if isinstance(arrival, ClosedLoop):
        _require_at_most(arrival.concurrency, MOST_IN_FLIGHT, "requests in flight")
    _require_at_most(max(requests.prompt_tokens), _MOST_TOKENS, "prompt tokens")
    _require_at_most(max(requests.output_tokens), _MOST_TOKENS, "output tokens")
    _require_at_most(sum(requests.prompt_tokens), _MOST_TOKENS_IN_ALL, "prompt tokens in all")


def _require_at_most(asked: int, most: int, what: str) -> None:
    if asked > most:
        raise RequestError(f"{asked} {what} is more than one load run takes; ask for at most {most}")


def first_served_model(target: Target, timeout_s: float) -> str | None:
    """The first model a server lists; None when it lists none.

    Raises:  ServerError, StreamError when it cannot be asked
    """
    reply = get_json(target, "/v1/models", Timeouts(total_s=timeout_s))
    models = reply.get("data") if isinstance(reply, dict) else None
    first = models[0] if isinstance(models, list) and models else None
    name = first.get("id") if isinstance(first, dict) else None
    return name.encode("utf-8", "replace").decode() if isinstance(name, str) else None
