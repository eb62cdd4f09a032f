"""The commands of the README on a profile as a sweep leaves it, without an engine: recorded steps, fitted, saved, asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibrate.steps.sweeps import TWO_THREADS_DECODE, TWO_THREADS_PREFILL, cpu, decode, prefill, smol
from cli.commands import refused, run_json
from inference_bench.calibrate.steps.fitting import fit_steps
from inference_bench.cli.machine import machine_named
from inference_bench.predict.fitted_cost import MeasuredReach
from inference_bench.simulate.presets import llama_cpp_settings
from inference_bench.simulate.profile_fields import ProfileCache
from inference_bench.simulate.profile_work import own_work
from inference_bench.simulate.step_profile import StepProfile, load_profile, profile_values, save_profile
from simulate.served_models import served_model

SLOT = 512
UNKNOWN = "SmolLM2-135M-Instruct Q4_1"  # as an engine names its file: no model of the table


def a_profile() -> StepProfile:
    """As `verify` saves it on this machine: 4 slots of 512 positions, a model that no table knows by its name."""
    served = smol()
    named = replace(served, model=replace(served.model, name=UNKNOWN))
    machine = replace(cpu(), name=machine_named("here").name)
    steps = [decode(batch, context, seconds) for batch, context, seconds in TWO_THREADS_DECODE]
    steps += [prefill(tokens, seconds) for tokens, seconds in TWO_THREADS_PREFILL]
    return fit_steps(
        steps,
        named,
        machine,
        engine="llama.cpp xllamacpp 2026.10.11549",
        source="a recorded sweep",
        as_of="2026-11-30",
        scheduler=llama_cpp_settings(4, 1_536),
        cache=ProfileCache(4 * SLOT * 23_040, 1),
    ).profile


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = tmp_path / "profile.json"
    save_profile(a_profile(), path)
    return str(path)


def test_the_fitted_server_is_simulated_at_several_rates(capsys: pytest.CaptureFixture[str], saved: str) -> None:
    found = run_json(capsys, "simulate", "--profile", saved, "--rate", "1:4:1.5", "--count", "40")
    assert [row["policy"] for row in found["rows"]] == ["llama.cpp"] * 3
    assert all(row["ttft_p50_s"] > 0 for row in found["rows"])
    said = json.dumps(found, ensure_ascii=False)
    assert "prompts and outputs of 128 tokens, a quarter of the 512 positions" in said
    assert "as the profile states of llama.cpp xllamacpp 2026.10.11549" in said


def test_another_model_runs_by_the_rules_of_the_profiles_server(capsys: pytest.CaptureFixture[str], saved: str) -> None:
    asked = (
        "simulate",
        "--profile",
        saved,
        "--rate",
        "1",
        "--count",
        "20",
        "--model",
        "smollm2-135m",
        "--weights",
        "q4_1",
    )
    (other,) = run_json(capsys, *asked)["rows"]
    (own,) = run_json(capsys, *asked[:7])["rows"]
    assert other["policy"] == "llama.cpp"
    assert other["ttft_p50_s"] == pytest.approx(own["ttft_p50_s"])  # it is the same model: counted here, held there


def test_the_capacity_of_the_fitted_server_is_found(capsys: pytest.CaptureFixture[str], saved: str) -> None:
    asked = ("capacity", "--profile", saved, "--ttft-p99", "3s", "--count", "20")
    found = run_json(capsys, *asked, "--seeds", "0", "--steps", "2", "--longer", "1")
    assert found["nominal_rate"] > 0
    assert "a quarter of the 512 positions" in json.dumps(found)


def test_fit_knows_this_machines_memory_and_what_was_not_measured(
    capsys: pytest.CaptureFixture[str], saved: str
) -> None:
    found = run_json(
        capsys, "fit", "smollm2-135m", "--weights", "q4_1", "--profile", saved, "--context", "4096", "--sequences", "64"
    )
    assert found["machine"]["memory_bytes"] == machine_named("here").memory_bytes
    assert found["fits"] is not None
    lines = "\n".join(found["assumptions"])
    assert ": fp32 dense peak" in lines
    assert "extrapolated: a context of 4,096 tokens is asked for, and steps were measured up to 779" in lines
    assert "extrapolated: a batch of 64 sequence(s) is asked for, and steps were measured up to 8" in lines
    near = run_json(capsys, "fit", "smollm2-135m", "--weights", "q4_1", "--profile", saved, "--context", "500")
    assert "extrapolated" not in "\n".join(near["assumptions"])


def test_plan_takes_the_machine_from_the_profile(capsys: pytest.CaptureFixture[str], saved: str) -> None:
    asked = ("plan", "--profile", saved, "--prompt", "200", "--output", "100", "--tpot", "1s")
    found = run_json(capsys, *asked, "--model", "smollm2-135m", "--weights", "q4_1")
    assert found["speed"] == "fitted"
    assert found["load"]["batch"] == 4
    assert "no model is known by that name here: a plan counts" in refused(capsys, *asked)


def test_plan_serves_the_profiles_own_model_where_its_name_is_known(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "known.json"
    save_profile(replace(a_profile(), model="SmolLM2-135M", weights_format="Q4_1"), path)
    asked = ("plan", "--profile", str(path), "--prompt", "200", "--output", "100", "--tpot", "1s")
    found, named = (
        run_json(capsys, *asked, *more)
        for more in ((), ("--model", "smollm2-135m", "--weights", "q4_1", "--kv", "fp16"))
    )
    assert found["latency"] == named["latency"]
    assert found["memory"] == named["memory"]


def test_what_a_plan_lacks_is_said_without_a_scenario_file(capsys: pytest.CaptureFixture[str], saved: str) -> None:
    told = refused(capsys, "plan", "--profile", saved, "--model", "smollm2-135m", "--prompt", "200")
    assert "missing: an output's length" in told


def test_the_profile_holds_what_its_steps_take_and_how_far_they_were_measured(saved: str) -> None:
    profile, found = a_profile(), load_profile(Path(saved))
    assert found == profile
    assert found.measured == MeasuredReach(779, 8)
    assert found.compute_format == "fp32"
    assert found.served is not None
    assert found.served.form.coefficients.weight_bytes == 96_576_768  # as its file has them
    assert found.served.bytes_per_position == 23_040  # 30 layers, 3 heads of 64, keys and values, 16 bits


@pytest.mark.parametrize("name", ["Gemma-3-1B", "Qwen3-30B-A3B"])
def test_windows_and_experts_come_back_as_they_were_saved(tmp_path: Path, name: str) -> None:
    served = served_model(name)
    profile = replace(a_profile(), served=own_work(served))
    save_profile(profile, tmp_path / "profile.json")
    found = load_profile(tmp_path / "profile.json")
    assert found == profile
    own, counted = found.own_step_time(), found.step_time(served)
    assert own is not None
    assert (own.coefficients, own.windows) == (counted.coefficients, counted.windows)


def test_a_profile_without_its_models_work_asks_for_the_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "old.json"
    save_profile(replace(a_profile(), served=None, measured=None, compute_format=None), path)
    told = refused(capsys, "simulate", "--profile", str(path), "--rate", "1:4:0.5")
    assert "name the model, or its file" in told
    found = run_json(
        capsys, "simulate", "--profile", str(path), "--rate", "1", "--count", "10", "--model", "smollm2-135m"
    )
    assert found["rows"][0]["policy"] == "llama.cpp"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"weight_bytes": -1}, "weight_bytes"),
        ({"weight_bytes": 0}, "weight_bytes"),
        ({"weight_bytes": "many"}, "weight_bytes"),
        ({"flops_per_pair": None}, "flops_per_pair"),
        ({"expert_miss": 2}, "expert_miss"),
        ({"windows": [3]}, "windows"),
        ({"windows": [{"max_positions": 0, "read_bytes": 1, "flops_per_pair": 1}]}, "max_positions"),
        ({"windows": [{}] * 2_000}, "windows"),
        ({"cache": None}, "cache"),
        ({"cache": {"bytes_per_position": 0}}, "bytes_per_position"),
        ({"cache": {"bytes_per_position": 1.5}}, "bytes_per_position"),
        ({"cache": {"bytes_per_position": 1, "windows": {}}}, "windows"),
        ({"cache": {"bytes_per_position": 1, "block_size": 0}}, "block_size"),
        ({"cache": {"bytes_per_position": 1, "state_bytes": -1}}, "state_bytes"),
    ],
)
def test_work_that_cannot_be_is_named_in_a_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    values = profile_values(a_profile())
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({**values, "served": {**values["served"], **change}}), encoding="utf-8")
    assert f"{says} of the profile is" in refused(capsys, "simulate", "--profile", str(path), "--rate", "1")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"served": 3}, "served of the profile is 3"),
        ({"measured": {"max_context_tokens": -1, "max_batch": 1}}, "max_context_tokens of the profile is -1"),
        ({"measured": {"max_context_tokens": 1, "max_batch": 0}}, "max_batch of the profile is 0"),
        ({"compute_format": 16}, "compute_format of the profile is 16"),
    ],
)
def test_what_is_said_beside_the_work_is_checked_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({**profile_values(a_profile()), **change}), encoding="utf-8")
    assert says in refused(capsys, "simulate", "--profile", str(path), "--rate", "1")
