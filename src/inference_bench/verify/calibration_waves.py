"""Sending the waves of a calibration sweep: requests that name their slot, and a prompt that comes while others decode.

In:   a Target, prompts by number, and a WavePlan
Out:  Wave: its records, how long it took, and the processor time that the engine used meanwhile
Leaves out: which waves (calibration_order), what they say (calibration_points)
Read next by: calibration_sweep.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from inference_bench.measure.client_health import ProcessWatch
from inference_bench.measure.client_loop import run_client
from inference_bench.measure.http1 import RunClock, Timeouts
from inference_bench.measure.kernel_stamps import keep_stamping
from inference_bench.measure.load import sample_lag
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.sender import Ask, Sender
from inference_bench.measure.target import Target
from inference_bench.records import RequestRecord, Stage
from inference_bench.stats import median
from inference_bench.verify.calibration_order import Send, WavePlan
from inference_bench.workload import Segment

_CACHE_FIELD: Final = "cache_prompt"
_SLOT_FIELD: Final = "id_slot"
_STEPS_BEFORE_LATE: Final = 4

Records = tuple[RequestRecord, ...]


@dataclass(frozen=True, slots=True)
class Wave:
    """What came of a WavePlan.

    Where:    late is the record of the prompt that came later; engine_cpu_s is None where the process is not ours
    Unit:     seconds
    """

    plan: WavePlan
    records: Records
    late: RequestRecord | None
    begin_s: float
    wall_s: float
    engine_cpu_s: float | None

    @property
    def all_records(self) -> Records:
        """The records of the wave and of what came later."""
        return self.records if self.late is None else (*self.records, self.late)

    @property
    def cpu_share(self) -> float | None:
        """The engine's processor time over the time that passed, of one core; None where it is not known."""
        return None if self.engine_cpu_s is None or self.wall_s <= 0 else self.engine_cpu_s / self.wall_s


@dataclass(slots=True)
class Paces:
    """When all of a wave decode, from waves that were sent before: after how long a late prompt is best sent.

    Where:    seen has, by batch and context, how long the slowest first token took and how long a step
    Unit:     seconds
    """

    seen: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    def note(self, batch: int, context_tokens: int, records: Records) -> None:
        """What a wave showed."""
        waits = [record.chunk_times_s[0] - record.sent_s for record in records if record.chunk_times_s]
        gaps = [after - before for record in records for before, after in pairwise(record.chunk_times_s)]
        if waits and gaps:
            self.seen[batch, context_tokens] = max(waits), median(gaps)

    def pause_s(self, batch: int, context_tokens: int) -> float:
        """How long to wait until all of a wave have decoded a little; nothing is known before the first wave.

        Formula:  slowest first token + 4 steps, of the wave nearest in batch, then in context
        """
        if not self.seen:
            return 0.0
        nearest = min(self.seen, key=lambda each: (abs(each[0] - batch), abs(each[1] - context_tokens)))
        first_s, step_s = self.seen[nearest]
        return first_s + _STEPS_BEFORE_LATE * step_s


def _unknown() -> float | None:
    return None


@dataclass(slots=True)
class WaveSender:
    """Sends waves one after the other, each to its end.

    Where:    engine_cpu_s says how much processor time the engine has used by now; None where its process is not ours
    Unit:     seconds
    """

    target: Target
    prompts: PromptMaker
    writer: Callable[[RequestRecord], None]
    timeouts: Timeouts
    engine_cpu_s: Callable[[], float | None] = _unknown
    clock: Callable[[], float] = field(default_factory=RunClock)
    loop_lags_s: list[float] = field(default_factory=list)
    paces: Paces = field(default_factory=Paces)
    num_sent: int = 0

    def send(self, plan: WavePlan) -> Wave:
        """Send one wave and wait for all of it; not for use inside an event loop.

        Raises:   StorageError from the writer
        """
        asks = [self._ask(plan, each) for each in plan.sends]
        late = None if plan.late is None else self._ask(plan, plan.late)
        batch, context = len(plan.sends), plan.sends[0].prompt_tokens
        pause_s = 0.0 if late is None else self.paces.pause_s(batch, context)
        begin_cpu_s, begin_s = self.engine_cpu_s(), time.perf_counter()
        records, last = run_client(self._send(asks, late, pause_s))
        wall_s, end_cpu_s = time.perf_counter() - begin_s, self.engine_cpu_s()
        self.paces.note(batch, context, records)
        cpu_s = None if begin_cpu_s is None or end_cpu_s is None else end_cpu_s - begin_cpu_s
        return Wave(plan, records, last, begin_s, wall_s, cpu_s)

    def _ask(self, plan: WavePlan, send: Send) -> tuple[Ask, bytes]:
        group, stage = (plan.point.name, Stage.MEASURE) if plan.point else ("prepare", Stage.WARMUP)
        prompt = self.prompts.make_of((Segment(send.text, send.prompt_tokens),), send.text)
        ask = Ask(f"sweep-{group}-{self.num_sent:05d}", prompt.text, send.output_tokens, 0.0, stage, group)
        self.num_sent += 1
        extra = dict(self.target.extra_body)
        if _CACHE_FIELD in extra:
            extra[_CACHE_FIELD] = send.reuses_cache
        if send.slot is not None:
            extra[_SLOT_FIELD] = send.slot
        return ask, replace(self.target, extra_body=extra).build_body(prompt.said, send.output_tokens)

    async def _send(
        self, asks: Sequence[tuple[Ask, bytes]], late: tuple[Ask, bytes] | None, pause_s: float
    ) -> tuple[Records, RequestRecord | None]:
        sender = Sender(self.target, self.clock, self.timeouts)
        with keep_stamping(), ProcessWatch():
            lags = asyncio.create_task(sample_lag(self.loop_lags_s, sender.receipts, self.clock))
            try:
                streams = asyncio.gather(*(self._send_one(sender, *each) for each in asks))
                last = None if late is None else await self._send_late(sender, late, pause_s, streams)
                return tuple(await streams), last
            finally:
                lags.cancel()
                with suppress(asyncio.CancelledError):
                    await lags

    async def _send_one(self, sender: Sender, ask: Ask, body: bytes) -> RequestRecord:
        return await sender.send(replace(ask, planned_s=self.clock()), body, self.writer)

    async def _send_late(
        self, sender: Sender, late: tuple[Ask, bytes], pause_s: float, streams: asyncio.Future[list[RequestRecord]]
    ) -> RequestRecord | None:
        """Send a prompt after a pause; not at all where the streams have ended by then."""
        await asyncio.wait({streams}, timeout=pause_s)
        return None if streams.done() else await self._send_one(sender, *late)
