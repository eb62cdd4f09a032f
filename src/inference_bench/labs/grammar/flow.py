"""The grammar lab from its request to its result.

In:   GrammarRequest
Out:  GrammarResult
Read next by: cli, notebook pages.
"""

from __future__ import annotations

from inference_bench.labs.grammar.request import GrammarRequest
from inference_bench.labs.grammar.result import GrammarResult
from inference_bench.labs.session import LabSession, Progress


def run_lab(request: GrammarRequest, progress: Progress | None = None) -> GrammarResult:
    """Run it."""
    session = LabSession("grammar", "?", request.settings, progress)
    return GrammarResult(session.head(), ())
