"""What stands behind a load run? Its verdicts as sentences, and its tables.

In:   Evidence
Out:  sentences, Tables and rows of texts
Leaves out: how they look (load_html); every number was computed before
Read next by: load_html.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from inference_bench.arrival_proof import ArrivalProof, Verdict
from inference_bench.arrival_proof.stability import Load, judge_stability
from inference_bench.failure_view import BoundedTime, FailurePercentiles
from inference_bench.measure.server_metrics import ServerMetrics
from inference_bench.metrics import Metrics, Percentiles
from inference_bench.origin import Origin
from inference_bench.report.load_page_input import Evidence, LoadPoint
from inference_bench.report.report_html import sentence
from inference_bench.report.table import Cells, Column, Table
from inference_bench.report.wording import REPORTED, interval_text
from inference_bench.token_window import TokenWindow
from inference_bench.units import (
    KILO,
    NOT_AVAILABLE,
    format_bytes_binary,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
)

TIMES: Final = (
    ("ttft_s", "TTFT"),
    ("tpot_s", "TPOT"),
    ("itl_s", "ITL"),
    ("chunk_gap_s", "chunk gap"),
    ("e2e_s", "E2E"),
    ("time_to_close_s", "until the reply closed"),
    ("send_delay_s", "sent after its plan"),
)
_FEW: Final = "†"
_FEW_NOTE: Final = "† too few samples for a 95 % interval: the percentile is little more than one of them."


# ── verdicts ───────────────────────────────────────────────────────────────────────────────────────


def findings(evidence: Evidence) -> list[str]:
    """What must not be missed, the gravest first: the client, the arrivals, the server, then what others found."""
    run, lines = evidence.run, []
    if not evidence.points:
        lines += [run.client.get("invalid_because") or ""]
        if run.arrivals.verdict is Verdict.BROKEN:
            lines += [f"requests did not arrive as asked: {reason}" for reason in run.arrivals.reasons]
    lines.append(_endings_finding(evidence.all_metrics))
    if evidence.stability is not None and evidence.stability.load is Load.FELL_BEHIND:
        lines.append(evidence.stability.said)
    if evidence.little is not None and not evidence.little.is_kept:
        lines.append(evidence.little.said)
    lines += evidence.checks.findings
    return [*evidence.notes, *map(sentence, filter(None, lines)), *evidence.findings, *evidence.extras.findings]


def _endings_finding(found: Sequence[Metrics]) -> str:
    counts = [dataclasses.asdict(metrics.requests) for metrics in found]
    totals = {name: sum(each[name] for each in counts) for name in ("sent", *_BAD)}
    bad = [f"{format_count(totals[name])} {name.replace('_', ' ')}" for name in _BAD if totals[name]]
    sent = format_count(totals["sent"])
    rest = "percentiles are of the completed ones" if sum(each["completed"] for each in counts) else "none completed"
    return f"of {sent} requests, {', '.join(bad)}: {rest}" if bad else ""


_BAD: Final = ("failed", "rejected", "timed_out", "truncated", "cancelled")


def reading(evidence: Evidence) -> list[str]:
    """The answer in words: what was delivered, and why it can be believed."""
    run = evidence.run
    lines = [_delivered(evidence), _window_said(run.window)]
    lines.append("" if run.client.get("invalid_because") else f"{_at(evidence)}{_client_said(run.client)}")
    if run.arrivals.verdict is not Verdict.BROKEN:
        lines.append(f"{_at(evidence)}{arrivals_said(run.arrivals)}")
    if evidence.stability is not None and evidence.stability.load is not Load.FELL_BEHIND:
        lines.append(evidence.stability.said)
    if evidence.little is not None and evidence.little.is_kept:
        lines.append(evidence.little.said)
    lines += _server_said(evidence)
    return [*map(sentence, filter(None, lines)), *evidence.extras.reading]


def _at(evidence: Evidence) -> str:
    return "" if evidence.chosen is None else f"at {evidence.chosen.label} "


def _delivered(evidence: Evidence) -> str:
    metrics, good = evidence.run.metrics, evidence.good
    if evidence.chosen is not None:
        points = evidence.points
        most = max(points, key=lambda point: point.metrics.output_tokens_per_s or 0.0)
        return (
            f"{format_count(len(points))} loads from {points[0].label} to {points[-1].label}: most good requests, "
            f"{format_number(metrics.goodput_requests_per_s)} a second, at {evidence.chosen.label} ({good.rule}); most output "
            f"tokens, {format_number(most.metrics.output_tokens_per_s)} a second, at {most.label}{_behind_said(points)}"
        )
    tokens = f"{format_number(metrics.output_tokens_per_s)} output tokens/s"
    if metrics.output_tokens_per_s is None:
        tokens = "how many output tokens came is not known" if metrics.requests.completed else "no request completed"
    return (
        f"{tokens} over {format_seconds(metrics.span_s)}; "
        f"{format_count(good.good)} of {format_count(good.num_requests)} requests were good: {good.rule}"
    )


def _window_said(window: TokenWindow | None) -> str:
    """What went on while the load was steady, whatever requests were under way."""
    if window is None:
        return ""
    return (
        f"while the load was steady, {format_seconds(window.length_s)}: {format_number(window.output_tokens_per_s)} output "
        f"tokens/s, {format_number(window.requests_per_s)} requests/s, {format_number(window.mean_concurrency)} in flight on average"
    )


def _behind_said(points: Sequence[LoadPoint]) -> str:
    behind = [point.label for point in points if load_of(point) is Load.FELL_BEHIND]
    return f"; the server fell behind at {', '.join(behind)}" if behind else ""


def _client_said(client: Mapping[str, Any]) -> str:
    worst = worst_bound(client)
    if worst is None:
        return "this client's own error could not be bounded: too few chunks came"
    name, share = worst
    return f"this client kept up: the percentile it may have moved most is the {name}, by at most {format_fraction(share, 2)}"


def worst_bound(client: Mapping[str, Any]) -> tuple[str, float] | None:
    """The percentile that the client may have moved most for its size, and by what share of it."""
    shares = [
        (each["bound_s"] / each["value_s"], f"{each['percentile']} of {metric_name(each['metric'])}")
        for each in client.get("error_bounds", ())
        if each["value_s"] > 0
    ]
    if not shares:
        return None
    share, name = max(shares)
    return name, share


def metric_name(field: str) -> str:
    """What a time is called."""
    return dict(TIMES).get(field, field)


def arrivals_said(proof: ArrivalProof) -> str:
    """The verdict on the arrivals, and the rate."""
    realised = f"{format_number(proof.realised_rate)} requests/s sent"
    rate = realised if proof.asked_rate is None else f"{realised} of {format_number(proof.asked_rate)} asked for"
    verdict = {
        Verdict.KEPT: "requests arrived as asked",
        Verdict.BROKEN: "requests did not arrive as asked",
        Verdict.UNDECIDED: "whether requests arrived as asked is not decided",
    }[proof.verdict]
    notes = f" ({'; '.join(proof.notes)})" if proof.verdict is Verdict.UNDECIDED and proof.notes else ""
    return f"{verdict}: {proof.process}, {rate}{notes}"


def _server_said(evidence: Evidence) -> Iterator[str]:
    """Where the server's own figures agree, and where it was asked in vain."""
    for check in (evidence.checks.output_tokens, evidence.checks.in_flight):
        if check is not None and check.finding is None:
            yield (
                f"the server's own count agrees: {check.name} {format_number(check.server)}, "
                f"by the records {format_number(check.client_low)}"
            )
    server = evidence.metrics_of_server
    if server is not None and server.trouble:
        yield f"{server.trouble}; {_tries(server)}"


