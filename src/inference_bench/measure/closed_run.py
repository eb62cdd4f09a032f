"""`load`: one closed-loop run against a server, from its address to its metrics, kept in a run folder.

In:   LoadRequest
Out:  LoadRun: metrics, the client's own health and floor, and where the raw samples are
Leaves out: schedules that do not wait for the server (open loop)
Read next by: cli, report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inference_bench.measure.floor import ClientFloor, measure_client_floor
from inference_bench.measure.http1 import RunClock, Timeouts
from inference_bench.measure.load import ClientHealth, run_closed_loop
from inference_bench.measure.prompts import PromptMaker, calibrate
from inference_bench.measure.sender import get_json
from inference_bench.measure.store import RunFolder
from inference_bench.measure.target import ApiKey, Endpoint, Target
from inference_bench.metrics import Metrics, summarise
from inference_bench.records import RequestRecord, Stage
from inference_bench.workload import ClosedLoop, RequestShape, Workload

_WARMUP_WORDS = (24, 96)
_WARMUP_OUTPUT = 4


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


def measure_load(request: LoadRequest, progress: Callable[[str], None] | None = None) -> LoadRun:
    """Warm up, then keep `concurrency` requests in flight until all are sent.

    Raises:  RequestError, ServerError, MeasurementError, StorageError; samples measured by then are kept
    """
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
            target.base_url, first_served_model(target), target.endpoint, request.api_key, target.extra_body
        )
    floor = measure_client_floor()
    folder = RunFolder.create(request.runs, "load")
    folder.update_meta({"target": target.base_url, "served_model": target.model, "seed": request.seed})
    with folder.open_writer() as writer:
        say("warming up")
        prompts, clock, timeouts = (
            PromptMaker(request.seed, salt=folder.path.name),
            RunClock(),
            Timeouts(total_s=request.timeout_s),
        )
        shapes = tuple(RequestShape(words, _WARMUP_OUTPUT) for words in _WARMUP_WORDS)
        warm = run_closed_loop(
            target,
            Workload("warmup", shapes, ClosedLoop(1, len(shapes)), request.seed),
            stage=Stage.WARMUP,
            group="warmup",
            writer=writer.append,
            timeouts=timeouts,
            clock=clock,
            prompts=prompts,
        )
        samples = _counted(warm.records)
        if samples:
            prompts.fit = calibrate(samples)
        result = run_closed_loop(
            warm.target,
            workload,
            group="measure",
            writer=writer.append,
            timeouts=timeouts,
            clock=clock,
            prompts=prompts,
            progress=lambda ended, planned: say(f"{ended} of {planned} requests ended"),
        )
    metrics = summarise(result.records)
    return LoadRun(
        target.base_url, target.model, workload, metrics, result.health, floor, warm.dropped_fields, folder.path
    )


def _counted(records: tuple[RequestRecord, ...]) -> list[tuple[int, int]]:
    """(words sent, tokens counted) of the warm-up requests that say."""
    pairs = zip(_WARMUP_WORDS, [record for record in records if record.chunk_times_s], strict=False)
    return [(words, record.prompt_tokens) for words, record in pairs if record.prompt_tokens]


def first_served_model(target: Target) -> str | None:
    """The first model a server lists; None when it lists none.

    Raises:  ServerError, StreamError when it cannot be asked
    """
    reply = get_json(target, "/v1/models")
    models = reply.get("data") if isinstance(reply, dict) else None
    first = models[0] if isinstance(models, list) and models else None
    name = first.get("id") if isinstance(first, dict) else None
    return name if isinstance(name, str) else None
