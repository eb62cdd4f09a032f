"""What do this machine's memory and its arithmetic do at most? A short measurement for a lab that needs it in the same run.

In:   LabSession, number formats
Out:  LabCeilings of each
Leaves out: every batch, and why two libraries differ (flow, the whole lab)
Read next by: batch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from inference_bench.errors import MeasurementError
from inference_bench.facts.formats import number_format
from inference_bench.labs.machine.comparison import fastest
from inference_bench.labs.machine.result import LabCeilings, LabProduct, Library, Orientation
from inference_bench.labs.session import LabSession, counted
from inference_bench.labs.settings import FLOAT32, value_bytes
from inference_bench.measure.ceilings import CACHE_MARGIN
from inference_bench.measure.machine_identity import MachineIdentity
from inference_bench.units import format_bytes, format_number

SIZES: Final = (4096, 6144, 8192)
_SMALLEST: Final = 256
_MEMORY_SHARE: Final = 0.5
_MOST_COLUMNS: Final = 512
_WIDE: Final = 256
_ROUNDS: Final = 4
_READS_A_ROUND: Final = 4
_MOST_S: Final = 7.0
_NOTED_LOAD_FRACTION: Final = 0.25


def matrix_size_for(identity: MachineIdentity, *, is_quick: bool, asked: int | None = None) -> int:
    """How large a matrix to multiply: well beyond the last-level cache, with one copy inside half of the free memory.

    Formula:  the smallest of 4096, 6144 and 8192 with 4·n² >= 4 · cache in quick mode, else 8192; halved while 2·4·n² does not fit
    Raises:   MeasurementError where not even a small one fits
    """
    cache, free = identity.last_level_cache_bytes or 0, identity.available_memory_bytes
    beyond = [size for size in SIZES if matrix_bytes(size) >= CACHE_MARGIN * cache]
    size = asked or (beyond[0] if is_quick and beyond else SIZES[-1])
    while free is not None and _needed_bytes(size) > _MEMORY_SHARE * free:
        if size <= _SMALLEST:
            raise MeasurementError(
                f"a matrix of {size} × {size} needs {format_bytes(_needed_bytes(size))}, and half of the free memory is "
                f"{format_bytes(int(_MEMORY_SHARE * free))}; free some memory"
            )
        size = max(_SMALLEST, size // 2)
    return size


def matrix_bytes(size: int) -> int:
    """Bytes of the matrix in float32."""
    return value_bytes(FLOAT32) * size * size


def _needed_bytes(size: int) -> int:
    """The matrix, a copy of it, and the columns in and out."""
    return 2 * matrix_bytes(size) + value_bytes(FLOAT32) * 2 * size * _MOST_COLUMNS


def measure_ceilings(session: LabSession, dtypes: Sequence[str] = (FLOAT32,)) -> dict[str, LabCeilings]:
    """Bandwidth from the product with one column, peak from one with many, by the faster of PyTorch and NumPy, for each number format.

    Formula:  the fastest value of any round: counted bytes / s at B = 1 in float32, counted FLOPs / s at B = 256 in each format
    Where:    the matrix and the rule are those of the lab in full; it takes under 8 s on two cores. Bandwidth is one for all formats,
              since a byte is a byte; a library that reads memory more slowly than another does not lower the ceiling
    Raises:   MeasurementError where memory does not suffice; MissingExtraError without PyTorch
    """
    from inference_bench.labs.model import require_packages

    require_packages("numpy", "threadpoolctl")
    from inference_bench.labs.machine import products as p

    started = time.perf_counter()
    size = matrix_size_for(session.machine, is_quick=False)
    session.say(f"this machine's own ceilings, a matrix of {size} × {size}")
    operands = p.Operands.drawn(size, _WIDE, session.settings.seed)
    reads = [(p.Kind(library, Orientation.COLUMNS), 1) for library in Library]
    wide = [(p.Kind(Library.PYTORCH, Orientation.ROWS, dtype), _WIDE) for dtype in dtypes]
    wide += [(p.Kind(Library.NUMPY, Orientation.COLUMNS), _WIDE)] if FLOAT32 in dtypes else []
    timed = [
        p.Timed(kind, batch, p.make_call(operands, kind, batch), _READS_A_ROUND if batch == 1 else 1)
        for kind, batch in (*reads, *wide)
    ]
    with p.both_on(session.num_threads):
        left_s = _MOST_S - (time.perf_counter() - started)
        rounds = p.take_rounds(timed, _ROUNDS, session.say, min_rounds=2, budget_s=left_s)
    found = [each.product(size, session.num_threads) for each in timed]
    elapsed_s = time.perf_counter() - started
    how = f"fastest of {rounds} rounds, {size} × {size}, {counted(range(session.num_threads), 'thread')}"
    return {dtype: _ceilings(found, dtype, how, elapsed_s) for dtype in dtypes}


def _ceilings(found: Sequence[LabProduct], dtype: str, how: str, elapsed_s: float) -> LabCeilings:
    """The fastest read of all, and the fastest product with many columns in one format."""
    read = max((each for each in found if each.row.batch == 1), key=lambda each: fastest(each.row).bytes_per_s)
    wide = [each for each in found if each.row.batch > 1 and each.dtype == dtype]
    product = max(wide, key=lambda each: fastest(each.row).flops_per_s)
    source = f"{how}: {read.library} at B = 1, {product.library} in {dtype} at B = {product.row.batch}"
    return LabCeilings(
        fastest(read.row).bytes_per_s, fastest(product.row).flops_per_s, number_format(dtype).name, source, elapsed_s
    )


def busy(session: LabSession) -> list[str]:
    """What a reader of times should know of other work on the machine; nothing where there was little."""
    load, cores = session.machine.load_average_1min, session.machine.num_usable_cores
    if load is None or load <= _NOTED_LOAD_FRACTION * cores:
        return []
    return [
        f"load average {format_number(load)} on {cores} usable core(s) when the lab began: other work slowed it, by more with every "
        "thread more, since threads wait for one another"
    ]
