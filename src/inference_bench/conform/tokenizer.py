"""Which tokenizer do other tools make their prompts with, so that none has to be fetched?

In:   an empty folder
Out:  three files that tokenizer libraries read: one token a byte, and one more for " a", the word the truth server says
Leaves out: our own client, which needs none
Read next by: tools.

Tools that count the tokens of a text themselves, where a server states none, so find as many as the server meant.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

_PRINTABLE: Final = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))  # bytes that stand for themselves
_NUM_BYTES: Final = 0x100
_END: Final = "<|end|>"
_MOST_TOKENS: Final = 131_072


def write_tokenizer(folder: Path) -> None:
    """Write tokenizer.json and the two files that say what kind it is into a folder."""
    files = {"tokenizer.json": _tokenizer(), "tokenizer_config.json": _CONFIG, "config.json": {"model_type": "gpt2"}}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


def _byte_characters() -> list[str]:
    """The character that stands for each byte: itself, or one beyond the first 256 for those that cannot be shown."""
    hidden = iter(range(_NUM_BYTES, 2 * _NUM_BYTES))
    return [chr(byte) if byte in _PRINTABLE else chr(next(hidden)) for byte in range(_NUM_BYTES)]


def _tokenizer() -> dict[str, Any]:
    characters = _byte_characters()
    space = characters[ord(" ")]
    vocabulary = {token: number for number, token in enumerate([*characters, f"{space}a", _END])}
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": vocabulary[_END], "content": _END, **flags}],
        "pre_tokenizer": by_bytes,
        "decoder": by_bytes,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [f"{space} a"], "byte_fallback": False},
    }


_CONFIG: Final = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "model_max_length": _MOST_TOKENS,
    "eos_token": _END,
    "pad_token": _END,
    "clean_up_tokenization_spaces": False,
}
