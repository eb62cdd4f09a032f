from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.accounting.experts import (
    count_expected_expert_bytes,
    expect_distinct_experts,
    expect_expert_fraction,
)
from inference_bench.accounting.params import count_params
from inference_bench.accounting.weights import count_weights, weight_plan
from inference_bench.accounting.work import count_step_work, decode_batch, prompt
from inference_bench.errors import RequestError
from inference_bench.facts.config import model_from_config
from inference_bench.facts.models import ModelSpec
from shapes import GOLDEN, HERE, cache_in, reference_model

SMALL = json.loads((GOLDEN / "transformers_small_models.json").read_text(encoding="utf-8"))["models"]
MIXTURES = ["mixtral", "deepseek_v3", "qwen3_next", "gpt_oss", "nemotron_h-latent", "gemma4_text-experts"]


def mixture(name: str) -> ModelSpec:
    return model_from_config(SMALL[name]["config"], name, HERE)


def test_one_token_reads_k_experts_and_many_tokens_read_all() -> None:
    assert expect_distinct_experts(256, 8, 1) == pytest.approx(8)
    assert expect_distinct_experts(256, 8, 100_000) == pytest.approx(256)
    assert expect_distinct_experts(256, 8, 0) == 0


def test_the_expected_number_is_the_mean_of_a_drawn_one() -> None:
    # 128 experts, 8 a token, 16 tokens, each token drawing its experts uniformly without replacement
    source = random.Random(0)
    draws = [len(set().union(*(source.sample(range(128), 8) for _ in range(16)))) for _ in range(2000)]
    assert sum(draws) / len(draws) == pytest.approx(expect_distinct_experts(128, 8, 16), rel=0.01)
    assert expect_distinct_experts(128, 8, 16) == pytest.approx(128 * (1 - (15 / 16) ** 16))


def test_tokens_that_choose_alike_read_no_more_than_one() -> None:
    assert expect_distinct_experts(128, 8, 64, correlation=1.0) == 8
    half = expect_distinct_experts(128, 8, 64, correlation=0.5)
    assert half == pytest.approx((8 + expect_distinct_experts(128, 8, 64)) / 2)


@given(st.integers(1, 512), st.integers(1, 512), st.integers(1, 4096), st.floats(0, 1))
def test_a_larger_batch_never_reads_fewer_and_never_more_than_there_are(
    experts: int, k: int, batch: int, alike: float
) -> None:
    k = min(k, experts)
    here, more = (expect_distinct_experts(experts, k, size, alike) for size in (batch, batch + 1))
    assert min(k, experts) - 1e-9 <= here <= more + 1e-9 <= experts + 2e-9


@pytest.mark.parametrize(("experts", "k", "alike"), [(8, 9, 0.0), (8, 0, 0.0), (8, 2, 1.5), (8, 2, -0.1)])
def test_an_impossible_choice_is_refused(experts: int, k: int, alike: float) -> None:
    with pytest.raises(RequestError):
        expect_distinct_experts(experts, k, 4, alike)


@pytest.mark.parametrize("name", MIXTURES)
def test_a_decode_step_reads_the_active_experts_and_a_long_prompt_all_of_them(name: str) -> None:
    model = mixture(name)
    params, weights = count_params(model), count_weights(model, weight_plan("bf16"))
    one = {op.name: op for op in count_step_work(model, weights, cache_in("bf16"), decode_batch(4, 1)).operations}
    assert one["experts"].weight_bytes == 2 * params.routed_active
    assert one["experts"].flops == 2 * params.routed_active
    whole = {op.name: op for op in count_step_work(model, weights, cache_in("bf16"), prompt(4000)).operations}
    assert whole["experts"].weight_bytes == weights.experts == 2 * params.experts
    assert weights.total > sum(op.weight_bytes for op in one.values())  # all stay resident


def test_a_batch_that_chooses_alike_reads_less() -> None:
    model = mixture("deepseek_v3")
    weights, fmt = count_weights(model, weight_plan("bf16")), cache_in("bf16")
    apart = count_step_work(model, weights, fmt, decode_batch(4, 8))
    alike = count_step_work(model, weights, fmt, decode_batch(4, 8), correlation=1.0)
    assert alike.num_bytes < apart.num_bytes
    assert alike.flops == apart.flops


def test_a_dense_model_reads_everything_and_has_no_experts() -> None:
    model = reference_model()
    assert expect_expert_fraction(model, 4) == 1.0
    assert count_expected_expert_bytes(model, 0, 4) == 0
    params = count_params(model)
    assert (params.experts, params.active, params.matmul_active) == (0, params.total, params.matmul)


def test_mixtral_8x7b_has_12_88_of_46_7_billion_parameters_active() -> None:
    config = {
        **{"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32},
        **{"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8},
        **{"num_experts_per_tok": 2, "tie_word_embeddings": False, "sliding_window": None},
    }
    params = count_params(model_from_config(config, "mixtral", HERE))
    assert params.total == 46_702_792_704  # published
    assert params.active == 12_879_925_248  # published as 12.9 B
    assert params.total - params.active == params.experts - params.routed_active == 45_097_156_608 * 3 // 4
