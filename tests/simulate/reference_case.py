"""The servers of the published simulation figures, and how a row of them reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from inference_bench.simulate.kernel.compiled import is_available
from inference_bench.simulate.run import Engine
from inference_bench.simulate.settings import KvMemory
from inference_bench.simulate.step_time import Coefficients, StepTime
from inference_bench.simulate.summary import SimulatedRow
from shapes import GOLDEN

WITHOUT_NUMBA = "numba is not installed, so the compiled engine was not tried: pip install 'inference-bench[fast]'"
COMPILED = pytest.param(Engine.COMPILED, marks=pytest.mark.skipif(not is_available(), reason=WITHOUT_NUMBA))
# a published column → the field of a simulated row
FIELDS = {
    "ttft50": "ttft_p50_s",
    "ttft99": "ttft_p99_s",
    "itl50": "itl_p50_s",
    "itl99": "itl_p99_s",
    "itlmax": "itl_max_s",
    "tpot50": "tpot_p50_s",
    "e2e50": "e2e_p50_s",
    "throughput": "output_tokens_per_s",
    "goodput": "goodput_requests_per_s",
    "realised": "realised_rate",
}


def published(name: str) -> dict[str, Any]:
    """A published file, each of its rows by column."""
    found = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    found["rows"] = {key: dict(zip(found["columns"], row, strict=True)) for key, row in found["rows"].items()}
    return dict(found)


def steps_of(bandwidth: float, compute: float) -> StepTime:
    """The reference model, 36 layers of 4096 and 8,927,875,072 parameters in products, on a machine."""
    return StepTime(Coefficients(5.5e9, 147456, 2.0 * 8927875072, 4.0 * 36 * 4096, bandwidth, compute))


def memory_of(budget_bytes: float) -> KvMemory:
    """The reference model's cache."""
    return KvMemory(int(budget_bytes), 147456)


def is_published(row: SimulatedRow, expected: Mapping[str, float]) -> None:
    """Every figure within a millionth, and as many preemptions."""
    assert set(expected) - {"nominal"} == {*FIELDS, "preemptions"}
    assert row.preemptions == expected["preemptions"]
    for column, field in FIELDS.items():
        assert getattr(row, field) == pytest.approx(expected[column], rel=1e-6, abs=0), column
