"""How does an open loop go: every request at its time in the schedule, whether or not earlier ones were answered.

In:   an OpenLoop, jobs, a Dispatch
Out:  nothing; the Dispatch has the records
Leaves out: what is sent (jobs), how one request is followed (sender)
Read next by: load.

A slow server is not asked less. What passes from the plan until a request is sent is this client's own delay, and
counts. Only a turn of a conversation waits, for the answer to the turn before it: it is then sent late, keeps its plan,
and so its TTFT holds the wait.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left

from inference_bench.errors import MeasurementError
from inference_bench.measure.dispatch import Dispatch, count_possible_in_flight
from inference_bench.measure.jobs import AHEAD_S, LEAST_AHEAD, Job, JobLine, JobMaker
from inference_bench.measure.load_options import LoadOptions
from inference_bench.records import Stage
from inference_bench.workload import OpenLoop, Workload


class Schedule:
    """The schedule of one open loop, or the part of it that this process sends."""

    def __init__(self, workload: Workload, arrival: OpenLoop, maker: JobMaker, options: LoadOptions) -> None:
        own = range(len(workload)) if options.indices is None else options.indices
        most_s = float("inf") if options.all_s is None else options.all_s
        self._times_s = [time_s for index in own if (time_s := arrival.times_s[index]) < most_s]
        self.num_planned = len(self._times_s)
        self._options = options
        self._line = JobLine(maker, iter(own[: self.num_planned]), self._count_wanted)
        self._turns: dict[int, asyncio.Task[None]] = {}
        self._measuring: set[asyncio.Task[None]] = set()
        self._others: set[asyncio.Task[None]] = set()
        end_s = (arrival.times_s[-1] if options.all_s is None else options.all_s) - options.cooldown_s
        self._measure_until_s = end_s if options.cooldown_s or options.duration_s else float("inf")

    @property
    def lines(self) -> tuple[JobLine, ...]:
        """The jobs to make ahead."""
        return (self._line,)

    def _count_wanted(self, taken: int) -> int:
        """How many requests are due within the next seconds, and some more."""
        if taken >= self.num_planned:
            return 0
        due = bisect_left(self._times_s, self._times_s[taken] + AHEAD_S, taken) - taken
        return min(max(due, LEAST_AHEAD), self.num_planned - taken)

    async def run(self, dispatch: Dispatch, begin_s: float) -> None:
        """Send everything on time, then wait for what was measured; or, with a duration, until that is over."""
        try:
            async with asyncio.TaskGroup() as sending:
                await self._send_all(dispatch, begin_s, sending)
                if self._options.duration_s is not None or self._options.cooldown_s:
                    await self._end(dispatch, begin_s)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _send_all(self, dispatch: Dispatch, begin_s: float, sending: asyncio.TaskGroup) -> None:
        most_in_flight = count_possible_in_flight()
        for number, time_s in enumerate(self._times_s):
            await dispatch.wait_until(begin_s + time_s)
            if dispatch.num_in_flight >= most_in_flight:
                raise MeasurementError(
                    f"{dispatch.num_in_flight} requests are in flight, as many as this client can hold, and the "
                    f"server falls behind the schedule; lower the rate, or raise the limit of open files"
                )
            stage = self._stage_of(number, time_s)
            if stage is Stage.COOLDOWN and not self._measuring:
                return
            if (job := self._line.take()) is not None:
                self._start(sending, dispatch, job, begin_s + time_s, stage)

    def _stage_of(self, number: int, time_s: float) -> Stage:
        if time_s < self._options.warm_s or number < self._options.warmup_requests:
            return Stage.WARMUP
        return self._options.stage if time_s < self._measure_until_s else Stage.COOLDOWN

    def _start(self, sending: asyncio.TaskGroup, dispatch: Dispatch, job: Job, planned_s: float, stage: Stage) -> None:
        before = None if job.session is None else self._turns.get(job.session)
        task = sending.create_task(_send_after(before, dispatch, job, planned_s, stage))
        if job.session is not None:
            self._turns[job.session] = task
        tasks = self._measuring if stage is self._options.stage else self._others
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _end(self, dispatch: Dispatch, begin_s: float) -> None:
        """Wait until all that was measured has ended, with a duration no longer than that; then cancel the rest."""
        if self._measuring:
            all_s = self._options.all_s
            left_s = None if all_s is None else max(0.0, begin_s + all_s - dispatch.clock())
            await asyncio.wait(self._measuring, timeout=left_s, return_when=asyncio.FIRST_EXCEPTION)
        for task in (*self._measuring, *self._others):
            task.cancel()


async def _send_after(
    before: asyncio.Task[None] | None, dispatch: Dispatch, job: Job, planned_s: float, stage: Stage
) -> None:
    """Send a request; a turn of a conversation not before the turn before it has ended."""
    if before is not None and not before.done():
        await asyncio.wait([before])
    await dispatch.send(job, planned_s, stage)
