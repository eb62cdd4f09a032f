"""A vocabulary of a few hundred tokens and a model of random weights over it, made here: nothing is fetched."""

from __future__ import annotations

from functools import cache
from typing import Any

from inference_bench.labs.grammar.matching import Vocabulary, read_vocabulary
from inference_bench.labs.grammar.writing import CachedModel

CORPUS = ['{"name":"Zürich","age":12}', '{"stops":[{"city":"東京"},{"city":"Oslo"}]}', '"ab","abc","abd"'] * 4


@cache
def tokenizer() -> Any:
    """Byte pairs over all bytes, with merges across quotes, colons and braces, and inside 東."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")


@cache
def vocabulary() -> Vocabulary:
    return read_vocabulary(tokenizer(), len(tokenizer()), [tokenizer().eos_token_id])


@cache
def network(seed: int = 0) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer()), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def model(seed: int = 0) -> CachedModel:
    return CachedModel(network(seed), vocabulary().tokens_of(b"Oslo"))
