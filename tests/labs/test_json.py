from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from inference_bench.labs.head import LabHead
from inference_bench.report.lab_json import lab_json
from labs.made_page import HEAD, MET


class Kind(Enum):
    FAST = "fast"


@dataclass(frozen=True, slots=True)
class Made:
    head: LabHead
    checks: tuple[object, ...]
    step_s: float
    lost: float
    kind: Kind
    by_name: dict[int, tuple[int, ...]]
    path: Path
    gap: None = None


def test_the_keys_are_the_fields_and_the_schema_names_the_lab() -> None:
    found = lab_json("cache", Made(HEAD, (MET,), 0.25, math.inf, Kind.FAST, {3: (1, 2)}, Path("a")))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["schema"] == "inference-bench/lab-cache/1"
    assert found["head"]["subject"]["num_parameters"] == 134_515_008
    assert found["checks"] == [{"name": MET.name, "is_met": True, "found": "46,080 B", "allowed": "46,080 B"}]
    assert (found["step_s"], found["lost"], found["gap"]) == (0.25, None, None)
    assert (found["kind"], found["by_name"], found["path"]) == ("fast", {"3": [1, 2]}, "a")
    assert list(found) == ["schema", "head", "checks", "step_s", "lost", "kind", "by_name", "path", "gap"]
