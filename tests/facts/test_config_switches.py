"""Switches that add or leave out weights, towers, and fields that do not fit together: counted right or refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from inference_bench.accounting.cache import count_cache
from inference_bench.accounting.params import count_params
from inference_bench.errors import ModelConfigError, ModelFileError
from inference_bench.facts.config import model_from_config
from inference_bench.facts.families.unread import refuse_negative
from inference_bench.facts.load import load_model
from inference_bench.facts.models import FeedForward, Layer, Part
from inference_bench.predict.fit import cache_format
from shapes import GOLDEN, HERE, REFERENCE_CONFIG

SMALL: dict[str, dict[str, Any]] = {
    name: row["config"]
    for name, row in json.loads((GOLDEN / "transformers_small_models.json").read_text(encoding="utf-8"))[
        "models"
    ].items()
}


def total(config: dict[str, Any]) -> int:
    return count_params(model_from_config(config, "m", HERE)).total


# totals of Transformers 5.24 on the meta device, for the recorded small configs with one switch turned
TURNED = [
    ("helium", "attention_bias", True, 123_968),
    ("helium", "mlp_bias", True, 124_352),
    ("smollm3", "mlp_bias", True, 118_208),
    ("deepseek_v4", "mlp_bias", True, 119_745),
    ("minicpm3", "mlp_bias", True, 102_496),
    ("mimo_v2_flash", "attention_bias", True, 275_508),
    ("qwen3_next", "attention_bias", True, 228_872),
    ("qwen3_5_text", "attention_bias", True, 153_352),
    ("qwen3_5_moe_text", "attention_bias", True, 228_872),
    ("olmo_hybrid", "attention_bias", True, 164_544),
    ("falcon_h1", "mamba_proj_bias", True, 205_984),
    ("nemotron_h", "mamba_proj_bias", True, 109_040),
    ("nemotron_h", "use_bias", True, 109_760),
    ("zamba2", "use_conv_bias", False, 225_224),
    ("stablelm", "use_parallel_residual", True, 124_032),
    ("gpt_neox", "use_parallel_residual", False, 121_536),
]


@pytest.mark.parametrize(("name", "switch", "value", "expected"), TURNED)
def test_a_turned_switch_is_counted_as_the_class_builds_it(name: str, switch: str, value: bool, expected: int) -> None:
    assert total({**SMALL[name], switch: value}) == expected


def test_biases_of_the_feed_forward_blocks_of_cwm_and_of_q_k_v_of_solar_are_counted() -> None:
    cwm = {**REFERENCE_CONFIG, "model_type": "cwm"}
    layers, width, hidden = (REFERENCE_CONFIG[key] for key in ("num_hidden_layers", "intermediate_size", "hidden_size"))
    assert total({**cwm, "mlp_bias": True}) - total(cwm) == layers * (2 * width + hidden)
    solar = {
        **{key: value for key, value in REFERENCE_CONFIG.items() if key != "intermediate_size"},
        **{"model_type": "solar_open", "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
    }
    heads, kv_heads = REFERENCE_CONFIG["num_attention_heads"], REFERENCE_CONFIG["num_key_value_heads"]
    size = REFERENCE_CONFIG.get("head_dim") or hidden // heads
    assert total({**solar, "attention_bias": True}) - total(solar) == layers * (heads + 2 * kv_heads) * size


@pytest.mark.parametrize(
    ("name", "switch", "value"),
    [
        ("hy_v3", "mlp_bias", True),
        ("nemotron_h", "attention_bias", True),
        ("nemotron_h", "mlp_bias", True),
        ("zamba2", "tie_word_embeddings", False),
        ("ernie4_5_moe", "use_bias", True),
        ("mixtral", "attention_bias", True),
        ("qwen3", "mlp_bias", True),
        ("qwen3", "use_parallel_residual", True),
        ("qwen3", "use_qk_norm", False),
        ("qwen2", "use_qk_norm", True),
        ("qwen3", "attention_out_bias", "yes"),
    ],
)
def test_a_switch_nobody_counts_is_refused_by_name(name: str, switch: str, value: object) -> None:
    with pytest.raises(ModelConfigError, match=switch) as caught:
        model_from_config({**SMALL[name], switch: value}, "m", HERE)
    assert "\n" not in str(caught.value)


# --- heads and fields that do not fit together --------------------------------------------------------------------

SANTACODER = {
    **{"architectures": ["GPT2LMHeadCustomModel"], "model_type": "gpt2", "attention_head_type": "multiquery"},
    **{"auto_map": {"AutoConfig": "configuration_gpt2_mq.GPT2CustomConfig"}, "n_embd": 2048, "n_head": 16},
    **{"n_inner": 8192, "n_layer": 24, "n_positions": 2048, "vocab_size": 49280},
}


def test_santacoder_as_first_released_has_one_key_and_value_head() -> None:
    spec = model_from_config(SANTACODER, "m", HERE)
    # 24 layers, one head of 128, keys and values of two bytes, 32768 positions
    assert count_cache(spec, cache_format("fp16"), 32768).num_bytes == 24 * 2 * 128 * 2 * 32768 == 402_653_184
    assert count_params(spec).total == 1_124_886_528  # as GPTBigCode builds it
    assert any("GPT2LMHeadCustomModel" in line and "model_type says" in line for line in spec.assumptions)
    many = model_from_config({**SANTACODER, "attention_head_type": "multihead"}, "m", HERE)
    assert many.layers[0].attention.num_key_value_heads == 16
    with pytest.raises(ModelConfigError, match="attention_head_type"):
        model_from_config({**SANTACODER, "attention_head_type": "grouped"}, "m", HERE)


def test_queries_of_step_3_come_through_a_rank_shared_by_all_heads() -> None:
    config = {
        **{"model_type": "step3_text", "hidden_size": 7168, "intermediate_size": 18432, "num_attention_heads": 64},
        **{"num_attention_groups": 1, "num_hidden_layers": 5, "vocab_size": 128815, "moe_intermediate_size": 5120},
        **{"moe_num_experts": 48, "moe_top_k": 3, "share_expert_dim": 5120, "head_dim": 256, "share_q_dim": 2048},
        **{"moe_layers_enum": "4", "tie_word_embeddings": False},
    }
    queries, keys = 7168 * 2048 + 2048 + 2048 * 64 * 256, 2 * 7168 * 256
    attention = queries + keys + 64 * 256 * 7168
    dense, experts = 3 * 7168 * 18432, 49 * 3 * 7168 * 5120 + 48 * 7168
    expected = 5 * (attention + 2 * 7168) + 4 * dense + experts + 2 * 128815 * 7168 + 7168
    assert total(config) == expected
    with pytest.raises(ModelConfigError, match="share_q_dim"):
        model_from_config({**config, "share_q_dim": None}, "m", HERE)


def test_a_negative_number_never_reaches_a_count() -> None:
    layer = Layer((), FeedForward(8), 16, -3)
    with pytest.raises(ModelConfigError, match=r"Layer\.other_params would be -3"):
        refuse_negative([layer], [], "the config of m")
    with pytest.raises(ModelConfigError, match="vision tower"):
        refuse_negative([], [Part("vision tower", -1)], "the config of m")
    step = {
        **{"model_type": "step3_text", "hidden_size": 64, "num_attention_heads": 64, "num_attention_groups": 64},
        **{"num_hidden_layers": 1, "vocab_size": 9, "moe_intermediate_size": 8, "moe_num_experts": 2, "moe_top_k": 1},
        **{"head_dim": 256, "share_q_dim": 4096},
    }
    with pytest.raises(ModelConfigError, match="do not fit together"):
        model_from_config(step, "m", HERE)


def test_a_share_factor_without_sharing_shares_nothing() -> None:
    config = {**REFERENCE_CONFIG, "model_type": "hunyuan_v1_moe", "use_cla": False, "cla_share_factor": 2}
    spec = model_from_config(config, "m", HERE)
    assert all(layer.attention.shared_kv_from is None for layer in spec.layers)
    dense = model_from_config({**config, "model_type": "hunyuan_v1_dense"}, "m", HERE)
    assert len(dense.layers) == 36


def test_the_old_key_of_bloom_is_its_hidden_size() -> None:
    old = {"model_type": "bloom", "n_embed": 4096, "n_layer": 30, "num_attention_heads": 32, "vocab_size": 250880}
    assert total(old) == 7_069_016_064  # BLOOM-7B1, as published


# --- towers -------------------------------------------------------------------------------------------------------

# of each: the tower's config, what stands beside it, and the parameters Transformers 5.24 builds on the meta device
# outside the language model of that hidden size
TOWERS: dict[str, tuple[dict[str, Any], dict[str, Any], int, int]] = {
    "qwen2_5_vl": (
        {
            **{"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "in_chans": 3},
            **{"out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2},
        },
        {},
        3584,
        676_550_144,
    ),
    "llama4": (
        {
            **{"hidden_size": 1408, "image_size": 336, "intermediate_size": 5632, "model_type": "llama4_vision_model"},
            **{"num_attention_heads": 16, "num_hidden_layers": 34, "patch_size": 14, "projector_input_dim": 4096},
            **{"projector_output_dim": 4096, "vision_output_dim": 4096},
        },
        {"architectures": ["Llama4ForConditionalGeneration"]},
        5120,
        871_932_416,
    ),
    "mllama": (
        {
            **{"model_type": "mllama_vision_model", "attention_heads": 16, "hidden_size": 1280, "image_size": 560},
            **{"intermediate_size": 5120, "max_num_tiles": 4, "num_global_layers": 8, "num_hidden_layers": 32},
            **{"patch_size": 14, "vision_output_dim": 7680},
            "supported_aspect_ratios": [[1, 1], [1, 2], [1, 3], [1, 4], [2, 1], [2, 2], [3, 1], [4, 1]],
        },
        {"architectures": ["MllamaForConditionalGeneration"]},
        4096,
        895_028_755,
    ),
    "internvl": (
        {
            **{"model_type": "internvl_vision", "hidden_size": 1024, "intermediate_size": 4096, "norm_type": "x"},
            **{"num_hidden_layers": 24, "image_size": [448, 448], "patch_size": [14, 14], "attention_bias": True},
        },
        {"downsample_ratio": 0.5},
        3584,
        331_552_768,
    ),
    "gemma4": ({}, {}, 2816, 169_527_296),  # Gemma 4 26B-A4B, 25,402,669,056 with and 25,233,141,760 without it
    "fuyu": ({}, {"vision_config": None}, 4096, 11_063_296),  # 30 x 30 x 3 values to 4096, and a bias
}


@pytest.mark.parametrize("name", TOWERS)
def test_a_tower_is_counted_as_the_class_builds_it(name: str) -> None:
    vision, beside, hidden_size, expected = TOWERS[name]
    text = {**REFERENCE_CONFIG, "model_type": "llama", "hidden_size": hidden_size}
    spec = model_from_config({"model_type": name, "text_config": text, "vision_config": vision, **beside}, "m", HERE)
    assert count_params(spec).vision == expected
    assert not any(line.startswith("not counted: ") or "vision_config" in line for line in spec.assumptions)


@pytest.mark.parametrize(
    "fields",
    [
        {"vision_config": {"model_type": "a_new_eye"}},
        {"vision_config": {"model_type": "a_new_eye"}, "audio_config": {"model_type": "an_ear"}},
        {"visual": {"width": 1664, "layers": 48}},
        {"mm_vision_tower": "openai/clip"},
        {"model_type": "llava", "text_config": REFERENCE_CONFIG, "vision_config": {"model_type": "pixtral"}},
    ],
)
def test_exactly_one_line_names_the_towers_that_are_not_counted(fields: dict[str, Any]) -> None:
    spec = model_from_config({**REFERENCE_CONFIG, **fields}, "m", HERE)
    assert sum(line.startswith("not counted: ") and "tower" in line for line in spec.assumptions) == 1
    assert not any("change no count" in line for line in spec.assumptions)
    assert count_params(spec).vision == 0


# --- which reading was taken --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "my_own", "architectures": ["LlamaForCausalLM"]}, "'my_own' is read as llama"),
        ({"architectures": ["MyForCausalLM"], "auto_map": {"AutoModel": "m.My"}}, "MyForCausalLM"),
        ({"architectures": ["MistralForCausalLM"]}, "MistralForCausalLM"),
    ],
)
def test_a_class_and_a_model_type_that_differ_are_named_with_the_reading_taken(
    changes: dict[str, Any], said: str
) -> None:
    spec = model_from_config({**REFERENCE_CONFIG, "model_type": "llama", **changes}, "m", HERE)
    assert any(said in line and "read as" in line for line in spec.assumptions)


def test_a_class_that_bears_the_name_of_the_model_type_needs_no_word() -> None:
    config = {**REFERENCE_CONFIG, "model_type": "llama", "auto_map": {"AutoModel": "m.M"}}
    spec = model_from_config({**config, "architectures": ["LlamaForCausalLM"]}, "m", HERE)
    assert not any("architectures" in line for line in spec.assumptions)


# --- files --------------------------------------------------------------------------------------------------------


def test_a_mark_of_the_byte_order_before_a_config_is_no_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(REFERENCE_CONFIG).encode())
    assert count_params(load_model(str(path)).spec).total == 9_550_729_216


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("name", ["model.safetensors", "model.safetensors.index.json"])
@pytest.mark.parametrize("kind", ["broken link", "pipe", "folder", "device"])
def test_a_weight_file_that_cannot_be_read_is_named_and_not_passed_over(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(REFERENCE_CONFIG))
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else tmp_path / "nowhere")
    with pytest.raises(ModelFileError, match=name) as caught:
        load_model(str(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="this system has no links")
def test_a_shard_that_is_a_broken_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(REFERENCE_CONFIG))
    shard = "model-00001-of-00001.safetensors"
    index = {"metadata": {"total_size": 2}, "weight_map": {"model.norm.weight": shard}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / shard).symlink_to(tmp_path / "nowhere")
    with pytest.raises(ModelFileError, match=shard):
        load_model(str(tmp_path))
