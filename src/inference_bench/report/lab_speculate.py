"""What does the speculate lab say?

In:   SpeculateResult
Out:  LabPage
Read next by: cli, notebook.
"""

from __future__ import annotations

from inference_bench.labs.speculate.result import SpeculateResult
from inference_bench.report.lab_page import LabPage


def lab_page(result: SpeculateResult) -> LabPage:
    """Its figures, its sentences, its chart."""
    return LabPage(result.head, result.checks, (), (), (), ())
