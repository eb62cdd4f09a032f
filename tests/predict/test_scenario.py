from __future__ import annotations

import math
import tomllib
from typing import Any

import pytest

from inference_bench.errors import RequestError, ScenarioError
from inference_bench.predict.scenario import scenario_from_mapping
from predict.scenarios import EXAMPLES, changed

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("a key that is not known, with the nearest", changed(traffic={"promt": 1}), "nearest: prompt"),
    ("a table that is not known", changed(trafic={"prompt": 1}), "nearest: traffic"),
    ("no model", changed(drop=("model",)), "model is missing"),
    ("no machine", changed(drop=("machine",)), "machine is missing"),
    ("no machine in the list", changed(machine=[]), "0 machines"),
    ("no traffic", changed(drop=("traffic",)), "prompt is missing"),
    ("no output", changed(drop=("traffic.output",)), "output is missing"),
    ("output of zero", changed(traffic={"output": 0}), "at least 1"),
    ("a prompt that is not whole", changed(traffic={"prompt": 1.5}), "whole number"),
    ("a prompt without end", changed(traffic={"prompt": math.inf}), "whole number"),
    ("a prompt that is no number", changed(traffic={"prompt": math.nan}), "whole number"),
    ("a prompt of 400 digits", changed(traffic={"prompt": 10**400}), "whole number"),
    ("a price of 400 digits", changed(prices={"usd_per_hour": -(10**400)}), "0 or more"),
    ("a text without end", changed(traffic={"prompt": "4" * 10**6}), "1000000 characters"),
    ("a key without end", changed(traffic={"x" * 10**6: 1}), "unknown key"),
    ("a prompt that is a switch", changed(traffic={"prompt": True}), "whole number"),
    ("a prompt with a wrong unit", changed(traffic={"prompt": "4 GB"}), "suffix"),
    ("a prefix as long as the prompt", changed(traffic={"prefix": 4000}), "shorter than the prompt"),
    ("a volume of zero", changed(traffic={"requests_per_day": 0}), "above 0"),
    ("a volume without end", changed(traffic={"requests_per_day": math.inf}), "inf"),
    ("a volume that is no number", changed(traffic={"requests_per_day": math.nan}), "nan"),
    ("a negative volume", changed(traffic={"requests_per_day": -5}), "above 0"),
    ("a peak below the mean", changed(traffic={"peak_factor": 0.5}), "1 or more"),
    ("a peak of nothing", changed(drop=("traffic.requests_per_day",)), "requests_per_day"),
    ("a target over 1", changed(traffic={"target_utilisation": 1.2}), "from 0 to 1"),
    ("a target of zero", changed(traffic={"target_utilisation": 0}), "above 0"),
    ("a utilisation over 1", changed(prices={"utilisation": 1.01}), "from 0 to 1"),
    ("a utilisation over 100 %", changed(prices={"utilisation": "130%"}), "between 0 and 1"),
    ("a utilisation of zero", changed(prices={"utilisation": 0}), "above 0"),
    ("a negative utilisation", changed(prices={"utilisation": -0.5}), "from 0 to 1"),
    ("a negative price", changed(prices={"usd_per_hour": -1}), "0 or more"),
    ("a price that is text", changed(prices={"usd_per_hour": "cheap"}), "cheap"),
    ("two prices for one machine", changed(prices={"usd_per_hour": [1, 2]}), "2 prices for 1 machines"),
    ("cached input above input", changed(prices={"hosted_cached": 0.5}), "above hosted_input"),
    ("a utilisation of nothing", changed(drop=("prices.usd_per_hour",)), "usd_per_hour"),
    ("half a hosted price", changed(drop=("prices.hosted_output",)), "hosted_output"),
    ("power without its price", changed(drop=("owned.usd_per_kwh",)), "usd_per_kwh is missing"),
    ("no years", changed(owned={"years": 0}), "above 0"),
    ("an acceptance over 1", changed(speculation={"alpha": 1.5}), "from 0 to 1"),
    ("no draft", changed(speculation={"gamma": 0}), "at least 1"),
    ("a draft without end", changed(speculation={"gamma": 10**6}), "1 to 64"),
    ("a draft without its cost", changed(drop=("speculation.c",)), "c is missing"),
    ("an objective of zero", changed(objectives={"tpot": 0}), "above 0"),
    ("a negative objective", changed(objectives={"tpot": "-5ms"}), "negative"),
    ("an objective with a wrong unit", changed(objectives={"tpot": "5 tokens"}), "unit"),
    ("a whole shorter than its part", changed(objectives={"ttft": 3, "e2e": 2}), "below ttft"),
    ("an odd judge", changed(objectives={"judged_by": "me"}), "full_load"),
    ("bandwidth over the peak", changed(assumptions={"bandwidth_share": 1.1}), "from 0 to 1"),
    ("no compute", changed(assumptions={"mfu": 0}), "above 0"),
    ("negative overhead", changed(assumptions={"overhead": -1}), "at least 0"),
    ("an engine that is not known", changed(engine="tgi"), "llama.cpp"),
    ("a speed that is not known", changed(speed="fast"), "shares"),
    ("no devices", changed(devices=0), "at least 1"),
    ("a table that is a number", {**changed(), "traffic": 5}, "table [traffic]"),
    ("a switch that is text", changed(traffic={"prefix_cache": "no"}), "true or false"),
]


