"""Writes a GGUF file's model as a Hugging Face folder that vLLM and Transformers load.

In:   a ConversionSource, a dtype
Out:  a folder: config.json, generation_config.json, model.safetensors, tokenizer.json, tokenizer_config.json, special_tokens_map.json
Leaves out: designs and vocabularies that cannot be said there (see hugging_face_config, hugging_face_tokenizer)
Read next by: flow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from inference_bench.convert.hugging_face_config import (
    HuggingFaceShape,
    config_json,
    generation_json,
    read_shape,
    special_ids,
)
from inference_bench.convert.hugging_face_tensors import FILE_NAME, TensorMove, plan_moves, write_safetensors
from inference_bench.convert.hugging_face_tokenizer import special_tokens, tokenizer_config, tokenizer_json
from inference_bench.convert.metadata import read_raw_metadata
from inference_bench.convert.outputs import WrittenFile, file_in, whole_folder
from inference_bench.convert.plan import ConversionSource
from inference_bench.facts.formats import number_format
from inference_bench.units import MEBI

_CONFIG, _GENERATION = "config.json", "generation_config.json"
_TOKENIZER, _TOKENIZER_CONFIG, _SPECIAL = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
FILES: Final = (_CONFIG, _GENERATION, FILE_NAME, _SPECIAL, _TOKENIZER, _TOKENIZER_CONFIG)
_SMALL_FILES_BYTES: Final = 16 * MEBI  # room for all but the weights


@dataclass(frozen=True, slots=True)
class FolderPlan:
    """Everything a folder will hold but the weights' own numbers, found to be sound before anything is written."""

    shape: HuggingFaceShape
    moves: tuple[TensorMove, ...]
    dtype: str
    documents: dict[str, dict[str, Any]]

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors, exact."""
        return sum(move.num_bytes(number_format(self.dtype)) for move in self.moves)


def plan_folder(source: ConversionSource, dtype: str) -> FolderPlan:
    """What the folder will hold.

    Raises:  ModelFileError for what a folder cannot say
    """
    shape = read_shape(source)
    metadata, special = read_raw_metadata(source.header, source.path), special_ids(source)
    documents = {
        _CONFIG: config_json(shape, dtype, special),
        _GENERATION: generation_json(special),
        _TOKENIZER: tokenizer_json(source, metadata),
        _TOKENIZER_CONFIG: tokenizer_config(source, metadata, shape.max_positions),
        _SPECIAL: special_tokens(source, metadata),
    }
    return FolderPlan(shape, plan_moves(source, shape), dtype, documents)


def write_folder(
    source: ConversionSource, plan: FolderPlan, target: Path, say: Callable[[str], None]
) -> tuple[WrittenFile, ...]:
    """The folder, whole or not at all; its files by name.

    Raises:  ModelFileError for what cannot be read or stored, StorageError for what cannot be written
    """
    written = []
    with whole_folder(target, plan.tensor_bytes + _SMALL_FILES_BYTES) as folder:
        for name, document in plan.documents.items():
            with file_in(folder, name) as out:
                out.write(json.dumps(document, ensure_ascii=False, indent=2).encode("utf-8") + b"\n")
                written.append(out.done())
        with file_in(folder, FILE_NAME) as out:
            write_safetensors(source, plan.moves, plan.dtype, out, say)
            written.append(out.done())
    return tuple(sorted(written, key=lambda file: file.name))
