"""Files on this machine: where what can be fetched again is kept, and what a file is, by its hash.

In:   the environment; a path
Out:  the cache folder; a SHA-256
Read next by: here, engines, verify.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from inference_bench.errors import StorageError
from inference_bench.units import KIBI

_CHUNK_BYTES: Final = 1024 * KIBI


def cache_folder(environment: Mapping[str, str] | None = None, platform: str = sys.platform) -> Path:
    """The folder for files that can be fetched again.

    Where:    INFERENCE_BENCH_CACHE if set, else the system's cache folder for one user
    Source:   XDG Base Directory Specification; on macOS and Windows the systems' own folders
    Raises:   StorageError if there is no home folder
    """
    env = os.environ if environment is None else environment
    if own := env.get("INFERENCE_BENCH_CACHE"):
        return Path(own)
    local = env.get("LOCALAPPDATA") if platform == "win32" else env.get("XDG_CACHE_HOME")
    if local and Path(local).is_absolute():
        return Path(local) / "inference-bench"
    try:
        home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    except RuntimeError as error:
        raise StorageError("no home folder to keep files in; set INFERENCE_BENCH_CACHE to a folder") from error
    inside = {"darwin": "Library/Caches", "win32": "AppData/Local"}.get(platform, ".cache")
    return home / inside / "inference-bench"


def sha256_of_file(path: Path, progress: Callable[[int, int], None] | None = None) -> str:
    """The SHA-256 of a file, read in pieces.

    Where:    `progress` is told the bytes read so far and the bytes in all
    Raises:   OSError
    """
    digest, num_read = hashlib.sha256(), 0
    with path.open("rb") as file:
        num_bytes = os.fstat(file.fileno()).st_size
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            num_read += len(chunk)
            if progress is not None:
                progress(num_read, num_bytes)
    return digest.hexdigest()
