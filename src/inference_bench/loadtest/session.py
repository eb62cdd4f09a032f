"""What all parts of one load test share: a server that answers and is warm, a folder, prompts that never repeat.

In:   LoadRequest
Out:  Session, whose `send` measures one workload after another in the same run
Leaves out: what is asked at each part (flow: one workload; sweep and capacity_run: many), what it means (metrics)
Read next by: flow, sweep, capacity_run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

from inference_bench.errors import MeasurementError, RequestError, StorageError
from inference_bench.loadtest.preflight import Reached, explain, reach
from inference_bench.loadtest.progress import ProgressMeter
from inference_bench.loadtest.ray_shards import run_on_ray_shards
from inference_bench.loadtest.shards import run_sharded
from inference_bench.loadtest.workload_memory import META_KEY, asked_of, asked_to_json
from inference_bench.manifest.run import keep_manifest, manifest_of_load
from inference_bench.measure.floor import ClientFloor, measure_client_floor
from inference_bench.measure.gpu_telemetry import GpuTelemetry, GpuWatch
from inference_bench.measure.http1 import RunClock, Timeouts
from inference_bench.measure.load import LoadOptions, LoadResult, count_possible_in_flight, run_load
from inference_bench.measure.prompt_checks import kept_of_prompts
from inference_bench.measure.prompt_sources import PromptTemplate
from inference_bench.measure.prompts import PromptMaker, PromptSource, UnlikelyCountError
from inference_bench.measure.server_metrics import ServerMetrics
from inference_bench.measure.server_metrics_watch import ServerWatch
from inference_bench.measure.store import RecordWriter, RunFolder, read_progress
from inference_bench.measure.target import ApiKey, Endpoint, Target
from inference_bench.measure.text_checks import TextFindings
from inference_bench.measure.warmup import warm_up
from inference_bench.metrics import Objective
from inference_bench.records import RequestRecord
from inference_bench.referee import Subject
from inference_bench.workload import ClosedLoop, OpenLoop, RequestShape, Workload, closed_loop

ONLY_GROUP: Final = "measure"  # of a run that has one part
MOST_REQUESTS: Final = 10_000_000  # their records are held
_MOST_TOKENS: Final = 1 << 20
_MOST_REMEMBERED: Final = 250_000
_AFTER_RESUME_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What to send, and how.

    Where:    without a workload it is a closed loop of `num_requests` alike, `concurrency` at once; duration_s, warmup_s,
              warmup_requests, cooldown_s, ramp_s and repeats are those of LoadOptions; extra_body joins every request;
              examine is given each answer's text, which is kept nowhere; scrape_path is where the server's own metrics
              are read once a second, None: not at all; processes is how many send, on_ray on a Ray cluster (0: one a core);
              subject is the model and machine that are served, by whose bounds each request is judged; counts_each_chunk
              asks the server how many tokens each chunk holds; objective is what goodput counts by; notes say what of the
              request was left out
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
    duration_s: float | None = None
    warmup_s: float = 0.0
    warmup_requests: int = 0
    cooldown_s: float = 0.0
    ramp_s: float = 0.0
    repeats: bool = True
    extra_body: Mapping[str, object] = field(default_factory=dict)
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    prompt_source: PromptSource | None = field(default=None, repr=False)
    template: PromptTemplate | None = field(default=None, repr=False)
    document_schema: Mapping[str, object] | None = None
    examine: Callable[[str], TextFindings] | None = None
    scrape_path: str | None = None
    processes: int = 1
    on_ray: bool = False
    subject: Subject | None = None
    counts_each_chunk: bool = False
    objective: Objective = field(default_factory=Objective)
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Session:
    """A load test under way.

    Where:    has_failed says that a part of it failed and that this is said already, so that the end is quiet
    """

    request: LoadRequest
    target: Target
    folder: RunFolder
    floor: ClientFloor
    dropped_fields: tuple[str, ...]
    options: LoadOptions
    meter: ProgressMeter
    watch: ServerWatch | None = None
    gpu_watch: GpuWatch | None = None
    manifest_sha256: str | None = None
    has_failed: bool = False

    @property
    def gpu(self) -> GpuTelemetry | None:
        """What the cards of this machine did meanwhile; None where the server runs elsewhere, or there is no card."""
        found = None if self.gpu_watch is None else self.gpu_watch.result
        return found if found is not None and found.samples else None

    @property
    def server_metrics(self) -> ServerMetrics | None:
        """What the server said about itself meanwhile; None where it was not asked."""
        return None if self.watch is None else self.watch.result

    def send(self, workload: Workload, group: str) -> LoadResult:
        """Send one workload to its end, as one part of the run.

        Raises:  MeasurementError, StorageError; LoadInterrupted with what was measured by then
        """
        require_bearable(workload)
        self._remember(workload, group)
        options = replace(self.options, group=group)
        planned = 0 if options.duration_s is not None and isinstance(workload.arrival, ClosedLoop) else len(workload)
        length_s = None if options.duration_s is None else options.warm_s + options.duration_s
        self.meter.begin("" if group == ONLY_GROUP else group, planned, length_s)
        if self.request.on_ray or self.request.processes != 1:
            options = replace(options, progress=self.meter.count)
        folder = self.folder if group == ONLY_GROUP else None  # each process has one journal in a folder
        return send_as_asked(self.request, self.target, workload, options, folder)

    def _remember(self, workload: Workload, group: str) -> None:
        """Keep what is asked with the run, unless that alone would fill the folder."""
        if len(workload) <= _MOST_REMEMBERED:
            kept = self.folder.read_meta().get(META_KEY)
            asked = {**(kept if isinstance(kept, dict) else {}), group: asked_to_json(asked_of(workload))}
            self.folder.update_meta({META_KEY: asked})


def send_as_asked(
    request: LoadRequest, target: Target, workload: Workload, options: LoadOptions, folder: RunFolder | None = None
) -> LoadResult:
    """Send one workload: in this process, in several, or on a Ray cluster.

    Where:    with a folder each of several processes writes its own journal there; else records are written at the end
    Raises:   see `run_load`, `run_sharded`, `run_on_ray_shards`
    """
    if request.on_ray:
        return run_on_ray_shards(target, workload, options, request.processes or None)
    if request.processes == 1:
        return run_load(target, workload, options)
    return run_sharded(target, workload, options, request.processes, folder)


@contextmanager
def open_session(
    request: LoadRequest,
    say: Callable[[str], None],
    resume: Path | None = None,
    about: Mapping[str, object] | None = None,
    finished: Collection[str] = (),
) -> Iterator[Session]:
    """Reach the server, make or reopen the run folder, and warm up.

    Where:    `about` is what else is to be known about the run; resume is the folder of a run that was cut short, in
              which all groups but the finished ones are measured again
    Raises:   RequestError, ServerError, MeasurementError, StorageError, RunFolderError
    """
    target, models = _reached(request)
    floor = measure_client_floor()
    folder, writer, clock, salt = _new_folder(request.runs) if resume is None else _reopen(resume, finished)
    said = kept_of_prompts(request.prompt_source, request.template, request.document_schema)
    known = {"target": target.base_url, "served_model": target.model, "seed": request.seed, "prompts": said}
    folder.update_meta({**known, **(about or {})})
    say("asking what is served")
    manifest_sha256 = keep_manifest(folder, manifest_of_load(target, models))
    meter = ProgressMeter(say, clock)

    def keep(record: RequestRecord) -> None:
        writer.append(record)
        meter.note(record)

    with writer:
        say("warming up")
        prompts = PromptMaker(
            request.seed, salt=folder.path.name + salt, source=request.prompt_source, template=request.template
        )
        options = _options_of(request, writer, keep, clock, prompts)
        has_talks = request.workload is not None and request.workload.requests.session is not None
        try:
            warm = warm_up(target, prompts, options, with_messages=has_talks and target.endpoint is Endpoint.CHAT)
        except UnlikelyCountError:  # it does answer
            raise
        except MeasurementError as failure:
            raise MeasurementError(f"{failure}; {explain(target, request.timeout_s)}") from None
        watch = None
        if request.scrape_path is not None:
            watch = ServerWatch(warm.target, clock, folder.path, path=request.scrape_path)
        gpu = GpuWatch(clock, folder.path) if target.address.is_this_machine else None
        with watch or nullcontext(), gpu or nullcontext():
            session = Session(
                request, warm.target, folder, floor, warm.dropped_fields, options, meter, watch, gpu, manifest_sha256
            )
            yield session
        if session.has_failed:
            with suppress(StorageError):
                writer.close()


def _options_of(
    request: LoadRequest,
    journal: RecordWriter,
    keep: Callable[[RequestRecord], None],
    clock: Callable[[], float],
    prompts: PromptMaker,
) -> LoadOptions:
    return LoadOptions(
        writer=keep,
        timeouts=Timeouts(total_s=request.timeout_s),
        clock=clock,
        prompts=prompts,
        journal=journal,
        examine=request.examine,
        duration_s=request.duration_s,
        warmup_s=request.warmup_s,
        warmup_requests=request.warmup_requests,
        cooldown_s=request.cooldown_s,
        ramp_s=request.ramp_s,
        repeats=request.repeats,
    )


_Opened: TypeAlias = tuple[RunFolder, RecordWriter, Callable[[], float], str]


def _new_folder(runs: Path) -> _Opened:
    """A new folder, its writer, its clock, and nothing for the prompts to differ by."""
    folder = RunFolder.create(runs, "load")
    return folder, folder.open_writer(), RunClock(), ""


def _reopen(run: Path, finished: Collection[str]) -> _Opened:
    """The folder of a sweep that was cut short, a clock that goes on behind its records, and what new prompts differ by."""
    folder, progress = RunFolder.open(run), read_progress(run)
    writer = folder.resume_writer([group for group in progress.groups if group not in finished])
    return folder, writer, _clock_behind(progress.last_s + _AFTER_RESUME_S), f"/{progress.num_resumed + 1}"


def _clock_behind(begin_s: float) -> Callable[[], float]:
    clock = RunClock()
    return lambda: begin_s + clock()


def _reached(request: LoadRequest) -> Reached:
    target = Target(
        request.url,
        request.served_model,
        Endpoint(request.endpoint),
        request.api_key,
        {"ignore_eos": True, **request.extra_body},
        extra_headers=request.extra_headers,
        document_schema=request.document_schema,
        counts_each_chunk=request.counts_each_chunk,
    )
    return reach(target, request.timeout_s)


def workload_of(request: LoadRequest) -> Workload:
    """What is sent, no more than this client can bear.

    Raises:  RequestError
    """
    workload = request.workload
    if workload is None:
        _require_at_most(request.num_requests, MOST_REQUESTS, "requests")
        shape = RequestShape(request.prompt_tokens, request.output_tokens)
        workload = closed_loop("closed loop", [shape], request.concurrency, request.num_requests, request.seed)
    require_bearable(workload)
    require_measured(workload, request)
    return workload


def require_measured(workload: Workload, request: LoadRequest) -> None:
    """Refuse a warm-up without end, and a schedule of which nothing would be measured.

    Raises:  RequestError
    """
    _require_at_most(request.warmup_requests, MOST_REQUESTS, "warm-up requests")
    if not isinstance(workload.arrival, OpenLoop):
        return
    last_s = workload.arrival.times_s[-1]
    if request.warmup_requests >= len(workload) or request.warmup_s > last_s:
        raise RequestError(
            f"all {len(workload)} requests of the schedule, the last at {last_s:g} s, are warm-up; shorten it, or ask for more"
        )


def require_bearable(workload: Workload) -> None:
    """Refuse what one load run cannot send or hold.

    Raises:  RequestError
    """
    requests, arrival = workload.requests, workload.arrival
    _require_at_most(len(requests), MOST_REQUESTS, "requests")
    if isinstance(arrival, ClosedLoop):
        most = count_possible_in_flight()
        if arrival.concurrency > most:
            raise RequestError(
                f"{arrival.concurrency} requests in flight are more than this client can hold, which is {most}; ask for less, or "
                f"raise the limit of open files"
            )
    _require_at_most(max(requests.prompt_tokens), _MOST_TOKENS, "prompt tokens")
    _require_at_most(max(requests.output_tokens), _MOST_TOKENS, "output tokens")


def _require_at_most(asked: int, most: int, what: str) -> None:
    if asked > most:
        raise RequestError(f"{asked} {what} is more than one load run takes; ask for at most {most}")
