"""What came out of the speculate lab.

Read next by: flow, charts, report.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.labs.checks import Check
from inference_bench.labs.head import LabHead


@dataclass(frozen=True, slots=True)
class SpeculateResult:
    """The figures of one run."""

    head: LabHead
    checks: tuple[Check, ...]
