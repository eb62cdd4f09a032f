"""Which figures stand behind a capacity? Its sentences and tables, as a terminal and a page both show them.

In:   Capacity, ReplayReport
Out:  sentences, and Tables of texts
Leaves out: how they look (capacity_report, capacity_html); every number was computed before
Read next by: capacity_report, capacity_html.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.report.simulate_tables import rate_words
from inference_bench.report.table import Cells, Column, Table
from inference_bench.simulate.capacity import Capacity, Limits, Tried
from inference_bench.simulate.fleet_plan import FleetPlan
from inference_bench.simulate.replay import ReplayReport
from inference_bench.simulate.served import Served
from inference_bench.simulate.summary import SimulatedRow, check_run
from inference_bench.units import NOT_AVAILABLE, format_count, format_fraction, format_number, format_seconds

FORMS: Final = ("as recorded", "Poisson")


def capacity_assumptions(served: Served, fleet: FleetPlan | None) -> tuple[str, ...]:
    """What the answer rests on, but for the schedulers' own notes."""
    return (*served.assumptions, *(fleet.notes if fleet is not None else ()))


def verdict(found: Capacity, served: Served) -> str:
    """The rate, and how far seeds are apart."""
    name, promise = served.contenders[0].name, found.limits.text
    if found.nominal_rate is None or found.row is None:
        return f"{name}: no rate keeps {promise}."
    realised = f"the draw realised {format_number(found.row.realised_rate)}"
    over = interval_words(found)
    return f"{name}: {rate_words(found.nominal_rate)} requests/s within {promise} ({realised}){f'; {over}' if over else ''}."


def interval_words(found: Capacity) -> str:
    """Where the mean over seeds lies; nothing where there is no interval."""
    interval = found.interval
    if interval is None:
        return ""
    return (
        f"{format_number(interval.low)} to {format_number(interval.high)} for the mean of {len(found.seed_rates)} seeds "
        f"({format_fraction(interval.confidence, 2)} interval)"
    )


def rest_words(found: Capacity, fleet: FleetPlan | None) -> str:
    """What is delivered at that rate, and for how much."""
    row = found.row
    if row is None:
        return ""
    busy = "" if fleet is not None else f"busy {format_fraction(row.utilisation_fraction)}, "
    usd = found.usd_per_million_output_tokens
    cost = "" if usd is None else f"; {format_number(usd)} USD a million output tokens"
    return (
        f"{format_number(row.output_tokens_per_s)} output tokens/s, {format_number(row.goodput_requests_per_s)} good requests/s, "
        f"{busy}gave way {format_count(row.preemptions)} times{cost}"
    )


def tried_table(found: Capacity) -> Table | None:
    """Rates around and below the answer, and the answer with more requests; None without an answer."""
    if found.row is None or found.nominal_rate is None:
        return None
    here = Tried(found.nominal_rate, found.row, is_met=True)
    tried = sorted((*found.below, *found.nearby, here), key=lambda each: each.rate)
    odd = list(found.missed_below)
    if found.longer is not None:
        tried.append(found.longer)
        odd += [] if found.longer.is_met else [found.longer]
    titles = ("rate", "requests", "TTFT p99", "ITL p99", "TPOT p99", "E2E p99", "tok/s")
    note = f"the same draw at other rates; {format_count(found.num_runs)} runs in all"
    return Table(
        "Rates that were tried",
        (*map(Column, titles), Column("kept", "l")),
        tuple(_tried_cells(each, found.limits) for each in tried),
        note,
        frozenset(index for index, each in enumerate(tried) if each in odd),
    )


def _tried_cells(each: Tried, limits: Limits) -> Cells:
    row = each.row
    return (
        format_number(each.rate, 4),
        format_count(row.num_requests),
        format_seconds(row.ttft_p99_s),
        format_seconds(row.itl_p99_s),
        format_seconds(row.tpot_p99_s),
        format_seconds(row.e2e_p99_s),
        format_number(row.output_tokens_per_s),
        "yes" if each.is_met else f"no: {', '.join(limits.missed_by(row)) or 'requests failed'}",
    )


def request_words(each: Tried) -> str:
    """How many requests a rate was tried with."""
    return f"{format_count(each.row.num_requests)} requests"


def checks_words(found: Capacity) -> str:
    """Whether the books of the run at that rate balance."""
    if found.outcome is None:
        return ""
    kept = check_run(found.outcome).are_kept
    said = (
        "every request ended, and Little's law holds at that rate" if kept else "the books do not balance; report this"
    )
    return f"checks: {said}"


# ── a trace beside random arrivals ─────────────────────────────────────────────────────────────────


def ratio_words(found: ReplayReport) -> str:
    """How much longer the tail of the trace is."""
    if found.ratio is None:
        return "There is no p99 TTFT to compare."
    return (
        f"At {format_number(found.rate)} requests/s the p99 TTFT of the trace is {format_number(found.ratio)} times that of random "
        "(Poisson) arrivals of the same requests."
    )


def forms_table(found: ReplayReport) -> Table:
    """The trace as it was, beside the same requests arriving at random."""
    rows = tuple(_form_cells(name, row) for name, row in zip(FORMS, (found.replayed, found.poisson), strict=True))
    titles = ("TTFT p50", "TTFT p99", "ITL p99", "E2E p99", "tok/s", "good/s")
    return Table("Both forms", (Column("arrivals, simulated", "l"), *map(Column, titles)), rows)


def _form_cells(name: str, row: SimulatedRow) -> Cells:
    return (
        name,
        format_seconds(row.ttft_p50_s),
        format_seconds(row.ttft_p99_s),
        format_seconds(row.itl_p99_s),
        format_seconds(row.e2e_p99_s),
        format_number(row.output_tokens_per_s),
        format_number(row.goodput_requests_per_s),
    )


def capacities_table(capacities: Sequence[Capacity]) -> Table | None:
    """The capacity of both forms, where something was promised."""
    if not capacities:
        return None
    rows = tuple(
        (
            name,
            NOT_AVAILABLE if each.nominal_rate is None else rate_words(each.nominal_rate),
            format_seconds(each.row.ttft_p99_s if each.row is not None else None),
            format_seconds(each.row.itl_p99_s if each.row is not None else None),
            format_number(each.row.output_tokens_per_s if each.row is not None else None),
        )
        for name, each in zip(FORMS, capacities, strict=True)
    )
    columns = (Column("capacity, simulated", "l"), *map(Column, ("requests/s", "TTFT p99", "ITL p99", "tok/s")))
    return Table(
        "Capacity of both", columns, rows, f"the highest rate within {capacities[0].limits.text}, times scaled"
    )


def replay_doubts(capacities: Sequence[Capacity]) -> Iterator[str]:
    """What may be doubted of either capacity."""
    for name, each in zip(FORMS, capacities, strict=False):
        for warning in each.warnings:
            yield f"{name}: {warning}"
