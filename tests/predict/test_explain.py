"""Figures as other tools print them, each with the rule that is known to have produced it."""

from __future__ import annotations

from typing import Any

import pytest

from inference_bench.accounting.weights import count_weights, weight_plan
from inference_bench.errors import QuantityError, RequestError
from inference_bench.facts.config import model_from_config
from inference_bench.facts.models import ModelSpec
from inference_bench.predict.explain import Explanation, explain_figure
from shapes import HERE, cache_in

# the shape of Gemma 3 27B and of DeepSeek-V3, the fields that matter to the cache
GEMMA = {
    "model_type": "gemma3_text", "hidden_size": 5376, "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16,
    "head_dim": 128, "intermediate_size": 21504, "vocab_size": 262208, "sliding_window": 1024, "sliding_window_pattern": 6,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "first_k_dense_replace": 3, "vocab_size": 129280, "tie_word_embeddings": False,
}  # fmt: skip


def model(config: dict[str, Any]) -> ModelSpec:
    return model_from_config(config, "m", HERE)


def explain(config: dict[str, Any], figure: str, context: int = 32768) -> Explanation:
    spec = model(config)
    return explain_figure(spec, count_weights(spec, weight_plan("bf16")), cache_in("fp16"), figure, context)


@pytest.mark.parametrize(
    ("config", "figure", "rule"),
    [
        # what peers printed for one sequence of 32768 tokens, 16 bits
        (GEMMA, "2.906 GiB", "true"),
        (GEMMA, "15.500 GiB", "layer count"),
        (GEMMA, "31.000 GiB", "query heads"),
        (GEMMA, "20.344 GiB", "hidden / heads"),
        (GEMMA, "2.500 GiB", "window layers left out"),
        # what engines allocate: llama.cpp's worked figure, vLLM's admission bound and steady state
        (GEMMA, "3184 MiB", "llama.cpp"),
        (GEMMA, "6.73 GiB", "vLLM"),
        (GEMMA, "2.98 GiB", "vLLM, steady"),
        (DEEPSEEK, "2.145 GiB", "true"),
        (DEEPSEEK, "53.375 GiB", "layer count"),
        # 61 · 32768 · 2 · 512 values of 2 bytes: the latent counted twice, without its rotary key
        (DEEPSEEK, "4.094 GB", "doubled latent"),
    ],
)
def test_a_published_figure_is_traced_to_its_rule(config: dict[str, Any], figure: str, rule: str) -> None:
    found = explain(config, figure)
    assert found.matches[0].rule.name == rule
    assert ("is right" in found.verdict) == (rule == "true" or rule.startswith(("vLLM", "llama.cpp")))


def test_a_decimal_figure_with_a_binary_unit_is_named_as_that() -> None:
    # 3,120,562,176 bytes are 3.12 GB; printed as GiB that would be 3.35e9
    found = explain(GEMMA, "3.121 GiB")
    assert found.matches[0].unit_note == "GiB was printed for GB"
    assert "wrong unit" in found.verdict


def test_a_figure_no_rule_gives_is_said_to_be_unknown() -> None:
    found = explain(GEMMA, "11.1 GiB")
    assert found.matches == ()
    assert "No rule" in found.verdict
    assert found.true_bytes == (10 * 32768 + 52 * 1024) * 8192


def test_counting_only_the_active_experts_is_recognised() -> None:
    spec = model(DEEPSEEK)
    active = explain(DEEPSEEK, "75.1 GB")
    assert count_weights(spec, weight_plan("bf16")).total == pytest.approx(1342e9, rel=0.01)  # 671B in 16 bits
    assert active.matches[0].rule.name == "active experts"  # 37.5B active in 16 bits


@pytest.mark.parametrize(
    "figure", ["", "lots", "-3 GiB", "15.5", "nan GiB", "1e9 GB", "15.5 parsec", "13B", "9" * 5000]
)
def test_a_figure_that_is_no_amount_is_refused(figure: str) -> None:
    if figure == "15.5":
        assert explain(GEMMA, figure).matches == ()  # bytes, and far from any rule
        return
    with pytest.raises(QuantityError):
        explain(GEMMA, figure)


def test_an_empty_context_is_refused() -> None:
    with pytest.raises(RequestError, match="at least 1"):
        explain(GEMMA, "1 GiB", 0)
