"""Transformers' own modules on the meta device, where it is installed: parameters equal, tolerance 0.

Every architecture that is counted here and that Transformers knows is built from its configuration class's defaults.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from inference_bench.accounting.params import count_params
from inference_bench.facts.config import model_from_config
from inference_bench.facts.families.architectures import FAMILY_OF, TEXT_SECTION_OF
from shapes import HERE

torch = pytest.importorskip("torch", reason="torch (extra labs) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra labs) is not installed")

# Why a class's defaults cannot be compared, or differ from what is counted.
EXCEPTIONS = {
    "deepseek_v2": "the class defaults leave num_experts_per_tok unset",
    "glm4_moe": "the class defaults have heads that do not divide the hidden size; the class rounds down",
    "longcat_flash": "the class allocates gate and up matrices for experts that have no weights",
    "whisper": "the language-model class leaves the encoder out",
    "t5": "not a causal language model in Transformers",
    **dict.fromkeys(("dots1", "ministral", "nemotron", "lfm2_moe"), "the class cannot be built from its own defaults"),
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe"), "the class cannot be built from its own defaults"),
    **dict.fromkeys(("gemma3n",), "the whole multimodal class needs packages beyond this extra"),
}


def known_to_both() -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted({*FAMILY_OF, *TEXT_SECTION_OF} & set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - set(EXCEPTIONS))


def default_config(model_type: str) -> Any:
    return transformers.CONFIG_MAPPING[model_type]()


@pytest.mark.parametrize("model_type", known_to_both())
def test_parameters_equal_the_modules_on_the_meta_device(model_type: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = default_config(model_type)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
    expected = sum(parameter.numel() for parameter in model.parameters())
    assert count_params(model_from_config(config.to_dict(), model_type, HERE)).total == expected


def test_most_architectures_are_compared() -> None:
    assert len(known_to_both()) >= 80
