"""Random models small enough to decode in milliseconds, whose next token depends on everything before."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

VOCABULARY = 29
NUM_LAYERS = 3


def tiny_network(seed: int = 0, num_layers: int = NUM_LAYERS) -> Any:
    """A Llama with weights wide enough that attention, and with it every cached key, decides the argmax."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.4,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


class ScriptedDraft:
    """Proposes what it was told, right or wrong: the answer's own tokens, but for those at the places that are wrong."""

    name = "scripted"

    def __init__(self, answer: list[int], prompt_tokens: int, wrong: frozenset[int] = frozenset()) -> None:
        self._said = [(token + 1) % VOCABULARY if place in wrong else token for place, token in enumerate(answer)]
        self._prompt_tokens = prompt_tokens

    def begin(self, prompt: Any) -> None:
        return

    def propose(self, context: Any, count: int) -> list[int]:
        place = len(context) - self._prompt_tokens
        return self._said[place : place + count]

    def logits(self, ids: Any) -> None:
        return
