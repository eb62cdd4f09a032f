from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_bench.errors import InferenceBenchError, ModelConfigError, RequestError
from inference_bench.facts.formats import grouped_format, number_format
from inference_bench.facts.module_patterns import ModulePatterns
from inference_bench.facts.quantization import Quantization, quantization_from_config

QUERIES, DOWN, EXPERT = (
    "model.layers.3.self_attn.q_proj",
    "model.layers.3.mlp.down_proj",
    "model.layers.3.mlp.experts.up_proj",
)


def read(settings_: dict[str, Any], **more: Any) -> Quantization:
    found = quantization_from_config({"quantization_config": settings_} | more, "a config")
    assert found is not None
    return found


def bits(settings_: dict[str, Any], module: str = DOWN) -> float:
    fmt = read(settings_).format_of(module)
    assert fmt is not None
    return float(fmt.bits_per_value)


def matrix_bytes(settings_: dict[str, Any], rows: int = 256, columns: int = 512, module: str = DOWN) -> int:
    fmt = read(settings_).format_of(module)
    assert fmt is not None
    return fmt.count_matrix_bytes(rows, columns)


def groups(**weights: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }


def test_a_config_without_quantisation_has_none() -> None:
    assert quantization_from_config({"hidden_size": 1}, "a config") is None
    assert quantization_from_config({"quantization_config": None}, "a config") is None


# 256 x 512 values; each expected figure is worked out by hand from the tensors the method writes
@pytest.mark.parametrize(
    ("settings_", "expected"),
    [
        # values, and one float32 for each of 2 x 4 tiles
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 131072 + 2 * 4 * 4),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, 131072 + 4),
        ({"quant_method": "fp8", "activation_scheme": "static"}, 131072 + 4 + 4),
        ({"quant_method": "fbgemm_fp8"}, 131072 + 256 * 4),
        # qweight 65536; scales 256 x 4 fp16; qzeros 256 x 4 x 4 bits
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
            65536 + 2048 + 512,
        ),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, 65536 + 4096 + 1024),
        # the same and an int32 group index for each of 512 inputs
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True},
            65536 + 2048 + 512 + 2048,
        ),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, 131072 + 2048 + 1024 + 2048),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, 65536 + 512 + 128 + 2048),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, 49152 + 2048 + 384 + 2048),
        # absmax float32 for each of 2048 blocks of 64; a table of 16 float32
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, 65536 + 8192 + 64),
        # absmax in a byte, 8 float32 for 2048 of them, tables of 16 and 256 float32, an offset
        (
            {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
            65536 + 2048 + 8 * 4 + 64 + 1024 + 4,
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 131072 + 256 * 4),
        ({"quant_method": "eetq"}, 131072 + 256 * 2),
        (groups(num_bits=4, type="int", strategy="group", group_size=128, symmetric=True), 65536 + 2048 + 16),
        (groups(num_bits=4, type="int", strategy="group", group_size=128, symmetric=False), 65536 + 2048 + 512 + 16),
        (groups(num_bits=4, type="int", strategy="group", group_size=128, actorder="group"), 65536 + 2048 + 2048 + 16),
        (groups(num_bits=8, type="int", strategy="channel"), 131072 + 512),
        (groups(num_bits=8, type="float", strategy="channel"), 131072 + 512),
        (groups(num_bits=8, type="float", strategy="tensor"), 131072 + 2),
        (groups(num_bits=8, type="float", strategy="block", block_structure=[128, 128]), 131072 + 2 * 4 * 2),
        (groups(num_bits=4, type="float", strategy="tensor_group", group_size=16), 65536 + 8192 + 4),
        (groups(num_bits=4, type="float", strategy="group", group_size=32), 65536 + 4096),
        # fp8 scale per 16, and float32 for the weights and their activations
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 65536 + 8192 + 8),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 131072 + 8),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, 131072 + 2 * 4 * 4),
        (
            {
                "quant_method": "torchao",
                "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 128}}},
            },
            65536 + 4096,
        ),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, 131072 + 512),
        # MLX: scale and offset in 16 bits per 64
        ({"bits": 4, "group_size": 64}, 65536 + 2048 * 4),
    ],
)
def test_bytes_of_a_matrix_are_those_of_the_tensors_a_method_writes(settings_: dict[str, Any], expected: int) -> None:
    assert matrix_bytes(settings_) == expected


