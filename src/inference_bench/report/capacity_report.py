"""The highest rate within the objectives as text for a terminal; capacity_json holds the same for programs.

In:   Capacity, ReplayReport
Out:  text of at most 100 columns
Leaves out: what is said (capacity_tables, simulate_tables)
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Sequence

from inference_bench.report import capacity_tables as tables
from inference_bench.report.simulate_report import listed
from inference_bench.report.simulate_tables import assumed, latency_table, server_words, workload_words
from inference_bench.report.text import table_text, wrap
from inference_bench.simulate.capacity import Capacity
from inference_bench.simulate.fleet_plan import FleetPlan
from inference_bench.simulate.replay import ReplayReport
from inference_bench.simulate.served import Served
from inference_bench.workload import Workload


def capacity_text(
    found: Capacity, served: Served, workload: Workload, notes: Sequence[str] = (), fleet: FleetPlan | None = None
) -> str:
    """The rate, what may be doubted of it, what users get there, what was tried, checks, assumptions."""
    sections = [
        wrap(f"{workload_words(workload)}; {server_words(served)}: simulated"),
        wrap(tables.verdict(found, served)),
        listed("doubts", found.warnings if found.row is not None else ()),
        "" if found.row is None else table_text(latency_table(found.row, "at that rate, simulated")),
        wrap(tables.rest_words(found, fleet)),
        table_text(tables.tried_table(found)),
        wrap(tables.checks_words(found)),
        listed("assumptions", assumed(served, tables.capacity_assumptions(served, fleet))),
        listed("notes", notes),
    ]
    return "\n\n".join(section for section in sections if section)


def replay_text(
    found: ReplayReport, capacities: Sequence[Capacity], served: Served, workload: Workload, notes: Sequence[str] = ()
) -> str:
    """A trace as recorded beside random arrivals, and the capacity of both."""
    sections = [
        wrap(f"{workload_words(workload)}; {server_words(served)}: simulated"),
        wrap(tables.ratio_words(found)),
        table_text(tables.forms_table(found)),
        table_text(tables.capacities_table(capacities)),
        listed("doubts", list(tables.replay_doubts(capacities))),
        listed("assumptions", assumed(served, served.assumptions)),
        listed("notes", notes),
    ]
    return "\n\n".join(section for section in sections if section)
