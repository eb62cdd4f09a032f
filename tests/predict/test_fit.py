from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.hardware import HardwareSpec, hardware
from inference_bench.facts.load import known_loaded_model, known_models, load_model
from inference_bench.facts.models import LoadedModel
from inference_bench.facts.source import Source
from inference_bench.predict.context_curve import context_curve
from inference_bench.predict.deployment import deploy
from inference_bench.predict.fit import FitRequest, cache_format, fit, loaded_weights
from inference_bench.predict.phases import roofline_table
from inference_bench.predict.placement import Split
from inference_bench.predict.plan_assumptions import plan_assumptions
from inference_bench.predict.scenario import scenario_from_mapping
from inference_bench.report.fit_json import fit_json
from inference_bench.roofline import bound
from predict.scenarios import changed
from shapes import hybrid_model, reference_model

ARTIFACT = "int4-g128,embedding=int8,head=int8"
NO_MEMORY = replace(hardware("h200"), memory_bytes=None)  # bounds alone: nothing is searched for that fits


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


# ── several devices: what one of them does of a step ───────────────────────────────────────────────


def decode_bytes(name: str, devices: int, context: int, split: Split = Split.TENSOR) -> int:
    asked = FitRequest(context_tokens=context, devices=devices, split=split)
    limit = fit(load_model(name), NO_MEMORY, asked).decode
    assert limit is not None
    return limit.num_bytes


@pytest.mark.parametrize(
    ("name", "devices", "token_bytes"),
    [
        ("deepseek-v3", 1, 61 * (512 + 64) * 2),
        ("deepseek-v3", 8, 61 * (512 + 64) * 2),  # latents are the same on every rank
        ("qwen3-30b-a3b", 4, 48 * 1 * 2 * 128 * 2),
        ("qwen3-30b-a3b", 8, 48 * 1 * 2 * 128 * 2),  # 4 key and value heads: 8 ranks hold one each
        ("llama-3.1-70b", 4, 80 * 2 * 2 * 128 * 2),
        ("llama-3.1-70b", 8, 80 * 1 * 2 * 128 * 2),
    ],
)
def test_each_rank_reads_the_cache_it_holds(name: str, devices: int, token_bytes: int) -> None:
    assert decode_bytes(name, devices, 40_000) - decode_bytes(name, devices, 20_000) == 20_000 * token_bytes


def test_latents_on_eight_ranks_take_1_77_ms_where_a_share_of_everything_would_take_1_05() -> None:
    answer = fit(load_model("deepseek-v3"), hardware("h200"), FitRequest(context_tokens=40_000, devices=8))
    assert answer.decode is not None
    assert f"{1e3 * (answer.decode.seconds or 0):.2f}" == "1.77"


@pytest.mark.parametrize("name", ["llama-3.1-70b", "qwen3-32b"])
def test_a_model_whose_heads_divide_is_shared_evenly_but_for_its_norms(name: str) -> None:
    assert 4 * decode_bytes(name, 4, 40_000) == pytest.approx(decode_bytes(name, 1, 40_000), rel=2e-4)


def test_a_step_of_a_pipeline_is_the_whole() -> None:
    assert decode_bytes("deepseek-v3", 8, 40_000, Split.PIPELINE) == decode_bytes("deepseek-v3", 1, 40_000)


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_its_bounds_are_those_of_the_roofline_for_every_model_that_both_answer(devices: int) -> None:
    request, answered = FitRequest(context_tokens=40_000, sequences=3, devices=devices), 0
    lengths = {"context_tokens": 40_000, "batch": 3, "prompt_tokens": 40_000, "devices": devices}
    for spec in known_models():
        model = known_loaded_model(spec.name)
        try:
            answer = fit(model, NO_MEMORY, request)
            table = roofline_table(model.spec, loaded_weights(model, None), cache_format(None), NO_MEMORY, **lengths)
        except RequestError:
            continue
        answered += 1
        for phase, found in zip(table.phases, (answer.prefill, answer.decode), strict=True):
            assert found is not None
            assert found == bound(phase.name, phase.flops, phase.num_bytes, table.ceiling), spec.name
        asked = context_curve(model, NO_MEMORY, request).asked
        assert answer.decode is not None
        assert 1 / (asked.sequence_tokens_per_s or 0) == pytest.approx(answer.decode.seconds, rel=1e-12), spec.name
    assert answered > 150


