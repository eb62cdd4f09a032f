"""What stands behind a load run? Its tables.

In:   Evidence
Out:  Tables
Leaves out: verdicts as sentences (load_page_words), how all looks (load_html); every number was computed before
Read next by: load_html.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from inference_bench.arrival_proof.stability import Load
from inference_bench.charts.load_curve import STEADY, WHOLE
from inference_bench.failure_view import FailurePercentiles
from inference_bench.metrics import Objective, Percentiles
from inference_bench.origin import Origin
from inference_bench.report.load_page_input import Evidence, LoadPoint, count_good
from inference_bench.report.load_page_words import BAD, TIMES, load_of, tries
from inference_bench.report.load_report import FEW, bounded
from inference_bench.report.table import Cells, Column, Table
from inference_bench.report.wording import REPORTED, interval_text
from inference_bench.units import (
    KILO,
    NOT_AVAILABLE,
    format_bytes_binary,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
)

_FEW_NOTE: Final = f"{FEW} too few samples for a 95 % interval: the percentile is little more than one of them."


# ── tables ─────────────────────────────────────────────────────────────────────────────────────────


def percentiles_table(evidence: Evidence) -> Table:
    """Every time with its samples, of completed requests."""
    columns = (Column("time", "l"), Column("p50"), Column("p90"), Column("p99"), Column("samples"))
    rows = tuple((name, *_percentile_cells(found)) for name, found in _times(evidence))
    return Table(f"Completed requests{_where(evidence)}", columns, rows, _FEW_NOTE)


def intervals_table(evidence: Evidence) -> Table:
    """Where the true percentiles lie, without assuming a distribution."""
    columns = (Column("time", "l"), Column("95 % of p50"), Column("95 % of p90"), Column("95 % of p99"))
    rows = tuple(
        (name, *(interval_text(each, format_seconds) for each in (of.p50_interval, of.p90_interval, of.p99_interval)))
        for name, of in _times(evidence)
        if of is not None
    )
    return Table(f"Intervals of the percentiles{_where(evidence)}", columns, rows)


def _times(evidence: Evidence) -> list[tuple[str, Percentiles | None]]:
    return [(name, getattr(evidence.run.metrics, field)) for field, name in TIMES]


def _percentile_cells(found: Percentiles | None) -> Cells:
    if found is None:
        return (*[NOT_AVAILABLE] * 3, "0")
    points = ((found.p50, found.p50_interval), (found.p90, found.p90_interval), (found.p99, found.p99_interval))
    p50, p90, p99 = (f"{format_seconds(value)}{'' if interval else FEW}" for value, interval in points)
    return p50, p90, p99, format_count(found.count)


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


def endings_table(evidence: Evidence) -> Table:
    """How requests ended; those that this program stopped are no failures."""
    counts = dataclasses.asdict(evidence.run.metrics.requests)
    sent, stopped = counts.pop("sent"), counts.pop("cancelled")
    rows = [(name.replace("_", " "), *_share(number, sent)) for name, number in counts.items()]
    marked = frozenset(index for index, name in enumerate(counts) if name in BAD and counts[name])
    if stopped:
        rows.append(("stopped by this program", *_share(stopped, sent)))
    columns = (Column("ending", "l"), Column("requests"), Column("share"))
    return Table(f"How requests ended{_where(evidence)}", columns, tuple(rows), marked=marked)


def good_table(evidence: Evidence) -> Table | None:
    """How requests stood to the objective, of all that this program did not stop."""
    good = evidence.good
    if not good.num_requests:
        return None
    kinds = (
        ("good", good.good),
        ("completed, not good", good.missed),
        ("not completed", good.not_completed),
    )
    rows = tuple((name, *_share(number, good.num_requests)) for name, number in kinds)
    columns = (Column("against the objective", "l"), Column("requests"), Column("share"))
    return Table(f"How many were good{_where(evidence)}", columns, rows, f"Good: {good.rule}.")


def _share(number: int, total: int) -> tuple[str, str]:
    return format_count(number), format_fraction(number / total if total else None)


def points_table(evidence: Evidence) -> Table | None:
    """A row for each load of a sweep."""
    points = evidence.points
    if len(points) < 2:
        return None
    is_open = any(point.is_open for point in points)
    columns = (
        Column("load", "l"),
        *((Column("sent/s"),) if is_open else ()),
        Column("completed/s"),
        Column("tok/s"),
        Column("good/s"),
        Column("good"),
        Column("TTFT p50"),
        Column("p99"),
        Column("TPOT p50"),
        Column("p99"),
        Column("completed"),
        *((Column("the server", "l"),) if is_open else ()),
    )
    loads = [load_of(point) for point in points]
    rows = tuple(
        _point_cells(point, load, evidence.objective, is_open) for point, load in zip(points, loads, strict=True)
    )
    marked = frozenset(index for index, load in enumerate(loads) if load is Load.FELL_BEHIND)
    judged = " What the server did is judged by its queue (docs/load.md)." if is_open else ""
    note = f"Load: {evidence.asked_title}. {_over_said(points)} {_FEW_NOTE}{judged}"
    return Table("Every load", columns, rows, note, marked)


def _over_said(points: Sequence[LoadPoint]) -> str:
    """Over which time the rates are."""
    whole = [point.label for point in points if point.delivered.over == WHOLE]
    rates = "Completed/s, tok/s and good/s are of the"
    if len(whole) == len(points):
        return f"{rates} {WHOLE} of each load."
    at = f", but of the {WHOLE} at {', '.join(whole)}, too short for one" if whole else ""
    return f"{rates} {STEADY} of each load{at}."


def _point_cells(point: LoadPoint, load: Load | None, objective: Objective, is_open: bool) -> Cells:
    metrics, delivered = point.metrics, point.delivered
    counts, good = metrics.requests, count_good(point.records, objective)
    return (
        point.label,
        *((format_number(metrics.realised_rate) if point.is_open else NOT_AVAILABLE,) if is_open else ()),
        format_number(delivered.requests_per_s),
        format_number(delivered.output_tokens_per_s),
        format_number(delivered.good_per_s),
        format_fraction(good.good / good.num_requests if good.num_requests else None),
        *_median_and_p99(metrics.ttft_s),
        *_median_and_p99(metrics.tpot_s),
        f"{format_count(counts.completed)} of {format_count(counts.sent - counts.cancelled)}",
        *((NOT_AVAILABLE if load is None else load.value,) if is_open else ()),
    )


def _median_and_p99(found: Percentiles | None) -> tuple[str, str]:
    if found is None:
        return NOT_AVAILABLE, NOT_AVAILABLE
    pairs = ((found.p50, found.p50_interval), (found.p99, found.p99_interval))
    p50, p99 = (f"{format_seconds(value)}{'' if interval else FEW}" for value, interval in pairs)
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
        f"From {tries(server)}, about a second apart; reading them took this client "
        f"{format_seconds(server.cpu_s / max(1, len(server.samples) + server.num_failed), 2)} of processor time each."
    )
    return Table("The server's own figures", columns, kept, note if server.cpu_s else f"From {tries(server)}.")


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
