"""Is the server idle again: what one level of a sweep leaves behind must not slow the next.

In:   Session, the records of the level before
Out:  how long was waited, and whether the server was idle then
Leaves out: the levels (sweep)
Read next by: sweep.

Only what was given up leaves work behind: a request that was cancelled, or not waited for, may go on in the server. Where its
own metrics are read, they say when nothing runs or waits any more. Else a short request is sent to its end until its first
token comes about as soon as one did before the first level.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from inference_bench.loadtest.session import Session
from inference_bench.measure.load import run_load
from inference_bench.metrics import ttft_s
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.units import format_seconds
from inference_bench.workload import RequestShape, closed_loop

MOST_S: Final = 30.0
GROUP: Final = "settle"

_POLL_S: Final = 0.25
_LEAST_S: Final = 0.5
_TIMES: Final = 2.0  # the idle server's first token
_SPARE_S: Final = 0.02
_SHAPE: Final = RequestShape(16, 4)
_GIVEN_UP: Final = frozenset({RequestStatus.CANCELLED, RequestStatus.TIMED_OUT})


@dataclass(frozen=True, slots=True)
class Settled:
    """How long was waited for an idle server.

    Where:    is_idle is False where it was still busy after the longest wait
    Unit:     seconds
    """

    waited_s: float
    is_idle: bool

    @property
    def is_worth_saying(self) -> bool:
        """Whether more was done than a look."""
        return not self.is_idle or self.waited_s >= _LEAST_S

    def said(self, before: str) -> str:
        """The wait in a sentence."""
        so_long = format_seconds(self.waited_s)
        if self.is_idle:
            return f"waited {so_long} before {before} until the server had ended what was given up"
        return f"the server was still busy {so_long} after the level before; {before} may be slower for it"


class Settler:
    """Waits between the levels of one sweep."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._idle_ttft_s: float | None = None

    def learn(self) -> None:
        """How soon a first token comes while nothing else is asked; nothing to learn where the server says it itself."""
        if self._num_busy() is None:
            self._idle_ttft_s = self._probe()

    def wait_after(self, records: Iterable[RequestRecord], most_s: float | None = None) -> Settled | None:
        """Wait until the server is idle, at most so long and MOST_S; None where nothing keeps it busy."""
        if not any(record.status in _GIVEN_UP for record in records) and not self._num_busy():
            return None
        begin_s = time.monotonic()
        end_s = begin_s + min(MOST_S, MOST_S if most_s is None else max(most_s, _LEAST_S))
        while not (is_idle := self._is_idle(begin_s)) and time.monotonic() < end_s:
            time.sleep(_POLL_S)
        return Settled(time.monotonic() - begin_s, is_idle)

    def _is_idle(self, begin_s: float) -> bool:
        if self._num_busy() is not None:
            busy = self._num_busy(since_s=begin_s)  # None: it has not said so since then
            return busy == 0 and time.monotonic() - begin_s >= _LEAST_S
        wait_s = self._probe()
        if wait_s is None:
            return False
        if self._idle_ttft_s is None:
            self._idle_ttft_s = wait_s
        return wait_s <= _TIMES * self._idle_ttft_s + _SPARE_S

    def _num_busy(self, since_s: float | None = None) -> float | None:
        """What runs or waits in the server, by its latest word; None where it does not say, or not since then."""
        watch = self._session.watch
        samples = () if watch is None else watch.result.samples
        if not samples or (samples[-1].running is None and samples[-1].waiting is None):
            return None
        age_s = self._session.options.clock() - samples[-1].at_s
        if since_s is not None and age_s > time.monotonic() - since_s:
            return None
        return (samples[-1].running or 0.0) + (samples[-1].waiting or 0.0)

    def _probe(self) -> float | None:
        """The TTFT of one short request; None where it did not complete."""
        options = replace(
            self._session.options, stage=Stage.WARMUP, group=GROUP, duration_s=None, warmup_s=0.0, warmup_requests=0,
            cooldown_s=0.0, ramp_s=0.0, progress=None, examine=None,
        )  # fmt: skip
        workload = closed_loop(GROUP, [_SHAPE], 1, 1)
        (record,) = run_load(self._session.target, workload, options).records
        return ttft_s(record) if record.status is RequestStatus.COMPLETED else None
