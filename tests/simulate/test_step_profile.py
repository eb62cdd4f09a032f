"""Fitted step times on file."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from inference_bench.errors import RequestError, StorageError
from inference_bench.facts.hardware import hardware
from inference_bench.facts.names import fold_name
from inference_bench.origin import Origin
from inference_bench.roofline import roof
from inference_bench.simulate.presets import engine_preset, llama_cpp_settings, vllm_settings
from inference_bench.simulate.profile_fields import ProfileCache
from inference_bench.simulate.settings import SchedulerSettings
from inference_bench.simulate.step_profile import StepProfile, load_profile, profile_values, save_profile
from inference_bench.simulate.step_sources import Ceilings, Link, Shares, step_time_at, step_time_of
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
        ({"bandwidth_share": 0}, "bandwidth_share of the profile is 0; a number between 0.001 and 4"),
        ({"bandwidth_share": 1e-320}, "bandwidth_share of the profile is"),
        ({"bandwidth_share": 10**400}, "bandwidth_share of the profile is 1000"),
        ({"compute_share": 10**400}, "compute_share of the profile is 1000"),
        ({"compute_share": 4.1}, "compute_share of the profile is 4.1"),
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


# --- version 2 ----------------------------------------------------------------------------------------------------

CEILINGS = Ceilings(20.6e9, 150e9)
FITTED = StepProfile(
    shares=Shares(0.76, 0.55, fixed_s=0.0005, serial=1.0, cache=0.25, attention=0.2, vector=0.75),
    machine="a box that no table knows",
    engine="llama.cpp",
    model="SmolLM2-135M",
    source="a sweep of one server",
    as_of="2026-11-30",
    form="additive, vector kernel",
    request_s=0.002,
    weights_format="Q4_1",
    cache_format="fp16",
    ceilings=CEILINGS,
    scheduler=llama_cpp_settings(4, 1_024, 256),
    cache=ProfileCache(377_487_360, 1),
    intervals={"bandwidth": (0.7, 0.8)},
    held_out_error=0.06,
)


@pytest.mark.parametrize(
    "scheduler",
    [
        None,
        llama_cpp_settings(4, 1_024, 256),
        llama_cpp_settings(8, unified=True, prefix_cache=True),
        vllm_settings(64, 4_096, prefix_cache=True),
        replace(engine_preset("sglang").scheduler, max_running=32),
    ],
)
def test_a_fitted_server_comes_back_as_it_was_saved(tmp_path: Path, scheduler: SchedulerSettings | None) -> None:
    profile = replace(FITTED, scheduler=scheduler)
    save_profile(profile, tmp_path / "profile.json")
    assert load_profile(tmp_path / "profile.json") == profile


def test_the_first_version_is_read_still(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(
        '{"kind": "inference-bench profile", "version": 1, "machine": "H100", "engine": "vllm", "model": "Qwen3-8B", '
        '"source": "a log", "as_of": "2026-11-01", "devices": 2, "bandwidth_share": 0.8, "compute_share": 0.6, '
        '"serial_share": 0.1, "fixed_s": 0.002, "sequence_s": 0.0, "link": null, "errors": {"ttft_mean": 0.01}}',
        encoding="utf-8",
    )
    found = load_profile(path)
    assert found.shares == Shares(0.8, 0.6, fixed_s=0.002, serial=0.1)
    assert (found.devices, found.ceilings, found.scheduler, found.request_s) == (2, None, None, 0.0)
    assert found.step_time(served_model("SmolLM2-135M"), hardware("H100")).vector


def test_ceilings_of_its_own_need_no_machine() -> None:
    served = served_model("SmolLM2-135M")
    found = FITTED.step_time(served)
    assert found.vector == step_time_at(served, CEILINGS, "a box", FITTED.shares).vector
    # by hand: the weights once at 3/4 of 20.6 GB/s, beside half a millisecond
    alone = found.coefficients.weight_bytes / (0.75 * 20.6e9)
    assert found.coefficients.vector_s == pytest.approx(alone)
    assert found.coefficients.bandwidth_bytes_per_s == pytest.approx(0.76 * 20.6e9)
    with pytest.raises(
        RequestError, match="fitted on a box that no table knows, and efficiencies do not carry over to H100"
    ):
        FITTED.step_time(served, hardware("H100"))


def test_other_formats_are_counted_as_they_are_and_said() -> None:
    served = served_model("SmolLM2-135M")
    assert fold_name(served.weights.format_name) != "q4_1"
    notes = FITTED.step_time(served).notes
    assert "held-out error" in notes[0]
    assert "weights in Q4_1" in notes[1]
    assert "other kernels" in notes[1]
    same = replace(FITTED, weights_format=served.weights.format_name).step_time(served)
    assert not any("other kernels" in note for note in same.notes)
    assert same.vector == FITTED.step_time(served).vector


def test_the_machine_as_a_profile_knows_it_is_its_ceilings() -> None:
    weights = served_model("SmolLM2-135M").weights
    machine = FITTED.own_machine(weights)
    found = roof(machine, weights.linear_format)
    assert (found.bandwidth_bytes_per_s, found.peak_flops_per_s) == (20.6e9, 150e9)
    assert (machine.name, machine.memory_bytes, machine.origin) == (FITTED.machine, None, Origin.MEASURED)
    assert PROFILE.own_machine(weights) == hardware("RTX PRO 6000")


def without(name: str) -> dict[str, object]:
    """The scheduler's rules less one of them."""
    rules = profile_values(FITTED)["scheduler"]
    return {"scheduler": {key: value for key, value in rules.items() if key != name}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cache_share": 0}, "cache_share of the profile is 0; a number between 0.001 and 4"),
        ({"attention_share": "half"}, "attention_share of the profile is 'half'"),
        ({"vector_share": True}, "vector_share of the profile is True"),
        ({"request_s": -1}, "request_s of the profile is -1"),
        ({"request_s": 10**400}, "request_s of the profile is 1000"),
        ({"form": 3}, "form of the profile is 3"),
        ({"form": "x" * 10_000}, "form of the profile is 'xxx"),
        ({"model": "a\x1b[31mb"}, "model of the profile must be text"),
        ({"weights_format": "q4\nq5"}, "weights_format of the profile is"),
        ({"cache_format": []}, "cache_format of the profile is"),
        ({"ceilings": 20e9}, "ceilings of the profile is 20000000000.0; an object of bandwidth_bytes_per_s"),
        ({"ceilings": {"bandwidth_bytes_per_s": 1e9}}, "compute_flops_per_s of the profile is None"),
        (
            {"ceilings": {"bandwidth_bytes_per_s": 0, "compute_flops_per_s": 1e9}},
            "bandwidth_bytes_per_s of the profile is 0",
        ),
        (
            {"ceilings": {"bandwidth_bytes_per_s": float("inf"), "compute_flops_per_s": 1e9}},
            "bandwidth_bytes_per_s of the profile is inf",
        ),
        ({"scheduler": "fast"}, "scheduler of the profile is 'fast'; an object of budget_rule"),
        (without("budget_rule"), "budget_rule of the profile is None; one of shared, prefill-first"),
        ({"scheduler": {"budget_rule": ["shared"]}}, "budget_rule of the profile is"),
        (without("max_running"), "max_running of the profile is None; a whole number from 1"),
        (without("token_budget"), "token_budget of the profile is None"),
        (
            {"scheduler": {"budget_rule": "shared", "max_running": 10**30, "token_budget": 1}},
            "max_running of the profile",
        ),
        (
            {"scheduler": {"budget_rule": "shared", "max_running": 1, "token_budget": 1, "prefix_cache": "no"}},
            "prefix_cache of the profile is 'no'; true or false",
        ),
        ({"cache": 3}, "cache of the profile is 3; an object of bytes and block_size"),
        ({"cache": {"bytes": -3}}, "bytes of the profile is -3"),
        ({"cache": {"bytes": None, "block_size": 0}}, "block_size of the profile is 0"),
        ({"intervals": [1]}, "intervals of the profile is"),
        ({"intervals": {"bandwidth": [1]}}, "bandwidth of the profile is"),
        ({"intervals": {"bandwidth": [2, 1]}}, "the low end first"),
        ({"intervals": {"bandwidth": [float("nan"), 1]}}, "bandwidth of the profile is nan"),
        ({"held_out_error": -0.1}, "held_out_error of the profile is -0.1"),
        ({"version": [2]}, "version 1 or 2"),
    ],
)
def test_a_broken_field_of_the_second_version_is_named(tmp_path: Path, change: dict[str, object], says: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({**profile_values(FITTED), **change}), encoding="utf-8")
    with pytest.raises(RequestError, match=re.escape(says)) as caught:
        load_profile(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(path))
