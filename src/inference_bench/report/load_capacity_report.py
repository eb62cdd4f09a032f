"""Which rate a real server keeps its promise at, with the run around it: as JSON with stable keys, and for a terminal.

In:   CapacityRun
Out:  a dict ready for JSON or a text of at most 100 columns
Leaves out: what the search found (capacity_load_report)
Read next by: cli.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from inference_bench.report.capacity_load_report import capacity_found_json, capacity_found_text
from inference_bench.report.load_report import run_json, server_json, server_lines
from inference_bench.report.text import printable, wrap

if TYPE_CHECKING:
    from inference_bench.loadtest.capacity_run import CapacityRun


def capacity_run_json(result: CapacityRun) -> dict[str, Any]:
    """The stable keys of `load --find-capacity --json`."""
    return {
        "schema": "inference-bench/load-capacity/1",
        **run_json(result),
        **capacity_found_json(result.found, result.limits),
        "client": {"floor": dataclasses.asdict(result.floor)},
        "seed": result.workload.seed,
        "server": server_json(result.server),
    }


def capacity_run_text(result: CapacityRun) -> str:
    """The same for a terminal."""
    served = f"{result.target}, serving {printable(result.model or 'a model it does not name')}"
    blocks = [wrap(served), capacity_found_text(result.found, result.limits), *map(wrap, server_lines(result.server))]
    return "\n\n".join([*blocks, f"raw samples: {result.run_dir}"])
