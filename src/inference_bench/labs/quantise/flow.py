"""The quantise lab from its request to its result.

In:   QuantiseRequest
Out:  QuantiseResult
Read next by: cli, notebook pages.
"""

from __future__ import annotations

from inference_bench.labs.quantise.request import QuantiseRequest
from inference_bench.labs.quantise.result import QuantiseResult
from inference_bench.labs.session import LabSession, Progress


def run_lab(request: QuantiseRequest, progress: Progress | None = None) -> QuantiseResult:
    """Run it."""
    session = LabSession("quantise", "?", request.settings, progress)
    return QuantiseResult(session.head(), ())
