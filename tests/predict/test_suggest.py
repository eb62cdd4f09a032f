from __future__ import annotations

from dataclasses import replace

import pytest

from inference_bench.facts.hardware import HardwareSpec, hardware, known_hardware
from inference_bench.facts.load import load_model
from inference_bench.facts.models import LoadedModel
from inference_bench.facts.source import Source
from inference_bench.predict.engine_command import engine_commands
from inference_bench.predict.fit import FitRequest, fit
from inference_bench.predict.placement import Split
from inference_bench.predict.suggest import rank_machines, suggest
from shapes import reference_model


def card(gigabytes: int) -> HardwareSpec:
    return HardwareSpec("a card", gigabytes * 10**9, 1e12, {"bf16": 165e12}, Source("a test", "2026-11-29"))


@pytest.mark.parametrize("engine", ["none", "llama.cpp", "vllm"])
def test_every_suggestion_fits_and_needs_less_than_what_was_asked(engine: str) -> None:
    model, request = LoadedModel(reference_model()), FitRequest("bf16", "fp16", 32768, 2, engine)
    assert fit(model, card(24), request).fits is False
    found = suggest(model, card(24), request)
    assert found
    for item in found:
        assert item.answer.fits is True
        assert item.saved_bytes > 0
        again = fit(model, card(24), item.request)
        assert again.needed_bytes == item.answer.needed_bytes


def test_the_first_keeps_the_context_and_the_most_bits() -> None:
    # 19.1 GB of bf16 weights and 2.5 GB overhead leave 8.4 GB of 30: one sequence of 32768 tokens takes 4.83 GB, two 9.66
    found = suggest(LoadedModel(reference_model()), card(30), FitRequest("bf16", "fp16", 32768, 2, "none"))
    first = found[0]
    assert first.answer.cache.context_tokens == 32768
    assert first.request.weights == "bf16"
    assert first.request.cache == "q8_0"  # 8.5 bits a value; fp8 keeps 8


def test_no_suggestion_is_beaten_by_another_in_everything() -> None:
    found = suggest(LoadedModel(reference_model()), card(16), FitRequest("bf16", "fp16", 32768, 1, "llama.cpp"))
    keys = [(item.answer.cache.context_tokens, item.bits_per_weight, item.answer.cache.num_bytes) for item in found]
    assert len(set(keys)) == len(keys)
    for one in keys:
        assert not any(
            all(a >= b for a, b in zip(other, one, strict=True))
            for other in keys
            if other != one and other[0] == one[0]
        )


def test_what_already_fits_is_its_own_first_suggestion() -> None:
    found = suggest(LoadedModel(reference_model()), card(80), FitRequest("bf16", "fp16", 4096, 1))
    assert found[0].saved_bytes == 0


def test_nothing_fits_a_card_that_is_too_small() -> None:
    assert suggest(LoadedModel(reference_model()), card(4), FitRequest("bf16")) == ()


def test_machines_that_fit_come_first_and_the_fastest_first_among_them() -> None:
    rows = rank_machines(load_model("qwen3-8b"), known_hardware(), FitRequest(context_tokens=32768))
    assert len(rows) == len(known_hardware())
    fits = [row.answer.fits for row in rows]
    assert fits == sorted(fits, key=lambda value: {True: 0, None: 1, False: 2}[value])
    rates = [row.decode_bound_tokens_per_s or 0 for row in rows if row.answer.fits]
    assert len(rates) > 3
    assert rates == sorted(rates, reverse=True)


def test_each_engines_command_carries_what_was_counted() -> None:
    answer = fit(load_model("qwen3-8b"), hardware("h100"), FitRequest("fp8", "fp8", 32768, 8, devices=2))
    llama, vllm, sglang = engine_commands(answer, "Qwen/Qwen3-8B")
    assert llama.command is None
    assert "no fp8 cache" in llama.note
    assert vllm.command is not None
    assert "vllm serve Qwen/Qwen3-8B --max-model-len 32768 --max-num-seqs 8 --kv-cache-dtype fp8" in vllm.command
    assert "--tensor-parallel-size 2" in vllm.command
    assert sglang.command is not None
    assert "--context-length 32768 --max-running-requests 8" in sglang.command
    assert "--tp-size 2" in sglang.command
    share = float(vllm.command.split("--gpu-memory-utilization ")[1].split()[0])
    assert share * 85_520_809_984 >= answer.needed_bytes


def test_a_pipeline_is_started_as_a_pipeline() -> None:
    request = FitRequest(context_tokens=4096, devices=4, split=Split.PIPELINE)
    _, vllm, sglang = engine_commands(fit(load_model("llama-3.1-70b"), hardware("h100"), request))
    assert "--pipeline-parallel-size 4" in (vllm.command or "")
    assert "--pp-size 4" in (sglang.command or "")


def test_a_quantised_value_cache_of_llama_cpp_asks_for_flash_attention_and_servers_say_no() -> None:
    answer = fit(load_model("qwen3-8b"), hardware("4090"), FitRequest("q4_k_m", "q8_0", 4096, 2, "llama.cpp"))
    llama, vllm, sglang = engine_commands(answer)
    assert "-c 8192 -np 2 -ngl 999 -ctk q8_0 -ctv q8_0 -fa on" in (llama.command or "")
    assert vllm.command is None
    assert sglang.command is None


def test_weights_of_a_gguf_type_are_no_checkpoint_for_servers() -> None:
    answer = fit(load_model("qwen3-8b"), hardware("4090"), FitRequest("q4_k_m", None, 4096, 1))
    assert [item.command is None for item in engine_commands(answer)] == [False, True, True]


def test_what_does_not_fit_gets_no_command_but_llama_cpps_share_of_layers() -> None:
    answer = fit(load_model("llama-3.1-70b"), hardware("4090"), FitRequest("q4_k_m", None, 4096, 1, "llama.cpp"))
    assert answer.offload is not None
    llama, vllm, _ = engine_commands(answer)
    assert f"-ngl {answer.offload.gpu_layers}" in (llama.command or "")
    assert vllm.command is None
    too_much = fit(load_model("llama-3.1-70b"), hardware("4090"), FitRequest("bf16", None, 4096, 1))
    assert [item.command for item in engine_commands(too_much)] == [None, None, None]


def test_a_name_with_spaces_is_quoted() -> None:
    answer = fit(LoadedModel(reference_model()), hardware("4090"))
    assert "a b" not in answer.model.name
    from dataclasses import replace

    odd = replace(answer, model=replace(answer.model, name="a b; rm -rf x"))
    assert "'a b; rm -rf x.gguf'" in (engine_commands(odd)[0].command or "")


def test_suggestions_and_the_ranking_take_vllms_steps_from_each_machine() -> None:
    model, request = load_model("gemma-3-27b"), FitRequest("int4-g128", None, 32_768, 1, "vllm")
    needed = {
        row.answer.machine.name: row.answer
        for row in rank_machines(model, known_hardware(), request)
        if row.answer.machine
    }
    small, large = needed["RTX 4090"], needed["H100 SXM5 80GB"]
    # six groups of sliding layers hold 193 blocks of 1,310,720 bytes at 2,048 tokens in flight, 577 at 8,192
    assert large.needed_bytes - small.needed_bytes == 6 * (577 - 193) * 1_310_720
    assert (small.fits, large.fits) == (True, True)
    for item in suggest(model, hardware("rtx-4090"), replace(request, weights="bf16", context_tokens=8192)):
        assert item.answer.allocation is not None
        assert item.answer.allocation.in_flight_tokens == 2048
