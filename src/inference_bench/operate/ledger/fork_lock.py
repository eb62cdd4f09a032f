"""How does a child of a fork get past a lock that a thread of its parent held, which is not there to open it?

In:   objects that lock around what they write
Out:  the lock of each; in a child of a fork a new one, which nobody holds
Leaves out: what else a child has to begin anew (record_file, content_log, rollout.recorder)
Read next by: recorder, content_log, rollout.recorder.
"""

from __future__ import annotations

import os
import threading
from typing import Final
from weakref import WeakSet


class ForkLock:
    """A lock for `with each.lock:`, so that a block which is left in a child opens the one that it closed."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        _LIVE.add(self)


_LIVE: Final[WeakSet[ForkLock]] = WeakSet()


def _open_all() -> None:
    """In a child, before anything else runs there."""
    for each in list(_LIVE):
        each.lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # no system without it has forks
    os.register_at_fork(after_in_child=_open_all)
