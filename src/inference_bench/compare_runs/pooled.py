"""Which requests of several runs are compared with which? The same ones of every run, so that no run brings another mix.

In:   the records of one part of each run, of baseline and canary
Out:  Pool: for each side its runs, each with the same requests in the same order
Leaves out: whether the runs did the same work at all (same_work)
Read next by: evidence, resampling.

Of runs that were cut short, only the requests before the first that some run did not end are compared: leaving out single ones would
leave out those that hang.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from inference_bench.metrics import span_s
from inference_bench.records import RequestRecord, RequestStatus

Run = tuple[RequestRecord, ...]


@dataclass(frozen=True, slots=True)
class Pool:
    """One side's runs of the same requests, pooled.

    Where:  rate is requests over the time that all of its runs took
    Unit:   requests per second
    """

    runs: tuple[Run, ...] = field(repr=False)

    @property
    def records(self) -> list[RequestRecord]:
        """All requests, run by run."""
        return [record for run in self.runs for record in run]

    @property
    def num_each(self) -> int:
        """Requests of each run."""
        return len(self.runs[0]) if self.runs else 0

    @property
    def rate(self) -> float | None:
        """Requests a second, answered well or not; None where they took no time."""
        took_s = sum(span_s(run) for run in self.runs if run)
        return len(self.records) / took_s if took_s > 0 else None


@dataclass(frozen=True, slots=True)
class Pooled:
    """Both sides; num_left_out are the requests, of all runs, that not every run brought to an end."""

    baseline: Pool
    canary: Pool
    num_left_out: int


def pool(baseline: Sequence[Sequence[RequestRecord]], canary: Sequence[Sequence[RequestRecord]]) -> Pooled:
    """The requests that every run brought to an end, in the order of their numbers."""
    runs = [_in_order(run) for run in (*baseline, *canary)]
    ranges = [_ended(run) for run in runs]
    first = max((begin for begin, _ in ranges), default=0)
    last = min((end for _, end in ranges), default=0)
    kept = [tuple(record for number, record in run if first <= number < last) if last > first else () for run in runs]
    count = min(map(len, kept), default=0)
    same = [run[:count] for run in kept]
    left_out = sum(map(len, runs)) - sum(map(len, same))
    return Pooled(Pool(tuple(same[: len(baseline)])), Pool(tuple(same[len(baseline) :])), left_out)


def _in_order(run: Sequence[RequestRecord]) -> list[tuple[int, RequestRecord]]:
    """Each request with its number; of a run that does not number them, with its place."""
    if all(record.index is not None for record in run):
        return sorted(((record.index or 0, record) for record in run), key=lambda pair: (pair[0], pair[1].planned_s))
    return list(enumerate(sorted(run, key=lambda record: record.planned_s)))


def _ended(run: Sequence[tuple[int, RequestRecord]]) -> tuple[int, int]:
    """The numbers from the first on that all came to an end of their own."""
    if not run:
        return 0, 0
    begin = end = run[0][0]
    for number, record in run:
        if number > end or record.status is RequestStatus.CANCELLED:
            break
        end = number + 1
    return begin, end