def test_expected_decode_does_not_begin_before_the_bound_of_one_rank() -> None:
    # every rank reads the norms whole: without them the interval of OPT-66B began 0.03 % before what one rank can read
    for name, devices in (("opt-66b", 4), ("deepseek-v3", 8), ("bloom", 8)):
        answer = fit(load_model(name), hardware("h200"), FitRequest(devices=devices, served_by="sglang"))
        assert answer.decode is not None
        assert answer.decode_expected_s is not None
        assert answer.decode_middle_s is not None
        assert (answer.decode.seconds or 0) <= answer.decode_expected_s.low <= answer.decode_middle_s


# ── vLLM's tokens in flight ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("machine", "in_flight", "sliding"),
    [
        (None, 8192, 577),  # ceil((1023 + 8192) / 16) + 1
        ("h100", 8192, 577),
        ("a100 80gb", 2048, 193),  # ceil((1023 + 2048) / 16) + 1
        ("rtx-4090", 2048, 193),
    ],
)
def test_vllms_cache_is_sized_by_the_steps_of_its_server_on_that_machine(
    machine: str | None, in_flight: int, sliding: int
) -> None:
    request = FitRequest("int4-g128", None, 32_768, 1, "vllm")
    answer = fit(load_model("gemma-3-27b"), hardware(machine) if machine else None, request)
    assert answer.placement.cache_bytes == (2048 + 6 * sliding) * 10 * 131_072
    assert fit_json(answer)["allocation"]["in_flight_tokens"] == in_flight
    assert f"{in_flight:,} tokens in flight" in " ".join(answer.assumptions)


def test_a_model_fits_a_small_card_that_has_room_for_the_steps_its_server_takes() -> None:
    request = FitRequest("int4-g128", None, 32_768, 1, "vllm")
    answer = fit(load_model("gemma-3-27b"), hardware("rtx-4090"), request)
    assert answer.fits is True
    assert answer.needed_bytes == answer.weights.total + 2_500_000_000 + 3206 * 1_310_720
    assert f"{answer.needed_bytes / 1e9:.1f}" == "23.6"


@pytest.mark.parametrize(
    ("name", "engine"), [("qwen3-8b", "vllm"), ("gemma-3-27b", "none"), ("gemma-3-27b", "llama.cpp")]
)
def test_tokens_in_flight_are_said_only_where_the_cache_depends_on_them(name: str, engine: str) -> None:
    answer = fit(load_model(name), hardware("rtx-4090"), FitRequest("int4-g128", engine=engine))
    assert "in flight" not in " ".join(answer.assumptions)


def test_vllms_steps_in_a_plan_are_those_of_the_machine_and_change_with_it() -> None:
    scenario = scenario_from_mapping(changed(engine="vllm", speed="shares", traffic={"prompt": 32_000, "output": 768}))
    small = deploy(scenario, known_loaded_model("gemma-3-27b"), hardware("rtx-4090"))
    # 32,768 tokens: 2048 blocks of full layers and six groups of sliding ones, 193 blocks each at 2,048 tokens in flight
    assert small.cache_bytes(1, prefix_cached=False) == (2048 + 6 * 193) * 1_310_720
    assert small.on(hardware("h100")).cache_bytes(1, prefix_cached=False) == (2048 + 6 * 577) * 1_310_720
    said = plan_assumptions(small, known_loaded_model("gemma-3-27b"), is_stated=True, is_expected=False, has_load=False)
    assert "2,048 tokens in flight" in " ".join(said)
