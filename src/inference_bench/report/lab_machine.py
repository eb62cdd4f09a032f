"""What does the machine lab say?

In:   MachineResult
Out:  LabPage
Read next by: cli, notebook.
"""

from __future__ import annotations

from inference_bench.labs.machine.result import MachineResult
from inference_bench.report.lab_page import LabPage


def lab_page(result: MachineResult) -> LabPage:
    """Its figures, its sentences, its chart."""
    return LabPage(result.head, result.checks, (), (), (), ())
