from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.accounting.allocation.llama_cpp import llama_cpp_allocation
from inference_bench.accounting.cache import STATE_FORMATS, CacheFormat, count_cache
from inference_bench.errors import RequestError
from inference_bench.facts.config import model_from_config
from inference_bench.facts.formats import number_format
from inference_bench.facts.load import known_model
from shapes import HERE, cache_in, hybrid_model, reference_model

MIB = 2**20

# (n_ctx, slots, unified, keys, values, MiB the server's log printed), SmolLM2-135M, llama.cpp of October 2026
LOGGED = [
    (4096, 4, False, "fp16", "fp16", "90.00"),
    (4096, 4, False, "q8_0", "q8_0", "47.81"),
    (4096, 4, False, "q4_0", "q4_0", "25.31"),
    (4096, 4, False, "q8_0", "fp16", "68.91"),
    (1024, 1, False, "fp32", "fp32", "45.00"),
    (4096, 4, True, "fp16", "fp16", "90.00"),
    (8192, 1, False, "fp16", "fp16", "180.00"),
    (4100, 4, False, "fp16", "fp16", "112.50"),
]


@pytest.mark.parametrize(("context", "slots", "unified", "keys", "values", "printed"), LOGGED)
def test_llama_cpp_buffers_equal_what_its_log_printed(
    context: int, slots: int, unified: bool, keys: str, values: str, printed: str
) -> None:
    fmt = CacheFormat(number_format(keys), number_format(values))
    allocation = llama_cpp_allocation(known_model("SmolLM2-135M"), fmt, context, slots, unified=unified)
    assert f"{allocation.num_bytes / MIB:.2f}" == printed


def test_llama_cpp_gives_sliding_layers_their_window_and_a_micro_batch() -> None:
    # worked figure of the published rule: 10 · 32768 · 8192 + 52 · 1536 · 8192
    allocation = llama_cpp_allocation(known_model("gemma-3-27b-it"), cache_in("fp16"), 32768, 1)
    assert allocation.num_bytes == 3_338_665_984
    whole = llama_cpp_allocation(known_model("gemma-3-27b-it"), cache_in("fp16"), 32768, 1, full_size_window=True)
    assert whole.num_bytes == 62 * 32768 * 8192


def test_gpt_oss_keeps_half_its_layers_in_768_cells() -> None:
    # worked figure: 12 full layers of 131072 cells and 12 of ceil256(128 + 512), 2048 bytes a cell: 3090 MiB
    allocation = llama_cpp_allocation(known_model("gpt-oss-20b"), cache_in("fp16"), 131072, 1)
    assert allocation.num_bytes == 12 * (131072 + 768) * 2048
    assert round(allocation.num_bytes / MIB) == 3090


def test_qwen3_next_adds_float32_states_for_each_slot() -> None:
    # worked figure: 768 MiB of 12 full layers, and 36 · (3 · 8192 + 524288) · 4 bytes a slot: 75.4 MiB
    model = known_model("qwen3-next")
    one, four = (llama_cpp_allocation(model, cache_in("fp16"), 32768 * slots, slots) for slots in (1, 4))
    assert one.num_bytes - one.state_bytes == 768 * MIB
    assert f"{one.state_bytes / MIB:.1f}" == "75.4"
    assert four.state_bytes == 4 * one.state_bytes
    assert "float32 state for each of 4 slot(s)" in four.rule


def test_falcon_h1_keeps_keys_and_a_state_in_every_layer() -> None:
    # GeniePod/genie-claw issue 410 quotes the log at 32768 tokens: 768.00 MiB of keys and values, 0.98 + 72.00 of state
    config = {
        "model_type": "falcon_h1", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 4096, "vocab_size": 65537,
        "mamba_d_ssm": 3072, "mamba_n_heads": 48, "mamba_d_head": 64, "mamba_d_state": 256, "mamba_n_groups": 1,
        "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": True, "mamba_proj_bias": False,
        "mamba_rms_norm": False, "attention_bias": False, "mlp_bias": False, "projectors_bias": False,
        "tie_word_embeddings": False,
    }  # fmt: skip
    allocation = llama_cpp_allocation(model_from_config(config, "Falcon-H1 1.5B", HERE), cache_in("fp16"), 32768, 1)
    assert allocation.num_bytes - allocation.state_bytes == 768 * MIB
    assert f"{allocation.state_bytes / MIB:.2f}" == "72.98"


