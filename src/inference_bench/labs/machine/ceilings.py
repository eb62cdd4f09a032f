"""What do this machine's memory and its arithmetic do at most? A short measurement for a lab that needs it in the same run.

In:   LabSession
Out:  LabCeilings
Leaves out: every batch, and why two libraries differ (flow, the whole lab)
Read next by: batch, speculate.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from inference_bench.errors import MeasurementError
from inference_bench.labs.machine.result import LabCeilings, LabProduct, Library, Orientation
from inference_bench.labs.settings import BFLOAT16, FLOAT32
from inference_bench.measure.ceilings import CACHE_MARGIN
from inference_bench.measure.machine_identity import MachineIdentity
from inference_bench.units import format_bytes, format_number, format_si

if TYPE_CHECKING:
    from inference_bench.labs.session import LabSession

__all__ = ["LabCeilings", "busy", "matrix_size_for", "measure_ceilings"]

SIZES: Final = (4096, 6144, 8192)
_SMALLEST: Final = 256
_VALUE_BYTES: Final = 4
_MEMORY_SHARE: Final = 0.5
_MOST_COLUMNS: Final = 512
_WIDE: Final = (128, _MOST_COLUMNS)
_FORMAT_NAMES: Final = {FLOAT32: "fp32", BFLOAT16: "bf16"}
_MOST_S: Final = 7.0
_NOTED_LOAD_FRACTION: Final = 0.25


def matrix_size_for(identity: MachineIdentity, *, is_quick: bool, asked: int | None = None) -> int:
    """How large a matrix to multiply: well beyond the last-level cache, with one copy inside half of the free memory.

    Formula:  the smallest of 4096, 6144 and 8192 with 4·n² >= 4 · cache in quick mode, else 8192; halved while 2·4·n² does not fit
    Raises:   MeasurementError where not even a small one fits
    """
    cache, free = identity.last_level_cache_bytes or 0, identity.available_memory_bytes
    beyond = [size for size in SIZES if _VALUE_BYTES * size * size >= CACHE_MARGIN * cache]
    size = asked or (beyond[0] if is_quick and beyond else SIZES[-1])
    while free is not None and _needed_bytes(size) > _MEMORY_SHARE * free:
        if size <= _SMALLEST:
            raise MeasurementError(
                f"a matrix of {size} × {size} needs {format_bytes(_needed_bytes(size))}, and half of the free memory is "
                f"{format_bytes(int(_MEMORY_SHARE * free))}; free some memory"
            )
        size = max(_SMALLEST, size // 2)
    return size


def _needed_bytes(size: int) -> int:
    """The matrix, a copy of it, and the columns in and out."""
    return _VALUE_BYTES * (2 * size * size + 2 * size * _MOST_COLUMNS)


def measure_ceilings(session: LabSession, is_quick: bool = False, dtype: str = FLOAT32) -> LabCeilings:
    """Bandwidth from the product with one column, peak from those with many, by the faster of PyTorch and NumPy.

    Formula:  the fastest value of any round at B = 1 in float32, and over B = 128 and 512 in the number format asked for
    Where:    it takes under 8 s on two cores. The fastest, not the median: other work on the machine only lowers a rate, and a ceiling
              is what no figure should pass; bandwidth is of float32 in any format, since a byte is a byte; a library that reads
              memory more slowly than another does not lower the ceiling
    Raises:   MeasurementError where memory does not suffice; MissingExtraError without PyTorch
    """
    from inference_bench.labs.model import require_packages

    require_packages("numpy", "threadpoolctl")
    from inference_bench.labs.machine import products as p

    started = time.perf_counter()
    size = matrix_size_for(session.machine, is_quick=True)
    session.say(f"this machine's own ceilings, a matrix of {size} × {size}")
    operands = p.Operands.drawn(size, _MOST_COLUMNS, session.settings.seed)
    asked = [(p.Kind(library, Orientation.COLUMNS), 1) for library in Library]
    asked += [(p.Kind(Library.PYTORCH, Orientation.ROWS, dtype), batch) for batch in _WIDE]
    asked += [(p.Kind(Library.NUMPY, Orientation.COLUMNS), _MOST_COLUMNS)] if dtype == FLOAT32 else []
    timed = [p.Timed(kind, batch, p.make_call(operands, kind, batch)) for kind, batch in asked]
    with p.both_on(session.num_threads):
        left_s = _MOST_S - (time.perf_counter() - started)
        rounds = p.take_rounds(timed, 4 if is_quick else 5, session.say, min_rounds=3, budget_s=left_s)
    found = [each.product(size, session.num_threads) for each in timed]
    read, fastest = (
        min(found[:2], key=_fastest_s),
        max(found[2:], key=lambda each: each.row.counted_flops / _fastest_s(each)),
    )
    ceilings = LabCeilings(
        read.row.counted_bytes / _fastest_s(read),
        fastest.row.counted_flops / _fastest_s(fastest),
        _FORMAT_NAMES[dtype],
        f"{size} × {size}, {session.num_threads} thread(s), fastest of {rounds} rounds: {read.library} at B = 1, "
        f"{fastest.library} in {fastest.dtype} at B = {fastest.row.batch}",
        time.perf_counter() - started,
    )
    bandwidth, peak = format_si(ceilings.bandwidth_bytes_per_s, "B/s"), format_si(ceilings.peak_flops_per_s, "FLOP/s")
    session.say(f"ceilings: {bandwidth}, {peak}")
    return ceilings


def _fastest_s(product: LabProduct) -> float:
    """The value that other work on the machine disturbed least."""
    return min(product.row.timing.values_s)


def busy(session: LabSession) -> list[str]:
    """What a reader of times should know of other work on the machine; nothing where there was little."""
    load, cores = session.machine.load_average_1min, session.machine.num_usable_cores
    if load is None or load <= _NOTED_LOAD_FRACTION * cores:
        return []
    return [
        f"load average {format_number(load)} on {cores} usable core(s) when the lab began: other work slowed it, by more with every "
        "thread more, since threads wait for one another"
    ]
