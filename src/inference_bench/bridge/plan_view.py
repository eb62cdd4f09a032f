"""How many users within the promises, on how many machines, at what cost: the fourth view of the page.

In:   Values
Out:  the answer as JSON, HTML, charts and a command line; several machines are compared
Read next by: bridge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.bridge.command import command_line
from inference_bench.bridge.drawings import chart_slots, chart_specs, csv_rows
from inference_bench.bridge.fields import FieldError, Json, Values, View, Width, at
from inference_bench.bridge.plan_fields import GROUPS, others_of, scenario_of, unused
from inference_bench.bridge.subject import compute_format_of, compute_note, files_of, machine_of, model_of
from inference_bench.facts.hardware import HardwareSpec, hardware
from inference_bench.facts.models import LoadedModel
from inference_bench.predict.fit import cache_format, loaded_weights
from inference_bench.predict.plan import Plan, plan
from inference_bench.predict.scenario import Speed
from inference_bench.report import plan_tables as tables
from inference_bench.report.plan_cost_report import cost_table
from inference_bench.report.plan_html import comparison_body, plan_body, plan_drawings
from inference_bench.report.plan_json import comparison_json, plan_json
from inference_bench.report.report_html import body_html
from inference_bench.report.table import Table


def _answer(values: Values, width: Width) -> Iterator[Json]:
    model, machines = model_of(values), _machines(values)
    with at("weights"):
        weights = loaded_weights(model, values.optional("weights"))
    with at("kv"):
        cache_format(values.optional("kv"))
    compute = _compute(values, machines)
    answers = _plans(values, model, machines, compute)
    found = plan_drawings(answers)
    charts = {"cost": found[0]} if found else {}
    notes = compute_note(values, machines[0], weights) if answers[0].scenario.speed is Speed.SHARES else ()
    body = plan_body(answers[0], notes) if len(answers) == 1 else comparison_body(answers, notes)
    without = (*unused(values), *(() if compute else ("compute",)))
    yield {
        "answer": plan_json(answers[0]) if len(answers) == 1 else comparison_json(answers),
        "status": tables.status(answers),
        "html": body_html(body, chart_slots(charts)),
        "charts": chart_specs(charts, width),
        "tables": {name: csv_rows(table) for name, table in _rows(answers).items()},
        "command": command_line(values, names_model="--model", without=without),
        "files": files_of(values),
    }


def _machines(values: Values) -> tuple[HardwareSpec, ...]:
    first = machine_of(values)
    if first is None:
        raise FieldError("on", "name a machine: a plan is for one")
    with at("others"):
        return (first, *map(hardware, others_of(values)))


def _compute(values: Values, machines: Sequence[HardwareSpec]) -> str | None:
    """The format whose peak was asked for, where every machine has it."""
    found = {compute_format_of(values, machine) for machine in machines}
    return found.pop() if len(found) == 1 else None


def _plans(
    values: Values, model: LoadedModel, machines: Sequence[HardwareSpec], compute: str | None
) -> tuple[Plan, ...]:
    scenario = scenario_of(values, [machine.name for machine in machines], compute)
    prices = scenario.prices.usd_per_hour or (None,) * len(machines)
    with at("on" if values.text("devices") == "1" else "devices"):
        return tuple(
            plan(scenario, model, machine, usd_per_device_hour=price)
            for machine, price in zip(machines, prices, strict=True)
        )


def _rows(answers: Sequence[Plan]) -> dict[str, Table]:
    """The tables that are worth taking along."""
    if len(answers) > 1:
        return {"machines": tables.compared_table(answers)}
    (answer,) = answers
    found = {
        "memory": tables.memory_table(answer),
        "latency": tables.latency_table(answer),
        "load": tables.loads_table(answer),
        "replicas": tables.replicas_table(answer),
        "cost": cost_table(answer),
    }
    return {name: table for name, table in found.items() if table is not None}


PLAN: Final = View(
    "plan",
    "Plan",
    "How many users, on how many machines, at what cost?",
    GROUPS,
    _answer,
    command="plan",
)
