from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.accounting.params import count_params
from inference_bench.errors import InferenceBenchError, ModelConfigError
from inference_bench.facts.config import model_from_config
from inference_bench.facts.fields import parse_json_object
from inference_bench.facts.load import known_model, known_models
from shapes import HERE, REFERENCE_CONFIG

# parameter totals as the Hugging Face hub or the model cards print them
PUBLISHED_TOTALS = {
    "SmolLM2-135M": 134_515_008,
    "Qwen3-8B": 8_190_735_360,
    "Llama-2-7b-hf": 6_738_415_616,
    "Meta-Llama-3.1-8B": 8_030_261_248,
    "Meta-Llama-3.1-70B": 70_553_706_496,
    "Mistral-7B-v0.1": 7_241_732_096,
    "Qwen2.5-7B-Instruct": 7_615_616_512,
    "gemma-2-2b": 2_614_341_888,
    "gemma-3-1b-it": 999_885_952,
    "phi-4": 14_659_507_200,
}


@pytest.mark.parametrize(("name", "total"), PUBLISHED_TOTALS.items())
def test_parameters_of_known_models_equal_the_published_totals(name: str, total: int) -> None:
    assert count_params(known_model(name)).total == total


def test_every_known_model_can_be_counted_and_names_its_source() -> None:
    models = known_models()
    assert len(models) >= 15
    for model in models:
        assert count_params(model).total > 10**8
        assert model.source.title
        assert model.source.as_of


def config(**changes: Any) -> dict[str, Any]:
    return {**REFERENCE_CONFIG, **changes}


def windows(**changes: Any) -> list[int | None]:
    model = model_from_config(config(num_hidden_layers=8, **changes), "m", HERE)
    return [layer.attention.sliding_window for layer in model.layers]


def test_gemma_2_alternates_starting_with_a_window() -> None:
    assert windows(model_type="gemma2", sliding_window=4096) == [4096, None] * 4


def test_gemma_3_has_every_sixth_layer_full_unless_the_config_says_another_period() -> None:
    assert windows(model_type="gemma3_text", sliding_window=512) == [512] * 5 + [None] + [512] * 2
    assert windows(model_type="gemma3_text", sliding_window=512, sliding_window_pattern=4) == ([512] * 3 + [None]) * 2


def test_a_window_that_is_switched_off_is_no_window() -> None:
    assert windows(model_type="qwen2", sliding_window=4096, use_sliding_window=False, max_window_layers=0) == [None] * 8


def test_qwen_windows_start_at_max_window_layers() -> None:
    assert (
        windows(model_type="qwen2", sliding_window=64, use_sliding_window=True, max_window_layers=5)
        == [None] * 5 + [64] * 3
    )


def test_every_mistral_layer_has_the_window() -> None:
    assert windows(model_type="mistral", sliding_window=4096) == [4096] * 8
    assert windows(model_type="mistral", sliding_window=None) == [None] * 8


def test_layer_types_decide_where_the_config_has_them() -> None:
    kinds = ["full_attention", "sliding_attention"] * 4
    assert windows(model_type="qwen3", layer_types=kinds, sliding_window=128) == [None, 128] * 4


def test_text_fields_nested_in_a_multimodal_config_are_found_and_said() -> None:
    text = config(model_type="gemma3_text", sliding_window=1024)
    model = model_from_config({"model_type": "gemma3", "text_config": text}, "m", HERE)
    assert model.model_type == "gemma3_text"
    assert any("towers" in line for line in model.assumptions)


def test_a_config_without_a_model_type_is_counted_as_a_plain_decoder_and_says_so() -> None:
    plain = {key: value for key, value in REFERENCE_CONFIG.items() if key != "model_type"}
    model = model_from_config(plain, "m", HERE)
    assert count_params(model).total == 9_550_729_216
    assert any("plain pre-norm decoder" in line for line in model.assumptions)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "no hidden_size"),
        ({"vocab_size": None}, "no vocab_size"),
        ({"hidden_size": -4096}, "hidden_size is -4096"),
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"hidden_size": 2**60}, "must lie in"),
        ({"hidden_size": "4096"}, "whole number"),
        ({"hidden_size": 4096.0}, "whole number"),
        ({"hidden_size": True}, "whole number"),
        ({"num_hidden_layers": 10**9}, "at most 4096"),
        ({"num_key_value_heads": 7}, "not a multiple"),
        ({"head_dim": None, "num_attention_heads": 24, "num_key_value_heads": 8}, "not a multiple"),
        ({"layer_types": ["full_attention"]}, "1 entries for num_hidden_layers 36"),
        ({"layer_types": ["mystery_attention"] * 36}, "mystery_attention"),
        ({"layer_types": "full"}, "list of texts"),
        ({"tie_word_embeddings": "yes"}, "true or false"),
        ({"model_type": "a_new_design"}, "a_new_design"),
        ({"model_type": 7}, "text is needed"),
        ({"kv_lora_rank": 512}, "multi-head latent attention"),
        ({"num_local_experts": 8}, "mixture of experts"),
        ({"ssm_state_size": 128}, "state-space"),
        ({"text_config": []}, "object is needed"),
    ],
)
def test_a_config_that_cannot_be_counted_is_refused_by_field_and_value(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message) as caught:
        model_from_config(config(**changes), "m", HERE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("[]", "an object"),
        ("{" * 100_000, "JSON|deeply"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "deeply|JSON"),
        ('{"a": NaN}', "NaN"),
        ('{"a": Infinity}', "Infinity"),
        ('{"a": 1, "a": 2}', "twice"),
        ("<html>", "not valid JSON"),
    ],
)
def test_text_that_is_no_json_object_is_refused(text: str, message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        parse_json_object(text, "config.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from([*REFERENCE_CONFIG, "sliding_window", "layer_types", "text_config", "head_dim", "dtype"]),
        json_values,
    )
)
def test_whatever_the_fields_hold_only_our_errors_come_out(changes: dict[str, Any]) -> None:
    text = json.dumps(config(**changes))
    with contextlib.suppress(InferenceBenchError):  # anything else that is raised fails the test
        assert count_params(model_from_config(parse_json_object(text, "config.json"), "m", HERE)).total > 0
