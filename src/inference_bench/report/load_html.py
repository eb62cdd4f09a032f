"""A load run as one page that needs nothing else: no script, no font, no picture from anywhere.

In:   Evidence, Provenance, and what draws a chart specification as SVG
Out:  HTML text
Leaves out: every number's arithmetic, the words of its tables (load_tables), drawing (render)
Read next by: load_page.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from inference_bench.arrival_proof import Verdict
from inference_bench.charts.load_curve import delivered_chart, throughput_latency_chart
from inference_bench.charts.load_latency import latency_pools, load_cdf_chart
from inference_bench.charts.load_timeline import load_timeline_chart, look
from inference_bench.metrics import Metrics, Percentiles
from inference_bench.origin import Origin
from inference_bench.report import html_pieces as pieces
from inference_bench.report import load_html_rows as rows
from inference_bench.report import load_tables as tables
from inference_bench.report.html_pieces import Draw, Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.load_html_definitions import LETTERS, definition_tables
from inference_bench.report.load_html_physics import physics_html
from inference_bench.report.load_page_input import Evidence
from inference_bench.report.report_html import (
    Body,
    Head,
    Part,
    Provenance,
    all_tables,
    assumptions_part,
    quiet,
    reading_part,
    repeat_part,
    report_page,
    value_and_unit,
)
from inference_bench.report.text import clean, shorten
from inference_bench.report.wording import REPORTED
from inference_bench.units import NOT_AVAILABLE, format_count, format_fraction, format_number, format_seconds

SHARES: Final = (
    "How long requests took",
    "The share of requests that had it within so long. A request that failed or timed out never had it: the line ends below "
    "the top by as many. The dots are p50, p90 and p99 over all requests, and the further left a line, the less users wait. "
    "The pauses are those of completed requests.",
)
TIMELINE: Final = (
    "The run over time",
    "Requests in flight as this client saw them, beside what the server said of itself where it was asked; output tokens and "
    "sends a second, these beside their plan. A cross at the top is a request that failed, where it ended. If requests in "
    "flight still pile up when sending ends, the server is overloaded: then latencies say how long the run was.",
)
CURVE: Final = (
    "Latency over throughput",
    "Each dot is a load of the sweep, joined as the load rises. Where the line turns upwards the server is full: more load "
    "adds waiting and no tokens. The dashed line is the objective.",
)
DELIVERED: Final = (
    "What each load delivered",
    "Tokens a second, and good requests under all that were sent. Where good requests fall away from the grey line, more load "
    "serves fewer users well.",
)
_NAME_CHARS: Final = 120
_ASSUMED: Final = (
    "Times run from the planned send, so that a client that is late counts as waiting; a percentile pools the raw samples of "
    "completed requests, and the second view has those that failed at +∞ (docs/metrics.md).",
    "Output tokens are those that the server counted, where it did; never the number that was asked for.",
    "Whether a server kept up is judged by how high its queue for a first token rose, not by a slope: docs/load.md has the rules.",
)


def load_html(evidence: Evidence, made: Provenance, draw: Draw | None) -> str:
    """The whole page; without `draw` it has every table and says why there are no charts."""
    body = load_body(evidence)
    parts = (
        reading_part(tables.reading(evidence)),
        Part("charts", "Charts", "Charts", pieces.charts(() if draw is None else _drawings(evidence), draw)),
        *body.parts,
        repeat_part(made, [evidence.run.workload.seed]),
    )
    return report_page(Head(_question(evidence), body.said), made, body.figures, body.odd, parts)


def load_body(evidence: Evidence) -> Body:
    """From what was sent to what it rests on."""
    run, extras = evidence.run, evidence.extras
    parts = (
        Part("latency", "Latency", "What users waited for", _latency(evidence)),
        Part("physics", "Physics", "What physics allows", physics_html(evidence.refereed)),
        Part("server", "Server", "What the server says of itself", _server(evidence)),
        Part("arrivals", "Arrivals", "How requests were sent", pieces.facts(rows.proof_rows(run.arrivals))),
        Part("client", "Client", "How this client kept up", pieces.facts(rows.client_rows(run))),
        Part("definitions", "Definitions", "The same run as other tools define it", _definitions(evidence)),
        Part("conditions", "Conditions", "Under which conditions", pieces.facts(rows.condition_rows(run))),
        assumptions_part((*_ASSUMED, *run.workload.notes, *extras.assumptions, *_dropped(evidence))),
    )
    odd = (("Findings", tables.findings(evidence)),)
    return Body(_asked(evidence), tuple(_key_figures(evidence)), odd, parts)


def _question(evidence: Evidence) -> str:
    run = evidence.run
    name, where = (shorten(clean(text), _NAME_CHARS) for text in (run.model or "the model", run.target))
    return f"What did {name} at {where} deliver?"


def _asked(evidence: Evidence) -> str:
    """What was sent; of a sweep the ends of it, and the load that is shown in full."""
    words, points = rows.workload_words(evidence.run.workload), evidence.points
    if not points:
        return words
    return f"{format_count(len(points))} loads from {points[0].label} to {points[-1].label}; shown in full: {words}"


def _dropped(evidence: Evidence) -> Iterator[str]:
    if evidence.run.dropped_fields:
        yield f"The server refused these request fields, which were left out: {', '.join(evidence.run.dropped_fields)}."


def _latency(evidence: Evidence) -> str:
    metrics = evidence.run.metrics
    shown = (
        tables.points_table(evidence.points, evidence.asked_title),
        tables.percentiles_table(evidence),
        tables.failures_table(evidence),
        tables.endings_table(evidence),
    )
    sources = ", ".join(f"{name.replace('_', ' ')} {format_count(n)}" for name, n in metrics.token_sources.items())
    shared = "" if metrics.shared_stamp_fraction is None else format_fraction(metrics.shared_stamp_fraction, 2)
    said = f"Who counted the tokens of completed requests: {sources}. " if sources else ""
    said += f"Pauses of 0, as one read brought several chunks: {shared}." if shared else ""
    bound = () if evidence.refereed is None else (Origin.BOUND,)
    shown_origins = (Origin.MEASURED, *bound, REPORTED)
    return f"{pieces.origins(shown_origins)}{all_tables(shown)}{quiet(said)}"


def _server(evidence: Evidence) -> str:
    return all_tables((tables.server_table(evidence), tables.gpu_table(evidence)))


def _definitions(evidence: Evidence) -> str:
    found = evidence.run.definitions
    return f"{quiet(LETTERS)}{all_tables(definition_tables(found))}" if found else ""


# ── key figures ────────────────────────────────────────────────────────────────────────────────────


def _key_figures(evidence: Evidence) -> Iterator[KeyFigure]:
    """Of the run, or of the load of a sweep at which most requests were good."""
    good, chosen = evidence.good, evidence.chosen
    share = f"{format_count(good.good)} of {format_count(good.num_requests)} requests"
    yield from _of_metrics(evidence.run.metrics, "" if chosen is None else f"at {chosen.label}", share)
    yield from _of_trust(evidence)


def _of_metrics(metrics: Metrics, which: str, good: str) -> Iterator[KeyFigure]:
    realised = f"{format_number(metrics.realised_rate)} requests/s sent"
    yield KeyFigure(
        "output rate", format_number(metrics.output_tokens_per_s), "tokens/s", Origin.MEASURED, realised, which
    )
    yield _time("TTFT, p99", metrics.ttft_s, which)
    yield _time("TPOT, p99", metrics.tpot_s, which)
    pauses = ("ITL, p99", metrics.itl_s) if metrics.itl_s is not None else ("chunk gap, p99", metrics.chunk_gap_s)
    yield _time(*pauses, which)
    yield _time("E2E, p99", metrics.e2e_s, which)
    yield KeyFigure(
        "good requests" if not which else "most good requests",
        format_number(metrics.goodput_requests_per_s),
        "requests/s",
        Origin.MEASURED,
        which or good,
        metrics.goodput_rule,
    )


def _time(name: str, found: Percentiles | None, which: str) -> KeyFigure:
    if found is None:
        return KeyFigure(name, NOT_AVAILABLE, "", "", "no sample", which)
    few = "" if found.p99_interval else f"of {format_count(found.count)} samples, too few for an interval"
    value, unit = value_and_unit(format_seconds(found.p99))
    detail = "; ".join(filter(None, (few, which)))
    return KeyFigure(name, value, unit, Origin.MEASURED, f"median {format_seconds(found.p50)}", detail)


def _of_trust(evidence: Evidence) -> Iterator[KeyFigure]:
    """How many requests completed, and whether client and arrivals can be believed."""
    run = evidence.run
    sent = sum(metrics.requests.sent for metrics in evidence.all_metrics)
    completed = sum(metrics.requests.completed for metrics in evidence.all_metrics)
    is_short = completed < sent
    yield KeyFigure(
        "completed",
        format_count(completed),
        f"of {format_count(sent)}",
        Origin.MEASURED,
        f"{format_count(sent - completed)} did not" if is_short else "all of them",
        "percentiles are of these",
        completed / sent if sent else 0.0,
        is_finding=is_short,
    )
    worst, is_broken = tables.worst_bound(run.client), run.arrivals.verdict is Verdict.BROKEN
    is_invalid = run.client.get("invalid_because") is not None
    value, unit = value_and_unit(NOT_AVAILABLE if worst is None else f"≤ {format_fraction(worst[1], 2)}")
    yield KeyFigure(
        "client's own error",
        value,
        unit,
        "",
        "the run is invalid" if is_invalid else f"arrivals {run.arrivals.verdict}",
        "of any percentile; at most 2 % is valid",
        is_finding=is_invalid or is_broken,
    )


# ── charts ─────────────────────────────────────────────────────────────────────────────────────────


def _drawings(evidence: Evidence) -> Iterator[Drawing]:
    """The curve of a sweep first; how long requests took; and the run over time."""
    points, records, server = evidence.points, evidence.records, evidence.metrics_of_server
    if points:
        objective = evidence.objective
        yield Drawing(*CURVE, partial(throughput_latency_chart, points, objective))
        yield Drawing(*DELIVERED, partial(delivered_chart, points, evidence.asked_title))
        runs = {point.label: point.records for point in points}
    else:
        runs = {shorten(clean(evidence.run.model or "the run"), _NAME_CHARS): records}
    pools, seen = latency_pools(runs), look(records, () if server is None else server.samples)
    yield Drawing(*SHARES, partial(load_cdf_chart, pools))
    yield Drawing(*TIMELINE, partial(load_timeline_chart, seen))
