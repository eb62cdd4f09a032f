"""What does a load run say of itself? Its verdicts as sentences.

In:   Evidence
Out:  findings, which must not be missed, and the reading, why the rest can be believed
Leaves out: tables (load_tables), how it looks (load_html); every number was computed before
Read next by: load_tables, load_html_rows, load_html.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from inference_bench.arrival_proof import ArrivalProof, Verdict
from inference_bench.arrival_proof.stability import Load, judge_stability
from inference_bench.charts.load_curve import WHOLE
from inference_bench.measure.server_metrics import ServerMetrics
from inference_bench.metrics import Metrics
from inference_bench.report.load_page_input import Evidence, LoadPoint, arrival_troubles
from inference_bench.report.load_report import own_error_text, window_text
from inference_bench.report.proof_report import VERDICTS
from inference_bench.report.report_html import sentence
from inference_bench.units import format_count, format_number, format_seconds

TIMES: Final = (
    ("ttft_s", "TTFT"),
    ("tpot_s", "TPOT"),
    ("itl_s", "ITL"),
    ("chunk_gap_s", "chunk gap"),
    ("e2e_s", "E2E"),
    ("time_to_close_s", "until the reply closed"),
    ("send_delay_s", "sent after its plan"),
)
BAD: Final = ("failed", "rejected", "timed_out", "truncated")
CLOSED: Final = "closed loop"
NO_DOUBT: Final = "no receive stamp is in doubt"


def findings(evidence: Evidence) -> list[str]:
    """What must not be missed, the gravest first: the client, the arrivals, the server, then prompts and physics."""
    run, lines = evidence.run, []
    if not evidence.points:
        lines += [run.client.get("invalid_because") or ""]
        lines += [f"{_verdict_said(run.arrivals)}: {reason}" for reason in arrival_troubles(run.arrivals)]
    lines.append(_endings_finding(evidence.all_metrics))
    if evidence.stability is not None and evidence.stability.load is Load.FELL_BEHIND:
        lines.append(evidence.stability.said)
    if evidence.little is not None and not evidence.little.is_kept:
        lines.append(evidence.little.said)
    lines += evidence.checks.findings
    wrong = None if evidence.documents is None else evidence.documents.finding
    return [*evidence.notes, *map(sentence, filter(None, lines)), *evidence.findings, *([wrong] if wrong else [])]


def _verdict_said(proof: ArrivalProof) -> str:
    return VERDICTS[proof.verdict]


def _endings_finding(found: Sequence[Metrics]) -> str:
    """Requests that the server did not complete; those that this program stopped itself are no fault of it."""
    counts = [dataclasses.asdict(metrics.requests) for metrics in found]
    totals = {name: sum(each[name] for each in counts) for name in ("sent", "cancelled", *BAD)}
    bad = [f"{format_count(totals[name])} {name.replace('_', ' ')}" for name in BAD if totals[name]]
    judged = format_count(totals["sent"] - totals["cancelled"])
    rest = "percentiles are of the completed ones" if sum(each["completed"] for each in counts) else "none completed"
    return f"of {judged} requests, {', '.join(bad)}: {rest}" if bad else ""


def reading(evidence: Evidence) -> list[str]:
    """The answer in words: what was delivered, and why it can be believed."""
    run, at = evidence.run, _at(evidence)
    lines = [_delivered(evidence), "" if run.window is None else f"{at}{window_text(run.window)}"]
    lines.append("" if run.client.get("invalid_because") else f"{at}{own_error_text(run.client)}")
    if not arrival_troubles(run.arrivals):
        lines.append(f"{at}{arrivals_said(run.arrivals)}")
    if evidence.stability is not None and evidence.stability.load is not Load.FELL_BEHIND:
        lines.append(evidence.stability.said)
    if evidence.little is not None and evidence.little.is_kept:
        lines.append(evidence.little.said)
    lines += _server_said(evidence)
    lines += [_documents_said(evidence), _stopped_said(evidence.all_metrics)]
    return list(map(sentence, filter(None, lines)))


def _at(evidence: Evidence) -> str:
    return "" if evidence.chosen is None else f"at {evidence.chosen.label}: "


def _documents_said(evidence: Evidence) -> str:
    found = evidence.documents
    if found is None:
        return ""
    rest = f"; {format_count(found.not_judged)} more brought no whole answer to judge" if found.not_judged else ""
    return f"{format_count(found.valid)} of {format_count(found.valid + found.invalid)} documents valid{rest}"


def _stopped_said(found: Sequence[Metrics]) -> str:
    stopped = sum(metrics.requests.cancelled for metrics in found)
    one = stopped == 1
    if not stopped:
        return ""
    return (
        f"{format_count(stopped)} {'request was' if one else 'requests were'} stopped by this program before "
        f"{'it' if one else 'they'} ended: {'it counts' if one else 'they count'} neither as good nor as failed"
    )


def _delivered(evidence: Evidence) -> str:
    metrics, good = evidence.run.metrics, evidence.good
    if evidence.chosen is not None:
        points = evidence.points
        most = max(points, key=lambda point: point.tokens_per_s)
        return (
            f"{format_count(len(points))} loads from {points[0].label} to {points[-1].label}: most good requests, "
            f"{format_number(evidence.run.delivered.good_per_s)} a second, at {evidence.chosen.label} ({good.rule}); most output "
            f"tokens, {format_number(most.tokens_per_s)} a second over the {most.delivered.over}, at {most.label}"
            f"{_behind_said(points)}"
        )
    tokens = f"{format_number(metrics.output_tokens_per_s)} output tokens/s"
    if metrics.output_tokens_per_s is None:
        tokens = "how many output tokens came is not known" if metrics.requests.completed else "no request completed"
    return (
        f"{tokens} over {_span_said(evidence)}; "
        f"{format_count(good.good)} of {format_count(good.num_requests)} requests were good: {good.rule}"
    )


def _span_said(evidence: Evidence) -> str:
    span = format_seconds(evidence.run.metrics.span_s)
    return span if evidence.run.window is None else f"the {WHOLE} of {span}"


def load_of(point: LoadPoint) -> Load | None:
    """How the server stood to a load, where its queue could grow: in a closed loop it cannot."""
    found = judge_stability(point.records) if point.is_open else None
    return None if found is None else found.load


def _behind_said(points: Sequence[LoadPoint]) -> str:
    behind = [point.label for point in points if load_of(point) is Load.FELL_BEHIND]
    return f"; the server fell behind at {', '.join(behind)}" if behind else ""


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
    """The verdict on the arrivals, and the rate of a schedule or how full a closed loop was."""
    notes = f" ({'; '.join(proof.notes)})" if proof.verdict is Verdict.UNDECIDED and proof.notes else ""
    return f"{_verdict_said(proof)}: {proof.process}, {_reached_said(proof)}{notes}"


def _reached_said(proof: ArrivalProof) -> str:
    if proof.asked_rate is not None:
        return f"{format_number(proof.realised_rate)} requests/s sent of {format_number(proof.asked_rate)} asked for"
    if not proof.process.startswith(CLOSED):
        return f"{format_number(proof.realised_rate)} requests/s sent"
    return in_flight_said(proof)


def in_flight_said(proof: ArrivalProof) -> str:
    """How many were under way, on average while the slots were full where that is known, and at most."""
    here = proof.concurrency
    if here is None:
        return "none in flight"
    mean = here.mean if here.steady_mean is None else here.steady_mean
    return f"{format_number(mean)} in flight on average, {format_count(here.peak)} at most"


def _server_said(evidence: Evidence) -> Iterator[str]:
    """Where the server's own figures agree, and where it was asked in vain."""
    for check in (evidence.checks.output_tokens, evidence.checks.in_flight):
        if check is not None and check.agreement is not None:
            yield check.agreement
    server = evidence.metrics_of_server
    if server is not None and server.trouble:
        yield f"{server.trouble}; {tries(server)}"


def tries(server: ServerMetrics) -> str:
    """How often the server was asked about itself, and how often in vain."""
    num, failed = len(server.samples), server.num_failed
    late = f"; not asked {format_count(server.num_late)} times, as an answer was late" if server.num_late else ""
    answers, failures = "answer" if num == 1 else "answers", "failure" if failed == 1 else "failures"
    return f"{format_count(num)} {answers}, {format_count(failed)} {failures}{late}"