@pytest.mark.parametrize("name", ["Mistral-7B-v0.1", "starcoder2-7b", "phi-3.5-vision"])
def test_windows_that_llama_cpp_only_masks_save_nothing(name: str) -> None:
    model = known_model(name)
    allocation = llama_cpp_allocation(model, cache_in("fp16"), 32768, 1)
    assert {layer.cells for layer in allocation.layers} == {32768}
    assert "which it only masks" in allocation.rule


def test_latents_take_keys_only_and_index_keys_are_kept_beside_them() -> None:
    plain = llama_cpp_allocation(known_model("DeepSeek-V3"), cache_in("fp16"), 4096, 1)
    assert plain.num_bytes == 61 * 576 * 2 * 4096
    indexed = llama_cpp_allocation(known_model("DeepSeek-V3.2"), cache_in("fp16"), 4096, 1)
    assert indexed.num_bytes == 61 * (576 + 128) * 2 * 4096
    quantised = llama_cpp_allocation(known_model("DeepSeek-V3"), cache_in("q8_0"), 4096, 1)
    assert quantised.num_bytes == 61 * 18 * 34 * 4096


def test_without_flash_attention_every_layer_gets_the_widest_values() -> None:
    # Gemma 4 E2B: 12 sliding layers with heads of 256 and 3 full ones with heads of 512, one KV head
    model = known_model("gemma-4-E2B")
    allocation = llama_cpp_allocation(model, cache_in("fp16"), 8192, 1, flash_attention=False)
    assert allocation.num_bytes == 12 * 1024 * (256 + 512) * 2 + 3 * 8192 * (512 + 512) * 2
    shorter = llama_cpp_allocation(model, cache_in("fp16"), 8192, 1)
    assert shorter.num_bytes == 12 * 1024 * (256 + 256) * 2 + 3 * 8192 * (512 + 512) * 2


def test_llama_4_keeps_the_chunk_that_is_built_into_the_engine() -> None:
    allocation = llama_cpp_allocation(known_model("llama-4-scout"), cache_in("fp16"), 65536, 2)
    assert {layer.cells for layer in allocation.layers} == {32768, 8192 + 512}


def test_a_design_whose_layout_is_not_counted_is_refused_by_name() -> None:
    for name in ("DeepSeek-V4-Pro", "whisper-tiny"):
        with pytest.raises(RequestError, match="not counted yet"):
            llama_cpp_allocation(known_model(name), cache_in("fp16"), 4096, 1)
    with pytest.raises(RequestError, match="model type 'unheard_of' is not known"):
        llama_cpp_allocation(replace(hybrid_model(), model_type="unheard_of"), cache_in("fp16"), 4096, 1)


def test_a_quantised_cache_needs_heads_of_whole_blocks() -> None:
    # stablelm has heads of 80, which blocks of 32 do not divide
    with pytest.raises(RequestError, match="do not divide a head of 80"):
        llama_cpp_allocation(known_model("stablelm-3b"), cache_in("q8_0"), 4096, 1)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["SmolLM2-135M", "gemma-3-27b-it", "qwen3-next", "DeepSeek-V3.2", "gpt-oss-20b"]),
    context=st.integers(1, 300_000),
    slots=st.integers(1, 9),
    unified=st.booleans(),
)
def test_no_buffer_is_smaller_than_what_the_slots_keep(name: str, context: int, slots: int, unified: bool) -> None:
    model = known_model(name)
    allocation = llama_cpp_allocation(model, cache_in("fp16"), context, slots, unified=unified)
    each = -(-context // slots)
    kept = count_cache(model, cache_in("fp16"), each, slots, STATE_FORMATS["llama.cpp"])
    assert sum(layer.num_bytes for layer in allocation.layers) == allocation.num_bytes
    assert allocation.state_bytes == kept.state_bytes
    assert allocation.num_bytes >= count_cache(model, cache_in("fp16"), context // slots, slots).num_bytes
    longer = llama_cpp_allocation(model, cache_in("fp16"), context + 256 * slots, slots, unified=unified)
    assert longer.num_bytes >= allocation.num_bytes


def test_nothing_to_allocate_is_refused() -> None:
    with pytest.raises(RequestError, match="at least 1"):
        llama_cpp_allocation(reference_model(), cache_in("fp16"), 0, 1)
