"""What does a server deliver under load: send requests in turn or on a schedule, and write each down as it ends.

In:   a Target and a Workload
Out:  every RequestRecord, handed to the writer at once, and how well this client itself kept up
Leaves out: what the numbers mean (metrics) and where they are kept (store)
Read next by: verify, cli.

Prompts and request bodies are made before the clock starts. In a closed loop a request is planned for the moment its
slot became free, which is when the previous reply ended (and the user had thought); in an open loop for its time in the
schedule, whether or not earlier ones were answered, so that a slow server is not asked less. What passes from the plan
until a request is sent is this client's own delay, and counts.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from inference_bench.errors import MeasurementError
from inference_bench.measure.client_health import ClientHealth as ClientHealth
from inference_bench.measure.client_health import ProcessWatch, judge_client
from inference_bench.measure.http1 import RunClock, Timeouts
from inference_bench.measure.kernel_stamps import StampSource, keep_stamping
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.sender import Ask, Sender
from inference_bench.measure.target import STREAM_OPTIONS, Target
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.workload import OpenLoop, Workload

NUM_HOPELESS: Final = 5
LAG_PERIOD_S: Final = 0.01
MOST_IN_FLIGHT: Final = 10_000

_OTHER_FILES: Final = 64  # of this process, beside its connections
_FIELD_REFUSED: Final = re.compile(
    r"unknown|unsupported|unrecogni[sz]ed|unexpected|not (permitted|supported|allowed)|extra", re.IGNORECASE
)
_BUSY_STATUS: Final = frozenset({429, 503})
_BAD_BODY_STATUS: Final = frozenset({400, 422})


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load run gave.

    Where:    `target` is what the last request was sent to: the one given, less `dropped_fields`, body fields that
              the server refused during warm-up
    """

    records: tuple[RequestRecord, ...]
    health: ClientHealth
    target: Target
    dropped_fields: tuple[str, ...] = ()
    loop_lags_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a load run is done, beside what is asked.

    Where:    writer gets each record as it ends; progress gets (ended, planned) requests; clock and prompts are
              given when several loads belong to one run, so that times compare and no prompt comes twice; stamps is
              who is to say when bytes arrive, where the platform lets it choose
    """

    stage: Stage = Stage.MEASURE
    group: str = ""
    writer: Callable[[RequestRecord], None] | None = None
    progress: Callable[[int, int], None] | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    clock: Callable[[], float] = field(default_factory=RunClock)
    prompts: PromptMaker | None = None
    stamps: StampSource = StampSource.KERNEL


def run_closed_loop(
    target: Target,
    workload: Workload,
    *,
    stage: Stage = Stage.MEASURE,
    group: str = "",
    writer: Callable[[RequestRecord], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
    timeouts: Timeouts | None = None,
    clock: Callable[[], float] | None = None,
    prompts: PromptMaker | None = None,
) -> LoadResult:
    """`run_load` with each option by its own name, as one closed loop is run.

    Where:    see LoadOptions
    Raises:   see `run_load`
    """
    options = LoadOptions(
        stage,
        group,
        writer,
        progress,
        timeouts or Timeouts(),
        clock or RunClock(),
        prompts or PromptMaker(workload.seed),
    )
    return run_load(target, workload, options)


def run_load(target: Target, workload: Workload, options: LoadOptions) -> LoadResult:
    """Send a workload, closed or open loop, to its end; not for use inside an event loop.

    Raises:   MeasurementError when the first requests show that none can succeed, or more are in flight than this
              client can hold; StorageError from the writer. An interruption (Ctrl-C) writes what was in flight as
              CANCELLED and then passes on
    """
    return asyncio.run(send_load(target, workload, options))


async def send_load(target: Target, workload: Workload, options: LoadOptions) -> LoadResult:
    """The same inside an event loop; see `run_load`."""
    load = _Load(target, workload, options)
    lags_s: list[float] = []
    sampler = asyncio.create_task(_sample_lag(lags_s))
    try:
        with keep_stamping(), ProcessWatch() as watch:
            await load.run()
    finally:
        sampler.cancel()
        with suppress(asyncio.CancelledError):
            await sampler
    health = judge_client(load.records, load.sender.receipts, lags_s, watch)
    return LoadResult(tuple(load.records), health, load.sender.target, tuple(load.dropped_fields), tuple(lags_s))


@dataclass(slots=True)
class _Job:
    """A request that waits for a slot; its body was built for `target`."""

    request_id: str
    prompt: str
    max_output_tokens: int
    target: Target
    body: bytes

    def build_body(self, target: Target) -> bytes:
        """The body for this target, made ahead of time unless the target has changed since."""
        if target is not self.target:
            self.target, self.body = target, target.build_body(self.prompt, self.max_output_tokens)
        return self.body


class _Load:
    """The requests of one load and what they share."""

    def __init__(self, target: Target, workload: Workload, options: LoadOptions) -> None:
        self.records: list[RequestRecord] = []
        self.dropped_fields: list[str] = []
        self.sender = Sender(target, options.clock, options.timeouts, stamps=options.stamps)
        self._options = options
        self._arrival = workload.arrival
        self._jobs = deque(_make_jobs(target, workload, options))
        self._num_jobs = len(self._jobs)
        self._num_ended = 0
        self._has_hope = False
        self._first_error: str | None = None

    async def run(self) -> None:
        if isinstance(self._arrival, OpenLoop):
            await self._run_schedule(self._arrival.times_s)
            return
        begin_s, think_s = self._options.clock(), self._arrival.think_s
        num_slots = min(self._arrival.concurrency, self._num_jobs)
        await _run_together([self._run_slot(begin_s, think_s) for _ in range(num_slots)])

    async def _run_slot(self, free_s: float, think_s: float) -> None:
        while self._jobs:
            record = await self._send(self._jobs.popleft(), free_s)
            self._settle(record)
            free_s = record.end_s + think_s
            if think_s and self._jobs:
                await self._wait_until(free_s)

    async def _run_schedule(self, times_s: Sequence[float]) -> None:
        most_in_flight = count_possible_in_flight()
        try:
            async with asyncio.TaskGroup() as sending:
                begin_s = self._options.clock()
                for number, time_s in enumerate(times_s):
                    await self._wait_until(begin_s + time_s)
                    if number - self._num_ended >= most_in_flight:
                        raise MeasurementError(
                            f"{number - self._num_ended} requests are in flight, as many as this client can hold, and the "
                            f"server falls behind the schedule; lower the rate, or raise the limit of open files"
                        )
                    sending.create_task(self._send_planned(self._jobs.popleft(), begin_s + time_s))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _send_planned(self, job: _Job, planned_s: float) -> None:
        self._settle(await self._send(job, planned_s))

    async def _wait_until(self, planned_s: float) -> None:
        """Sleep until then; when that has passed, let what is in flight have its turn."""
        while (left_s := planned_s - self._options.clock()) > 0:
            await asyncio.sleep(left_s)
        await asyncio.sleep(0)

    async def _send(self, job: _Job, planned_s: float) -> RequestRecord:
        num_tries = 1
        while True:
            target = self.sender.target
            request_id = job.request_id if num_tries == 1 else f"{job.request_id}-try{num_tries}"
            ask = Ask(
                request_id, job.prompt, job.max_output_tokens, planned_s, self._options.stage, self._options.group
            )
            record = await self.sender.send(ask, job.build_body(target), self._keep)
            if self._options.stage is not Stage.WARMUP or not (refused := find_refused_fields(target, record)):
                return record
            self._drop(refused)
            num_tries, planned_s = num_tries + 1, record.end_s

    def _drop(self, refused: Iterable[str]) -> None:
        target = self.sender.target
        self.dropped_fields += (name for name in refused if name not in self.dropped_fields)
        self.sender.target = replace(
            target,
            extra_body={name: value for name, value in target.extra_body.items() if name not in self.dropped_fields},
            asks_usage=target.asks_usage and STREAM_OPTIONS not in self.dropped_fields,
        )

    def _keep(self, record: RequestRecord) -> None:
        self.records.append(record)
        if self._options.writer is not None:
            self._options.writer(record)

    def _settle(self, record: RequestRecord) -> None:
        self._num_ended += 1
        self._has_hope = self._has_hope or not _is_hopeless(record)
        self._first_error = self._first_error or record.error
        if self._options.progress is not None:
            self._options.progress(self._num_ended, self._num_jobs)
        if not self._has_hope and self._num_ended >= min(NUM_HOPELESS, self._num_jobs):
            which = "the request" if self._num_jobs == 1 else f"every one of the first {self._num_ended} requests"
            raise MeasurementError(f"{which} to {self.sender.target.address} failed; the first: {self._first_error}")


def _make_jobs(target: Target, workload: Workload, options: LoadOptions) -> Iterable[_Job]:
    prompts = options.prompts or PromptMaker(workload.seed)
    for index in range(len(workload)):
        shape = workload.shape_of(index)
        segments = workload.requests.prompts
        prompt = prompts.make(shape.prompt_tokens) if segments is None else prompts.make_of(segments[index])
        request_id = "-".join(filter(None, (options.stage, options.group, f"{prompt.serial:05d}")))
        body = target.build_body(prompt.text, shape.output_tokens)
        yield _Job(request_id, prompt.text, shape.output_tokens, target, body)


def count_possible_in_flight() -> int:
    """How many requests can be in flight at once: each is a connection, and so an open file of this process."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
    except ImportError:  # Windows has no such limit
        return MOST_IN_FLIGHT
    allowed, _ = getrlimit(RLIMIT_NOFILE)
    return MOST_IN_FLIGHT if allowed == RLIM_INFINITY else max(1, min(MOST_IN_FLIGHT, allowed - _OTHER_FILES))


