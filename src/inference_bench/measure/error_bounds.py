"""How far may the client have moved a percentile: every stamp in doubt, as wrong as it can be.

In:   the records of a load, how their chunks were received, how late this client reads
Out:  ErrorBound for each percentile that is reported
Leaves out: why the client was late (client_health), and the delay of sending, which is shown apart
Read next by: client_health.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import add, sub
from typing import Final

from inference_bench.measure.receipts import Receipt, Receipts
from inference_bench.metrics import e2e_s, has_one_token_per_chunk, tpot_s, ttft_s
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.stats import sorted_quantile

MAX_ERROR_FRACTION: Final = 0.02

_POINTS: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_METRICS: Final = ("ttft_s", "e2e_s", "tpot_s", "itl_s", "chunk_gap_s")
_NEAR_S: Final = 0.005
_MANY: Final = 250_000  # values, from which on numpy is worth its import


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


class _Pool:
    """The samples of one time that is reported, and the ends of the intervals that hold the true ones.

    Where:    the ends are kept from the first sample on that may be wrong
    """

    def __init__(self) -> None:
        self.values: array[float] = array("d")
        self.ends: tuple[array[float], array[float]] | None = None

    def add(self, value_s: float | None, late_begin_s: float, late_end_s: float) -> None:
        """A time between two stamps that may be late by so much."""
        if value_s is not None:
            doubtful = bool(late_begin_s or late_end_s)
            self.extend((value_s,), (late_begin_s,) if doubtful else (), (late_end_s,))

    def extend(self, values_s: Sequence[float], late_begin_s: Sequence[float], late_end_s: Sequence[float]) -> None:
        """Many of them; nothing is late where late_begin_s is empty."""
        if late_begin_s and self.ends is None:
            self.ends = array("d", self.values), array("d", self.values)
        if self.ends is not None:
            low, high = self.ends
            low.extend(map(sub, values_s, late_end_s) if late_begin_s else values_s)
            high.extend(map(add, values_s, late_begin_s) if late_begin_s else values_s)
        self.values.extend(values_s)


class _Stalls:
    """How long the client was away, at the longest, about some time."""

    def __init__(self, stalls: array[float]) -> None:
        self._longest_s: dict[int, float] = {}
        for back_s, away_s in zip(stalls[::2], stalls[1::2], strict=True):
            place = int(back_s / _NEAR_S)
            self._longest_s[place] = max(away_s, self._longest_s.get(place, 0.0))

    def about(self, time_s: float) -> float:
        """The longest absence that ended within a few milliseconds of this time; 0 for none."""
        place, longest_s = int(time_s / _NEAR_S), self._longest_s.get
        return max(longest_s(place - 1, 0.0), longest_s(place, 0.0), longest_s(place + 1, 0.0))


def bound_errors(records: Iterable[RequestRecord], receipts: Receipts, lateness_s: float) -> tuple[ErrorBound, ...]:
    """How far each percentile moves when every sample is wrong by as much as the client's reading can hide.

    Formula:  a stamp in doubt is late by at most stamp - max(drained, read - lateness); the bound of a percentile is the
              larger of its distances from the percentiles of all lower and of all upper ends
    Where:    a chunk is in doubt that shares its stamp with the next, whose read ended within an event, or that the
              kernel did not stamp; nothing of the read had come at `drained`; lateness is how late this client reads,
              lateness_s or how long it was away about the time of the read, as its other reads and tasks tell
    Unit:     seconds
    Ignores:  the delay of sending, which is shown apart
    """
    pools, stalls = {name: _Pool() for name in _METRICS}, _Stalls(receipts.stalls)
    for record in records:
        if record.status is RequestStatus.COMPLETED and record.chunk_times_s:
            receipt = receipts.of_request.get(record.request_id)
            _add_record(pools, record, () if receipt is None else _lateness_of(record, receipt, lateness_s, stalls))
    return tuple(bound for metric, pool in pools.items() if pool.values for bound in _bounds_of(metric, pool))


def _lateness_of(record: RequestRecord, receipt: Receipt, lateness_s: float, stalls: _Stalls) -> Sequence[float]:
    """How late the stamp of each chunk may be; chunks in one doubt have one stamp."""
    times_s = record.chunk_times_s
    late_s = [0.0] * len(times_s)
    for begin, end, drained_s, read_s in receipt.doubts():
        most_s = max(0.0, times_s[begin] - max(drained_s, read_s - max(lateness_s, stalls.about(read_s))))
        late_s[begin:end] = [most_s] * (end - begin)
    return late_s if any(late_s) else ()


def _add_record(pools: dict[str, _Pool], record: RequestRecord, late_s: Sequence[float]) -> None:
    times_s = record.chunk_times_s
    first_s, last_s = (late_s[0], late_s[-1]) if late_s else (0.0, 0.0)
    pools["ttft_s"].add(ttft_s(record), 0.0, first_s)
    pools["e2e_s"].add(e2e_s(record), 0.0, last_s)
    if per_token_s := tpot_s(record):
        steps = (times_s[-1] - times_s[0]) / per_token_s
        pools["tpot_s"].add(per_token_s, first_s / steps, last_s / steps)
    gaps_s = tuple(map(sub, times_s[1:], times_s))
    pools["chunk_gap_s"].extend(gaps_s, late_s[:-1], late_s[1:])
    if has_one_token_per_chunk(record):
        pools["itl_s"].extend(gaps_s, late_s[:-1], late_s[1:])


def _bounds_of(metric: str, pool: _Pool) -> Iterable[ErrorBound]:
    values_s = _at_points(pool.values)
    low_s, high_s = (values_s, values_s) if pool.ends is None else map(_at_points, pool.ends)
    for name, low, value, high in zip(_POINTS, low_s, values_s, high_s, strict=True):
        yield ErrorBound(metric, name, value, max(high - value, value - low))


def _at_points(values: array[float]) -> tuple[float, ...]:
    ordered = _in_order(values)
    return tuple(float(sorted_quantile(ordered, q)) for q in _POINTS.values())


def _in_order(values: array[float]) -> Sequence[float]:
    """The values sorted, as far as the points need it."""
    if len(values) < _MANY:
        return sorted(values)
    try:
        import numpy
    except ImportError:
        return sorted(values)
    places = {int((len(values) - 1) * q) + more for q in _POINTS.values() for more in (0, 1)}
    parted = numpy.partition(numpy.frombuffer(values), sorted(place for place in places if place < len(values)))
    return memoryview(parted)  # a sequence of floats, without copying them
