"""What does a probe conclude? The timed rows, their counted bytes and FLOPs, and the ceilings that follow from them.

In:   raw timings of matrix products and of data movements
Out:  ProbeResult: bandwidth, peak, the ridge between them, and every raw value behind them
Leaves out: how anything was timed; see machine for a processor and gpu for a graphics card.
Read next by: verify and compare (the ceilings), report (the roofline).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from inference_bench.errors import RequestError
from inference_bench.measure.machine_identity import GPUIdentity, MachineIdentity
from inference_bench.measure.timing import RawTiming
from inference_bench.records import Origin
from inference_bench.units import format_fraction, format_number, format_si

Progress = Callable[[str], None]

CACHE_MARGIN = 4  # below this a cache that holds part of the data still serves a good share of the reads
_NOTED_SPREAD_FRACTION = 0.10
_NOTED_RISE_FRACTION = 0.05


@dataclass(frozen=True, slots=True)
class BandwidthRow:
    """One way of moving data, timed.

    Where:    counted_bytes is what the operation must read and write once, by count and not by a hardware counter;
              array_over_cache is those bytes over the last-level cache, None where the cache is unknown;
              round_index is 2 when the method was timed again after the products
    """

    method: str
    description: str
    round_index: int
    is_read_dominated: bool
    num_threads: int | None
    counted_bytes: int
    array_over_cache: float | None
    seconds: float
    bytes_per_s: float
    spread_fraction: float | None
    timing: RawTiming


@dataclass(frozen=True, slots=True)
class ProductRow:
    """One matrix product, [m, n] × [n, batch], timed."""

    batch: int
    counted_flops: int
    counted_bytes: int
    intensity_flops_per_byte: float
    seconds: float
    flops_per_s: float
    bytes_per_s: float
    spread_fraction: float | None
    timing: RawTiming


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """A machine's measured ceilings.

    Formula:  bandwidth = the largest median rate over the read-dominated rows; peak = the largest median rate over
              the products; ridge = peak / bandwidth
    Where:    other_peaks are the rates of further number formats, by format
    Ignores:  what faster code or another number format would reach: these are ceilings of the libraries named in
              `method` on this machine, so a kernel that computes in int8 can pass a float32 peak
    """

    bandwidth_bytes_per_s: float
    bandwidth_method: str
    peak_flops_per_s: float
    peak_batch: int
    ridge_flops_per_byte: float
    compute_format: str
    matrix_size: int
    rows: tuple[ProductRow, ...]
    bandwidth_rows: tuple[BandwidthRow, ...]
    identity: MachineIdentity
    gpu: GPUIdentity | None
    method: str
    notes: tuple[str, ...]
    seed: int
    elapsed_s: float
    origin: Origin = Origin.MEASURED
    other_peaks: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a probe ran on and how: the part of a result that is not a rate."""

    compute_format: str
    matrix_size: int
    identity: MachineIdentity
    gpu: GPUIdentity | None
    method: str
    notes: tuple[str, ...]
    seed: int
    elapsed_s: float


def conclude(
    rows: Sequence[ProductRow], bandwidth_rows: Sequence[BandwidthRow], circumstances: Circumstances
) -> ProbeResult:
    """The ceilings that these rows set."""
    read, product = fastest_read(bandwidth_rows), fastest_product(rows)
    return ProbeResult(
        bandwidth_bytes_per_s=read.bytes_per_s,
        bandwidth_method=read.method,
        peak_flops_per_s=product.flops_per_s,
        peak_batch=product.batch,
        ridge_flops_per_byte=product.flops_per_s / read.bytes_per_s,
        compute_format=circumstances.compute_format,
        matrix_size=circumstances.matrix_size,
        rows=tuple(rows),
        bandwidth_rows=tuple(bandwidth_rows),
        identity=circumstances.identity,
        gpu=circumstances.gpu,
        method=circumstances.method,
        notes=(*circumstances.notes, *explain_rows(rows, bandwidth_rows)),
        seed=circumstances.seed,
        elapsed_s=circumstances.elapsed_s,
    )


def fastest_read(rows: Sequence[BandwidthRow]) -> BandwidthRow:
    """The read-dominated row with the highest rate, among those whose data is well beyond the cache if any is."""
    reads = [row for row in rows if row.is_read_dominated]
    return max([row for row in reads if _is_beyond_cache(row)] or reads, key=lambda row: row.bytes_per_s)


def fastest_product(rows: Sequence[ProductRow]) -> ProductRow:
    """The product with the highest rate."""
    return max(rows, key=lambda row: row.flops_per_s)


def _is_beyond_cache(row: BandwidthRow) -> bool:
    return row.array_over_cache is None or row.array_over_cache >= CACHE_MARGIN


# ── counts and rows ────────────────────────────────────────────────────────────────────────────────


