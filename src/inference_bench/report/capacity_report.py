"""The highest rate within the objectives as text for a terminal; capacity_json holds the same for programs.

In:   Capacity, ReplayReport
Out:  text of at most 100 columns
Leaves out: arithmetic; every number was computed before
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inference_bench.report.simulate_report import (
    assumed,
    latency_table,
    listed,
    rate_words,
    server_words,
    workload_words,
)
from inference_bench.report.text import table, wrap
from inference_bench.simulate.capacity import Capacity, Limits, Tried
from inference_bench.simulate.fleet_plan import FleetPlan
from inference_bench.simulate.replay import ReplayReport
from inference_bench.simulate.served import Served
from inference_bench.simulate.summary import SimulatedRow, check_run
from inference_bench.units import NOT_AVAILABLE, format_count, format_fraction, format_number, format_seconds
from inference_bench.workload import Workload


def capacity_text(
    found: Capacity, served: Served, workload: Workload, notes: Sequence[str] = (), fleet: FleetPlan | None = None
) -> str:
    """The rate, what may be doubted of it, what users get there, what was tried, checks, assumptions."""
    sections = [
        wrap(f"{workload_words(workload)}; {server_words(served)}: simulated"),
        _verdict(found, served),
        listed("doubts", found.warnings if found.row is not None else ()),
        "" if found.row is None else latency_table(found.row, "at that rate, simulated"),
        _rest(found, fleet),
        _tried(found),
        _checks(found),
        listed("assumptions", assumed(served, (*served.assumptions, *(fleet.notes if fleet is not None else ())))),
        listed("notes", notes),
    ]
    return "\n\n".join(section for section in sections if section)


def _verdict(found: Capacity, served: Served) -> str:
    name, promise = served.contenders[0].name, found.limits.text
    if found.nominal_rate is None or found.row is None:
        return wrap(f"{name}: no rate keeps {promise}.")
    realised = f"the draw realised {format_number(found.row.realised_rate)}"
    interval = found.interval
    over = (
        ""
        if interval is None
        else f"; {format_number(interval.low)} to {format_number(interval.high)} for the mean of {len(found.seed_rates)} seeds "
        f"({format_fraction(interval.confidence, 2)} interval)"
    )
    return wrap(f"{name}: {rate_words(found.nominal_rate)} requests/s within {promise} ({realised}){over}.")


def _rest(found: Capacity, fleet: FleetPlan | None) -> str:
    row = found.row
    if row is None:
        return ""
    busy = "" if fleet is not None else f"busy {format_fraction(row.utilisation_fraction)}, "
    usd = found.usd_per_million_output_tokens
    cost = "" if usd is None else f"; {format_number(usd)} USD a million output tokens"
    return wrap(
        f"{format_number(row.output_tokens_per_s)} output tokens/s, {format_number(row.goodput_requests_per_s)} good requests/s, "
        f"{busy}gave way {format_count(row.preemptions)} times{cost}"
    )


def _tried(found: Capacity) -> str:
    """Rates around and below the answer, and the answer with more requests."""
    if found.row is None or found.nominal_rate is None:
        return ""
    here = Tried(found.nominal_rate, found.row, is_met=True)
    rows = [
        _cells(each, found.limits) for each in sorted((*found.below, *found.nearby, here), key=lambda each: each.rate)
    ]
    if found.longer is not None:
        rows.append(_cells(found.longer, found.limits))
    headers = ("rate", "requests", "TTFT p99", "ITL p99", "TPOT p99", "E2E p99", "tok/s", "kept")
    return (
        f"{table(headers, rows, 'rrrrrrrl')}\nthe same draw at other rates; {format_count(found.num_runs)} runs in all"
    )


def _cells(each: Tried, limits: Limits) -> tuple[str, ...]:
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


def _checks(found: Capacity) -> str:
    if found.outcome is None:
        return ""
    kept = check_run(found.outcome).are_kept
    said = (
        "every request ended, and Little's law holds at that rate" if kept else "the books do not balance; report this"
    )
    return wrap(f"checks: {said}")


def replay_text(
    found: ReplayReport, capacities: Sequence[Capacity], served: Served, workload: Workload, notes: Sequence[str] = ()
) -> str:
    """A trace as recorded beside random arrivals, and the capacity of both."""
    sections = [
        wrap(f"{workload_words(workload)}; {server_words(served)}: simulated"),
        _ratio(found),
        _both(found),
        _capacities(capacities),
        listed("doubts", list(_doubts(capacities))),
        listed("assumptions", assumed(served, served.assumptions)),
        listed("notes", notes),
    ]
    return "\n\n".join(section for section in sections if section)


def _ratio(found: ReplayReport) -> str:
    if found.ratio is None:
        return wrap("There is no p99 TTFT to compare.")
    return wrap(
        f"At {format_number(found.rate)} requests/s the p99 TTFT of the trace is {format_number(found.ratio)} times that of random "
        "(Poisson) arrivals of the same requests."
    )


def _both(found: ReplayReport) -> str:
    rows = [_row_cells(name, row) for name, row in (("as recorded", found.replayed), ("Poisson", found.poisson))]
    return table(
        ("arrivals, simulated", "TTFT p50", "TTFT p99", "ITL p99", "E2E p99", "tok/s", "good/s"), rows, "lrrrrrr"
    )


def _row_cells(name: str, row: SimulatedRow) -> tuple[str, ...]:
    return (
        name,
        format_seconds(row.ttft_p50_s),
        format_seconds(row.ttft_p99_s),
        format_seconds(row.itl_p99_s),
        format_seconds(row.e2e_p99_s),
        format_number(row.output_tokens_per_s),
        format_number(row.goodput_requests_per_s),
    )


def _capacities(capacities: Sequence[Capacity]) -> str:
    if not capacities:
        return ""
    rows = [
        (
            name,
            NOT_AVAILABLE if each.nominal_rate is None else rate_words(each.nominal_rate),
            format_seconds(each.row.ttft_p99_s if each.row is not None else None),
            format_seconds(each.row.itl_p99_s if each.row is not None else None),
            format_number(each.row.output_tokens_per_s if each.row is not None else None),
        )
        for name, each in zip(("as recorded", "Poisson"), capacities, strict=True)
    ]
    text = table(("capacity, simulated", "requests/s", "TTFT p99", "ITL p99", "tok/s"), rows, "lrrrr")
    return f"{text}\n{wrap(f'the highest rate within {capacities[0].limits.text}, times scaled')}"


def _doubts(capacities: Sequence[Capacity]) -> Iterator[str]:
    for name, each in zip(("as recorded", "Poisson"), capacities, strict=False):
        for warning in each.warnings:
            yield f"{name}: {warning}"
