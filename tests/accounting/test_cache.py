from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.accounting.cache import count_cache, count_kv_bytes_per_token, count_position_bytes
from inference_bench.errors import RequestError
from inference_bench.facts.load import known_model
from inference_bench.facts.models import Attention
from shapes import cache_in, golden, hybrid_model, reference_model


@pytest.mark.parametrize(("name", "expected"), golden("kv_bytes_per_token_bf16").items())
def test_published_bytes_a_token_of_known_models(name: str, expected: int) -> None:
    assert count_kv_bytes_per_token(known_model(name), cache_in("bf16")) == expected


def test_a_hybrid_of_full_and_window_layers_keeps_517996544_bytes_at_32768_tokens() -> None:
    # by hand: 13 layers · 32768 · 1024 + 39 layers · 2048 · 1024, 1024 bytes being 2 · 256 values · 2 bytes
    assert count_cache(hybrid_model(), cache_in("fp16"), 32768).num_bytes == 517_996_544


def test_a_dense_model_of_the_same_size_keeps_16_58_times_as_much() -> None:
    dense = count_cache(known_model("Qwen3-32B"), cache_in("fp16"), 32768).num_bytes
    assert dense == 8_589_934_592
    assert dense / 517_996_544 == pytest.approx(16.58, rel=0.001)


def test_a_30b_model_in_4_bits_fits_24_gb_with_the_hybrid_cache_and_needs_32_gb_with_a_dense_one() -> None:
    # 30e9 weights at 4.125 bits and 2.5 GB of overhead beside either cache
    beside = 30 * 10**9 * 4125 // 8000 + 2_500_000_000
    hybrid = count_cache(hybrid_model(), cache_in("fp16"), 32768).total_bytes
    dense = count_cache(known_model("Qwen3-32B"), cache_in("fp16"), 32768).total_bytes
    assert beside + hybrid <= 24 * 10**9 < beside + dense <= 32 * 10**9


def test_gemma_3_27b_at_32768_tokens_keeps_2_906_gib_where_the_usual_formula_says_15_5() -> None:
    # by hand: (10 · 32768 + 52 · 1024) positions · 2 · 16 · 128 values · 2 bytes
    cache = count_cache(known_model("gemma-3-27b-it"), cache_in("bf16"), 32768)
    assert cache.num_bytes == (10 * 32768 + 52 * 1024) * 8192
    assert cache.naive_bytes == 62 * 32768 * 8192
    assert cache.naive_factor == pytest.approx(15.5 / 2.90625)
    assert {layer.layer_type: layer.count for layer in cache.layers} == {"sliding_attention": 52, "full_attention": 10}


def test_a_window_stops_growing_and_the_slope_says_so() -> None:
    model = hybrid_model()
    assert count_kv_bytes_per_token(model, cache_in("fp16"), 2047) == 52 * 1024
    assert count_kv_bytes_per_token(model, cache_in("fp16"), 2048) == 13 * 1024


@pytest.mark.parametrize(("name", "row_bytes"), [("fp32", 1536), ("fp16", 768), ("q8_0", 408), ("q4_0", 216)])
def test_quantised_caches_count_their_scales(name: str, row_bytes: int) -> None:
    # SmolLM2-135M: 3 heads of 64 as keys and as values; q8_0 is 34 bytes for 32 values, q4_0 18
    assert count_position_bytes(Attention(9, 3, 64), cache_in(name)) == row_bytes


@given(st.integers(0, 200_000), st.integers(0, 64))
def test_bytes_are_the_sum_of_one_token_at_a_time_and_linear_in_sequences(tokens: int, sequences: int) -> None:
    model, fmt = hybrid_model(), cache_in("fp16")
    one = count_cache(model, fmt, tokens).num_bytes
    assert count_cache(model, fmt, tokens, sequences).num_bytes == sequences * one
    grown = count_cache(model, fmt, tokens + 1).num_bytes
    assert grown - one == count_kv_bytes_per_token(model, fmt, tokens)


def test_no_context_takes_no_bytes_and_has_no_factor() -> None:
    cache = count_cache(reference_model(), cache_in("bf16"), 0)
    assert (cache.num_bytes, cache.naive_bytes, cache.naive_factor) == (0, 0, None)


def test_a_negative_context_is_refused() -> None:
    with pytest.raises(RequestError, match="-1"):
        count_cache(reference_model(), cache_in("bf16"), -1)
