"""Figures that people published, argued about and corrected: each is what the layer types say.

Origins are the public threads named beside each row; the wrong figure of the same thread is the usual formula's.
"""

from __future__ import annotations

import json

import pytest

from inference_bench.accounting.cache import CacheCount, count_cache, count_kv_bytes_per_token
from inference_bench.facts.config import model_from_config
from inference_bench.facts.load import known_model
from inference_bench.facts.models import ModelSpec
from shapes import GOLDEN, HERE, cache_in

GIB = 2**30
RELEASED = json.loads((GOLDEN / "transformers_released_models.json").read_text(encoding="utf-8"))["models"]


def named(name: str) -> ModelSpec:
    return model_from_config(RELEASED[name]["config"], name, HERE) if name in RELEASED else known_model(name)


def cache(name: str, tokens: int, fmt: str = "fp16") -> CacheCount:
    return count_cache(named(name), cache_in(fmt), tokens)


@pytest.mark.parametrize(
    ("name", "tokens", "fmt", "gib", "origin"),
    [
        ("DeepSeek-V3", 65_536, "fp16", 4.29, "gpustack/gguf-parser-go#8: hundreds of GiB were printed"),
        ("DeepSeek-V3", 65_536, "q4_0", 1.21, "gpustack/gguf-parser-go#8"),
        ("DeepSeek-V3", 163_840, "fp16", 10.72, "unslothai/unsloth#4757, DeepSeek-V3.1 at full context"),
        ("moonshotai--Kimi-K2.5", 262_144, "fp16", 17.16, "unslothai/unsloth#4757, Kimi K2.5 at full context"),
        ("gemma-3-27b-it", 131_072, "fp16", 10.41, "unslothai/unsloth#4757: 81.38 was printed"),
        ("gpt-oss-20b", 131_072, "fp16", 3.003, "18 and 12 layers keep 128 positions: alvarobartt/hf-mem#60"),
        ("Qwen3.5-27B", 262_144, "fp16", 16.00, "AlexsJones/llmfit#203: 64 GiB was printed"),
        ("google--gemma-4-26B-A4B", 32_768, "fp16", 0.82, "ollama/ollama#16958: 14.09 GB was printed"),
        ("Meta-Llama-3.1-8B", 32_768, "fp16", 4.0, "vllm-project/vllm#29736: four times that by the hidden size"),
    ],
)
def test_the_cache_is_what_the_corrected_figure_says(name: str, tokens: int, fmt: str, gib: float, origin: str) -> None:
    places = len(str(gib).partition(".")[2])
    assert round(cache(name, tokens, fmt).num_bytes / GIB, places) == gib, origin


def test_deepseek_takes_70272_bytes_a_token_and_not_124928() -> None:
    # LMCache/LMCache#694: layers · (512 + 64) · 2, not 2 · layers · 512
    assert count_kv_bytes_per_token(named("DeepSeek-V3"), cache_in("fp16")) == 61 * (512 + 64) * 2 == 70_272


def test_a_quarter_of_the_layers_of_qwen3_5_grow_and_the_rest_keep_64_megabytes() -> None:
    # gpustack/gguf-parser-go#28 (Qwen3.6-35B-A3B): 10 of 40 layers cache, plus 64 MB of state
    found = cache("Qwen3.5-35B-A3B", 32_768)
    grown = sum(row.count for row in found.layers if row.num_bytes)
    assert (grown, sum(row.count for row in found.layers)) == (10, 40)
    assert found.state_bytes == pytest.approx(64e6, rel=0.01)
    assert found.naive_bytes == 4 * found.num_bytes


def test_glm_5_2_keeps_index_keys_in_21_of_78_layers() -> None:
    rows = cache("zai-org--GLM-5.2", 100).layers
    assert sorted((row.count, row.bytes_per_position) for row in rows) == [(21, (576 + 128) * 2), (57, 576 * 2)]


def test_nemotron_h_caches_in_its_attention_layers_alone() -> None:
    # inference-sim/inference-sim#1558: 8 to 10 times too high, and no state
    found = cache("nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 32_768)
    assert found.num_bytes == 12 * 2 * 2 * 128 * 2 * 32_768
    assert found.state_bytes > 0
    assert found.naive_bytes is not None
    assert found.naive_bytes / found.num_bytes == 9


def test_memory_of_a_mixture_is_that_of_all_its_experts() -> None:
    # signerless/llm-checker#27 sized memory by active experts; jranaraki/vllm-fit#27 read Mixtral as 13B
    from inference_bench.accounting.params import count_params

    params = count_params(named("Mixtral-8x7B-v0.1"))
    assert (params.total, params.active) == (46_702_792_704, 12_879_925_248)
