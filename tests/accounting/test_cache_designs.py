"""The cache of each design, derived by hand; the sums are written out so that they can be followed."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.accounting.cache import LOGICAL_STATE, STATE_FORMATS, CacheCount, State, count_cache
from inference_bench.facts.config import model_from_config
from inference_bench.facts.models import ModelSpec
from shapes import GOLDEN, HERE, cache_in

SMALL = json.loads((GOLDEN / "transformers_small_models.json").read_text(encoding="utf-8"))["models"]
GIB = 2**30


def model_of(name: str, **changes: Any) -> ModelSpec:
    return model_from_config({**SMALL[name]["config"], **changes}, name, HERE)


def cache_of(name: str, tokens: int, sequences: int = 1, **changes: Any) -> CacheCount:
    return count_cache(model_of(name, **changes), cache_in("bf16"), tokens, sequences)


def test_multi_head_latent_attention_keeps_one_vector_for_all_heads() -> None:
    # DeepSeek-V3: 61 layers · (512 latent + 64 rotary) · 2 bytes = 70,272 a token, where 2 · L · K · H says 1,748,992
    sizes = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_hidden_layers": 61, "num_attention_heads": 128}
    cache = cache_of("deepseek_v3", 32768, num_key_value_heads=128, hidden_size=7168, **sizes)
    assert cache.next_token_bytes == 70_272
    assert cache.num_bytes == 70_272 * 32768
    assert cache.num_bytes / GIB == pytest.approx(2.145, abs=0.0005)
    assert cache.naive_bytes == 2 * 61 * 128 * 56 * 2 * 32768


def test_an_index_adds_one_key_a_position() -> None:
    # four layers · (16 + 4 latent + 8 index) · 2 bytes
    assert cache_of("deepseek_v32", 100).num_bytes == 4 * (16 + 4 + 8) * 2 * 100
    # every other layer reuses the choice of the one before and keeps no key
    kept = [cache_of("glm_moe_dsa-shared-index", 100).layers[index].bytes_per_position for index in (0, 1)]
    assert sorted(kept) == [20 * 2, 28 * 2]


def test_an_index_over_grouped_query_attention_keeps_one_key_whatever_its_heads() -> None:
    # MiniMax-M3: 2 KV heads of 16 as keys and values, and one index key of 8, in three layers of four
    assert cache_of("minimax_m3_vl_text", 50).num_bytes == (4 * 2 * 2 * 16 + 3 * 8) * 2 * 50


def test_compressed_attention_keeps_a_window_and_one_row_for_every_few_positions() -> None:
    # DeepSeek-V4 at 50 tokens, window 8: layer 0 keeps 8 rows of 16; layer 1 8 + 50 // 4 = 20 and 12 index keys of 8;
    # layer 2 8 + 50 // 128 = 8
    assert cache_of("deepseek_v4", 50).num_bytes == (8 * 16 + (20 * 16 + 12 * 8) + 8 * 16) * 2
    assert cache_of("deepseek_v4", 51).next_token_bytes == (16 + 8) * 2  # the fifty-second completes a row of four
    assert cache_of("deepseek_v4", 50).next_token_bytes == 0
    assert cache_of("deepseek_v4", 50).mean_token_bytes == Fraction(2 * (16 + 8), 4) + Fraction(2 * 16, 128)


def test_chunked_layers_keep_at_most_one_chunk() -> None:
    # three chunked layers of four, chunk 8, 2 KV heads of 32
    assert cache_of("llama4_text", 100).num_bytes == (3 * 8 + 100) * 2 * 2 * 32 * 2
    assert cache_of("llama4_text", 100).slope_changes == (8,)


def test_gated_delta_layers_keep_a_matrix_for_each_value_head_and_three_columns() -> None:
    # three of four layers: 4 heads of 8 x 16 in float32, and 2·2·8 + 4·16 = 96 channels of three columns in 16 bits
    cache = cache_of("qwen3_next", 1000)
    assert cache.state_bytes == 3 * (4 * 8 * 16 * 4 + 96 * 3 * 2)
    assert cache.num_bytes == 1000 * 2 * 2 * 32 * 2
    assert cache.fixed_bytes_per_sequence == cache.state_bytes
    assert cache_of("qwen3_next", 1).state_bytes == cache.state_bytes


def test_kimi_k3_takes_27648_bytes_a_token_and_449372160_fixed() -> None:
    # published for Kimi K3: 24 latent layers · 576 · 2, and 69 delta layers of 96 heads of 128 x 128
    layers = {"full_attn_layers": [4 * n for n in range(1, 24)] + [93]}
    delta = [index for index in range(1, 94) if index not in layers["full_attn_layers"]]
    linear = {**layers, "kda_layers": delta, "head_dim": 128, "num_heads": 96, "short_conv_kernel_size": 4}
    sizes = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_hidden_layers": 93, "linear_attn_config": linear}
    cache = cache_of("kimi_linear", 1000, **sizes)
    assert cache.next_token_bytes == 27_648
    assert cache.fixed_bytes_per_sequence == 449_372_160


def test_lightning_attention_keeps_a_matrix_for_each_head_and_no_columns() -> None:
    assert cache_of("minimax", 10).state_bytes == 3 * 4 * 16 * 16 * 4


def test_mamba_keeps_channels_times_state_and_mamba_2_heads_times_head_times_state() -> None:
    # Mamba: 128 channels of 8, three columns; Mamba-2: 8 heads of 16 x 8 and 128 + 2·2·8 = 160 channels
    assert cache_of("mamba", 10).state_bytes == 3 * (128 * 8 * 4 + 128 * 3 * 2)
    assert cache_of("mamba2", 10).state_bytes == 3 * (8 * 16 * 8 * 4 + 160 * 3 * 2)
    assert (cache_of("mamba", 10).naive_bytes, cache_of("mamba", 10).naive_factor) == (None, None)


def test_a_short_convolution_keeps_its_columns_and_nothing_else() -> None:
    # three layers of 64 channels, kernel 3: two columns
    assert cache_of("lfm2", 10).state_bytes == 3 * 64 * 2 * 2


def test_parallel_heads_keep_both() -> None:
    cache = cache_of("falcon_h1", 10)
    assert cache.num_bytes == 4 * 10 * 2 * 2 * 16 * 2
    assert cache.state_bytes == 4 * (6 * 16 * 8 * 4 + (96 + 16) * 3 * 2)


def test_recurrent_gemma_keeps_a_width_and_a_window() -> None:
    # four layers in threes: recurrent, recurrent, attention, recurrent; width 96, one KV head of 16, window 8
    cache = cache_of("recurrent_gemma", 100)
    assert cache.state_bytes == 3 * (96 * 4 + 96 * 3 * 2)
    assert cache.num_bytes == 8 * 2 * 16 * 2


def test_rwkv_keeps_the_last_token_twice_and_its_state() -> None:
    # RWKV-4: three numbers a channel of 48; the token before, for both blocks of 64
    assert cache_of("rwkv", 10).state_bytes == 3 * (3 * 48 * 4 + 2 * 64 * 2)


def test_shared_caches_are_paid_by_their_owner_alone() -> None:
    # ten layers, the last four share: five windows of 8 and one full layer, 2 KV heads of 16 (32 in the full layer)
    cache = cache_of("gemma4_text-shared", 100)
    assert cache.num_bytes == (5 * 8 * 2 * 2 * 16 + 100 * 2 * 2 * 32) * 2
    assert {str(row.layer_type): row.count for row in cache.layers}["no_cache"] == 4


def test_keys_and_values_of_different_widths_are_both_counted() -> None:
    # MiMo-V2-Flash: seven layers, the first and the sixth attend fully; keys 24, values 16; windows have 4 heads
    kinds = [str(row.layer_type) for row in cache_of("mimo_v2_flash", 20).layers]
    assert kinds == ["full_attention", "sliding_attention"]
    assert cache_of("mimo_v2_flash", 20).num_bytes == (2 * 20 * 2 * 40 + 5 * 8 * 4 * 40) * 2


def test_cross_attention_is_apart_and_does_not_grow() -> None:
    # Whisper: two layers, 24 encoder positions, 4 heads of 16 as keys and values
    cache = cache_of("whisper", 10)
    assert cache.cross_attention_bytes == 2 * 24 * 2 * 64 * 2
    assert cache.num_bytes == 2 * 10 * 2 * 64 * 2
    assert cache.total_bytes == cache.num_bytes + cache.cross_attention_bytes
    assert cache.next_token_bytes == 2 * 2 * 64 * 2


def test_engines_store_states_in_their_own_types_and_the_choice_is_named() -> None:
    state = State(conv_channels=8192, conv_kernel=4, recurrent_elements=524_288)
    logical = LOGICAL_STATE.count_bytes(state, None)
    assert logical == 8192 * 3 * 2 + 524_288 * 4
    assert STATE_FORMATS["llama.cpp"].count_bytes(state, 16) == (8192 * 3 + 524_288) * 4
    # Qwen3-Next in vLLM: 1,097,728 bytes of state in 16 bits
    assert STATE_FORMATS["vllm"].count_bytes(state, None) == 1_097_728
    assert STATE_FORMATS["vllm"].count_bytes(state, 32) == 8192 * 3 * 2 + 524_288 * 4
    assert STATE_FORMATS["transformers"].count_bytes(state, None) == (8192 * 4 + 524_288) * 2
    delta = State(8192, 4, 524_288, always_float32=True)
    assert STATE_FORMATS["vllm"].count_bytes(delta, None) == 8192 * 3 * 2 + 524_288 * 4
    named = count_cache(model_of("mamba2"), cache_in("bf16"), 1, state_format=STATE_FORMATS["llama.cpp"])
    assert named.state_format.startswith("llama.cpp")


def test_the_lengths_at_which_the_slope_drops_are_the_windows() -> None:
    cache = cache_of("gemma3_text", 100)
    assert cache.slope_changes == (8,)
    assert cache_of("gemma3_text", 7).next_token_bytes > cache_of("gemma3_text", 8).next_token_bytes
    assert cache_of("llama", 5).slope_changes == ()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(SMALL)), st.integers(0, 400), st.integers(0, 5), st.sampled_from(["bf16", "q8_0", "fp8"]))
def test_properties_of_every_design(name: str, tokens: int, sequences: int, fmt: str) -> None:
    model = model_of(name)
    here = count_cache(model, cache_in(fmt), tokens, sequences)
    one, more = count_cache(model, cache_in(fmt), tokens), count_cache(model, cache_in(fmt), tokens + 1)
    assert (here.num_bytes, here.state_bytes) == (sequences * one.num_bytes, sequences * one.state_bytes)
    assert more.num_bytes - one.num_bytes == one.next_token_bytes >= 0
    assert more.fixed_bytes_per_sequence == one.fixed_bytes_per_sequence >= 0
    assert sum(row.num_bytes for row in one.layers) == one.num_bytes
    assert sum(row.state_bytes for row in one.layers) == one.state_bytes
    num_mixers = sum(max(1, len(layer.mixers)) for layer in model.layers)
    assert sum(row.count for row in one.layers) == num_mixers


@pytest.mark.parametrize("name", SMALL)
def test_past_the_last_change_the_cache_grows_in_a_straight_line(name: str) -> None:
    model, fmt = model_of(name), cache_in("bf16")
    start = max(count_cache(model, fmt, 0).slope_changes, default=0)
    start = -(-start // 128) * 128  # whole groups of every ratio in use
    first, last = count_cache(model, fmt, start), count_cache(model, fmt, start + 128)
    assert last.num_bytes - first.num_bytes == first.mean_token_bytes * 128
