"""Model shapes and formats that several tests use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from inference_bench.accounting.cache import CacheFormat
from inference_bench.facts.config import model_from_config
from inference_bench.facts.formats import number_format
from inference_bench.facts.models import Attention, FeedForward, Layer, ModelSpec
from inference_bench.facts.source import Source

GOLDEN = Path(__file__).parent / "golden" / "published"
REFERENCE_CONFIG: dict[str, Any] = {
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 15360,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
    "model_type": "llama",
}
HERE = Source("a test", "2026-11-29")


def reference_model() -> ModelSpec:
    return model_from_config(REFERENCE_CONFIG, "reference", HERE)


def cache_in(name: str) -> CacheFormat:
    return CacheFormat(number_format(name), number_format(name))


def golden(section: str) -> dict[str, Any]:
    return json.loads((GOLDEN / "reference_case.json").read_text())[section]


def hybrid_model() -> ModelSpec:
    """52 layers, 13 of them full and 39 with a window of 2048, 2 KV heads of 128."""
    full = Attention(32, 2, 128)
    window = Attention(32, 2, 128, sliding_window=2048)
    layers = tuple(Layer((full if index % 4 == 3 else window,), FeedForward(4096), 2 * 4096) for index in range(52))
    return ModelSpec("hybrid", "llama", 4096, 32000, 2, 128, layers, False, 131072, 4096, HERE)
