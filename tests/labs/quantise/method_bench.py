"""A network of two blocks with random weights, and a bench to try methods on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inference_bench.labs.model import LabModel
from inference_bench.labs.quantise.methods import QuantiseBench
from inference_bench.labs.windows import cut_windows

VOCABULARY = 61


def tiny_network(seed: int = 0) -> Any:
    """Two blocks of 4 query heads over 2 key heads, 16 values a head."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).eval()


def _say_nothing(_line: str) -> None:
    return


def bench(network: Any, say: Callable[[str], None] = _say_nothing, is_quick: bool = True) -> QuantiseBench:
    """Windows of 48 tokens of a made-up text: one to calibrate on in quick mode, two else, and one to judge on."""
    ids = [(7 * place * place + 3 * place) % VOCABULARY for place in range(200)]
    model = LabModel(network, None, None, None, "float32")  # type: ignore[arg-type]
    return QuantiseBench(model, cut_windows(ids, 2, 0, 48), cut_windows(ids, 1, 96, 48), say, is_quick)
