"""The batch lab from its request to its result.

In:   BatchRequest
Out:  BatchResult
Read next by: cli, notebook pages.
"""

from __future__ import annotations

from inference_bench.labs.batch.request import BatchRequest
from inference_bench.labs.batch.result import BatchResult
from inference_bench.labs.session import LabSession, Progress


def run_lab(request: BatchRequest, progress: Progress | None = None) -> BatchResult:
    """Run it."""
    session = LabSession("batch", "?", request.settings, progress)
    return BatchResult(session.head(), ())