def _tries(server: ServerMetrics) -> str:
    num, failed = len(server.samples), server.num_failed
    late = f"; not asked {format_count(server.num_late)} times, as an answer was late" if server.num_late else ""
    answers, failures = "answer" if num == 1 else "answers", "failure" if failed == 1 else "failures"
    return f"{format_count(num)} {answers}, {format_count(failed)} {failures}{late}"


# ── tables ─────────────────────────────────────────────────────────────────────────────────────────


def percentiles_table(evidence: Evidence) -> Table:
    """Every time with its intervals and samples, of completed requests."""
    metrics, title = evidence.run.metrics, f"Completed requests{_where(evidence)}"
    columns = (
        Column("time", "l"),
        Column("p50"),
        Column("95 % of p50"),
        Column("p90"),
        Column("p99"),
        Column("95 % of p99"),
        Column("samples"),
    )
    rows = tuple((name, *_percentile_cells(getattr(metrics, field))) for field, name in TIMES)
    return Table(title, columns, rows, _FEW_NOTE)


def _percentile_cells(found: Percentiles | None) -> Cells:
    if found is None:
        return (*[NOT_AVAILABLE] * 5, "0")
    p50, p90, p99 = (
        f"{format_seconds(value)}{'' if interval else _FEW}"
        for value, interval in (
            (found.p50, found.p50_interval),
            (found.p90, found.p90_interval),
            (found.p99, found.p99_interval),
        )
    )
    low, high = (interval_text(interval, format_seconds) for interval in (found.p50_interval, found.p99_interval))
    return p50, low, p90, p99, high, format_count(found.count)


