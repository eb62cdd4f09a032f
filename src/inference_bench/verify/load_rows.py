"""What came of a load that was predicted: each figure beside its prediction.

In:   PredictedLoad; the records of the same workload, sent
Out:  LoadRow with Figures
Leaves out: sending (load_check)
Read next by: load_check.

Percentiles of TTFT, TPOT and E2E hold every request: one that failed counts as longer than any time, so that a percentile which
touches one is not known. Gaps (ITL) and tokens a second are of what was delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from inference_bench.failure_view import BoundedTime, FailurePercentiles
from inference_bench.measure.load import LoadResult
from inference_bench.measure.prompt_checks import check_prompt_lengths
from inference_bench.metrics import Metrics, Percentiles, e2e_s, summarise, ttft_s
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.stats import median
from inference_bench.units import format_fraction
from inference_bench.verify.closed_loop import Figure, LoadRow
from inference_bench.verify.load_prediction import PredictedLoad

BELOW_PLACE: Final = "below"
NEAR_PLACE: Final = "near"
ABOVE_PLACE: Final = "above"
PAST_PLACE: Final = "past"

TARGETS: Final = {"ttft_p50_s": 0.15, "ttft_p99_s": 0.25, "tpot_p50_s": 0.10, "output_tokens_per_s": 0.05}
_STEADY: Final = (BELOW_PLACE, NEAR_PLACE)
_FEWEST_IDLE: Final = 5
_P99_COUNT: Final = 100  # samples below which a p99 is little more than the largest


def row_of(predicted: PredictedLoad, result: LoadResult | None, notes: Sequence[str] = ()) -> LoadRow:
    """A load beside its prediction; None is one of which nothing was measured."""
    records = () if result is None else result.records
    measured = summarise(records) if records else None
    has_targets = predicted.place in _STEADY
    by_index = {record.index: record for record in records if record.index is not None}
    completed = [
        record if (record := by_index.get(index)) is not None and record.status is RequestStatus.COMPLETED else None
        for index in range(len(predicted.workload))
    ]
    said = (*notes, *([] if result is None else _health_notes(result)), *_notes(predicted, records))
    return LoadRow(
        place=predicted.place,
        rate=predicted.rate,
        realised_rate=None if measured is None else measured.realised_rate,
        num_requests=len(predicted.workload),
        num_completed=sum(record is not None for record in completed),
        figures=tuple(_figures(predicted.metrics, measured, has_targets)),
        predicted_ttft_s=predicted.ttft_s,
        measured_ttft_s=_times(completed, ttft_s),
        predicted_e2e_s=predicted.e2e_s,
        measured_e2e_s=_times(completed, e2e_s),
        notes=said,
    )


def _times(
    completed: Sequence[RequestRecord | None], time_of: Callable[[RequestRecord], float | None]
) -> tuple[float | None, ...]:
    return tuple(None if record is None else time_of(record) for record in completed)


def _figures(predicted: Metrics, measured: Metrics | None, has_targets: bool) -> Iterable[Figure]:
    for name, value_of, count_of in _FIGURES:
        yield Figure(
            name,
            value_of(predicted),
            None if measured is None else value_of(measured),
            None if measured is None else count_of(measured),
            TARGETS.get(name) if has_targets else None,
        )


def _over_all(found: FailurePercentiles | None, q: str) -> float | None:
    point: BoundedTime | None = None if found is None else getattr(found, q)
    return None if point is None else point.value_s


def _quantile(found: Percentiles | None, q: str) -> float | None:
    value: float | None = None if found is None else getattr(found, q)
    return value


def _gap_p99_s(metrics: Metrics) -> float | None:
    """The p99 of the pauses between the pieces of an answer. Unit: seconds."""
    return _quantile(metrics.itl_s or metrics.chunk_gap_s, "p99")


def _ttft_p99_s(metrics: Metrics) -> float | None:
    """The p99 of the time to the first token over all requests; None where that touches one that failed. Unit: seconds."""
    return _over_all(metrics.all_requests.ttft_s, "p99")


def _count_of(name: str) -> Callable[[Metrics], int | None]:
    def count(metrics: Metrics) -> int | None:
        found: FailurePercentiles | None = getattr(metrics.all_requests, name)
        return None if found is None else found.count

    return count


def _gap_count(metrics: Metrics) -> int | None:
    found = metrics.itl_s or metrics.chunk_gap_s
    return None if found is None else found.count


def _sent(metrics: Metrics) -> int:
    return metrics.requests.sent


_Value = Callable[[Metrics], float | None]
_Count = Callable[[Metrics], int | None]
_FIGURES: Final[tuple[tuple[str, _Value, _Count], ...]] = (
    ("ttft_p50_s", lambda m: _over_all(m.all_requests.ttft_s, "p50"), _count_of("ttft_s")),
    ("ttft_p90_s", lambda m: _over_all(m.all_requests.ttft_s, "p90"), _count_of("ttft_s")),
    ("ttft_p99_s", _ttft_p99_s, _count_of("ttft_s")),
    ("tpot_p50_s", lambda m: _over_all(m.all_requests.tpot_s, "p50"), _count_of("tpot_s")),
    ("itl_p50_s", lambda m: _quantile(m.itl_s or m.chunk_gap_s, "p50"), _gap_count),
    ("itl_p99_s", _gap_p99_s, _gap_count),
    ("e2e_p50_s", lambda m: _over_all(m.all_requests.e2e_s, "p50"), _count_of("e2e_s")),
    ("e2e_p99_s", lambda m: _over_all(m.all_requests.e2e_s, "p99"), _count_of("e2e_s")),
    ("output_tokens_per_s", lambda m: m.output_tokens_per_s, _sent),
    ("duration_s", lambda m: m.span_s, _sent),
)


# ── what has to be said beside the figures ─────────────────────────────────────────────────────────


def _health_notes(result: LoadResult) -> list[str]:
    reason = result.health.invalid_because
    return [] if reason is None else [reason]


def _notes(predicted: PredictedLoad, records: Sequence[RequestRecord]) -> list[str]:
    said = []
    if predicted.place == PAST_PLACE:
        said.append(
            "requests are predicted to come faster than they are answered, so that the queue grows for as long as the load lasts: "
            "these times then say how long that was; they compare because the predicted load is the one that was sent"
        )
    if not records:
        return said
    asked = predicted.workload.requests
    num_failed = len(predicted.workload) - sum(record.status is RequestStatus.COMPLETED for record in records)
    if num_failed:
        said.append(
            f"{num_failed} of {len(predicted.workload)} requests did not complete; they count as longer than any time, and the rest of "
            "the load was lighter for it than the one that was predicted"
        )
    if len(predicted.workload) < _P99_COUNT:
        said.append(f"a p99 of {len(predicted.workload)} requests is little more than the longest of them")
    said += _idle_note(predicted, records)
    lengths = check_prompt_lengths(records, asked.prompt_tokens)
    if lengths.num_equal != lengths.num_counted or not lengths.num_counted:
        said.append(lengths.sentence)
    shorter = sum(
        record.output_tokens is not None
        and record.index is not None
        and record.output_tokens != asked.output_tokens[record.index]
        for record in records
        if record.status is RequestStatus.COMPLETED
    )
    if shorter:
        said.append(f"{shorter} answers do not have the length that was asked for and predicted")
    return said


def _idle_note(predicted: PredictedLoad, records: Sequence[RequestRecord]) -> list[str]:
    """How far the first tokens of requests that nobody was in front of are off: the steps' own error, before any queue."""
    measured = {record.index: record for record in records if record.index is not None}
    pairs = [
        (alone_s, wait_s)
        for index, alone_s in _found_idle(predicted.records)
        if (record := measured.get(index)) is not None
        and record.status is RequestStatus.COMPLETED
        and (wait_s := ttft_s(record)) is not None
        and not any(other.planned_s < record.planned_s < other.end_s for other in records)
    ]
    if len(pairs) < _FEWEST_IDLE:
        return []
    error = median([alone_s / wait_s for alone_s, wait_s in pairs if wait_s > 0]) - 1
    return [
        f"of {len(pairs)} requests that found the server idle, predicted and measured, the first token is predicted "
        f"{format_fraction(abs(error), 2)} too {'late' if error > 0 else 'early'} (median): what is off beyond that, a queue has multiplied"
    ]


def _found_idle(records: Sequence[RequestRecord]) -> Iterable[tuple[int, float]]:
    """The requests that came when none was there, by place in the workload, with the time of their first token."""
    busy_until_s = -1.0
    for index, record in enumerate(records):
        if record.planned_s >= busy_until_s and (wait_s := ttft_s(record)) is not None:
            yield index, wait_s
        busy_until_s = max(busy_until_s, record.end_s)