@pytest.mark.parametrize(("what", "values", "said"), WRONG, ids=[row[0] for row in WRONG])
def test_a_scenario_that_cannot_be_is_refused_in_one_line(what: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError) as caught:
        scenario_from_mapping(values)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_texts_with_units_and_plain_numbers_mean_the_same() -> None:
    texts = changed(
        traffic={"prompt": "4000", "output": "2000", "think_time": "1min", "requests_per_day": "2000"},
        objectives={"ttft": "500ms"},
        prices={"utilisation": "30%"},
        assumptions={"overhead": "2.5GB"},
    )
    numbers = changed(
        traffic={"think_time": 60},
        objectives={"ttft": 0.5},
        prices={"utilisation": 0.3},
        assumptions={"overhead": 2_500_000_000},
    )
    assert scenario_from_mapping(texts) == scenario_from_mapping(numbers)


def test_one_price_is_that_of_every_machine() -> None:
    values = changed(prices={"usd_per_hour": 2}) | {"machine": ["h100", "a100"]}
    assert scenario_from_mapping(values).prices.usd_per_hour == (2.0, 2.0)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_every_example_that_is_shipped_can_be_read(path: Any) -> None:
    scenario_from_mapping(tomllib.loads(path.read_text(encoding="utf-8")))


def test_every_key_is_in_the_page_about_scenarios() -> None:
    from inference_bench.predict import scenario

    page = (EXAMPLES.parent / "docs" / "scenario.md").read_text(encoding="utf-8")
    tables = ("_TOP", "_TRAFFIC", "_OBJECTIVES", "_PRICES", "_OWNED", "_SPECULATION", "_ASSUMPTIONS")
    keys = [key for name in tables for key in getattr(scenario, name)]
    assert len(keys) > 30
    assert [key for key in keys if f"`{key}`" not in page and f"`[{key}]`" not in page] == []


TINY = 5e-324
SPECULATED = {"alpha": 0.8, "gamma": 4, "c": 0.1}
OWNED = {"price_usd": 2000, "years": 3, "watts": 450, "usd_per_kwh": 0.2}
# where a value stands, and the least one that is taken
LEAST: list[tuple[str, str, dict[str, Any], float]] = [
    ("traffic", "requests_per_day", {}, 1e-6),
    ("traffic", "target_utilisation", {}, 1e-6),
    ("traffic", "think_time", {}, 1e-9),
    ("objectives", "tpot", {}, 1e-9),
    ("prices", "utilisation", {}, 1e-6),
    ("prices", "usd_per_hour", {}, 1e-9),
    ("assumptions", "mfu", {}, 1e-6),
    ("assumptions", "bandwidth_share", {}, 1e-6),
    ("speculation", "v", SPECULATED, 1e-6),
    ("owned", "years", OWNED, 1e-3),
    ("owned", "watts", OWNED, 1e-6),
    ("owned", "utilisation", OWNED, 1e-6),
]


@pytest.mark.parametrize(("section", "key", "beside", "least"), LEAST, ids=[f"{item[0]} {item[1]}" for item in LEAST])
def test_a_value_too_small_to_mean_anything_is_refused(
    section: str, key: str, beside: dict[str, Any], least: float
) -> None:
    for value in (TINY, least / 2):
        with pytest.raises(ScenarioError, match=key):
            scenario_from_mapping(changed(**{section: {**beside, key: value}}))
    scenario_from_mapping(changed(**{section: {**beside, key: least}}))
