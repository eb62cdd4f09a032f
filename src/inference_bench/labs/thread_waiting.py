"""How PyTorch's threads wait for one another: awake, which is quickest, or asleep, which other work cannot stall.

In:   nothing; it has to be asked before PyTorch is loaded
Out:  whether they sleep, and what a reader of times should know of it
Leaves out: how many threads there are (session)
Read next by: session, the command line.

GNU's OpenMP, which PyTorch brings, lets a thread that has done its share spin for a while before it sleeps. On a machine with other work
the one it waits for may not be running, and the spinning takes the core that it needs: small products took up to 18 times as long here
beside other processes. Asleep they took about what they take alone, and a fifth longer where nothing else ran (two cores, 2026-12-01).
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_POLICY: Final = "OMP_WAIT_POLICY"
_SAID_BY_USER: Final = (_POLICY, "GOMP_SPINCOUNT")
_LIBRARY: Final = "libgomp*.so*"

_asleep = False  # of this process: the library reads its settings once


def let_threads_sleep() -> bool:
    """Load PyTorch's thread library so that threads sleep while they wait; whether they do from now on.

    Ignores:  every other process, those started from here among them, since the setting is taken back at once; a user who has
              said how threads are to wait; a PyTorch that is loaded already or brings another library
    """
    global _asleep
    if _asleep or "torch" in sys.modules or any(name in os.environ for name in _SAID_BY_USER):
        return _asleep
    os.environ[_POLICY] = "PASSIVE"
    try:
        for library in _libraries():
            with suppress(OSError):
                ctypes.CDLL(str(library))
                _asleep = True
    finally:
        del os.environ[_POLICY]
    return _asleep


def waiting_notes() -> list[str]:
    """What a reader of times should know; nothing where threads wait as the library has it."""
    if not _asleep:
        return []
    return [
        "threads sleep while they wait for one another, so that other work on the machine cannot stall them; small products then "
        "take up to a fifth longer"
    ]


def _libraries() -> list[Path]:
    spec = find_spec("torch")
    if spec is None or spec.origin is None or sys.platform != "linux":
        return []
    return sorted((Path(spec.origin).parent / "lib").glob(_LIBRARY))
