"""The parts of the memory: they sum to what fit says, and each is what its name says."""

from __future__ import annotations

import pytest

from inference_bench.facts.hardware import hardware
from inference_bench.facts.load import known_loaded_model
from inference_bench.predict.fit import FitAnswer, FitRequest, fit
from inference_bench.predict.memory_parts import PartKind, memory_parts
from inference_bench.predict.placement import Split

MODELS = ("gemma-3-27b", "Qwen3-Next-80B-A3B-Instruct", "deepseek-v3", "mamba-2.8b-hf", "Llama-3.2-11B-Vision-Instruct")
REQUESTS = (
    FitRequest(None, None, 5000, 3),
    FitRequest(None, None, 5000, 3, "vllm"),
    FitRequest(None, None, 5000, 3, "llama.cpp", 0),
    FitRequest(None, None, 5000, 3, "vllm", devices=2),
    FitRequest(None, None, 5000, 3, devices=2, split=Split.PIPELINE),
)


def answered(name: str, request: FitRequest) -> FitAnswer:
    return fit(known_loaded_model(name), hardware("h100"), request)


CASES = [
    (name, request)
    for name in MODELS
    for request in REQUESTS
    if (name, request.engine) != ("Llama-3.2-11B-Vision-Instruct", "llama.cpp")  # which has no rule for an encoder
]


@pytest.mark.parametrize(("name", "request_"), CASES)
def test_the_parts_sum_to_what_is_needed_and_so_do_those_of_the_usual_formula(name: str, request_: FitRequest) -> None:
    answer = answered(name, request_)
    found = memory_parts(answer)
    assert len(found.parts) >= 2
    assert found.needed_bytes == answer.needed_bytes
    assert found.usual_bytes == answer.naive_needed_bytes
    assert all(part.num_bytes > 0 for part in (*found.parts, *found.usual))


def test_each_layer_type_has_its_own_cache() -> None:
    # Gemma 3 27B: K·(H + H)·2 bytes = 8192 a position, 52 layers that keep 1024 and 10 that keep everything
    parts = {part.name: part for part in memory_parts(answered("gemma-3-27b", REQUESTS[0])).parts}
    assert parts["sliding attention"].num_bytes == 3 * 52 * 1024 * 8192
    assert parts["full attention"].num_bytes == 3 * 10 * 5000 * 8192
    assert {parts[name].kind for name in ("sliding attention", "full attention")} == {PartKind.CACHE}


def test_a_state_and_an_encoder_s_cache_are_parts_of_their_own() -> None:
    hybrid = answered("Qwen3-Next-80B-A3B-Instruct", REQUESTS[0])
    (state,) = [part for part in memory_parts(hybrid).parts if part.kind is PartKind.STATE]
    assert state.num_bytes == hybrid.cache.state_bytes > 0
    seeing = answered("Llama-3.2-11B-Vision-Instruct", REQUESTS[0])
    (cross,) = [part for part in memory_parts(seeing).parts if part.kind is PartKind.CROSS]
    assert cross.num_bytes == seeing.cache.cross_attention_bytes > 0


def test_rounding_is_what_the_engine_allocates_beyond_the_logical_count() -> None:
    answer = answered("gemma-3-27b", REQUESTS[1])
    assert answer.allocation is not None
    (rounding,) = [part for part in memory_parts(answer).parts if part.kind is PartKind.ROUNDING]
    assert rounding.num_bytes == answer.allocation.num_bytes - answer.cache.total_bytes > 0
    assert rounding.name == "rounding of vLLM"
    assert not [part for part in memory_parts(answered("gemma-3-27b", REQUESTS[0])).parts if "rounding" in part.name]


def test_a_rank_holds_half_of_divided_heads_and_all_of_a_latent() -> None:
    for name, share in (("gemma-3-27b", 2), ("deepseek-v3", 1)):
        one = answered(name, REQUESTS[0])
        two = answered(name, FitRequest(None, None, 5000, 3, devices=2))
        of_one, of_two = (
            {part.name: part.num_bytes for part in memory_parts(found).parts if part.kind is PartKind.CACHE}
            for found in (one, two)
        )
        assert of_one == {key: value * share for key, value in of_two.items()}


def test_a_model_for_which_the_usual_formula_has_nothing_has_no_such_parts() -> None:
    found = memory_parts(answered("mamba-2.8b-hf", REQUESTS[0]))
    assert found.usual == ()
    assert found.usual_bytes is None
