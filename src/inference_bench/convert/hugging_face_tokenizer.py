"""tokenizer.json and tokenizer_config.json of a Hugging Face folder, from the vocabulary in a GGUF file.

In:   a ConversionSource and its RawMetadata
Out:  the two files as dicts; the chat template is copied as text and never run
Leaves out: vocabularies that are no byte-level BPE, and pre-tokenizers that are not listed here: refused by name
Read next by: hugging_face.

Source: tokenizers, the format of tokenizer.json; llama.cpp, the expressions of its pre-tokenizers (2026-11)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inference_bench.convert.metadata import RawMetadata
from inference_bench.convert.plan import ConversionSource
from inference_bench.errors import ModelFileError
from inference_bench.facts.gguf_header import GGUFLongText

_KEY: Final = "tokenizer.ggml."
_CONTROL, _USER_DEFINED = 3, 4  # token types: never written by a user, and a user's own
_BYTES_AS_LETTERS: Final = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_QWEN2: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PRE_TOKENIZERS: Final[Mapping[str, tuple[dict[str, Any], ...]]] = {
    "gpt-2": (_BYTES_AS_LETTERS,),
    "smollm": ({"type": "Digits", "individual_digits": True}, _BYTES_AS_LETTERS),
    "qwen2": (
        {"type": "Split", "pattern": {"Regex": _QWEN2}, "behavior": "Isolated", "invert": False},
        {**_BYTES_AS_LETTERS, "use_regex": False},
    ),
}
_NORMALIZERS: Final = {"qwen2": {"type": "NFC"}}  # as its own tokenizer has it; llama.cpp leaves text as it comes
_TOKEN_OF: Final = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


def tokenizer_json(source: ConversionSource, metadata: RawMetadata) -> dict[str, Any]:
    """The tokenizer: byte-level BPE with the file's own vocabulary and merges.

    Raises:  ModelFileError for a vocabulary that is another kind, or contradicts itself
    """
    kind = _pre_tokenizer(source)
    tokens = _tokens(source, metadata)
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        twice = next(token for index, token in enumerate(tokens) if vocabulary[token] != index)
        raise ModelFileError(f"{source.path.name}: the token {twice[:40]!r} is in the vocabulary twice")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(index, tokens[index], special) for index, special in _marked(tokens, metadata)],
        "normalizer": _NORMALIZERS.get(kind),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(_PRE_TOKENIZERS[kind])},
        "post_processor": _first_token(source, tokens),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": _merges(source, metadata, vocabulary),
        },
    }


def tokenizer_config(source: ConversionSource, metadata: RawMetadata, max_positions: int) -> dict[str, Any]:
    """What goes beside it: special tokens by their texts, and the chat template.

    Raises:  ModelFileError
    """
    tokens = _tokens(source, metadata)
    marked = {str(index): {**_added(index, tokens[index], special)} for index, special in _marked(tokens, metadata)}
    for entry in marked.values():
        del entry["id"]
    template = source.header.metadata.get("tokenizer.chat_template")
    if isinstance(template, GGUFLongText):
        raise ModelFileError(
            f"{source.path.name}: its chat template of {template.num_bytes} bytes is longer than is copied"
        )
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_positions,
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": marked,
        **special_tokens(source, metadata),
        **({"chat_template": template} if isinstance(template, str) else {}),
    }


def special_tokens(source: ConversionSource, metadata: RawMetadata) -> dict[str, str]:
    """The texts of the special tokens that the file names."""
    tokens = _tokens(source, metadata)
    ids = {name: source.header.get_int(_KEY + key) for name, key in _TOKEN_OF.items()}
    return {name: tokens[index] for name, index in ids.items() if index is not None and 0 <= index < len(tokens)}


def _pre_tokenizer(source: ConversionSource) -> str:
    model = source.header.get_str(_KEY + "model")
    if model != "gpt2":
        raise ModelFileError(
            f"{source.path.name}: its vocabulary is {str(model)[:40]!r}; converted to a folder: gpt2 (byte-level BPE)"
        )
    kind = source.header.get_str(_KEY + "pre") or ""
    if kind not in _PRE_TOKENIZERS:
        raise ModelFileError(
            f"{source.path.name}: its pre-tokenizer is {kind[:40]!r}; converted to a folder: {', '.join(_PRE_TOKENIZERS)}"
        )
    return kind


def _tokens(source: ConversionSource, metadata: RawMetadata) -> tuple[str, ...]:
    tokens = metadata.strings(_KEY + "tokens")
    if len(tokens) != source.model.spec.vocab_size:
        raise ModelFileError(
            f"{source.path.name}: {len(tokens)} tokens for an embedding table of {source.model.spec.vocab_size} rows"
        )
    return tokens


def _marked(tokens: Sequence[str], metadata: RawMetadata) -> list[tuple[int, bool]]:
    """The tokens that are found in a text before it is split, and whether each is special."""
    types = metadata.integers(_KEY + "token_type")
    return [
        (index, kind == _CONTROL)
        for index, (token, kind) in enumerate(zip(tokens, types, strict=False))
        if kind in (_CONTROL, _USER_DEFINED) and token
    ]


def _added(index: int, token: str, special: bool) -> dict[str, Any]:
    return {
        "id": index,
        "content": token,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def _merges(source: ConversionSource, metadata: RawMetadata, vocabulary: Mapping[str, int]) -> list[list[str]]:
    merges = []
    for line in metadata.strings(_KEY + "merges"):
        left, separator, right = line.partition(" ")
        if not separator or not {left, right, left + right} <= vocabulary.keys():
            raise ModelFileError(f"{source.path.name}: the merge {line[:60]!r} is not of two tokens that make a third")
        merges.append([left, right])
    return merges


def _first_token(source: ConversionSource, tokens: Sequence[str]) -> dict[str, Any] | None:
    """What puts the first token before every text, where the file asks for one."""
    index = source.header.get_int(_KEY + "bos_token_id")
    if not source.header.get_bool(_KEY + "add_bos_token") or index is None or not 0 <= index < len(tokens):
        return None
    first = {"SpecialToken": {"id": tokens[index], "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [first, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [first, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {tokens[index]: {"id": tokens[index], "ids": [index], "tokens": [tokens[index]]}},
    }
