"""A saved profile through every command that takes one: `simulate`, `capacity`, `fit` and `plan`."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cli.commands import refused, run_json
from inference_bench.cli.main import main
from inference_bench.simulate.presets import llama_cpp_settings
from inference_bench.simulate.profile_fields import ProfileCache
from inference_bench.simulate.step_profile import StepProfile, profile_values, save_profile
from inference_bench.simulate.step_sources import Ceilings, Shares

# 1 byte of the weights a nanosecond, no compute to speak of, one sum: a decode step is the weights and half a millisecond
PROFILE = StepProfile(
    shares=Shares(0.5, 0.5, fixed_s=0.0005, serial=1.0),
    machine="a box that no table knows",
    engine="llama.cpp",
    model="SmolLM2-135M",
    source="a sweep of one server",
    as_of="2026-11-30",
    form="additive",
    request_s=0.125,
    weights_format="Q4_1",
    cache_format="fp16",
    ceilings=Ceilings(2e9, 1e15),
    scheduler=llama_cpp_settings(4, 1_024, 256),
    cache=ProfileCache(4 * 4_096 * 23_040, 1),
    held_out_error=0.25,
)
SHORT = ("--count", "12", "--prompt-tokens", "40", "--output-tokens", "6", "--rate", "2")


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = tmp_path / "here.json"
    save_profile(PROFILE, path)
    return str(path)


def test_a_server_is_simulated_by_the_profile_alone(capsys: pytest.CaptureFixture[str], saved: str) -> None:
    found = run_json(capsys, "simulate", "--profile", saved, *SHORT)
    (row,) = found["rows"]
    assert row["policy"] == "llama.cpp"
    assert row["ttft_p50_s"] > 0.125
    said = json.dumps(found)
    assert "4 sequences and 1024 positions a step, as stated" in said
    assert "as the profile says" in said
    assert "125 ms pass between the sending of a request" in said
    assert "held-out error 25" in said


def test_its_time_of_a_request_is_part_of_ttft_and_e2e(
    capsys: pytest.CaptureFixture[str], saved: str, tmp_path: Path
) -> None:
    quick = tmp_path / "quick.json"
    save_profile(replace(PROFILE, request_s=0.0), quick)
    (late,), (early,) = (
        run_json(capsys, "simulate", "--profile", name, *SHORT)["rows"] for name in (saved, str(quick))
    )
    for name in ("ttft_p50_s", "e2e_p50_s"):
        assert late[name] == pytest.approx(early[name] + 0.125)
    assert late["tpot_p50_s"] == pytest.approx(early["tpot_p50_s"])


def test_what_is_stated_goes_before_the_profile(capsys: pytest.CaptureFixture[str], saved: str) -> None:
    found = run_json(capsys, "simulate", "--profile", saved, "--max-running", "2", "--kv-memory", "1GB", *SHORT)
    said = json.dumps(found)
    assert "2 sequences and 1024 positions" in said
    assert "1.00 GB a device, as stated" in said
    other = run_json(capsys, "simulate", "--profile", saved, "--policy", "vllm", *SHORT)
    assert other["rows"][0]["policy"] == "vllm"
    named = run_json(capsys, "simulate", "--profile", saved, "--model", "smollm2-135m", "--weights", "q8_0", *SHORT)
    assert "the profile was fitted with weights in Q4_1" in "\n".join(named["assumptions"])


def test_capacity_is_looked_for_by_the_profile(capsys: pytest.CaptureFixture[str], saved: str) -> None:
    asked = (
        "capacity",
        "--profile",
        saved,
        *SHORT[:-2],
        "--ttft-p99",
        "1s",
        "--seeds",
        "1",
        "--steps",
        "3",
        "--longer",
        "1",
    )
    assert run_json(capsys, *asked)["nominal_rate"] > 0


def test_fit_shows_what_the_formula_says_of_a_model(capsys: pytest.CaptureFixture[str], saved: str) -> None:
    found = run_json(capsys, "fit", "smollm2-135m", "--weights", "q4_1", "--context", "100", "--profile", saved)
    # by hand: weights over 1 GB/s, 99 cached positions of 23,040 bytes and one written, half a millisecond
    by_hand = 96_576_768 / 1e9 + 100 * 23_040 / 1e9 + 0.0005
    decode = found["decode"]
    assert decode["expected_middle_s"] == pytest.approx(by_hand, rel=5e-3)
    slow, fast = decode["expected_tokens_per_s"]
    assert fast / decode["expected_middle_tokens_per_s"] == pytest.approx(1.25)
    assert decode["expected_middle_tokens_per_s"] / slow == pytest.approx(1.25)
    assert decode["expected_from"] == "llama.cpp as fitted"
    # the bound is at its own ceilings: twice as fast as half of the bandwidth
    assert decode["bound_s"] == pytest.approx((by_hand - 0.0005) / 2, rel=5e-3)
    assert found["machine"]["name"] == PROFILE.machine
    assert found["profile"] == profile_values(PROFILE)
    assert any("held-out error 25" in line for line in found["assumptions"])


def test_fit_says_it_in_words(capsys: pytest.CaptureFixture[str], saved: str) -> None:
    assert main(["fit", "smollm2-135m", "--weights", "q4_1", "--profile", saved]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "expected of llama.cpp as fitted:" in shown
    assert "to both sides, the median error on what the fit did not see" in shown
    assert "fitted on llama.cpp with SmolLM2-135M on 1 × a box" in shown


def test_a_formula_is_no_other_machines(capsys: pytest.CaptureFixture[str], saved: str) -> None:
    for command in (("fit", "smollm2-135m"), ("plan", "--model", "smollm2-135m", "--prompt", "100", "--output", "10")):
        assert "do not carry over to H100" in refused(capsys, *command, "--on", "h100", "--profile", saved)


def test_without_a_profile_fit_says_nothing_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "profile" not in run_json(capsys, "fit", "smollm2-135m", "--on", "h100")


PLAN = ("plan", "--model", "smollm2-135m", "--weights", "q4_1", "--prompt", "100", "--output", "10")


def test_plan_takes_its_steps_from_the_profile(capsys: pytest.CaptureFixture[str], saved: str, tmp_path: Path) -> None:
    box = tmp_path / "box.toml"
    box.write_text(f'name = "{PROFILE.machine}"\nmemory = "8 GB"\nbandwidth = "2 GB/s"\n', encoding="utf-8")
    found = run_json(capsys, *PLAN, "--on", str(box), "--profile", saved)
    # at the mean context of 105: the weights, 104 positions and one written, half a millisecond
    by_hand = 96_576_768 / 1e9 + 105 * 23_040 / 1e9 + 0.0005
    assert found["latency"]["solo_step_s"] == pytest.approx(by_hand, rel=5e-3)
    assert found["latency"]["ttft_s"] > found["latency"]["prefill_s"] + 0.124
    assert found["speed"] == "fitted"
    assert (found["load"]["batch"], found["load"]["limited_by"]) == (4, "batch cap")  # as its server has slots
    assert found["checks"]["origin"] == "predicted"
    assert found["profile"] == profile_values(PROFILE)
    assert any("held-out error 25" in line for line in found["assumptions"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("fit", "smollm2-135m", "--on", "all"), "a profile is of one machine"),
        (("fit", "smollm2-135m", "--measured", "own.csv"), "name one of them"),
        ((*PLAN, "--on", "h100", "--speed", "shares"), "the profile says how fast steps are"),
        ((*PLAN, "--on", "h100", "--mfu", "0.5"), "the profile says how fast steps are"),
        (("simulate", *SHORT, "--engine", "vllm"), "the profile says how fast steps are"),
    ],
)
def test_what_says_otherwise_how_fast_steps_are_is_refused(
    capsys: pytest.CaptureFixture[str], saved: str, arguments: tuple[str, ...], says: str
) -> None:
    assert says in refused(capsys, *arguments, "--profile", saved)


@pytest.mark.parametrize(
    "command", [("fit", "smollm2-135m"), (*PLAN, "--on", "h100"), ("simulate", *SHORT), ("capacity",)]
)
@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "cannot be read as a profile"), ("{}", "is no profile"), ("[]", "is no profile")],
)
def test_a_broken_profile_is_one_line_everywhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: tuple[str, ...], text: str, says: str
) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    assert says in refused(capsys, *command, "--profile", str(path))


def test_a_profile_of_a_model_that_is_not_known_asks_for_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "mine.json"
    save_profile(replace(PROFILE, model="a model of my own"), path)
    assert "name the model" in refused(capsys, "simulate", "--profile", str(path), *SHORT)


def test_fit_loads_no_simulator_without_a_profile() -> None:
    code = (
        "import sys; from inference_bench.cli.main import main; main(['fit', 'smollm2-135m', '--on', 'h100', '--json']); "
        "sys.exit(any(name.startswith('inference_bench.simulate') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    assert done.returncode == 0
