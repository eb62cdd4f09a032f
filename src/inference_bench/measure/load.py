"""What does a server deliver under load: send requests in turn or on a schedule, and write each down as it ends.

In:   a Target and a Workload
Out:  every RequestRecord, handed to the writer at once, and how well this client itself kept up
Leaves out: what the numbers mean (metrics) and where they are kept (store)
Read next by: loadtest, verify, warmup.

What is sent is in jobs, when in slots (a closed loop) and schedule (an open one), how in dispatch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from inference_bench.measure.client_health import ClientHealth as ClientHealth
from inference_bench.measure.client_health import ProcessWatch, judge_client
from inference_bench.measure.client_loop import run_client
from inference_bench.measure.dispatch import MOST_IN_FLIGHT as MOST_IN_FLIGHT
from inference_bench.measure.dispatch import Dispatch
from inference_bench.measure.dispatch import count_possible_in_flight as count_possible_in_flight
from inference_bench.measure.http1 import RunClock, Timeouts
from inference_bench.measure.jobs import FIRST_FILL_S, JobMaker, keep_ahead
from inference_bench.measure.kernel_stamps import keep_stamping
from inference_bench.measure.load_options import LoadOptions as LoadOptions
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.receipts import Receipts
from inference_bench.measure.refusals import find_refused_fields as find_refused_fields
from inference_bench.measure.schedule import Schedule
from inference_bench.measure.slots import Slots
from inference_bench.measure.target import Target
from inference_bench.records import RequestRecord, Stage
from inference_bench.workload import ClosedLoop, Workload

LAG_PERIOD_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load run gave.

    Where:    `target` is what the last request was sent to: the one given, less `dropped_fields`, body fields that
              the server refused during warm-up; measured_s is when measuring began and ended on the run's clock, None
              where no duration was given
    """

    records: tuple[RequestRecord, ...]
    health: ClientHealth
    target: Target
    dropped_fields: tuple[str, ...] = ()
    loop_lags_s: tuple[float, ...] = ()
    measured_s: tuple[float, float] | None = None


class LoadInterrupted(KeyboardInterrupt):
    """The person stopped the load; `result` is what was measured by then, what was in flight as CANCELLED."""

    def __init__(self, result: LoadResult) -> None:
        super().__init__()
        self.result = result


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
              CANCELLED and is then passed on as LoadInterrupted
    """
    kept: list[LoadResult] = []
    try:
        return run_client(_send_load(target, workload, options, kept.append))
    except KeyboardInterrupt:
        if kept:
            raise LoadInterrupted(kept[0]) from None
        raise


async def send_load(target: Target, workload: Workload, options: LoadOptions) -> LoadResult:
    """The same inside an event loop; see `run_load`."""
    return await _send_load(target, workload, options, lambda _: None)


async def _send_load(
    target: Target, workload: Workload, options: LoadOptions, keep: Callable[[LoadResult], None]
) -> LoadResult:
    load = _Load(target, workload, options)
    load.fill()
    watch = ProcessWatch()
    try:
        with keep_stamping(), watch:
            await load.run()
    except asyncio.CancelledError:
        keep(load.result(watch))
        raise
    return load.result(watch)


class _Load:
    """One load, from its first job to its result."""

    def __init__(self, target: Target, workload: Workload, options: LoadOptions) -> None:
        self._options, arrival = options, workload.arrival
        maker = JobMaker(target, workload, options)
        self._plan = (
            Slots(workload, arrival, maker, options)
            if isinstance(arrival, ClosedLoop)
            else Schedule(workload, arrival, maker, options)
        )
        self._dispatch = Dispatch(target, options, self._plan.num_planned)
        self._lags_s: list[float] = []
        self._measured_s: tuple[float, float] | None = None

    def fill(self) -> None:
        """Make the first requests' bodies before any clock runs."""
        for line in self._plan.lines:
            line.fill(FIRST_FILL_S)

    async def run(self) -> None:
        options, now_s = self._options, self._options.clock()
        begin_s = now_s if options.begin_s is None else options.begin_s
        if options.duration_s is not None:
            warm_until_s = begin_s + options.warm_s
            self._measured_s = warm_until_s, warm_until_s + options.duration_s
        sampler = sample_lag(self._lags_s, self._dispatch.sender.receipts, options.clock)
        beside = [asyncio.create_task(sampler), asyncio.create_task(keep_ahead(self._plan.lines))]
        try:
            await self._plan.run(self._dispatch, begin_s)
        finally:
            for each in beside:
                each.cancel()
            for each in beside:
                with suppress(asyncio.CancelledError):
                    await each

    def result(self, watch: ProcessWatch) -> LoadResult:
        """What came of it so far."""
        dispatch = self._dispatch
        health = judge_client(dispatch.records, dispatch.sender.receipts, self._lags_s, watch)
        return LoadResult(
            tuple(dispatch.records),
            health,
            dispatch.sender.target,
            tuple(dispatch.dropped_fields),
            tuple(self._lags_s),
            self._measured_s,
        )


async def sample_lag(lags_s: list[float], receipts: Receipts, clock: Callable[[], float]) -> None:
    """How late this thread's event loop wakes, again and again until it is cancelled."""
    while True:
        due_s = clock() + LAG_PERIOD_S  # a loop's own clock may stand still while it works
        await asyncio.sleep(LAG_PERIOD_S)
        lags_s.append(lag_s := max(0.0, (now_s := clock()) - due_s))
        receipts.note_lag(now_s, lag_s, LAG_PERIOD_S)
