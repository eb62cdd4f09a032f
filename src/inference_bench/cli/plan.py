"""`plan`: how many users within the objectives, on how many machines, at what cost."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inference_bench.cli.given import listed, refuse
from inference_bench.cli.machine import machine_named
from inference_bench.cli.output import print_json
from inference_bench.cli.report_page import provenance, require_report_file, say_where, write_report
from inference_bench.errors import RequestError, ScenarioError, UnknownNameError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.load import is_path, model_from_description, read_toml
from inference_bench.facts.models import LoadedModel
from inference_bench.files import require_file_name
from inference_bench.predict.fit import loaded_weights
from inference_bench.predict.plan import Plan, plan
from inference_bench.predict.scenario import Named, Scenario, Speed, scenario_from_mapping

if TYPE_CHECKING:
    from inference_bench.simulate.step_profile import StepProfile

# flag → where it stands in a scenario
_FLAGS: Final[Mapping[str, tuple[str, str]]] = {
    **{name: ("", name) for name in ("model", "weights", "kv", "compute", "devices", "engine", "speed")},
    **{name: ("traffic", name) for name in ("prompt", "output", "prefix", "requests_per_day", "peak_factor", "think_time")},
    "target_utilisation": ("traffic", "target_utilisation"),
    **{name: ("objectives", name) for name in ("ttft", "tpot", "e2e", "judged_by")},
    "utilisation": ("prices", "utilisation"),
    **{name: ("prices", name) for name in ("hosted_input", "hosted_output", "hosted_cached")},
    **{name: ("assumptions", name) for name in ("overhead", "mfu", "bandwidth_share", "max_batch")},
}  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Answer; exit 1 when it works on no machine that was named."""
    if options.report is not None:
        require_report_file(options.report)
    folder = Path(options.scenario).parent if options.scenario else Path()
    profile = None if options.profile is None else _profile(options)
    values = _with_flags(read_toml(options.scenario) if options.scenario else {}, options)
    is_own = profile is not None and "machine" not in values
    if profile is not None:
        values = _with_profile(values, profile)
    if not options.scenario:
        _require_flags(values)
    scenario = scenario_from_mapping(values)
    model = _profiled_model(scenario.model, folder, profile)
    machines = (
        [_own_machine(profile, model, scenario)] if profile is not None and is_own else _machines(scenario, folder)
    )
    scenario = scenario if profile is None else _as_fitted(scenario, profile)
    asked = _with_measurements(scenario, options.measured, machines, model)
    answers = [
        plan(each, model, machine, usd_per_device_hour=price)
        for each, machine, price in zip(asked, machines, _prices(scenario), strict=True)
    ]
    _write_report(answers, options)
    _print(answers, options.json, profile)
    say_where(options)
    return 0 if any(answer.verdict.answer for answer in answers) else 1


def _with_profile(values: Mapping[str, Any], profile: StepProfile) -> dict[str, Any]:
    """What is asked, with the profile's machine and its model in its formats where no others are named."""
    own: dict[str, Any] = {"machine": profile.machine}
    if "model" not in values:
        own |= {"model": profile.model, "weights": profile.weights_format, "kv": profile.cache_format}
    return {**{name: value for name, value in own.items() if value is not None}, **values}


def _require_flags(values: Mapping[str, Any]) -> None:
    """Without a scenario's file everything is named on the command line.

    Raises:  RequestError
    """
    traffic = _table(values, "traffic")
    needed = {"a model": "model" in values, "a machine": "machine" in values}
    needed |= {"a prompt's length": "prompt" in traffic, "an output's length": "output" in traffic}
    if missing := [what for what, is_given in needed.items() if not is_given]:
        raise ScenarioError(f"a plan needs {', '.join(needed)}, or a scenario file; missing: {', '.join(missing)}")


def _profiled_model(named: Named, folder: Path, profile: StepProfile | None) -> LoadedModel:
    """The model; where it is only named by a profile, it has to be known here.

    Raises:  RequestError
    """
    try:
        return _model(named, folder)
    except UnknownNameError:
        if profile is None or named != profile.model:
            raise
        raise RequestError(
            f"the profile was fitted on {profile.model}, and no model is known by that name here: a plan counts a model's memory "
            "from its shapes; name the model, or its file"
        ) from None


def _own_machine(profile: StepProfile, model: LoadedModel, scenario: Scenario) -> HardwareSpec:
    from inference_bench.cli.profile_machine import machine_of

    return machine_of(profile, loaded_weights(model, scenario.weights))


