"""How does one machine send more than one process can: a process for each core, each with its part of one schedule.

In:   a Target, a Workload, LoadOptions, how many processes
Out:  ShardedResult: the raw records of all, the health of the worst, each process's own beside it
Leaves out: other machines (ray_shards), what a process does (shards_work)
Read next by: session.

Processes are spawned, never forked, and begin together: on one machine perf_counter is one clock for all of them where the
system's monotonic clock stands behind it, as on Linux, which is checked by asking. Each writes a journal of its own, so that
what was measured is kept when one of them dies. Ctrl-C reaches only this process, which tells the others.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final

from inference_bench.errors import MeasurementError
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
from inference_bench.measure.store import RunFolder
from inference_bench.measure.target import Target
from inference_bench.simulate.processes import (
    end_with_parent,
    ending_words,
    own_tracker,
    unheard_interrupts,
    usable_cpus,
)
from inference_bench.workload import Workload

LEAD_S: Final = FIRST_FILL_S + 0.3  # from the word to begin until the first request: bodies are made meanwhile
_START_S: Final = 60.0  # for a process to start and import what it needs
_STOP_S: Final = 10.0  # for a process that was told to stop
_PROGRESS_S: Final = 0.25


def run_sharded(
    target: Target,
    workload: Workload,
    options: LoadOptions,
    num_processes: int | None = None,
    folder: RunFolder | None = None,
) -> ShardedResult:
    """`run_load` in several processes at once, as many as this one may use cores where no number is given.

    Where:    with a folder each process writes its own journal there, and options.writer is not called; without one it gets
              every record at the end
    Raises:   what `run_load` raises; ShardLost where a process died, after the others were stopped
    """
    tasks = make_tasks(target, workload, options, num_processes or usable_cpus(), folder)
    shards = _Shards(tasks, options)
    with own_tracker():
        try:
            shards.start(Secrets.of(target))
            outcomes, is_interrupted = shards.follow()
        finally:
            shards.end()
    result = merge(target, outcomes, shards.clocks)
    reserve_used(options, workload, result.records)
    if folder is None and options.writer is not None:
        for record in result.records:
            options.writer(record)
    kept = "" if folder is None else f"; what was measured by then is kept in {folder.path}"
    return require_whole(result, outcomes, is_interrupted, None if shards.lost is None else f"{shards.lost}{kept}")


@dataclass(slots=True)
class _Worker:
    """A process and the pipe to it."""

    process: SpawnProcess
    pipe: Connection
    num_ended: int = 0
    num_planned: int = 0
    outcome: ShardOutcome | None = None
    is_lost: bool = False

    @property
    def is_over(self) -> bool:
        return self.is_lost or self.outcome is not None


class _Shards:
    """All processes of one load."""

    def __init__(self, tasks: Sequence[ShardTask], options: LoadOptions) -> None:
        self._tasks, self._options = tasks, options
        self._workers: list[_Worker] = []
        self.clocks: list[ClockCheck] = []
        self.lost: str | None = None

    def start(self, secrets: Secrets) -> None:
        """Start all, hand out the work, compare clocks, and say when to begin.

        Raises:   MeasurementError where a process does not start
        """
        context = multiprocessing.get_context("spawn")
        for _ in self._tasks:
            own, other = context.Pipe()
            process = context.Process(target=_serve, args=(other,), daemon=True)
            try:
                with unheard_interrupts():
                    process.start()
                    self._workers.append(_Worker(process, own))
            finally:
                other.close()
        shift_s = shift_of(self._options.clock)
        shifts = []
        for worker, task in zip(self._workers, self._tasks, strict=True):
            _tell(worker, (task, secrets))
            self._hear(worker, _START_S)
            clock = check_clock(partial(self._ask_clock, worker), same_machine=True)
            self.clocks.append(clock)
            shifts.append(clock.offset_s + shift_s)
        begin_s = self._options.begin_s
        begin_s = self._options.clock() + LEAD_S if begin_s is None else begin_s
        for worker, its_shift_s in zip(self._workers, shifts, strict=True):
            _tell(worker, (begin_s, its_shift_s))

    def _ask_clock(self, worker: _Worker) -> float:
        _tell(worker, "clock")
        return float(self._hear(worker, _START_S))

    def _hear(self, worker: _Worker, patience_s: float) -> Any:
        """What a process says before it begins.

        Raises:   MeasurementError where it dies or says nothing
        """
        with suppress(EOFError, OSError):
            if worker.pipe.poll(patience_s):
                return worker.pipe.recv()
        worker.process.join(1.0)
        raise MeasurementError(
            f"a process that is to send requests {ending_words(worker.process.exitcode)} before it could begin; a script that "
            "calls this must do so under if __name__ == '__main__', or with one process"
        )

    def follow(self) -> tuple[list[ShardOutcome], bool]:
        """What every process measured, and whether the person stopped it; the rest is stopped where one fails."""
        is_interrupted, stop_by_s = False, float("inf")
        while open_workers := [worker for worker in self._workers if not worker.is_over]:
            try:
                left_s = stop_by_s - time.monotonic()
                if left_s <= 0:
                    break
                for pipe in wait([worker.pipe for worker in open_workers], min(left_s, 1.0)):
                    self._listen(next(worker for worker in open_workers if worker.pipe is pipe))
            except KeyboardInterrupt:
                if is_interrupted:
                    break
                is_interrupted = True
            if stop_by_s == float("inf") and (is_interrupted or self._has_failed()):
                self._stop()
                stop_by_s = time.monotonic() + _STOP_S
        return [worker.outcome for worker in self._workers if worker.outcome is not None], is_interrupted

    def _listen(self, worker: _Worker) -> None:
        try:
            said = worker.pipe.recv()
        except (EOFError, OSError):
            self._note_lost(worker)
            return
        if isinstance(said, ShardOutcome):
            worker.outcome = said
            return
        worker.num_ended, worker.num_planned = said
        if self._options.progress is not None:
            self._options.progress(
                sum(each.num_ended for each in self._workers), sum(each.num_planned for each in self._workers)
            )

    def _note_lost(self, worker: _Worker) -> None:
        worker.is_lost = True
        worker.process.join(_STOP_S)
        place = self._workers.index(worker) + 1
        self.lost = self.lost or (
            f"process {place} of {len(self._workers)} that sent requests {ending_words(worker.process.exitcode)}"
        )

    def _has_failed(self) -> bool:
        return any(
            worker.is_lost or (worker.outcome is not None and worker.outcome.error is not None)
            for worker in self._workers
        )

    def _stop(self) -> None:
        for worker in self._workers:
            if not worker.is_over:
                _tell(worker, "stop")

    def end(self) -> None:
        """No process stays."""
        for worker in self._workers:
            worker.process.terminate()
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join(_STOP_S)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def _tell(worker: _Worker, message: object) -> None:
    with suppress(OSError):  # it has died: that is heard next
        worker.pipe.send(message)


def _serve(pipe: Connection) -> None:
    """A process: its task, questions about its clock, the word to begin, and its outcome."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        task, secrets = pipe.recv()
        run = ShardRun(task, secrets)
        pipe.send("ready")
        while (said := pipe.recv()) == "clock":
            pipe.send(time.perf_counter())
        begin_s, shift_s = said
        threading.Thread(target=_obey, args=(pipe, run), daemon=True).start()
        pipe.send(run.run(begin_s, ShiftedClock(shift_s), _Reporter(pipe.send)))


def _obey(pipe: Connection, run: ShardRun) -> None:
    """Stop when told so."""
    with suppress(EOFError, OSError):
        if pipe.recv() == "stop":
            run.stop()


class _Reporter:
    """Says how far this process is, a few times a second."""

    def __init__(self, tell: Callable[[tuple[int, int]], None]) -> None:
        self._tell, self._last_s = tell, 0.0

    def __call__(self, ended: int, planned: int) -> None:
        now_s = time.monotonic()
        if now_s - self._last_s >= _PROGRESS_S or ended == planned:
            self._last_s = now_s
            self._tell((ended, planned))
