"""How busy were this machine's processors, whoever used them?

In:   the running system: /proc/stat on Linux
Out:  seconds of processor time since it started, of all cores together; None where the system does not say
Leaves out: who used it; what the host of a virtual machine took is in it, as that is gone for everybody here
Read next by: verify.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_BUSY: Final = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal; left out are idle and waiting for input


def busy_s(root: Path = Path("/")) -> float | None:
    """Processor time that somebody has used by now, over all cores.

    Unit:     seconds
    Source:   Linux proc(5), /proc/stat, the line of all processors, in clock ticks
    """
    try:
        with (root / "proc/stat").open(encoding="ascii") as file:
            name, *ticks = file.readline(4096).split()
        values = [int(tick) for tick in ticks]
        return sum(values[index] for index in _BUSY) / os.sysconf("SC_CLK_TCK") if name == "cpu" else None
    except (OSError, ValueError, IndexError, AttributeError):
        return None
