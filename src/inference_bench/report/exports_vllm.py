"""A run as the file that `vllm bench serve --save-result --save-detailed` writes.

In:   ExportedRun
Out:  one dict a part of the run, in its names, units and definitions
Leaves out: prompts and generated text: its field for that holds empty texts; its tokenizer, and so counts that the
      server does not give: they are null, where it would count text again
Read next by: exports.

Read in its source, version 0.33: per-request times are in seconds, statistics in milliseconds; a request that failed has
a TTFT and a latency of 0, and stays out of the statistics. Its own word for a time is looked up in `definitions`, so that
the export and `load --definitions` cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from inference_bench.arrival_proof import realised_concurrency
from inference_bench.definitions import RULES
from inference_bench.definitions.samples import MissingError
from inference_bench.metrics import chunk_gaps_s
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.report.exports_run import ExportedRun
from inference_bench.stats import ordered, sorted_quantile
from inference_bench.units import KILO
from inference_bench.workload import ClosedLoop, GammaArrivals, OpenLoop

_STATISTICS: Final = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2el"}
_RULES: Final = {rule.metric: rule for rule in RULES if rule.tool == "vLLM"}


def vllm_json(run: ExportedRun) -> list[dict[str, Any]]:
    """One result for each part of the run.

    Raises:   TooFewSamplesError when no request was measured
    """
    return [_setup(run, group, part) | _result(part) for group, part in run.parts().items()]


def _setup(run: ExportedRun, group: str, part: Sequence[RequestRecord]) -> dict[str, Any]:
    asked = run.asked.get(group)
    rate, burstiness, concurrency = _traffic(None if asked is None else asked.arrival)
    return {
        "date": f"{run.created:%Y%m%d-%H%M%S}",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": group or None,
        "model_id": run.model,
        "tokenizer_id": None,
        "num_prompts": len(part),
        "request_rate": rate,
        "burstiness": burstiness,
        "max_concurrency": concurrency,
    }


def _traffic(arrival: ClosedLoop | OpenLoop | None) -> tuple[float | str | None, float | None, int | None]:
    """(request rate, burstiness, concurrency): a closed loop has an unbounded rate; burstiness is 1 / cv²."""
    if arrival is None:
        return None, None, None
    if isinstance(arrival, ClosedLoop):
        return "inf", 1.0, arrival.concurrency
    process = arrival.drawn_from
    burstiness = 1 / process.cv**2 if isinstance(process, GammaArrivals) else None
    return arrival.nominal_rate, 1.0 if arrival.process == "poisson" else burstiness, None


def _result(part: Sequence[RequestRecord]) -> dict[str, Any]:
    completed = [record for record in part if record.status is RequestStatus.COMPLETED]
    duration_s = max(record.end_s for record in part) - min(record.sent_s for record in part)
    num_in, num_out = _total(record.prompt_tokens for record in completed), _total(r.output_tokens for r in completed)
    concurrency = realised_concurrency(completed)
    return {
        "duration": duration_s,
        "completed": len(completed),
        "failed": len(part) - len(completed),
        "total_input_tokens": num_in,
        "total_output_tokens": num_out,
        "request_throughput": _per_second(len(completed), duration_s),
        "request_goodput": None,
        "output_throughput": _per_second(num_out, duration_s),
        "total_token_throughput": _per_second(None if num_in is None or num_out is None else num_in + num_out, duration_s),
        **_details(part),
        "max_output_tokens_per_s": _busiest_second(completed),
        "max_concurrent_requests": 0 if concurrency is None else concurrency.peak,
        "rtfx": 0.0,
        **_statistics(completed),
    }  # fmt: skip


def _details(part: Sequence[RequestRecord]) -> dict[str, list[Any]]:
    """The lists that --save-detailed adds: an entry a request, in the order they were sent."""
    good = [record.status is RequestStatus.COMPLETED for record in part]
    pairs = list(zip(part, good, strict=True))
    return {
        "input_lens": [record.prompt_tokens for record in part],
        "output_lens": [record.output_tokens if is_good else 0 for record, is_good in pairs],
        "ttfts": [_first(record) if is_good else 0.0 for record, is_good in pairs],
        "itls": [list(chunk_gaps_s(record)) for record in part],
        "latencies": [_last(record) if is_good else 0.0 for record, is_good in pairs],
        "start_times": [record.sent_s for record in part],
        "queue_times": [record.sent_s - record.planned_s for record in part],
        "generated_texts": [""] * len(part),
        "errors": ["" if is_good else record.error or record.status.value for record, is_good in pairs],
    }


def _first(record: RequestRecord) -> float:
    return record.chunk_times_s[0] - record.sent_s if record.chunk_times_s else 0.0


def _last(record: RequestRecord) -> float:
    return record.chunk_times_s[-1] - record.sent_s if record.chunk_times_s else 0.0


def _statistics(completed: Sequence[RequestRecord]) -> dict[str, float | None]:
    """Mean, median, deviation and p99 of each of its metrics, in milliseconds; null where one cannot be known."""
    found: dict[str, float | None] = {}
    for metric, name in _STATISTICS.items():
        samples = _samples(metric, completed)
        values = dict.fromkeys(("mean", "median", "std", "p99")) if samples is None else _summary(samples)
        found |= {f"{statistic}_{name}_ms": value for statistic, value in values.items()}
    return found


def _samples(metric: str, completed: Sequence[RequestRecord]) -> Sequence[float] | None:
    of = _RULES[metric].of
    try:
        return None if of is None else ordered(time_s for record in completed for time_s in of(record))
    except MissingError:
        return None


def _summary(samples: Sequence[float]) -> dict[str, float | None]:
    """Zeros without a sample, as it writes them."""
    kept = samples or [0.0]
    mean = math.fsum(kept) / len(kept)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in kept) / len(kept))
    median, p99 = sorted_quantile(kept, 0.5), sorted_quantile(kept, 0.99)
    return {"mean": mean * KILO, "median": median * KILO, "std": spread * KILO, "p99": p99 * KILO}


def _busiest_second(completed: Sequence[RequestRecord]) -> float:
    """The most chunks in any whole second since the first send; it takes each for one token."""
    if not completed:
        return 0.0
    begin_s = min(record.sent_s for record in completed)
    seconds: dict[int, int] = {}
    for record in completed:
        for time_s in record.chunk_times_s:
            second = int(time_s - begin_s)
            seconds[second] = seconds.get(second, 0) + 1
    return float(max(seconds.values(), default=0))


def _total(counts: Any) -> int | None:
    """The sum; None where one of them is not known."""
    known = list(counts)
    return None if None in known else sum(known)


def _per_second(count: int | None, duration_s: float) -> float | None:
    return None if count is None or duration_s <= 0 else count / duration_s
