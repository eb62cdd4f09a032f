"""Which figures stand behind a simulation? Its sentences and tables, as a terminal and a page both show them.

In:   StudyReport, and its parts
Out:  sentences, and Tables of texts
Leaves out: how they look (simulate_report, simulate_html); every number was computed before
Read next by: simulate_report, simulate_html, capacity_tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.metrics import Objective
from inference_bench.report.table import Cells, Column, Table
from inference_bench.report.text import printable
from inference_bench.report.wording import yes_or_no
from inference_bench.simulate.fleet_plan import FleetFigures
from inference_bench.simulate.served import Contender, Served
from inference_bench.simulate.settings import UNLIMITED, SchedulerSettings, ServerSetup
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


# ── what was asked ─────────────────────────────────────────────────────────────────────────────────


def asked(report: StudyReport) -> str:
    """The workload of the first draw, in a few words."""
    workload = report.study.draws[0].workload
    return "requests as described" if isinstance(workload, WorkloadRecipe) else workload_words(workload)


def server_words(served: Served) -> str:
    """Where step times are from, and how far they may be trusted."""
    return f"step times, {served.step_time.origin}: {served.step_time.source}"


def workload_words(workload: Workload) -> str:
    """What is asked, in a few words."""
    arrival, requests = workload.arrival, workload.requests
    how = f"closed loop of {arrival.concurrency}" if isinstance(arrival, ClosedLoop) else arrival.process
    return (
        f"{printable(workload.name)[:60]} workload, {format_count(len(workload))} requests, {how}, "
        f"{_span(requests.prompt_tokens)} prompt and {_span(requests.output_tokens)} output tokens"
    )


def _span(lengths: Sequence[int]) -> str:
    low, high = min(lengths), max(lengths)
    return format_count(low) if low == high else f"{format_count(low)} to {format_count(high)}"


def rate_words(rate: float | None) -> str:
    """A rate as it was asked for."""
    return NOT_AVAILABLE if rate is None else f"{rate:.6g}"


def run_name(each: StudyRow) -> str:
    """Which run it is: the scheduler, and the rate where one was asked for."""
    return each.name if each.draw.rate is None else f"{each.name} at {rate_words(each.draw.rate)}"


def goodput_words(objective: Objective) -> str:
    """What goodput counts."""
    return f"good/s: requests a second with {promise_words(objective)}"


def promise_words(objective: Objective) -> str:
    """When a request is good."""
    return f"TTFT <= {format_seconds(objective.max_ttft_s)} and every pause <= {format_seconds(objective.max_gap_s)}"


def interrupted_words(report: StudyReport) -> str:
    """How many of the runs there are, where not all are."""
    return "" if report.is_complete else f"interrupted: {len(report.rows)} of {report.study.num_runs} runs"


def assumed(served: Served, said: Sequence[str]) -> Iterator[str]:
    """What all rests on, and what each scheduler mirrors."""
    yield from said
    for each in served.contenders:
        for note in each.setup.notes:
            yield note if len(served.contenders) == 1 else f"{each.name}: {note}"


# ── the runs ───────────────────────────────────────────────────────────────────────────────────────


def ran(report: StudyReport) -> list[StudyRow]:
    """The runs that gave a row."""
    return [each for each in report.rows if each.row is not None]


def the_only_run(report: StudyReport) -> StudyRow | None:
    """The run, where there is just one and it gave a row."""
    rows = ran(report)
    return rows[0] if len(report.rows) == 1 and rows else None


def runs_table(report: StudyReport) -> Table | None:
    """A row for each run; None where nothing ran."""
    rows = ran(report)
    if not rows:
        return None
    has_seeds = len({draw.seed for draw in report.study.draws}) > 1
    has_rates = any(draw.rate is not None for draw in report.study.draws)
    titles = (*(("rate",) if has_rates else ()), *(("seed",) if has_seeds else ()), *_TITLES)
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
    said = overloaded_words(rows)
    note = f"{_COLUMNS_NOTE}; {goodput_words(report.study.objective)}{f'. {said}' if said else ''}"
    return Table(
        "Runs", (Column("policy", "l"), *map(Column, titles)), tuple(cells), note, frozenset(_overloaded(rows))
    )


_TITLES: Final = ("TTFT", "p99", "ITL p99", "max", "TPOT", "E2E", "tok/s", "good/s", "gave way")


def _cells(row: SimulatedRow) -> Cells:
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


def _overloaded(rows: Sequence[StudyRow]) -> list[int]:
    """Which runs are those in which the server fell behind."""
    return [index for index, each in enumerate(rows) if each.row is not None and each.row.queue_grew]


def overloaded_words(rows: Sequence[StudyRow]) -> str:
    """The runs in which the server fell behind, whose percentiles say how long the run was; nothing where none did."""
    behind = [rows[index] for index in _overloaded(rows)]
    if not behind:
        return ""
    names = dict.fromkeys(map(run_name, behind))
    which = "" if len(rows) == 1 else f" ({'all of them' if len(behind) == len(rows) else ', '.join(names)})"
    return f"Overloaded{which}: the queue for a first token still grew when arrivals ended, so latencies say how long the run was"


def latency_table(row: SimulatedRow, title: str) -> Table:
    """What users waited for, by percentile."""
    cells = (
        ("TTFT", row.ttft_mean_s, row.ttft_p50_s, row.ttft_p90_s, row.ttft_p99_s, None),
        ("ITL", None, row.itl_p50_s, row.itl_p90_s, row.itl_p99_s, row.itl_max_s),
        ("TPOT", row.tpot_mean_s, row.tpot_p50_s, row.tpot_p90_s, row.tpot_p99_s, None),
        ("E2E", None, row.e2e_p50_s, None, row.e2e_p99_s, None),
    )
    rows = tuple(
        (name, *("" if value is None else format_seconds(value) for value in values)) for name, *values in cells
    )
    columns = (Column(title, "l"), *map(Column, ("mean", "p50", "p90", "p99", "max")))
    return Table("Latency", columns, rows)


def run_words(each: StudyRow, objective: Objective) -> tuple[str, ...]:
    """What one run delivered, and what it took."""
    row = each.row
    if row is None:
        return ()
    memory = each.result.case.setup.memory.budget_bytes
    behind = overloaded_words([each])
    return (
        f"{format_number(row.output_tokens_per_s)} output tokens/s and "
        f"{format_number(row.goodput_requests_per_s)} good requests/s ({format_fraction(row.goodput_fraction)} of "
        f"{format_count(row.num_requests)}; {goodput_words(objective)})",
        f"{format_count(row.steps)} steps over {format_seconds(row.makespan_s)}{_busy(each, row)}; requests gave way "
        f"{format_count(row.preemptions)} times; cache {format_bytes(row.peak_cache_bytes)} at most of "
        f"{format_bytes(memory)}{'' if each.result.fleet is None else ' a server, all servers together'}{_cached(row)}"
        f"{_usd(each.usd_per_million_output_tokens)}; {row.engine} engine of the simulator{f'. {behind}' if behind else ''}",
    )


def _busy(each: StudyRow, row: SimulatedRow) -> str:
    """The share of the time in which steps ran, of one server."""
    return "" if each.result.fleet is not None else f", busy {format_fraction(row.utilisation_fraction)}"


def _cached(row: SimulatedRow) -> str:
    share = row.cached_prompt_fraction
    return f", which knew {format_fraction(share)} of prompt tokens" if share else ""


def _usd(usd: float | None) -> str:
    return "" if usd is None else f"; {format_number(usd)} USD a million output tokens"


def reasons(report: StudyReport) -> list[str]:
    """Runs that gave no row, each reason once with what it is of."""
    found: dict[str, list[str]] = {}
    for each in report.rows:
        if each.result.error is not None:
            found.setdefault(each.result.error, []).append(run_name(each))
    return [f"{', '.join(which[:_MOST_REASONS])}: {why}" for why, which in found.items()]


def settings_table(contenders: Sequence[Contender]) -> Table:
    """What each scheduler may do, and the memory that its cache may take."""
    found = [dict(_settings(each.setup)) for each in contenders]
    rows = tuple((name, *(column[name] for column in found)) for name in found[0])
    kept = tuple(row for row in rows if any(cell != NOT_AVAILABLE for cell in row[1:]))
    names = (Column(printable(each.name)) for each in contenders)
    return Table("Schedulers", (Column("setting", "l"), *names), kept)


def _settings(setup: ServerSetup) -> Iterator[tuple[str, str]]:
    """A setting that a scheduler does not look at is n/a."""
    scheduler, memory = setup.scheduler, setup.memory
    joins, batched = not scheduler.is_batched, scheduler.is_batched
    drafts = scheduler.speculation
    yield "most that run", format_count(scheduler.max_running if joins else None)
    yield "positions a step", _positions(scheduler) if joins else NOT_AVAILABLE
    yield "largest batch", format_count(scheduler.max_batch if batched else None)
    yield "longest wait for a batch", format_seconds(scheduler.dispatch_timeout_s if batched else None)
    yield "longest answer allowed", format_count(scheduler.max_output_tokens if scheduler.keeps_for_longest else None)
    yield "a cache that gives way", str(scheduler.preemption) if joins else NOT_AVAILABLE
    yield "order of admission", str(scheduler.order) if joins else NOT_AVAILABLE
    yield "prefix cache", yes_or_no(scheduler.prefix_cache)
    yield "drafted tokens a step", format_count(None if drafts is None else drafts.draft_tokens)
    yield "drafts accepted", format_fraction(None if drafts is None else drafts.acceptance)
    yield "memory for the cache", format_bytes(memory.budget_bytes)
    yield "a cached position", format_bytes(memory.bytes_per_position)
    yield "positions of a block", format_count(memory.block_size)
    yield "fixed state of a sequence", format_bytes(memory.state_bytes or None)


def _positions(scheduler: SchedulerSettings) -> str:
    return "no limit" if scheduler.budget >= UNLIMITED else format_count(scheduler.budget)


# ── arrivals, seeds, servers, books ────────────────────────────────────────────────────────────────


def arrivals_table(report: StudyReport) -> Table | None:
    """How requests came, once a workload."""
    known: dict[int, tuple[StudyRow, ArrivalSummary]] = {}
    for each in report.rows:
        if each.result.arrivals is not None:
            known.setdefault(id(each.draw), (each, each.result.arrivals))
    rows = tuple(
        (
            summary.process,
            rate_words(summary.nominal_rate),
            format_number(summary.realised_rate),
            format_number(summary.dispersion),
            str(each.draw.seed),
        )
        for each, summary in list(known.values())[:_MOST_ARRIVALS]
    )
    note = "" if len(known) <= _MOST_ARRIVALS else f"and {len(known) - _MOST_ARRIVALS} more, in the JSON"
    columns = (Column("arrivals, requests/s", "l"), *map(Column, ("nominal", "realised", "dispersion", "seed")))
    return Table("Arrivals", columns, rows, note) if rows else None


def spreads_table(spreads: Sequence[Spread]) -> Table | None:
    """How far seeds are apart; None where there is one."""
    if not spreads:
        return None
    rows = tuple(
        (each.name, rate_words(each.rate), *(spread_words(each, name) for name in _SPREAD)) for each in spreads
    )
    titles = ("rate", "TTFT p99", "ITL p99", "TPOT p50", "tok/s", "good/s")
    columns = (Column(f"over {spreads[0].num_seeds} seeds", "l"), *map(Column, titles))
    return Table("Seeds", columns, rows, "lowest – highest; percentiles are not averaged")


_SPREAD: Final = ("ttft_p99_s", "itl_p99_s", "tpot_p50_s", "output_tokens_per_s", "goodput_requests_per_s")


def spread_words(each: Spread, name: str) -> str:
    """A figure's lowest and highest value, a common unit once."""
    ends = each.values[name]
    if ends is None:
        return NOT_AVAILABLE
    is_time = name.endswith("_s") and "per_s" not in name
    low, high = (format_seconds(end) if is_time else format_number(end) for end in ends)
    if low == high:
        return low
    (first, _, unit), (_, _, same) = low.partition(" "), high.partition(" ")
    return f"{first if unit == same else low} – {high}"


