"""What a server delivered, as JSON with stable keys and as text for a terminal.

In:   LoadRun, or Metrics alone
Out:  a dict ready for JSON or a text of at most 100 columns
Read next by: sweep_report, load_capacity_report, saved_load, load_tables, cli.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inference_bench.arrival_proof import Verdict
from inference_bench.arrival_proof.stability import check_little, judge_stability
from inference_bench.failure_view import BoundedTime, FailurePercentiles
from inference_bench.measure.client_health import GcPauses, health_values
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.prompt_checks import judge_documents, prompt_findings
from inference_bench.measure.server_metrics import ServerMetrics, ServerSummary, summarise_server
from inference_bench.measure.server_metrics_checks import check_server
from inference_bench.metrics import Metrics, Percentiles
from inference_bench.report.proof_report import VERDICTS, definitions_json, definitions_text, proof_json, proof_text
from inference_bench.report.referee_report import referee_json, referee_text
from inference_bench.report.text import printable, table, wrap
from inference_bench.units import NOT_AVAILABLE, format_count, format_fraction, format_number, format_seconds
from inference_bench.workload import ClosedLoop, OpenLoop, Workload, summarise_arrivals

if TYPE_CHECKING:
    from inference_bench.loadtest.capacity_run import CapacityRun
    from inference_bench.loadtest.flow import LoadRun
    from inference_bench.loadtest.shards_merge import Shard
    from inference_bench.loadtest.sweep import SweepRun
    from inference_bench.token_window import TokenWindow

FEW = "†"
_COVERED = "bounded are stamps of what was received; connecting, and what passes before this machine has it, count as the server's"
_LEAST_SHARE = 0.0001
_MOST_SHARDS = 16
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
        "manifest_sha256": result.manifest_sha256,
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
        "documents": None if (found := judge_documents(result.records)) is None else dataclasses.asdict(found),
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
    """What the server said about itself, in a few figures, and what was in the way; null where it was not asked."""
    if server is None:
        return None
    summary = summarise_server(server.samples)
    none = dict.fromkeys(field.name for field in dataclasses.fields(ServerSummary))
    return {
        "name": server.server,
        **({**none, "num_samples": 0} if summary is None else dataclasses.asdict(summary)),
        "num_failed": server.num_failed,
        "num_late": server.num_late,
        "trouble": server.trouble,
    }


def server_lines(server: ServerMetrics | None) -> list[str]:
    """The same in a line, and why it could not be read where it could not; nothing where it was not asked."""
    if server is None:
        return []
    summary, name = summarise_server(server.samples), server.server or "the server"
    trouble = [f"{server.trouble} ({_times(server.num_failed)} without an answer)"] if server.trouble else []
    if summary is None:
        return trouble or ["the server's own metrics: none were read"]
    pairs = (
        ("running", summary.mean_running, summary.peak_running),
        ("waiting", summary.mean_waiting, summary.peak_waiting),
    )
    said = [
        f"{format_number(mean)} {word} on average and {format_number(peak)} at most"
        for word, mean, peak in pairs
        if mean is not None
    ]
    if summary.peak_cache_fraction is not None:
        said.append(f"cache in use at most {format_fraction(summary.peak_cache_fraction)}")
    if summary.prefix_hit_fraction is not None:
        said.append(f"{format_fraction(summary.prefix_hit_fraction)} of prompt tokens found in its prefix cache")
    answers = "1 answer" if summary.num_samples == 1 else f"{summary.num_samples} answers"
    return [f"{name} of itself, in {answers}: {', '.join(said) or 'nothing of its requests or its cache'}", *trouble]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


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
    prompts = result.prompts
    about = "" if prompts is not None and prompts.num_requests == prompts.num_equal > 0 else "about "
    conditions = (
        f"{result.target}, serving {printable(result.model or 'a model it does not name')}: {_arrival_text(workload)}, "
        f"{about}{_lengths_text(workload.requests.prompt_tokens)} prompt tokens, "
        f"{_lengths_text(workload.requests.output_tokens)} output tokens asked for, seed {workload.seed}"
    )
    lines = [*map(wrap, _findings(result)), wrap(conditions), metrics_text(result.metrics)]
    if result.window is not None:
        lines.append(wrap(window_text(result.window)))
    lines.append(proof_text(result.arrivals, with_reasons=result.arrivals.verdict is Verdict.UNDECIDED))
    if (documents := judge_documents(result.records)) is not None and documents.finding is None:
        lines.append(wrap(documents.remark))
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


def _findings(result: LoadRun) -> list[str]:
    """What must not be missed, before any figure: the client, the arrivals, physics, then prompts and documents."""
    arrivals, documents = result.arrivals, judge_documents(result.records)
    reasons = () if arrivals.verdict is Verdict.UNDECIDED else arrivals.reasons
    flags = () if result.refereed is None else result.refereed.flags
    lines = [
        result.health.invalid_because,
        *(f"{VERDICTS[arrivals.verdict]}: {reason}" for reason in reasons),
        *(f"faster than physics allows, likely {flag.cause}: {flag.meaning}" for flag in flags),
        *prompt_findings(result.prompts, result.cache),
        None if documents is None else documents.finding,
    ]
    return [line for line in lines if line]


def window_text(window: TokenWindow) -> str:
    """The window in a sentence."""
    gap = window.itl_s or window.chunk_gap_s
    gaps = "" if gap is None else f", p99 {'ITL' if window.itl_s else 'chunk gap'} {format_seconds(gap.p99)}"
    shared = f" ({format_fraction(window.estimated_fraction)} of them estimated)" if window.estimated_fraction else ""
    return (
        f"steady window of {format_seconds(window.length_s)}: {format_number(window.output_tokens_per_s)} output tokens/s{shared}, "
        f"{format_number(window.requests_per_s)} requests/s, {format_number(window.mean_concurrency)} in flight on average{gaps}"
    )


def _server_lines(result: LoadRun) -> list[str]:
    """Whether the server kept up with a schedule, and where what it says of itself is not what was seen."""
    found = judge_stability(result.records) if isinstance(result.workload.arrival, OpenLoop) else None
    lines = [] if found is None else [found.said]
    return [*lines, *server_lines(result.server), *check_server(result.server, result.records).findings]


def _client_lines(result: LoadRun) -> list[str]:
    """What the client says about itself."""
    health, floor = result.health, result.floor
    delays = (
        f"client: p99 send delay {format_seconds(health.send_delay_p99_s)}, p99 loop lag {format_seconds(health.loop_lag_p99_s)}, "
        f"floor of TTFT {format_seconds(floor.ttft_s)}, CPU {format_fraction(health.cpu_share, 2)} of a core"
        f"{_pauses_text(health.gc_pauses)}"
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
    own_error = [] if health.invalid_because else [own_error_text(health_values(health))]
    return [*own_error, *_shards_text(result.shards), delays, stamps]


def own_error_text(client: Mapping[str, Any]) -> str:
    """How far this client may have moved a percentile, and what that covers; client is what `health_values` says."""
    shares = [
        (
            each["bound_s"] / each["value_s"],
            f"{each['percentile']} of {dict(_TIMES).get(each['metric'], each['metric'])}",
        )
        for each in client.get("error_bounds", ())
        if each["value_s"] > 0
    ]
    if not shares:
        return "this client's own error could not be bounded: too few chunks came"
    share, name = max(shares)
    if share == 0:
        return f"this client kept up: no receive stamp is in doubt ({_COVERED})"
    size = (
        f"at most {format_fraction(share, 2)}"
        if share >= _LEAST_SHARE
        else f"less than {format_fraction(_LEAST_SHARE, 1)}"
    )
    return f"this client kept up: the percentile it may have moved most is the {name}, by {size} ({_COVERED})"


def _shards_text(shards: Sequence[Shard]) -> list[str]:
    """How many processes sent, and which of them do not count."""
    if not shards:
        return []
    unknown = [shard for shard in shards if shard.health is None]
    invalid = [shard for shard in shards if shard.health is not None and shard.health.invalid_because]
    counts = " + ".join(format_count(shard.num_requests) for shard in shards[:_MOST_SHARDS])
    more = f" and {len(shards) - _MOST_SHARDS} more" if len(shards) > _MOST_SHARDS else ""
    head = f"sent by {len(shards)} process{'' if len(shards) == 1 else 'es'} ({counts}{more} requests)"
    if not unknown and not invalid:
        return [f"{head}, each of them valid"]
    lines = [f"process {shard.number + 1} did not come to its end" for shard in unknown]
    lines += [f"process {shard.number + 1}: {shard.health.invalid_because}" for shard in invalid if shard.health]
    return [f"{head}; {'; '.join(lines)}"]


def _pauses_text(pauses: GcPauses) -> str:
    """Garbage collections, where there were any."""
    if not pauses.count:
        return ""
    longest = format_seconds(pauses.longest_s)
    if pauses.count == 1:
        return f", 1 garbage collection of {longest}"
    return f", {pauses.count} garbage collections, the longest {longest}, {format_seconds(pauses.total_s)} in all"


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
    mark = f"{FEW} too few samples for a 95 % interval: the percentile is little more than one of them"
    return "\n".join([f"{head}\n{rule}\n\n{text}\n{mark}", *_failures_text(metrics)])


def _failures_text(metrics: Metrics) -> list[str]:
    """The second view, where a request failed: percentiles over all, failures at +∞."""
    views = ((label, getattr(metrics.all_requests, name, None)) for name, label in _TIMES)
    rows = [
        (label, *map(bounded, (view.p50, view.p90, view.p99)), str(view.count))
        for label, view in views
        if isinstance(view, FailurePercentiles) and view.num_timed_out + view.num_failed
    ]
    return (
        ["", table(("all requests, failed ones too", "p50", "p90", "p99", "requests"), rows, "lrrrr")] if rows else []
    )


def bounded(time: BoundedTime) -> str:
    """A time; "> timeout" of one that was not waited for, "never" of one that will not come."""
    if time.value_s is not None:
        return format_seconds(time.value_s)
    return "never" if time.above_s is None else f"> {format_seconds(time.above_s)}"


def _cells(values: Percentiles | None) -> tuple[str, str, str, str, str]:
    if values is None:
        return (NOT_AVAILABLE, NOT_AVAILABLE, NOT_AVAILABLE, NOT_AVAILABLE, "0")
    points = ((values.p50, values.p50_interval), (values.p90, values.p90_interval), (values.p99, values.p99_interval))
    p50, p90, p99 = (f"{format_seconds(value)}{'' if interval else FEW}" for value, interval in points)
    within = values.p99_interval
    interval = f"{format_seconds(within.low)} to {format_seconds(within.high)}" if within else NOT_AVAILABLE
    return p50, p90, p99, interval, str(values.count)
