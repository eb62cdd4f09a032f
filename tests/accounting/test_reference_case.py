"""The reference case, to the last digit given: every figure comes from golden/published/reference_case.json."""

from __future__ import annotations

import pytest

from inference_bench.accounting.cache import count_cache, count_kv_bytes_per_token
from inference_bench.accounting.params import (
    count_attention_params,
    count_feed_forward_params,
    count_norm_params,
    count_params,
)
from inference_bench.accounting.weights import count_weights, weight_plan
from inference_bench.accounting.work import HeadPositions, SequenceStep, StepWork, count_step_work, decode_batch, prompt
from inference_bench.facts.config import model_from_config
from inference_bench.predict.capacity import FullLoad, count_sequences, count_shared_prefix_sequences
from inference_bench.predict.latency import predict_end_to_end_seconds, predict_prefill_seconds
from shapes import HERE, REFERENCE_CONFIG, cache_in, golden, reference_model

ARTIFACT = "int4-g128,embedding=int8,head=int8"
ROUNDED_WEIGHT_BYTES = 5_500_000_000  # the specification rounds the artifact to 5.5 GB wherever it computes a time
BANDWIDTH = 1e12
PEAK, MFU = 165e12, 0.5


def check(name: str, value: float) -> None:
    expected, _unit, tolerance = golden("figures")[name]
    assert value == pytest.approx(expected, rel=tolerance, abs=0)


def work(*steps: SequenceStep) -> StepWork:
    model = reference_model()
    weights = count_weights(model, weight_plan(ARTIFACT))
    return count_step_work(model, weights, cache_in("bf16"), steps, HeadPositions.ALL)


def cache_read(step_work: StepWork) -> int:
    return sum(operation.cache_read_bytes for operation in step_work.operations)


def prefill_s(cached: int, total: int) -> float:
    return predict_prefill_seconds(work(*prompt(total, cached)).flops, PEAK, MFU)


def hybrid_s(chunk: int, cached: int) -> float:
    flops = work(SequenceStep(cached, chunk), *decode_batch(5000, 17)).flops
    return flops / (MFU * PEAK)


def step_s(batch: int) -> float:
    return (ROUNDED_WEIGHT_BYTES + cache_read(work(*decode_batch(5000, batch)))) / BANDWIDTH


def test_parameters_by_component_equal_the_published_counts() -> None:
    model = reference_model()
    layer, params = model.layers[0], count_params(model)
    check("attention_params_per_block", count_attention_params(layer.attention, 4096))
    check("swiglu_params_per_block", count_feed_forward_params(layer.feed_forward, 4096))
    check("norm_params_per_block", count_norm_params(layer, model))
    check("total_params", params.total)
    check("matmul_params", params.matmul)
    check("block_linear_params", params.attention + params.feed_forward)
    check("embedding_table", params.embedding)


def test_weight_bytes_equal_the_published_artifact() -> None:
    check("artifact_bytes", count_weights(reference_model(), weight_plan(ARTIFACT)).total)
    check("bf16_bytes", count_weights(reference_model(), weight_plan("bf16")).total)


def test_cache_bytes_equal_the_published_counts() -> None:
    model = reference_model()
    per_token = count_kv_bytes_per_token(model, cache_in("bf16"))
    check("kv_bytes_per_token_bf16", per_token)
    check("kv_bytes_per_token_int8", count_kv_bytes_per_token(model, cache_in("int8")))
    check("kv_bytes_6000_tokens", count_cache(model, cache_in("bf16"), 6000).num_bytes)
    check("kv_bytes_32000_tokens", count_cache(model, cache_in("bf16"), 32000).num_bytes)
    check("positions_whose_cache_equals_5.5GB", ROUNDED_WEIGHT_BYTES / per_token)