def test_bits_of_the_usual_methods_to_the_digit() -> None:
    assert bits({"quant_method": "awq", "group_size": 128}) == 4.15625
    assert bits({"quant_method": "gptq", "bits": 4, "group_size": 128}) == 4.15625
    assert bits({"quant_method": "fp8", "weight_block_size": [128, 128]}) == 8 + 32 / 16384
    assert bits({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}) == 4.5
    assert bits(
        {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    ) == pytest.approx(4.127, abs=5e-4)
    assert bits({"quant_method": "mxfp4"}, EXPERT) == 4.25
    assert bits({"quant_method": "modelopt", "quant_algo": "NVFP4"}) == 4.5
    assert bits({"bits": 4, "group_size": 64}) == 4.5


def test_gpt_oss_converts_its_experts_alone() -> None:
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    found = read({"quant_method": "mxfp4", "modules_to_not_convert": kept})
    assert found.format_of(EXPERT) is number_format("mxfp4")
    assert [found.format_of(module) for module in (QUERIES, DOWN, "lm_head")] == [None, None, None]


def test_modules_left_alone_stay_plain() -> None:
    found = read(
        {
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": ["model.layers.3.mlp", "vision_tower"],
        }
    )
    assert found.format_of(DOWN) is None
    assert found.format_of(QUERIES) is not None
    assert found.format_of("lm_head") is None


def test_a_group_of_its_own_wins_over_the_one_for_all() -> None:
    weights = {"num_bits": 8, "type": "float", "strategy": "channel"}
    found = read(
        {
            "quant_method": "compressed-tensors",
            "ignore": ["re:.*lm_head"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
                },
                "group_1": {"targets": ["re:.*self_attn.(q|k|v)_proj$"], "weights": weights},
            },
        }
    )
    attention, dense = found.format_of(QUERIES), found.format_of(DOWN)
    assert attention is not None
    assert dense is not None
    assert (attention.name, dense.name) == ("fp8-channel", "int4-g128")
    assert found.format_of("lm_head") is None


def test_deepseek_v4_stores_experts_in_4_bits_and_scales_in_bytes() -> None:
    found = read({"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}, expert_dtype="fp4")
    dense, expert = found.format_of(DOWN), found.format_of(EXPERT)
    assert dense is not None
    assert expert is number_format("mxfp4")
    assert dense.count_matrix_bytes(256, 512) == 131072 + 8
    assert found.notes


def test_mlx_may_store_one_module_otherwise() -> None:
    found = read(
        {"bits": 4, "group_size": 64, "model.layers.3.mlp.down_proj": {"bits": 8, "group_size": 64}, "lm_head": False}
    )
    assert [fmt and float(fmt.bits_per_value) for fmt in map(found.format_of, (DOWN, QUERIES, "lm_head"))] == [
        8.5,
        4.5,
        None,
    ]
    assert found.converts_embedding


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"quant_method": "aqlm"}, "'aqlm'.*not known; known: fp8"),
        ({"quant_method": ""}, "not known"),
        ({"something": 1}, "None, which is not known"),
        ({"quant_method": 4}, "text is needed"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "two numbers"),
        ({"quant_method": "fp8", "weight_block_size": [128, -1]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": "128"}, "list of whole numbers"),
        ({"quant_method": "awq", "bits": 0}, "bits"),
        ({"quant_method": "awq", "group_size": 0}, "group_size is 0"),
        ({"quant_method": "awq", "group_size": -2}, "group_size"),
        ({"quant_method": "gptq", "bits": 99}, "1 to 16 bits"),
        ({"quant_method": "bitsandbytes"}, "neither"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "xx"}, "nf4, fp4"),
        ({"quant_method": "compressed-tensors"}, "config_groups is missing"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "config_groups is missing"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": None}}}, "no group"),
        (groups(num_bits=4, type="int", strategy="group"), "group_size"),
        (groups(num_bits=4, type="float", strategy="group", group_size=48), "16 and 32"),
        (groups(num_bits=8, type="float", strategy="odd"), "strategy"),
        (groups(num_bits=8, type="complex"), "complex"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "MIXED_PRECISION"),
        ({"quant_method": "torchao", "quant_type": "mystery"}, "mystery"),
        ({"quant_method": "fp8", "modules_to_not_convert": "lm_head"}, "list of texts"),
        ({"quant_method": "fp8", "modules_to_not_convert": [""]}, "1 to 256"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["a"] * 5000}, "up to 4096"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["re:("]}, "regular expression"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["re:(a+)+$"]}, "none of a group"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["re:.*.*.*.*.*x"]}, "up to 3"),
        ({"bits": 4, "group_size": 64, "mode": "odd"}, "affine"),
    ],
)
def test_settings_that_are_not_known_are_refused_by_name(settings_: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        read(settings_)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["fp8", [1], 7])
def test_a_section_that_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(ModelConfigError):
        quantization_from_config({"quantization_config": value}, "a config")


