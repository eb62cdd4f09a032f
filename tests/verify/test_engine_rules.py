"""The scheduler of a server from what it says of itself: recorded figures, and servers that say little or nonsense."""

from __future__ import annotations

import pytest

from inference_bench.engines.base import EngineFigures, EngineIdentity
from inference_bench.errors import RequestError
from inference_bench.simulate.settings import BudgetRule
from inference_bench.verify.engine_rules import EngineRules, rules_of
from simulate.served_models import served_model

MODEL = served_model("SmolLM2-135M-Instruct")
POSITION_BYTES = 23_040  # of its cache in f16: 2 · 30 layers · 3 heads · 64 · 2 bytes


def identity(name: str | None, **flags: int | bool) -> EngineIdentity:
    return EngineIdentity(name, "a test", flags=flags)


def words_of(rules: EngineRules) -> str:
    return "; ".join(rules.words)


def test_llama_cpp_as_the_embedded_engine_is_started() -> None:
    """n_ctx 4096, 4 slots: 1024 cells x 4 seqs, as its log says."""
    figures = EngineFigures(context_tokens_total=4096, context_tokens_per_slot=1024, num_slots=4, kv_unified=False)
    rules = rules_of(identity("llama.cpp", max_batch_tokens=2048, max_micro_batch_tokens=512), figures, MODEL)
    scheduler = rules.setup.scheduler
    assert (scheduler.max_running, scheduler.budget, scheduler.micro_batch) == (4, 2048, 512)
    assert scheduler.budget_rule is BudgetRule.EQUAL_BATCHES
    assert not scheduler.prefix_cache
    assert rules.setup.memory.budget_bytes == 4 * 1024 * POSITION_BYTES
    assert rules.max_context_tokens == 1024
    assert "as it was started" in words_of(rules)
    assert "assumed" not in words_of(rules)


def test_llama_cpp_with_one_cache_for_all_slots_cuts_batches_plainly() -> None:
    figures = EngineFigures(context_tokens_total=4096, context_tokens_per_slot=4096, num_slots=4, kv_unified=True)
    rules = rules_of(identity("llama.cpp"), figures, MODEL)
    assert rules.setup.scheduler.budget_rule is BudgetRule.MICRO_BATCHES
    assert rules.setup.memory.budget_bytes == 4096 * POSITION_BYTES
    assert rules.max_context_tokens == 4096


def test_the_batches_that_a_server_states_count() -> None:
    figures = EngineFigures(num_slots=2, context_tokens_per_slot=512, token_budget=1024, micro_batch=256)
    scheduler = rules_of(identity("llama.cpp"), figures, MODEL).setup.scheduler
    assert (scheduler.budget, scheduler.micro_batch) == (1024, 256)


def test_a_llama_cpp_that_does_not_say_its_slots_is_assumed_to_have_some_and_that_is_said() -> None:
    rules = rules_of(identity("llamacpp"), EngineFigures(), MODEL)
    assert rules.setup.scheduler.max_running == 4
    assert rules.max_context_tokens is None
    assert "4 slots (assumed: the server does not say)" in rules.words[0]
    assert "the size of its cache is not known: assumed to be enough" in words_of(rules)
    assert "its default, assumed" in words_of(rules)


def test_slots_that_share_less_than_a_position_each_are_refused() -> None:
    figures = EngineFigures(context_tokens_total=4, num_slots=8)
    with pytest.raises(RequestError, match="4 positions are shared by 8 slots"):
        rules_of(identity("llama.cpp"), figures, MODEL)


def test_vllm_as_recorded_has_its_blocks_and_limits() -> None:
    """The CPU build with 1 GiB of cache: 182 blocks of 128 tokens, 23,296 in all."""
    figures = EngineFigures(num_blocks=182, block_tokens=128, max_running=128, token_budget=2048, max_model_len=2048)
    rules = rules_of(identity("vllm"), figures, MODEL)
    scheduler, memory = rules.setup.scheduler, rules.setup.memory
    assert (scheduler.max_running, scheduler.budget, scheduler.budget_rule) == (128, 2048, BudgetRule.SHARED)
    assert memory.block_size == 128
    assert memory.budget_bytes == 23_296 * POSITION_BYTES
    assert rules.max_context_tokens == 2048
    assert "23,296 positions of cache in blocks of 128, as the server says" in words_of(rules)


def test_vllm_that_says_nothing_has_its_defaults_and_that_is_said() -> None:
    rules = rules_of(identity("vllm"), EngineFigures(), MODEL)
    assert rules.setup.scheduler.max_running == 256
    assert words_of(rules).count("vLLM's defaults, assumed") == 2
    assert "the size of its cache is not known" in words_of(rules)


def test_sglang_reads_prompts_first() -> None:
    rules = rules_of(identity("sglang"), EngineFigures(max_running=48, kv_tokens=100_000), MODEL)
    assert rules.setup.scheduler.budget_rule is BudgetRule.PREFILL_FIRST
    assert rules.setup.scheduler.max_running == 48
    assert rules.setup.memory.budget_bytes == 100_000 * POSITION_BYTES


@pytest.mark.parametrize("name", [None, "mystery"])
def test_an_engine_that_is_not_known_is_taken_for_a_vllm_and_that_is_said(name: str | None) -> None:
    rules = rules_of(identity(name), EngineFigures(), MODEL)
    assert rules.setup.scheduler.budget_rule is BudgetRule.SHARED
    assert "it is assumed to schedule as vLLM does" in words_of(rules)
