"""A rank's share and layers cut over devices, worked by hand."""

from __future__ import annotations

import pytest

from inference_bench.accounting.cache import count_cache
from inference_bench.accounting.layer_split import (
    LayerWeights,
    largest_offload,
    layer_caches,
    offload_layers,
    pipeline_stages,
    planned_layer_weights,
    split_layers,
    stored_layer_weights,
)
from inference_bench.accounting.parallel import RankShare, rank_model, tensor_parallel_share
from inference_bench.accounting.params import count_params
from inference_bench.accounting.weights import count_weights, weight_plan
from inference_bench.errors import RequestError
from inference_bench.facts.config import model_from_config
from inference_bench.facts.formats import number_format
from inference_bench.facts.load import known_model, known_models
from inference_bench.facts.models import ModelSpec, StoredTensor, TensorRole
from shapes import HERE, cache_in, hybrid_model


def small(**changes: object) -> ModelSpec:
    """3 layers, D 64, 4 query and 2 KV heads of 16, F 128, V 640: a multiple of 64 whatever the ranks."""
    config = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 640, "tie_word_embeddings": False, **changes,
    }  # fmt: skip
    return model_from_config(config, "small", HERE)


def share(model: ModelSpec, ranks: int, context: int = 100, sequences: int = 1) -> RankShare:
    weights = count_weights(model, weight_plan("bf16"))
    return tensor_parallel_share(model, weights, cache_in("bf16"), context, sequences, ranks)


