from __future__ import annotations

from collections.abc import Iterator

import pytest

from inference_bench.compare_runs import decide as module
from inference_bench.compare_runs.evidence import gather


@pytest.fixture(scope="package", autouse=True)
def few_resamples() -> Iterator[None]:
    """Verdicts from a tenth of the usual resamples: these tests are of rules, and made runs are far from a limit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "gather", lambda *given: gather(*given, resamples=200))
        yield
