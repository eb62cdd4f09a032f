"""How do bytes get into a file whole, or not at all?

In:   the path of a new file, or an open one; bytes
Out:  the bytes, behind what stands there
Read next by: record_file, content_log, rollout.recorder.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def new_file(path: Path, head: bytes) -> int:
    """Make a file that only its owner may read, to be added to behind its head; where that fails, there is none.

    Raises:   OSError, also where something of that name is there
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        write_all(file, head)
    except OSError:
        os.close(file)
        with suppress(OSError):
            path.unlink()
        raise
    return file


def write_all(file: int, content: bytes) -> None:
    """Add bytes behind what the file holds; where that fails, it is cut back to what it held.

    Raises:   OSError
    """
    before = os.fstat(file).st_size
    rest = memoryview(content)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, before)
        raise
