"""The roofline table: phases, operations, all-reduce, intensities and the batch at which decode turns."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.accounting.communication import count_all_reduce_bytes, count_all_reduces
from inference_bench.accounting.parallel import rank_model, rank_weights, tensor_parallel_share
from inference_bench.accounting.step_operations import itemise_step
from inference_bench.accounting.weights import WeightCount, count_loaded_weights, count_weights, weight_plan
from inference_bench.accounting.work import (
    SequenceStep,
    count_step_work,
    decode_attention_intensity,
    decode_batch,
    matrix_intensity,
    prompt,
)
from inference_bench.errors import RequestError
from inference_bench.facts.hardware import HardwareSpec, hardware, hardware_from_description
from inference_bench.facts.load import known_model
from inference_bench.facts.models import LoadedModel, ModelSpec
from inference_bench.predict.intensities import balance_batch, intensities
from inference_bench.predict.phases import RooflineTable, rank_bound, roofline_table
from inference_bench.predict.step_cost import ServedModel
from inference_bench.roofline import LimitedBy, Roof
from shapes import cache_in, golden, hybrid_model, reference_model

MODELS = ("qwen3-8b", "gemma-3-27b", "qwen3-30b-a3b", "deepseek-v3", "Qwen3-Next-80B-A3B-Instruct")


def loaded(name: str) -> tuple[ModelSpec, WeightCount]:
    spec = known_model(name)
    model = spec if isinstance(spec, LoadedModel) else LoadedModel(spec)
    return model.spec, count_loaded_weights(model, "bf16")


def table(name: str = "qwen3-8b", machine: HardwareSpec | None = None, **asked: int) -> RooflineTable:
    spec, weights = loaded(name)
    lengths = {"context_tokens": 4096, "batch": 8, "prompt_tokens": 1000, **asked}
    return roofline_table(spec, weights, cache_in("bf16"), machine or hardware("h100"), **lengths)  # type: ignore[arg-type]


def served(model: ModelSpec, weights: str = "bf16", cache: str = "bf16") -> ServedModel:
    return ServedModel(model, count_weights(model, weight_plan(weights)), cache_in(cache))


# ── phases and operations ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_each_phase_is_the_sum_of_its_operations_and_no_longer_than_them_in_turn(name: str, devices: int) -> None:
    found = table(name, devices=devices, prefill_chunk=512)
    assert [phase.name for phase in found.phases] == ["prefill", "decode", "hybrid"]
    for phase in found.phases:
        parts = [item for name, item in found.operations if name == phase.name]
        assert phase.flops == sum(part.flops for part in parts)
        assert phase.num_bytes == sum(part.num_bytes for part in parts)
        assert phase.link_bytes == sum(part.link_bytes for part in parts)
        assert phase.seconds is not None
        assert max(part.seconds or 0 for part in parts) <= phase.seconds * (1 + 1e-12)
        assert phase.seconds <= sum(part.seconds or 0 for part in parts) * (1 + 1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_listing_a_step_changes_neither_its_flops_nor_its_bytes(name: str) -> None:
    spec, weights = loaded(name)
    decodes, prefills = decode_batch(5000, 17), prompt(2512, 2000)
    listed = itemise_step(spec, weights, cache_in("bf16"), decodes, prefills)
    whole = count_step_work(spec, weights, cache_in("bf16"), (*prefills, *decodes))
    assert (listed.flops, listed.num_bytes, listed.num_positions) == (whole.flops, whole.num_bytes, 529)
    assert {"attention prefill", "attention decode"} <= {item.name for item in listed.operations}


def test_the_operations_are_named_as_the_field_names_them() -> None:
    names = {name: {item.name for phase, item in table(name).operations if phase == "decode"} for name in MODELS}
    plain = {"embedding rows", "attention projections", "attention decode", "output head", "norms and other"}
    assert names["qwen3-8b"] == plain | {"feed-forward"}
    assert names["qwen3-30b-a3b"] == plain | {"experts", "router"}
    assert {"feed-forward", "experts", "router"} <= names["deepseek-v3"]
    assert "recurrent state" in names["Qwen3-Next-80B-A3B-Instruct"]


def test_the_router_takes_its_own_parameters_only() -> None:
    decode = {item.name: item for phase, item in table("qwen3-30b-a3b").operations if phase == "decode"}
    router_params = 48 * 2048 * 128
    assert decode["router"].num_bytes == 2 * router_params
    assert decode["router"].flops == 2 * router_params * 8


def test_a_hybrid_step_reads_the_weights_once_for_both() -> None:
    found = {phase.name: phase for phase in table(prefill_chunk=512).phases}
    alone = table(prompt_tokens=512).phases[0]
    spec, weights = loaded("qwen3-8b")
    assert found["hybrid"].num_bytes < found["decode"].num_bytes + alone.num_bytes - 0.9 * weights.read_per_step
    assert spec.num_hidden_layers == 36


# ── several devices ────────────────────────────────────────────────────────────────────────────────


def test_all_reduces_by_hand() -> None:
    # 36 layers, two sums each; a ring of 4 sends 2 · 3/4 of 8 positions · 4096 values · 2 bytes each time
    assert count_all_reduces(reference_model()) == 72
    assert count_all_reduce_bytes(reference_model(), 8, 4) == 72 * (2 * 3 * 8 * 4096 * 2 // 4)
    assert count_all_reduce_bytes(reference_model(), 8, 1) == 0
    assert count_all_reduce_bytes(reference_model(), 1, 2) == 72 * 4096 * 2


def test_sending_takes_half_of_the_interconnects_figure_and_is_an_arm_of_the_phase() -> None:
    found = table(devices=4, prompt_tokens=4096)
    sends = [item for phase, item in found.operations if item.name == "all-reduce"]
    assert [item.limited_by for item in sends] == [LimitedBy.INTERCONNECT] * 2
    assert sends[0].seconds == pytest.approx(72 * 1.5 * 4096 * 4096 * 2 / 450e9)
    assert (sends[0].intensity, sends[0].fraction_of_peak) == (None, None)
    slow = hardware_from_description(
        {"name": "slow link", "bandwidth": "3.35 TB/s", "peak": {"bf16": "989 TFLOPS"}, "interconnect": "2 GB/s"}, "x"
    )
    prefill, decode = table(machine=slow, devices=4, prompt_tokens=4096).phases
    assert prefill.limited_by is decode.limited_by is LimitedBy.INTERCONNECT
    assert decode.seconds == pytest.approx(72 * 1.5 * 8 * 4096 * 2 / 1e9)
    assert decode.fraction_of_peak == pytest.approx(decode.flops / 989e12 / decode.seconds)


def test_an_unknown_interconnect_gives_no_time_and_says_so() -> None:
    machine = hardware_from_description(
        {"name": "no link", "bandwidth": "1 TB/s", "peak": {"bf16": "100 TFLOPS"}}, "no link"
    )
    found = table(machine=machine, devices=2)
    sends = [item for _, item in found.operations if item.name == "all-reduce"]
    assert sends[0].link_bytes > 0
    assert [(item.seconds, item.limited_by) for item in sends] == [(None, LimitedBy.UNKNOWN)] * 2
    assert any("interconnect of no link is not known" in line for line in found.assumptions)
    assert all(phase.seconds for phase in found.phases)
    assert found.limits.interconnect_tokens_per_s is None


def test_one_device_sends_nothing() -> None:
    found = table()
    assert "all-reduce" not in {item.name for _, item in found.operations}
    assert all(phase.link_bytes == 0 for phase in found.phases)
    assert found.limits.interconnect_tokens_per_s is None


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_weights_of_a_rank_are_those_its_share_counts(name: str, ranks: int) -> None:
    spec, weights = loaded(name)
    share = tensor_parallel_share(spec, weights, cache_in("bf16"), 100, 1, ranks)
    assert rank_weights(spec, weights, ranks).total == share.weight_bytes
    exact = count_weights(rank_model(spec, ranks), weight_plan("bf16"))
    assert share.weight_bytes == pytest.approx(exact.total, rel=0.002)


def test_a_rank_does_its_share_of_the_heavy_work_and_all_of_the_norms() -> None:
    one, four = table(), table(devices=4)
    whole = {item.name: item for phase, item in one.operations if phase == "decode"}
    part = {item.name: item for phase, item in four.operations if phase == "decode"}
    for name in ("attention decode", "feed-forward", "output head"):
        assert part[name].num_bytes == pytest.approx(whole[name].num_bytes / 4, rel=0.001)
        assert part[name].flops == pytest.approx(whole[name].flops / 4, rel=0.001)
    assert part["norms and other"].num_bytes == whole["norms and other"].num_bytes


@pytest.mark.parametrize("devices", [0, -1, 1 << 40])
def test_impossible_numbers_of_devices_are_refused(devices: int) -> None:
    with pytest.raises(RequestError, match=f"devices is {devices}"):
        table(devices=devices)


def test_a_model_that_does_not_divide_is_refused_with_what_does_not() -> None:
    with pytest.raises(RequestError, match="do not divide over 3 ranks"):
        table(devices=3)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"context_tokens": 0}, "context is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"batch": 1 << 40}, "batch is"),
        ({"prompt_tokens": -3}, "prompt is -3"),
        ({"prefill_chunk": 0}, "prefill chunk is 0"),
        ({"prefill_chunk": 1001}, "prefill chunk is 1001; it must be at least 1 and at most 1000"),
    ],
)
def test_impossible_lengths_are_refused(asked: dict[str, int], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        table(**asked)


def test_a_rank_is_a_step_cost_and_equals_its_phases() -> None:
    spec, weights = loaded("qwen3-8b")
    found = table(devices=2)
    rank = rank_bound(spec, weights, cache_in("bf16"), found.ceiling, 2)
    assert rank.step_s(decode_batch(4096, 8)) == found.phases[1].seconds
    assert rank.step_s(prompt(1000)) == found.phases[0].seconds
    with pytest.raises(RequestError, match="neither"):
        rank_bound(spec, weights, cache_in("bf16"), Roof(None, None, None)).step_s((SequenceStep(0, 1),))


# ── intensities ────────────────────────────────────────────────────────────────────────────────────


def rows(model: ModelSpec, batch: int = 1, context: int = 4096, weights: str = "bf16", cache: str = "bf16"):  # type: ignore[no-untyped-def]
    return {row.name: row for row in intensities(served(model, weights, cache), context, batch)}


def test_products_and_attention_of_a_plain_decoder() -> None:
    found = rows(reference_model(), batch=16)
    assert found["matrix-vector"].flops_per_byte == pytest.approx(
        golden("intensity")["matvec_bf16_large"][0], rel=0.002
    )
    assert found["matrix-matrix"].flops_per_byte == matrix_intensity(15360, 4096, 16, 2)
    expected = golden("intensity")["decode_attention_4q_per_kv_bf16"][0]
    attention = reference_model().layers[0].attention
    assert found["decode attention, full"].flops_per_byte == expected == decode_attention_intensity(attention, 2)
    assert [row.grows_with_batch for row in found.values()] == [False, True, False]


def test_weight_only_formats_make_products_denser_while_their_columns_stay_16_bits() -> None:
    found = rows(reference_model(), 16, weights="int4-g128")
    rate, (m, n) = 4.125 / 8, (15360, 4096)
    assert found["matrix-matrix"].flops_per_byte == pytest.approx(2 * m * n * 16 / (rate * m * n + 2 * 16 * (m + n)))
    assert found["matrix-vector"].flops_per_byte == pytest.approx(2 / rate, rel=0.002)


@given(st.integers(1, 1000), st.integers(1, 100_000))
@settings(deadline=None, max_examples=25)
def test_grouped_query_attention_has_one_intensity_whatever_batch_and_context(batch: int, context: int) -> None:
    for name, row in rows(hybrid_model(), batch, context).items():
        if name.startswith("decode attention"):
            assert row.flops_per_byte == 2 * 32 / (2 * 2)


def test_latent_attention_reads_one_latent_for_all_heads() -> None:
    spec, _ = loaded("deepseek-v3")
    (latent,) = (row for row in intensities(served(spec), 4096, 8) if "latent" in row.name)
    assert latent.flops_per_byte == pytest.approx(128 * 2 * (2 * 512 + 64) / (576 * 2))


def test_an_expert_meets_its_share_of_the_tokens() -> None:
    spec, _ = loaded("qwen3-30b-a3b")
    found = rows(spec, 32)
    distinct = 128 * (1 - (1 - 8 / 128) ** 32)
    expected = matrix_intensity(768, 2048, 32 * 8 / distinct, 2)
    assert found["matrix-matrix, an expert"].flops_per_byte == pytest.approx(expected)


def test_recurrent_states_are_read_and_written_for_each_sequence() -> None:
    spec, _ = loaded("Qwen3-Next-80B-A3B-Instruct")
    state = next(row for row in intensities(served(spec), 4096, 8) if row.name.startswith("state update"))
    assert 0 < state.flops_per_byte < 2
    assert not state.grows_with_batch


# ── the batch at which decode turns ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("weights", "bits"), [("bf16", 16), ("int8", 8), ("int4-g128", 4.125)])
def test_weight_products_turn_at_the_ridge_times_half_their_bytes(weights: str, bits: float) -> None:
    stored = served(reference_model(), weights)
    exact = float(stored.weights.linear_format.bits_per_value)
    assert exact == pytest.approx(bits, rel=0.02)
    found = balance_batch(stored, Roof(1e12, 165e12, "bf16"), 1)
    assert found.products == pytest.approx(165e12 * exact / 8 / (2 * 1e12))
    assert found.experts is None


def test_a_step_turns_where_its_own_arms_cross_or_never() -> None:
    ceiling, model = Roof(1e12, 20e12, "bf16"), served(hybrid_model())
    found = balance_batch(model, ceiling, 1024)
    assert found.step is not None
    assert found.step_turns is True
    for batch, is_memory in ((found.step - 1, True), (found.step, False)):
        work = model.work(decode_batch(1024, batch))
        assert (work.num_bytes / 1e12 > work.flops / 20e12) is is_memory
    # a token does 17.9 + 59.0 GFLOP there and reads 14.7 GB of cache: 5.2 FLOP/byte at most, and the ridge is 165
    far = balance_batch(served(reference_model()), Roof(1e12, 165e12, "bf16"), 100_000)
    assert (far.step, far.step_turns) == (None, False)


def test_experts_turn_later_by_the_share_of_them_a_token_uses() -> None:
    spec, _ = loaded("qwen3-30b-a3b")
    found = balance_batch(served(spec), Roof(1e12, 100e12, "bf16"), 100)
    assert found.products == pytest.approx(100)
    assert found.experts == pytest.approx(100 * 128 / 8)


def test_without_a_rate_there_is_no_balance() -> None:
    for ceiling in (Roof(1e12, None, None), Roof(None, 1e12, "bf16")):
        found = balance_batch(served(reference_model()), ceiling, 100)
        assert (found.products, found.experts, found.step, found.step_turns) == (None, None, None, None)


def test_the_peak_is_that_of_the_format_products_run_in() -> None:
    spec, _ = loaded("qwen3-8b")
    for stored, computed, peak in (
        ("int4-g128", "bf16", 989.4e12),
        ("fp8", "fp8", 1978.9e12),
        ("bf16", "bf16", 989.4e12),
    ):
        weights = count_weights(spec, weight_plan(stored))
        found = roofline_table(
            spec, weights, cache_in("bf16"), hardware("h100"), context_tokens=100, batch=1, prompt_tokens=100
        )
        assert found.ceiling.compute_format == computed
        assert found.ceiling.peak_flops_per_s == pytest.approx(peak, rel=1e-3)
        assert any(f"peak of {computed}" in line for line in found.assumptions)


# ── published single figures ───────────────────────────────────────────────────────────────────────


def test_the_published_page_defaults_follow_from_their_own_rule() -> None:
    """Its rule: 2 FLOPs a parameter, all N of them, over all weights and the cache; attention's FLOPs left out."""
    spec, weights = loaded("qwen3-8b")
    figures = golden("page_defaults")
    flops = 2 * weights.num_values
    num_bytes = weights.total + 147_456 * 40_000
    value, _, tolerance = figures["decode_intensity_batch_1_40000_tokens_bf16"]
    assert flops / num_bytes == pytest.approx(value, rel=tolerance)
    ridge, _, tolerance = figures["qwen3_8b_b200_fp8_ridge"]
    machine = hardware("b200")
    assert machine.peak_flops_per_s["fp8"] / (machine.bandwidth_bytes_per_s or 0) == pytest.approx(ridge, rel=tolerance)
    value, _, tolerance = figures["fraction_of_peak"]
    assert flops / num_bytes / ridge == pytest.approx(value, rel=tolerance)
    without_input_table = flops - 2 * spec.vocab_size * spec.hidden_size
    assert without_input_table / num_bytes == pytest.approx(0.68, rel=0.01)  # N_matmul alone is not that rule


def test_our_own_formulas_count_attention_and_no_input_table_there() -> None:
    found = table(machine=hardware("b200"), context_tokens=40_000, batch=1).phases[1]
    matmul = 8_190_735_360 - 151_936 * 4096
    by_hand = (2 * matmul + 36 * 4 * 32 * 128 * 40_000) / (2 * matmul + 147_456 * 40_000)
    assert found.intensity == pytest.approx(by_hand, rel=1e-4)
    assert found.intensity == pytest.approx(1.84, abs=0.005)
    assert math.isclose(found.fraction_of_peak or 0, found.intensity / 281.25, rel_tol=1e-3)  # bf16's ridge