def count_product_flops(matrix_size: int, batch: int) -> int:
    """Operations of a matrix product [n, n] × [n, B].

    Formula:  2 · n · n · B
    Unit:     FLOPs, a multiply-add is two
    """
    return 2 * matrix_size * matrix_size * batch


def count_product_bytes(matrix_size: int, batch: int, value_bytes: int) -> int:
    """Bytes a matrix product [n, n] × [n, B] moves when each operand crosses memory once.

    Formula:  b · (n · n + n · B + n · B)
    Unit:     bytes
    Ignores:  an operand read twice because it fell out of the cache, and lines read only to be overwritten
    """
    return value_bytes * (matrix_size * matrix_size + 2 * matrix_size * batch)


def product_row(matrix_size: int, batch: int, value_bytes: int, timing: RawTiming) -> ProductRow:
    """A timed product of a square matrix with `batch` columns, as rates."""
    flops = count_product_flops(matrix_size, batch)
    counted_bytes = count_product_bytes(matrix_size, batch, value_bytes)
    return ProductRow(
        batch=batch,
        counted_flops=flops,
        counted_bytes=counted_bytes,
        intensity_flops_per_byte=flops / counted_bytes,
        seconds=timing.median_s,
        flops_per_s=flops / timing.median_s,
        bytes_per_s=counted_bytes / timing.median_s,
        spread_fraction=timing.spread_fraction,
        timing=timing,
    )


@dataclass(frozen=True, slots=True)
class Movement:
    """A way of moving data that is about to be timed."""

    method: str
    description: str
    counted_bytes: int
    is_read_dominated: bool = True
    num_threads: int | None = None


def bandwidth_row(movement: Movement, timing: RawTiming, cache_bytes: int | None, round_index: int = 1) -> BandwidthRow:
    """A timed movement of data, as a rate."""
    return BandwidthRow(
        method=movement.method,
        description=movement.description,
        round_index=round_index,
        is_read_dominated=movement.is_read_dominated,
        num_threads=movement.num_threads,
        counted_bytes=movement.counted_bytes,
        array_over_cache=movement.counted_bytes / cache_bytes if cache_bytes else None,
        seconds=timing.median_s,
        bytes_per_s=movement.counted_bytes / timing.median_s,
        spread_fraction=timing.spread_fraction,
        timing=timing,
    )


def power_of_two_batches(max_batch: int) -> tuple[int, ...]:
    """1, 2, 4, ... and last max_batch itself.

    Raises:   RequestError below 1

    >>> power_of_two_batches(6)
    (1, 2, 4, 6)
    """
    if max_batch < 1:
        raise RequestError(f"largest batch {max_batch} is below 1; give 1 or more, usually 512")
    return (*(1 << exponent for exponent in range((max_batch - 1).bit_length())), max_batch)


# ── what a reader should know about the rows ───────────────────────────────────────────────────────


def explain_rows(rows: Sequence[ProductRow], bandwidth_rows: Sequence[BandwidthRow]) -> list[str]:
    """Notes on unsteady values, on data that the cache may have held, and on a peak that was still rising."""
    return [*_explain_spread(rows, bandwidth_rows), *_explain_cache(bandwidth_rows), *_explain_rise(rows)]


def _explain_spread(rows: Sequence[ProductRow], bandwidth_rows: Sequence[BandwidthRow]) -> list[str]:
    limit = format_fraction(_NOTED_SPREAD_FRACTION)
    timed = [(f"{row.method} (round {row.round_index})", row.spread_fraction) for row in bandwidth_rows]
    timed += [(f"product with B = {row.batch}", row.spread_fraction) for row in rows]
    unsteady = [name for name, spread in timed if spread is not None and spread > _NOTED_SPREAD_FRACTION]
    notes = [f"values spread by more than {limit} of their median in: {', '.join(unsteady)}"] if unsteady else []
    for method in dict.fromkeys(row.method for row in bandwidth_rows):
        rates = [row.bytes_per_s for row in bandwidth_rows if row.method == method]
        if max(rates) > (1 + _NOTED_SPREAD_FRACTION) * min(rates):
            low, high = format_si(min(rates), "B/s"), format_si(max(rates), "B/s")
            notes.append(f"{method} gave {low} in one round and {high} in another: the machine itself changed")
    return notes


def _explain_cache(bandwidth_rows: Sequence[BandwidthRow]) -> list[str]:
    return [
        f"{row.method} moved only {format_number(row.array_over_cache)} times the last-level cache: "
        "part of it may have come from the cache"
        for row in bandwidth_rows
        if row.round_index == 1 and not _is_beyond_cache(row)
    ]


def _explain_rise(rows: Sequence[ProductRow]) -> list[str]:
    if len(rows) < 2 or rows[-1].flops_per_s <= (1 + _NOTED_RISE_FRACTION) * rows[-2].flops_per_s:
        return []
    return [f"the product rate was still rising at B = {rows[-1].batch}: larger products have a higher peak"]
