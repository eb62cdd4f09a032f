"""What one of several processes does of a load: its part of the requests, on a clock that all share.

In:   a Workload, a Target, LoadOptions, how many processes there are
Out:  ShardTasks, which can be pickled; a ShardRun, which carries one out wherever it is
Leaves out: how tasks get to other processes (shards) and machines (ray_shards), and what all of it means (shards_merge)
Read next by: shards, ray_shards.

Nothing is drawn in a shard: there is one schedule, and a request's lengths and prompt belong to its index, so that shards
send together what one process would have sent. Requests go to shards in turn, those of one conversation to one; the slots
of a closed loop are split, and each request belongs to one slot. Keys travel apart from the task, over the pipe alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inference_bench.errors import InferenceBenchError, MeasurementError
from inference_bench.measure.client_health import ClientHealth
from inference_bench.measure.client_loop import run_client
from inference_bench.measure.load import LoadOptions, LoadResult, send_load
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.store import RunFolder
from inference_bench.measure.target import ApiKey, Endpoint, Target
from inference_bench.records import RequestRecord
from inference_bench.workload import ClosedLoop, Workload


class ShardLost(MeasurementError):
    """A process or machine that sent part of a load ended; what the others measured is kept."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What goes into headers; it has no repr and is in no task."""

    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, target: Target) -> Secrets:
        """Those of a target."""
        key = target.api_key
        return cls(None if key is None else key.authorization().removeprefix("Bearer "), dict(target.extra_headers))


@dataclass(frozen=True, slots=True)
class ShardTask:
    """One shard's part of a load.

    Where:    target are the fields of the Target but its secrets; options lack what stays in the process that asks; folder
              is where the shard keeps its own journal, None: nowhere
    """

    number: int
    indices: tuple[int, ...]
    workload: Workload
    target: Mapping[str, Any]
    options: Mapping[str, Any]
    folder: Path | None = None
    journal_number: int = 0

    def target_with(self, secrets: Secrets) -> Target:
        """The whole target."""
        key = None if secrets.api_key is None else ApiKey(secrets.api_key)
        return Target(**self.target, api_key=key, extra_headers=secrets.headers)


@dataclass(frozen=True, slots=True)
class ShardOutcome:
    """What one shard measured, also where it was stopped or failed.

    Where:    health is None where it did not come to its end
    """

    number: int
    records: tuple[RequestRecord, ...]
    health: ClientHealth | None = None
    dropped_fields: tuple[str, ...] = ()
    loop_lags_s: tuple[float, ...] = ()
    measured_s: tuple[float, float] | None = None
    error: InferenceBenchError | None = None