def fleets_table(report: StudyReport) -> Table | None:
    """What several servers did, a row a run."""
    shown = [(each, each.result.fleet) for each in report.rows if each.result.fleet is not None]
    if not shown:
        return None
    rows = tuple((each.name, rate_words(each.draw.rate), *_fleet_cells(fleet)) for each, fleet in shown)
    titles = ("rate", "replicas", "paid", "up", "sent again", "failed", "caches sent", "took, mean")
    note = "paid: from orders to ends, of all replicas; up: of that; sent again, failed: of all requests"
    return Table("Servers", (Column("fleet", "l"), *map(Column, titles)), rows, note)


def _fleet_cells(fleet: FleetFigures) -> Cells:
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


def replicas_table(report: StudyReport) -> Table | None:
    """What each server did, where one run has several."""
    fleets = [each.result.fleet for each in report.rows if each.result.fleet is not None]
    if len(fleets) != 1:
        return None
    rows = tuple(
        (
            f"{'decode' if each.pool else 'replica'} {each.index}",
            format_count(each.num_requests),
            format_count(each.num_steps),
            format_seconds(each.busy_s),
            format_bytes(each.peak_bytes),
            format_count(each.num_preemptions),
            format_count(len(each.down)),
        )
        for each in fleets[0].replicas[:_MOST_ARRIVALS]
    )
    titles = ("requests", "steps", "busy", "most cache", "gave way", "failures")
    return Table("Each server", (Column("replica", "l"), *map(Column, titles)), rows)


def unbalanced(report: StudyReport) -> list[str]:
    """The runs whose books do not balance."""
    return [f"{each.name} at {rate_words(each.draw.rate)}" for each in report.rows if not _holds(each.result)]


def checks_words(report: StudyReport) -> str:
    """Whether Little's law and conservation hold in every run; nothing where no run was checked."""
    checked = [each for each in report.rows if each.result.checks is not None]
    if not checked:
        return ""
    broken = unbalanced(report)
    if broken:
        return f"checks: the books do not balance for {', '.join(broken)}; report this"
    return (
        "checks: every request ended, none gave more tokens than asked, and Little's law holds in "
        f"{'the run' if len(checked) == 1 else f'all {len(checked)} runs'}"
    )


def _holds(result: CaseResult) -> bool:
    return result.checks is None or result.checks.are_kept
