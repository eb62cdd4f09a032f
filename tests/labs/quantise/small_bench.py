"""A network of two blocks with random weights, and a bench around it, for the tests of the quantise lab."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from inference_bench.labs.quantise.methods import QuantiseBench
from inference_bench.labs.windows import cut_windows

VOCABULARY = 96


def tiny_network(hidden: int = 64, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).eval()


def random_ids(number: int, seed: int = 0) -> list[int]:
    return torch.randint(0, VOCABULARY, (number,), generator=torch.Generator().manual_seed(seed)).tolist()


def tiny_bench(hidden: int = 64, is_quick: bool = True) -> QuantiseBench:
    ids = random_ids(256)
    model: Any = SimpleNamespace(network=tiny_network(hidden), subject=SimpleNamespace(gguf=None))
    return QuantiseBench(model, cut_windows(ids, 2, 0, 32), cut_windows(ids, 2, 128, 32), lambda _line: None, is_quick)
