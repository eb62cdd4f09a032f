"""One call for each of many items, in processes of this machine: one that dies takes no other item along.

In:   a function and its arguments, one an item, all of which can be pickled
Out:  (index, result) as each ends; Lost in place of a result where the process died
Leaves out: what is computed (sweep), other machines (ray_tasks)
Read next by: sweep.

Processes are spawned, so that none inherits a lock or a thread. They never see Ctrl-C, which a terminal sends to all of them: the
one that started them does, and ends them. Should that one be killed, they end by themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final, TypeVar

from inference_bench.errors import WorldError

Item = TypeVar("Item")
Result = TypeVar("Result")
_READY: Final = "ready"
_PATIENCE_S: Final = 5.0  # for a process that was told to end


@dataclass(frozen=True, slots=True)
class Lost:
    """There is no result: why, in words."""

    reason: str


@dataclass(slots=True)
class _Worker:
    """A process, the pipe to it, and which item it has."""

    process: SpawnProcess
    pipe: Connection
    index: int | None = None
    is_ready: bool = False


def usable_cpus() -> int:
    """The processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], num_processes: int
) -> Generator[tuple[int, Result | Lost], None, None]:
    """The result of each item as it ends; closing the generator ends all processes.

    Raises:  WorldError where no process can start
    """
    pool = _Pool(work, items)
    with own_tracker():
        try:
            pool.start(num_processes)
            yield from pool.results()
        finally:
            pool.end()


class _Pool:
    """Processes that take one item after the other."""

    def __init__(self, work: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self._work, self._items = work, items
        self._waiting = deque(range(len(items)))
        self._was_ready = False
        self._workers: list[_Worker] = []

    def start(self, num_processes: int) -> None:
        """So many processes, but none without an item."""
        for _ in range(min(num_processes, len(self._items))):
            self._start()

    def results(self) -> Iterator[tuple[int, Any]]:
        """Until every item has ended."""
        left = len(self._items)
        while left:
            if not self._workers:
                yield from ((index, Lost("no process could be started for it")) for index in self._waiting)
                return
            for pipe in wait([worker.pipe for worker in self._workers]):
                worker = next(each for each in self._workers if each.pipe is pipe)
                for ended in self._heard(worker):
                    left -= 1
                    yield ended

    def _heard(self, worker: _Worker) -> Iterator[tuple[int, Any]]:
        """What a process has to say: that it is ready, a result, or nothing any more."""
        try:
            said = worker.pipe.recv()
        except (EOFError, OSError):
            yield from self._died(worker)
            return
        if worker.is_ready and worker.index is not None:
            index, worker.index = worker.index, None
            yield index, said
        worker.is_ready = self._was_ready = True
        yield from self._give(worker)

    def _give(self, worker: _Worker) -> Iterator[tuple[int, Any]]:
        """The next item; one that cannot be pickled is lost."""
        while self._waiting:
            index = self._waiting.popleft()
            try:
                worker.pipe.send(self._items[index])
            except OSError:  # it has died: that is heard next
                self._waiting.appendleft(index)
                return
            except Exception as error:  # pickle raises what the item's own code raises, and three kinds of its own
                yield index, Lost(f"it cannot be sent to another process: {error}")
            else:
                worker.index = index
                return

    def _died(self, worker: _Worker) -> Iterator[tuple[int, Any]]:
        """The item of a process that died is lost; another process takes its place.

        Raises:  WorldError where it died before it could begin, like all before it
        """
        self._workers.remove(worker)
        worker.process.join(_PATIENCE_S)
        how = ending_words(worker.process.exitcode)
        worker.pipe.close()
        if not self._was_ready:
            raise WorldError(
                f"a process for the simulations {how} before it could begin; a script that calls this must do so under "
                "if __name__ == '__main__', or with one worker"
            )
        if worker.index is not None:
            yield worker.index, Lost(f"the process that ran it {how}")
        if worker.is_ready and self._waiting:
            self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        own, other = context.Pipe()
        process = context.Process(target=_serve, args=(other, self._work), daemon=True)
        try:
            with unheard_interrupts():
                process.start()
                self._workers.append(_Worker(process, own))  # before an interrupt is heard, so that it is ended too
        finally:
            other.close()

    def end(self) -> None:
        """No process stays."""
        for worker in self._workers:
            worker.process.terminate()
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join(_PATIENCE_S)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers.clear()


def _serve(pipe: Connection, work: Callable[[Any], Any]) -> None:
    """A process: item after item, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        pipe.send(_READY)
        while True:
            pipe.send(work(pipe.recv()))
    except (EOFError, OSError):
        return


def end_with_parent() -> None:
    """Whoever started this process is gone, and nobody waits for its result."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def own_tracker() -> Iterator[None]:
    """The process that Python starts beside spawned ones ends with them, if it was started for them.

    Where:  left alone it ends a moment after this program, and where nobody waits for orphans, as in a container without an
            init, it stays in the list of processes for good
    """
    from multiprocessing import resource_tracker

    tracker: Any = getattr(resource_tracker, "_resource_tracker", None)
    is_mine = getattr(tracker, "_pid", 0) is None
    try:
        yield
    finally:
        if is_mine and hasattr(tracker, "_stop"):
            tracker._stop()


@contextmanager
def unheard_interrupts() -> Iterator[None]:
    """A process that starts within this never hears of Ctrl-C; this one hears of it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing.resource_tracker import ensure_running

    ensure_running()  # it lets interrupts through when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ending_words(exit_code: int | None) -> str:
    """How a process ended, in words."""
    if exit_code is None:
        return "stopped answering"
    if exit_code >= 0:
        return f"ended by itself (exit code {exit_code})"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    hint = "; the system does that when memory runs out" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"
