"""The schema of `verify --json` beside made results, and beside a real one, recorded with its long lists of numbers cut short."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from inference_bench.report.json_result import verify_json
from inference_bench.verify.result import VerifyResult
from report.closed_loop_sample import LOOPS, whole_loop
from report.sample import bare_result, hostile_result, hybrid, no_ceiling_result, sample_result, with_findings
from report.verify_schema import closed, complaints, schema

MAKERS = (*LOOPS, sample_result, with_findings, bare_result, no_ceiling_result, hostile_result)


def whole() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(verify_json(whole_loop()), allow_nan=False))
    return found


@pytest.mark.parametrize("make", MAKERS)
def test_every_result_is_what_the_schema_says_and_holds_no_key_that_it_does_not_name(
    make: Callable[[], VerifyResult],
) -> None:
    assert complaints(json.loads(json.dumps(verify_json(make()), allow_nan=False))) == []


def test_the_result_of_a_real_run_is_what_the_schema_says() -> None:
    found = json.loads((Path(__file__).parent / "recorded" / "verify-result.json").read_text(encoding="utf-8"))
    assert complaints(found) == []
    assert {found["engine"]["name"], found["calibration"]["form"]} == {"llama.cpp", "additive, vector kernel"}
    assert all(found[key] for key in ("points", "gap", "load", "capacity", "memory", "profile_path"))


def test_a_model_with_window_layers_is_documented_too() -> None:
    assert complaints(json.loads(json.dumps(verify_json(sample_result(hybrid()))))) == []


def test_every_key_of_the_first_level_says_what_it_is() -> None:
    keys = schema()["properties"]
    assert len(keys) > 25
    assert all(len(value.get("description", "")) > 10 for value in keys.values())
    assert set(schema()["required"]) == set(keys)


def test_a_later_version_may_add_keys_without_breaking_whoever_validates() -> None:
    found = whole()
    found["later"] = 1
    found["load"]["later"] = 2
    assert not list(Draft202012Validator(schema()).iter_errors(found))
    assert len(complaints(found)) == 2


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), "inference-bench/verify/9"),
        (("points", 0, "measured_s"), "7.86 ms"),
        (("points", 0, "phase"), "embedding"),
        (("calibration", "form"), "cubic"),
        (("calibration", "parameters", "bandwidth", "value"), None),
        (("load", "rows", 0, "figures", "ttft_p50_s", "reached"), "yes"),
        (("load", "predicted", "ttft_p50_s"), "0.2"),
        (("capacity", "is_confirmed"), "confirmed"),
        (("memory", 0, "predicted"), 1.5),
        (("gap", "steps", 0, "parts", 0, "cause"), "gremlins"),
        (("machine", "origin"), "guessed"),
    ],
)
def test_a_result_that_is_wrong_in_one_place_is_found_there(path: tuple[str | int, ...], value: object) -> None:
    found = whole()
    place: Any = found
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert complaints(found), path


@pytest.mark.parametrize(
    "key", ["load", "calibration", "capacity", "gap", "memory", "verdict", "profile_path", "points"]
)
def test_a_key_that_is_missing_is_found(key: str) -> None:
    found = whole()
    del found[key]
    assert any(key in line for line in complaints(found))


# keys that only another machine or model gives: a graphics card's, recurrent states'
RARE = {
    *("index", "compute_capability", "cuda_driver_version", "driver_version", "is_ecc_on", "max_memory_clock_hz"),
    *("max_sm_clock_hz", "memory_bus_width_bits", "pcie_generation", "pcie_lanes", "power_limit_w"),
    *("convolution", "convolution_type", "recurrent", "recurrent_type"),
}


def test_the_schema_names_no_key_that_no_result_has() -> None:
    shown = {*keys_of(whole()), *keys_of(json.loads(json.dumps(verify_json(hostile_result()))))}
    assert len(shown) > 150
    assert set(names_of(schema())) - shown <= RARE


def keys_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from keys_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from keys_of(item)


def names_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if value.get("type") == "object":
            yield from value.get("properties", {})
        for item in value.values():
            yield from names_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from names_of(item)


def test_the_strict_form_changes_nothing_but_what_may_be_added() -> None:
    before = copy.deepcopy(schema())
    assert closed(schema()) != before
    assert schema() == before
