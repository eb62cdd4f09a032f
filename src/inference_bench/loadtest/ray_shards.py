"""How do several machines send one schedule: shards as actors of a Ray cluster, their times brought to one clock.

In:   a Target, a Workload, LoadOptions, how many shards
Out:  ShardedResult, with each shard's machine and how far its clock may be off
Leaves out: what a shard does (shards_work), processes of one machine without Ray (shards)
Read next by: session.

Each machine has a clock of its own. It is compared with this one by asking, which bounds the offset by half a round trip; shards
then keep the run's time themselves, and that bound stands in the result: latencies are differences of one machine's times and
have no part in it, arrivals of different machines do. Records come back when a shard has ended, and are written here. A cluster
is joined where there is one (RAY_ADDRESS), with this package on its machines; else Ray is started here, on the loopback
interface, and ended again.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from inference_bench.errors import InferenceBenchError, MeasurementError
from inference_bench.loadtest.shards_clock import ClockCheck, check_clock, shift_of
from inference_bench.loadtest.shards_merge import ShardedResult, merge, require_whole
from inference_bench.loadtest.shards_work import (
    Secrets,
    ShardOutcome,
    ShardRun,
    ShardTask,
    ShiftedClock,
    make_tasks,
    reserve_used,
)
from inference_bench.measure.jobs import FIRST_FILL_S
from inference_bench.measure.load import LoadOptions
from inference_bench.measure.target import Target
from inference_bench.simulate.processes import usable_cpus
from inference_bench.simulate.ray_tasks import import_ray, start_ray
from inference_bench.workload import Workload

_LEAD_S: Final = FIRST_FILL_S + 1.0  # from the word to begin until the first request, over a network
_START_S: Final = 120.0
_STOP_S: Final = 15.0
_LOOK_S: Final = 0.5
_CONNECT_S: Final = 10.0


class RayShard:
    """One shard, on whatever machine Ray puts it; a second thread listens while it sends."""

    def __init__(self) -> None:
        self._run: ShardRun | None = None

    def prepare(self, task: ShardTask, secrets: Secrets) -> str:
        """Take the task; the machine's name."""
        self._run = ShardRun(task, secrets)
        return socket.gethostname()

    def clock(self) -> float:
        """This machine's own clock."""
        return time.perf_counter()

    def run(self, begin_s: float, shift_s: float) -> ShardOutcome:
        """Send everything, from a time on the run's clock on."""
        if self._run is None:
            raise MeasurementError("a shard was told to begin before it had a task")
        return self._run.run(begin_s, ShiftedClock(shift_s))

    def stop(self) -> None:
        """End soon, with what was measured by then."""
        if self._run is not None:
            self._run.stop()


def run_on_ray_shards(
    target: Target, workload: Workload, options: LoadOptions, num_shards: int | None = None
) -> ShardedResult:
    """`run_load` on a Ray cluster, in so many shards, one a machine's core where no number is given.

    Where:    options.writer gets every record when all shards have ended
    Raises:   what `run_load` raises; MissingExtraError without ray; ShardLost where a shard was lost, after the others
              were stopped and what they measured was written
    """
    with _ray_at_hand(num_shards) as ray:
        wanted = num_shards or int(ray.cluster_resources().get("CPU", 1))
        shards = _RayShards(ray, make_tasks(target, workload, options, wanted), options)
        try:
            shards.start(Secrets.of(target))
            outcomes, is_interrupted = shards.follow()
        finally:
            shards.end()
    result = merge(target, outcomes, shards.clocks, [shards.places[outcome.number] for outcome in outcomes])
    reserve_used(options, workload, result.records)
    for record in result.records if options.writer is not None else ():
        options.writer(record)  # type: ignore[misc]
    return require_whole(result, outcomes, is_interrupted, shards.lost)


@contextmanager
def _ray_at_hand(num_shards: int | None) -> Iterator[Any]:
    ray = import_ray("load tests")
    is_own = not ray.is_initialized()
    if is_own:
        _require_cluster(os.environ.get("RAY_ADDRESS", ""))
        start_ray(ray, num_shards or usable_cpus())
    try:
        yield ray
    finally:
        if is_own:
            ray.shutdown()