def test_prefill_times_follow_from_flops_with_the_head_counted_for_every_position() -> None:
    check("prefill_4000_s", prefill_s(0, 4000))
    check("warm_prefix_1000_of_4000_s", prefill_s(3000, 4000))
    by_name = {operation.name: operation.flops for operation in work(*prompt(32768)).operations}
    check("attention_flops_32768", by_name["attention"])
    check("projection_flops_32768", sum(by_name.values()) - by_name["attention"])


def test_decode_traffic_and_step_times_equal_the_published_ones() -> None:
    check("kv_read_18x5000", cache_read(work(*decode_batch(5000, 18))))
    check("solo_step_bytes_5000", ROUNDED_WEIGHT_BYTES + cache_read(work(*decode_batch(5000, 1))))
    check("solo_step_s", step_s(1))
    check("batch18_step_s", step_s(18))
    check("batch18_tokens_per_s", 18 / step_s(18))


def test_hybrid_iterations_are_one_sum_of_flops() -> None:
    check("chunk512_17_decodes_opening_s", hybrid_s(512, 0))
    check("chunk512_after_2000_s", hybrid_s(512, 2000))
    check("chunk128_opening_s", hybrid_s(128, 0))
    check("chunk128_after_2000_s", hybrid_s(128, 2000))


def test_full_load_accounting_equals_the_published_rates() -> None:
    load = FullLoad(prefill_s=prefill_s(0, 4000), step_s=step_s(18), batch=18, output_tokens=2000)
    check("gpu_seconds_per_request", load.machine_seconds_per_request)
    check("requests_per_hour", load.requests_per_hour)
    check("output_tokens_per_hour", load.output_tokens_per_hour)
    check("prefill_share", load.prefill_share)
    check("effective_step_s", load.effective_step_s)
    check("low_load_e2e_s", predict_end_to_end_seconds(load.prefill_s, step_s(1), 2000))


def test_sequences_that_fit_equal_the_published_counts() -> None:
    free, model = 16_000_000_000, reference_model()
    check("full_length_requests_bf16", count_sequences(free, count_cache(model, cache_in("bf16"), 6000).num_bytes))
    check(
        "full_length_requests_int8_cache", count_sequences(free, count_cache(model, cache_in("int8"), 6000).num_bytes)
    )
    prefix, own = (count_cache(model, cache_in("bf16"), tokens).num_bytes for tokens in (3000, 3000))
    check("shared_prefix_requests", count_shared_prefix_sequences(free, prefix, own))


PROFILES = [name for name in golden("profiles") if name != "columns"]


@pytest.mark.parametrize("name", PROFILES)
def test_each_hardware_profile_gives_the_printed_figures(name: str) -> None:
    row = dict(zip(golden("profiles")["columns"], golden("profiles")[name], strict=True))
    free = row["memory_GB"] * 10**9 - ROUNDED_WEIGHT_BYTES - 2_500_000_000
    bandwidth, peak = row["bandwidth_TB_s"] * 1e12, row["dense_TFLOP_s"] * 1e12
    sequences = count_sequences(free, count_cache(reference_model(), cache_in("bf16"), 6000).num_bytes)
    solo, batch = (step_s(size) * BANDWIDTH / bandwidth for size in (1, sequences))
    assert sequences == row["sequences"]
    assert peak / bandwidth == pytest.approx(row["ridge"], abs=0.05)
    assert predict_prefill_seconds(work(*prompt(4000)).flops, peak, MFU) == pytest.approx(row["ttft_s"], abs=0.0005)
    assert 1 / solo == pytest.approx(row["solo_tokens_s"], abs=0.05)
    assert sequences / batch == pytest.approx(row["batch_tokens_s"], abs=0.05)


def test_the_toy_decoder_caches_every_position_but_that_of_its_last_token() -> None:
    toy = golden("toy_cache")
    shape = {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    model = model_from_config(REFERENCE_CONFIG | shape, "toy", HERE)
    positions = toy["prompt_tokens"] + toy["emitted_tokens"] - 1
    assert positions == toy["cached_positions"]
    assert count_cache(model, cache_in("fp32"), positions).num_bytes == toy["bytes"]
