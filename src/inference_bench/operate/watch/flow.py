"""All servers at once, each at its own pace: a Round at every interval, and what it all came to.

In:   Watched servers, WatchOptions, who is told of each Round
Out:  Rounds; a Tally a server
Leaves out: asking (observer), showing (report.watch_report), exporting (exporter)
Read next by: cli.

Every server has a task of its own, and a round takes what each knows at that moment: one that is slow or dead holds up nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from inference_bench.operate.watch.observer import Observer, WatchOptions
from inference_bench.operate.watch.states import Alive, Counts, Ready, Room, Round, Tally, View
from inference_bench.operate.watch.targets import Watched

OnRound = Callable[[Round], None]


class Watch:
    """A watch of some servers, which can be run once."""

    def __init__(
        self, servers: Sequence[Watched], options: WatchOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._servers, self._options, self._clock = tuple(servers), options, clock
        self._begin_s = clock()
        self._number = 0
        self._tallies = {each.name: Tally(each.name, 0, 0, 0, 0, Counts()) for each in servers}

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """What was seen so far; after an interruption, too."""
        return tuple(self._tallies.values())

    def once(self) -> Round:
        """One round, once every server has had its say or its time."""
        return asyncio.run(self._once())

    def run(self, on_round: OnRound, for_s: float | None = None) -> Round | None:
        """Rounds until the time is over, or for ever; the last of them.

        Raises:   KeyboardInterrupt; whatever `on_round` raises
        """
        return asyncio.run(self._run(on_round, for_s))

    async def _once(self) -> Round:
        observers = self._observers()
        await asyncio.gather(*(each.observe_once() for each in observers))
        return self._round(observers)

    async def _run(self, on_round: OnRound, for_s: float | None) -> Round | None:
        observers, interval_s = self._observers(), self._options.interval_s
        end_s = None if for_s is None else self._begin_s + for_s
        last: Round | None = None
        with _running(observers, interval_s) as tasks:
            await self._first_answers(observers)
            due_s = self._clock()
            while True:
                _raise_mistakes(tasks)
                on_round(last := self._round(observers))
                due_s = max(due_s + interval_s, self._clock())
                if end_s is not None and due_s > end_s:
                    return last
                await asyncio.sleep(due_s - self._clock())

    async def _first_answers(self, observers: Sequence[Observer]) -> None:
        """Until each server was asked once, or for as long as an answer may take."""
        waiting = [asyncio.ensure_future(each.has_begun.wait()) for each in observers]
        _, late = await asyncio.wait(waiting, timeout=self._options.timeout_s)
        for each in late:
            each.cancel()

    def _observers(self) -> list[Observer]:
        return [Observer(each, self._options, self._clock) for each in self._servers]

    def _round(self, observers: Sequence[Observer]) -> Round:
        self._number += 1
        views = tuple(each.view() for each in observers)
        for view in views:
            self._tallies[view.name] = _with(self._tallies[view.name], view)
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        return Round(self._number, at, self._clock() - self._begin_s, views)


@contextmanager
def _running(observers: Sequence[Observer], interval_s: float) -> Iterator[Sequence[asyncio.Task[None]]]:
    """Their tasks, which end with the block."""
    tasks = [
        asyncio.create_task(each.run(interval_s * (number + 1) / len(observers)))
        for number, each in enumerate(observers)
    ]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()


def _raise_mistakes(tasks: Sequence[asyncio.Task[None]]) -> None:
    """A task that ended has met a mistake of this program: its server would look as it last was for ever."""
    for task in tasks:
        if task.done():
            task.result()


def _with(tally: Tally, view: View) -> Tally:
    return Tally(
        tally.name,
        tally.num_rounds + 1,
        tally.num_alive + (view.alive is Alive.YES),
        tally.num_ready + (view.ready is Ready.YES),
        tally.num_saturated + (view.room is Room.SATURATED),
        view.counts,
    )