def _require_cluster(address: str) -> None:
    """Something listens where a cluster is said to be; Ray itself would ask for minutes.

    Raises:   MeasurementError
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():
        return  # none is named, or in a form of Ray's own
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError):
        raise MeasurementError(
            f"no Ray cluster answers at {address[:80]!r}, which RAY_ADDRESS names; start it, or unset the variable"
        ) from None


class _RayShards:
    """All shards of one load."""

    def __init__(self, ray: Any, tasks: Sequence[ShardTask], options: LoadOptions) -> None:
        self._ray, self._tasks, self._options = ray, tasks, options
        self._actors: list[Any] = []
        self._running: dict[Any, int] = {}
        self.clocks: list[ClockCheck] = []
        self.places: list[str] = []
        self.lost: str | None = None

    def start(self, secrets: Secrets) -> None:
        """Start all, hand out the work, compare clocks, and say when to begin.

        Raises:   MeasurementError where an actor does not start
        """
        actor = self._ray.remote(max_concurrency=2, max_restarts=0, num_cpus=1, scheduling_strategy="SPREAD")(RayShard)
        self._actors = [actor.remote() for _ in self._tasks]
        waiting = [each.prepare.remote(task, secrets) for each, task in zip(self._actors, self._tasks, strict=True)]
        self.places = self._get(waiting)
        here = socket.gethostname()
        self.clocks = [
            check_clock(partial(self._ask_clock, each), same_machine=place == here)
            for each, place in zip(self._actors, self.places, strict=True)
        ]
        shift_s = shift_of(self._options.clock)
        begin_s = self._options.begin_s
        begin_s = self._options.clock() + _LEAD_S if begin_s is None else begin_s
        self._running = {
            each.run.remote(begin_s, clock.offset_s + shift_s): number
            for number, (each, clock) in enumerate(zip(self._actors, self.clocks, strict=True))
        }

    def _ask_clock(self, actor: Any) -> float:
        return float(self._get(actor.clock.remote()))

    def _get(self, asked: Any) -> Any:
        try:
            return self._ray.get(asked, timeout=_START_S)
        except self._ray.exceptions.RayError as error:
            raise MeasurementError(f"a shard on Ray did not start: {_first_line(error)}") from None

    def follow(self) -> tuple[list[ShardOutcome], bool]:
        """What every shard measured, and whether the person stopped it; the rest is stopped where one fails."""
        outcomes: list[ShardOutcome] = []
        is_interrupted, stop_by_s = False, float("inf")
        while self._running and time.monotonic() < stop_by_s:
            try:
                done, _ = self._ray.wait(list(self._running), timeout=_LOOK_S)
                for each in done:
                    outcomes += self._outcome(each, self._running.pop(each))
            except KeyboardInterrupt:
                if is_interrupted:
                    break
                is_interrupted = True
            failed = self.lost is not None or any(outcome.error is not None for outcome in outcomes)
            if stop_by_s == float("inf") and (is_interrupted or failed):
                for number in self._running.values():
                    self._actors[number].stop.remote()
                stop_by_s = time.monotonic() + _STOP_S
        return sorted(outcomes, key=lambda outcome: outcome.number), is_interrupted

    def _outcome(self, done: Any, number: int) -> list[ShardOutcome]:
        try:
            return [self._ray.get(done)]
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, InferenceBenchError):
                return [ShardOutcome(number, (), error=error.cause)]
            raise
        except self._ray.exceptions.RayError as error:
            place = f"shard {number + 1} of {len(self._tasks)}, on {self.places[number]},"
            self.lost = self.lost or f"{place} was lost: {_first_line(error)}"
            return []

    def end(self) -> None:
        """No actor stays."""
        for each in self._actors:
            self._ray.kill(each)


def _first_line(error: Exception) -> str:
    said = str(error).strip().splitlines()
    return said[0][:200] if said else type(error).__name__
