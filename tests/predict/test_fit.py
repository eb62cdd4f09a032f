from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.hardware import HardwareSpec, hardware
from inference_bench.facts.load import load_model
from inference_bench.facts.models import LoadedModel
from inference_bench.facts.source import Source
from inference_bench.predict.fit import FitRequest, cache_format, fit
from shapes import hybrid_model, reference_model

ARTIFACT = "int4-g128,embedding=int8,head=int8"


def card(memory_bytes: int | None) -> HardwareSpec:
    return HardwareSpec("a card", memory_bytes, 1e12, {"bf16": 165e12}, Source("a test", "2026-11-29"))


def test_the_reference_case_fits_24_gb_with_the_published_number_of_sequences() -> None:
    # 24 GB - 5.53 GB - 2.5 GB over 6000 · 147456 bytes: 18 sequences
    answer = fit(LoadedModel(reference_model()), card(24 * 10**9), FitRequest(ARTIFACT, "bf16", 6000, 18))
    assert answer.fits is True
    assert answer.max_sequences == 18
    assert answer.needed_bytes == 5_528_428_544 + 2_500_000_000 + 18 * 884_736_000
    assert answer.headroom_bytes == 24 * 10**9 - answer.needed_bytes


def test_the_true_cache_of_a_hybrid_fits_where_the_usual_formula_says_no() -> None:
    # between the true 0.518 GB and the 1.745 GB of 52 full layers
    weights = fit(LoadedModel(hybrid_model()), None, FitRequest("bf16", overhead_bytes=0)).weights.total
    answer = fit(
        LoadedModel(hybrid_model()), card(weights + 10**9), FitRequest("bf16", "fp16", 32768, overhead_bytes=0)
    )
    assert (answer.fits, answer.naive_fits) == (True, False)
    assert answer.cache.num_bytes == 517_996_544


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.integers(10**9, 10**11))
def test_the_longest_context_fits_and_one_token_more_does_not(sequences: int, memory: int) -> None:
    model = LoadedModel(hybrid_model())
    answer = fit(model, card(memory), FitRequest("int4-g128", sequences=sequences, overhead_bytes=0))
    longest = answer.max_context_tokens
    assert longest is not None
    if longest:
        assert fit(model, card(memory), FitRequest("int4-g128", None, longest, sequences, overhead_bytes=0)).fits
    if longest < 131_072:
        assert not fit(
            model, card(memory), FitRequest("int4-g128", None, longest + 1, sequences, overhead_bytes=0)
        ).fits


@pytest.mark.parametrize("engine", ["none", "llama.cpp", "vllm"])
def test_the_most_sequences_fit_and_one_more_does_not_by_each_engines_own_count(engine: str) -> None:
    model, machine = load_model("qwen3-8b"), hardware("rtx-4090")
    most = fit(model, machine, FitRequest("int4-g128", None, 5000, 1, engine)).max_sequences
    assert most is not None
    assert most > 1
    assert fit(model, machine, FitRequest("int4-g128", None, 5000, most, engine)).fits
    assert not fit(model, machine, FitRequest("int4-g128", None, 5000, most + 1, engine)).fits


def test_without_a_machine_there_is_a_need_and_no_verdict() -> None:
    answer = fit(load_model("qwen3-8b"))
    assert answer.needed_bytes > 16 * 10**9
    assert (answer.fits, answer.headroom_bytes, answer.decode, answer.max_sequences) == (None, None, None, None)


def test_unknown_memory_is_unknown_and_not_zero() -> None:
    answer = fit(load_model("qwen3-8b"), card(None))
    assert (answer.fits, answer.max_context_tokens) == (None, None)
    assert answer.decode is not None


def test_expected_ranges_lie_above_the_bound() -> None:
    answer = fit(load_model("qwen3-8b"), hardware("h100"), FitRequest(context_tokens=4096, sequences=4))
    for limit, expected in ((answer.decode, answer.decode_expected_s), (answer.prefill, answer.prefill_expected_s)):
        assert limit is not None
        assert expected is not None
        assert limit.seconds is not None
        assert limit.seconds < expected.low < expected.high
    assert answer.decode_expected_s is not None
    assert answer.decode is not None
    assert answer.decode_expected_s.high == pytest.approx((answer.decode.seconds or 0) / 0.7)


def test_what_was_assumed_is_said() -> None:
    said = " ".join(fit(load_model("qwen3-8b"), hardware("h100")).assumptions)
    for part in ("overhead", "16 bits", "context not given", "70-90 %", "bf16 dense peak"):
        assert part in said


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (FitRequest(context_tokens=0), RequestError),
        (FitRequest(sequences=0), RequestError),
        (FitRequest(engine="tgi"), RequestError),
        (FitRequest(weights="int5"), UnknownNameError),
        (FitRequest(cache="q9"), UnknownNameError),
        (FitRequest(compute_format="fp7"), RequestError),
    ],
)
def test_impossible_requests_are_refused(request_: FitRequest, error: type[Exception]) -> None:
    with pytest.raises(error):
        fit(load_model("qwen3-8b"), hardware("h100"), request_)


def test_a_billion_sequences_are_counted_without_building_them() -> None:
    answer = fit(load_model("qwen3-8b"), hardware("h100"), FitRequest(sequences=10**9))
    assert answer.fits is False
    assert answer.decode is not None


def test_keys_and_values_may_be_stored_apart() -> None:
    assert cache_format("q8_0/fp16").name == "q8_0/fp16"
    assert cache_format(None).name == "fp16"
