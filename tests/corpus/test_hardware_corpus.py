"""Every machine of the shared table is known with the same figures; the shared file is not part of the repository.

Rates that the shared table leaves open are filled here for the machines in FILLED, from a second source each row names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from inference_bench.facts.hardware import hardware

SHARED = Path(os.environ.get("INFERENCE_BENCH_SHARED", Path(__file__).parents[2] / ".." / "shared"))
TABLE = SHARED / "data" / "hardware.json"
_APPLE = ("M3 Pro", "M3 Max (40-core GPU)", "M3 Ultra", "M4", "M4 Max (40-core GPU)", "M5")
FILLED = {
    **{f"Apple {chip}": frozenset(("fp32", "fp16")) for chip in _APPLE},
    "DGX Spark GB10": frozenset(("bf16", "fp16", "fp8", "int8")),
}

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not TABLE.is_file(), reason="the shared hardware table is not beside this checkout"),
]


def shared_rows() -> list[dict[str, Any]]:
    return json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else []


@pytest.mark.parametrize("row", shared_rows(), ids=lambda row: row["name"])
def test_a_machine_of_the_shared_table_is_known_with_the_same_figures(row: dict[str, Any]) -> None:
    machine = hardware(row["name"])
    dense = {name: rate for name, rate in row["dense_flops"].items() if rate is not None}
    assert machine.kind == row["kind"]
    assert machine.memory_bytes == row["memory_bytes"]
    assert machine.bandwidth_bytes_per_s == row["bandwidth_bytes_per_s"]
    assert machine.interconnect_bytes_per_s == row["interconnect_bytes_per_s"]
    assert machine.tdp_w == row["tdp_w"]
    filled = FILLED.get(row["name"], frozenset())
    assert not filled & set(dense)
    assert {name: rate for name, rate in machine.peak_flops_per_s.items() if name not in filled} == {
        name: rate for name, rate in dense.items() if not name.endswith("_acc16")
    }
    assert filled <= set(machine.peak_flops_per_s)
    apart = {name.removesuffix("_acc16"): rate for name, rate in dense.items() if name.endswith("_acc16")}
    assert (machine.acc16_flops_per_s or {}) == apart
    assert machine.source.as_of == row["checked"][:10]


def test_every_row_of_the_shared_table_is_a_machine_of_its_own() -> None:
    rows = shared_rows()
    assert len(rows) == 72
    assert len({hardware(row["name"]).name for row in rows}) == 72
