"""What did several processes measure together: raw records put together, and the health of the worst client.

In:   ShardOutcomes
Out:  ShardedResult, a LoadResult that knows its parts
Leaves out: percentiles: they are computed from the records of all, never from those of each
Read next by: shards, ray_shards, flow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from inference_bench.loadtest.shards_clock import ClockCheck
from inference_bench.loadtest.shards_work import ShardLost, ShardOutcome
from inference_bench.measure.client_health import ClientHealth, ErrorBound, GcPauses
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.load import LoadInterrupted, LoadResult
from inference_bench.measure.target import Target
from inference_bench.metrics import (
    chunk_gaps_s,
    e2e_s,
    has_one_token_per_chunk,
    percentiles,
    send_delay_s,
    tpot_s,
    ttft_s,
)
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.stats import quantile


@dataclass(frozen=True, slots=True)
class Shard:
    """One process of a load.

    Where:    place is the machine it ran on, "" for this one; health is None where it did not come to its end
    """

    number: int
    num_requests: int
    health: ClientHealth | None
    clock: ClockCheck
    place: str = ""


@dataclass(frozen=True, slots=True)
class ShardedResult(LoadResult):
    """A load that several processes sent; `health` is that of the worst."""

    shards: tuple[Shard, ...] = ()


def merge(
    target: Target, outcomes: Sequence[ShardOutcome], clocks: Sequence[ClockCheck], places: Sequence[str] = ()
) -> ShardedResult:
    """All records in the order in which their requests ended."""
    records = sorted((record for outcome in outcomes for record in outcome.records), key=lambda record: record.end_s)
    dropped = tuple(dict.fromkeys(name for outcome in outcomes for name in outcome.dropped_fields))
    lags_s = tuple(lag_s for outcome in outcomes for lag_s in outcome.loop_lags_s)
    return ShardedResult(
        records=tuple(records),
        health=merge_health(records, outcomes, lags_s),
        target=target.without_fields(dropped) if dropped else target,
        dropped_fields=dropped,
        loop_lags_s=lags_s,
        measured_s=next((outcome.measured_s for outcome in outcomes if outcome.measured_s is not None), None),
        shards=tuple(
            Shard(outcome.number, len(outcome.records), outcome.health, clocks[outcome.number], place)
            for outcome, place in zip(outcomes, places or [""] * len(outcomes), strict=True)
        ),
    )


def require_whole(
    result: ShardedResult, outcomes: Sequence[ShardOutcome], is_interrupted: bool, lost: str | None
) -> ShardedResult:
    """The result, where every shard came to its end.

    Where:    lost says which shard did not, and why
    Raises:   LoadInterrupted where the person stopped them; the first shard's error; ShardLost
    """
    if is_interrupted:
        raise LoadInterrupted(result)
    if (failed := next((outcome.error for outcome in outcomes if outcome.error is not None), None)) is not None:
        raise failed
    if lost is not None:
        raise ShardLost(lost)
    return result


def merge_health(
    records: Sequence[RequestRecord], outcomes: Sequence[ShardOutcome], lags_s: Sequence[float]
) -> ClientHealth:
    """The clients as one: lateness from all samples, what only a client knows of itself from the worst.

    Where:    fractions of chunks are weighed by chunks; a percentile's bound is the largest of any client's, beside the
              percentile of all records; cpu_share is the busiest process's; pauses of different processes are added up
    """
    delay_p99_s = quantile(map(send_delay_s, records), 0.99) if records else None
    lag_p99_s = quantile(lags_s, 0.99) if lags_s else None
    judged = [(outcome, outcome.health) for outcome in outcomes if outcome.health is not None]
    if not judged:
        return ClientHealth(delay_p99_s, lag_p99_s)
    every = [health for _, health in judged]
    chunks = [sum(len(record.chunk_times_s) for record in outcome.records) for outcome, _ in judged]
    has_kernel = all(health.stamp_source is StampSource.KERNEL for health in every)
    return ClientHealth(
        send_delay_p99_s=delay_p99_s,
        loop_lag_p99_s=lag_p99_s,
        stamp_source=StampSource.KERNEL if has_kernel else StampSource.USER,
        user_stamped_fraction=_weighed([health.user_stamped_fraction for health in every], chunks),
        censored_fraction=_weighed([health.censored_fraction for health in every], chunks),
        read_delay_p50_s=_largest([health.read_delay_p50_s for health in every]),
        read_delay_p99_s=_largest([health.read_delay_p99_s for health in every]),
        gc_pauses=GcPauses(
            sum(health.gc_pauses.count for health in every),
            max(health.gc_pauses.longest_s for health in every),
            sum(health.gc_pauses.total_s for health in every),
        ),
        cpu_share=_largest([health.cpu_share for health in every]),
        error_bounds=_bounds(records, every),
        loop=", ".join(sorted({health.loop for health in every})),
        gather_s=max(health.gather_s for health in every),
        closing_fraction=max((h.closing_fraction for h in every if h.closing_fraction is not None), default=None),
    )


def _weighed(values: Sequence[float | None], weights: Sequence[int]) -> float | None:
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _bounds(records: Sequence[RequestRecord], every: Sequence[ClientHealth]) -> tuple[ErrorBound, ...]:
    """The largest bound of any client for each percentile, beside that percentile of all records."""
    worst: dict[tuple[str, str], ErrorBound] = {}
    for bound in (bound for health in every for bound in health.error_bounds):
        key = bound.metric, bound.percentile
        if key not in worst or worst[key].bound_s < bound.bound_s:
            worst[key] = bound
    completed = [record for record in records if record.status is RequestStatus.COMPLETED]
    pooled = {metric: percentiles(_samples(metric, completed)) for metric, _ in worst}
    return tuple(
        replace(bound, value_s=bound.value_s if (of := pooled[metric]) is None else getattr(of, point))
        for (metric, point), bound in worst.items()
    )


_ONE_EACH: dict[str, Callable[[RequestRecord], float | None]] = {"ttft_s": ttft_s, "e2e_s": e2e_s, "tpot_s": tpot_s}


def _samples(metric: str, completed: Sequence[RequestRecord]) -> list[float]:
    if (of := _ONE_EACH.get(metric)) is not None:
        return [value for record in completed if (value := of(record)) is not None]
    kept = filter(has_one_token_per_chunk, completed) if metric == "itl_s" else completed
    return [gap for record in kept for gap in chunk_gaps_s(record)]
