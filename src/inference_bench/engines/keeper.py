"""Run one command, and let nothing of it outlive the program that asked for it.

In:   arguments: seconds of grace, then the command; stdin, which stays open for as long as the starter lives
Out:  the command's output on stderr; its exit status, or its signal
Leaves out: what the command is
Read next by: process, which starts this file as a script; it needs nothing but the standard library.

An engine that starts processes of its own does not watch whether its starter lives. This does: when stdin closes, which the
system does when the starter dies by any means, and on SIGTERM or SIGINT, everything the command started is asked to end, and
after the grace is ended by force. On Linux that includes processes that left its group: they are adopted when their parent is
gone, and found among the descendants. Should this process itself be killed, the system ends the command with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Final

_POLL_S: Final = 0.05
_SET_PARENT_DEATH_SIGNAL: Final = 1  # Linux prctl(2)
_SET_CHILD_SUBREAPER: Final = 36
_FEWEST_FIELDS: Final = 15  # of /proc/PID/stat after the name: as far as the times of the children it has collected


def descendants(pid: int) -> list[int]:
    """The processes that descend from one, itself not included; none where the system does not show them.

    Source:   Linux proc_pid_stat(5)
    """
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        if (fields := stat_fields(path)) is not None:
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, waiting = [], [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found.append(child)
            waiting.append(child)
    return found


def stat_fields(path: Path) -> list[str] | None:
    """What stands in a process's stat file after its name, which may hold anything; None where it is gone or odd."""
    try:
        fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) >= _FEWEST_FIELDS else None


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _die_with_the_parent() -> None:
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _tell(group: int, number: signal.Signals) -> None:
    """Send a signal to whatever descends from here; to the group where the system does not show that.

    Where:    the group goes by the number of the command, which may be another's once the command was collected
    """
    if sys.platform != "linux":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _collect() -> bool:
    """Whether processes are left, once those that ended are collected."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


def _end_all(group: int, grace_s: float) -> None:
    """Ask everything to end, wait, and end it by force until nothing is left."""
    _tell(group, signal.SIGTERM)
    until_s = time.monotonic() + grace_s
    while _collect():
        if time.monotonic() >= until_s:
            _tell(group, signal.SIGKILL)
        time.sleep(_POLL_S)


class _Asked(Exception):
    """Somebody asked for the end."""


def _ask_to_end(_number: int, _frame: FrameType | None) -> None:
    _ignore_requests()
    raise _Asked


def _ignore_requests() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _watch_stdin() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def main(arguments: list[str]) -> int:
    """Run the command to its end, or to the end of whoever wants it; afterwards nothing of it is left."""
    grace_s, command = float(arguments[0]), arguments[1:]
    _prctl(_SET_CHILD_SUBREAPER, 1)
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True, preexec_fn=_die_with_the_parent
    )
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _ask_to_end)
        threading.Thread(target=_watch_stdin, daemon=True).start()
        code = process.wait()
        _ignore_requests()
    except _Asked:
        code = -signal.SIGTERM
    _end_all(process.pid, grace_s)
    return code


def _end_as_it_did(code: int) -> None:
    """End by the signal that ended the command, so that whoever asks how it ended is told the truth."""
    if code >= 0:
        sys.exit(code)
    with contextlib.suppress(OSError):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


if __name__ == "__main__":
    _end_as_it_did(main(sys.argv[1:]))