async def _run_together(slots: Sequence[Coroutine[None, None, None]]) -> None:
    """Run all slots; when one fails or the caller is cancelled, stop the others and wait until they have ended."""
    tasks = [asyncio.create_task(slot) for slot in slots]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        endings = await asyncio.gather(*tasks, return_exceptions=True)
    for ending in endings:
        if isinstance(ending, BaseException) and not isinstance(ending, asyncio.CancelledError):
            raise ending


async def _sample_lag(lags_s: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + LAG_PERIOD_S
        await asyncio.sleep(LAG_PERIOD_S)
        lags_s.append(max(0.0, loop.time() - due_s))


def find_refused_fields(target: Target, record: RequestRecord) -> tuple[str, ...]:
    """The optional body fields that a server's refusal is about: those it names, or all when it names none.

    Where:    () when the refusal is about something else, or nothing optional was sent
    """
    if record.status is not RequestStatus.REJECTED or record.http_status not in _BAD_BODY_STATUS:
        return ()
    optional = (*target.extra_body, STREAM_OPTIONS) if target.asks_usage else tuple(target.extra_body)
    said = record.error or ""
    named = tuple(name for name in optional if re.search(rf"\b{re.escape(name)}\b", said))
    return named or (optional if _FIELD_REFUSED.search(said) else ())


def _is_hopeless(record: RequestRecord) -> bool:
    """No token came, and the reason is not that the server is slow or busy."""
    if record.chunk_times_s:
        return False
    if record.status is RequestStatus.REJECTED:
        return record.http_status not in _BUSY_STATUS
    never_answered = record.status is RequestStatus.TIMED_OUT and record.http_status is None
    return never_answered or record.status is RequestStatus.FAILED
