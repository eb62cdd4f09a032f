"""How late were the sends, by this client's own doing?

In:   RequestRecords
Out:  Lateness
Leaves out: whether that is too late (proof)
Read next by: proof.

A turn of a conversation is due when the answer before it has ended, if that is after its plan: the wait until then is the
server's, and no lateness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inference_bench.records import RequestRecord
from inference_bench.stats import median, quantile


@dataclass(frozen=True, slots=True)
class Lateness:
    """How long after it was due a request was sent.

    Where:    drift is by how much the sends take longer than the plan, over the plan: the slope of lateness over
              planned time
    Unit:     seconds; drift a fraction, None below three requests at different times
    """

    p50_s: float
    p99_s: float
    max_s: float
    drift_fraction: float | None


def lateness_of(records: Sequence[RequestRecord]) -> Lateness | None:
    """How late these requests, in the order of their plan, were; None without one."""
    if not records:
        return None
    late_s = _late_s(records)
    return Lateness(median(late_s), quantile(late_s, 0.99), max(late_s), _drift(records, late_s))


def jitter_of(records: Sequence[RequestRecord]) -> float:
    """How far apart the latenesses of requests lie, but for the worst tenths.

    Unit:     seconds
    """
    late_s = _late_s(records)
    return quantile(late_s, 0.9) - quantile(late_s, 0.1)


def count_waiting_turns(records: Sequence[RequestRecord]) -> int:
    """How many turns were due only when the answer before them had ended."""
    return sum(due_s > record.planned_s for record, due_s in zip(records, _due_s(records), strict=True))


def _late_s(records: Sequence[RequestRecord]) -> list[float]:
    return [record.sent_s - due_s for record, due_s in zip(records, _due_s(records), strict=True)]


def _due_s(records: Sequence[RequestRecord]) -> list[float]:
    ends_s = {(record.session, record.turn): record.end_s for record in records if record.session is not None}
    return [
        record.planned_s
        if record.session is None or record.turn is None
        else max(record.planned_s, min(record.sent_s, ends_s.get((record.session, record.turn - 1), record.planned_s)))
        for record in records
    ]


def _drift(records: Sequence[RequestRecord], late_s: Sequence[float]) -> float | None:
    """The slope between the median lateness of the first and of the last third, which one hiccup does not move."""
    third = len(records) // 3
    if third == 0:
        return None
    first, last = slice(0, third), slice(len(records) - third, None)
    apart_s = median(r.planned_s for r in records[last]) - median(r.planned_s for r in records[first])
    return (median(late_s[last]) - median(late_s[first])) / apart_s if apart_s > 0 else None