@dataclass(frozen=True, slots=True)
class ShiftedClock:
    """The run's clock in another process.

    Formula:  perf_counter() + shift
    Unit:     seconds
    """

    shift_s: float

    def __call__(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() + self.shift_s


def deal(workload: Workload, num_shards: int) -> list[tuple[int, ...]]:
    """The requests of each shard; shards without any are left out.

    Formula:  open loop: request i, or its conversation, to shard i modulo N; closed loop of C slots: i belongs to slot i modulo
              C, and slot s to shard s modulo N
    """
    arrival, sessions = workload.arrival, workload.requests.session
    slots = arrival.concurrency if isinstance(arrival, ClosedLoop) else None
    dealt: list[list[int]] = [[] for _ in range(num_shards)]
    for index in range(len(workload)):
        owner = index if sessions is None else sessions[index]
        dealt[(owner if slots is None else owner % slots) % num_shards].append(index)
    return [tuple(indices) for indices in dealt if indices]


def make_tasks(
    target: Target, workload: Workload, options: LoadOptions, num_shards: int, folder: RunFolder | None = None
) -> list[ShardTask]:
    """A task for each shard that has anything to do."""
    prompts = options.prompts or PromptMaker(workload.seed)
    first_serial = prompts.reserve(len(workload)) if options.first_serial is None else options.first_serial
    dealt = deal(workload, num_shards)
    first_journal = 0 if folder is None else next_journal_number(folder)
    return [
        ShardTask(
            number=number,
            indices=indices,
            workload=_with_slots(workload, number, num_shards),
            target=_plain_target(target),
            options={
                **_plain_options(options),
                "warmup_requests": _part(options.warmup_requests, number, len(dealt)),
                "prompts": prompts,
                "first_serial": first_serial,
            },
            folder=None if folder is None else folder.path,
            journal_number=first_journal + number,
        )
        for number, indices in enumerate(dealt)
    ]


def reserve_used(options: LoadOptions, workload: Workload, records: Sequence[RequestRecord]) -> None:
    """Set aside the prompts of requests that were sent beyond the workload's end, so that no later load says them again."""
    if options.prompts is None or options.first_serial is not None:
        return
    last = max((record.index for record in records if record.index is not None), default=-1)
    if last >= len(workload):
        options.prompts.reserve(last + 1 - len(workload))


def next_journal_number(folder: RunFolder) -> int:
    """One above all journals of shards in a run's folder, of which each load adds its own."""
    taken = [path.stem.removeprefix("requests-") for path in folder.path.glob("requests-*.journal")]
    return 1 + max((int(number) for number in taken if number.isdigit()), default=0)


def _part(whole: int, number: int, num_parts: int) -> int:
    return len(range(number, whole, num_parts))


def _with_slots(workload: Workload, number: int, num_shards: int) -> Workload:
    arrival = workload.arrival
    if not isinstance(arrival, ClosedLoop):
        return workload
    slots = max(1, _part(arrival.concurrency, number, num_shards))
    return replace(workload, arrival=replace(arrival, concurrency=slots))


def _plain_target(target: Target) -> dict[str, Any]:
    schema = target.document_schema
    return {
        "base_url": target.base_url,
        "model": target.model,
        "endpoint": Endpoint(target.endpoint),
        "extra_body": dict(target.extra_body),
        "asks_usage": target.asks_usage,
        "counts_each_chunk": target.counts_each_chunk,
        "document_schema": None if schema is None else dict(schema),
    }


_SENT_ALONG = (
    "stage", "group", "timeouts", "stamps", "examine", "duration_s", "warmup_s", "cooldown_s", "ramp_s", "repeats",
)  # fmt: skip


def _plain_options(options: LoadOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in _SENT_ALONG}


class ShardRun:
    """One shard under way, in whatever thread `run` is called; `stop` may come from another."""

    def __init__(self, task: ShardTask, secrets: Secrets) -> None:
        self._task, self._target = task, task.target_with(secrets)
        self._records: list[RequestRecord] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._load: asyncio.Task[LoadResult] | None = None
        self._is_stopped = False

    def run(
        self, begin_s: float, clock: Callable[[], float], progress: Callable[[int, int], None] | None = None
    ) -> ShardOutcome:
        """Send the shard's requests to their end, or until `stop`.

        Where:    begin_s is when the schedule starts, on this clock
        """
        task = self._task
        options = LoadOptions(
            **task.options,
            begin_s=begin_s,
            indices=task.indices,
            clock=clock,
            progress=progress,
            writer=self._records.append,
        )
        try:
            if task.folder is None:
                result = run_client(self._send(options))
            else:
                with RunFolder(task.folder).open_writer(task.journal_number) as journal:

                    def write(record: RequestRecord) -> None:
                        self._records.append(record)
                        journal.append(record)

                    result = run_client(self._send(replace(options, writer=write, journal=journal)))
        except InferenceBenchError as error:
            return ShardOutcome(task.number, tuple(self._records), error=error)
        if result is None:
            return ShardOutcome(task.number, tuple(self._records))
        return ShardOutcome(
            task.number, result.records, result.health, result.dropped_fields, result.loop_lags_s, result.measured_s
        )

    def stop(self) -> None:
        """End soon: what is in flight is cancelled, and written down as that."""
        self._is_stopped = True
        if self._loop is not None and self._load is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._load.cancel)

    async def _send(self, options: LoadOptions) -> LoadResult | None:
        self._loop = asyncio.get_running_loop()
        self._load = asyncio.create_task(send_load(self._target, self._task.workload, options))
        if self._is_stopped:
            self._load.cancel()
        try:
            return await self._load
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
            return None
