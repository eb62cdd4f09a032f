"""How do the requests of one load share a client: each is sent, followed, written down and counted.

In:   Jobs with when they were planned
Out:  RequestRecords, kept and handed to the writer; an end where no request can succeed
Leaves out: when each is sent (slots, schedule)
Read next by: slots, schedule, load.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from inference_bench.errors import MeasurementError
from inference_bench.measure.jobs import Job
from inference_bench.measure.load_options import LoadOptions
from inference_bench.measure.refusals import find_refused_fields, is_hopeless
from inference_bench.measure.sender import Ask, Sender
from inference_bench.measure.target import Target
from inference_bench.records import RequestRecord, Stage

NUM_HOPELESS: Final = 5
MOST_IN_FLIGHT: Final = 60_000  # ports that one address can reach another's one port from

_OTHER_FILES: Final = 64  # of this process, beside its connections
_WITHOUT_LIMIT: Final = 10_000


class Dispatch:
    """The requests of one load and what they share."""

    def __init__(self, target: Target, options: LoadOptions, num_planned: int) -> None:
        self.records: list[RequestRecord] = []
        self.dropped_fields: list[str] = []
        self.sender = Sender(target, options.clock, options.timeouts, stamps=options.stamps, journal=options.journal)
        self.num_in_flight = 0
        self.num_measuring = 0
        self.clock = options.clock
        self._options = options
        self._num_planned = num_planned
        self._num_ended = 0
        self._has_hope = False
        self._first_error: str | None = None

    async def send(self, job: Job, planned_s: float, stage: Stage) -> RequestRecord:
        """Send one request and follow it to its end.

        Raises:   MeasurementError when the first ones show that none can succeed; what the writer raises
        """
        self.num_in_flight += 1
        self.num_measuring += stage is self._options.stage
        try:
            record = await self._send(job, planned_s, stage)
        finally:
            self.num_in_flight -= 1
            self.num_measuring -= stage is self._options.stage
        self._settle(record)
        return record

    async def _send(self, job: Job, planned_s: float, stage: Stage) -> RequestRecord:
        num_tries, name = 1, job.name(stage, self._options.group)
        while True:
            target = self.sender.target
            ask = Ask(
                name if num_tries == 1 else f"{name}-try{num_tries}",
                job.prompt.text,
                job.max_output_tokens,
                planned_s,
                stage,
                self._options.group,
                index=job.index,
                session=job.session,
                turn=job.turn,
                examine=self._options.examine,
            )
            record = await self.sender.send(ask, job.build_body(target), self._keep)
            if stage is not Stage.WARMUP or not (refused := find_refused_fields(target, record)):
                return record
            self._drop(refused)
            num_tries, planned_s = num_tries + 1, record.end_s

    def _drop(self, refused: Iterable[str]) -> None:
        self.dropped_fields += (name for name in refused if name not in self.dropped_fields)
        self.sender.target = self.sender.target.without_fields(self.dropped_fields)

    def _keep(self, record: RequestRecord) -> None:
        self.records.append(record)
        if self._options.writer is not None:
            self._options.writer(record)

    def _settle(self, record: RequestRecord) -> None:
        self._num_ended += 1
        self._has_hope = self._has_hope or not is_hopeless(record)
        self._first_error = self._first_error or record.error
        if self._options.progress is not None:
            self._options.progress(self._num_ended, self._num_planned)
        if not self._has_hope and self._num_ended >= min(NUM_HOPELESS, self._num_planned or NUM_HOPELESS):
            which = "the request" if self._num_planned == 1 else f"every one of the first {self._num_ended} requests"
            raise MeasurementError(f"{which} to {self.sender.target.address} failed; the first: {self._first_error}")

    async def wait_until(self, due_s: float) -> None:
        """Sleep until then; when that has passed, let what is in flight have its turn."""
        while (left_s := due_s - self.clock()) > 0:
            await asyncio.sleep(left_s)
        await asyncio.sleep(0)


def count_possible_in_flight() -> int:
    """How many requests can be in flight at once: each is a connection, and so an open file of this process.

    Where:    the soft limit of open files is raised to the hard one first
    """
    try:
        from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
    except ImportError:  # Windows has no such limit
        return _WITHOUT_LIMIT
    soft, hard = getrlimit(RLIMIT_NOFILE)
    wanted = MOST_IN_FLIGHT + _OTHER_FILES if hard == RLIM_INFINITY else min(hard, MOST_IN_FLIGHT + _OTHER_FILES)
    if soft != RLIM_INFINITY and soft < wanted:
        try:
            setrlimit(RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):  # some systems refuse what their limit seems to allow
            pass
    return MOST_IN_FLIGHT if soft == RLIM_INFINITY else max(1, min(MOST_IN_FLIGHT, soft - _OTHER_FILES))