@pytest.mark.parametrize(
    ("pattern", "module", "expected"),
    [
        ("lm_head", "lm_head", True),
        ("gate", "model.layers.2.mlp.gate", True),
        ("gate", "model.layers.2.mlp.gate_proj", False),
        ("mlp.gate", "model.layers.2.mlp.gate", True),
        ("model.layers.1.mlp", "model.layers.1.mlp.up_proj", True),
        ("model.layers.1.mlp", "model.layers.10.mlp.up_proj", False),
        ("model.language_model.layers.1.self_attn*", "model.layers.1.self_attn.q_proj", True),
        ("model.layers.*.self_attn", "model.layers.7.self_attn.q_proj", True),
        ("model.layers.*", "model.layers.7.self_attn.q_proj", True),
        ("*embed_tokens", "model.embed_tokens", True),
        ("re:.*mlp.gate$", "model.layers.2.mlp.gate", True),
        ("re:.*mlp.gate$", "model.layers.2.mlp.gate_proj", False),
        ("re:visual", "model.layers.2.mlp.gate", False),
    ],
)
def test_patterns_name_modules_as_quantisers_mean_them(pattern: str, module: str, expected: bool) -> None:
    assert (module in ModulePatterns([pattern], "a test")) is expected


def test_a_hostile_pattern_list_takes_no_time() -> None:
    patterns = ModulePatterns(["*a*a*a*a*a*a*a*a*b"] * 1000 + ["re:.*a.*a.*b"] * 64, "a test")
    assert "model.layers.10." + "a" * 48 not in patterns
    with pytest.raises(ModelConfigError, match="64 regular expressions"):
        ModulePatterns(["re:a"] * 65, "a test")


KEYS = [
    "quant_method",
    "quant_algo",
    "bits",
    "group_size",
    "weight_block_size",
    "modules_to_not_convert",
    "ignore",
    "config_groups",
    "weights",
    "targets",
    "num_bits",
    "type",
    "strategy",
    "load_in_4bit",
    "load_in_8bit",
    "quant_type",
    "activation_scheme",
    "zero_point",
    "symmetric",
]
METHODS = [
    "fp8",
    "awq",
    "gptq",
    "bitsandbytes",
    "mxfp4",
    "compressed-tensors",
    "modelopt",
    "torchao",
    "eetq",
    "mlx",
    "NVFP4",
    "nf4",
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(METHODS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6), st.sampled_from(METHODS))
def test_any_settings_give_formats_or_one_of_our_errors(settings_: dict[str, Any], method: str) -> None:
    for more in ({}, {"quant_method": method}):
        config = {"quantization_config": settings_ | more}
        try:
            found = quantization_from_config(config, "a config")
            if found is not None:
                for module in (QUERIES, EXPERT, "lm_head"):
                    fmt = found.format_of(module)
                    assert fmt is None or fmt.count_matrix_bytes(3, 5) > 0
        except InferenceBenchError as error:
            assert "\n" not in str(error), json.dumps(config)  # noqa: PT017


def test_groups_of_any_size_and_width_count_packed_bits() -> None:
    assert grouped_format("x", 3, 128).count_matrix_bytes(8, 256) == 8 * 2 * (48 + 2)
    assert grouped_format("x", 4, None).count_matrix_bytes(8, 256) == 8 * (128 + 2)
    assert number_format("int3-g64-zp").bits_per_value == 3 + 32 / 64
    assert number_format("awq-g256").bits_per_value == 4 + 20 / 256
