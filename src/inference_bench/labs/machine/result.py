"""What came out of the machine lab.

In:   plain values
Out:  MachineResult, LabCeilings
Read next by: flow, charts, report, batch, speculate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from inference_bench.labs.checks import Check
from inference_bench.labs.head import LabHead
from inference_bench.measure.ceilings import BandwidthRow, ProductRow
from inference_bench.roofline import Roof


class Library(StrEnum):
    """Whose product it is."""

    PYTORCH = "PyTorch"
    NUMPY = "NumPy"


class Orientation(StrEnum):
    """How the same numbers are multiplied: as a model does it, or as the probe does."""

    ROWS = "x @ W.T"
    COLUMNS = "W @ x"


@dataclass(frozen=True, slots=True)
class LabCeilings:
    """What this machine does at most, by one library in one number format.

    Unit:   bytes/s, FLOP/s
    Where:  source says which products set the two; elapsed_s is what measuring them took
    """

    bandwidth_bytes_per_s: float
    peak_flops_per_s: float
    compute_format: str
    source: str
    elapsed_s: float = 0.0

    @property
    def roof(self) -> Roof:
        """The two as a roof."""
        return Roof(self.bandwidth_bytes_per_s, self.peak_flops_per_s, self.compute_format)


@dataclass(frozen=True, slots=True)
class LabProduct:
    """One timed product of a square matrix with B columns (or of B rows with it).

    Where:  above_roof_fraction is how far its rate lies above the roof at its intensity, None where it does not; it is beyond
            its own spread where is_above_by_more_than_spread
    """

    library: Library
    orientation: Orientation
    dtype: str
    num_threads: int
    row: ProductRow
    above_roof_fraction: float | None = None
    is_above_by_more_than_spread: bool = False


@dataclass(frozen=True, slots=True)
class ProductPair:
    """Both libraries at one B, each by its faster orientation.

    Formula:  torch_over_numpy = rate of PyTorch / rate of NumPy
    Where:    probe_s is the same product by the probe, in a turn of its own; noise_fraction is the two spreads added
    """

    batch: int
    torch_s: float
    numpy_s: float
    probe_s: float | None
    torch_flops_per_s: float
    numpy_flops_per_s: float
    torch_over_numpy: float
    allowed_fraction: float
    is_within: bool
    noise_fraction: float | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """One ceiling by both, whether they agree, and what explains it where they do not.

    Where:  is_within is whether neither is further above the other than allowed_fraction; one_thread_ratio is the same ratio
            with a single thread each, None where a single thread is all there is; reasons name what differs
    """

    name: str
    torch_value: float
    numpy_value: float
    probe_value: float
    torch_over_numpy: float
    torch_over_probe: float
    one_thread_ratio: float | None
    allowed_fraction: float
    is_within: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LibraryIdentity:
    """What multiplies matrices in one library: its own words."""

    library: Library
    version: str
    matrix_library: str
    kernels: str | None
    num_threads: int


@dataclass(frozen=True, slots=True)
class MachineResult:
    """The figures of one run.

    Where:  ceilings are the highest rates of any float32 row here, each by its fastest value, while a row itself tells medians;
            torch_ceilings those of PyTorch alone, with which the other labs compute; products are ordered by library, orientation,
            format, B; probe_bandwidth_rows are the probe's own ways of reading memory; cpu_features are those that decide over number
            formats
    """

    head: LabHead
    checks: tuple[Check, ...]
    matrix_size: int
    matrix_bytes: int
    last_level_cache_bytes: int | None
    num_rounds: int
    products: tuple[LabProduct, ...]
    one_thread_products: tuple[LabProduct, ...]
    bfloat16_products: tuple[LabProduct, ...]
    pairs: tuple[ProductPair, ...]
    agreements: tuple[Agreement, ...]
    ceilings: LabCeilings
    torch_ceilings: LabCeilings
    numpy_ceilings: LabCeilings
    probe_ceilings: LabCeilings
    probe_bandwidth_rows: tuple[BandwidthRow, ...]
    libraries: tuple[LibraryIdentity, ...]
    cpu_features: Mapping[str, bool]