def _with_measurements(
    scenario: Scenario, path: str | None, machines: list[HardwareSpec], model: LoadedModel
) -> list[Scenario]:
    """The scenario for each machine, with what was measured of its engine there.

    Raises:  ScenarioError, and RequestError where the file is of none of the machines
    """
    if path is None:
        return [scenario] * len(machines)
    if scenario.served_by is None or scenario.speed is not Speed.EXPECTED:
        raise ScenarioError("own measurements correct what is expected of an engine; name it, with speed 'expected'")
    from inference_bench.score.own import calibration_from

    asked, refused = [], []
    for machine in machines:
        try:
            asked.append(replace(scenario, own=calibration_from(Path(path), scenario.served_by, machine, model)))
        except RequestError as error:
            asked.append(scenario)
            refused.append(error)
    if len(refused) == len(machines):
        raise refused[0]
    return asked


def _profile(options: argparse.Namespace) -> StepProfile:
    """The profile that is named.

    Raises:  RequestError for one that cannot be read, or beside what says otherwise how fast steps are
    """
    refuse(options, ("speed", "mfu", "bandwidth_share", "measured"), "the profile says how fast steps are")
    from inference_bench.simulate.step_profile import load_profile

    return load_profile(Path(require_file_name(options.profile, "profile")))


def _as_fitted(scenario: Scenario, profile: StepProfile) -> Scenario:
    """The scenario at the profile's speed, with as many sequences at once as its server ran, unless the scenario says."""
    from inference_bench.simulate.profile_cost import ProfileSteps

    assumed, rules = scenario.assumptions, profile.scheduler
    if assumed.max_batch is None and rules is not None:
        assumed = replace(assumed, max_batch=rules.max_running)
    return replace(scenario, assumptions=assumed, speed=Speed.FITTED, fitted=ProfileSteps(profile))


def _with_flags(values: Mapping[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """The scenario with what the command line says in place of what the file says."""
    merged = dict(values)
    for flag, (section, key) in _FLAGS.items():
        given = getattr(options, flag)
        if given is None:
            continue
        if not section:
            merged[key] = given
            continue
        merged[section] = {**_table(merged, section), key: given}
    machines = [
        *(options.on or ()),
        *(() if options.compare is None else listed(options.compare, "machines to compare")),
    ]
    if machines:
        merged["machine"] = machines
    if options.usd_per_hour is not None:
        prices = options.usd_per_hour.split(",")
        merged["prices"] = {**_table(merged, "prices"), "usd_per_hour": prices if len(prices) > 1 else prices[0]}
    return merged


def _table(values: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    table = values.get(section, {})
    if not isinstance(table, Mapping):
        raise ScenarioError(f"{section} is {table!r:.60}; a table [{section}] is needed")
    return table


def _near(text: str, folder: Path) -> str:
    """A path that a scenario names is looked for beside the scenario first."""
    beside = str(folder / text)
    return beside if is_path(beside) else text


def _model(named: Named, folder: Path) -> LoadedModel:
    if not isinstance(named, str):
        return model_from_description(named)
    from inference_bench.hub import load_model

    return load_model(_near(named, folder))


def _machines(scenario: Scenario, folder: Path) -> list[HardwareSpec]:
    from inference_bench.facts.hardware import hardware_from_description

    return [
        machine_named(_near(named, folder) if named.endswith((".toml", ".json")) else named)
        if isinstance(named, str)
        else hardware_from_description(named, "the scenario's machine")
        for named in scenario.machines
    ]


def _prices(scenario: Scenario) -> tuple[float | None, ...]:
    return scenario.prices.usd_per_hour or (None,) * len(scenario.machines)


def _write_report(answers: list[Plan], options: argparse.Namespace) -> None:
    if options.report is None:
        return
    from inference_bench.report.plan_html import comparison_html, plan_html

    made = provenance(options)
    one = partial(plan_html, answers[0], made)
    write_report(options.report, one if len(answers) == 1 else partial(comparison_html, answers, made))


def _print(answers: list[Plan], as_json: bool, profile: StepProfile | None) -> None:
    if as_json:
        from inference_bench.report.plan_json import comparison_json, plan_json

        said = plan_json(answers[0]) if len(answers) == 1 else comparison_json(answers)
        print_json(said if profile is None else {**said, "profile": _values(profile)})
        return
    from inference_bench.report.plan_report import comparison_text, plan_text

    print(plan_text(answers[0]) if len(answers) == 1 else comparison_text(answers))


def _values(profile: StepProfile) -> dict[str, Any]:
    from inference_bench.simulate.step_profile import profile_values

    return profile_values(profile)
