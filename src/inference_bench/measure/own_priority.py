"""How does the load client get the processor when it needs it: a little time, but at once.

In:   nothing
Out:  a `with` block in which this thread goes ahead of others as far as the system lets it, and how nice it is
Leaves out: real-time policies, with which a program that errs can stop a machine
Read next by: client_loop, client_health.

A client that waits for the processor reads late, and what came meanwhile shares a stamp. Two things help, the first for
everybody: Linux lets a thread ask for short turns, in return for which it gets them sooner; and root may be nice -10.
Neither takes more of the processor than the client uses.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

WANTED_NICE: Final = -10
TURN_NS: Final = 100_000  # the shortest that Linux grants

# struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")
_RUNTIME: Final = 5
_CALLS: Final = {"x86_64": (314, 315), "aarch64": (274, 275)}  # sched_setattr, sched_getattr
_OTHER: Final = 0  # SCHED_OTHER, the policy of nearly all programs


@contextmanager
def served_first() -> Iterator[None]:
    """Have the system run this thread ahead of others, where it may; as before afterwards."""
    before = own_nice()
    goes_ahead = before is not None and before > WANTED_NICE and _set_nice(WANTED_NICE)
    _ask_for_turns(TURN_NS)
    try:
        yield
    finally:
        _ask_for_turns(0)
        if goes_ahead and before is not None:
            _set_nice(before)


def own_nice() -> int | None:
    """How far this thread lets others go first, from -20 to 19; None where the system does not say."""
    try:
        return os.getpriority(os.PRIO_PROCESS, 0)
    except (AttributeError, OSError):  # Windows has no such thing
        return None


def _set_nice(nice: int) -> bool:
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except OSError:
        return False
    return True


def _ask_for_turns(turn_ns: int) -> bool:
    """Ask for turns of this length, 0 for the usual one; whether the system took it.

    Source:   Linux, sched_setattr(2) and kernel/sched/fair.c: sched_runtime of SCHED_OTHER is the length of a turn from
              6.12 on, and says nothing before
    """
    if sys.platform != "linux" or platform.machine() not in _CALLS:
        return False
    set_call, get_call = _CALLS[platform.machine()]
    system = ctypes.CDLL(None).syscall
    attributes = ctypes.create_string_buffer(_ATTRIBUTES.size)
    size, flags, this_thread = ctypes.c_uint(_ATTRIBUTES.size), ctypes.c_uint(0), ctypes.c_int(0)
    if system(ctypes.c_long(get_call), this_thread, attributes, size, flags):
        return False
    values = list(_ATTRIBUTES.unpack(attributes.raw))
    if values[1] != _OTHER:
        return False
    values[_RUNTIME] = turn_ns
    attributes.raw = _ATTRIBUTES.pack(*values)
    return not system(ctypes.c_long(set_call), this_thread, attributes, flags)
