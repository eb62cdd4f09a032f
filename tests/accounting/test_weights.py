"""Bytes of weights by format: published totals, llama.cpp's own choices, and figures worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.accounting.llama_cpp_mix import FILE_TYPES, MixModel, MixTensor, mix_formats
from inference_bench.accounting.named_weights import name_layer_weights
from inference_bench.accounting.params import count_params, layer_weights
from inference_bench.accounting.weight_plan import LINEAR_PARTS, PARTS, known_schemes, stored_plan, weight_plan
from inference_bench.accounting.weights import WeightCount, count_loaded_weights, count_weights
from inference_bench.errors import ModelConfigError, RequestError, UnknownNameError
from inference_bench.facts.config import model_from_config
from inference_bench.facts.formats import number_format
from inference_bench.facts.load import known_models
from inference_bench.facts.models import LoadedModel, ModelSpec
from inference_bench.facts.quantization import quantization_from_config
from inference_bench.units import format_bytes
from shapes import GOLDEN, HERE, REFERENCE_CONFIG, reference_model

FILE_TYPE_GOLDEN: dict[str, Any] = json.loads((GOLDEN / "llama_cpp_file_types.json").read_text())["models"]
KNOWN = {model.source.title.split()[2].rstrip(",").replace("/", "--"): model for model in known_models()}
GPT_OSS_20B: dict[str, Any] = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "vocab_size": 201088,
    "sliding_window": 128,
    "attention_bias": True,
    "tie_word_embeddings": False,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
    },
}
GPT_OSS_120B = GPT_OSS_20B | {
    "num_hidden_layers": 36,
    "num_local_experts": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
}


def counted(config: dict[str, Any], plan: str | None = None) -> WeightCount:
    return count_loaded_weights(LoadedModel(model_from_config(config, "a model", HERE), config=config), plan)


def parts_of(count: WeightCount) -> dict[str, int]:
    names = ("embedding", "head", "attention", "feed_forward", "experts", "norm", "other", "vision", "lookup", "draft")
    return {name: getattr(count, name) for name in names}


@pytest.mark.parametrize(("config", "total"), [(GPT_OSS_20B, 13_761_264_768), (GPT_OSS_120B, 65_248_815_744)])
def test_gpt_oss_takes_the_bytes_of_its_published_files(config: dict[str, Any], total: int) -> None:
    from_config = counted(config)
    assert from_config.total == total
    assert counted(config, "mxfp4").total == total
    assert from_config.linear_format.name == "mxfp4"
    assert from_config.bits_per_weight == total * 8 / count_params(model_from_config(config, "m", HERE)).total


def test_gpt_oss_120b_is_experts_at_17_32_bytes_and_the_rest_at_2() -> None:
    experts, others = 114_661_785_600, 2_167_371_072
    assert experts * 17 // 32 + others * 2 == 65_248_815_744
    count = counted(GPT_OSS_120B)
    assert count.total - count.experts + (count.experts - experts * 17 // 32) == others * 2


def test_46_7_billion_parameters_at_4_9_bits_take_28_6_gb() -> None:
    assert format_bytes(46_702_792_704 * 49 // 80, 3) == "28.6 GB"


@pytest.mark.parametrize(
    ("plan", "linear_bytes"),
    [  # 8,304,721,920 layer values: per layer q, o 4096², k, v 1024 × 4096, gate, up 15360 × 4096, down 4096 × 15360
        ("bf16", 2 * 8_304_721_920),
        ("int4-g128", 8_304_721_920 * 33 // 64),
        ("int4", 8_304_721_920 * 33 // 64),
        ("int4-g64", 8_304_721_920 * 17 // 32),
        ("int4-g128-zp", 8_304_721_920 * 17 // 32),
        ("torchao-int4", 8_304_721_920 * 17 // 32),
        ("awq", 8_304_721_920 * 133 // 256),
        # a 4-byte group index for each input of each of 7 matrices
        ("gptq", 8_304_721_920 * 133 // 256 + 36 * 4 * (6 * 4096 + 15360)),
        ("fp8", 8_304_721_920 + 36 * 7 * 4),
        ("fp8-b128", 8_304_721_920 + 8_304_721_920 // 16384 * 4),
        ("fp8-channel", 8_304_721_920 + 36 * 4 * (3 * 4096 + 2 * 1024 + 2 * 15360)),
        ("int8", 8_304_721_920 + 36 * 2 * (3 * 4096 + 2 * 1024 + 2 * 15360)),
        ("bnb-8bit", 8_304_721_920 + 36 * 4 * (3 * 4096 + 2 * 1024 + 2 * 15360)),
        ("nf4", 8_304_721_920 * 9 // 16 + 36 * 7 * 64),
        ("bnb-4bit", 8_304_721_920 * 9 // 16 + 36 * 7 * 64),
        ("nf4-dq", 8_304_721_920 * 33 // 64 + 8_304_721_920 // 16384 * 4 + 36 * 7 * 1092),
        ("mxfp4", 8_304_721_920 * 17 // 32),
        ("nvfp4", 8_304_721_920 * 9 // 16 + 36 * 7 * 4),
    ],
)
def test_each_scheme_converts_the_layer_matrices_and_nothing_else(plan: str, linear_bytes: int) -> None:
    count = count_weights(reference_model(), weight_plan(plan))
    assert count.attention + count.feed_forward == linear_bytes
    assert (count.embedding, count.head, count.norm) == (2 * 622_854_144, 2 * 622_854_144, 2 * (36 * 8192 + 4096))
    assert count.total == linear_bytes + 4 * 622_854_144 + count.norm


def test_biases_stay_plain_and_are_counted_with_their_layer() -> None:
    config = REFERENCE_CONFIG | {"model_type": "qwen2"}
    with_bias, without = counted(config, "int4"), counted(REFERENCE_CONFIG, "int4")
    assert with_bias.attention - without.attention == 36 * 2 * (4096 + 2 * 1024)


@pytest.mark.parametrize("part", ["embedding", "head", "attention", "feed_forward", "norm"])
def test_a_part_that_is_named_changes_alone(part: str) -> None:
    plain, changed = (
        parts_of(count_weights(reference_model(), weight_plan(plan))) for plan in ("bf16", f"bf16,{part}=fp32")
    )
    assert changed.pop(part) == 2 * plain.pop(part)
    assert changed == plain


def test_linear_names_every_layer_matrix() -> None:
    named = weight_plan("bf16,linear=fp8-b128")
    assert [part for part, _ in named.overrides] == list(LINEAR_PARTS)
    assert (
        count_weights(reference_model(), named).total == count_weights(reference_model(), weight_plan("fp8-b128")).total
    )


@pytest.mark.parametrize(
    "text",
    [
        "bf16",
        "awq",
        "int4-g128,embedding=int8,head=int8",
        "Q4_K_M,head=q8_0",
        "mxfp4,attention=fp8-b128",
        "nf4,norm=fp32",
    ],
)
def test_a_plan_s_name_makes_the_same_plan(text: str) -> None:
    plan = weight_plan(text)
    assert weight_plan(plan.name) == plan
    assert plan.name == text


@pytest.mark.parametrize("text", ["q4_k_m", "Q4_K_M", "  Q4_K_M "])
def test_file_types_are_found_whatever_their_case(text: str) -> None:
    assert weight_plan(text).file_type == "Q4_K_M"


@pytest.mark.parametrize("text", ["", "q4_k_x", "nothing", "awq-g0"])
def test_an_unknown_scheme_names_what_is_known(text: str) -> None:
    with pytest.raises(UnknownNameError, match=r"schemes: .*awq.*Q4_K_M"):
        weight_plan(text)


@pytest.mark.parametrize("text", ["bf16,tail=int8", "bf16,head", "bf16,=int8", "Q4_K_M,expert=int8"])
def test_a_part_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="PART=FORMAT"):
        weight_plan(text)


def test_every_scheme_that_is_listed_can_be_planned() -> None:
    assert {"awq", "gptq", "Q4_K_M", "MXFP4_MOE"} <= {name for name, _ in known_schemes()}
    for name, _ in known_schemes():
        assert weight_plan(name).scheme == name


def test_a_config_without_a_dtype_is_taken_as_bf16_and_says_so() -> None:
    count = counted(REFERENCE_CONFIG)
    assert count.total == 19_101_458_432
    assert any("no dtype" in note for note in count.notes)


# --- llama.cpp's file types -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FILE_TYPE_GOLDEN.keys() & KNOWN.keys()))
def test_file_types_take_the_bytes_llama_cpp_s_own_rules_give(name: str) -> None:
    for file_type, (total, _) in FILE_TYPE_GOLDEN[name].items():
        count = count_weights(KNOWN[name], weight_plan(file_type))
        assert count.total == total, file_type
        assert count.format_name == file_type


def test_enough_known_models_have_file_types_to_compare_with() -> None:
    assert len(FILE_TYPE_GOLDEN.keys() & KNOWN.keys()) >= 5
    assert all(set(rows) == set(FILE_TYPES) for rows in FILE_TYPE_GOLDEN.values())


def test_a_q4_1_file_of_smollm2_has_the_tensors_of_the_real_one() -> None:
    """SmolLM2-135M-Instruct.Q4_1.gguf as published holds 1 Q8_0, 210 Q4_1 and 61 F32 tensors of 96,576,768 bytes."""
    model = KNOWN["HuggingFaceTB--SmolLM2-135M"]
    count = count_weights(model, weight_plan("Q4_1"))
    assert count.total == 96_576_768
    assert count.embedding == 49152 * 576 * 34 // 32  # rows of 576 do not hold blocks of 256, so no Q6_K
    assert FILE_TYPE_GOLDEN["HuggingFaceTB--SmolLM2-135M"]["Q4_1"][1] == {"q4_1": 210, "q8_0": 1}


def test_q4_k_m_keeps_more_bits_in_the_first_last_and_every_third_layer() -> None:
    tensors = [MixTensor(f"blk.{layer}.ffn_down.weight", 4096) for layer in range(32)]
    chosen = mix_formats("Q4_K_M", tensors, MixModel(32, 4))
    more = {0, 1, 2, 3, 28, 29, 30, 31} | {6, 9, 12, 15, 18, 21, 24, 27}
    assert [layer for layer, name in enumerate(chosen) if name == "q6_k"] == sorted(more)


@pytest.mark.parametrize(
    ("file_type", "columns", "expected"),
    [
        ("Q4_K_S", 96, "q5_0"),
        ("Q6_K", 96, "q8_0"),
        ("Q2_K", 96, "q4_0"),
        ("IQ4_XS", 96, "iq4_nl"),
        ("Q4_0", 100, "fp16"),
        ("Q5_K_S", 100, "fp16"),
    ],
)
def test_a_row_that_does_not_fill_blocks_falls_back(file_type: str, columns: int, expected: str) -> None:
    assert mix_formats(file_type, [MixTensor("blk.20.ffn_up.weight", columns)], MixModel(32, 4)) == [expected]


def test_norms_routers_and_short_convolutions_are_left_alone() -> None:
    names = ["blk.0.attn_norm.weight", "blk.0.ffn_gate_inp.weight", "blk.0.ssm_conv1d.weight", "blk.0.attn_q.bias"]
    assert mix_formats("Q4_0", [MixTensor(name, 64) for name in names], MixModel(1, 1)) == [None] * 4


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(FILE_TYPES)),
    st.integers(1, 20),
    st.sampled_from([64, 96, 256, 576, 100]),
    st.sampled_from([0, 2, 8]),
)
def test_every_tensor_gets_a_format_its_rows_can_have(file_type: str, layers: int, columns: int, experts: int) -> None:
    names = [
        f"blk.{layer}.{name}.weight"
        for layer in range(layers)
        for name in ("attn_v", "attn_k", "attn_output", "ffn_down")
    ]
    for name in mix_formats(file_type, [MixTensor(name, columns) for name in names], MixModel(layers, 4, experts)):
        assert name is not None
        assert columns % number_format(name).block_values == 0


# --- what a config says -----------------------------------------------------------------------------------------------


def test_a_config_s_quantisation_is_the_default() -> None:
    config = REFERENCE_CONFIG | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    count = counted(config)
    assert count.total == count_weights(reference_model(), weight_plan("fp8-b128")).total
    assert count.format_name == "fp8"
    assert any("quantization" in note or "config says" in note for note in count.notes)


def test_layers_left_alone_by_name_stay_in_16_bits() -> None:
    kept = [f"model.language_model.layers.{layer}.self_attn*" for layer in range(36)]
    config = REFERENCE_CONFIG | {
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", *kept]}
    }
    count, plain = counted(config), counted(REFERENCE_CONFIG, "bf16")
    assert (count.attention, count.head) == (plain.attention, plain.head)
    assert count.feed_forward == 36 * 3 * (15360 * 4096 * 9 // 16 + 8)


def test_an_unknown_method_is_refused_and_a_named_format_goes_on() -> None:
    config = REFERENCE_CONFIG | {"quantization_config": {"quant_method": "mystery"}}
    with pytest.raises(ModelConfigError, match=r"mystery.*name the format"):
        counted(config)
    assert counted(config, "bf16").total == 19_101_458_432


@pytest.mark.parametrize(
    ("name", "doubtful"),
    [
        ("Qwen3-235B-A22B-NVFP4", True),
        ("Llama-3-8B-GPTQ-Int4", True),
        ("m-4bit", True),
        ("Qwen3-8B", False),
        ("int8000", False),
    ],
)
def test_a_name_that_speaks_of_a_quantisation_the_config_lacks_is_noted(name: str, doubtful: bool) -> None:
    spec = replace(reference_model(), name=name)
    count = count_loaded_weights(LoadedModel(spec, config=REFERENCE_CONFIG))
    assert count.total == 19_101_458_432
    assert any("its name says" in note for note in count.notes) is doubtful


def test_a_quantisation_without_a_rule_is_refused() -> None:
    found = quantization_from_config({"quantization_config": {"quant_method": "fp8"}}, "a config")
    assert found is not None
    with pytest.raises(RequestError, match="no format"):
        stored_plan(replace(found, rules=()), None)


# --- what holds for every model and plan ------------------------------------------------------------------------------


@pytest.mark.parametrize("model", known_models(), ids=lambda model: model.name)
def test_named_tensors_add_up_to_the_parameters_and_16_bits_to_twice_them(model: ModelSpec) -> None:
    for layer, _ in model.layer_groups():
        named = sum(weight.num_params for weight in name_layer_weights(layer, model.hidden_size))
        assert named == sum(shape.num_params for shape in layer_weights(layer, model.hidden_size))
    count = count_weights(model, weight_plan("bf16"))
    assert count.total == 2 * count_params(model).total
    assert count.total == sum(parts_of(count).values())


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["bf16", "awq", "fp8-b128", "nf4", "Q4_K_M", "Q8_0"]),
    st.sampled_from(PARTS),
    st.sampled_from(["fp32", "int8", "q8_0"]),
)
def test_parts_add_up_and_nothing_is_negative_whatever_is_named(plan: str, part: str, fmt: str) -> None:
    model = KNOWN["HuggingFaceTB--SmolLM2-135M"]
    count = count_weights(model, weight_plan(f"{plan},{part}={fmt}"))
    assert count.total == sum(parts_of(count).values())
    assert min(parts_of(count).values()) >= 0
    assert count.read_per_step <= count.total


# --- published files --------------------------------------------------------------------------------------------------

FILES: dict[str, Any] = json.loads((GOLDEN / "weight_file_sizes.json").read_text())


@pytest.mark.parametrize(("name", "plan", "file_bytes", "most_header"), FILES["files"])
def test_published_files_are_their_tensors_and_a_header(
    name: str, plan: str, file_bytes: int, most_header: int
) -> None:
    assert 0 < file_bytes - count_weights(KNOWN[name], weight_plan(plan)).total < most_header


def test_deepseek_v3_takes_the_bytes_of_its_163_files() -> None:
    """The files hold the 61 layers counted here, and one prediction layer with tables and a projection of its own."""
    model = KNOWN["deepseek-ai--DeepSeek-V3"]
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    counted_layers = count_loaded_weights(LoadedModel(model, config=config)).total
    deeper = replace(model, layers=(*model.layers, model.layers[-1]))
    prediction_layer = count_loaded_weights(LoadedModel(deeper, config=config)).total - counted_layers
    tables, projection, norms = 2 * 129280 * 7168, 2 * 7168 * 7168, 3 * 7168
    total = counted_layers + prediction_layer + 2 * (tables + projection + norms)
    correction_biases = 59 * 256 * 4
    headers = FILES["deepseek_v3_files_bytes"] - total - correction_biases
    assert 110 < headers / FILES["deepseek_v3_num_tensors"] < 150  # bytes of JSON a tensor