def _where(evidence: Evidence) -> str:
    """At which load of a sweep."""
    return "" if evidence.chosen is None else f" at {evidence.chosen.label}"


def failures_table(evidence: Evidence) -> Table | None:
    """Percentiles over all requests, where some did not complete."""
    views = ((name, getattr(evidence.run.metrics.all_requests, field, None)) for field, name in TIMES)
    rows = tuple(
        (name, *map(bounded, (view.p50, view.p90, view.p99)), format_count(view.count))
        for name, view in views
        if isinstance(view, FailurePercentiles) and view.num_timed_out + view.num_failed
    )
    if not rows:
        return None
    columns = (Column("time", "l"), Column("p50"), Column("p90"), Column("p99"), Column("requests"))
    note = "A request that failed takes for ever, one that timed out longer than it was waited for."
    return Table(f"All requests, failed ones too{_where(evidence)}", columns, rows, note)


def bounded(time: BoundedTime) -> str:
    """A time; "> timeout" of one that was not waited for, "never" of one that will not come."""
    if time.value_s is not None:
        return format_seconds(time.value_s)
    return "never" if time.above_s is None else f"> {format_seconds(time.above_s)}"


def endings_table(evidence: Evidence) -> Table:
    """How requests ended, and how they stood to the objective."""
    counts, good = dataclasses.asdict(evidence.run.metrics.requests), evidence.good
    sent = counts.pop("sent")
    rows = [(name.replace("_", " "), *_share(number, sent)) for name, number in counts.items()]
    rows += [("good", *_share(good.good, sent)), ("completed, not good", *_share(good.missed, sent))]
    marked = frozenset(i for i, (name, _, _) in enumerate(rows) if name.replace(" ", "_") in _BAD and rows[i][1] != "0")
    columns = (Column("ending", "l"), Column("requests"), Column("share"))
    return Table(f"How requests ended{_where(evidence)}", columns, tuple(rows), f"Good: {good.rule}.", marked)


def _share(number: int, total: int) -> tuple[str, str]:
    return format_count(number), format_fraction(number / total if total else None)


def points_table(points: Sequence[LoadPoint], asked_title: str) -> Table | None:
    """A row for each load of a sweep."""
    if len(points) < 2:
        return None
    columns = (
        Column("load", "l"),
        Column("sent/s"),
        Column("good/s"),
        Column("tok/s"),
        Column("TTFT p50"),
        Column("p99"),
        Column("TPOT p50"),
        Column("p99"),
        Column("completed"),
        Column("the server", "l"),
    )
    loads = [load_of(point) for point in points]
    rows = tuple(_point_cells(point, load) for point, load in zip(points, loads, strict=True))
    marked = frozenset(index for index, load in enumerate(loads) if load is Load.FELL_BEHIND)
    note = f"Load: {asked_title}. {_FEW_NOTE} What the server did is judged for open loops only (docs/load.md)."
    return Table("Every load", columns, rows, note, marked)


