"""The machine lab from its request to its result.

In:   MachineRequest
Out:  MachineResult
Read next by: cli, notebook pages.
"""

from __future__ import annotations

from inference_bench.labs.machine.request import MachineRequest
from inference_bench.labs.machine.result import MachineResult
from inference_bench.labs.session import LabSession, Progress


def run_lab(request: MachineRequest, progress: Progress | None = None) -> MachineResult:
    """Run it."""
    session = LabSession("machine", "?", request.settings, progress)
    return MachineResult(session.head(), ())