def test_two_ranks_halve_all_but_the_norms() -> None:
    # a layer: q 64·64, k and v 64·32 each, o 64·64, feed-forward 3·64·128; norms 2·64 a layer and 64 at the end
    layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128
    assert count_params(small()).total == 3 * (layer + 128) + 2 * 640 * 64 + 64
    half = share(small(), 2)
    assert half.weight_bytes == 2 * (3 * (layer // 2 + 128) + 640 * 64 + 64)
    assert half.cache_bytes == 100 * 3 * 2 * 16 * 2
    assert half.cache_replication == 1.0


def test_four_ranks_hold_two_key_value_heads_twice() -> None:
    # one KV head a rank: k and v are 64·16 each, the cache is as large as on one of two ranks
    quarter = share(small(), 4)
    layer = 64 * 16 * 2 + 64 * 16 * 2 + 3 * 64 * 32
    assert quarter.weight_bytes == 2 * (3 * (layer + 128) + 2 * 640 * 16 + 64)
    assert quarter.cache_bytes == 100 * 3 * 2 * 16 * 2
    assert quarter.cache_replication == 2.0
    assert "2 key and value heads are each held by 2 ranks" in quarter.rule


def test_latents_are_held_by_every_rank() -> None:
    model = known_model("DeepSeek-V3")
    eight = share(model, 8, 4096)
    assert eight.cache_bytes == 61 * 576 * 2 * 4096
    assert eight.cache_replication == 8.0
    assert 1.0 < eight.weight_replication < 1.06  # down projections, routers and norms are on every rank


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_parts_of_a_state_space_model_divide(ranks: int) -> None:
    # Nemotron-H 56B: 256 heads of 64 with 256 states and 8 groups, in 54 layers; 8 KV heads of 128 in 10
    one = share(known_model("Nemotron-H-56B-Base-8K"), ranks, 8192)
    states = 54 * ((20480 * 3) * 2 + 4_194_304 * 4)
    assert one.cache_bytes == states // ranks + 10 * 8 // ranks * 2 * 128 * 2 * 8192
    assert one.cache_replication == 1.0


def test_one_rank_is_the_whole_model() -> None:
    for model in known_models():
        assert rank_model(model, 1) is model


@pytest.mark.parametrize(
    ("ranks", "message"), [(3, "does not divide"), (0, "at least 1"), (8, "query heads"), (-2, "at least 1")]
)
def test_heads_that_cannot_be_divided_are_refused(ranks: int, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        rank_model(small(), ranks)


def test_no_rank_holds_less_than_its_even_part() -> None:
    tried = 0
    for model in known_models():
        for ranks in (2, 4, 8):
            try:
                part = share(model, ranks, 4096, 3)
            except RequestError:
                continue
            tried += 1
            weights = count_weights(model, weight_plan("bf16"))
            assert weights.total <= part.weight_bytes * ranks
            assert part.weight_bytes <= weights.total
            assert part.cache_replication >= 1.0
    assert tried > 120


def test_stages_share_out_layers_as_the_engine_does() -> None:
    # get_pp_indices of vLLM: 62 layers over 4 are 15, 16, 16, 15; 7 over 3 are 2, 3, 2; 8 over 3 are 3, 3, 2
    for layers, stages, sizes in ((62, 4, [15, 16, 16, 15]), (7, 3, [2, 3, 2]), (8, 3, [3, 3, 2]), (5, 5, [1] * 5)):
        ranges = split_layers(layers, stages)
        assert [len(each) for each in ranges] == sizes
        assert [index for each in ranges for index in each] == list(range(layers))
    with pytest.raises(RequestError, match="1 to 3"):
        split_layers(3, 4)


BY_HAND = LayerWeights(layers=(10, 20, 30, 40), embedding=100, output=7, other=3, tied=False)
CACHES = (1, 2, 3, 4)


def test_the_first_stage_holds_the_table_and_the_last_the_output() -> None:
    first, last = pipeline_stages(BY_HAND, CACHES, 2)
    assert (first.weight_bytes, first.cache_bytes) == (10 + 20 + 100 + 3, 3)
    assert (last.weight_bytes, last.cache_bytes) == (30 + 40 + 7, 7)
    tied = LayerWeights((10, 20, 30, 40), 100, 7, 3, tied=True)
    assert pipeline_stages(tied, CACHES, 2)[1].weight_bytes == 30 + 40 + 7 + 100
    assert pipeline_stages(tied, CACHES, 1)[0].weight_bytes == tied.total


@pytest.mark.parametrize(
    ("gpu_layers", "gpu_weights", "gpu_cache", "cpu_weights", "first"),
    [
        (0, 0, 0, 210, 4),
        (1, 7, 0, 203, 4),  # the output goes first
        (2, 47, 4, 163, 3),  # then the last layer
        (4, 97, 9, 113, 1),
        (5, 107, 10, 103, 0),  # the input table stays
        (99, 107, 10, 103, 0),
    ],
)
def test_layers_go_to_the_gpu_from_the_output_backwards(
    gpu_layers: int, gpu_weights: int, gpu_cache: int, cpu_weights: int, first: int
) -> None:
    split = offload_layers(BY_HAND, CACHES, gpu_layers)
    assert (split.gpu.weight_bytes, split.gpu.cache_bytes) == (gpu_weights, gpu_cache)
    assert (split.gpu.layers, split.cpu.layers) == (range(first, 4), range(first))
    assert (split.cpu.weight_bytes, split.cpu.cache_bytes) == (cpu_weights, 10 - gpu_cache)
    assert split.output_on_gpu == (gpu_layers > 0)


def test_a_tied_table_is_held_on_both_sides() -> None:
    tied = LayerWeights((10, 20, 30, 40), 100, 7, 3, tied=True)
    split = offload_layers(tied, CACHES, 2)
    assert split.duplicated_bytes == 100
    assert split.gpu.weight_bytes + split.cpu.weight_bytes == tied.total + 100


def test_the_most_layers_that_fit_are_found() -> None:
    assert [largest_offload(BY_HAND, CACHES, free).gpu_layers for free in (0, 6, 7, 50, 51, 116, 117, 1000)] == [
        0, 0, 1, 1, 2, 4, 5, 5,
    ]  # fmt: skip
    with pytest.raises(RequestError, match="at least 0"):
        offload_layers(BY_HAND, CACHES, -1)


@pytest.mark.parametrize("plan", ["bf16", "int4-g128", "Q4_K_M", "mxfp4", "awq"])
def test_the_layers_of_every_known_model_add_up_to_its_weights(plan: str) -> None:
    for model in known_models():
        weights = planned_layer_weights(model, weight_plan(plan))
        assert weights.total == count_weights(model, weight_plan(plan)).total
        assert min(weights.layers) > 0
        assert weights.other >= 0
        if not model.parts and not model.encoder_layers:
            assert weights.other == 0


def test_a_mix_of_formats_differs_from_layer_to_layer() -> None:
    layers = planned_layer_weights(known_model("Llama-3.1-8B"), weight_plan("Q4_K_M")).layers
    assert len(set(layers)) == 2
    assert layers[0] == max(layers)  # the first eighth of the layers keeps more bits


def test_a_files_tensors_are_sorted_into_their_layers() -> None:
    half = number_format("fp16")
    tensors = [
        StoredTensor("token_embd.weight", TensorRole.EMBEDDING, 640 * 64, 64, half),
        StoredTensor("output_norm.weight", TensorRole.NORM, 64, 64, half),
        StoredTensor("output.weight", TensorRole.HEAD, 640 * 64, 64, half),
        StoredTensor("blk.0.attn_q.weight", TensorRole.ATTENTION, 4096, 64, half),
        StoredTensor("blk.2.ffn_up.weight", TensorRole.FEED_FORWARD, 8192, 64, half),
        StoredTensor("blk.2.attn_norm.weight", TensorRole.NORM, 64, 64, half),
        StoredTensor("mm.0.weight", TensorRole.VISION, 10, 10, half),
    ]
    found = stored_layer_weights(small(), tensors)
    assert found == LayerWeights((8192, 0, 16384 + 128), 81920, 128 + 81920, 20, tied=False)
    stray = [StoredTensor("model.layers.3.mlp.up_proj.weight", TensorRole.FEED_FORWARD, 64, 64, half)]
    with pytest.raises(RequestError, match="layer 3"):
        stored_layer_weights(small(), stray)


def test_each_layer_brings_its_own_cache() -> None:
    model, fmt = hybrid_model(), cache_in("fp16")
    caches = layer_caches(model, lambda part: count_cache(part, fmt, 8192).total_bytes)
    assert sum(caches) == count_cache(model, fmt, 8192).total_bytes
    assert caches[3] == 8192 * 2 * 2 * 128 * 2  # full
    assert caches[0] == 2048 * 2 * 2 * 128 * 2  # window