def load_of(point: LoadPoint) -> Load | None:
    """How the server stood to a load, where its queue could grow: in a closed loop it cannot."""
    found = judge_stability(point.records) if point.is_open else None
    return None if found is None else found.load


def _point_cells(point: LoadPoint, load: Load | None) -> Cells:
    metrics = point.metrics
    sent = metrics.requests.sent
    return (
        point.label,
        format_number(metrics.realised_rate),
        format_number(metrics.goodput_requests_per_s),
        format_number(metrics.output_tokens_per_s),
        *_median_and_p99(metrics.ttft_s),
        *_median_and_p99(metrics.tpot_s),
        f"{format_count(metrics.requests.completed)} of {format_count(sent)}",
        NOT_AVAILABLE if load is None else load.value,
    )


def _median_and_p99(found: Percentiles | None) -> tuple[str, str]:
    if found is None:
        return NOT_AVAILABLE, NOT_AVAILABLE
    pairs = ((found.p50, found.p50_interval), (found.p99, found.p99_interval))
    p50, p99 = (f"{format_seconds(value)}{'' if interval else _FEW}" for value, interval in pairs)
    return p50, p99


def server_table(evidence: Evidence) -> Table | None:
    """The server's own figures over the run."""
    found, server = evidence.server, evidence.metrics_of_server
    if found is None or server is None:
        return None
    rows = (
        ("running, mean and most", f"{format_number(found.mean_running)} / {format_number(found.peak_running)}"),
        ("waiting, mean and most", f"{format_number(found.mean_waiting)} / {format_number(found.peak_waiting)}"),
        ("cache in use, most", format_fraction(found.peak_cache_fraction)),
        ("prompt tokens", _whole(found.prompt_tokens)),
        ("found in its prefix cache", format_fraction(found.prefix_hit_fraction)),
        ("output tokens", _whole(found.output_tokens)),
        ("preemptions", _whole(found.preemptions)),
        ("TTFT, mean", format_seconds(found.mean_ttft_s)),
    )
    columns = (Column("figure", "l"), Column(server.server or "the server", origin=REPORTED))
    kept = tuple(row for row in rows if row[1].replace(NOT_AVAILABLE, "").strip(" /"))
    note = (
        f"From {_tries(server)}, about a second apart; reading them took this client "
        f"{format_seconds(server.cpu_s / max(1, len(server.samples) + server.num_failed), 2)} of processor time each."
    )
    return Table("The server's own figures", columns, kept, note if server.cpu_s else f"From {_tries(server)}.")


def _whole(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else format_count(round(value))


def gpu_table(evidence: Evidence) -> Table | None:
    """A row for each card of this machine."""
    samples = () if evidence.gpu is None else evidence.gpu.samples
    if not samples:
        return None
    rows = []
    for index in sorted({sample.index for sample in samples}):
        mine = [sample for sample in samples if sample.index == index]
        power = [sample.power_w for sample in mine if sample.power_w is not None]
        clock = [sample.sm_clock_hz for sample in mine if sample.sm_clock_hz is not None]
        memory = [sample.memory_used_bytes for sample in mine if sample.memory_used_bytes is not None]
        busy = [sample.busy_fraction for sample in mine if sample.busy_fraction is not None]
        rows.append(
            (
                str(index),
                format_number(sum(power) / len(power) if power else None),
                format_number(sum(clock) / len(clock) / KILO**2 if clock else None, 4),
                format_bytes_binary(max(memory, default=None)),
                format_fraction(sum(busy) / len(busy) if busy else None),
            )
        )
    columns = (
        Column("card", "l"),
        Column("power, mean (W)", origin=Origin.MEASURED),
        Column("SM clock, mean (MHz)", origin=Origin.MEASURED),
        Column("memory, most", origin=Origin.MEASURED),
        Column("time any kernel ran", origin=Origin.MEASURED),
    )
    return Table("Cards of this machine", columns, tuple(rows))
