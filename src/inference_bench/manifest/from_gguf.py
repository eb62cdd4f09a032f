"""What does a .gguf file say of itself that belongs into a manifest?

In:   its path
Out:  components: the tokenizer and chat templates inside it, its format, its size in parameters, what it says it was made from
Leaves out: the hash of the file (hashing); weights
Read next by: from_files.

What a file says of its origin is its own word: it is kept as stated, and is no lineage.

Source: ggml, docs/gguf.md; llama.cpp, the numbers and names of file types (llama_ftype, 2026-11)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from inference_bench.convert.metadata import RawMetadata, read_raw_metadata
from inference_bench.facts.gguf import read_gguf_header
from inference_bench.facts.gguf_header import GGUFArray, GGUFHeader
from inference_bench.manifest.canonical import plain_value, sha256_of
from inference_bench.manifest.components import Component, Group, Value

TEMPLATE_KEY: Final = "tokenizer.chat_template"
DEFAULT_TEMPLATE: Final = "default"
_SAMPLING: Final = "general.sampling."
_SAMPLING_NAMES: Final = {"temp": "temperature", "penalty_repeat": "repeat_penalty"}
# only those that llama.cpp prints as they stand here; another number is unknown
_FILE_TYPES: Final = {
    0: "all F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K - Medium",
    11: "Q3_K - Small",
    12: "Q3_K - Medium",
    13: "Q3_K - Large",
    14: "Q4_K - Small",
    15: "Q4_K - Medium",
    16: "Q5_K - Small",
    17: "Q5_K - Medium",
    18: "Q6_K",
    32: "BF16",
}
_STATED_ORIGIN: Final = re.compile(
    r"general\.(source\.(url|repo_url|huggingface\.repository)|base_model\.\d+\.(repo_url|name))"
)


def components_of_gguf(path: Path) -> Iterator[Component]:
    """What the header of a .gguf file says.

    Raises:   ModelFileError
    """
    header = read_gguf_header(path)
    raw = read_raw_metadata(header, path)
    yield from _model(header)
    yield from _templates(header, raw)
    yield Component(Group.TOKENIZER, "gguf", "GGUF keys tokenizer.ggml.*", sha256=_tokenizer_hash(raw))
    for key, value in header.metadata.items():
        if key.startswith(_SAMPLING) and (known := plain_value(value)) is not None:
            name = key.removeprefix(_SAMPLING)
            yield Component(Group.SAMPLING, _SAMPLING_NAMES.get(name, name), f"GGUF key {key}", value=known)
        elif _STATED_ORIGIN.fullmatch(key) and isinstance(value, str):
            yield Component(Group.LINEAGE, f"stated {key}", "the file's own word, not checked", value=value)


def _model(header: GGUFHeader) -> Iterator[Component]:
    def known(group: Group, name: str, source: str, value: Value | None) -> Iterator[Component]:
        if value is not None:
            yield Component(group, name, source, value=value)

    architecture = header.get_str("general.architecture")
    yield from known(Group.MODEL, "architecture", "GGUF key general.architecture", architecture)
    positions = header.metadata.get(f"{architecture}.context_length")
    yield from known(
        Group.MODEL,
        "context_tokens_trained",
        f"GGUF key {architecture}.context_length",
        positions if type(positions) is int else None,
    )
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    size = tokens.count if isinstance(tokens, GGUFArray) else None
    yield from known(Group.MODEL, "vocabulary_size", "GGUF key tokenizer.ggml.tokens, counted", size)
    if header.get_int("split.count") in (None, 0, 1):
        total = sum(tensor.num_values for tensor in header.tensors)
        yield from known(Group.MODEL, "num_params", "GGUF tensor table, summed", total)
    kind = header.metadata.get("general.file_type")
    yield from known(
        Group.FORMAT, "weights", "GGUF key general.file_type", _FILE_TYPES.get(kind) if type(kind) is int else None
    )


def _templates(header: GGUFHeader, raw: RawMetadata) -> Iterator[Component]:
    """Each chat template by its own hash, also one too long for the header to keep."""
    for key in header.metadata:
        if key == TEMPLATE_KEY or key.startswith(f"{TEMPLATE_KEY}."):
            name = key.removeprefix(TEMPLATE_KEY).removeprefix(".") or DEFAULT_TEMPLATE
            text = _text(raw, key)
            yield Component(Group.CHAT_TEMPLATE, name, f"GGUF key {key}", sha256_of(text), len(text))


def _text(raw: RawMetadata, key: str) -> bytes:
    """The bytes of a text, however long."""
    _, start = raw.at[key]
    size = int.from_bytes(raw.raw[start : start + 8], "little")
    return raw.raw[start + 8 : start + 8 + size]


def _tokenizer_hash(raw: RawMetadata) -> str:
    """One hash over the keys of the tokenizer, as they stand in the file, in the order of their names.

    Where:    the same in every quantisation of one model that one converter made
    """
    ends = sorted(start for _, start in raw.at.values())
    following = dict(zip(ends, [*ends[1:], len(raw.raw)], strict=True))
    names = {start: key for key, (_, start) in raw.at.items()}
    digest = hashlib.sha256()
    for key in sorted(key for key in raw.at if key.startswith("tokenizer.ggml.")):
        value_type, start = raw.at[key]
        end = following[start]
        if end in names:  # what stands between is the next key: its length, its name, its type
            end -= 12 + len(names[end].encode())
        digest.update(f"{key}\0{value_type}\0{end - start}\0".encode())
        digest.update(raw.raw[start:end])
    return digest.hexdigest()
