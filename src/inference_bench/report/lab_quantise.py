"""What does the quantise lab say?

In:   QuantiseResult
Out:  LabPage
Read next by: cli, notebook.
"""

from __future__ import annotations

from inference_bench.labs.quantise.result import QuantiseResult
from inference_bench.report.lab_page import LabPage


def lab_page(result: QuantiseResult) -> LabPage:
    """Its figures, its sentences, its chart."""
    return LabPage(result.head, result.checks, (), (), (), ())
