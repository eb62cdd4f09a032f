"""Every machine of the shared table is known with the same figures; the shared file is not part of the repository."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from inference_bench.facts.hardware import hardware, known_hardware

SHARED = Path(os.environ.get("INFERENCE_BENCH_SHARED", Path(__file__).parents[2] / ".." / "shared"))
TABLE = SHARED / "data" / "hardware.json"
OURS_ALONE = {"B200"}  # the chip by its own brief; boards with less bandwidth are a row of their own

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
    assert machine.peak_flops_per_s == {name: rate for name, rate in dense.items() if not name.endswith("_acc16")}
    apart = {name.removesuffix("_acc16"): rate for name, rate in dense.items() if name.endswith("_acc16")}
    assert (machine.acc16_flops_per_s or {}) == apart
    assert machine.source.as_of == row["checked"][:10]


def test_the_table_holds_nothing_else() -> None:
    rows = shared_rows()
    assert len(rows) == 72
    assert {machine.name for machine in known_hardware()} - {hardware(row["name"]).name for row in rows} == OURS_ALONE
