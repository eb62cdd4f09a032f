"""The schedulers of engines as settings, and what the cache gets of a machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inference_bench.accounting.cache import count_cache
from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.simulate.presets import (
    engine_preset,
    engine_presets,
    kv_memory_of,
    llama_cpp_settings,
    memory_of_blocks,
    memory_of_bytes,
    vllm_settings,
)
from inference_bench.simulate.run import simulate
from inference_bench.simulate.settings import BudgetRule, KvMemory, Policy, ServerSetup
from simulate.fleets import steps_of, workload_of
from simulate.served_models import served_model

GIGABYTES_80 = 80_000_000_000


def memory(name: str, devices: int = 1, block_size: int = 1) -> KvMemory:
    served = served_model(name)
    return kv_memory_of(
        served.model, served.weights, served.cache_format, GIGABYTES_80, 2_500_000_000, block_size, devices
    )


def test_a_dense_model_leaves_memory_less_weights_and_overhead() -> None:
    found = memory("Meta-Llama-3.1-8B")
    assert found.budget_bytes == GIGABYTES_80 - 16_060_522_496 - 2_500_000_000
    assert found.bytes_per_position == 131_072  # 2 · 32 layers · 8 heads · 128 · 2 bytes
    assert (found.windows, found.state_bytes) == ((), 0)


@pytest.mark.parametrize(
    "name",
    [
        "Meta-Llama-3.1-8B",
        "gemma-3-27b-it",
        "gpt-oss-20b",
        "Qwen3-Next-80B-A3B-Instruct",
        "DeepSeek-V3",
        "mamba-2.8b-hf",
    ],
)
@pytest.mark.parametrize("context", [1, 700, 20_000])
def test_a_sequence_takes_what_is_counted(name: str, context: int) -> None:
    served = served_model(name)
    found = memory_of_bytes(served.model, served.cache_format, 1)
    assert found.sequence_bytes(context) == count_cache(served.model, served.cache_format, context).total_bytes


def test_ranks_hold_a_share_of_weights_and_cache() -> None:
    pair, alone = memory("Qwen3-32B", 2), memory("Meta-Llama-3.1-8B", 2)
    assert pair.bytes_per_position == 2 * 64 * 4 * 128 * 2
    assert alone.bytes_per_position == 131_072 // 2


def test_blocks_are_positions_of_one_device() -> None:
    served = served_model("Meta-Llama-3.1-8B")
    found = memory_of_blocks(served.model, served.cache_format, 2_588, 16)
    assert found.budget_bytes == 2_588 * 16 * 131_072
    assert found.sequence_bytes(17) == 32 * 131_072


def test_blocks_of_a_model_with_windows_are_no_number_of_positions() -> None:
    served = served_model("gemma-3-27b-it")
    with pytest.raises(RequestError, match="windows"):
        memory_of_blocks(served.model, served.cache_format, 1_000)


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RequestError, match="leaves no memory"):
        memory("Meta-Llama-3.1-70B")


def test_each_engine_says_which_version_it_mirrors() -> None:
    rules = {name: engine_preset(name).scheduler.budget_rule for name in engine_presets()}
    assert rules["vllm"] is BudgetRule.SHARED
    assert rules["sglang"] is BudgetRule.PREFILL_FIRST
    assert rules["llama.cpp"] is BudgetRule.EQUAL_BATCHES
    for name in engine_presets():
        preset = engine_preset(name)
        assert preset.scheduler.policy is Policy.CHUNKED
        assert preset.notes[0].startswith("scheduler: ")
        assert any(character.isdigit() for character in preset.mirrors)
    with pytest.raises(UnknownNameError, match="vllm, vllm-large, sglang"):
        engine_preset("orca")


def test_vllm_takes_its_limits() -> None:
    settings = vllm_settings(128, 4_096)
    assert (settings.max_running, settings.budget, settings.admission_share) == (128, 4_096, 1.0)


def test_vllm_is_set_up_as_a_running_server_states_it() -> None:
    settings = vllm_settings(max_running=64, token_budget=1_024, prefix_cache=True, chunked_prefill=False)
    assert (settings.prefix_cache, settings.cuts_prompts) == (True, False)
    assert vllm_settings().cuts_prompts


def test_a_prompt_that_is_not_cut_waits_for_a_step_that_holds_it() -> None:
    # 10 positions a step: the first prompt takes 6, and while its answer goes on nine are left, too few for the second's ten
    setup = ServerSetup(vllm_settings(4, 10, chunked_prefill=False), KvMemory(10_000, 1))
    workload = workload_of((0.0, 6, 3), (0.0, 10, 1))
    found = simulate(workload, setup, steps_of(1.0))
    assert (list(found.first_token_s), found.engine) == ([1.0, 4.0], "reference")
    cut = simulate(workload, replace(setup, scheduler=vllm_settings(4, 10)), steps_of(1.0))
    assert list(cut.first_token_s) == [1.0, 2.0]
    with pytest.raises(RequestError, match="request 0 has up to 11 tokens to read at once, and prompts are not cut"):
        simulate(workload_of((0.0, 11, 1)), setup, steps_of(1.0))


def test_llama_cpp_cuts_by_neighbours_unless_one_cache_is_for_all() -> None:
    settings = llama_cpp_settings(6, 1_024, 256)
    assert (settings.max_running, settings.budget, settings.micro_batch) == (6, 1_024, 256)
    assert settings.budget_rule is BudgetRule.EQUAL_BATCHES
    assert llama_cpp_settings(6, unified=True).budget_rule is BudgetRule.MICRO_BATCHES
    assert llama_cpp_settings(6, prefix_cache=True).prefix_cache
