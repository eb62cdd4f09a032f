"""Weights of every shared configuration, as the file itself says they are stored."""

from __future__ import annotations

import pytest

from corpus.model_configs import CONFIGS, MISSING, config_names, read_model
from inference_bench.accounting.llama_cpp_mix import FILE_TYPES
from inference_bench.accounting.named_weights import name_layer_weights
from inference_bench.accounting.params import count_params, layer_weights
from inference_bench.accounting.weight_plan import weight_plan
from inference_bench.accounting.weights import count_loaded_weights, count_weights
from inference_bench.facts.model_files import load_model_path

pytestmark = [pytest.mark.corpus, pytest.mark.skipif(not CONFIGS.is_dir(), reason=MISSING)]

# what each quantised file says: the format most layer matrices are in, and where it is known the published bytes
QUANTISED = {
    "MiniMaxAI--MiniMax-M2.5": ("fp8-b128", None),
    "Qwen--Qwen3-32B-FP8": ("fp8-b128", None),
    "deepseek-ai--DeepSeek-V3": ("fp8-b128", None),
    "deepseek-ai--DeepSeek-V3.2": ("fp8-b128", None),
    "deepseek-ai--DeepSeek-V4-Pro": ("mxfp4", None),
    "mistralai--Devstral-2-123B-Instruct-2512": ("fp8-tensor", None),
    "moonshotai--Kimi-K2-Instruct": ("fp8-b128", None),
    "nvidia--Gemma-4-31B-IT-NVFP4": ("nvfp4", None),
    "openai--gpt-oss-120b": ("mxfp4", 65_248_815_744),
    "openai--gpt-oss-20b": ("mxfp4", 13_761_264_768),
}


@pytest.mark.parametrize("name", config_names())
def test_weights_are_stored_as_the_file_says(name: str) -> None:
    model = load_model_path(CONFIGS / f"{name}.json")
    count, params = count_loaded_weights(model), count_params(model.spec)
    if name not in QUANTISED:
        assert count.total == params.total * (4 if count.format_name == "fp32" else 2)
        assert any("its name says" in note for note in count.notes) is name.endswith("NVFP4")
        return
    fmt, published = QUANTISED[name]
    assert count.linear_format.name == fmt
    assert published is None or count.total == published
    assert params.total < count.total * 8 / 4 < params.total * 4
    assert count.embedding == 2 * params.embedding


@pytest.mark.parametrize("name", config_names())
def test_named_tensors_add_up_to_the_parameters_and_every_format_to_a_total(name: str) -> None:
    model = read_model(name)
    for layer, _ in model.layer_groups():
        named = sum(weight.num_params for weight in name_layer_weights(layer, model.hidden_size))
        assert named == sum(shape.num_params for shape in layer_weights(layer, model.hidden_size))
    plain = count_weights(model, weight_plan("bf16"))
    assert plain.total == 2 * count_params(model).total
    for plan in ("awq", "fp8-b128", "nf4", "Q4_K_M", "Q8_0"):
        count = count_weights(model, weight_plan(plan))
        assert 0 < count.read_per_step <= count.total < plain.total


@pytest.mark.parametrize(
    "name",
    [
        "deepseek-ai--DeepSeek-V3",
        "nvidia--Nemotron-H-56B-Base-8K",
        "Qwen--Qwen3.5-35B-A3B",
        "google--gemma-4-E2B",
    ],
)
def test_every_file_type_can_be_counted_for_every_design(name: str) -> None:
    assert min(count_weights(read_model(name), weight_plan(file_type)).total for file_type in FILE_TYPES) > 0
