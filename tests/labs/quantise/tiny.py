"""A network of two blocks with random weights, and a bench around it, for the tests of the quantise lab."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from inference_bench.labs.model import LabModel
from inference_bench.labs.quantise.methods import QuantiseBench
from inference_bench.labs.windows import cut_windows

VOCABULARY = 96
GROUP = 64
WINDOW = 48


def quiet(_line: str) -> None:
    return


def tiny_network(hidden: int = 64, seed: int = 0) -> Any:
    """Two blocks of 4 query heads over 2 key heads, 16 values a head."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).eval()


def random_ids(number: int, seed: int = 0) -> list[int]:
    return torch.randint(0, VOCABULARY, (number,), generator=torch.Generator().manual_seed(seed)).tolist()


def tiny_bench(network: Any = None, is_quick: bool = True, say: Callable[[str], None] = quiet) -> QuantiseBench:
    """Two windows to calibrate on and two others to judge on, of random tokens."""
    ids = random_ids(4 * WINDOW)
    subject: Any = type("Subject", (), {"gguf": None})()
    model = LabModel(network or tiny_network(), None, None, subject, "float32")  # type: ignore[arg-type]
    return QuantiseBench(
        model, cut_windows(ids, 2, 0, WINDOW), cut_windows(ids, 2, 2 * WINDOW, WINDOW), GROUP, say, is_quick
    )
