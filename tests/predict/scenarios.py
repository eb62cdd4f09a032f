"""The reference scenario as a test changes it, and the plan of it."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

from inference_bench.facts.hardware import hardware_from_description
from inference_bench.facts.load import model_from_description
from inference_bench.predict.plan import Plan, plan
from inference_bench.predict.scenario import scenario_from_mapping

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
GOLDEN: dict[str, Any] = json.loads((ROOT / "tests" / "golden" / "published" / "capacity.json").read_text())
REFERENCE: dict[str, Any] = tomllib.loads((EXAMPLES / "reference.toml").read_text(encoding="utf-8"))


def changed(*, drop: tuple[str, ...] = (), **sections: Any) -> dict[str, Any]:
    """The reference scenario with values of its tables replaced; `drop` names whole tables, or "table.key"."""
    values = copy.deepcopy(REFERENCE)
    for name, value in sections.items():
        values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
    for name in drop:
        table, _, key = name.partition(".")
        del (values[table] if key else values)[key or table]
    return values


def planned(values: dict[str, Any]) -> Plan:
    """The plan of a scenario whose model and one machine are described in line."""
    scenario = scenario_from_mapping(values)
    prices = scenario.prices.usd_per_hour
    return plan(
        scenario,
        model_from_description(values["model"]),
        hardware_from_description(values["machine"], "a test"),
        usd_per_device_hour=prices[0] if prices else None,
    )
