"""Which files were hashed before, and are what they were?

In:   names and paths of files
Out:  their hashes, where a manifest was made of them and they have not been touched since
Leaves out: proof: a file that was changed and set back to its old time, in place, is not noticed
Read next by: run, create.

A load test must not read a hundred gigabytes while a server waits to be measured. It takes what `create` found, as long as device,
inode, size and time of change are the same; `create` and `verify` of a manifest always read the files through.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from inference_bench.errors import InferenceBenchError
from inference_bench.files import write_whole
from inference_bench.manifest.hashing import NamedFile
from inference_bench.measure.files import cache_folder

_FILE: Final = "file-hashes.json"
_MOST_KEPT: Final = 10_000


def recall_hashes(files: Iterable[NamedFile]) -> dict[str, str]:
    """The hashes that are known of these files, by their names in a manifest."""
    kept = _kept()
    found = {file.name: kept.get(mark) for file in files if (mark := _mark(file.path)) is not None}
    return {name: digest for name, digest in found.items() if digest is not None}


def keep_hashes(files: Iterable[NamedFile], digests: Mapping[str, str]) -> None:
    """Remember hashes that were taken just now; where they cannot be kept, they are taken again another time."""
    new = {
        mark: digests[file.name] for file in files if file.name in digests and (mark := _mark(file.path)) is not None
    }
    kept = {**{mark: digest for mark, digest in _kept().items() if mark not in new}, **new}
    recent = dict(list(kept.items())[-_MOST_KEPT:])
    with suppress(InferenceBenchError, OSError):
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / _FILE, json.dumps(recent, indent=0) + "\n")


def _mark(path: Path) -> str | None:
    """What a file is known by; None for one that is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def _kept() -> dict[str, str]:
    try:
        found = json.loads((cache_folder() / _FILE).read_text(encoding="utf-8"))
    except (InferenceBenchError, OSError, ValueError, RecursionError):
        return {}
    is_whole = isinstance(found, dict) and all(isinstance(each, str) and len(each) == 64 for each in found.values())
    return found if is_whole else {}
