"""What a server delivered, as JSON with stable keys and as text for a terminal.

In:   LoadRun, or Metrics alone
Out:  a dict ready for JSON or a text of at most 100 columns
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inference_bench.metrics import Metrics, Percentiles
from inference_bench.report.text import printable, table, wrap
from inference_bench.units import NOT_AVAILABLE, format_number, format_seconds
from inference_bench.workload import ClosedLoop, OpenLoop, Workload, summarise_arrivals

if TYPE_CHECKING:
    from inference_bench.measure.closed_run import LoadRun

_FEW = "†"
_TIMES = (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("itl_s", "ITL"), ("chunk_gap_s", "chunk gap"), ("e2e_s", "E2E"))


def metrics_json(metrics: Metrics) -> dict[str, Any]:
    """The metrics of a run; a time nobody measured is null."""
    return {**dataclasses.asdict(metrics), "origin": "measured"}


def load_json(result: LoadRun) -> dict[str, Any]:
    """The stable keys of `load --json`."""
    requests = result.workload.requests
    return {
        "schema": "inference-bench/load/1",
        "target": result.target,
        "served_model": result.model,
        "workload": result.workload.name,
        "arrival": _arrival_json(result.workload.arrival),
        "prompt_tokens": _only(requests.prompt_tokens),
        "output_tokens": _only(requests.output_tokens),
        "lengths": {"prompt": _lengths_json(requests.prompt_tokens), "output": _lengths_json(requests.output_tokens)},
        "seed": result.workload.seed,
        "notes": list(result.workload.notes),
        **metrics_json(result.metrics),
        "endpoint": result.endpoint,
        "scope": "client side, clock from the planned send; " + result.metrics.goodput_rule,
        "software": result.versions,
        "client_machine": dataclasses.asdict(result.client),
        "client": {
            "send_delay_p99_s": result.health.send_delay_p99_s,
            "loop_lag_p99_s": result.health.loop_lag_p99_s,
            "floor": dataclasses.asdict(result.floor),
        },
        "dropped_fields": list(result.dropped_fields),
        "run_dir": str(result.run_dir),
    }


def _arrival_json(arrival: ClosedLoop | OpenLoop) -> dict[str, Any]:
    """How requests were sent; what a closed loop has no value for is null, and the other way round."""
    if isinstance(arrival, ClosedLoop):
        return {"policy": "closed loop", "concurrency": arrival.concurrency, "think_s": arrival.think_s}
    summary = summarise_arrivals(arrival)
    return {
        "policy": "open loop",
        "concurrency": None,
        "process": summary.process,
        "nominal_rate": summary.nominal_rate,
        "realised_rate": summary.realised_rate,
        "index_of_dispersion": summary.dispersion,
        "bin_s": summary.bin_s,
    }


def _only(lengths: Sequence[int]) -> int | None:
    """The length that all requests have; None where they differ."""
    return lengths[0] if min(lengths) == max(lengths) else None


def _lengths_json(lengths: Sequence[int]) -> dict[str, float]:
    return {"min": min(lengths), "mean": sum(lengths) / len(lengths), "max": max(lengths)}


def load_text(result: LoadRun) -> str:
    """The same for a terminal."""
    health, floor = result.health, result.floor
    client = (
        f"client: p99 send delay {format_seconds(health.send_delay_p99_s)}, p99 loop lag {format_seconds(health.loop_lag_p99_s)}, "
        f"floor of TTFT {format_seconds(floor.ttft_s)}"
    )
    workload = result.workload
    conditions = (
        f"{result.target}, serving {printable(result.model or 'a model it does not name')}: {_arrival_text(workload)}, "
        f"about {_lengths_text(workload.requests.prompt_tokens)} prompt tokens, "
        f"{_lengths_text(workload.requests.output_tokens)} output tokens asked for, seed {workload.seed}"
    )
    lines = [wrap(conditions), metrics_text(result.metrics), wrap(client)]
    lines += [wrap(printable(f"{workload.name}: {note}")) for note in workload.notes]
    if result.dropped_fields:
        lines.append(wrap(f"the server refused these request fields: {', '.join(result.dropped_fields)}"))
    return "\n\n".join([*lines, f"raw samples: {result.run_dir}"])


def _arrival_text(workload: Workload) -> str:
    arrival = workload.arrival
    if isinstance(arrival, ClosedLoop):
        thinking = f", {format_seconds(arrival.think_s)} apart" if arrival.think_s else ""
        return f"closed loop of {arrival.concurrency}{thinking}"
    return f"open loop, {summarise_arrivals(arrival).text}"


def _lengths_text(lengths: Sequence[int]) -> str:
    only = _only(lengths)
    return (
        str(only) if only else f"{min(lengths)} to {max(lengths)} (mean {format_number(sum(lengths) / len(lengths))})"
    )


def metrics_text(metrics: Metrics) -> str:
    """Counts of every ending, throughput, and the percentiles with their sample counts."""
    endings = dataclasses.asdict(metrics.requests).items()
    counts = ", ".join(f"{number} {name}" for name, number in endings if number or name == "sent")
    rows = [(label, *_cells(getattr(metrics, name))) for name, label in _TIMES]
    rate = f"{format_number(metrics.output_tokens_per_s)} output tokens/s over {format_seconds(metrics.span_s)}"
    head = wrap(f"requests: {counts}; {rate}")
    text = table(("measured", "p50", "p90", "p99", "samples"), rows, "lrrrr")
    rule = f"goodput {format_number(metrics.goodput_requests_per_s)} requests/s ({metrics.goodput_rule})"
    mark = f"{_FEW} too few samples for a 95 % interval: the percentile is little more than one of them"
    return f"{head}\n{rule}\n\n{text}\n{mark}"


def _cells(values: Percentiles | None) -> tuple[str, str, str, str]:
    if values is None:
        return (NOT_AVAILABLE, NOT_AVAILABLE, NOT_AVAILABLE, "0")
    points = ((values.p50, values.p50_interval), (values.p90, values.p90_interval), (values.p99, values.p99_interval))
    p50, p90, p99 = (f"{format_seconds(value)}{'' if interval else _FEW}" for value, interval in points)
    return p50, p90, p99, str(values.count)
