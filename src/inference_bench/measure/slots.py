"""How does a closed loop go: so many slots, each of which sends its next request when the last one has ended.

In:   a ClosedLoop, jobs, a Dispatch
Out:  nothing; the Dispatch has the records
Leaves out: what is sent (jobs), how one request is followed (sender)
Read next by: load.

It is one loop from the first request of the warm-up to the last of the cool-down: a slot passes from one part to the
next without waiting for the others, so that the load never drains in between. A request is planned for the moment its
slot became free, which is when the previous reply ended (and the user had thought).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from inference_bench.measure.dispatch import Dispatch
from inference_bench.measure.jobs import LEAST_AHEAD, Job, JobLine, JobMaker
from inference_bench.measure.load_options import LoadOptions
from inference_bench.records import Stage
from inference_bench.workload import ClosedLoop, Workload


@dataclass(frozen=True, slots=True)
class _Lines:
    """What is measured, and what is sent besides."""

    measured: JobLine
    besides: JobLine


class Slots:
    """The slots of one closed loop."""

    def __init__(self, workload: Workload, arrival: ClosedLoop, maker: JobMaker, options: LoadOptions) -> None:
        own = range(len(workload)) if options.indices is None else options.indices
        self._options, self._think_s = options, arrival.think_s
        has_more = self._is_timed or bool(options.warm_s or options.warmup_requests)
        self._num_slots = arrival.concurrency if has_more else min(arrival.concurrency, len(own))
        self.num_planned = 0 if self._is_timed else len(own) + options.warmup_requests  # 0: nobody knows
        ahead = max(LEAST_AHEAD, 4 * self._num_slots)
        besides = _endless(own, len(workload), begin=1)
        measured = _shared_out(own, besides) if self._is_timed and options.repeats else iter(own)
        has_besides = bool(options.warm_s or options.warmup_requests or options.cooldown_s)
        self._lines = _Lines(
            JobLine(maker, measured, lambda _: ahead),
            JobLine(maker, besides, lambda _: max(1, ahead // 4) if has_besides else 0),
        )
        self._num_warm = self._num_running = 0
        self._stage_of: dict[asyncio.Task[None], Stage] = {}
        self._over = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._warm_until_s = self._measure_until_s = self._end_s = float("inf")

    @property
    def _is_timed(self) -> bool:
        return self._options.duration_s is not None

    @property
    def lines(self) -> tuple[JobLine, ...]:
        """The jobs to make ahead."""
        return self._lines.measured, self._lines.besides

    async def run(self, dispatch: Dispatch, begin_s: float) -> None:
        """Run all slots to the end; when one fails or the caller is cancelled, stop the others and wait for them."""
        options = self._options
        self._warm_until_s = begin_s + options.warm_s
        if options.duration_s is not None:
            self._measure_until_s = self._warm_until_s + options.duration_s
            self._end_at(self._measure_until_s + options.cooldown_s, dispatch)
        self._num_running = self._num_slots
        step_s = options.ramp_s / self._num_slots
        slots = [
            asyncio.create_task(self._run_slot(dispatch, begin_s + number * step_s))
            for number in range(self._num_slots)
        ]
        for slot in slots:
            slot.add_done_callback(self._note_end)
        try:
            await self._over.wait()
            self._stop_what_may_be(slots)
            await asyncio.wait(slots, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            endings = await self._stop(slots)
        for ending in endings:
            if isinstance(ending, BaseException) and not isinstance(ending, asyncio.CancelledError):
                raise ending

    async def _run_slot(self, dispatch: Dispatch, free_s: float) -> None:
        task = asyncio.current_task()
        while not self._over.is_set():
            if free_s > dispatch.clock():
                if not self._options.cooldown_s and not self._lines.measured.has_more():
                    return
                await dispatch.wait_until(free_s)
            taken = self._take(free_s, dispatch)
            if taken is None or task is None:
                return
            job, self._stage_of[task] = taken
            record = await dispatch.send(job, free_s, self._stage_of[task])
            free_s = record.end_s + self._think_s
            if self._is_drained(dispatch):
                self._over.set()

    def _take(self, planned_s: float, dispatch: Dispatch) -> tuple[Job, Stage] | None:
        """The next request and the part of the run it belongs to; None when the slot has nothing left to do."""
        options = self._options
        if planned_s < self._warm_until_s or self._num_warm < options.warmup_requests:
            self._num_warm += 1
            return _with(self._lines.besides.take(), Stage.WARMUP)
        if planned_s < self._measure_until_s:
            if (job := self._lines.measured.take()) is not None:
                return job, options.stage
            self._measure_until_s = planned_s
            if options.cooldown_s and not self._is_timed:
                self._end_at(dispatch.clock() + options.cooldown_s, dispatch)
        if not options.cooldown_s or planned_s >= self._end_s or self._is_drained(dispatch):
            return None
        return _with(self._lines.besides.take(), Stage.COOLDOWN)

    def _end_at(self, end_s: float, dispatch: Dispatch) -> None:
        self._end_s = end_s
        self._timer = asyncio.get_running_loop().call_later(max(0.0, end_s - dispatch.clock()), self._over.set)

    def _is_drained(self, dispatch: Dispatch) -> bool:
        """Whether the cool-down has done its duty: all that was measured has ended."""
        is_cooling = dispatch.clock() >= self._measure_until_s
        return is_cooling and not dispatch.num_measuring and bool(self._options.cooldown_s or self._is_timed)

    def _stop_what_may_be(self, slots: Sequence[asyncio.Task[None]]) -> None:
        """Cancel what is in flight at the end; without a duration, what is measured may finish."""
        for slot in slots:
            if self._is_timed or self._stage_of.get(slot) is not self._options.stage:
                slot.cancel()

    def _note_end(self, slot: asyncio.Task[None]) -> None:
        self._stage_of.pop(slot, None)
        self._num_running -= 1
        if not self._num_running or (not slot.cancelled() and slot.exception() is not None):
            self._over.set()

    async def _stop(self, slots: Sequence[asyncio.Task[None]]) -> list[BaseException | None]:
        if self._timer is not None:
            self._timer.cancel()
        for slot in slots:
            slot.cancel()
        return await asyncio.gather(*slots, return_exceptions=True)


def _with(job: Job | None, stage: Stage) -> tuple[Job, Stage] | None:
    return None if job is None else (job, stage)


def _endless(own: Sequence[int], length: int, begin: int) -> Iterator[int]:
    """The requests of this process again and again, each time with indices beyond the last."""
    for again in count(begin):
        yield from (index + again * length for index in own)


def _shared_out(own: Sequence[int], besides: Iterator[int]) -> Iterator[int]:
    yield from own
    yield from besides
