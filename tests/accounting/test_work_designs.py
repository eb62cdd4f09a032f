"""The work of each mixer, by hand, and the properties every one of them has."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.accounting.cache import count_cache
from inference_bench.accounting.params import count_params
from inference_bench.accounting.rare_work import mixer_work
from inference_bench.accounting.weights import count_weights, weight_plan
from inference_bench.accounting.work import (
    HeadPositions,
    StepWork,
    attention_work,
    count_attended_pairs,
    count_read_positions,
    count_step_work,
    decode_batch,
    prompt,
)
from inference_bench.facts.config import model_from_config
from inference_bench.facts.mixers import (
    CompressedAttention,
    CrossAttention,
    IndexedAttention,
    Indexer,
    LatentAttention,
    LinearAttention,
    Mamba2,
)
from inference_bench.facts.models import Attention, ModelSpec
from shapes import GOLDEN, HERE, cache_in

SMALL = json.loads((GOLDEN / "transformers_small_models.json").read_text(encoding="utf-8"))["models"]
FP16 = cache_in("fp16")
LATENT = LatentAttention(128, 1536, 512, 128, 64, 128)


def model_of(name: str) -> ModelSpec:
    return model_from_config(SMALL[name]["config"], name, HERE)


@given(st.integers(0, 200), st.integers(1, 200), st.integers(1, 60))
def test_pairs_and_reads_in_chunks_equal_a_count_token_by_token(cached: int, new: int, chunk: int) -> None:
    attended = [set(range((end - 1) // chunk * chunk, end)) for end in range(cached + 1, cached + new + 1)]
    assert count_attended_pairs(cached, new, chunk=chunk) == sum(map(len, attended))
    needed_of_cache = len({position for position in set().union(*attended) if position < cached})
    assert count_read_positions(cached, new, chunk=chunk) == needed_of_cache + new


def test_a_layer_that_shares_a_cache_reads_it_and_writes_nothing() -> None:
    own, shared = Attention(8, 2, 64), Attention(8, 2, 64, shared_kv_from=0, projects_key_value=False)
    assert attention_work(shared, FP16, 99, 1).read_bytes == attention_work(own, FP16, 99, 1).read_bytes == 100 * 512
    assert (attention_work(shared, FP16, 99, 1).written_bytes, attention_work(own, FP16, 99, 1).written_bytes) == (
        0,
        512,
    )


def test_keys_wider_than_values_cost_their_own_widths() -> None:
    # 64 heads, keys of 192 and values of 128: 2 · 64 · 320 FLOPs a pair, 4 · (192 + 128) · 2 bytes a position
    work = attention_work(Attention(64, 4, 192, value_head_dim=128), FP16, 9, 1)
    assert (work.flops, work.read_bytes) == (2 * 64 * 320 * 10, 4 * 320 * 2 * 10)


def test_latent_attention_decodes_in_its_absorbed_form_and_prefills_expanded() -> None:
    # decode at 1000: 2 · 128 · (2 · 512 + 64) FLOPs a pair; each position is one row of 576 values, whatever the heads
    decode, is_state = mixer_work(LATENT, FP16, 999, 1, None)
    assert not is_state
    assert decode.flops == 2 * 128 * 1088 * 1000
    assert (decode.read_bytes, decode.written_bytes) == (1000 * 576 * 2, 576 * 2)
    prefill, _ = mixer_work(LATENT, FP16, 0, 1000, None)
    assert prefill.flops == 2 * 128 * (128 + 64 + 128) * (1000 * 1001 // 2)


def test_an_index_scores_every_position_and_the_layer_reads_only_its_choice() -> None:
    indexed = LatentAttention(128, 1536, 512, 128, 64, 128, indexer=Indexer(64, 128, 2048, 1536, 256), top_k=2048)
    work, _ = mixer_work(indexed, FP16, 99_999, 1, None)
    assert work.flops == 2 * 128 * 1088 * 2048 + 2 * 64 * 128 * 100_000
    assert work.read_bytes == 2048 * 576 * 2 + 100_000 * 128 * 2
    assert work.written_bytes == 576 * 2 + 128 * 2


def test_blocks_an_index_picks_are_read_whole() -> None:
    mixer = IndexedAttention(Attention(64, 4, 128), Indexer(4, 128, 16, 6144, 256, block_size=128))
    work, _ = mixer_work(mixer, FP16, 9_999, 1, None)
    assert work.read_bytes == 2048 * 2 * 4 * 128 * 2 + 10_000 * 128 * 2
    assert work.flops == 4 * 64 * 128 * 2048 + 2 * 4 * 128 * 10_000


@pytest.mark.parametrize("ratio", [4, 128])
@pytest.mark.parametrize(("cached", "new"), [(0, 1), (0, 700), (511, 1), (130, 300), (999, 7)])
def test_compressed_pairs_equal_a_count_token_by_token(ratio: int, cached: int, new: int) -> None:
    indexer = Indexer(2, 8, 5, 24, 8) if ratio == 4 else None
    mixer = CompressedAttention(4, 16, 24, 128, ratio, 2, 12, ratio == 4, indexer)
    pairs = scored = 0
    for end in range(cached + 1, cached + new + 1):
        rows = end // ratio
        pairs += min(end, 128) + (min(rows, 5) if indexer else rows)
        scored += rows if indexer else 0
    work, _ = mixer_work(mixer, FP16, cached, new, None)
    assert work.flops == 4 * 4 * 16 * pairs + 2 * 2 * 8 * scored
    added = (cached + new) // ratio - cached // ratio
    assert work.written_bytes == (new + added) * 16 * 2 + (added * 8 * 2 if indexer else 0)


def test_a_recurrent_state_is_read_and_written_once_a_step_whatever_the_context() -> None:
    # Qwen3-Next: 32 heads of 128 x 128 in float32 and 8192 channels of 3 columns in 16 bits
    delta = LinearAttention(16, 32, 128, 128, 4, 0, 0, state_flops=6)
    short, is_state = mixer_work(delta, FP16, 0, 1, None)
    assert is_state
    assert short.read_bytes == short.written_bytes == 32 * 128 * 128 * 4 + 8192 * 3 * 2
    assert short.flops == 6 * 32 * 128 * 128
    assert mixer_work(delta, FP16, 100_000, 1, None) == (short, True)
    mamba, _ = mixer_work(Mamba2(128, 64, 128, 8, 4, True, False), FP16, 5, 2, 16)
    assert mamba.read_bytes == 128 * 64 * 128 * 2 + 10240 * 3 * 2
    assert mamba.flops == 2 * 4 * 128 * 64 * 128


def test_cross_attention_reads_the_encoders_positions_and_writes_nothing() -> None:
    work, _ = mixer_work(CrossAttention(Attention(6, 6, 64), 384, 1500), FP16, 10, 1, None)
    assert (work.flops, work.read_bytes, work.written_bytes) == (4 * 6 * 64 * 1500, 1500 * 2 * 384 * 2, 0)


def step(model: ModelSpec, context: int, batch: int = 1) -> StepWork:
    return count_step_work(model, count_weights(model, weight_plan("bf16")), FP16, decode_batch(context, batch))


@pytest.mark.parametrize("name", SMALL)
def test_a_token_does_two_flops_a_parameter_it_uses_beside_the_mixing(name: str) -> None:
    model = model_of(name)
    params = count_params(model)
    mixing = {"attention", "recurrent state"}
    flops = sum(op.flops for op in step(model, 7).operations if op.name not in mixing)
    reused = sum(part.num_params * (part.uses - 1) for part in model.parts)
    head_bias = model.vocab_size if model.head_bias else 0  # an addition, counted nowhere
    apart = params.encoder + params.vision
    table = params.embedding if params.head else 0
    assert flops == 2 * (params.active - table - apart - params.lookup - head_bias + reused)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(SMALL)), st.integers(1, 300), st.integers(1, 6))
def test_a_longer_context_or_a_larger_batch_never_takes_less(name: str, context: int, batch: int) -> None:
    model = model_of(name)
    here, longer, larger = (
        step(model, context, batch),
        step(model, context + 200, batch),
        step(model, context, batch + 1),
    )
    assert here.num_bytes <= longer.num_bytes
    assert here.flops <= longer.flops
    assert here.num_bytes <= larger.num_bytes
    assert here.flops < larger.flops


@pytest.mark.parametrize("name", SMALL)
def test_what_a_prompt_writes_is_what_the_cache_then_holds_or_more(name: str) -> None:
    model = model_of(name)
    work = count_step_work(model, count_weights(model, weight_plan("bf16")), FP16, prompt(150), HeadPositions.LAST)
    written = sum(op.cache_write_bytes for op in work.operations)
    cache = count_cache(model, FP16, 150)
    assert written >= cache.num_bytes + cache.state_bytes
