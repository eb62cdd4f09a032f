"""What does the grammar lab say?

In:   GrammarResult
Out:  LabPage
Read next by: cli, notebook.
"""

from __future__ import annotations

from inference_bench.labs.grammar.result import GrammarResult
from inference_bench.report.lab_page import LabPage


def lab_page(result: GrammarResult) -> LabPage:
    """Its figures, its sentences, its chart."""
    return LabPage(result.head, result.checks, (), (), (), ())
