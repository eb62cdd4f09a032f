"""A simulation as JSON with stable keys.

In:   StudyReport
Out:  a dict ready for JSON
Read next by: cli.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from inference_bench.metrics import Objective
from inference_bench.simulate.fleet_plan import FleetFigures
from inference_bench.simulate.served import Served
from inference_bench.simulate.settings import KvMemory
from inference_bench.simulate.study import Spread, StudyReport, StudyRow
from inference_bench.simulate.summary import Checks, SimulatedRow
from inference_bench.simulate.sweep import WorkloadRecipe
from inference_bench.workload import ArrivalSummary, ClosedLoop, Workload

SCHEMA: Final = "inference-bench/simulate/1"
Json = dict[str, Any]


def study_json(report: StudyReport, notes: Sequence[str] = ()) -> Json:
    """The stable keys of `simulate --json`.

    Where:  notes are what there is to know besides, of the workload and of options
    """
    study = report.study
    return {
        "schema": SCHEMA,
        "origin": "simulated",
        "complete": report.is_complete,
        "workload": workload_json(study.draws[0].workload),
        "server": server_json(study.served),
        "objective": objective_json(study.objective),
        "rows": [_row(each) for each in report.rows],
        "spread": [_spread(each) for each in report.spreads],
        "books_balance": report.keeps_its_books,
        "assumptions": list(study.assumptions),
        "notes": list(notes),
    }


def workload_json(workload: Workload | WorkloadRecipe) -> Json | None:
    """What is asked: its name, how many requests, how long; None where it is made elsewhere."""
    if isinstance(workload, WorkloadRecipe):
        return None
    arrival, asked = workload.arrival, workload.requests
    return {
        "name": workload.name,
        "requests": len(workload),
        "arrival": "closed loop" if isinstance(arrival, ClosedLoop) else arrival.process,
        "concurrency": arrival.concurrency if isinstance(arrival, ClosedLoop) else None,
        "lengths": {"prompt": _lengths(asked.prompt_tokens), "output": _lengths(asked.output_tokens)},
        "max_output_tokens": workload.max_output_tokens,
    }


def _lengths(lengths: Sequence[int]) -> Json:
    return {"min": min(lengths), "mean": sum(lengths) / len(lengths), "max": max(lengths)}


def server_json(served: Served) -> Json:
    """What serves it: where step times are from, and each scheduler with its memory."""
    return {
        "step_time": {"origin": served.step_time.origin, "source": served.step_time.source},
        "usd_per_hour": served.usd_per_hour,
        "schedulers": [
            {
                "name": each.name,
                "settings": _settings(dataclasses.asdict(each.setup.scheduler)),
                "memory": memory_json(each.setup.memory),
                "notes": list(each.setup.notes),
            }
            for each in served.contenders
        ],
    }


def _settings(values: Mapping[str, Any]) -> Json:
    return {name: str(value) if isinstance(value, str) else value for name, value in values.items()}


def memory_json(memory: KvMemory) -> Json:
    """What a cache may take, and what a sequence takes of it."""
    return dataclasses.asdict(memory)


def objective_json(objective: Objective) -> Json:
    """What goodput counts."""
    return {"max_ttft_s": objective.max_ttft_s, "max_gap_s": objective.max_gap_s}


def _row(each: StudyRow) -> Json:
    result = each.result
    return {
        "policy": each.name,
        "nominal_rate": each.draw.rate,
        "seed": each.draw.seed,
        **row_json(each.row),
        "arrivals": arrivals_json(result.arrivals),
        "usd_per_million_output_tokens": each.usd_per_million_output_tokens,
        "fleet": fleet_json(result.fleet),
        "checks": checks_json(result.checks),
        "error": result.error,
    }


_KEPT_APART: Final = frozenset({"policy", "nominal_rate"})


def row_json(row: SimulatedRow | None) -> Json:
    """The figures of a run; null where there was none."""
    names = (each.name for each in dataclasses.fields(SimulatedRow) if each.name not in _KEPT_APART)
    return {name: None if row is None else getattr(row, name) for name in names}


def arrivals_json(arrivals: ArrivalSummary | None) -> Json | None:
    """How requests arrived; null for a closed loop."""
    if arrivals is None:
        return None
    return {"process": arrivals.process, "index_of_dispersion": arrivals.dispersion, "bin_s": arrivals.bin_s}


def checks_json(checks: Checks | None) -> Json | None:
    """Little's law and conservation."""
    return None if checks is None else {**dataclasses.asdict(checks), "kept": checks.are_kept}


def fleet_json(fleet: FleetFigures | None) -> Json | None:
    """What several servers did."""
    if fleet is None:
        return None
    return {
        "failed_fraction": fleet.failed_fraction,
        "retried_fraction": fleet.retried_fraction,
        "replica_seconds": fleet.replica_seconds,
        "up_fraction": fleet.up_fraction,
        "transfers": dataclasses.asdict(fleet.transfers),
        "scaling": [event._asdict() for event in fleet.scaling],
        "replicas": [dataclasses.asdict(each) for each in fleet.replicas],
    }


def _spread(each: Spread) -> Json:
    return {
        "policy": each.name,
        "nominal_rate": each.rate,
        "seeds": each.num_seeds,
        **{name: None if ends is None else list(ends) for name, ends in each.values.items()},
    }
