"""A run as the benchmarks.json that GuideLLM writes and reads.

In:   ExportedRun
Out:  one dict: a report with a benchmark for each part of the run, in its names, units and definitions
Leaves out: prompts and generated text, whose fields are empty; what only its own scheduler knows, which is null, or -1
      where its layout has no null
Read next by: exports.

Read in its source, version 0.8.1, report schema 2, which loads the file. Its times are seconds of the Unix epoch: the moment
that the run's folder was made, to the second, plus the run's own clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from inference_bench.measure.software import software_versions
from inference_bench.records import RequestRecord
from inference_bench.report.exports_guidellm_request import STATUSES, Json, TheirRequest, stats_of
from inference_bench.report.exports_run import ExportedRun
from inference_bench.report.exports_summary import Weighted, concurrency_of, rate_of, summary_of
from inference_bench.units import KILO
from inference_bench.workload import ClosedLoop, OpenLoop

SCHEMA_VERSION: Final = 2
GUIDELLM_VERSION: Final = "0.8.1"

_UNKNOWN: Final = -1.0
_KINDS: Final = {
    "text": ("tokens", "words", "characters"),
    "image": ("tokens", "images", "pixels", "bytes"),
    "video": ("tokens", "frames", "seconds", "bytes"),
    "audio": ("tokens", "samples", "seconds", "bytes"),
    "tool_call": ("tokens", "mixed_tokens", "count"),
}
_DELAYS: Final = (
    "queued_time", "resolve_start_delay", "resolve_targeted_start_delay", "request_start_delay",
    "request_targeted_start_delay", "request_time", "resolve_end_delay", "resolve_time", "finalized_delay", "processed_delay",
)  # fmt: skip


def guidellm_json(run: ExportedRun) -> Json:
    """The report.

    Raises:   TooFewSamplesError when no request was measured
    """
    versions = software_versions()
    return {
        "metadata": {
            "version": SCHEMA_VERSION,
            "guidellm_version": GUIDELLM_VERSION,
            "python_version": versions.get("python", ""),
            "platform": versions.get("system", ""),
        },
        "config": _scenario(run),
        "benchmarks": [
            _benchmark(run, group, records, index) for index, (group, records) in enumerate(run.parts().items())
        ],
        "conclusions": [],
    }


def _scenario(run: ExportedRun) -> Json:
    """What its own command would have been asked, as far as that can be said: where, and nothing of how.

    Ignores:  which profile and data: its layout has no null there, so one request at a time and synthetic text of a token stand in
    """
    backend = {"kind": "openai_http", "target": run.target or "http://unknown", "model": run.model}
    data = {"kind": "synthetic_text", "prompt_tokens": 1, "output_tokens": 1}
    return {"spec": {"backend": backend, "profile": {"kind": "synchronous"}, "data": [data]}}


def _benchmark(run: ExportedRun, group: str, records: Sequence[RequestRecord], index: int) -> Json:
    base_s = run.created.timestamp()
    requests = [TheirRequest(record, base_s) for record in records]
    begin_s, end_s = min(one.start_s for one in requests), max(one.end_s for one in requests)
    asked = run.asked.get(group)
    strategy = _strategy(None if asked is None else asked.arrival)
    has_schedule = strategy["type_"] in ("constant", "poisson", "trace")
    times = {"start_time": begin_s, "end_time": end_s}
    return {
        "type_": "generative_benchmark",
        "config": _config(run, group, index, strategy),
        "scheduler_state": {"node_id": -1, "num_processes": 1, **times, **_state_counts(requests)},
        "scheduler_metrics": _scheduler_metrics(requests, begin_s, end_s, strategy["type_"]),
        "metrics": _metrics(requests, begin_s, end_s, has_schedule),
        "requests": {**_by_status(requests, lambda some: list(map(stats_of, some))), "total": None},
        "warnings": [],
        **times,
        "duration": end_s - begin_s,
        "warmup_duration": 0.0,
        "cooldown_duration": 0.0,
    }


def _strategy(arrival: ClosedLoop | OpenLoop | None) -> Json:
    """Its name for how requests were sent; a schedule that is none of its own is a replayed one."""
    if isinstance(arrival, ClosedLoop):
        return {"type_": "concurrent", "streams": arrival.concurrency}
    if arrival is None:
        return {"type_": "throughput"}
    if arrival.process in ("constant", "poisson") and arrival.nominal_rate is not None:
        return {"type_": arrival.process, "rate": arrival.nominal_rate}
    return {"type_": "trace"}


def _config(run: ExportedRun, group: str, index: int, strategy: Json) -> Json:
    return {
        "id_": f"{run.path.name}/{group}",
        "run_id": run.path.name,
        "run_index": index,
        "strategy": strategy,
        "constraints": {},
        "confidence": None,
        "warnings": [],
        "profile": {"type_": strategy["type_"]},
        "requests": {},
        "backend": {"target": run.target, "model": run.model},
        "environment": {},
    }


def _state_counts(requests: Sequence[TheirRequest]) -> dict[str, int]:
    counts = _by_status(requests, len)
    return {
        "created_requests": len(requests),
        "processed_requests": len(requests),
        "successful_requests": counts["successful"],
        "errored_requests": counts["errored"],
        "cancelled_requests": counts["incomplete"],
    }


def _scheduler_metrics(requests: Sequence[TheirRequest], begin_s: float, end_s: float, strategy: str) -> Json:
    means = {f"{name}_avg": _UNKNOWN for name in _DELAYS}
    late_s = [one.record.sent_s - one.record.planned_s for one in requests]
    means["request_targeted_start_delay_avg"] = sum(late_s) / len(late_s)
    means["request_time_avg"] = sum(one.latency_s for one in requests) / len(requests)
    return {
        "start_time": begin_s,
        "request_start_time": begin_s,
        "measure_start_time": begin_s,
        "measure_end_time": end_s,
        "request_end_time": end_s,
        "end_time": end_s,
        "requests_made": _totals(requests),
        "generation_delay": summary_of([]),
        **means,
        "dataset_incomplete": False,
        "strategy_type": strategy,
    }


def _by_status(requests: Sequence[TheirRequest], make: Callable[[list[TheirRequest]], Any]) -> Json:
    return {status: make([one for one in requests if one.status == status]) for status in STATUSES}


def _totals(requests: Sequence[TheirRequest]) -> Json:
    return {**_by_status(requests, len), "total": len(requests)}


def _metrics(requests: Sequence[TheirRequest], begin_s: float, end_s: float, has_schedule: bool) -> Json:
    def over(values: Callable[[TheirRequest], Sequence[Weighted]]) -> Json:
        return _spread(requests, lambda some: summary_of([pair for one in some for pair in values(one)]))

    def each(value: Callable[[TheirRequest], float | None]) -> Json:
        return over(lambda one: [(value(one) or 0.0, 1.0)])

    def rate(events: Callable[[TheirRequest], Sequence[Weighted]]) -> Json:
        return _spread(requests, lambda some: rate_of([pair for one in some for pair in events(one)], begin_s, end_s))

    return {
        "request_totals": _totals(requests),
        "requests_per_second": rate(lambda one: [(one.end_s, 1.0)]),
        "request_concurrency": _spread(
            requests, lambda some: concurrency_of([(one.start_s, one.end_s) for one in some], begin_s, end_s)
        ),
        "request_latency": each(lambda one: one.latency_s),
        "request_dispatch_delay": each(lambda r: r.record.sent_s - r.record.planned_s) if has_schedule else None,
        "request_scheduled_latency": each(lambda r: r.record.end_s - r.record.planned_s) if has_schedule else None,
        "turn_predecessor_delay": None,
        "turn_scheduling_delay": None,
        "root_dispatch_delay": None,
        "request_streaming_iterations_count": each(lambda one: one.num_iterations),
        "prompt_token_count": each(lambda one: one.record.prompt_tokens),
        "output_token_count": each(lambda one: one.output_tokens),
        "total_token_count": each(lambda one: one.total_tokens),
        "time_to_first_token_ms": over(lambda one: _in_ms(one.since_send_s(0))),
        "time_to_first_output_token_ms": over(lambda one: _in_ms(one.first_content_s)),
        "time_per_output_token_ms": over(lambda r: _in_ms(r.per_token_s or 0.0, float(r.output_tokens or 0))),
        "inter_token_latency_ms": over(lambda r: _in_ms(r.between_tokens_s or 0.0, float(r.output_tokens or 1) - 1.0)),
        "time_to_last_round_trip_ms": each(lambda _: 0.0),
        "avg_round_trip_time_ms": each(lambda _: 0.0),
        "prompt_tokens_per_second": rate(lambda one: [one.prompt_timing]),
        "output_tokens_per_second": rate(lambda one: one.output_timings),
        "tokens_per_second": rate(lambda one: [one.prompt_timing, *one.output_timings]),
        "output_tokens_per_iteration": over(lambda one: [(tokens, 1.0) for _, tokens in one.output_timings]),
        "iter_tokens_per_iteration": over(lambda one: [(tokens, 1.0) for _, tokens in one.later_timings]),
        **{kind: dict.fromkeys(names) for kind, names in _KINDS.items()},
        "turns": None,
        "slo_attainment": None,
        "slo_determined_requests": 0,
        "request_goodput": None,
    }


def _spread(requests: Sequence[TheirRequest], make: Callable[[list[TheirRequest]], Json]) -> Json:
    return {**_by_status(requests, make), "total": make(list(requests))}


def _in_ms(time_s: float | None, weight: float = 1.0) -> list[Weighted]:
    return [] if time_s is None else [(time_s * KILO, weight)]
