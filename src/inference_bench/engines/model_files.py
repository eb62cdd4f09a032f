"""Which files is a model made of, and what is in them, by hash?

In:   the path of a .gguf file, or of a folder as Transformers writes it
Out:  ModelFiles: the SHA-256 of each file, and one over all of them
Leaves out: what the files say (facts)
Read next by: attach, start, vllm, sglang, verify.

Only regular files with the endings of models are read: a path may come from a server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from inference_bench.engines.base import Progress
from inference_bench.measure.files import sha256_of_file

_WEIGHTS: Final = (".gguf", ".safetensors")
_BESIDE_WEIGHTS: Final = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "chat_template.jinja",
    "quantize_config.json",
    "model.safetensors.index.json",
)
_MOST_FILES: Final = 1024


class ModelFiles(NamedTuple):
    """The SHA-256 of each file by its name, in order, and one that stands for all of them.

    Formula:  of one file its own; of several that of the lines "hash  name"
    """

    by_name: Mapping[str, str]
    sha256: str


def list_model_files(path: Path) -> list[Path]:
    """The files that make up a model, by name; none where there is no model at that path."""
    if path.suffix in _WEIGHTS:
        return [path] if path.is_file() else []
    try:
        inside = sorted(path.iterdir())[:_MOST_FILES] if path.is_dir() else []
    except OSError:
        return []
    found = [each for each in inside if (each.suffix in _WEIGHTS or each.name in _BESIDE_WEIGHTS) and each.is_file()]
    return found if any(each.suffix in _WEIGHTS for each in found) else []


def hash_model(path: Path, progress: Progress | None = None) -> ModelFiles | None:
    """The hashes of a model's files; None where there are none, or they cannot be read."""
    files = list_model_files(path)
    if not files:
        return None
    if progress is not None:
        progress(f"hashing {path.name}")
    try:
        by_name = {file.name: sha256_of_file(file) for file in files}
    except OSError:
        return None
    if len(by_name) == 1:
        return ModelFiles(by_name, next(iter(by_name.values())))
    lines = "".join(f"{digest}  {name}\n" for name, digest in by_name.items())
    return ModelFiles(by_name, hashlib.sha256(lines.encode()).hexdigest())
