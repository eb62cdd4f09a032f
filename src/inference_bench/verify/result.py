"""What one verification found: everything its report, its JSON and a later reading need.

In:   nothing; plain immutable values that flow.py fills in
Out:  VerifyResult
Leaves out: raw samples, which stay in the run folder, and any text that was sent or generated
Read next by: charts, report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from inference_bench.accounting.params import ParameterCount
from inference_bench.accounting.weights import WeightCount
from inference_bench.calibrate.steps.forms import StepCalibration
from inference_bench.compare import BatchLine, ComparedPoint
from inference_bench.engines.base import EngineFigures, EngineIdentity
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import ModelSpec
from inference_bench.gap.parts import GapReading
from inference_bench.measure.ceilings import ProbeResult
from inference_bench.metrics import Metrics
from inference_bench.roofline import Roof
from inference_bench.verify.closed_loop import CapacityCheck, LoadCheck, MemoryRow

UNSTEADY: Final = "unsteady run"
UNSTEADY_RATIO: Final = 1.25


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What is served: its shape, its weights, and the hash of the file when it can be read."""

    spec: ModelSpec
    params: ParameterCount
    weights: WeightCount
    file_name: str | None
    file_bytes: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class CacheCheck:
    """The engine's own cache figure beside ours.

    Where:  printed is the engine's text; agrees is whether our exact count would print as that text; logical_bytes is
            the count before the engine's rounding, and rule says what the rounding is
    Unit:   bytes
    """

    printed: str
    printed_cells: int | None
    predicted_bytes: int
    predicted_cells: int
    logical_bytes: int
    agrees: bool
    rule: str


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The ceiling of decode at one batch and context."""

    context_tokens: int
    batch: int
    step_s: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class GroupMetrics:
    """The request metrics of one part of the run: so many concurrent requests of one prompt length."""

    name: str
    concurrency: int
    prompt_tokens: int
    output_tokens: int
    metrics: Metrics
    ttft_s: tuple[float, ...]
    e2e_s: tuple[float, ...]
    gaps_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CpuShares:
    """The processor time that client and engine took while the engine was measured; subtracted from nothing.

    Formula:  share = CPU time / (wall time · cores)
    Where:    engine_cpu_s is None where the engine's process is not ours
    Unit:     seconds
    """

    wall_s: float
    num_cores: int
    client_cpu_s: float
    engine_cpu_s: float | None

    @property
    def client_share(self) -> float:
        """Of all the cores."""
        return self.client_cpu_s / (self.wall_s * self.num_cores)

    @property
    def engine_share(self) -> float | None:
        """Of all the cores; None where it is not known."""
        return None if self.engine_cpu_s is None else self.engine_cpu_s / (self.wall_s * self.num_cores)


@dataclass(frozen=True, slots=True)
class ClientNumbers:
    """Evidence that the client was not the bottleneck; None where it was not measured."""

    send_delay_p99_s: float | None
    loop_lag_p99_s: float | None
    floor_ttft_s: float | None
    floor_chunk_cpu_s: float | None
    cpu: CpuShares | None = None


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """One verification, whole.

    Where:    calibration, gap, load and capacity are None where that part was not run or could not be, and notes say why;
              profile_path is the saved profile of the calibration; disturbances are clauses of one sentence that says why nobody
              should judge the engine by this run; count_doubts speak against the server's token counts; trouble is what ended
              the run after the steps were fitted, and is_interrupted says that a person did
    """

    started_at: str
    elapsed_s: float
    target: str
    probe: ProbeResult | None
    machine: HardwareSpec
    ceiling: Roof
    model: ModelIdentity
    engine: EngineIdentity
    figures: EngineFigures
    cache_check: CacheCheck | None
    points: tuple[ComparedPoint, ...]
    curve: tuple[CurvePoint, ...]
    batch_lines: tuple[BatchLine, ...]
    groups: tuple[GroupMetrics, ...]
    client: ClientNumbers
    reading: tuple[str, ...]
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    run_dir: Path
    manifest_sha256: str
    versions: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    calibration: StepCalibration | None = None
    gap: GapReading | None = None
    load: LoadCheck | None = None
    capacity: CapacityCheck | None = None
    memory: tuple[MemoryRow, ...] = ()
    profile_path: Path | None = None
    disturbances: tuple[str, ...] = ()
    count_doubts: tuple[str, ...] = ()
    trouble: str | None = None
    is_interrupted: bool = False

    @property
    def unsteady_points(self) -> tuple[ComparedPoint, ...]:
        """The points whose mean lies far from their median."""
        return tuple(filter(is_unsteady, self.points))


def is_unsteady(point: ComparedPoint) -> bool:
    """Whether the server or the machine was disturbed while a point was measured: its mean is far above its median."""
    seen = point.measured
    return seen.mean_s is not None and seen.mean_s > UNSTEADY_RATIO * seen.seconds
