"""`simulate --against`: a log whose constants are known, compared and fitted through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibrate.made_logs import BLOCKS, META, made_rows, write_log
from inference_bench.cli.main import main
from inference_bench.facts.hardware import hardware
from inference_bench.report.text import display_columns
from inference_bench.simulate.step_profile import StepProfile, load_profile, save_profile
from inference_bench.simulate.step_sources import Shares
from simulate.served_models import served_model

ERRORS = {f"{name}_{point}" for name in ("ttft", "tpot") for point in ("mean", "p50", "p90", "p99")} | {"makespan"}
TRUTH = Shares(bandwidth=0.8, compute=0.6)
SERVER = ("--on", "H100", "--kv-blocks", str(BLOCKS))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = made_rows(served_model("Meta-Llama-3.1-8B"), hardware("H100"), TRUTH, rate=20.0, count=60)
    return str(write_log(tmp_path_factory.mktemp("logs") / "H100_run", rows, META))


def found(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["simulate", *options, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert isinstance(answer, dict)
    return answer


def test_at_the_constants_of_the_log_there_is_no_error(capsys: pytest.CaptureFixture[str], log: str) -> None:
    answer = found(capsys, "--against", log, *SERVER, "--mfu", "0.6", "--bandwidth-share", "0.8")
    assert answer["schema"] == "inference-bench/simulate-against/1"
    assert set(answer["errors"]) == ERRORS
    assert all(abs(error) < 1e-6 for error in answer["errors"].values())
    assert set(answer["preemptions"]) == {"measured", "simulated"}
    assert answer["preemptions"]["measured"] is None
    assert (answer["fitted"], answer["max_running"], answer["token_budget"]) == (None, 64, 2048)


def test_an_engine_that_was_slower_than_its_peaks_shows_as_a_signed_error(
    capsys: pytest.CaptureFixture[str], log: str
) -> None:
    answer = found(capsys, "--against", log, *SERVER, "--mfu", "1", "--bandwidth-share", "1")
    assert all(error < 0 for error in answer["errors"].values())
    assert main(["simulate", "--against", log, *SERVER]) == 0
    shown = capsys.readouterr().out
    assert "measured and simulated" in " ".join(shown.split())
    assert max(map(display_columns, shown.splitlines())) <= 100


def test_a_fit_finds_the_constants_and_saves_them(capsys: pytest.CaptureFixture[str], log: str, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    answer = found(capsys, "--against", log, *SERVER, "--calibrate", "--save-profile", str(file))
    assert abs(answer["errors"]["tpot_mean"]) < 0.02 < abs(answer["uncalibrated_errors"]["tpot_mean"])
    assert answer["fitted"]["bandwidth"]["value"] == pytest.approx(TRUTH.bandwidth, rel=0.05)
    assert load_profile(file).shares.bandwidth == answer["fitted"]["bandwidth"]["value"]
    small = ("--rate", "2", "--count", "20", "--prompt-tokens", "500", "--output-tokens", "50")
    carried = found(capsys, "--profile", str(file), *small)
    assert carried["rows"][0]["policy"] == "vllm-large"
    other = found(capsys, "--profile", str(file), *small, "--model", "qwen3-8b")
    assert other["rows"][0]["tpot_p50_s"] != carried["rows"][0]["tpot_p50_s"]
    assert main(["simulate", "--profile", str(file), *small, "--on", "a100-80gb"]) == 2
    assert "do not carry over" in capsys.readouterr().err
    assert main(["simulate", "--against", log, *SERVER, "--calibrate"]) == 0
    shown = capsys.readouterr().out
    assert "error left" in shown
    assert max(map(display_columns, shown.splitlines())) <= 100


def test_both_are_drawn(capsys: pytest.CaptureFixture[str], log: str, tmp_path: Path) -> None:
    file = tmp_path / "chart.json"
    found(capsys, "--against", log, *SERVER, "--chart", str(file))
    assert json.loads(file.read_text())["description"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--rate", "1"), "a rate cannot be given here"),
        (("--policy", "paged"), "a policy cannot be given here"),
        (("--replicas", "2"), "replicas cannot be given here"),
        (("--calibrate", "--mfu", "0.5"), "is fitted"),
        (("--save-profile", "x.json"), "ask for the fit too"),
        (("--devices", "0"), "number of devices is 0; it must be at least 1"),
        (("--kv-blocks", "0"), "number of blocks is 0"),
        (("--max-running", "0"), "sequences that run is 0"),
        (("--token-budget", "0"), "positions of a step is 0"),
        (("--simulator", "wibble"), "simulator cannot be given here"),
        (("--backend", "ray"), "backend cannot be given here"),
        (("--seeds", "3"), "seeds cannot be given here"),
        (("--seed", "5"), "seed cannot be given here"),
        (("--workers", "2"), "workers cannot be given here"),
        (("--max-ttft", "1s"), "max ttft cannot be given here"),
        (("--max-gap", "1s"), "max gap cannot be given here"),
    ],
)
def test_what_the_log_says_cannot_be_said_again(
    capsys: pytest.CaptureFixture[str], log: str, options: tuple[str, ...], said: str
) -> None:
    assert main(["simulate", "--against", log, *options]) == 2
    assert said in capsys.readouterr().err


def test_a_profile_of_one_device_serves_another_model_over_the_two_of_its_log(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    machine, truth = hardware("H100"), Shares(bandwidth=0.8, compute=0.6, fixed_s=0.001)
    profile = StepProfile(truth, "h100", "vllm", "Meta-Llama-3.1-8B", "a log", "2026-11-30", devices=1)
    save_profile(profile, tmp_path / "saved.json")
    rows = made_rows(served_model("Qwen3-32B"), machine, truth, rate=5.0, count=30, devices=2)
    meta = {**META, "model": "Qwen/Qwen3-32B", "engine_kwargs": {**META["engine_kwargs"], "tensor_parallel_size": 2}}
    folder = str(write_log(tmp_path / "H100_Qwen3-32B_TP2", rows, meta))
    answer = found(capsys, "--against", folder, "--kv-blocks", str(BLOCKS), "--profile", str(tmp_path / "saved.json"))
    assert (answer["model"], answer["devices"], answer["machine"]) == ("Qwen3-32B", 2, "H100 SXM5 80GB")
    assert all(abs(error) < 1e-6 for error in answer["errors"].values())
    assert any("Meta-Llama-3.1-8B on 1" in note for note in answer["notes"])


def test_another_model_or_machine_than_the_log_has_is_said(capsys: pytest.CaptureFixture[str], log: str) -> None:
    own = found(capsys, "--against", log, *SERVER)
    assert not any("as stated: what differs" in note for note in own["notes"])
    other = found(capsys, "--against", log, "--model", "qwen3-8b", "--on", "h200", "--kv-blocks", str(BLOCKS))
    said = [note for note in other["notes"] if "as stated: what differs" in note]
    assert any("Qwen3-8B" in note for note in said)
    assert any("H200" in note for note in said)
