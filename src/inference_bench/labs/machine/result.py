"""What came out of the machine lab.

Read next by: flow, charts, report.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.labs.checks import Check
from inference_bench.labs.head import LabHead


@dataclass(frozen=True, slots=True)
class MachineResult:
    """The figures of one run."""

    head: LabHead
    checks: tuple[Check, ...]
