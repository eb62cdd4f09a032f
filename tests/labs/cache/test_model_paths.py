"""The ways through a model of Transformers: right when sound, seen when a fault is planted, and whole again afterwards."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.errors import MeasurementError  # noqa: E402
from inference_bench.labs.cache.compare import LOGIT_TOLERANCE, compare  # noqa: E402
from inference_bench.labs.cache.faults import Fault  # noqa: E402
from inference_bench.labs.cache.model_paths import (  # noqa: E402
    ModelCached,
    ModelRecomputed,
    cache_bytes,
    cache_positions,
    tiled_heads,
)
from inference_bench.labs.cache.paths import Generation, generate  # noqa: E402
from labs.cache.tiny import ids, tiny_network  # noqa: E402

PROMPT, EMITTED = 12, 16


@pytest.fixture(scope="module")
def network() -> Any:
    return tiny_network()


@pytest.fixture(scope="module")
def full(network: Any) -> Generation:
    return generate(ModelRecomputed(network), ids(PROMPT), EMITTED)


def test_the_librarys_cache_gives_the_text_of_full_recomputation_in_the_bytes_of_the_formula(
    network: Any, full: Generation
) -> None:
    """2 · 2 layers · 2 KV heads · 8 values · 4 bytes at 12 + 16 - 1 positions."""
    path = ModelCached(network)
    found = generate(path, ids(PROMPT), EMITTED)
    assert found.tokens == full.tokens
    assert float((found.logits - full.logits).abs().max()) < LOGIT_TOLERANCE
    assert cache_positions(path.cache) == 27
    assert cache_bytes(path.cache) == 256 * 27


@pytest.mark.parametrize("fault", list(Fault))
def test_every_planted_fault_is_seen_in_the_logits(network: Any, full: Generation, fault: Fault) -> None:
    found = generate(ModelCached(network, fault), ids(PROMPT), EMITTED, as_long_as=full.tokens)
    told = compare(full, found, subject="model", prompt="p", num_prompt_tokens=PROMPT, store="s", fault=fault)
    assert told.max_logit_error > 100 * LOGIT_TOLERANCE


def test_after_a_fault_was_planted_everything_is_as_before(network: Any, full: Generation) -> None:
    sound = torch.nn.functional.scaled_dot_product_attention
    generate(ModelCached(network, Fault.KV_HEADS_TILED), ids(PROMPT), 2)
    assert torch.nn.functional.scaled_dot_product_attention is sound
    assert generate(ModelCached(network), ids(PROMPT), EMITTED).tokens == full.tokens


def test_tiling_heads_is_what_reordering_the_key_matrices_would_be(network: Any) -> None:
    """Four query heads on two KV heads: read as 0 1 0 1, the middle two query heads have swapped their key heads."""
    query, key, value = (torch.randn(1, heads, 3, 8) for heads in (4, 2, 2))
    attention = torch.nn.functional.scaled_dot_product_attention
    swapped = attention(query[:, [0, 2, 1, 3]], key, value, is_causal=True, enable_gqa=True)[:, [0, 2, 1, 3]]
    with tiled_heads():
        tiled = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    assert torch.allclose(tiled, swapped, atol=1e-6)


def test_a_fault_that_cannot_be_planted_does_not_count_as_one() -> None:
    path = ModelCached(tiny_network(num_key_value_heads=4), Fault.KV_HEADS_TILED)
    with pytest.raises(MeasurementError, match="could not be planted"):
        path.begin(ids(PROMPT))
