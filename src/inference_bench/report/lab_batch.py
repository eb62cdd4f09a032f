"""What does the batch lab say?

In:   BatchResult
Out:  LabPage
Read next by: cli, notebook.
"""

from __future__ import annotations

from inference_bench.labs.batch.result import BatchResult
from inference_bench.report.lab_page import LabPage


def lab_page(result: BatchResult) -> LabPage:
    """Its figures, its sentences, its chart."""
    return LabPage(result.head, result.checks, (), (), (), ())
