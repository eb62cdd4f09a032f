"""What does the cache lab say?

In:   CacheResult
Out:  LabPage
Read next by: cli, notebook.
"""

from __future__ import annotations

from inference_bench.labs.cache.result import CacheResult
from inference_bench.report.lab_page import LabPage


def lab_page(result: CacheResult) -> LabPage:
    """Its figures, its sentences, its chart."""
    return LabPage(result.head, result.checks, (), (), (), ())
