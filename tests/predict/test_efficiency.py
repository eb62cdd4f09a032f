"""The efficiency model itself: its terms, the names of its effects, how they make a step, how own rows correct it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.accounting.experts import expect_expert_fraction
from inference_bench.accounting.weight_plan import weight_plan
from inference_bench.accounting.weights import count_weights
from inference_bench.accounting.work import SequenceStep, decode_batch, prompt
from inference_bench.errors import RequestError
from inference_bench.facts.config import model_from_config
from inference_bench.facts.hardware import hardware, hardware_from_description
from inference_bench.facts.load import known_model
from inference_bench.facts.models import ModelSpec
from inference_bench.origin import Origin
from inference_bench.predict.efficiency import (
    Calibration,
    DeviceSplit,
    EngineCost,
    Familiarity,
    Observation,
    Pace,
    Phase,
    Question,
    Setting,
    calibrate,
    engine_setting,
    expect,
    expected_time,
    fitted,
    is_served,
    own_measurements,
    step_parameters,
    timed_alone,
)
from inference_bench.predict.efficiency.bounds import bound_of, bound_of_step
from inference_bench.predict.efficiency.calibration import _solve
from inference_bench.predict.efficiency.effects import GROUP_OF_TERM, serving_effects, term_effects
from inference_bench.predict.efficiency.expectation import answer, familiarity_of, floored, step_time
from inference_bench.predict.efficiency.parameters import Parameters, from_mapping, to_mapping
from inference_bench.predict.efficiency.question import shape
from inference_bench.predict.efficiency.terms import TERMS, StepTerms, rates, step_terms
from inference_bench.predict.step_cost import PeakShares, ServedModel, StretchedCost, first_token_s, verifying
from inference_bench.roofline import roof
from shapes import HERE, cache_in

TINY: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 256,
    "tie_word_embeddings": False,
    "model_type": "llama",
}
# one byte and one operation a microsecond, so that times in microseconds are counts
SLOW = hardware_from_description(
    {"name": "slow", "memory": "24 GB", "bandwidth": "1 MB/s", "peak": {"bf16": "1 MFLOPS"}, "vendor": "nvidia"},
    "a test",
)
NOTHING = Parameters({}, 1.0)


def served(model: ModelSpec, weights: str = "bf16") -> ServedModel:
    return ServedModel(model, count_weights(model, weight_plan(weights)), cache_in("bf16"))


def tiny(**changes: Any) -> Setting:
    return Setting(served(model_from_config(TINY, "tiny", HERE)), SLOW, "vllm", **changes)


def terms(setting: Setting, sequences: tuple[SequenceStep, ...], *, is_decode: bool = True) -> dict[str, float]:
    limits = rates(setting)
    assert limits is not None
    return dict(zip(TERMS, step_terms(setting, limits, sequences, is_decode=is_decode).values, strict=True))


def setting_of(model: str, machine: str, engine: str, weights: str = "bf16", **changes: Any) -> Setting:
    return Setting(served(known_model(model), weights), hardware(machine), engine, **changes)


# ── terms ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_terms_of_a_decode_step_are_bytes_over_bandwidth_and_operations_over_the_peak() -> None:
    found = terms(tiny(), decode_batch(10, 3))
    # two layers of 12,288 + 24,576 weights, a head of 16,384, norms of 320, three rows of 64; two bytes each
    assert found["weights"] == pytest.approx((2 * (12288 + 24576) + 16384 + 320 + 3 * 64) * 2e-6)
    # 2 · 2 heads · 16 · 2 bytes · 2 layers = 256 bytes a position: ten read and one written by each of three
    assert found["cache"] == pytest.approx(3 * (10 + 1) * 256e-6)
    assert found["products"] == pytest.approx(2 * 3 * (2 * (12288 + 24576) + 16384 + 320) * 1e-6)
    assert found["attention"] == pytest.approx(4 * 4 * 16 * 10 * 2 * 3 * 1e-6)
    assert (found["layers"], found["step"], found["sequences"]) == (2e-6, 1e-3, 3e-6)
    for name in ("experts", "expert_products", "expert_layers", "all_reduce", "link", "threads"):
        assert found[name] == 0


def test_tensor_ranks_divide_weights_and_heads_but_the_cache_only_by_its_heads() -> None:
    one, four = terms(tiny(), decode_batch(10, 3)), terms(tiny(tensor=4, devices=4), decode_batch(10, 3))
    for name in ("weights", "products", "attention"):
        assert four[name] == pytest.approx(one[name] / 4)
    assert four["cache"] == pytest.approx(one["cache"] / 2)  # there are two key-value heads
    # two messages a layer to log2(4) partners; 2 · 3/4 of 2 · 2 · 3 · 64 values of two bytes over PCIe's 25 GB/s
    assert four["all_reduce"] == pytest.approx(2 * 2 * 2 * 1e-6)
    assert four["link"] == pytest.approx(1.5 * 2 * 2 * 3 * 64 * 2 / 25e9)


def test_layers_dealt_out_over_devices_speed_up_nothing() -> None:
    dealt = terms(tiny(devices=2, split=DeviceSplit.LAYER), decode_batch(10, 3))
    assert dealt == terms(tiny(), decode_batch(10, 3))


def test_latents_are_held_whole_by_every_rank() -> None:
    one, eight = (setting_of("deepseek-v3", "h200", "sglang", tensor=ranks, devices=ranks) for ranks in (1, 8))
    step = decode_batch(4096, 4)
    assert terms(eight, step)["cache"] == pytest.approx(terms(one, step)["cache"])
    assert terms(eight, step)["weights"] == pytest.approx(terms(one, step)["weights"] / 8)


def test_experts_are_those_expected_when_all_replicas_tokens_meet() -> None:
    apart = setting_of("deepseek-v3", "h200", "sglang", tensor=1, replicas=8, devices=8)
    step = decode_batch(4096, 64)
    model, held = apart.served.model, apart.served.weights.experts
    share = expect_expert_fraction(model, 64, apart.served.expert_correlation)
    assert terms(apart, step)["experts"] == pytest.approx(held * share / 8 / hardware("h200").bandwidth_bytes_per_s)
    assert terms(apart, step)["expert_layers"] > 0


def test_a_cpu_with_half_its_cores_at_work_has_twice_the_thread_term() -> None:
    whole = setting_of("llama-3.1-8b", "Ryzen 9 7950X", "llama.cpp")
    step = decode_batch(512, 1)
    assert terms(replace(whole, threads_fraction=0.5), step)["threads"] == pytest.approx(
        2 * terms(whole, step)["threads"]
    )


def test_a_machine_without_a_bandwidth_or_a_peak_has_no_rates() -> None:
    assert rates(replace(tiny(), machine=replace(SLOW, peak_flops_per_s={}))) is None
    blind = replace(tiny(), machine=replace(SLOW, bandwidth_bytes_per_s=None))
    assert rates(blind) is None
    with pytest.raises(RequestError, match="slow"):
        EngineCost(blind, NOTHING).step_s(decode_batch(10, 1))
    with pytest.raises(RequestError, match="slow"):
        expect(Question(blind, Phase.DECODE, 1, 10))


# ── effects and steps ──────────────────────────────────────────────────────────────────────────────


def test_the_names_of_effects_say_engine_pool_format_and_phase() -> None:
    names = term_effects(setting_of("llama-3.1-8b", "h100", "vllm"), "weights", is_pcie=False, is_decode=True)
    assert {"weights|base", "bandwidth|engine:vllm", "bandwidth|pool:nvidia-hbm", "bandwidth|format:16bit"} <= set(
        names
    )
    products = term_effects(setting_of("llama-3.1-8b", "h100", "vllm"), "products", is_pcie=False, is_decode=False)
    assert {"compute-prefill|engine:vllm", "compute-prefill|chip:nvidia-hbm/hopper"} <= set(products)
    serving = serving_effects(setting_of("llama-3.1-8b", "h100", "vllm"), "interference", has_experts=False)
    assert serving == ("interference|base", "interference|engine:vllm", "interference|experts:False")


def test_every_term_has_a_group_and_no_effect_twice() -> None:
    assert set(GROUP_OF_TERM) == set(TERMS)
    for term in TERMS:
        for is_decode in (True, False):
            names = term_effects(tiny(), term, is_pcie=True, is_decode=is_decode)
            assert len(names) == len(set(names))


def test_with_large_factors_a_norm_of_one_is_the_plain_sum_and_a_large_one_the_longer_arm() -> None:
    values = StepTerms((3.0, 0, 1.0, 2.0, 0, 1.0, *(0.0,) * (len(TERMS) - 6)), is_decode=True)
    eightfold = {f"{term}|base": math.log(8) for term in ("weights", "cache", "products", "attention")}
    for norm, arms, exact in ((1.0, 8 * (4 + 3), 1e-4), (200.0, 8 * 4, 1e-3), (2.0, 8 * 5, 1e-4)):  # 3, 4, 5
        assert step_time(tiny(), True, values, Parameters(eightfold, norm), {}).seconds == pytest.approx(
            arms, rel=exact
        )
    slower = step_time(tiny(), True, values, Parameters(eightfold, 1.0), {"bandwidth": math.log(2)})
    assert slower.seconds == pytest.approx(8 * (2 * 4 + 3), rel=1e-4)


def test_no_effect_makes_bytes_or_flops_faster_than_the_peak_and_overheads_may_vanish() -> None:
    assert floored(-50.0) == pytest.approx((1.0, 0.0))
    assert floored(0.0) == pytest.approx((2 ** (1 / 6), 0.5))
    assert floored(3.0)[0] == pytest.approx(math.e**3, rel=1e-6)
    values = StepTerms((3.0, 0, 0, 2.0, *(0.0,) * (len(TERMS) - 5), 1.0), is_decode=True)
    tiny_factors = {f"{term}|base": -50.0 for term in ("weights", "products", "batched_experts")}
    assert step_time(tiny(), True, values, Parameters(tiny_factors, 200.0), {}).seconds == pytest.approx(3.0)


def test_the_share_of_each_group_is_the_slope_of_the_logarithm() -> None:
    limits = rates(tiny())
    assert limits is not None
    values, known = step_terms(tiny(), limits, decode_batch(10, 3), is_decode=True), fitted().alone
    found = step_time(tiny(), True, values, known, {})
    for group in ("bandwidth", "compute/decode", "overhead", "sequences"):
        small = step_time(tiny(), True, values, known, {group: 1e-6}).seconds
        assert (small - found.seconds) / 1e-6 == pytest.approx(found.by_group[group], rel=1e-3)


@settings(deadline=None, max_examples=40)
@given(
    engine=st.sampled_from(["vllm", "llama.cpp", "sglang", "an engine nobody has heard of"]),
    machine=st.sampled_from(["h100", "rtx-4090", "m2 max", "b200", "Ryzen 9 7950X"]),
    context=st.integers(2, 60_000),
    batch=st.integers(1, 300),
    offset=st.floats(-1, 1),
)
def test_a_cost_is_the_step_it_stands_for_and_a_larger_batch_is_never_shorter(
    engine: str, machine: str, context: int, batch: int, offset: float
) -> None:
    setting, offsets = setting_of("llama-3.1-8b", machine, engine), {"bandwidth": offset}
    cost = EngineCost(setting, fitted().alone, offsets)
    found = cost.step_s(decode_batch(context, batch))
    asked = shape(Question(setting, Phase.DECODE, batch, context))
    assert found == pytest.approx(answer(asked, fitted().alone, offsets).seconds, rel=1e-12)
    assert cost.step_s(decode_batch(context, batch + 1)) >= found
    assert cost.step_s(decode_batch(context + 1, batch)) >= found
    prefill = answer(shape(Question(setting, Phase.PREFILL, 1, context)), fitted().alone, offsets).seconds
    assert cost.step_s(prompt(context)) == pytest.approx(prefill, rel=1e-12)


def test_a_step_that_verifies_a_draft_is_a_decode_step() -> None:
    cost = EngineCost(setting_of("llama-3.1-8b", "h100", "vllm"), fitted().serving, in_service=True)
    one, five = (cost.step_s((SequenceStep(4000, new, 1),)) for new in (1, 5))
    assert one <= five < 1.5 * one


@pytest.mark.parametrize(
    ("model", "machine", "engine", "weights"),
    [
        ("llama-3.1-8b", "rtx-4090", "llama.cpp", "q4_k_m"),
        ("llama-3.1-8b", "h100", "vllm", "bf16"),
        ("llama-2-7b", "a100-sxm4-80gb", "tensorrt-llm", "fp16"),
        ("llama-2-7b", "rtx-4090", "exllamav2", "int4-g128"),
    ],
)
def test_what_is_expected_of_a_known_engine_lies_above_the_bound(
    model: str, machine: str, engine: str, weights: str
) -> None:
    setting = setting_of(model, machine, engine, weights)
    assert any(familiarity_of(setting, fitted(), phase) is not Familiarity.NEW for phase in Phase)
    least = PeakShares(setting.served, roof(setting.machine, setting.served.weights.linear_format))
    decode = expect(Question(setting, Phase.DECODE, 1, 1024))
    assert decode.seconds > least.step_s(decode_batch(1024, 1))
    assert expect(Question(setting, Phase.PREFILL, 1, 2048)).seconds > 0.5 * least.step_s(prompt(2048))


# ── what ships ─────────────────────────────────────────────────────────────────────────────────────


def test_what_ships_reads_back_as_it_was_written() -> None:
    assert from_mapping(to_mapping(fitted())) == fitted()


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("familiarity", list(Familiarity))
@pytest.mark.parametrize("calibration", list(Calibration))
def test_every_phase_has_an_interval_of_some_width(
    phase: Phase, familiarity: Familiarity, calibration: Calibration
) -> None:
    assert 0 < fitted().width(phase.value, familiarity, calibration) < 3


def test_served_engines_take_the_parameters_of_servers() -> None:
    known = fitted()
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        assert is_served(engine, known)
        setting = setting_of("llama-3.1-8b", "h100", engine)
        assert step_parameters(setting, Phase.DECODE, known, Pace.IN_SERVICE) == (known.serving, True)
    for engine in ("llama.cpp", "exllamav2", "nobody"):
        setting = setting_of("llama-3.1-8b", "h100", engine)
        assert step_parameters(setting, Phase.DECODE, known, Pace.IN_SERVICE) == (known.alone, False)
        assert step_parameters(setting, Phase.SERVING_TPOT, known) == (known.serving, True)


def test_an_engine_that_was_only_measured_in_service_is_known_from_there() -> None:
    known = fitted()
    assert timed_alone("sglang", "nvidia-hbm", known).alone is known.serving
    assert timed_alone("sglang", "apple", known) is known  # of which servers say nothing
    assert timed_alone("vllm", "nvidia-hbm", known) is known
    assert timed_alone("llama.cpp", "nvidia-hbm", known) is known
    assert is_served("vllm", known, "nvidia-hbm")
    assert not is_served("vllm", known, "cpu")


@pytest.mark.parametrize("phase", list(Phase))
def test_an_interval_lies_around_its_middle(phase: Phase) -> None:
    found = expect(Question(setting_of("llama-3.1-8b", "h100", "vllm"), phase, 8, 1000, 200))
    assert 0 < found.low_s < found.seconds < found.high_s
    least = bound_of(shape(Question(setting_of("llama-3.1-8b", "h100", "vllm"), phase, 8, 1000, 200)))
    assert found.low_s == pytest.approx(max(found.seconds**2 / found.high_s, least))


def test_the_bound_of_a_phase_is_the_longer_arm_of_each_step_as_often_as_it_is_paid() -> None:
    def bound(phase: Phase, batch: int = 2, output: int = 5) -> float:
        return bound_of(shape(Question(tiny(), phase, batch, 10, output)))

    decode, prefill = (terms(tiny(), steps, is_decode=is_decode) for steps, is_decode in (
        (decode_batch(12, 2), True), ((SequenceStep(0, 10, 2),), False)))  # fmt: skip
    step = max(decode["weights"] + decode["cache"], decode["products"] + decode["attention"])
    prompts = max(prefill["weights"] + prefill["cache"], prefill["products"] + prefill["attention"])
    assert bound(Phase.DECODE) == bound(Phase.SERVING_TPOT) == pytest.approx(step)
    assert bound(Phase.PREFILL) == pytest.approx(prompts)
    assert bound(Phase.E2E) == pytest.approx(prompts + 4 * step)
    assert bound(Phase.SERVING_TTFT, batch=9) == pytest.approx(bound(Phase.PREFILL, batch=1))
    crowded = shape(Question(tiny(), Phase.E2E, 100_000, 9_000, 1_000))
    assert crowded.waves > 1
    assert crowded.decode is not None
    assert crowded.prefill is not None
    steps = 999 * bound_of_step(crowded.decode)  # waiting for room only adds, and how much is a guess
    assert bound_of(crowded) == pytest.approx(bound_of_step(crowded.prefill) + steps)


@settings(deadline=None, max_examples=60)
@given(
    model=st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3"]),
    engine=st.sampled_from(["vllm", "llama.cpp", "tensorrt-llm", "an engine nobody has heard of"]),
    machine=st.sampled_from(["h100", "rtx-4090", "m2 max", "Ryzen 9 7950X"]),
    phase=st.sampled_from(list(Phase)),
    batch=st.integers(1, 2000),
    lengths=st.tuples(st.integers(1, 60_000), st.integers(1, 3000)),
    devices=st.sampled_from([1, 2, 8]),
    offset=st.floats(-4, 1),
    calibration=st.sampled_from(list(Calibration)),
)
def test_nothing_is_expected_to_be_faster_than_its_bound(
    model: str,
    engine: str,
    machine: str,
    phase: Phase,
    batch: int,
    lengths: tuple[int, int],
    devices: int,
    offset: float,
    calibration: Calibration,
) -> None:
    setting = setting_of(model, machine, engine, tensor=devices, devices=devices)
    question = Question(setting, phase, batch, *lengths)
    form, offsets = shape(question), {"bandwidth": offset, "compute/decode": offset, "compute/prefill": offset}
    if phase is not Phase.SERVING_TTFT:  # a server may read a prompt in less than its own time, by what others left it
        for known in (fitted().alone, fitted().serving, NOTHING):
            assert answer(form, known, offsets).seconds >= bound_of(form) * (1 - 1e-12)
    found = expect(question, None, offsets, calibration)
    assert bound_of(form) <= found.low_s <= found.seconds <= found.high_s
    cost = EngineCost(setting, fitted().alone, offsets)
    for steps in (decode_batch(lengths[0] + 1, batch), prompt(lengths[0])):
        fast = StretchedCost(cost, 0.1, 0.1, cost.bound_s).step_s(steps)
        assert cost.bound_s(steps) <= fast <= cost.step_s(steps) * (1 + 1e-12)


def test_an_unknown_engine_falls_back_on_its_pool_and_says_it_is_new() -> None:
    known, unknown = (setting_of("llama-3.1-8b", "h100", name) for name in ("vllm", "nobody"))
    assert all(familiarity_of(unknown, fitted(), phase) is Familiarity.NEW for phase in Phase)
    asked = [Question(one, Phase.DECODE, 1, 1024) for one in (known, unknown)]
    assert fitted().width("decode", Familiarity.NEW, Calibration.NONE) > 0
    assert 0.3 < expect(asked[0]).seconds / expect(asked[1]).seconds < 3


def test_a_measured_machine_of_no_kind_is_a_processor() -> None:
    here = replace(SLOW, origin=Origin.MEASURED, vendor=None)
    assert engine_setting(tiny().served, here, "llama.cpp").pool == "cpu"
    assert engine_setting(tiny().served, SLOW, "llama.cpp").pool != "cpu"


# ── own rows ───────────────────────────────────────────────────────────────────────────────────────


def test_a_system_of_equations_is_solved() -> None:
    # x + 2y = 5 and 2x + 8y = 18 at x = 1, y = 2; three more by hand
    assert _solve([[1.0, 2.0], [2.0, 8.0]], [5.0, 18.0]) == pytest.approx([1, 2])
    assert _solve([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]], [6.0, 10, 8]) == pytest.approx([1, 2, 3])


def asked_of(engine: str = "llama.cpp", phase: Phase = Phase.DECODE, batch: int = 1) -> Question:
    return Question(setting_of("llama-3.1-8b", "rtx-4090", engine, "q4_k_m"), phase, batch, 1024)


def test_no_rows_change_nothing() -> None:
    assert calibrate([]) == {}
    assert (
        own_measurements("vllm", "mine", [], "nothing").calibration(asked_of().setting, Phase.DECODE)
        is Calibration.NONE
    )


@settings(deadline=None, max_examples=25)
@given(factor=st.floats(0.8, 1.5), phase=st.sampled_from([Phase.DECODE, Phase.PREFILL]))
def test_a_row_is_reproduced_within_its_noise(factor: float, phase: Phase) -> None:
    question = asked_of(phase=phase)
    seconds = expect(question).seconds * factor
    found = expect(question, None, calibrate([Observation(question, seconds)]), Calibration.ONE)
    assert found.seconds == pytest.approx(seconds, rel=0.15)
    assert found.low_s < seconds < found.high_s


def test_a_row_as_expected_moves_nothing() -> None:
    question = asked_of()
    assert calibrate([Observation(question, expect(question).seconds)]) == {}


def test_the_longer_a_row_took_the_more_is_expected_and_bandwidth_moves() -> None:
    question = asked_of()
    middle = expect(question).seconds
    offsets = [calibrate([Observation(question, middle * factor)]) for factor in (0.8, 0.9, 1.1, 1.3, 1.6)]
    moved = [found["bandwidth"] for found in offsets]
    assert moved == sorted(moved)
    slower = offsets[2:]  # a faster row meets the floor of bandwidth, and overhead gives way
    assert all(found["bandwidth"] > 0.05 for found in slower)
    after = [expect(asked_of(batch=4), None, found).seconds for found in offsets]
    assert after == sorted(after)


def test_several_is_a_row_of_the_setting_itself_and_one_any_row_of_the_phase() -> None:
    question = asked_of()
    setting, other = question.setting, setting_of("qwen3-8b", "rtx-4090", "llama.cpp", "q4_k_m")
    rows = [Observation(question, expect(question).seconds * 1.2)] * 4
    found = own_measurements("llama.cpp", "RTX 4090", rows, "mine.csv")
    assert found.calibration(setting, Phase.DECODE) is Calibration.SEVERAL
    others = (other, replace(setting, devices=2, tensor=2), setting_of("llama-3.1-8b", "rtx-4090", "llama.cpp", "q8_0"))
    for elsewhere in others:
        assert found.calibration(elsewhere, Phase.DECODE) is Calibration.ONE
    for phase in (Phase.PREFILL, Phase.E2E, Phase.SERVING_TPOT, Phase.SERVING_TTFT):
        assert found.calibration(setting, phase) is Calibration.NONE
    said = found.describe(setting)
    assert said.startswith("4 own row(s) of llama.cpp on RTX 4090 (mine.csv)")
    assert "bandwidth efficiency ×0.8" in said


def test_the_rows_of_a_setting_correct_it_beyond_what_all_rows_say() -> None:
    question = asked_of()
    other = replace(question, setting=setting_of("qwen3-8b", "rtx-4090", "llama.cpp", "q4_k_m"))
    rows = [Observation(one, expect(one).seconds * factor) for one, factor in ((question, 1.5), (other, 1.0))]
    found = own_measurements("llama.cpp", "RTX 4090", rows, "mine.csv")
    shared = setting_of("llama-3.1-70b", "rtx-4090", "llama.cpp", "q4_k_m")
    assert found.offsets(shared) == found.alone
    near, all_rows = (
        expect(question, None, offsets).seconds for offsets in (found.offsets(question.setting), found.alone)
    )
    assert all_rows < near < rows[0].seconds


@pytest.mark.parametrize("pace", list(Pace))
@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp"])
def test_a_row_as_expected_moves_nothing_at_either_pace(engine: str, phase: Phase, pace: Pace) -> None:
    question = Question(setting_of("llama-3.1-8b", "h100", engine), phase, 8, 2048, 200)
    seconds = expected_time(shape(question), fitted(), pace=pace).seconds
    assert calibrate([Observation(question, seconds)], pace=pace) == {}
    least = 1.1 if phase is Phase.SERVING_TTFT else 1.3  # how long a first token waits differs from run to run
    slower = calibrate([Observation(question, 2 * seconds)], pace=pace)
    assert expected_time(shape(question), fitted(), slower, pace).seconds > least * seconds


def test_a_first_token_of_a_server_is_what_servers_show_at_a_concurrency_of_one() -> None:
    for engine in ("vllm", "sglang"):
        setting = setting_of("llama-3.1-8b", "h100", engine)
        cost = EngineCost(setting, fitted().serving, in_service=True)
        asked = expect(Question(setting, Phase.SERVING_TTFT, 1, 3000, 300, 1000)).seconds
        assert first_token_s(cost, 4000, 300, 1000) == pytest.approx(asked)
        assert asked > cost.step_s(prompt(4000, 1000)) + 4 * cost.step_s(decode_batch(4150, 1))
    alone = EngineCost(setting_of("llama-3.1-8b", "h100", "llama.cpp"), fitted().alone)
    assert first_token_s(alone, 4000, 300, 1000) == alone.step_s(prompt(4000, 1000))


def test_verifying_a_draft_computes_logits_at_every_position() -> None:
    cost = EngineCost(setting_of("qwen3-8b", "h100", "vllm"), fitted().serving, in_service=True)
    for steps, costs_more in (((SequenceStep(2000, 5, 256),), True), (decode_batch(2000, 256), False)):
        assert (verifying(cost).step_s(steps) > cost.step_s(steps)) == costs_more
    stretched = StretchedCost(cost, 2.0, 2.0)
    assert verifying(stretched).step_s(steps) == pytest.approx(2 * cost.step_s(steps))
