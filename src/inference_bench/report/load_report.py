"""What a server delivered, as JSON with stable keys and as text for a terminal.

In:   LoadRun, or Metrics alone
Out:  a dict ready for JSON or a text of at most 100 columns
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from inference_bench.metrics import Metrics, Percentiles
from inference_bench.report.text import printable, table, wrap
from inference_bench.units import NOT_AVAILABLE, format_number, format_seconds

if TYPE_CHECKING:
    from inference_bench.measure.closed_run import LoadRun

_FEW = "†"
_TIMES = (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("itl_s", "ITL"), ("chunk_gap_s", "chunk gap"), ("e2e_s", "E2E"))


def metrics_json(metrics: Metrics) -> dict[str, Any]:
    """The metrics of a run; a time nobody measured is null."""
    return {**dataclasses.asdict(metrics), "origin": "measured"}


def load_json(result: LoadRun) -> dict[str, Any]:
    """The stable keys of `load --json`."""
    shape = result.workload.shapes[0]
    return {
        "schema": "inference-bench/load/1",
        "target": result.target,
        "served_model": result.model,
        "arrival": {"policy": "closed loop", "concurrency": result.workload.arrival.concurrency},
        "prompt_tokens": shape.prompt_tokens,
        "output_tokens": shape.output_tokens,
        "seed": result.workload.seed,
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


def load_text(result: LoadRun) -> str:
    """The same for a terminal."""
    health, floor = result.health, result.floor
    client = (
        f"client: p99 send delay {format_seconds(health.send_delay_p99_s)}, p99 loop lag {format_seconds(health.loop_lag_p99_s)}, "
        f"floor of TTFT {format_seconds(floor.ttft_s)}"
    )
    shape = result.workload.shapes[0]
    conditions = (
        f"{result.target}, serving {printable(result.model or 'a model it does not name')}: closed loop of "
        f"{result.workload.arrival.concurrency}, about {shape.prompt_tokens} prompt tokens, {shape.output_tokens} output "
        f"tokens asked for, seed {result.workload.seed}"
    )
    lines = [wrap(conditions), metrics_text(result.metrics), wrap(client)]
    if result.dropped_fields:
        lines.append(wrap(f"the server refused these request fields: {', '.join(result.dropped_fields)}"))
    return "\n\n".join([*lines, f"raw samples: {result.run_dir}"])


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
