"""Conversions made once and kept: under a name made of the source's hash and the format, checked by hash whenever they are used.

In:   a source with its SHA-256, a target format
Out:  KeptModel, whose files are what the conversion wrote
Leaves out: when they are thrown away: the cache folder may be emptied at any time
Read next by: verify.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from inference_bench.convert.flow import Conversion, ConversionRequest, Progress, conversion_json, convert_model
from inference_bench.convert.plan import HUGGING_FACE
from inference_bench.errors import RequestError, StorageError
from inference_bench.files import write_whole
from inference_bench.measure.files import cache_folder, sha256_of_file
from inference_bench.units import MEBI

_FOLDER: Final = "converted"
_RULES: Final = 1  # raised whenever the same source would be written otherwise
_NAME_DIGITS: Final = 16
_MAX_NOTE_BYTES: Final = MEBI


@dataclass(frozen=True, slots=True)
class KeptModel:
    """A converted model in the cache folder.

    Where:  path is a .gguf file or a folder; weights is the name under which the same bytes are counted
    Unit:   bytes
    """

    path: Path
    sha256: str
    weights: str
    tensor_bytes: int


def kept_conversion(
    source: Path,
    source_sha256: str,
    to: str,
    dtype: str = "float32",
    progress: Progress | None = None,
    folder: Path | None = None,
) -> KeptModel:
    """The source in another format, from the cache folder where it is whole there, or converted into it first.

    Raises:  RequestError and its kinds for what cannot be converted; StorageError if it cannot be kept
    """
    say = progress or (lambda _text: None)
    home = (folder or cache_folder()) / _FOLDER
    target = home / _name(source_sha256, to, dtype)
    note = home / f"{target.name}.json"
    found = _kept(note, target, source_sha256, to)
    if found is not None:
        return found
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot keep conversions in {home}: {error.strerror or error}") from error
    made = convert_model(ConversionRequest(source, target, to, dtype, may_replace=True), say)
    if made.source_sha256 != source_sha256:
        raise RequestError(f"{source.name} changed while it was converted; try again")
    write_whole(note, json.dumps({"rules": _RULES, **conversion_json(made)}, indent=2) + "\n")
    return _as_kept(made)


def _name(source_sha256: str, to: str, dtype: str) -> str:
    """Sixteen digits of the source's hash, the format, and the rules of the conversion."""
    stem = f"{source_sha256[:_NAME_DIGITS]}-{to}"
    return f"{stem}-{dtype}-{_RULES}" if to == HUGGING_FACE else f"{stem}-{_RULES}.gguf"


def _as_kept(made: Conversion) -> KeptModel:
    return KeptModel(made.target, made.target_sha256, made.weights, made.tensor_bytes)


def _kept(note: Path, target: Path, source_sha256: str, to: str) -> KeptModel | None:
    """What the note says, if it is of this conversion and every file is still what was written; None otherwise."""
    try:
        if note.stat().st_size > _MAX_NOTE_BYTES:
            return None
        said = json.loads(note.read_bytes())
        made = said["target"]
        if (said["rules"], said["source"]["sha256"], made["format"]) != (_RULES, source_sha256, to):
            return None
        if not made["files"] or not all(_is_whole(target, file) for file in made["files"]):
            return None
        return KeptModel(target, str(made["sha256"]), str(made["weights"]), int(made["tensor_bytes"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _is_whole(target: Path, file: dict[str, Any]) -> bool:
    path = target / Path(str(file["name"])).name if target.is_dir() else target
    return bool(path.stat().st_size == file["bytes"]) and sha256_of_file(path) == file["sha256"]
