"""A load run as one page that needs nothing else: no script, no font, no picture from anywhere.

In:   Evidence, Provenance, and what draws a chart specification as SVG
Out:  HTML text
Leaves out: every number's arithmetic, its sentences (load_page_words) and tables (load_tables), drawing (render)
Read next by: load_page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from inference_bench.charts.load_curve import Delivered, delivered_chart, throughput_latency_chart
from inference_bench.charts.load_latency import latency_pools, load_cdf_chart
from inference_bench.charts.load_timeline import load_timeline_chart, look
from inference_bench.metrics import Percentiles
from inference_bench.origin import Origin
from inference_bench.report import html_pieces as pieces
from inference_bench.report import load_html_rows as rows
from inference_bench.report import load_page_words as words
from inference_bench.report import load_tables as tables
from inference_bench.report.html_pieces import Draw, Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.load_html_definitions import definition_tables
from inference_bench.report.load_html_physics import physics_html
from inference_bench.report.load_page_input import Evidence, arrival_troubles
from inference_bench.report.load_page_pieces import broad, folded, side_by_side, titled
from inference_bench.report.proof_report import LETTERS
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
    sentence,
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
    "sends a second, these under their plan, which is dashed. A cross at the top is a request that failed, where it ended. If requests in "
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
DELIVERED_CLOSED: Final = (
    "What each load delivered",
    "Tokens a second, and good requests a second. Where good requests fall while tokens still grow, more users at once are "
    "served, and fewer of them well.",
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
        reading_part(words.reading(evidence)),
        Part("charts", "Charts", "Charts", pieces.charts(() if draw is None else _drawings(evidence), draw)),
        *body.parts,
        repeat_part(_with_versions(made, evidence), [evidence.run.workload.seed]),
    )
    return report_page(Head(_question(evidence), body.said), made, body.figures, body.odd, parts)


def _with_versions(made: Provenance, evidence: Evidence) -> Provenance:
    """With the versions that the run itself wrote down, each once."""
    measured = {name: said for name, said in evidence.run.versions.items() if name != "system"}
    return replace(made, versions={**made.versions, **measured})


def load_body(evidence: Evidence) -> Body:
    """From what was sent to what it rests on."""
    run = evidence.run
    parts = (
        Part("latency", "Latency", "What users waited for", _latency(evidence)),
        Part("physics", "Physics", "What physics allows", physics_html(evidence.refereed)),
        Part("server", "Server", "What the server says of itself", _server(evidence)),
        Part("client", "Arrivals and client", "Whether the client can be believed", _client(evidence)),
        Part("definitions", "Definitions", "The same run as other tools define it", _definitions(evidence)),
        Part("conditions", "Conditions", "Under which conditions", _conditions(evidence)),
        assumptions_part((*_ASSUMED, *run.workload.notes, *map(sentence, evidence.remarks), *_dropped(evidence))),
    )
    odd = (("Findings", words.findings(evidence)),)
    return Body(_asked(evidence), tuple(_key_figures(evidence)), odd, parts)


def _question(evidence: Evidence) -> str:
    run = evidence.run
    name, where = (shorten(clean(text), _NAME_CHARS) for text in (run.model or "the model", run.target))
    return f"What did {name} at {where} deliver?"


def _asked(evidence: Evidence) -> str:
    """What was sent; of a sweep the ends of it, and the load that is shown in full."""
    run, points = evidence.run, evidence.points
    said = rows.workload_words(run.workload, run.metrics.requests.sent)
    if not points:
        return said
    return f"{format_count(len(points))} loads from {points[0].label} to {points[-1].label}; shown in full: {said}"


def _dropped(evidence: Evidence) -> Iterator[str]:
    if evidence.run.dropped_fields:
        yield f"The server refused these request fields, which were left out: {', '.join(evidence.run.dropped_fields)}."


def _latency(evidence: Evidence) -> str:
    metrics = evidence.run.metrics
    shown = side_by_side(
        (
            all_tables((tables.percentiles_table(evidence), tables.failures_table(evidence))),
            all_tables((tables.endings_table(evidence), tables.good_table(evidence))),
        )
    )
    sources = ", ".join(f"{name.replace('_', ' ')} {format_count(n)}" for name, n in metrics.token_sources.items())
    shared = "" if metrics.shared_stamp_fraction is None else format_fraction(metrics.shared_stamp_fraction, 2)
    said = f"Who counted the tokens of completed requests: {sources}. " if sources else ""
    said += f"Pauses of 0, as one read brought several chunks: {shared}." if shared else ""
    bound = () if evidence.refereed is None else (Origin.BOUND,)
    intervals = tables.intervals_table(evidence)
    every = broad(pieces.table(tables.points_table(evidence)))
    hidden = pieces.table(intervals, has_heading=False)
    return f"{pieces.origins((Origin.MEASURED, *bound, REPORTED))}{every}{shown}{folded(intervals.title, hidden)}{quiet(said)}"


def _server(evidence: Evidence) -> str:
    return all_tables((tables.server_table(evidence), tables.gpu_table(evidence)))


def _client(evidence: Evidence) -> str:
    run = evidence.run
    return side_by_side(
        (
            titled("How requests were sent", pieces.facts(rows.proof_rows(run.arrivals))),
            titled("How this client kept up", pieces.facts(rows.client_rows(run))),
        )
    )


def _definitions(evidence: Evidence) -> str:
    found = evidence.run.definitions
    if not found:
        return ""
    shown = side_by_side(map(pieces.table, definition_tables(found)))
    return folded("every metric by every tool's formula", f"{quiet(f'{LETTERS}.')}{shown}")


def _conditions(evidence: Evidence) -> str:
    return folded("server, workload, seed, machine and raw samples", pieces.facts(rows.condition_rows(evidence.run)))


# ── key figures ────────────────────────────────────────────────────────────────────────────────────


def _key_figures(evidence: Evidence) -> Iterator[KeyFigure]:
    """Of the run, or of the load of a sweep at which most requests were good."""
    metrics, which = evidence.run.metrics, "" if evidence.chosen is None else f"at {evidence.chosen.label}"
    yield _output_rate(evidence, which)
    yield _time("TTFT, p99", metrics.ttft_s, which)
    yield _time("TPOT, p99", metrics.tpot_s, which)
    pauses = ("ITL, p99", metrics.itl_s) if metrics.itl_s is not None else ("chunk gap, p99", metrics.chunk_gap_s)
    yield _time(*pauses, which)
    yield _time("E2E, p99", metrics.e2e_s, which)
    good, found = evidence.good, evidence.run.delivered if which else Delivered.of(metrics, None)
    yield KeyFigure(
        "good requests" if not which else "most good requests",
        format_number(found.good_per_s),
        "requests/s",
        Origin.MEASURED,
        which or f"{format_count(good.good)} of {format_count(good.num_requests)} requests",
        f"{metrics.goodput_rule}; {found.over}",
    )
    yield _completed(evidence)
    yield _client_error(evidence)


def _output_rate(evidence: Evidence, which: str) -> KeyFigure:
    """Tokens a second while the load was steady, and the requests that completed then."""
    run, found = evidence.run, evidence.run.delivered
    sent = f"{format_number(run.metrics.realised_rate)} requests/s sent" if run.is_open else ""
    return KeyFigure(
        "output rate",
        format_number(found.output_tokens_per_s),
        "tokens/s",
        Origin.MEASURED,
        f"{format_number(found.requests_per_s)} requests/s completed",
        "; ".join(filter(None, (found.over, sent, which))),
    )


def _time(name: str, found: Percentiles | None, which: str) -> KeyFigure:
    if found is None:
        return KeyFigure(name, NOT_AVAILABLE, "", "", "no sample", which)
    few = "" if found.p99_interval else f"of {format_count(found.count)} samples, too few for an interval"
    value, unit = value_and_unit(format_seconds(found.p99))
    detail = "; ".join(filter(None, (few, which)))
    return KeyFigure(name, value, unit, Origin.MEASURED, f"median {format_seconds(found.p50)}", detail)


def _completed(evidence: Evidence) -> KeyFigure:
    """How many requests completed, of those that this program did not stop."""
    counts = [metrics.requests for metrics in evidence.all_metrics]
    stopped, completed = sum(each.cancelled for each in counts), sum(each.completed for each in counts)
    judged = sum(each.sent for each in counts) - stopped
    is_short = completed < judged
    return KeyFigure(
        "completed",
        format_count(completed),
        f"of {format_count(judged)}",
        Origin.MEASURED,
        f"{format_count(judged - completed)} did not" if is_short else "all of them",
        f"{format_count(stopped)} more stopped by this program" if stopped else "percentiles are of these",
        completed / judged if judged else 0.0,
        is_finding=is_short,
    )


def _client_error(evidence: Evidence) -> KeyFigure:
    """Whether client and arrivals can be believed."""
    run, worst = evidence.run, words.worst_bound(evidence.run.client)
    is_invalid = run.client.get("invalid_because") is not None
    is_certain = worst is not None and not worst[1]
    said = "none" if is_certain else NOT_AVAILABLE if worst is None else f"≤ {format_fraction(worst[1], 2)}"
    value, unit = value_and_unit(said)
    return KeyFigure(
        "client's own error",
        value,
        unit,
        "",
        "the run is invalid" if is_invalid else f"arrivals {run.arrivals.verdict}",
        words.NO_DOUBT if is_certain else "of any percentile; at most 2 % is valid",
        is_finding=is_invalid or bool(arrival_troubles(run.arrivals)),
    )


# ── charts ─────────────────────────────────────────────────────────────────────────────────────────


def _drawings(evidence: Evidence) -> Iterator[Drawing]:
    """The curve of a sweep first; how long requests took; and the run over time."""
    points, records, server = evidence.points, evidence.records, evidence.metrics_of_server
    if points:
        objective = evidence.objective
        yield Drawing(*CURVE, partial(throughput_latency_chart, points, objective))
        caption = DELIVERED if points[-1].is_open else DELIVERED_CLOSED
        yield Drawing(*caption, partial(delivered_chart, points, evidence.asked_title))
        runs = {point.label: point.records for point in points}
    else:
        runs = {shorten(clean(evidence.run.model or "the run"), _NAME_CHARS): records}
    pools, seen = latency_pools(runs), look(records, () if server is None else server.samples)
    yield Drawing(*SHARES, partial(load_cdf_chart, pools))
    yield Drawing(*TIMELINE, partial(load_timeline_chart, seen))
