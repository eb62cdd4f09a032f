"""A random two-layer Llama in memory, and a bench around it, for the tests of the quantise lab."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from inference_bench.labs.model import LabModel
from inference_bench.labs.quantise.methods import QuantiseBench
from inference_bench.labs.windows import cut_windows

VOCABULARY = 96


def quiet(_line: str) -> None:
    return


def tiny_network(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.02,
    )
    return LlamaForCausalLM(config).eval()


def bench(network: Any, is_quick: bool = True, say: Callable[[str], None] = quiet) -> QuantiseBench:
    ids = torch.randint(0, VOCABULARY, (256,), generator=torch.Generator().manual_seed(0)).tolist()
    model = LabModel(network, None, None, None, "float32")  # type: ignore[arg-type]
    return QuantiseBench(model, cut_windows(ids, 2, 0, 32), cut_windows(ids, 2, 128, 32), say, is_quick)
