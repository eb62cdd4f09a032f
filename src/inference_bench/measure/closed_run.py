"""`load`: one closed-loop run against a server, from its address to its metrics, kept in a run folder.

In:   LoadRequest
Out:  LoadRun: metrics, the client's own health and floor, and where the raw samples are
Leaves out: schedules that do not wait for the server (open loop)
Read next by: cli, report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.measure.floor import ClientFloor, measure_client_floor
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.load import ClientHealth, LoadOptions, run_load
from inference_bench.measure.machine_identity import MachineIdentity, identify_machine
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.sender import get_json
from inference_bench.measure.software import software_versions
from inference_bench.measure.store import RunFolder
from inference_bench.measure.target import ApiKey, Endpoint, Target
from inference_bench.measure.warmup import warm_up
from inference_bench.metrics import Metrics, summarise
from inference_bench.workload import ClosedLoop, RequestShape, Workload

_MOST_REQUESTS: Final = 100_000  # their bodies are made before the clock starts, and held
_MOST_IN_FLIGHT: Final = 10_000  # each is a connection, and an open file
_MOST_TOKENS: Final = 1 << 20
_MOST_TOKENS_IN_ALL: Final = 200_000_000  # about 1 GB of text


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What to send."""

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


def measure_load(request: LoadRequest, progress: Callable[[str], None] | None = None) -> LoadRun:
    """Warm up, then keep `concurrency` requests in flight until all are sent.

    Raises:  RequestError, ServerError, MeasurementError, StorageError; samples measured by then are kept
    """
    for what, asked, most in (
        ("requests", request.num_requests, _MOST_REQUESTS),
        ("requests in flight", request.concurrency, _MOST_IN_FLIGHT),
        ("prompt tokens", request.prompt_tokens, _MOST_TOKENS),
        ("output tokens", request.output_tokens, _MOST_TOKENS),
        ("prompt tokens in all", request.num_requests * request.prompt_tokens, _MOST_TOKENS_IN_ALL),
    ):
        if asked > most:
            raise RequestError(f"{asked} {what} is more than one load run takes; ask for at most {most}")
    say = progress or (lambda _text: None)
    workload = Workload(
        "closed loop",
        (RequestShape(request.prompt_tokens, request.output_tokens),),
        ClosedLoop(request.concurrency, request.num_requests),
        request.seed,
    )
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
    folder.update_meta({"target": target.base_url, "served_model": target.model, "seed": request.seed})
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
    )


def first_served_model(target: Target, timeout_s: float) -> str | None:
    """The first model a server lists; None when it lists none.

    Raises:  ServerError, StreamError when it cannot be asked
    """
    reply = get_json(target, "/v1/models", Timeouts(total_s=timeout_s))
    models = reply.get("data") if isinstance(reply, dict) else None
    first = models[0] if isinstance(models, list) and models else None
    name = first.get("id") if isinstance(first, dict) else None
    return name.encode("utf-8", "replace").decode() if isinstance(name, str) else None
