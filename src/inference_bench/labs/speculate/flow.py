"""The speculate lab from its request to its result.

In:   SpeculateRequest
Out:  SpeculateResult
Read next by: cli, notebook pages.
"""

from __future__ import annotations

from inference_bench.labs.session import LabSession, Progress
from inference_bench.labs.speculate.request import SpeculateRequest
from inference_bench.labs.speculate.result import SpeculateResult


def run_lab(request: SpeculateRequest, progress: Progress | None = None) -> SpeculateResult:
    """Run it."""
    session = LabSession("speculate", "?", request.settings, progress)
    return SpeculateResult(session.head(), ())
