"""What a server delivered, as JSON with stable keys and as text for a terminal.

In:   LoadRun, or Metrics alone
Out:  a dict ready for JSON or a text of at most 100 columns
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inference_bench.arrival_proof.stability import check_little, judge_stability
from inference_bench.failure_view import BoundedTime, FailurePercentiles
from inference_bench.measure.client_health import health_values
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.server_metrics import ServerMetrics, summarise_server
from inference_bench.measure.server_metrics_checks import check_server
from inference_bench.metrics import Metrics, Percentiles
from inference_bench.report.proof_report import definitions_json, definitions_text, proof_json, proof_text
from inference_bench.report.referee_report import referee_json, referee_text
from inference_bench.report.text import printable, table, wrap
from inference_bench.units import NOT_AVAILABLE, format_fraction, format_number, format_seconds
from inference_bench.workload import ClosedLoop, OpenLoop, Workload, summarise_arrivals

if TYPE_CHECKING:
    from inference_bench.loadtest.capacity_run import CapacityRun
    from inference_bench.loadtest.flow import LoadRun
    from inference_bench.loadtest.sweep import SweepRun
    from inference_bench.token_window import TokenWindow

_FEW = "†"
_TIMES = (
    ("ttft_s", "TTFT"),
    ("ttfa_s", "TTFA"),
    ("tpot_s", "TPOT"),
    ("itl_s", "ITL"),
    ("chunk_gap_s", "chunk gap"),
    ("e2e_s", "E2E"),
)


def metrics_json(metrics: Metrics) -> dict[str, Any]:
    """The metrics of a run; a time nobody measured is null."""
    return {**dataclasses.asdict(metrics), "origin": "measured"}


def run_json(result: LoadRun | SweepRun | CapacityRun) -> dict[str, Any]:
    """What is known about a run whatever came of it."""
    return {
        "target": result.target,
        "served_model": result.model,
        "endpoint": result.endpoint,
        "software": result.versions,
        "client_machine": dataclasses.asdict(result.client),
        "dropped_fields": list(result.dropped_fields),
        "run_dir": str(result.run_dir),
    }


def load_json(result: LoadRun) -> dict[str, Any]:
    """The stable keys of `load --json`."""
    requests = result.workload.requests
    return {
        "schema": "inference-bench/load/1",
        **run_json(result),
        "workload": result.workload.name,
        "arrival": arrival_json(result.workload.arrival),
        "prompt_tokens": _only(requests.prompt_tokens),
        "output_tokens": _only(requests.output_tokens),
        "lengths": {"prompt": _lengths_json(requests.prompt_tokens), "output": _lengths_json(requests.output_tokens)},
        "seed": result.workload.seed,
        "notes": [*result.workload.notes, *result.notes],
        **metrics_json(result.metrics),
        "window": window_json(result.window),
        "scope": "client side, clock from the planned send; " + result.metrics.goodput_rule,
        "client": {
            **health_values(result.health),
            "floor": dataclasses.asdict(result.floor),
        },
        "arrivals_proof": proof_json(result.arrivals),
        "prompts_check": None if result.prompts is None else dataclasses.asdict(result.prompts),
        "cache_check": None if result.cache is None else dataclasses.asdict(result.cache),
        "definitions": definitions_json(result.definitions),
        "referee": None if result.refereed is None else referee_json(result.refereed),
        "server": server_json(result.server),
        "stability": _stability_json(result),
        "little": None if (little := check_little(result.records)) is None else dataclasses.asdict(little),
        "objective": dataclasses.asdict(result.objective),
        "processes": [dataclasses.asdict(shard) for shard in result.shards],
        "is_interrupted": result.is_interrupted,
    }


def server_json(server: ServerMetrics | None) -> dict[str, Any] | None:
    """What the server said about itself, in a few figures; null where it was not asked or said nothing."""
    summary = None if server is None else summarise_server(server.samples)
    return None if summary is None else dataclasses.asdict(summary)


def _stability_json(result: LoadRun) -> dict[str, Any] | None:
    found = judge_stability(result.records) if isinstance(result.workload.arrival, OpenLoop) else None
    return None if found is None else dataclasses.asdict(found)


def window_json(window: TokenWindow | None) -> dict[str, Any] | None:
    """What happened while the load was steady; null where it never was."""
    return None if window is None else dataclasses.asdict(window)


def arrival_json(arrival: ClosedLoop | OpenLoop) -> dict[str, Any]:
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


def load_text(result: LoadRun, with_definitions: bool = False) -> str:
    """The same for a terminal, and on demand what other tools would have printed."""
    workload = result.workload
    conditions = (
        f"{result.target}, serving {printable(result.model or 'a model it does not name')}: {_arrival_text(workload)}, "
        f"about {_lengths_text(workload.requests.prompt_tokens)} prompt tokens, "
        f"{_lengths_text(workload.requests.output_tokens)} output tokens asked for, seed {workload.seed}"
    )
    lines = [wrap(conditions), metrics_text(result.metrics), proof_text(result.arrivals)]
    if result.window is not None:
        lines.insert(2, wrap(window_text(result.window)))
    lines += map(wrap, _prompt_lines(result))
    lines += map(wrap, _server_lines(result))
    lines += map(wrap, _client_lines(result))
    lines += [wrap(printable(f"{workload.name}: {note}")) for note in workload.notes]
    lines += [wrap(printable(note)) for note in result.notes]
    if result.dropped_fields:
        lines.append(wrap(f"the server refused these request fields: {', '.join(result.dropped_fields)}"))
    if result.refereed is not None:
        lines.append(referee_text(result.refereed))
    if with_definitions:
        lines.append(definitions_text(result.definitions))
    return "\n\n".join([*lines, f"raw samples: {result.run_dir}"])


def window_text(window: TokenWindow) -> str:
    """The window in a sentence."""
    gap = window.itl_s or window.chunk_gap_s
    gaps = "" if gap is None else f", p99 {'ITL' if window.itl_s else 'chunk gap'} {format_seconds(gap.p99)}"
    shared = f" ({format_fraction(window.estimated_fraction)} of them estimated)" if window.estimated_fraction else ""
    return (
        f"steady window of {format_seconds(window.length_s)}: {format_number(window.output_tokens_per_s)} output tokens/s{shared}, "
        f"{format_number(window.requests_per_s)} requests/s, {format_number(window.mean_concurrency)} in flight on average{gaps}"
    )


def _prompt_lines(result: LoadRun) -> list[str]:
    """Whether prompts were as long as asked, and new to the server."""
    length, cache = result.prompts, result.cache
    lines = [] if length is None or length.num_counted == length.num_equal else [length.sentence]
    if cache is not None and (finding := cache.finding) is not None:
        lines.append(finding)
    return lines


def _server_lines(result: LoadRun) -> list[str]:
    """Whether the server kept up with a schedule, and where what it says of itself is not what was seen."""
    found = judge_stability(result.records) if isinstance(result.workload.arrival, OpenLoop) else None
    lines = [] if found is None else [found.said]
    return [*lines, *check_server(result.server, result.records).findings]


def _client_lines(result: LoadRun) -> list[str]:
    """What the client says about itself; first, where it applies, that the run does not count."""
    health, floor = result.health, result.floor
    gc = health.gc_pauses
    delays = (
        f"client: p99 send delay {format_seconds(health.send_delay_p99_s)}, p99 loop lag {format_seconds(health.loop_lag_p99_s)}, "
        f"floor of TTFT {format_seconds(floor.ttft_s)}, CPU {format_fraction(health.cpu_share, 2)} of a core, {gc.count} garbage "
        f"collections, the longest {format_seconds(gc.longest_s)}, {format_seconds(gc.total_s)} in all"
    )
    if health.stamp_source is StampSource.KERNEL:
        stamps = (
            f"stamps: the kernel's; read {format_seconds(health.read_delay_p50_s)} (p50) and "
            f"{format_seconds(health.read_delay_p99_s)} (p99) later; {format_fraction(health.censored_fraction)} of chunks share one"
        )
    else:
        stamps = (
            f"stamps: this program's own, once it had read: the kernel gave none for {format_fraction(health.user_stamped_fraction)} "
            f"of chunks; {format_fraction(health.censored_fraction)} of chunks share one"
        )
    reason = health.invalid_because
    return [*([reason] if reason else []), delays, stamps]


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
    has_channels = metrics.ttfa_s != metrics.ttft_s
    rows = [(label, *_cells(getattr(metrics, name))) for name, label in _TIMES if has_channels or name != "ttfa_s"]
    rate = f"{format_number(metrics.output_tokens_per_s)} output tokens/s over {format_seconds(metrics.span_s)}"
    head = wrap(f"requests: {counts}; {rate}")
    text = table(("measured", "p50", "p90", "p99", "95 % of p99", "samples"), rows, "lrrrrr")
    rule = f"goodput {format_number(metrics.goodput_requests_per_s)} requests/s ({metrics.goodput_rule})"
    mark = f"{_FEW} too few samples for a 95 % interval: the percentile is little more than one of them"
    return "\n".join([f"{head}\n{rule}\n\n{text}\n{mark}", *_failures_text(metrics)])


def _failures_text(metrics: Metrics) -> list[str]:
    """The second view, where a request failed: percentiles over all, failures at +∞."""
    views = ((label, getattr(metrics.all_requests, name, None)) for name, label in _TIMES)
    rows = [
        (label, *map(_bounded, (view.p50, view.p90, view.p99)), str(view.count))
        for label, view in views
        if isinstance(view, FailurePercentiles) and view.num_timed_out + view.num_failed
    ]
    return (
        ["", table(("all requests, failed ones too", "p50", "p90", "p99", "requests"), rows, "lrrrr")] if rows else []
    )


def _bounded(time: BoundedTime) -> str:
    """A time; "> timeout" of one that was not waited for, "never" of one that will not come."""
    if time.value_s is not None:
        return format_seconds(time.value_s)
    return "never" if time.above_s is None else f"> {format_seconds(time.above_s)}"


def _cells(values: Percentiles | None) -> tuple[str, str, str, str, str]:
    if values is None:
        return (NOT_AVAILABLE, NOT_AVAILABLE, NOT_AVAILABLE, NOT_AVAILABLE, "0")
    points = ((values.p50, values.p50_interval), (values.p90, values.p90_interval), (values.p99, values.p99_interval))
    p50, p90, p99 = (f"{format_seconds(value)}{'' if interval else _FEW}" for value, interval in points)
    within = values.p99_interval
    interval = f"{format_seconds(within.low)} to {format_seconds(within.high)}" if within else NOT_AVAILABLE
    return p50, p90, p99, interval, str(values.count)
