"""A Llama of Transformers with two layers and weights drawn from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def tiny_network(num_key_value_heads: int = 2, num_rows: int = 64) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=num_rows,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=num_key_value_heads,
        head_dim=8,
        max_position_embeddings=256,
        initializer_range=0.4,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval()


def ids(count: int, seed: int = 0) -> list[int]:
    import torch

    draw = torch.Generator().manual_seed(seed)
    return [int(token) for token in torch.randint(0, 64, (count,), generator=draw)]


def write_folder(folder: Path) -> Path:
    """The network and a tokenizer of single characters, but that a space and a P are one token."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    tiny_network(num_rows=128).save_pretrained(folder)
    vocab = {chr(code): code for code in range(2, 128)} | {"\0": 0, " P": 1}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[(" ", "P")], unk_token="\0"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="\0").save_pretrained(folder)
    return folder
