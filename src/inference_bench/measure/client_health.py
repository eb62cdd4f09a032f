"""Was the client itself the bottleneck: how late it was, who stamped what it read, and what that can move.

In:   the records of a load, how its chunks were received, samples of the event loop
Out:  ClientHealth, with a sentence where a percentile cannot be trusted to 2 %
Leaves out: the server, and the network: a stamp says when bytes reached this machine
Read next by: load, report.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.receipts import Receipts
from inference_bench.metrics import e2e_s, has_one_token_per_chunk, send_delay_s, tpot_s, ttft_s
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.stats import quantile
from inference_bench.units import format_seconds

MAX_ERROR_FRACTION: Final = 0.02
MAX_USER_FRACTION: Final = 0.01  # of the chunks; a run with more has this program's stamps
TIMER_ROUNDING_S: Final = 0.001  # asyncio sleeps whole milliseconds; what is readable wakes it at once

_POINTS: Final = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"))
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
class ErrorBound:
    """How far the client may have moved one percentile that is reported."""

    metric: str
    percentile: str
    value_s: float
    bound_s: float

    @property
    def is_valid(self) -> bool:
        """Whether the percentile holds to 2 %; a pause of 0 says that chunks came together, and is not judged."""
        return self.value_s <= 0 or self.bound_s <= MAX_ERROR_FRACTION * self.value_s


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """Whether the client itself was the bottleneck; None where there is no sample.

    Where:    send_delay is sent minus planned; loop_lag is how late a task that sleeps 10 ms wakes, the event
              system's rounding to whole milliseconds included; read_delay is from the kernel's stamp until the read
              returned; censored_fraction is the share of chunks with the stamp of the one before; cpu_share is this
              process's processor time over the time that passed, of one core
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

    @property
    def invalid_because(self) -> str | None:
        """Why the run's percentiles are not to be trusted, in a sentence; None where they are."""
        broken = [bound for bound in self.error_bounds if not bound.is_valid]
        if not broken:
            return None
        worst = max(broken, key=lambda bound: bound.bound_s / bound.value_s)
        more = f", and {len(broken) - 1} more percentiles" if len(broken) > 1 else ""
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
    """Garbage collections and processor time of this process, while the `with` block runs."""

    def __init__(self) -> None:
        self._num_pauses = 0
        self._longest_s = self._total_s = 0.0
        self._pause_begin_s = self._begin_s = self._begin_cpu_s = 0.0
        self.cpu_share: float | None = None

    @property
    def gc_pauses(self) -> GcPauses:
        """What was seen so far."""
        return GcPauses(self._num_pauses, self._longest_s, self._total_s)

    def __enter__(self) -> Self:
        self._begin_s, self._begin_cpu_s = time.perf_counter(), time.process_time()
        gc.callbacks.append(self._on_collection)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ValueError):
            gc.callbacks.remove(self._on_collection)
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
    num_chunks = receipts.num_chunks
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
    )


class _Sample(NamedTuple):
    """A measured time and the interval that holds the true one."""

    low_s: float
    value_s: float
    high_s: float


@dataclass(slots=True)
class _Pools:
    """The samples of every time that is reported."""

    by_metric: dict[str, list[_Sample]] = field(default_factory=lambda: {name: [] for name in _NAMES})

    def add(self, metric: str, value_s: float | None, late_begin_s: float, late_end_s: float) -> None:
        """A time between two stamps that may be late by so much."""
        if value_s is not None:
            self.by_metric[metric].append(_Sample(value_s - late_end_s, value_s, value_s + late_begin_s))


def bound_errors(records: Iterable[RequestRecord], receipts: Receipts, lateness_s: float) -> tuple[ErrorBound, ...]:
    """How far each percentile moves when every sample is wrong by as much as the client's reading can hide.

    Formula:  a stamp in doubt is late by at most stamp - max(drained, read - lateness); the bound of a percentile is the
              larger of its distances from the percentiles of all lower and of all upper ends
    Where:    a chunk is in doubt that shares its stamp with the next, whose read ended within an event, or that the
              kernel did not stamp; nothing of the read had come at `drained`; lateness is how late this client reads
    Unit:     seconds
    Ignores:  the delay of sending, which is shown apart
    """
    pools = _Pools()
    for record in records:
        if record.status is RequestStatus.COMPLETED and record.chunk_times_s:
            _add_record(pools, record, _lateness_of(record, receipts, lateness_s))
    return tuple(
        bound for metric, samples in pools.by_metric.items() if samples for bound in _bounds_of(metric, samples)
    )


def _lateness_of(record: RequestRecord, receipts: Receipts, lateness_s: float) -> Callable[[int], float]:
    receipt = receipts.of_request.get(record.request_id)
    if receipt is None:
        return lambda _index: 0.0
    late_s: dict[int, float] = {}
    for chunk, drained_s, read_s in receipt.doubts():
        late_s[chunk] = max(0.0, record.chunk_times_s[chunk] - max(drained_s, read_s - lateness_s))
    return lambda index: late_s.get(index, 0.0)


def _add_record(pools: _Pools, record: RequestRecord, late: Callable[[int], float]) -> None:
    times_s, last = record.chunk_times_s, len(record.chunk_times_s) - 1
    pools.add("ttft_s", ttft_s(record), 0.0, late(0))
    pools.add("e2e_s", e2e_s(record), 0.0, late(last))
    if per_token_s := tpot_s(record):
        steps = (times_s[-1] - times_s[0]) / per_token_s
        pools.add("tpot_s", per_token_s, late(0) / steps, late(last) / steps)
    is_per_token = has_one_token_per_chunk(record)
    for index, (before_s, after_s) in enumerate(pairwise(times_s)):
        doubts = late(index), late(index + 1)
        pools.add("chunk_gap_s", after_s - before_s, *doubts)
        if is_per_token:
            pools.add("itl_s", after_s - before_s, *doubts)


def _bounds_of(metric: str, samples: Sequence[_Sample]) -> Iterable[ErrorBound]:
    low, value, high = (sorted(column) for column in zip(*samples, strict=True))
    for q, name in _POINTS:
        value_s = quantile(value, q)
        yield ErrorBound(metric, name, value_s, max(quantile(high, q) - value_s, value_s - quantile(low, q)))


def _quantile(values: Sequence[float], q: float) -> float | None:
    return quantile(values, q) if values else None
