"""A random two-layer Llama with a tokenizer of its own, as a folder: small enough for a test, whole enough to be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

NUM_ROWS = 64
WORDS = ("the", "whale", "ship", "sea", "a", "and", "of", "Ishmael")


def write(folder: Path, num_ids: int = NUM_ROWS, num_rows: int = NUM_ROWS, seed: int = 0) -> Path:
    """The folder, with config.json, model.safetensors and tokenizer.json."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=num_rows,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    write_tokenizer(folder, num_ids)
    return folder


def write_tokenizer(folder: Path, num_ids: int) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<unk>", *WORDS, *(f"w{index}" for index in range(num_ids))][:num_ids]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
