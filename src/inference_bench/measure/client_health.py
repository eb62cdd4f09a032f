"""Was the client itself the bottleneck: how late it was, who stamped what it read, and what that can move.

In:   the records of a load, how its chunks were received, samples of the event loop
Out:  ClientHealth, with a sentence where a percentile cannot be trusted to 2 %
Leaves out: the server, and the network: a stamp says when bytes reached this machine; the arithmetic of a percentile's
      bound (error_bounds)
Read next by: load, report.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Final, Self

from inference_bench.measure.client_loop import ASYNCIO, name_of_loop
from inference_bench.measure.error_bounds import MAX_ERROR_FRACTION, bound_errors
from inference_bench.measure.error_bounds import ErrorBound as ErrorBound
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.own_priority import own_nice
from inference_bench.measure.receipts import Receipts
from inference_bench.metrics import send_delay_s
from inference_bench.records import RequestRecord
from inference_bench.stats import quantile
from inference_bench.units import format_seconds

MAX_USER_FRACTION: Final = 0.01  # of the chunks; a run with more has this program's stamps
TIMER_ROUNDING_S: Final = 0.001  # asyncio sleeps whole milliseconds; what is readable wakes it at once

_NAMES: Final = {
    "ttft_s": "TTFT",
    "e2e_s": "E2E",
    "tpot_s": "TPOT",
    "itl_s": "ITL",
    "chunk_gap_s": "chunk gap",
}


@dataclass(frozen=True, slots=True)
class GcPauses:
    """When Python collected garbage, nothing else ran.

    Unit:     seconds
    """

    count: int = 0
    longest_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """Whether the client itself was the bottleneck; None where there is no sample.

    Where:    send_delay is sent minus planned; loop_lag is how late a task that sleeps 10 ms wakes, the event
              system's rounding to whole milliseconds included; read_delay is from the kernel's stamp until the read
              returned, up to about gather_s of it let pass on purpose (read_rounds); censored_fraction is the share of
              chunks with the stamp of the one before; cpu_share is this process's processor time over the time that
              passed, of one core; loop is the event loop that it ran on, nice its priority (-10 where it may go ahead of
              others); closing_fraction is the share of replies of which one chunk, the last, was read together with what
              follows it (finish reason, counts) and has that stamp, later by the read delay at most, which no bound counts
    """

    send_delay_p99_s: float | None
    loop_lag_p99_s: float | None
    stamp_source: StampSource = StampSource.USER
    user_stamped_fraction: float | None = None
    censored_fraction: float | None = None
    read_delay_p50_s: float | None = None
    read_delay_p99_s: float | None = None
    gc_pauses: GcPauses = GcPauses()
    cpu_share: float | None = None
    error_bounds: tuple[ErrorBound, ...] = ()
    loop: str = ASYNCIO
    nice: int | None = None
    gather_s: float = 0.0
    closing_fraction: float | None = None

    @property
    def invalid_because(self) -> str | None:
        """Why the run's percentiles are not to be trusted, in a sentence; None where they are."""
        broken = [bound for bound in self.error_bounds if not bound.is_valid]
        if not broken:
            return None
        worst = max(broken, key=lambda bound: bound.bound_s / bound.value_s)
        num_more = len(broken) - 1
        more = f", and {num_more} more percentile{'' if num_more == 1 else 's'}" if num_more else ""
        return (
            f"invalid: this client may have moved the {worst.percentile} of {_NAMES[worst.metric]} "
            f"({format_seconds(worst.value_s)}) by {format_seconds(worst.bound_s)}, more than "
            f"{MAX_ERROR_FRACTION * 100:g} %{more}"
        )


def health_values(health: ClientHealth) -> dict[str, Any]:
    """The same under stable keys, as results and run folders hold it."""
    values = asdict(health)
    values["gc"] = values.pop("gc_pauses")
    reason = health.invalid_because
    return {**values, "valid": reason is None, "invalid_because": reason}


class ProcessWatch:
    """Garbage collections and processor time of this process, while the `with` block runs.

    Where:    Python is kept from collecting by itself meanwhile: it would stop everything for milliseconds, the longer
              the more records there are. What is collected on purpose is seen
    """

    def __init__(self) -> None:
        self._num_pauses = 0
        self._longest_s = self._total_s = 0.0
        self._pause_begin_s = self._begin_s = self._begin_cpu_s = 0.0
        self._was_collecting = False
        self.cpu_share: float | None = None

    @property
    def gc_pauses(self) -> GcPauses:
        """What was seen so far."""
        return GcPauses(self._num_pauses, self._longest_s, self._total_s)

    def __enter__(self) -> Self:
        self._begin_s, self._begin_cpu_s = time.perf_counter(), time.process_time()
        gc.callbacks.append(self._on_collection)
        self._was_collecting = gc.isenabled()
        gc.disable()
        gc.freeze()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ValueError):
            gc.callbacks.remove(self._on_collection)
        gc.unfreeze()
        if self._was_collecting:
            gc.enable()
        elapsed_s = time.perf_counter() - self._begin_s
        self.cpu_share = (time.process_time() - self._begin_cpu_s) / elapsed_s if elapsed_s > 0 else None

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        del info
        if phase == "start":
            self._pause_begin_s = time.perf_counter()
        elif self._pause_begin_s:
            pause_s = time.perf_counter() - self._pause_begin_s
            self._num_pauses += 1
            self._total_s += pause_s
            self._longest_s = max(self._longest_s, pause_s)


def judge_client(
    records: Sequence[RequestRecord], receipts: Receipts, lags_s: Sequence[float], watch: ProcessWatch
) -> ClientHealth:
    """What the samples say about this client."""
    lag_p99_s, delay_p99_s = _quantile(lags_s, 0.99), _quantile(receipts.read_delays_s, 0.99)
    num_chunks, num_replies = receipts.num_chunks, sum(bool(record.chunk_times_s) for record in records)
    user_fraction = receipts.num_user / num_chunks if num_chunks else None
    is_kernel = user_fraction is not None and user_fraction <= MAX_USER_FRACTION
    lateness_s = max(delay_p99_s or 0.0, (lag_p99_s or 0.0) - TIMER_ROUNDING_S)
    return ClientHealth(
        send_delay_p99_s=_quantile(tuple(map(send_delay_s, records)), 0.99),
        loop_lag_p99_s=lag_p99_s,
        stamp_source=StampSource.KERNEL if is_kernel else StampSource.USER,
        user_stamped_fraction=user_fraction,
        censored_fraction=receipts.num_shared / num_chunks if num_chunks else None,
        read_delay_p50_s=_quantile(receipts.read_delays_s, 0.5),
        read_delay_p99_s=delay_p99_s,
        gc_pauses=watch.gc_pauses,
        cpu_share=watch.cpu_share,
        error_bounds=bound_errors(records, receipts, lateness_s),
        loop=name_of_loop(),
        nice=own_nice(),
        gather_s=receipts.gather_s,
        closing_fraction=receipts.num_closing / num_replies if num_replies else None,
    )


def _quantile(values: Sequence[float], q: float) -> float | None:
    return quantile(values, q) if values else None
