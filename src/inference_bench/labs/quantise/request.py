"""What is asked of the quantise lab.

Read next by: flow, cli.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inference_bench.labs.settings import LabSettings


@dataclass(frozen=True, slots=True)
class QuantiseRequest:
    """One run of the lab."""

    settings: LabSettings = field(default_factory=LabSettings)
