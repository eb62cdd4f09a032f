"""Fitted step times on file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from inference_bench.errors import RequestError, StorageError
from inference_bench.facts.hardware import hardware
from inference_bench.simulate.step_profile import StepProfile, load_profile, save_profile
from inference_bench.simulate.step_sources import Link, Shares, step_time_of
from simulate.served_models import served_model

SHARES = Shares(bandwidth=0.76, compute=0.5, fixed_s=0.002, sequence_s=1e-6, serial=0.1)
PROFILE = StepProfile(
    shares=SHARES,
    machine=hardware("RTX PRO 6000").name,
    engine="vllm",
    model="Meta-Llama-3.1-8B",
    source="a log",
    as_of="2026-11-30",
    devices=1,
    link=Link(16e9, 2e-5, "the link is the profile's"),
    errors={"ttft_mean": 0.002, "tpot_mean": -0.007},
)


def test_a_profile_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    save_profile(PROFILE, path)
    assert load_profile(path) == PROFILE


def test_another_model_on_the_same_machine_takes_its_constants() -> None:
    served, machine = served_model("Qwen3-32B"), hardware("RTX PRO 6000")
    found = PROFILE.step_time(served, machine, 2)
    assert found.vector == step_time_of(served, machine, SHARES, 2, PROFILE.link).vector
    assert any("Meta-Llama-3.1-8B" in note and "2026-11-30" in note for note in found.notes)


def test_another_machine_is_refused() -> None:
    with pytest.raises(RequestError, match="do not carry over to RTX 4090"):
        PROFILE.step_time(served_model("SmolLM2-135M"), hardware("RTX 4090"))


@pytest.mark.parametrize("alias", ["h100", "H100 SXM", "h100 sxm5 80gb"])
def test_one_machine_may_go_by_several_names(alias: str) -> None:
    profile = replace(PROFILE, machine=alias)
    assert profile.step_time(served_model("SmolLM2-135M"), hardware("H100")).vector
    with pytest.raises(RequestError, match="do not carry over to H100 PCIe"):
        profile.step_time(served_model("SmolLM2-135M"), hardware("H100 PCIe"))


def test_a_machine_of_ones_own_goes_by_its_own_name() -> None:
    mine = replace(hardware("H100"), name="my box")
    profile = replace(PROFILE, machine="My-Box")
    assert profile.step_time(served_model("SmolLM2-135M"), mine).vector


def test_a_byte_order_mark_is_no_part_of_a_profile(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    save_profile(PROFILE, path)
    path.write_text(path.read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert load_profile(path) == PROFILE


@pytest.mark.parametrize(("text", "says"), [("[" * 100_000, "nested too deeply"), ("1" * 5_000, "thousands of digits")])
def test_json_beyond_reason_is_said_in_plain_words(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "deep.json").write_text(text, encoding="utf-8")
    with pytest.raises(RequestError, match=says):
        load_profile(tmp_path / "deep.json")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "something else"}, "no profile"),
        ({"version": 99}, "no profile"),
        ({"machine": None}, "machine of the profile must be text"),
        ({"bandwidth_share": "fast"}, "bandwidth_share"),
        ({"bandwidth_share": 0}, "bandwidth_share of the profile is 0; a number between 0.001 and 1.5"),
        ({"bandwidth_share": 1e-320}, "bandwidth_share of the profile is"),
        ({"bandwidth_share": 10**400}, "bandwidth_share of the profile is 1000"),
        ({"compute_share": 10**400}, "compute_share of the profile is 1000"),
        ({"compute_share": 1.6}, "compute_share of the profile is 1.6"),
        ({"serial_share": 2}, "serial_share of the profile is 2"),
        ({"fixed_s": 10**400}, "fixed_s of the profile is 1000"),
        ({"sequence_s": 1e300}, "sequence_s of the profile is"),
        ({"link": {"bytes_per_s": 10**400, "latency_s": 0}}, "bytes_per_s of the profile is 1000"),
        ({"link": {"bytes_per_s": 1e-320, "latency_s": 0}}, "bytes_per_s of the profile is"),
        ({"link": {"bytes_per_s": 1e9, "latency_s": 1e9}}, "latency_s of the profile is"),
        ({"devices": 10**400}, "devices of the profile is 1000"),
        ({"errors": {"ttft_mean": 10**400}}, "ttft_mean of the profile is 1000"),
        ({"fixed_s": float("nan")}, "fixed_s"),
        ({"devices": 0}, "devices"),
        ({"link": 3}, "link"),
        ({"errors": [1]}, "errors"),
    ],
)
def test_broken_profiles_are_refused(tmp_path: Path, change: dict[str, object], says: str) -> None:
    path = tmp_path / "profile.json"
    save_profile(PROFILE, path)
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    with pytest.raises(RequestError, match=says):
        load_profile(path)


def test_what_is_no_file_or_no_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be read"):
        load_profile(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("hello", encoding="utf-8")
    with pytest.raises(RequestError, match="cannot be read"):
        load_profile(tmp_path / "text.json")
    with pytest.raises(StorageError):
        save_profile(PROFILE, tmp_path / "no" / "such" / "folder.json")
