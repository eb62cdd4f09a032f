"""The cache lab from its request to its result.

In:   CacheRequest
Out:  CacheResult
Read next by: cli, notebook pages.
"""

from __future__ import annotations

from inference_bench.labs.cache.request import CacheRequest
from inference_bench.labs.cache.result import CacheResult
from inference_bench.labs.session import LabSession, Progress


def run_lab(request: CacheRequest, progress: Progress | None = None) -> CacheResult:
    """Run it."""
    session = LabSession("cache", "?", request.settings, progress)
    return CacheResult(session.head(), ())
