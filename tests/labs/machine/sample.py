"""Timings of a machine that never was, with round numbers: 10 GB/s and 100 GFLOP/s."""

from __future__ import annotations

from collections.abc import Sequence

from inference_bench.labs.head import LabHead
from inference_bench.labs.machine.comparison import (
    Rows,
    ceilings_of,
    compare_ceilings,
    highest,
    mark_above,
    pair_rows,
    probe_ceilings,
)
from inference_bench.labs.machine.result import LabProduct, Library, LibraryIdentity, MachineResult, Orientation
from inference_bench.measure.ceilings import Circumstances, Movement, ProbeResult, bandwidth_row, conclude, product_row
from inference_bench.measure.machine_identity import MachineIdentity
from inference_bench.measure.timing import RawTiming

SIZE = 1000
BANDWIDTH, PEAK = 10_000_000_000, 100_000_000_000
IDENTITY = MachineIdentity(
    "Linux", "x86_64", "A processor", 2, 2, 2, None, 1 << 20, 1 << 33, 1 << 32, "CPython 3.11", "2.4", (), {}, 0.1
)
HEAD = LabHead(
    "machine", "How fast?", "2026-11-30T00:00:00+00:00", 12.0, 1 << 28, "A processor, 2 core(s)", 2, 0.1, None, {"torch": "2.13.0"}, 0,
    True, ("something",), (),
)  # fmt: skip
LIBRARIES = (
    LibraryIdentity(Library.PYTORCH, "2.13.0", "MKL", "AVX512", 2),
    LibraryIdentity(Library.NUMPY, "2.4", "openblas 0.3", "Haswell", 2),
)


def timing(seconds: float) -> RawTiming:
    return RawTiming((seconds * 0.99, seconds, seconds, seconds * 1.01), (seconds,), 1)


def product(library: Library, batch: int, seconds: float, orientation: Orientation = Orientation.ROWS) -> LabProduct:
    return LabProduct(library, orientation, "float32", 2, product_row(SIZE, batch, 4, timing(seconds)))


def least_s(batch: int) -> float:
    """Of [1000, 1000] times B in float32 at 10 GB/s and 100 GFLOP/s, by hand."""
    return max(4 * (1_000_000 + 2_000 * batch) / BANDWIDTH, 2_000_000 * batch / PEAK)


def products(torch_slower: float = 1.0, batches: Sequence[int] = (1, 64, 512)) -> list[LabProduct]:
    mine = [product(Library.PYTORCH, b, least_s(b) * torch_slower) for b in batches]
    return mine + [product(Library.NUMPY, b, least_s(b), Orientation.COLUMNS) for b in batches]


def probe_of(slower: float = 1.0) -> ProbeResult:
    rows = [product_row(SIZE, b, 4, timing(least_s(b) * slower)) for b in (1, 64, 512)]
    moved = bandwidth_row(Movement("dot_split", "sum", 4_000_000), timing(4_000_000 / BANDWIDTH * slower), 1 << 20)
    return conclude(rows, [moved], Circumstances("fp32", SIZE, IDENTITY, None, "by hand", (), 0, 1.0))


def rows_of(torch_slower: float = 1.0, one_thread_slower: float = 1.0, probe_slower: float = 1.0) -> Rows:
    alone = [product(Library.PYTORCH, b, 2 * least_s(b) * one_thread_slower) for b in (1, 512)]
    alone += [product(Library.NUMPY, b, 2 * least_s(b)) for b in (1, 512)]
    return Rows(products(torch_slower), alone, probe_of(probe_slower), LIBRARIES, 2)


def result_of(torch_slower: float = 2.0, probe_slower: float = 1.0) -> MachineResult:
    rows = rows_of(torch_slower, 1.0, probe_slower)
    mine, theirs = (ceilings_of(rows.of(library)) for library in Library)
    probed = probe_ceilings(rows.probe)
    row = product_row(SIZE, 512, 2, timing(0.001))
    return MachineResult(
        HEAD, (), SIZE, 4 * SIZE * SIZE, 1 << 20, 4, mark_above(rows.products, probed), tuple(rows.one_thread),
        (LabProduct(Library.PYTORCH, Orientation.ROWS, "bfloat16", 2, row),), pair_rows(rows), compare_ceilings(rows),
        highest((mine, theirs, probed)), mine, theirs, probed, rows.probe.bandwidth_rows, LIBRARIES, {"avx512_bf16": True},
    )  # fmt: skip
