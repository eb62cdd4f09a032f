"""What were these files made from, where that is known?

In:   the hashes of a model's files; the note that a conversion of ours leaves beside its target
Out:  components of the lineage: the hash of the source, and what was done to it
Leaves out: what a file says of its own origin (from_gguf): that is stated, and not known
Read next by: from_files.

A note counts only where the hashes in it are those of the files that are here: a note beside another file says nothing.
`convert --json` prints the note; kept beside TARGET as TARGET.json it is found, as are those of the cache folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import RunFolderError
from inference_bench.manifest.components import MADE_BY_US, SOURCE_NAME, Component, Group
from inference_bench.manifest.hashing import HashedFile
from inference_bench.measure.store import read_json_object

_SCHEMA: Final = "inference-bench/convert/1"
_DIGITS: Final = 64


def note_of(path: Path) -> Path:
    """Where a conversion's note lies."""
    return path.with_name(f"{path.name}.json")


def components_of_lineage(path: Path, hashed: Mapping[str, HashedFile]) -> Iterator[Component]:
    """The source of a conversion of ours; nothing where that is unknown."""
    try:
        note = read_json_object(note_of(path))
    except RunFolderError:
        return
    source, target = note.get("source"), note.get("target")
    if note.get("schema") != _SCHEMA or not isinstance(source, dict) or not isinstance(target, dict):
        return
    digest = source.get("sha256")
    if not isinstance(digest, str) or len(digest) != _DIGITS or not _is_about(target, hashed):
        return
    where = "the note of the conversion, whose hashes are those of these files"
    yield Component(Group.LINEAGE, SOURCE_NAME, where, sha256=digest)
    yield Component(
        Group.LINEAGE, MADE_BY_US, where, value=f"to {str(target.get('weights'))[:40]} by inference-bench convert"
    )


def _is_about(target: Mapping[str, Any], hashed: Mapping[str, HashedFile]) -> bool:
    """Whether every file that the note lists is here, and is what it was."""
    files = target.get("files")
    if not isinstance(files, list) or not files:
        return False
    if len(hashed) == len(files) == 1:  # a file may be renamed
        return bool(isinstance(files[0], dict) and files[0].get("sha256") == next(iter(hashed.values())).sha256)
    listed = {str(each.get("name")): each.get("sha256") for each in files if isinstance(each, dict)}
    return listed == {name: found.sha256 for name, found in hashed.items()}
