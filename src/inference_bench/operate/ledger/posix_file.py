"""How do bytes get into a file whole, or not at all?

In:   an open file and bytes
Out:  the bytes, behind what stands there
Read next by: recorder, content_log.
"""

from __future__ import annotations

import os
from contextlib import suppress


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
