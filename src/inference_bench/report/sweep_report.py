"""What a server delivered at each level of a sweep, as JSON with stable keys and as a table for a terminal.

In:   SweepRun
Out:  a dict ready for JSON or a text of at most 100 columns
Read next by: cli.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from inference_bench.report.load_report import arrival_json, metrics_json, run_json, server_json, window_json
from inference_bench.report.proof_report import proof_json
from inference_bench.report.referee_report import referee_json
from inference_bench.report.text import printable, table, wrap
from inference_bench.units import NOT_AVAILABLE, format_number, format_seconds

if TYPE_CHECKING:
    from inference_bench.loadtest.sweep import SweepPoint, SweepRun


def sweep_json(result: SweepRun) -> dict[str, Any]:
    """The stable keys of `load --json` for a sweep."""
    return {
        "schema": "inference-bench/load-sweep/1",
        **run_json(result),
        "sweep": {"by": result.plan.axis.value, "levels": [point.level for point in result.points]},
        "saturated_level": result.saturated_level,
        "points": [_point_json(point) for point in result.points],
        "client": {"floor": dataclasses.asdict(result.floor)},
        "notes": list(result.notes),
        "server": server_json(result.server),
        "objective": dataclasses.asdict(result.objective),
        "is_interrupted": result.is_interrupted,
    }


def _point_json(point: SweepPoint) -> dict[str, Any]:
    return {
        "level": point.level,
        "group": point.group,
        "is_complete": point.is_complete,
        "arrival": arrival_json(point.workload.arrival),
        **metrics_json(point.metrics),
        "window": window_json(point.window),
        "client": dict(point.client),
        "arrivals_proof": proof_json(point.arrivals),
        "prompts_check": None if point.prompts is None else dataclasses.asdict(point.prompts),
        "cache_check": None if point.cache is None else dataclasses.asdict(point.cache),
        "referee": None if point.refereed is None else referee_json(point.refereed),
    }


def sweep_text(result: SweepRun) -> str:
    """The same for a terminal: a line a level, and where the server was saturated."""
    axis = result.plan.axis.value
    head = f"{result.target}, serving {printable(result.model or 'a model it does not name')}: a sweep over {axis}"
    columns = (
        axis,
        "tokens/s",
        "requests/s",
        "in flight",
        "TTFT p50",
        "TTFT p99",
        "ITL p99",
        "good/s",
        "not completed",
    )
    rows = [_row(point) for point in sorted(result.points, key=lambda point: point.level)]
    level = result.saturated_level
    said = (
        f"the throughput still grew at the highest {axis}"
        if level is None
        else f"saturated at {axis} {level:g}: no higher one gave 5 % more"
    )
    rule = f"good: {result.points[0].metrics.goodput_rule}; the figures are of the measured window of each level"
    lines = [wrap(head), table(columns, rows, "r" * len(columns)), wrap(said), wrap(rule)]
    lines += [
        wrap(f"{point.group}: {invalid}") for point in result.points if (invalid := point.client.get("invalid_because"))
    ]
    lines += [wrap(f"{point.group}: {reason}") for point in result.points for reason in point.arrivals.reasons]
    lines += [wrap(printable(note)) for note in result.notes]
    return "\n\n".join([*lines, f"raw samples: {result.run_dir}"])


def _row(point: SweepPoint) -> tuple[str, ...]:
    window, metrics = point.window, point.metrics
    ttft, itl = metrics.ttft_s, (window.itl_s or window.chunk_gap_s) if window else None
    return (
        f"{point.level:g}" + ("" if point.is_complete else " (cut short)"),
        format_number(window.output_tokens_per_s if window else metrics.output_tokens_per_s),
        format_number(window.requests_per_s) if window else NOT_AVAILABLE,
        format_number(window.mean_concurrency) if window else NOT_AVAILABLE,
        format_seconds(ttft.p50) if ttft else NOT_AVAILABLE,
        format_seconds(ttft.p99) if ttft else NOT_AVAILABLE,
        format_seconds(itl.p99) if itl else NOT_AVAILABLE,
        format_number(metrics.goodput_requests_per_s),
        str(metrics.requests.sent - metrics.requests.completed),
    )
