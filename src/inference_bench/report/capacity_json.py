"""The highest rate within the objectives as JSON with stable keys.

In:   Capacity, ReplayReport
Out:  a dict ready for JSON
Read next by: cli.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from inference_bench.report.simulate_json import checks_json, row_json, server_json, workload_json
from inference_bench.simulate.capacity import Capacity, Limits, Tried
from inference_bench.simulate.fleet_plan import FleetPlan
from inference_bench.simulate.replay import ReplayReport
from inference_bench.simulate.served import Served
from inference_bench.simulate.summary import check_run
from inference_bench.stats import Interval
from inference_bench.workload import Workload

SCHEMA: Final = "inference-bench/capacity/1"
REPLAY_SCHEMA: Final = "inference-bench/replay/1"
Json = dict[str, Any]


def capacity_json(
    found: Capacity, served: Served, workload: Workload, notes: Sequence[str] = (), fleet: FleetPlan | None = None
) -> Json:
    """The stable keys of `capacity --json`."""
    return {
        "schema": SCHEMA,
        "origin": "simulated",
        **_found(found, served),
        "workload": workload_json(workload),
        "server": server_json(served),
        "servers": 1 if fleet is None else fleet.num_servers,
        "assumptions": [*served.assumptions, *(fleet.notes if fleet is not None else ())],
        "notes": list(notes),
    }


def _found(found: Capacity, served: Served) -> Json:
    """The answer: the row's figures stand beside the rate, null where no rate keeps the objectives."""
    return {
        "policy": served.contenders[0].name,
        "nominal_rate": found.nominal_rate,
        **row_json(found.row),
        "usd_per_million_output_tokens": found.usd_per_million_output_tokens,
        "limits": _limits(found.limits),
        "is_bracketed": found.is_bracketed,
        "interval": _interval(found.interval),
        "seed_rates": list(found.seed_rates),
        "nearby": [_tried(each, found.limits) for each in found.nearby],
        "below": [_tried(each, found.limits) for each in found.below],
        "longer": None if found.longer is None else _tried(found.longer, found.limits),
        "longer_rate": found.longer_rate,
        "num_runs": found.num_runs,
        "checks": None if found.outcome is None else checks_json(check_run(found.outcome)),
        "warnings": list(found.warnings),
    }


def _limits(limits: Limits) -> Json:
    return dataclasses.asdict(limits)


def _interval(interval: Interval | None) -> Json | None:
    return None if interval is None else dataclasses.asdict(interval)


def _tried(each: Tried, limits: Limits) -> Json:
    return {
        "nominal_rate": each.rate,
        "met": each.is_met,
        "missed": list(limits.missed_by(each.row)),
        **row_json(each.row),
    }


def replay_json(
    found: ReplayReport,
    capacities: Sequence[Capacity],
    served: Served,
    workload: Workload,
    notes: Sequence[str] = (),
) -> Json:
    """A trace beside random arrivals.

    Where:  capacities are those of both forms, where objectives were given
    """
    replayed, poisson = capacities or (None, None)
    return {
        "schema": REPLAY_SCHEMA,
        "origin": "simulated",
        "policy": served.contenders[0].name,
        "rate": found.rate,
        "ttft_p99_ratio": found.ratio,
        "replayed": row_json(found.replayed),
        "poisson": row_json(found.poisson),
        "capacity": {
            "replayed": None if replayed is None else _found(replayed, served),
            "poisson": None if poisson is None else _found(poisson, served),
        },
        "workload": workload_json(workload),
        "server": server_json(served),
        "assumptions": list(served.assumptions),
        "notes": list(notes),
    }
