"""Which files make up a model, and what is each of them for?

In:   the path of a folder as Transformers writes it, or of one .gguf file, which may be the first of several parts
Out:  NamedFiles with their Group
Leaves out: what is in them (hashing, from_files); papers, pictures and hidden files, which no engine loads
Read next by: from_files, adapters, create, run.

A link is followed where it stays inside the folder, or leads into the blobs of the same hub download; any other is refused, since
what it leads to may be anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from inference_bench.errors import ModelFileError, RequestError
from inference_bench.files import shown_name, what_stands_at
from inference_bench.manifest.components import Group
from inference_bench.manifest.hashing import NamedFile
from inference_bench.units import format_count

MOST_FILES: Final = 100_000
_PART: Final = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf")
_WEIGHTS: Final = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".npz")
_TOKENIZER: Final = frozenset({
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "vocab.txt", "spiece.model", "sentencepiece.bpe.model", "tekken.json", "tokenizer.model.v3",
    "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json",
})  # fmt: skip
_TOKENIZER_ENDS: Final = (".tiktoken",)
_TEMPLATES: Final = frozenset({"chat_template.jinja", "chat_template.json"})
_CONFIG: Final = frozenset({"config.json", "generation_config.json", "quantize_config.json", "params.json"})
_CONFIG_ENDS: Final = (".index.json",)
_NOT_LOADED: Final = (".md", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf", ".html")
_NOT_LOADED_NAMES: Final = ("license", "notice", "readme", "usage_policy", "use_policy")


def group_of(name: str) -> Group | None:
    """What a file of a model's folder is for, by its name; None for one that no engine loads."""
    base = PurePosixPath(name).name
    if base.startswith(".") or base.lower().endswith(_NOT_LOADED) or base.lower().startswith(_NOT_LOADED_NAMES):
        return None
    if base in _TOKENIZER or base.endswith(_TOKENIZER_ENDS):
        return Group.TOKENIZER
    if base in _TEMPLATES or base.endswith(".jinja"):
        return Group.CHAT_TEMPLATE
    if base in _CONFIG or base.endswith(_CONFIG_ENDS):
        return Group.CONFIG
    if base.endswith(_WEIGHTS):
        return Group.WEIGHTS
    return Group.CODE if base.endswith(".py") else Group.OTHER


def list_folder(folder: Path) -> list[tuple[Group, NamedFile]]:
    """The files of a model's folder that an engine may load, by name.

    Raises:   ModelFileError for a link that leads out of it, or what cannot be read; RequestError for more files than any model has
    """
    found: list[tuple[Group, NamedFile]] = []
    home = Path(os.path.realpath(folder))
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        group = group_of(name)
        if group is None:
            continue
        if len(found) >= MOST_FILES:
            raise RequestError(
                f"{shown_name(folder)} holds more than {format_count(MOST_FILES)} files, which no model does; give the model's own folder"
            )
        _check(path, name, home)
        found.append((group, NamedFile(name, path)))
    return found


def _walk(folder: Path) -> Iterator[Path]:
    """All files below a folder, in order; hidden folders are left out, and links to folders are files here."""

    def refuse(error: OSError) -> None:
        raise ModelFileError(
            f"the folder {shown_name(str(error.filename))} cannot be read: {(error.strerror or '').lower()}"
        )

    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        yield from (Path(place) / name for name in sorted([*names, *links]))


def _check(path: Path, name: str, home: Path) -> None:
    """Raises:   ModelFileError for a file that may not be part of a model."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ModelFileError(
            f"the name of the file {name.encode('ascii', 'replace').decode()[:80]!r} is not Unicode"
        ) from None
    if not path.is_symlink() and path.is_file():
        return
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(home) and not _is_blob(real, home):
        raise ModelFileError(
            f"{shown_name(name)} is a link that leads out of the model's folder; put the file itself there, or name its folder"
        )
    if not real.is_file():
        raise ModelFileError(f"{shown_name(name)} is {what_stands_at(path)}; a model's folder holds files")


def _is_blob(real: Path, home: Path) -> bool:
    """Whether a link of a hub's download leads to where the hub's client keeps the files of that model."""
    return home.parent.name == "snapshots" and real.parent == home.parent.parent / "blobs"


def list_files(path: Path) -> list[NamedFile]:
    """The files of a model: those of its folder, or a .gguf file with all its parts.

    Raises:   see list_folder and list_parts
    """
    return [file for _, file in list_folder(path)] if path.is_dir() else list_parts(path)


def list_parts(first: Path) -> list[NamedFile]:
    """A .gguf file, with the others where it is one of several parts.

    Raises:   ModelFileError where a part is missing
    """
    found = _PART.fullmatch(first.name)
    if found is None:
        return [NamedFile(first.name, first)]
    stem, total = found[1], int(found[2])
    parts = [first.with_name(f"{stem}-{number:05d}-of-{total:05d}.gguf") for number in range(1, total + 1)]
    missing = next((part.name for part in parts if not part.is_file()), None)
    if missing is not None:
        raise ModelFileError(f"{shown_name(missing)} is missing: {first.name} is one of {total} parts of a model")
    return [NamedFile(part.name, part) for part in parts]
