"""The highest rate within the objectives as one page that needs nothing else; and a trace beside random arrivals.

In:   Capacity, ReplayReport, Provenance, and what draws a chart specification as SVG
Out:  HTML text
Leaves out: every number's arithmetic and the words of its tables (capacity_tables, simulate_tables), drawing (render)
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from inference_bench.charts.simulation import capacity_chart
from inference_bench.origin import Origin
from inference_bench.report import capacity_tables as tables
from inference_bench.report import html_pieces as pieces
from inference_bench.report.html_pieces import Draw, Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.report_html import (
    Head,
    Part,
    Provenance,
    assumptions_part,
    charts_part,
    quiet,
    reading_part,
    repeat_part,
    report_page,
    sentence,
    value_and_unit,
)
from inference_bench.report.simulate_html import delivered_figures, origins_of, settings, timeline
from inference_bench.report.simulate_tables import (
    assumed,
    latency_table,
    server_words,
    workload_words,
)
from inference_bench.simulate.capacity import Capacity
from inference_bench.simulate.fleet_plan import FleetPlan
from inference_bench.simulate.replay import ReplayReport
from inference_bench.simulate.served import Served
from inference_bench.units import format_number, format_seconds
from inference_bench.workload import Workload

_AROUND: Final = (
    "The promise over the rate",
    "The promised percentiles at every rate that was looked at. Dashed lines are the promises, the upright line is the "
    "capacity, the band its interval over seeds, and the diamond the same rate with more requests: above the dashed line, "
    "a short run hid an overload.",
)
_SERVER: Final = ("setup", "Server", "The server that is asked")


def capacity_html(
    found: Capacity,
    served: Served,
    workload: Workload,
    made: Provenance,
    draw: Draw | None,
    *,
    notes: Sequence[str] = (),
    fleet: FleetPlan | None = None,
    seed: int = 0,
) -> str:
    """The whole page; without `draw` it has every table and says why there are no charts."""
    shown = None if found.row is None else latency_table(found.row, "at that rate, simulated")
    latency = pieces.table(shown, has_heading=False) + quiet(tables.checks_words(found))
    parts = (
        reading_part((tables.verdict(found, served), tables.rest_words(found, fleet))),
        charts_part(_drawings(found, served, fleet), draw),
        Part(
            "latency",
            "Latency",
            "What users wait for at that rate",
            f"{origins_of(served)}{latency}" if shown is not None else "",
        ),
        Part("tried", "Rates", "Rates that were tried", pieces.table(tables.tried_table(found), has_heading=False)),
        Part(*_SERVER, settings(served.contenders)),
        assumptions_part(assumed(served, tables.capacity_assumptions(served, fleet)), notes),
        repeat_part(made, (seed,)),
    )
    head = Head(f"How many requests a second within {found.limits.text}?", _place(served, workload))
    doubts = () if found.row is None else tuple(map(sentence, found.warnings))
    return report_page(head, made, tuple(_key_figures(found)), [("Doubts", doubts)], parts)


def _place(served: Served, workload: Workload) -> str:
    return f"{served.contenders[0].name}; {workload_words(workload)}; {server_words(served)}"


def _drawings(found: Capacity, served: Served, fleet: FleetPlan | None) -> list[Drawing]:
    if found.row is None or found.outcome is None:
        return []
    servers = 1 if fleet is None else fleet.num_servers
    return [
        Drawing(*_AROUND, partial(capacity_chart, found)),
        timeline(found.outcome, served.contenders[0].setup, servers),
    ]


def _key_figures(found: Capacity) -> Iterator[KeyFigure]:
    """The rate with its interval, what a longer run says of it, and what users get there."""
    row = found.row
    if found.nominal_rate is None or row is None:
        yield KeyFigure("capacity", "none", "", Origin.SIMULATED, "no rate keeps the promise", "", is_finding=True)
        return
    realised = f"the draw realised {format_number(row.realised_rate)}"
    over = tables.interval_words(found)
    yield KeyFigure(
        "capacity", format_number(found.nominal_rate), "requests/s", Origin.SIMULATED, realised, over or "one draw"
    )
    if found.longer is not None:
        yield _longer(found)
    for each in found.limits.promised:
        said = value_and_unit(format_seconds(each.value(row)))
        beside = f"promised <= {format_seconds(each.limit_s)}"
        yield KeyFigure(each.name, *said, Origin.SIMULATED, beside, "at that rate")
    yield from delivered_figures(row, "at that rate", found.usd_per_million_output_tokens)


def _longer(found: Capacity) -> KeyFigure:
    """The capacity of a run that is long enough to show an overload."""
    tried = found.longer
    rate = format_number(found.longer_rate)
    is_kept = tried is None or tried.is_met
    beside = "the rate is kept" if is_kept else "the rate is not kept"
    detail = "" if tried is None else tables.request_words(tried)
    return KeyFigure("with more requests", rate, "requests/s", Origin.SIMULATED, beside, detail, is_finding=not is_kept)


# ── a trace beside random arrivals ─────────────────────────────────────────────────────────────────


def replay_html(
    found: ReplayReport,
    capacities: Sequence[Capacity],
    served: Served,
    workload: Workload,
    made: Provenance,
    *,
    notes: Sequence[str] = (),
    seed: int = 0,
) -> str:
    """The whole page: two rows, of which there is nothing to draw."""
    rows = origins_of(served) + pieces.table(tables.forms_table(found), has_heading=False)
    parts = (
        reading_part((tables.ratio_words(found),)),
        Part("forms", "Both", "As recorded, and at random", rows + pieces.table(tables.capacities_table(capacities))),
        Part(*_SERVER, settings(served.contenders)),
        assumptions_part(assumed(served, served.assumptions), notes),
        repeat_part(made, (seed,)),
    )
    head = Head("How much of the tail would random arrivals hide?", _place(served, workload))
    doubts = tuple(tables.replay_doubts(capacities))
    return report_page(head, made, tuple(_replay_figures(found, capacities)), [("Doubts", doubts)], parts)


def _replay_figures(found: ReplayReport, capacities: Sequence[Capacity]) -> Iterator[KeyFigure]:
    beside = f"at {format_number(found.rate)} requests/s"
    yield KeyFigure(
        "tail as recorded",
        format_number(found.ratio),
        "times",
        Origin.SIMULATED,
        "p99 TTFT over that of Poisson",
        beside,
    )
    for name, row in zip(tables.FORMS, (found.replayed, found.poisson), strict=True):
        said, median = value_and_unit(format_seconds(row.ttft_p99_s)), f"median {format_seconds(row.ttft_p50_s)}"
        yield KeyFigure(f"TTFT p99, {name}", *said, Origin.SIMULATED, median, beside)
    for name, each in zip(tables.FORMS, capacities, strict=False):
        rate = format_number(each.nominal_rate)
        yield KeyFigure(f"capacity, {name}", rate, "requests/s", Origin.SIMULATED, f"within {each.limits.text}", "")
