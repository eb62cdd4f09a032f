"""Answers of `simulate`, `capacity` and `plan` that are small enough to make anew, each with its page and its JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from calibrate.made_logs import BLOCKS, META, made_rows, write_log
from inference_bench.calibrate import Stated, calibrate, compare_with_log, logged_server, read_log
from inference_bench.calibrate.comparison import comparison_of
from inference_bench.facts.hardware import hardware
from inference_bench.facts.load import known_loaded_model, read_toml
from inference_bench.metrics import Objective
from inference_bench.predict.plan import Plan, plan
from inference_bench.predict.scenario import Scenario, scenario_from_mapping
from inference_bench.report.against_html import against_html
from inference_bench.report.against_report import against_json
from inference_bench.report.capacity_html import capacity_html, replay_html
from inference_bench.report.capacity_json import capacity_json, replay_json
from inference_bench.report.html_pieces import Draw
from inference_bench.report.plan_html import comparison_html, plan_html
from inference_bench.report.plan_json import comparison_json, plan_json
from inference_bench.report.report_html import Provenance
from inference_bench.report.simulate_html import study_html
from inference_bench.report.simulate_json import study_json
from inference_bench.simulate.candidates import candidates_named
from inference_bench.simulate.capacity import Limits, SearchSettings, find_capacity
from inference_bench.simulate.fleet_plan import FleetPlan
from inference_bench.simulate.replay import compare_replay
from inference_bench.simulate.run import simulate
from inference_bench.simulate.served import MemoryChoice, Served, serve_reference
from inference_bench.simulate.step_sources import Shares
from inference_bench.simulate.study import Draw as WorkloadDraw
from inference_bench.simulate.study import Study, StudyReport, run_study
from inference_bench.workload import Workload, reference_workload
from report.sample import CHINESE, ESCAPE, LONG, QUOTES, SCRIPT
from simulate.served_models import served_model

MADE = Provenance(
    "simulate",
    "inference-bench simulate --policy chunked --trace 'two words.csv'",
    "2026-11-30 05:00:00 UTC",
    {"inference-bench": "0.1.0", "python": "3.11.7"},
)
QUICK = SearchSettings(low=None, high=None, steps=3, seeds=2, longer=2)
PROMISE = Limits(ttft_p99_s=3.0, itl_p99_s=0.1)


@dataclass(frozen=True)
class Sample:
    """An answer: its page with and without charts, and its JSON as whoever asked for that reads it."""

    page: Callable[[Draw | None], str]
    json: Callable[[], dict[str, Any]]

    def read(self) -> dict[str, Any]:
        found = json.loads(json.dumps(self.json(), allow_nan=False))
        assert isinstance(found, dict)
        return found


def served(*names: str) -> Served:
    return serve_reference("24GB-bf16", candidates_named(names), MemoryChoice())


def study(
    *names: str, rates: tuple[float, ...] = (0.2,), seeds: int = 1, count: int = 12, fleet: FleetPlan | None = None
) -> StudyReport:
    draws = tuple(
        WorkloadDraw(rate, seed, reference_workload(rate, count, seed)) for rate in rates for seed in range(seeds)
    )
    asked = Study(served(*names), draws, Objective(), fleet=fleet)
    return run_study(asked, workers=1, keeps_outcome=len(draws) == 1)


def of_study(report: StudyReport, notes: tuple[str, ...] = ()) -> Sample:
    return Sample(lambda draw: study_html(report, MADE, draw, notes), lambda: study_json(report, notes))


def hostile_study() -> StudyReport:
    """Everything that could come from a file or an argument tries to break out of its place."""
    report = study("chunked", "paged")
    evil = f"{SCRIPT}{CHINESE}{LONG}"
    asked = report.study
    contenders = tuple(replace(each, name=f"{SCRIPT} {each.name}") for each in asked.served.contenders)
    step_time = replace(asked.served.step_time, source=f"{evil} {ESCAPE} /home/ada/x.csv", notes=(QUOTES, SCRIPT))
    draws = tuple(replace(draw, workload=replace(draw.workload, name=evil)) for draw in asked.draws)
    rows = tuple(
        replace(row, result=replace(row.result, case=replace(row.result.case, label=f"{SCRIPT} {row.name}")))
        for row in report.rows
    )
    rows = (rows[0], replace(rows[1], result=replace(rows[1].result, row=None, error=f"{SCRIPT} cannot run")))
    changed = replace(asked, served=replace(asked.served, contenders=contenders, step_time=step_time), draws=draws)
    return replace(report, study=changed, rows=rows)


def of_capacity(limits: Limits) -> Sample:
    asked, count = served("chunked"), 30

    def workload_of(number: int, seed: int) -> Workload:
        return reference_workload(1.0, number, seed)

    setup, step_time = asked.contenders[0].setup, asked.step_time
    found = find_capacity(workload_of, setup, step_time, limits, QUICK, count=count, usd_per_hour=asked.usd_per_hour)
    workload = workload_of(count, 0)
    return Sample(
        lambda draw: capacity_html(found, asked, workload, MADE, draw, notes=("a note",)),
        lambda: capacity_json(found, asked, workload, ("a note",)),
    )


def of_replay() -> Sample:
    asked, workload = served("chunked"), reference_workload(0.2, 30, 1)
    found = compare_replay(workload, asked.contenders[0].setup, asked.step_time)
    return Sample(
        lambda draw: replay_html(found, (), asked, workload, MADE),
        lambda: replay_json(found, (), asked, workload),
    )


def of_log(fits: bool) -> Sample:
    rows = made_rows(served_model("Meta-Llama-3.1-8B"), hardware("H100"), Shares(bandwidth=0.8, compute=0.6), 20.0, 40)
    with TemporaryDirectory() as folder:
        log = read_log(write_log(Path(folder) / "run", rows, META))
    server = logged_server(log, Stated(machine=hardware("H100"), num_blocks=BLOCKS))
    fitted = calibrate(server) if fits else None
    step_time = server.expected() if fitted is None else server.at_shares(fitted.shares)
    outcome = simulate(log.workload(), server.setup, step_time)
    found = (
        comparison_of(log, outcome, step_time)
        if fitted is None
        else compare_with_log(log, server.setup, server.expected())
    )
    return Sample(
        lambda draw: against_html(server, found, fitted, outcome, MADE, draw),
        lambda: against_json(server, found, fitted),
    )


SCENARIO: dict[str, Any] = {
    "model": "qwen3-8b",
    "machine": "h100",
    "engine": "vllm",
    "traffic": {"prompt": 4000, "output": 500, "prefix": 1000, "requests_per_day": 100_000, "think_time": "20s"},
    "objectives": {"ttft": "1s", "tpot": "30ms", "e2e": "60s"},
    "prices": {"usd_per_hour": 2.5, "hosted_input": 0.2, "hosted_output": 0.8},
}


def planned(scenario: Scenario, machine: str, usd: float | None = 2.5) -> Plan:
    model = known_loaded_model(str(scenario.model))
    assert model is not None
    return plan(scenario, model, hardware(machine), usd_per_device_hour=usd)


def of_plan(answer: Plan) -> Sample:
    return Sample(lambda draw: plan_html(answer, MADE, draw), lambda: plan_json(answer))


def of_machines() -> Sample:
    scenario = scenario_from_mapping(SCENARIO)
    answers = [planned(scenario, name, usd) for name, usd in (("h100", 2.5), ("rtx-4090", 0.4), ("l40s", 0.9))]
    return Sample(lambda draw: comparison_html(answers, MADE, draw), lambda: comparison_json(answers))


def plan_with_a_price() -> Plan:
    return planned(scenario_from_mapping(SCENARIO), "h100")


def plan_that_does_not_work() -> Plan:
    scenario = scenario_from_mapping({**SCENARIO, "model": "llama-3.1-70b", "engine": "none", "prices": {}})
    return planned(scenario, "rtx-4090", None)


def hostile_plan() -> Plan:
    answer = plan_with_a_price()
    return replace(
        answer,
        model=f"{SCRIPT}{CHINESE}{LONG}",
        machine=replace(answer.machine, name=f"{SCRIPT} {ESCAPE}"),
        weights_format=QUOTES,
        assumptions=(SCRIPT, "read from /home/ada/secret.json"),
    )


MAKERS: dict[str, Callable[[], Sample]] = {
    "one run": lambda: of_study(study("chunked", count=20), ("a note",)),
    "overload": lambda: of_study(study("chunked", rates=(1.0,), count=60)),
    "schedulers": lambda: of_study(study("static", "paged", "chunked", count=40)),
    "sweep": lambda: of_study(study("paged", "chunked", rates=(0.2, 0.4))),
    "seeds": lambda: of_study(study("paged", "chunked", rates=(0.2, 0.4), seeds=3)),
    "fleet": lambda: of_study(study("chunked", fleet=FleetPlan(replicas=2))),
    "hostile study": lambda: of_study(hostile_study(), (SCRIPT, LONG)),
    "capacity": lambda: of_capacity(PROMISE),
    "no capacity": lambda: of_capacity(Limits(ttft_p99_s=0.001)),
    "replay": of_replay,
    "log": lambda: of_log(fits=False),
    "fitted log": lambda: of_log(fits=True),
    "plan": lambda: of_plan(plan_with_a_price()),
    "reference plan": lambda: of_plan(_reference()),
    "no plan": lambda: of_plan(plan_that_does_not_work()),
    "machines": of_machines,
    "hostile plan": lambda: of_plan(hostile_plan()),
}
HOSTILE = ("hostile study", "hostile plan")
WITHOUT_CHARTS = ("no capacity", "replay", "no plan")


def _reference() -> Plan:
    from inference_bench.facts.hardware import hardware_from_description
    from inference_bench.facts.load import model_from_description

    scenario = scenario_from_mapping(read_toml(str(Path(__file__).parents[2] / "examples" / "reference.toml")))
    machine = scenario.machines[0]
    assert not isinstance(scenario.model, str)
    assert not isinstance(machine, str)
    (usd,) = scenario.prices.usd_per_hour
    return plan(
        scenario,
        model_from_description(scenario.model),
        hardware_from_description(machine, "the scenario's machine"),
        usd_per_device_hour=usd,
    )


@cache
def sample(name: str) -> Sample:
    return MAKERS[name]()
