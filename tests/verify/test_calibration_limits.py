"""What an engine computes at once, by hand: the batches of a prompt alone, and of a prompt beside sequences that decode."""

from __future__ import annotations

import pytest

from inference_bench.engines.base import EngineFigures, EngineIdentity
from inference_bench.simulate.step_time import StepPart
from inference_bench.verify.calibration_limits import EngineLimits, Mixing, limits_of, mixed_batches, prompt_batches


def test_a_prompt_alone_is_read_in_parts_of_the_micro_batch_each_behind_the_last() -> None:
    assert prompt_batches(0, 1200, 512) == (
        (StepPart(0, 512, False),),
        (StepPart(512, 512, False),),
        (StepPart(1024, 176, False),),
    )
    assert prompt_batches(192, 320, 512) == ((StepPart(192, 320, False),),)
    assert prompt_batches(0, 5000, None) == ((StepPart(0, 5000, False),),)


def test_equal_parts_take_one_token_of_each_neighbour_and_then_the_rest_of_the_prompt() -> None:
    limits = EngineLimits("llama.cpp", most_positions=512, mixing=Mixing.EQUAL)
    assert mixed_batches((200, 210), 100, limits) == (
        (StepPart(200, 1, True), StepPart(210, 1, True), StepPart(0, 1, False)),
        (StepPart(1, 99, False),),
    )


def test_a_long_prompt_beside_others_is_cut_at_the_micro_batch() -> None:
    limits = EngineLimits("llama.cpp", most_positions=64, mixing=Mixing.EQUAL)
    assert mixed_batches((200,), 100, limits) == (
        (StepPart(200, 1, True), StepPart(0, 1, False)),
        (StepPart(1, 64, False),),
        (StepPart(65, 35, False),),
    )
    unified = EngineLimits("llama.cpp", most_positions=64, mixing=Mixing.IN_ORDER)
    assert mixed_batches((200,), 100, unified) == (
        (StepPart(200, 1, True), StepPart(0, 63, False)),
        (StepPart(63, 37, False),),
    )


def test_an_engine_with_a_budget_reads_both_in_one_batch_or_is_not_asked_to() -> None:
    limits = EngineLimits("vllm", most_positions=128, mixing=Mixing.TOGETHER)
    assert mixed_batches((50, 60), 100, limits) == (
        (StepPart(50, 1, True), StepPart(60, 1, True), StepPart(0, 100, False)),
    )
    assert mixed_batches((50, 60), 127, limits) is None


@pytest.mark.parametrize("mixing", [Mixing.APART, Mixing.UNKNOWN])
def test_where_the_rule_is_not_known_nothing_is_claimed(mixing: Mixing) -> None:
    assert mixed_batches((50,), 100, EngineLimits("sglang", mixing=mixing)) is None


def test_an_engine_is_known_by_what_it_says() -> None:
    slots = EngineFigures(num_slots=4, context_tokens_per_slot=512, context_tokens_total=2048, kv_unified=False)
    ours = limits_of(
        EngineIdentity("llama.cpp", "started", flags={"max_micro_batch_tokens": 256, "num_threads": 2}), slots
    )
    assert (ours.pins_slots, ours.max_batch, ours.context_tokens, ours.most_positions) == (True, 4, 512, 256)
    assert ours.mixing is Mixing.EQUAL
    assert (ours.shared_tokens, ours.num_threads) == (None, 2)
    shared = EngineFigures(num_slots=4, context_tokens_per_slot=2048, context_tokens_total=2048, kv_unified=True)
    unified = limits_of(EngineIdentity("llama.cpp", "reported"), shared)
    assert (unified.mixing, unified.shared_tokens, unified.most_positions) == (Mixing.IN_ORDER, 2048, 512)
    silent = limits_of(EngineIdentity("llama.cpp", "reported"), EngineFigures(num_slots=2))
    assert silent.mixing is Mixing.UNKNOWN
    vllm = EngineFigures(max_running=64, max_model_len=4096, kv_tokens=9000, token_budget=2048, prefix_cache=False)
    other = limits_of(EngineIdentity("vllm", "reported"), vllm)
    assert (other.pins_slots, other.max_batch, other.context_tokens, other.shared_tokens) == (False, 64, 4096, 9000)
    assert (other.mixing, other.most_positions, other.reuses_prefix) == (Mixing.TOGETHER, 2048, False)
    assert limits_of(EngineIdentity("sglang", "reported"), EngineFigures()).mixing is Mixing.APART
    nobody = limits_of(EngineIdentity(None, "reported"), EngineFigures())
    assert (nobody.mixing, nobody.pins_slots) == (Mixing.UNKNOWN, False)
