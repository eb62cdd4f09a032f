"""The process that keeps another tool, so that it cannot outlive the one who asked for it.

In:   seconds and a command as arguments; stdin, which stays open for as long as the starter lives
Out:  the tool's exit status, or 124 when it had to be ended after that time
Leaves out: what the tool says (tools, which starts this file)
Read next by: nothing; it is run by its path and imports nothing of this package.

The system closes stdin when the starter dies by any means, a kill among them. What the tool leaves behind is ended too:
its process group, and on Linux also those of its descendants that left the group, which fall to this process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

OUT_OF_TIME: Final = 124

_ADOPT_ORPHANS: Final = 36  # PR_SET_CHILD_SUBREAPER of Linux's prctl
_PAUSE_S: Final = 0.01
_ENDS_WITHIN_S: Final = 5.0


def main() -> int:
    """Run the command to its end, to the time limit, or until the starter is gone."""
    limit_s, *command = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _adopt_orphans()
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    threading.Thread(target=_end_with_starter, args=(process.pid,), daemon=True).start()
    try:
        return process.wait(float(limit_s))
    except subprocess.TimeoutExpired:
        return OUT_OF_TIME
    finally:
        _end_all(process.pid)


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)


def _end_with_starter(group: int) -> None:
    while os.read(0, 1):
        pass
    _end_all(group)
    os._exit(OUT_OF_TIME)


def _end_all(group: int) -> None:
    """End the group, and whatever of it has become a child of this process."""
    deadline_s = time.monotonic() + _ENDS_WITHIN_S
    _kill(os.killpg, group)
    while (left := _children()) and time.monotonic() < deadline_s:
        for pid in left:
            _kill(os.kill, pid)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_PAUSE_S)


def _kill(how: Callable[[int, int], None], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        how(number, signal.SIGKILL)


def _children() -> list[int]:
    found: list[int] = []
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, listed.read_text().split())
    return found


if __name__ == "__main__":
    sys.exit(main())
