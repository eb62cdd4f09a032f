"""The curve over contexts: the same counts and bounds as fit at the context asked for, and known figures elsewhere."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.hardware import HardwareSpec, hardware
from inference_bench.facts.load import known_loaded_model
from inference_bench.facts.models import LoadedModel
from inference_bench.facts.source import Source
from inference_bench.predict.context_curve import ContextCurve, context_curve
from inference_bench.predict.fit import FitRequest, fit
from inference_bench.predict.placement import Split
from shapes import hybrid_model

MODELS = (
    "gemma-3-27b", "Qwen3-Next-80B-A3B-Instruct", "deepseek-v3", "mamba-2.8b-hf", "qwen3-8b", "gpt-oss-20b",
    "DeepSeek-V4-Pro", "Llama-3.2-11B-Vision-Instruct",
)  # fmt: skip


def curve(name: str, request: FitRequest, machine: HardwareSpec | None = None) -> ContextCurve:
    return context_curve(known_loaded_model(name), machine or hardware("h100"), request)


# neither engine's rule counts compressed attention, and llama.cpp's no encoder
NOT_COUNTED = {
    ("DeepSeek-V4-Pro", "vllm"),
    ("DeepSeek-V4-Pro", "llama.cpp"),
    ("Llama-3.2-11B-Vision-Instruct", "llama.cpp"),
}
CASES = [
    (name, engine) for name in MODELS for engine in ("none", "vllm", "llama.cpp") if (name, engine) not in NOT_COUNTED
]


@pytest.mark.parametrize(("name", "engine"), CASES)
def test_at_the_context_asked_for_it_says_what_fit_says(name: str, engine: str) -> None:
    model, machine = known_loaded_model(name), hardware("h100")
    request = FitRequest(None, None, 5000, 3, engine)
    answer, found = fit(model, machine, request), context_curve(model, machine, request)
    assert found.asked.context_tokens == 5000
    assert found.asked.cache_bytes == answer.cache.total_bytes > 0
    assert found.asked.usual_bytes == answer.cache.naive_bytes
    assert answer.decode is not None
    assert answer.decode.seconds is not None
    assert found.asked.sequence_tokens_per_s == pytest.approx(1 / answer.decode.seconds, rel=1e-12)
    assert answer.machine is not None
    assert found.free_bytes == answer.machine.memory_bytes - answer.weights.total - answer.overhead_bytes  # type: ignore[operator]


@pytest.mark.parametrize("split", list(Split))
@pytest.mark.parametrize("name", MODELS[:3])
def test_of_several_devices_it_is_the_fullest_as_fit_places_it(name: str, split: Split) -> None:
    model, machine = known_loaded_model(name), hardware("b200")
    request = FitRequest(None, None, 5000, 3, devices=4, split=split)
    answer, found = fit(model, machine, request), context_curve(model, machine, request)
    assert found.asked.cache_bytes == answer.placement.cache_bytes
    assert found.weight_bytes == answer.placement.weight_bytes
    assert answer.naive_needed_bytes is not None
    usual = answer.naive_needed_bytes - answer.placement.weight_bytes - answer.overhead_bytes
    assert found.asked.usual_bytes == usual
    assert answer.decode is not None
    assert found.asked.sequence_tokens_per_s == pytest.approx(1 / (answer.decode.seconds or 0), rel=1e-12)


def test_the_cache_of_a_hybrid_is_the_published_one_and_the_usual_formula_is_5_33_times_as_much() -> None:
    # 10 full and 52 sliding layers of 1024: (10 · 32768 + 52 · 1024) · 8192 bytes; 62 · 32768 · 8192 by the usual formula
    points = {point.context_tokens: point for point in curve("gemma-3-27b", FitRequest()).points}
    assert points[32768].cache_bytes == (10 * 32768 + 52 * 1024) * 8192 == 3_120_562_176
    assert points[32768].usual_bytes == 62 * 32768 * 8192
    assert points[1024].cache_bytes == points[1024].usual_bytes
    assert points[131072].cache_bytes == (10 * 131072 + 52 * 1024) * 8192


def test_latents_take_70272_bytes_a_token() -> None:
    for point in curve("deepseek-v3", FitRequest(sequences=2)).points:
        assert point.cache_bytes == 2 * 70_272 * point.context_tokens


def test_a_state_is_as_large_at_any_context_and_the_usual_formula_has_nothing_to_say() -> None:
    found = curve("mamba-2.8b-hf", FitRequest())
    assert len(found.points) > 5
    assert len({point.cache_bytes for point in found.points}) == 1
    assert {point.usual_bytes for point in found.points} == {None}
    assert len({point.sequence_tokens_per_s for point in found.points}) == 1


@pytest.mark.parametrize(("name", "last"), [("qwen3-8b", 40960), ("deepseek-v3", 163840), ("gpt2", 1024)])
def test_contexts_are_powers_of_two_to_the_limit_of_the_model_and_the_one_asked_for(name: str, last: int) -> None:
    found = curve(name, FitRequest(context_tokens=777))
    contexts = [point.context_tokens for point in found.points]
    assert contexts == sorted(set(contexts))
    assert contexts[-1] == last == found.longest_tokens
    assert {context for context in contexts if context & (context - 1)} <= {777, last}
    powers = [context for context in contexts if context & (context - 1) == 0]
    assert len(powers) >= 5
    assert all(after == 2 * before for before, after in itertools.pairwise(powers))


def test_a_model_without_a_limit_is_drawn_to_a_million_and_a_longer_context_is_still_there() -> None:
    model = LoadedModel(replace(hybrid_model(), max_position_embeddings=None))
    assert context_curve(model).points[-1].context_tokens == 1 << 20
    asked = context_curve(model, None, FitRequest(context_tokens=3_000_000))
    assert [point.context_tokens for point in asked.points][-2:] == [1 << 20, 3_000_000]


def test_the_cache_grows_and_the_pace_falls_with_the_context() -> None:
    for name in MODELS:
        points = curve(name, FitRequest(sequences=8)).points
        for one, other in itertools.pairwise(points):
            assert one.cache_bytes <= other.cache_bytes
            assert (one.sequence_tokens_per_s or 0) >= (other.sequence_tokens_per_s or 0) > 0


def test_what_is_not_known_is_not_said() -> None:
    alone = context_curve(known_loaded_model("qwen3-8b"))
    assert (alone.machine, alone.memory_bytes, alone.free_bytes) == (None, None, None)
    assert {point.sequence_tokens_per_s for point in alone.points} == {None}
    bare = HardwareSpec("a box", None, None, {}, Source("a test", "2026-11-29"))
    found = curve("qwen3-8b", FitRequest(), bare)
    assert found.machine == "a box"
    assert found.free_bytes is None
    assert {point.sequence_tokens_per_s for point in found.points} == {None}


@pytest.mark.parametrize("request_", [FitRequest(context_tokens=0), FitRequest(sequences=0), FitRequest("nonesuch")])
def test_what_fit_refuses_is_refused(request_: FitRequest) -> None:
    with pytest.raises((RequestError, UnknownNameError), match=r"at least 1|nonesuch"):
        context_curve(known_loaded_model("qwen3-8b"), None, request_)


def test_weights_that_were_counted_before_give_the_same_curve() -> None:
    model, request = known_loaded_model("deepseek-v3"), FitRequest("fp8", context_tokens=9000, sequences=4)
    answer = fit(model, hardware("h200"), request)
    assert context_curve(model, hardware("h200"), request, answer.weights) == context_curve(
        model, hardware("h200"), request
    )
