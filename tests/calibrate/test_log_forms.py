"""The forms in which logs of real engines come: names of folders, places of settings, editions of models, weight formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibrate.made_logs import write_log
from inference_bench.calibrate import LoggedServer, Stated, logged_server, read_log
from inference_bench.calibrate.log_names import devices_named, model_names
from inference_bench.errors import RequestError
from inference_bench.simulate.step_time import StepPart

ROW = {"input_toks": 100, "output_toks": 11, "queued_ts": 10.0, "first_token_ts": 11.0, "last_token_ts": 12.0}
PRO = "RTX PRO 6000 Blackwell Server"


def server_of(folder: Path, meta: dict[str, Any] | None = None, stated: Stated | None = None) -> LoggedServer:
    log = read_log(write_log(folder, [ROW] * 2, meta))
    return logged_server(log) if stated is None else logged_server(log, stated)


@pytest.mark.parametrize(
    ("folder", "model", "machine", "devices"),
    [
        ("RTX4090_Llama-3.1-8B", "Meta-Llama-3.1-8B", "RTX 4090", 1),
        ("RTXPRO6000_Qwen3-32B_TP2", "Qwen3-32B", PRO, 2),
        ("RTXPRO6000_Qwen3-32B-TP2", "Qwen3-32B", PRO, 2),
        ("RTXPRO6000x2_Qwen3-32B", "Qwen3-32B", PRO, 2),
        ("2xRTXPRO6000_Qwen3-32B", "Qwen3-32B", PRO, 2),
        ("RTX_PRO_6000_Qwen3-32B", "Qwen3-32B", PRO, 1),
        ("RTXPRO6000_Qwen3-30B-A3B", "Qwen3-30B-A3B", PRO, 1),
        ("H100_Mixtral-8x7B_tp4", "Mixtral-8x7B-v0.1", "H100 SXM5 80GB", 4),
        ("NVIDIA_RTX_PRO_6000_Blackwell_run_of_may_Qwen3-32B", "Qwen3-32B", PRO, 1),
    ],
)
def test_a_folder_names_model_machine_and_devices(
    tmp_path: Path, folder: str, model: str, machine: str, devices: int
) -> None:
    for meta in (None, {}, {"vllm_version": "0.19.0"}):
        found = server_of(tmp_path / folder, meta)
        assert (found.served.model.name, found.machine.name, found.devices) == (model, machine, devices)
    alone = logged_server(read_log(tmp_path / folder / "requests.jsonl"))
    assert (alone.log.name, alone.served.model.name, alone.devices) == (folder, model, devices)


def test_a_file_of_another_name_names_them_too(tmp_path: Path) -> None:
    file = tmp_path / "RTX4090_Llama-3.1-8B.jsonl"
    file.write_text(json.dumps(ROW) + "\n", encoding="utf-8")
    found = logged_server(read_log(file))
    assert (found.log.name, found.machine.name) == ("RTX4090_Llama-3.1-8B", "RTX 4090")


def test_settings_say_the_devices_before_the_folder_does(tmp_path: Path) -> None:
    said = server_of(tmp_path / "RTXPRO6000_Qwen3-32B_TP2", {"engine_kwargs": {"tensor_parallel_size": 4}})
    assert said.devices == 4
    assert not any("folder" in note for note in said.setup.notes)
    named = server_of(tmp_path / "RTXPRO6000_Qwen3-32B_TP2", {})
    assert any("2 device(s): the name of the log's folder" in note for note in named.setup.notes)
    stated = server_of(tmp_path / "RTXPRO6000_Qwen3-32B_TP2", {}, Stated(devices=8))
    assert stated.devices == 8


def test_digits_of_a_card_or_a_model_are_no_devices() -> None:
    for folder in ("RTX4090_Mixtral-8x7B", "RTX4090", "8x7B", "A100-80GB_Qwen2.5-7B", "H100_8x22B"):
        assert devices_named((folder,)) is None
    for folder, devices in (("A100x8", 8), ("4x H100", 4), ("run_tp-2", 2), ("TP=16", 16)):
        assert devices_named((folder,)) == devices


@pytest.mark.parametrize(
    "meta",
    [
        {"num_gpu_blocks": 2_588},
        {"engine_kwargs": {"num_gpu_blocks": 2_588}},
        {"engine_kwargs": {"num_gpu_blocks_override": 2_588}},
        {"cache_config": {"num_gpu_blocks": 2_588, "block_size": 16}},
    ],
)
def test_blocks_over_two_devices_are_those_of_each(tmp_path: Path, meta: dict[str, Any]) -> None:
    meta = {"tensor_parallel_size": 2, **meta}
    found = server_of(tmp_path / "RTXPRO6000_Qwen3-32B", meta)
    layers, heads, size = 64, 8 // 2, 128  # of Qwen3-32B, the heads of one of two devices
    assert found.setup.memory.budget_bytes == 2_587 * 16 * 2 * layers * heads * size * 2
    unsaid = server_of(tmp_path / "RTXPRO6000_Qwen3-32B_unsaid", {"tensor_parallel_size": 2})
    assert any("does not say how large the cache is" in note for note in unsaid.setup.notes)


@pytest.mark.parametrize(
    ("meta", "model", "weights", "cache"),
    [
        ({"model": "unsloth/Meta-Llama-3.1-8B-Instruct"}, "Meta-Llama-3.1-8B", "bf16", "fp16"),
        ({"model": "anybody/Qwen3-32B"}, "Qwen3-32B", "bf16", "fp16"),
        ({"model": "/hub/models--meta-llama--Llama-3.1-8B/snapshots/0e9e39f"}, "Meta-Llama-3.1-8B", "bf16", "fp16"),
        ({"model": "Qwen/Qwen3-32B-FP8", "quantization": "fp8"}, "Qwen3-32B-FP8", "fp8", "fp16"),
        ({"model": "Qwen/Qwen3-32B-AWQ", "quantization": "awq_marlin"}, "Qwen3-32B", "awq", "fp16"),
        ({"model": "Qwen/Qwen3-32B-AWQ", "quantization": None}, "Qwen3-32B", "awq", "fp16"),
        ({"model": "Qwen/Qwen3-32B", "quantization": "fp8", "kv_cache_dtype": "fp8_e4m3"}, "Qwen3-32B", "fp8", "fp8"),
        ({"model": "Qwen/Qwen3-32B", "dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}, "Qwen3-32B", "bf16", "bf16"),
        ({"model": "Qwen/Qwen3-30B-A3B-GPTQ-Int4", "quantization": "gptq_marlin"}, "Qwen3-30B-A3B", "gptq", "fp16"),
        ({"model": "nvidia/Qwen3-32B-NVFP4", "quantization": "modelopt_fp4"}, "Qwen3-32B", "nvfp4", "fp16"),
        (
            {"model": "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "quantization": "compressed-tensors"},
            "Meta-Llama-3.1-8B",
            "gptq",
            "fp16",
        ),
        ({"model": "openai/gpt-oss-20b", "quantization": "mxfp4"}, "gpt-oss-20b", "mxfp4", "fp16"),
    ],
)
def test_weights_and_cache_are_of_the_format_that_settings_or_the_models_name_say(
    tmp_path: Path, meta: dict[str, Any], model: str, weights: str, cache: str
) -> None:
    served = server_of(tmp_path / "RTXPRO6000_run", meta).served
    assert served.model.name == model
    assert (served.weights.format_name, served.cache_format.keys.name) == (weights, cache)


def test_a_folder_that_speaks_of_a_cache_says_nothing_of_weights(tmp_path: Path) -> None:
    assert server_of(tmp_path / "RTXPRO6000_Qwen3-32B_kv-fp8").served.weights.format_name == "bf16"
    assert server_of(tmp_path / "RTXPRO6000_Qwen3-8B-AWQ").served.weights.format_name == "awq"


def test_what_may_hold_any_format_is_asked_for(tmp_path: Path) -> None:
    meta = {"model": "Qwen/Qwen3-32B", "quantization": "compressed-tensors"}
    with pytest.raises(RequestError, match="state the weight format"):
        server_of(tmp_path / "RTXPRO6000_run", meta)
    assert server_of(tmp_path / "RTXPRO6000_run", meta, Stated(weights="fp8")).served.weights.format_name == "fp8"


def test_the_note_says_the_limits_that_are_simulated(tmp_path: Path) -> None:
    both = server_of(tmp_path / "RTXPRO6000_Qwen3-32B", {"max_num_seqs": 128, "max_num_batched_tokens": 2_048})
    assert "128 sequences and 2048 positions a step" in both.setup.notes[0]
    assert "256" not in both.setup.notes[0]
    large = server_of(tmp_path / "RTXPRO6000_Qwen3-32B", {"max_num_seqs": 128})
    assert (large.setup.scheduler.max_running, large.setup.scheduler.budget) == (128, 8_192)
    assert "128 sequences and 8192 positions a step" in large.setup.notes[0]
    small = server_of(tmp_path / "RTX4090_Llama-3.1-8B", {})
    assert (small.setup.scheduler.max_running, small.setup.scheduler.budget, small.engine) == (256, 2_048, "vllm")
    assert "256 sequences and 2048 positions a step, as its server sets" in small.setup.notes[0]


def test_experts_are_read_as_far_as_a_step_is_expected_to_choose_them(tmp_path: Path) -> None:
    found = server_of(tmp_path / "RTXPRO6000_Qwen3-30B-A3B", {"enable_expert_parallel": True})
    step_time = found.at_shares()
    rate, miss = found.machine.bandwidth_bytes_per_s, 1 - 8 / 128  # 8 of 128 experts a position
    assert rate is not None
    one, many = (step_time.step_s([StepPart(0, 1, True)] * count) for count in (1, 16))
    experts = 48 * 128 * 3 * 2_048 * 768 * 2  # bytes of all experts of Qwen3-30B-A3B
    assert many - one == pytest.approx(experts * (miss - miss**16) / rate, rel=0.02)
    assert any("experts spread whole" in note for note in found.setup.notes)


def test_expected_times_say_nothing_of_intervals_that_are_not_shown(tmp_path: Path) -> None:
    notes = server_of(tmp_path / "RTXPRO6000_Qwen3-32B").expected().notes
    assert any("efficiencies fitted on" in note for note in notes)
    assert not any("intervals" in note for note in notes)


def test_stages_of_a_pipeline_are_not_taken_for_one_device(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="2 pipeline stages"):
        server_of(tmp_path / "RTXPRO6000_Qwen3-32B", {"pipeline_parallel_size": 2})


@pytest.mark.parametrize("name", ["devices", "num_blocks", "max_running", "token_budget"])
def test_what_is_stated_must_be_at_least_one(name: str) -> None:
    values: dict[str, Any] = {name: 0}
    with pytest.raises(RequestError, match="is 0; it must be at least 1"):
        Stated(**values)


def test_a_models_name_loses_its_edition_only_at_its_end() -> None:
    assert list(model_names("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", ())) == [
        "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8",
        "Qwen3-30B-A3B-Instruct-2507-FP8",
        "Qwen3-30B-A3B-Instruct-2507",
        "Qwen3-30B-A3B-Instruct",
        "Qwen3-30B-A3B",
    ]
