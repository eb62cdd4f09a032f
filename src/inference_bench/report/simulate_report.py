"""A simulation as text for a terminal; simulate_json holds the same for programs.

In:   StudyReport
Out:  text of at most 100 columns
Leaves out: arithmetic; every number was computed before
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.metrics import Objective
from inference_bench.report.text import printable, table, wrap
from inference_bench.simulate.fleet_plan import FleetFigures
from inference_bench.simulate.served import Served
from inference_bench.simulate.study import Spread, StudyReport, StudyRow
from inference_bench.simulate.summary import SimulatedRow
from inference_bench.simulate.sweep import CaseResult, WorkloadRecipe
from inference_bench.units import (
    NOT_AVAILABLE,
    format_bytes,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
)
from inference_bench.workload import ArrivalSummary, ClosedLoop, Workload

_MOST_ARRIVALS: Final = 12
_MOST_REASONS: Final = 12
_COLUMNS_NOTE: Final = (
    "simulated; TTFT, TPOT and E2E are medians; percentiles are pooled over all requests (docs/metrics.md); tok/s: output tokens a "
    "second over the whole run; gave way: times that a running request had to"
)


def study_text(report: StudyReport, notes: Sequence[str] = ()) -> str:
    """What was asked of what, the rows, how far seeds are apart, fleets, checks, assumptions."""
    sections = [
        wrap(f"{_asked(report)}; {server_words(report.study.served)}: simulated"),
        "" if report.is_complete else f"interrupted: {len(report.rows)} of {report.study.num_runs} runs",
        _figures(report),
        _reasons(report),
        _arrivals(report),
        _spreads(report.spreads),
        _fleets(report),
        _checks(report),
        listed("assumptions", assumed(report.study.served, report.study.assumptions)),
        listed("notes", notes),
    ]
    return "\n\n".join(section for section in sections if section)


def server_words(served: Served) -> str:
    """Where step times are from, and how far they may be trusted."""
    return f"step times, {served.step_time.origin}: {served.step_time.source}"


def _asked(report: StudyReport) -> str:
    workload = report.study.draws[0].workload
    return "requests as described" if isinstance(workload, WorkloadRecipe) else workload_words(workload)


def workload_words(workload: Workload) -> str:
    """What is asked, in a few words."""
    arrival, asked = workload.arrival, workload.requests
    how = f"closed loop of {arrival.concurrency}" if isinstance(arrival, ClosedLoop) else arrival.process
    return (
        f"{printable(workload.name)[:60]} workload, {format_count(len(workload))} requests, {how}, "
        f"{_span(asked.prompt_tokens)} prompt and {_span(asked.output_tokens)} output tokens"
    )


def _span(lengths: Sequence[int]) -> str:
    low, high = min(lengths), max(lengths)
    return format_count(low) if low == high else f"{format_count(low)} to {format_count(high)}"


def rate_words(rate: float | None) -> str:
    """A rate as it was asked for."""
    return NOT_AVAILABLE if rate is None else f"{rate:.6g}"


def _figures(report: StudyReport) -> str:
    rows = [each for each in report.rows if each.row is not None]
    if len(report.rows) == 1 and rows:
        return _single(rows[0], report.study.objective)
    if not rows:
        return ""
    has_seeds = len({draw.seed for draw in report.study.draws}) > 1
    has_rates = any(draw.rate is not None for draw in report.study.draws)
    headers = ("policy", *(("rate",) if has_rates else ()), *(("seed",) if has_seeds else ()), *_HEADERS)
    cells = [
        (
            each.name,
            *((rate_words(each.draw.rate),) if has_rates else ()),
            *((str(each.draw.seed),) if has_seeds else ()),
            *_cells(each.row),
        )
        for each in rows
        if each.row is not None
    ]
    text = table(headers, cells, f"l{'r' * (len(headers) - 1)}")
    said = f"{_COLUMNS_NOTE}; {goodput_words(report.study.objective)}{_overloaded(rows)}"
    return f"{text}\n{wrap(said)}"


def _overloaded(rows: Sequence[StudyRow]) -> str:
    """The runs in which the server fell behind, whose percentiles say how long the run was."""
    behind = [each for each in rows if each.row is not None and each.row.queue_grew]
    if not behind:
        return ""
    names = dict.fromkeys(
        f"{each.name} at {rate_words(each.draw.rate)}" if each.draw.rate is not None else each.name for each in behind
    )
    which = "" if len(rows) == 1 else f" ({'all of them' if len(behind) == len(rows) else ', '.join(names)})"
    return f". Overloaded{which}: the queue still grew when arrivals ended, so latencies say how long the run was"


_HEADERS: Final = ("TTFT", "p99", "ITL p99", "max", "TPOT", "E2E", "tok/s", "good/s", "gave way")


def _cells(row: SimulatedRow) -> tuple[str, ...]:
    return (
        format_seconds(row.ttft_p50_s),
        format_seconds(row.ttft_p99_s),
        format_seconds(row.itl_p99_s),
        format_seconds(row.itl_max_s),
        format_seconds(row.tpot_p50_s),
        format_seconds(row.e2e_p50_s),
        format_number(row.output_tokens_per_s),
        format_number(row.goodput_requests_per_s),
        format_count(row.preemptions),
    )


def goodput_words(objective: Objective) -> str:
    """What goodput counts."""
    return (
        f"good/s: requests a second with TTFT <= {format_seconds(objective.max_ttft_s)} and every pause <= "
        f"{format_seconds(objective.max_gap_s)}"
    )


def _single(each: StudyRow, objective: Objective) -> str:
    row = each.row
    if row is None:
        return ""
    memory = each.result.case.setup.memory.budget_bytes
    lines = [
        latency_table(row, f"{each.name}, simulated"),
        wrap(
            f"{format_number(row.output_tokens_per_s)} output tokens/s and "
            f"{format_number(row.goodput_requests_per_s)} good requests/s ({format_fraction(row.goodput_fraction)} of "
            f"{format_count(row.num_requests)}; {goodput_words(objective)})"
        ),
        wrap(
            f"{format_count(row.steps)} steps over {format_seconds(row.makespan_s)}{_busy(each, row)}; requests gave way "
            f"{format_count(row.preemptions)} times; cache {format_bytes(row.peak_cache_bytes)} at most of "
            f"{format_bytes(memory)}{'' if each.result.fleet is None else ' a server, all servers together'}{_cached(row)}"
            f"{_usd(each.usd_per_million_output_tokens)}; {row.engine} engine of the simulator{_overloaded([each])}"
        ),
    ]
    return "\n\n".join(lines)


def _busy(each: StudyRow, row: SimulatedRow) -> str:
    """The share of the time in which steps ran, of one server."""
    return "" if each.result.fleet is not None else f", busy {format_fraction(row.utilisation_fraction)}"


def _cached(row: SimulatedRow) -> str:
    share = row.cached_prompt_fraction
    return f", which knew {format_fraction(share)} of prompt tokens" if share else ""


def _usd(usd: float | None) -> str:
    return "" if usd is None else f"; {format_number(usd)} USD a million output tokens"


def latency_table(row: SimulatedRow, title: str) -> str:
    """What users waited for, by percentile."""
    cells = (
        ("TTFT", row.ttft_mean_s, row.ttft_p50_s, row.ttft_p90_s, row.ttft_p99_s, None),
        ("ITL", None, row.itl_p50_s, row.itl_p90_s, row.itl_p99_s, row.itl_max_s),
        ("TPOT", row.tpot_mean_s, row.tpot_p50_s, row.tpot_p90_s, row.tpot_p99_s, None),
        ("E2E", None, row.e2e_p50_s, None, row.e2e_p99_s, None),
    )
    rows = [(name, *("" if value is None else format_seconds(value) for value in values)) for name, *values in cells]
    return table((title, "mean", "p50", "p90", "p99", "max"), rows, "lrrrrr")


def _reasons(report: StudyReport) -> str:
    """Runs that gave no row, each reason once with what it is of."""
    found: dict[str, list[str]] = {}
    for each in report.rows:
        if each.result.error is not None:
            at = "" if each.draw.rate is None else f" at {rate_words(each.draw.rate)}"
            found.setdefault(each.result.error, []).append(f"{each.name}{at}")
    lines = [f"{', '.join(which[:_MOST_REASONS])}: {why}" for why, which in found.items()]
    return listed("did not run", lines)


def _arrivals(report: StudyReport) -> str:
    """How requests came, once a workload."""
    known: dict[int, tuple[StudyRow, ArrivalSummary]] = {}
    for each in report.rows:
        if each.result.arrivals is not None:
            known.setdefault(id(each.draw), (each, each.result.arrivals))
    if not known:
        return ""
    rows = [
        (
            summary.process,
            rate_words(summary.nominal_rate),
            format_number(summary.realised_rate),
            format_number(summary.dispersion),
            str(each.draw.seed),
        )
        for each, summary in list(known.values())[:_MOST_ARRIVALS]
    ]
    text = table(("arrivals, requests/s", "nominal", "realised", "dispersion", "seed"), rows, "lrrrr")
    return text if len(known) <= _MOST_ARRIVALS else f"{text}\nand {len(known) - _MOST_ARRIVALS} more, in the JSON"


def _spreads(spreads: Sequence[Spread]) -> str:
    if not spreads:
        return ""
    rows = [
        (
            each.name,
            rate_words(each.rate),
            *(_ends(each.values[name], seconds=name.endswith("_s") and "per_s" not in name) for name in _SPREAD),
        )
        for each in spreads
    ]
    headers = (f"over {spreads[0].num_seeds} seeds", "rate", "TTFT p99", "ITL p99", "TPOT p50", "tok/s", "good/s")
    return f"{table(headers, rows, 'lrrrrrr')}\nlowest – highest; percentiles are not averaged"


_SPREAD: Final = ("ttft_p99_s", "itl_p99_s", "tpot_p50_s", "output_tokens_per_s", "goodput_requests_per_s")


def _ends(ends: tuple[float, float] | None, *, seconds: bool) -> str:
    if ends is None:
        return NOT_AVAILABLE
    low, high = (format_seconds(end) if seconds else format_number(end) for end in ends)
    if low == high:
        return low
    (first, _, unit), (_, _, same) = low.partition(" "), high.partition(" ")
    return f"{first if unit == same else low} – {high}"


def _fleets(report: StudyReport) -> str:
    shown = [(each, each.result.fleet) for each in report.rows if each.result.fleet is not None]
    if not shown:
        return ""
    rows = [(each.name, rate_words(each.draw.rate), *_fleet_cells(fleet)) for each, fleet in shown]
    headers = ("fleet", "rate", "replicas", "paid", "up", "sent again", "failed", "caches sent", "took, mean")
    text = table(headers, rows, "lrrrrrrrr")
    parts = [
        f"{text}\n{wrap('paid: from orders to ends, of all replicas; up: of that; sent again, failed: of all requests')}"
    ]
    if len(shown) == 1:
        parts.append(_replicas(shown[0][1]))
    return "\n\n".join(parts)


def _fleet_cells(fleet: FleetFigures) -> tuple[str, ...]:
    sent = fleet.transfers
    return (
        format_count(len(fleet.replicas)),
        format_seconds(fleet.replica_seconds),
        format_fraction(fleet.up_fraction),
        format_fraction(fleet.retried_fraction),
        format_fraction(fleet.failed_fraction),
        format_count(sent.count),
        format_seconds(sent.mean_s),
    )


def _replicas(fleet: FleetFigures) -> str:
    rows = [
        (
            f"{'decode' if each.pool else 'replica'} {each.index}",
            format_count(each.num_requests),
            format_count(each.num_steps),
            format_seconds(each.busy_s),
            format_bytes(each.peak_bytes),
            format_count(each.num_preemptions),
            format_count(len(each.down)),
        )
        for each in fleet.replicas[:_MOST_ARRIVALS]
    ]
    return table(("replica", "requests", "steps", "busy", "most cache", "gave way", "failures"), rows, "lrrrrrr")


def _checks(report: StudyReport) -> str:
    """Whether Little's law and conservation hold in every run."""
    checked = [each for each in report.rows if each.result.checks is not None]
    if not checked:
        return ""
    broken = [f"{each.name} at {rate_words(each.draw.rate)}" for each in checked if not _holds(each.result)]
    if broken:
        return wrap(f"checks: the books do not balance for {', '.join(broken)}; report this")
    return wrap(
        f"checks: every request ended, none gave more tokens than asked, and Little's law holds in "
        f"{'the run' if len(checked) == 1 else f'all {len(checked)} runs'}"
    )


def _holds(result: CaseResult) -> bool:
    return result.checks is None or result.checks.are_kept


def assumed(served: Served, said: Sequence[str]) -> Iterator[str]:
    """What all rests on, and what each scheduler mirrors."""
    yield from said
    for each in served.contenders:
        for note in each.setup.notes:
            yield note if len(served.contenders) == 1 else f"{each.name}: {note}"


def listed(title: str, lines: Sequence[str] | Iterator[str]) -> str:
    """A list under its title; nothing where it is empty."""
    shown = [wrap(printable(line), indent="  - ") for line in lines]
    return "\n".join([title, *shown]) if shown else ""
