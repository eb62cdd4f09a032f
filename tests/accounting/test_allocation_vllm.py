"""vLLM's blocks: worked figures, its own planner's answers, and what its logs printed for others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.accounting.allocation import EngineAllocation
from inference_bench.accounting.allocation.vllm import VllmSettings, vllm_allocation
from inference_bench.accounting.allocation.vllm_limits import vllm_limits
from inference_bench.accounting.cache import STATE_FORMATS, CacheFormat, count_cache
from inference_bench.errors import RequestError
from inference_bench.facts.config import model_from_config
from inference_bench.facts.formats import number_format
from inference_bench.facts.hardware import hardware
from inference_bench.facts.load import known_model
from inference_bench.facts.mixers import LatentAttention
from inference_bench.facts.models import ModelSpec
from shapes import GOLDEN, HERE, cache_in

GIB = 2**30
PLANNED = json.loads((GOLDEN / "vllm_blocks.json").read_text(encoding="utf-8"))
UNCOUNTED = {"DeepSeek-V4-Pro"}


def allocate(name: str, fmt: str, context: int, sequences: int = 1, **changes: Any) -> EngineAllocation:
    return vllm_allocation(known_model(name), cache_in(fmt), context, sequences, VllmSettings(**changes))


def test_gemma_3_27b_reserves_more_than_it_keeps() -> None:
    # 10 full layers, 52 with a window of 1024, 16 heads of 128 in 16 bits: pages of 16 · 16 · 256 · 2 = 131,072 bytes,
    # groups of 10, six of them sliding; 32768/16 = 2048 blocks and ceil((1023 + 8192)/16) + 1 = 577, later 64 + 1
    pool = allocate("gemma-3-27b-it", "bf16", 32768).pool
    assert pool is not None
    assert [group.num_groups for group in pool.groups] in ([1, 6], [6, 1])
    assert (pool.admission_blocks, pool.bytes_per_block) == (2048 + 6 * 577, 1_310_720) == (5510, 1_310_720)
    assert f"{pool.admission_bytes / GIB:.2f}" == "6.73"
    assert pool.steady_blocks == 2048 + 6 * 65
    assert f"{pool.steady_bytes / GIB:.2f}" == "2.98"
    assert allocate("gemma-3-27b-it", "bf16", 32768, hybrid_manager=False).num_bytes == 15.5 * GIB
    assert f"{count_cache(known_model('gemma-3-27b-it'), cache_in('bf16'), 32768).num_bytes / GIB:.2f}" == "2.91"


def test_qwen3_next_pays_whole_states_for_one_token() -> None:
    # a state of 3 · 8192 + 524,288 values in 16 bits against 2,048 bytes a token: 16 · ceil(1,097,728 / 32,768) tokens
    allocation = allocate("Qwen3-Next-80B-A3B-Instruct", "bf16", 32768)
    pool = allocation.pool
    assert pool is not None
    assert {group.block_tokens for group in pool.groups if group.holds != "state"} == {544}
    state = next(group for group in pool.groups if group.holds == "state")
    assert (state.page_bytes, state.padding_bytes) == (1_114_112, 1_114_112 - 1_097_728)
    assert [group.widths for group in pool.groups if group.holds == "state"] == [(12, 12, 12)]
    assert allocation.num_bytes == (61 + 3) * 12 * 1_114_112
    assert f"{allocation.num_bytes / GIB:.3f}" == "0.797"
    assert pool.first_token_bytes == 4 * 12 * 1_114_112
    assert round(pool.first_token_bytes / 2**20) == 51


def test_smollm2_fills_one_gibibyte_with_the_blocks_its_log_printed() -> None:
    pool = allocate("SmolLM2-135M", "fp32", 2048, block_tokens=128).pool
    assert pool is not None
    assert pool.bytes_per_block == 128 * 30 * 2 * 3 * 64 * 4
    assert pool.count_blocks(GIB) == 182
    assert pool.count_blocks(GIB) * 128 == 23_296
    assert pool.max_requests(GIB) == 182 / 16


@pytest.mark.parametrize("name", PLANNED["models"])
@pytest.mark.parametrize("index", range(len(PLANNED["settings"])))
def test_blocks_are_those_that_vllms_own_planner_arrives_at(name: str, index: int) -> None:
    chosen, planned = dict(PLANNED["settings"][index]), PLANNED["models"][name][index]
    context, fmt = chosen.pop("context_tokens"), {16: "bf16", 32: "fp32"}[chosen.pop("bits")]
    if planned is None:
        with pytest.raises(RequestError, match=r"hybrid manager off|not counted"):
            allocate(name, fmt, context, **chosen)
        assert not chosen["hybrid_manager"] or name in UNCOUNTED
        return
    pool = allocate(name, fmt, context, **chosen).pool
    assert pool is not None
    groups = sum(group.num_groups for group in pool.groups)
    assert [pool.admission_bytes, pool.bytes_per_block, groups] == planned


@pytest.mark.parametrize(
    ("fmt", "block_tokens"),
    [
        # "Setting attention block size to 784 tokens", printed for Qwen3.6 27B and Qwen3.8 27B of this shape
        # (LMCache/LMCache pull request 5079); 1568 with an fp8 cache (mitchross/talos-argocd-proxmox pull request 1995)
        ("bf16", 784),
        ("fp8", 1568),
    ],
)
def test_the_block_that_holds_a_float32_state_is_the_one_logs_print(fmt: str, block_tokens: int) -> None:
    pool = allocate("Qwen3.5-27B", fmt, 32768).pool
    assert pool is not None
    assert {group.block_tokens for group in pool.groups if group.holds != "state"} == {block_tokens}


def nemotron_nano_9b() -> Any:
    pattern = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"
    config = {
        "model_type": "nemotron_h", "hidden_size": 4480, "num_hidden_layers": len(pattern),
        "hybrid_override_pattern": pattern, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 15680, "vocab_size": 131072, "mamba_num_heads": 128, "mamba_head_dim": 80, "n_groups": 8,
        "ssm_state_size": 128, "conv_kernel": 4, "expand": 2, "use_conv_bias": True, "use_bias": False,
        "mlp_bias": False, "attention_bias": False, "mamba_proj_bias": False, "tie_word_embeddings": False,
    }  # fmt: skip
    return model_from_config(config, "Nemotron Nano 9B v2", HERE)


def test_a_block_holds_a_16_bit_state_where_it_is_asked_for() -> None:
    # vllm-project/vllm issue 24280 prints pages of 672 tokens for Nemotron Nano 9B v2, when states were in 16 bits
    printed = vllm_allocation(nemotron_nano_9b(), cache_in("bf16"), 32768, 1, VllmSettings(state_bits=16)).pool
    assert printed is not None
    assert printed.groups[0].block_tokens == 672
    # 0.32 takes float32 by itself: (3 · 12,288 · 2 + 1,310,720 · 4) / 4,096 bytes a token = 1298 → 1312
    now = vllm_allocation(nemotron_nano_9b(), cache_in("bf16"), 32768).pool
    assert now is not None
    assert now.groups[0].block_tokens == 1312


def test_a_cache_in_8_bits_gains_nothing_while_one_state_fills_the_block() -> None:
    # vllm-project/vllm issue 55196: about twice at length, nothing for short requests
    for name in ("Qwen3.5-27B", "Nemotron-H-56B-Base-8K"):
        short = [allocate(name, fmt, 1).num_bytes for fmt in ("bf16", "fp8")]
        long = [allocate(name, fmt, 2**20).num_bytes for fmt in ("bf16", "fp8")]
        assert short[0] == short[1]
        assert long[0] > 1.9 * long[1]


def test_heads_that_do_not_reach_every_rank_are_replicated() -> None:
    # Qwen3 30B has 4 KV heads: 8 ranks hold one each, so a rank of 8 needs as much as one of 4
    sizes = {ranks: allocate("Qwen3-30B-A3B", "bf16", 4096, tensor_parallel=ranks).num_bytes for ranks in (1, 2, 4, 8)}
    assert sizes[1] == 48 * 4 * 2 * 128 * 2 * 4096
    assert (sizes[2], sizes[4], sizes[8]) == (sizes[1] // 2, sizes[1] // 4, sizes[1] // 4)
    latents = {allocate("DeepSeek-V3", "bf16", 4096, tensor_parallel=ranks).num_bytes for ranks in (1, 8)}
    assert len(latents) == 1


@pytest.mark.parametrize(
    ("name", "fmt", "cache_dtype", "token_bytes"),
    [
        ("Qwen3-8B", "fp8", None, 36 * 8 * 256),  # one scale for the whole tensor costs no token anything
        ("Qwen3-8B", "int8", None, 36 * 8 * (256 + 8)),  # one float32 scale for each head's keys and values
        ("Qwen3-8B", "bf16", "fp8_per_token_head", 36 * 8 * (256 + 8)),
        ("Qwen3-8B", "bf16", "int4_per_token_head", 36 * 8 * (128 + 8)),
        ("DeepSeek-V3", "bf16", None, 61 * 576 * 2),
        ("DeepSeek-V3", "fp8", None, 61 * 576),
        ("DeepSeek-V3.2", "bf16", None, 61 * (576 * 2 + 132)),  # index key of 128 bytes and its scale
        ("DeepSeek-V3.2", "fp8", None, 61 * (656 + 132)),
        ("DeepSeek-V3", "bf16", "fp8_ds_mla", 61 * 656),
    ],
)
def test_a_token_takes_its_values_and_the_scales_beside_them(
    name: str, fmt: str, cache_dtype: str | None, token_bytes: int
) -> None:
    assert allocate(name, fmt, 64, cache_dtype=cache_dtype).num_bytes == 64 * token_bytes


def test_more_requests_hold_what_they_keep_and_one_of_them_reads_its_prompt() -> None:
    one, three = (allocate("gemma-3-27b-it", "bf16", 32768, count) for count in (1, 3))
    assert one.pool is not None
    assert three.num_bytes == one.num_bytes + 2 * one.pool.steady_bytes
    assert sum(row.num_bytes for row in three.layers) == three.num_bytes


@pytest.mark.parametrize(
    ("name", "fmt", "context", "changes", "message"),
    [
        ("Qwen3-8B", "q8_0", 4096, {}, "q8_0"),
        ("Qwen3-8B", "bf16", 0, {}, "at least 1"),
        ("Qwen3-8B", "bf16", 4096, {"tensor_parallel": 0}, "at least 1"),
        ("Qwen3-8B", "bf16", 4096, {"cache_dtype": "fp3"}, "fp3"),
        ("Qwen3-Next-80B-A3B-Instruct", "bf16", 4096, {"tensor_parallel": 5}, "does not divide"),
        ("Qwen3-Next-80B-A3B-Instruct", "bf16", 4096, {"hybrid_manager": False}, "hybrid manager off"),
        ("DeepSeek-V4-Pro", "bf16", 4096, {}, "not counted"),
    ],
)
def test_what_vllm_cannot_do_is_refused_by_name(
    name: str, fmt: str, context: int, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        allocate(name, fmt, context, **changes)


def test_keys_and_values_in_unlike_formats_are_refused() -> None:
    mixed = CacheFormat(number_format("fp8"), number_format("bf16"))
    with pytest.raises(RequestError, match="alike"):
        vllm_allocation(known_model("Qwen3-8B"), mixed, 4096)


def logical_bytes(model: ModelSpec, context: int) -> int:
    """What the layers keep in vLLM's own formats, before any block; nothing where index keys are in 8 bits."""
    if any(isinstance(mixer, LatentAttention) and mixer.indexer for mixer, _ in model.mixer_groups()):
        return 0
    cache = count_cache(model, cache_in("bf16"), context, 1, STATE_FORMATS["vllm"])
    return cache.num_bytes + cache.state_bytes


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(set(PLANNED["models"]) - UNCOUNTED - {"whisper-tiny"})),
    context=st.integers(1, 200_000),
    in_flight=st.integers(1, 32_768),
)
def test_the_pool_never_holds_less_than_the_logical_cache(name: str, context: int, in_flight: int) -> None:
    allocation = allocate(name, "bf16", context, in_flight_tokens=in_flight)
    pool, model = allocation.pool, known_model(name)
    assert pool is not None
    assert pool.admission_bytes >= pool.steady_bytes >= logical_bytes(model, context)
    assert pool.first_token_blocks <= pool.steady_blocks
    longer = allocate(name, "bf16", context + 1, in_flight_tokens=in_flight)
    assert longer.num_bytes >= allocation.num_bytes


@pytest.mark.parametrize(
    ("machine", "limits"),
    [
        ("H100", (1024, 8192)),
        ("H200", (1024, 8192)),
        ("MI300X", (1024, 8192)),
        ("A100 80GB", (256, 2048)),
        ("A100 40GB", (256, 2048)),
        ("L40S", (256, 2048)),
        ("RTX 4090", (256, 2048)),
    ],
)
def test_its_server_takes_larger_steps_on_large_cards_but_not_on_the_a100(
    machine: str, limits: tuple[int, int]
) -> None:
    # vllm/engine/arg_utils.py, get_batch_defaults: device_memory >= 70 * GiB_bytes and "a100" not in device_name
    assert vllm_limits(hardware(machine)) == limits


def test_a_card_is_large_from_70_gib_on_and_a_memory_that_is_not_known_is_none() -> None:
    card = replace(hardware("H100"), memory_bytes=70 * GIB)
    assert vllm_limits(card).batched_tokens == 8192
    assert vllm_limits(replace(card, memory_bytes=70 * GIB - 1)).batched_tokens == 2048
    assert vllm_limits(replace(card, memory_bytes=None)).batched_tokens == 2048
    assert vllm_limits(None).batched_tokens == VllmSettings().in_flight_tokens == 8192
