"""Each trap of real configs: the field that people misread, and what it means."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.accounting.cache import count_cache
from inference_bench.accounting.params import count_params
from inference_bench.errors import InferenceBenchError, ModelConfigError
from inference_bench.facts.config import model_from_config
from inference_bench.facts.fields import parse_json_object
from inference_bench.facts.formats import number_format
from inference_bench.facts.mixers import LatentAttention
from inference_bench.facts.models import Attention, MixtureOfExperts, ModelSpec
from inference_bench.predict.fit import cache_format
from shapes import GOLDEN, HERE, REFERENCE_CONFIG

SMALL: dict[str, dict[str, Any]] = {
    name: row["config"]
    for name, row in json.loads((GOLDEN / "transformers_small_models.json").read_text(encoding="utf-8"))[
        "models"
    ].items()
}


def model(changes: dict[str, Any], base: str | None = None) -> ModelSpec:
    config = {**(SMALL[base] if base else REFERENCE_CONFIG), **changes}
    return model_from_config({key: value for key, value in config.items() if value != "absent"}, "m", HERE)


def windows(changes: dict[str, Any], base: str | None = None) -> list[int | None]:
    return [layer.attention.sliding_window for layer in model(changes, base).layers]


def types(spec: ModelSpec) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for row in count_cache(spec, cache_format("fp16"), 1).layers:
        counts[str(row.layer_type)] += row.count
    return dict(counts)


# --- heads and widths ---------------------------------------------------------------------------------------------


def test_head_dim_is_the_configs_own_and_not_hidden_size_over_heads() -> None:
    # Mistral-Nemo: 5120 / 32 is 160, the config says 128
    spec = model({"model_type": "mistral", "hidden_size": 5120, "head_dim": 128, "sliding_window": None})
    assert spec.layers[0].attention.head_dim == 128


@pytest.mark.parametrize(
    ("changes", "heads"),
    [
        ({"new_decoder_architecture": False, "multi_query": True, "num_kv_heads": 4}, 1),  # Falcon 7B says 71
        ({"new_decoder_architecture": True, "multi_query": True, "num_kv_heads": 2}, 2),  # Falcon 40B
        ({"new_decoder_architecture": False, "multi_query": False, "num_kv_heads": 4}, 4),
    ],
)
def test_falcon_flags_overrule_its_number_of_kv_heads(changes: dict[str, Any], heads: int) -> None:
    assert model(changes, "falcon-new").layers[0].attention.num_key_value_heads == heads


def test_a_null_q_lora_rank_means_queries_are_not_compressed_and_an_absent_one_is_not_guessed() -> None:
    (mixer,) = model({"q_lora_rank": None}, "deepseek_v3").layers[0].mixers
    assert isinstance(mixer, LatentAttention)
    assert mixer.q_lora_rank is None
    with pytest.raises(ModelConfigError, match="q_lora_rank is absent"):
        model({"q_lora_rank": "absent"}, "deepseek_v3")


def test_gpt_2_names_and_a_foreign_model_type_are_read_by_the_class_they_name() -> None:
    names = {"n_embd": 2560, "n_head": 32, "n_head_kv": None, "n_inner": None, "n_layer": 32, "n_positions": 2048}
    phi = {**names, "vocab_size": 51200, "tie_word_embeddings": False, "model_type": "phi-msft"}
    spec = model_from_config({**phi, "architectures": ["PhiForCausalLM"]}, "phi-2", HERE)
    assert count_params(spec).total == 2_779_683_840  # as published
    assert any("phi-msft" in line for line in spec.assumptions)


def test_chatglm_counts_its_own_field_names() -> None:
    # ChatGLM3-6B: 6,243,584,000 parameters by its published formula
    config = {
        **{"model_type": "chatglm", "hidden_size": 4096, "num_layers": 28, "num_attention_heads": 32},
        **{"kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2, "add_qkv_bias": True},
        **{"add_bias_linear": False, "ffn_hidden_size": 13696, "padded_vocab_size": 65024, "rmsnorm": True},
        **{"seq_length": 8192, "tie_word_embeddings": False},
    }
    spec = model_from_config(config, "chatglm3", HERE)
    assert count_params(spec).total == 6_243_584_000
    assert spec.max_position_embeddings == 8192


def nas_block(group: int | None, factor: float) -> dict[str, Any]:
    attention = {"no_op": group is None, "n_heads_in_group": group, "replace_with_linear": False, "window_length": None}
    return {"attention": attention, "ffn": {"ffn_mult": factor, "no_op": False, "replace_with_linear": False}}


def test_nemotron_nas_layers_have_their_own_widths_and_some_no_attention() -> None:
    blocks = [nas_block(8, 2.625)] * 6 + [nas_block(8, 5.25)] * 43 + [nas_block(None, 5.25)] * 6
    blocks += [nas_block(None, 1.3125)] * 10 + [nas_block(None, 1.0)] * 8 + [nas_block(None, 0.5)] * 6
    blocks += [nas_block(None, 3.28125)]
    config = {
        **{"model_type": "nemotron-nas", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64},
        **{"num_key_value_heads": None, "vocab_size": 128256, "tie_word_embeddings": False, "block_configs": blocks},
    }
    spec = model_from_config(config, "nas", HERE)
    assert count_params(spec).total == 49_867_145_216  # Llama-3.3-Nemotron-Super-49B, by its published block list
    assert types(spec) == {"full_attention": 49, "no_cache": 31}


# --- which layer keeps what ---------------------------------------------------------------------------------------


def test_a_pattern_of_letters_says_which_layers_are_local() -> None:
    base = {"model_type": "exaone4", "num_hidden_layers": 6, "sliding_window": 8}
    assert windows({**base, "sliding_window_pattern": "LLLG"}) == [8, 8, 8, None, 8, 8]
    assert windows({**base, "sliding_window_pattern": 3}) == [8, 8, None, 8, 8, None]


def test_gemma_3_reads_the_pattern_under_either_name() -> None:
    base = {"model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window": 8}
    assert (
        windows({**base, "_sliding_window_pattern": 2})
        == windows({**base, "sliding_window_pattern": 2})
        == [8, None] * 2
    )


def test_qwen2_moe_windows_alternate_below_max_window_layers() -> None:
    changes = {"use_sliding_window": True, "max_window_layers": 3, "sliding_window": 8}
    assert windows(changes, "qwen2_moe") == [8, None, 8, None]


def test_a_mistral_config_without_the_field_has_the_class_window_and_a_null_one_has_none() -> None:
    assert windows({"model_type": "mistral", "num_hidden_layers": 1}) == [4096]
    assert windows({"model_type": "mistral", "num_hidden_layers": 1, "sliding_window": None}) == [None]


def test_llama_4_chunks_all_layers_but_every_fourth_and_has_no_window() -> None:
    spec = model({}, "llama4_text")
    assert [layer.attention.attention_chunk for layer in spec.layers] == [8, 8, 8, None]
    listed = model({"no_rope_layers": [0, 1, 1, 0]}, "llama4_text")
    assert [layer.attention.attention_chunk for layer in listed.layers] == [None, 8, 8, None]


def test_mimo_v2_reads_its_own_pattern_heads_and_widths() -> None:
    changes = {
        **{"hybrid_layer_pattern": [0, 1, 1, 1, 1, 1, 0], "swa_num_key_value_heads": 4, "attention_chunk_size": 8},
        **{"num_key_value_heads": 2, "moe_layer_freq": [0, 1, 1, 1, 1, 1, 1]},
    }
    spec = model(changes, "mimo_v2_flash")
    full, local = spec.layers[0].attention, spec.layers[1].attention
    assert (full.num_key_value_heads, full.head_dim, full.value_width, full.sliding_window) == (2, 24, 16, None)
    assert (local.num_key_value_heads, local.sliding_window, local.sinks, full.sinks) == (4, 8, True, False)


def test_step_3_7_reads_windows_with_more_heads_from_attention_other_setting() -> None:
    base = {
        **{"model_type": "step3p7", "num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128},
        **{"hidden_size": 4096, "num_hidden_layers": 5, "vocab_size": 128, "intermediate_size": 11264},
        **{"layer_types": ["full_attention", *["sliding_attention"] * 3, "full_attention", "full_attention"]},
        **{"attention_other_setting": {"num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128}},
        **{"sliding_window": 512, "moe_layers_enum": "3,4", "moe_num_experts": 8, "moe_top_k": 2},
        **{"moe_intermediate_size": 64, "share_expert_dim": 64, "num_nextn_predict_layers": 1},
    }
    spec = model_from_config(base, "step", HERE)
    assert [layer.attention.num_attention_heads for layer in spec.layers] == [64, 96, 96, 96, 64]
    assert [isinstance(layer.feed_forward, MixtureOfExperts) for layer in spec.layers] == [False] * 3 + [True] * 2


def test_hunyuan_cross_layer_attention_pays_the_owner_once() -> None:
    base = {
        **{"model_type": "hunyuan", "num_hidden_layers": 4, "num_experts": 1, "use_cla": True, "cla_share_factor": 2},
        **{"head_dim": 128, "use_qk_norm": True},
    }
    spec = model(base)
    assert types(spec) == {"full_attention": 2, "no_cache": 2}
    assert [layer.attention.shared_kv_from for layer in spec.layers] == [None, 0, None, 2]


def test_gemma_layers_that_share_read_the_last_layer_of_their_own_kind() -> None:
    spec = model({}, "gemma4_text-shared")
    assert [layer.attention.shared_kv_from for layer in spec.layers] == [None] * 6 + [5, 5, 5, 4]
    assert types(spec) == {"sliding_attention": 5, "full_attention": 1, "no_cache": 4}


def test_glm_5_2_keeps_index_keys_only_where_the_layer_chooses_for_itself() -> None:
    changes = {"num_hidden_layers": 78, "index_topk_freq": 4, "index_skip_topk_offset": 2}
    layers = model(changes, "glm_moe_dsa").layers
    assert sum(mixer.indexer is not None for layer in layers for mixer in layer.mixers) == 21  # of 78, as published


def test_kimi_linear_layer_lists_count_from_one() -> None:
    assert [str(layer.mixers[0].layer_type) for layer in model({}, "kimi_linear").layers] == [
        *["linear_attention"] * 3,
        "latent_attention",
    ]


def test_minimax_lists_its_attention_types_as_numbers() -> None:
    changes = {"model_type": "minimax_m1", "attn_type_list": [0, 0, 1, 0], "layer_types": "absent"}
    assert types(model(changes, "minimax")) == {"linear_attention": 3, "full_attention": 1}


def test_a_list_that_says_every_layer_attends_is_no_other_design() -> None:
    assert types(model({"attn_type_list": [1, 1, 1, 1]}, "minimax_m2")) == {"full_attention": 4}
    with pytest.raises(ModelConfigError, match="attn_type_list means linear attention"):
        model({"attn_type_list": [0, 0, 0, 1]}, "minimax_m2")


def test_parallel_heads_keep_both_a_cache_and_a_state_in_every_layer() -> None:
    assert types(model({}, "falcon_h1")) == {"full_attention": 4, "mamba2": 4}


def test_nemotron_h_letters_are_mamba_attention_dense_and_experts() -> None:
    assert types(model({}, "nemotron_h")) == {"mamba2": 2, "full_attention": 1, "no_cache": 2}


def test_deepseek_v4_ratios_beyond_the_layers_belong_to_the_prediction_layer() -> None:
    spec = model({"compress_ratios": [0, 4, 128, 0]}, "deepseek_v4")
    assert types(spec) == {"sliding_attention": 1, "compressed_attention": 2}


# --- feed-forward -------------------------------------------------------------------------------------------------


def sparse_layers(spec: ModelSpec) -> list[int]:
    return [index for index, layer in enumerate(spec.layers) if isinstance(layer.feed_forward, MixtureOfExperts)]


def test_which_layers_have_experts() -> None:
    assert sparse_layers(model({"first_k_dense_replace": 3}, "deepseek_v3")) == [3]
    assert sparse_layers(model({"moe_layer_freq": 2, "first_k_dense_replace": 0}, "deepseek_v3")) == [0, 2]
    assert sparse_layers(model({"decoder_sparse_step": 2, "mlp_only_layers": [3]}, "qwen3_moe")) == [1]
    assert sparse_layers(model({"interleave_moe_layer_step": 4}, "llama4_text")) == [3]
    assert sparse_layers(model({"moe_layers": [0]}, "llama4_text")) == [0]


def test_prediction_layers_are_counted_apart_and_in_no_total() -> None:
    with_, without = (count_params(model({"num_nextn_predict_layers": n}, "deepseek_v3")) for n in (1, 0))
    assert with_.total == without.total
    assert dict(without.apart) == {}
    assert dict(with_.apart)["multi-token prediction"] > 0


def test_a_prediction_layer_of_deepseek_v3_has_11_5_billion_parameters_of_its_own() -> None:
    # DeepSeek-V3 technical report: 11.5 B unique parameters in the prediction module, embedding and head shared
    fields = {
        **{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61},
        **{"num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512},
        **{"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256},
        **{"num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 2048, "vocab_size": 129280},
        **{"first_k_dense_replace": 3, "num_nextn_predict_layers": 1, "tie_word_embeddings": False},
    }
    apart = dict(count_params(model_from_config(fields, "m", HERE)).apart)
    assert apart["multi-token prediction"] == pytest.approx(11.5e9, rel=0.01)


# --- towers, tying, states ----------------------------------------------------------------------------------------


def test_a_tower_is_counted_where_the_class_holds_it_and_apart_where_it_does_not() -> None:
    vision = {
        **{"depth": 2, "hidden_size": 32, "in_channels": 3, "intermediate_size": 48, "num_heads": 2, "patch_size": 4},
        **{"num_position_embeddings": 16, "out_hidden_size": 64, "spatial_merge_size": 2, "temporal_patch_size": 2},
        "deepstack_visual_indexes": [1],
    }
    text = {**SMALL["qwen3"], "model_type": "qwen3_vl_text"}
    held = {"model_type": "qwen3_vl", "text_config": text, "vision_config": {**vision, "model_type": "qwen3_vl"}}
    left = {
        "model_type": "qwen3_5",
        "text_config": SMALL["qwen3_5_text"],
        "vision_config": {**vision, "model_type": "qwen3_5"},
    }
    counted = count_params(model_from_config(held, "m", HERE))
    apart = model_from_config(left, "m", HERE)
    assert counted.vision == dict(count_params(apart).apart)["vision tower"] > 0
    assert count_params(apart).vision == 0
    assert any("apart from the total" in line for line in apart.assumptions)


def test_an_unknown_tower_is_named_and_not_guessed() -> None:
    spec = model_from_config(
        {"model_type": "x", "text_config": SMALL["qwen2"], "vision_config": {"model_type": "a_new_eye"}}, "m", HERE
    )
    assert any("a_new_eye" in line and "not counted" in line for line in spec.assumptions)


def test_a_state_type_the_config_names_is_used_and_an_unknown_one_refused() -> None:
    fmt = cache_format("fp16")
    whole = count_cache(model({"mamba_ssm_dtype": "float32"}, "qwen3_5_text"), fmt, 1).state_bytes
    half = count_cache(model({"mamba_ssm_dtype": "bfloat16"}, "qwen3_5_text"), fmt, 1).state_bytes
    assert half < whole == count_cache(model({}, "qwen3_5_text"), fmt, 1).state_bytes
    with pytest.raises(ModelConfigError, match="mamba_ssm_dtype"):
        model({"mamba_ssm_dtype": "float7"}, "qwen3_5_text")


def test_a_quantised_checkpoint_still_says_what_it_was_trained_in() -> None:
    assert model(
        {"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}}
    ).stored_format == number_format("bf16")


# --- no silent guess ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (None, {"linear_attn_config": {"a": 1}}, "linear attention"),
        (None, {"layers_block_type": ["mamba"] * 36}, "state-space"),
        (None, {"compress_ratios": [4] * 36}, "compressed attention"),
        (None, {"index_topk": 2048}, "index"),
        (None, {"num_kv_shared_layers": 4}, "sharing"),
        (None, {"sliding_window": 512}, "sliding window"),
        (None, {"cross_attention_layers": [3]}, "layers that differ"),
        (None, {"conv_L_cache": 3}, "convolution"),
        (None, {"v_head_dim": 64}, "different widths"),
        (None, {"attention_chunk_size": 8192, "layer_types": ["mystery"] * 36}, "mystery"),
        ("qwen3_next", {"layer_types": ["linear_attention"] * 3 + ["mystery"]}, "mystery"),
        ("nemotron_h", {"hybrid_override_pattern": "M-*EX"}, "X"),
        ("nemotron_h", {"hybrid_override_pattern": "M-*E"}, "4 layers are listed"),
        ("lfm2", {"layer_types": ["conv", "mystery", "conv", "conv"]}, "mystery"),
        ("recurrent_gemma", {"block_types": ["mystery"]}, "mystery"),
        ("deepseek_v4", {"compress_ratios": [0, 4, 16]}, "16"),
        ("deepseek_v3", {"mlp_layer_types": ["dense", "sparse", "mystery", "sparse"]}, "mystery"),
        ("glm_moe_dsa", {"index_topk_pattern": "FSX?"}, "FSX"),
        ("exaone4", {"layer_types": None, "sliding_window_pattern": "LLXG"}, "LLXG"),
        ("mixtral", {"num_experts_per_tok": 9}, "cannot be chosen"),
        ("gemma4_text-shared", {"num_kv_shared_layers": 10}, "leaves no layer"),
        ("gemma4_text-shared", {"num_kv_shared_layers": 9, "layer_types": None}, "no layer of its kind"),
        ("kimi_linear", {"linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2]}}, "once each"),
        ("mamba2", {"num_heads": 7}, "num_heads 7"),
        ("minimax", {"attn_type_list": [0, 2, 0, 1], "layer_types": None}, "attn_type_list"),
        ("zamba2", {"layers_block_type": None}, "layers_block_type"),
    ],
)
def test_a_design_nobody_counts_is_refused_by_its_field(
    base: str | None, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelConfigError, match=message) as caught:
        model(changes, base)
    assert "\n" not in str(caught.value)


PLAIN = {
    **REFERENCE_CONFIG,
    "model_type": "a_new_design",
    "attention_bias": False,
    "mlp_bias": False,
    "hidden_act": "silu",
}


def test_an_unknown_architecture_is_counted_only_when_every_field_is_understood() -> None:
    spec = model_from_config(PLAIN, "m", HERE)
    assert count_params(spec).total == 9_550_729_216
    assert any("a_new_design" in line and "not known here" in line for line in spec.assumptions)
    with pytest.raises(ModelConfigError, match="mixer_kind"):
        model_from_config({**PLAIN, "mixer_kind": "new"}, "m", HERE)
    with pytest.raises(ModelConfigError, match="lacks head_dim"):
        model_from_config({**PLAIN, "head_dim": None}, "m", HERE)


def test_fields_that_nothing_reads_are_named() -> None:
    assert any("brand_new_switch" in line for line in model({"brand_new_switch": 3}).assumptions)
    assert not any("brand_new_switch" in line for line in model({"brand_new_switch": None}).assumptions)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(SMALL)), st.data())
def test_whatever_the_fields_of_any_architecture_hold_only_our_errors_come_out(name: str, data: st.DataObject) -> None:
    base = SMALL[name]
    changes = data.draw(
        st.dictionaries(
            st.sampled_from(sorted({*base, "layer_types", "text_config"} - {"model_type"})), json_values, max_size=4
        )
    )
    text = json.dumps({**base, **changes})
    try:
        spec = model_from_config(parse_json_object(text, "config.json"), "m", HERE)
        params = count_params(spec)
        cache = count_cache(spec, cache_format("fp16"), 100)
    except InferenceBenchError as error:
        message = str(error)
    else:
        message = ""
        assert params.total > 0
        assert min(cache.num_bytes, cache.state_bytes, cache.next_token_bytes) >= 0
    assert "\n" not in message


def test_every_kind_of_attention_is_reached_by_the_recorded_configs() -> None:
    seen = {
        type(mixer).__name__
        for config in SMALL.values()
        for layer in model_from_config(config, "m", HERE).layers
        for mixer in layer.mixers
    }
    assert seen >= {"Attention", "LatentAttention", "CompressedAttention", "IndexedAttention", "CrossAttention"}
    assert seen >= {"LinearAttention", "Mamba", "Mamba2", "ShortConvolution", "Recurrence"}
    assert isinstance(model({}, "llama").layers[0].mixers[0], Attention)


def test_prediction_layers_that_nobody_counts_are_named() -> None:
    assert any("counted nowhere" in line for line in model({"num_nextn_predict_layers": 1}, "deepseek_v4").assumptions)
    assert not any(
        "counted nowhere" in line for line in model({"num_nextn_predict_layers": 1}, "deepseek_v3").assumptions
    )
    with pytest.raises(ModelConfigError, match="at most 4096"):
        model({"num_nextn_predict_layers": 10**9}, "deepseek_v3")
