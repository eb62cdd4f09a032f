"""How large should the arrays of a probe be here? Beyond the cache, inside the memory, within the time.

In:   what is asked (matrix, batches, seconds), what the machine is, and a first rough product rate
Out:  ProbePlan, and in words what had to give way
Leaves out: the timing; nothing here touches an array.
Read next by: machine and machine_kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.errors import MeasurementError
from inference_bench.measure.ceilings import CACHE_MARGIN, count_product_flops
from inference_bench.measure.machine_identity import MachineIdentity
from inference_bench.units import format_bytes, format_number

FP32_BYTES = 4
MIN_VALUES = 4  # the fewest that have a spread
_UNTIMED_CALLS = 2  # one cold, one to choose the loop count
_STREAM_MARGIN = CACHE_MARGIN
_MEMORY_SHARE = 0.5  # of what is available
_TIME_SHARE = 0.6  # of the budget; the rest is for filling arrays, for bandwidth, and for a poor first estimate
_SMALLEST_MATRIX = 256
_NOTED_LOAD_FRACTION = 0.25
_KERNEL_VARIABLES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR", "BLIS_ARCH_TYPE")


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What will be timed.

    Where:    stream_bytes is the size of each array that a movement split over threads works on;
              asked_matrix_size is what the caller wanted, matrix_size what this machine gets
    """

    asked_matrix_size: int
    matrix_size: int
    batches: tuple[int, ...]
    stream_bytes: int
    num_threads: int
    cache_bytes: int | None
    seed: int


def plan_probe(
    identity: MachineIdentity,
    *,
    matrix_size: int,
    batches: tuple[int, ...],
    budget_s: float,
    rate_flops_per_s: float,
    seed: int,
    num_threads: int | None = None,
) -> ProbePlan:
    """The largest halving of matrix_size that fits half of the available memory and the time.

    Raises:   MeasurementError when even the smallest matrix does not fit the memory
    """
    available_bytes = identity.available_memory_bytes
    allowed_bytes = None if available_bytes is None else int(_MEMORY_SHARE * available_bytes)
    size, smallest = matrix_size, min(matrix_size, _SMALLEST_MATRIX)
    while not _fits_memory(size, batches, allowed_bytes):
        if size <= smallest:
            raise MeasurementError(
                f"a matrix of {size} × {size} needs {format_bytes(_needed_bytes(size, batches))}, and half of the "
                f"available memory is {format_bytes(allowed_bytes)}; free some memory"
            )
        size = max(smallest, size // 2)
    while size > smallest and _sweep_s(size, batches, rate_flops_per_s) > _TIME_SHARE * budget_s:
        size = max(smallest, size // 2)
    return ProbePlan(
        asked_matrix_size=matrix_size,
        matrix_size=size,
        batches=batches,
        stream_bytes=_stream_bytes(size, batches, identity.last_level_cache_bytes or 0, allowed_bytes),
        num_threads=num_threads or identity.num_usable_cores,
        cache_bytes=identity.last_level_cache_bytes,
        seed=seed,
    )


def _needed_bytes(size: int, batches: tuple[int, ...]) -> int:
    """The matrix, a copy of it, and the columns in and out."""
    return FP32_BYTES * (2 * size * size + 2 * size * max(batches))


def _fits_memory(size: int, batches: tuple[int, ...], allowed_bytes: int | None) -> bool:
    return allowed_bytes is None or _needed_bytes(size, batches) <= allowed_bytes


def _sweep_s(size: int, batches: tuple[int, ...], rate_flops_per_s: float) -> float:
    """Time of every product as few times as allowed; small batches run below the rate, which _TIME_SHARE absorbs."""
    flops = sum(count_product_flops(size, batch) for batch in batches)
    return (MIN_VALUES + _UNTIMED_CALLS) * flops / rate_flops_per_s


def _stream_bytes(size: int, batches: tuple[int, ...], cache_bytes: int, allowed_bytes: int | None) -> int:
    """The matrix itself where it is well beyond the cache; else larger arrays of their own, if memory allows."""
    matrix_bytes = FP32_BYTES * size * size
    wanted_bytes = _STREAM_MARGIN * cache_bytes
    if matrix_bytes >= wanted_bytes:
        return matrix_bytes
    spare_bytes = 0 if allowed_bytes is None else allowed_bytes - _needed_bytes(size, batches)
    return wanted_bytes if 2 * wanted_bytes <= spare_bytes else matrix_bytes


# ── in words ───────────────────────────────────────────────────────────────────────────────────────


def explain_plan(plan: ProbePlan, identity: MachineIdentity) -> list[str]:
    """Notes on a smaller matrix, on a cache that holds part of it, on forced kernels and on other work."""
    notes = []
    if plan.matrix_size < plan.asked_matrix_size:
        notes.append(
            f"matrix of {plan.matrix_size} × {plan.matrix_size} instead of {plan.asked_matrix_size} × "
            f"{plan.asked_matrix_size}: memory or time would not have sufficed"
        )
    matrix_bytes = FP32_BYTES * plan.matrix_size**2
    if plan.cache_bytes is None:
        notes.append("the last-level cache is unknown: nobody checked that the arrays are larger")
    elif matrix_bytes < CACHE_MARGIN * plan.cache_bytes:
        notes.append(
            f"the last-level cache of {format_bytes(plan.cache_bytes)} holds more than 1/{CACHE_MARGIN} of the matrix "
            f"of {format_bytes(matrix_bytes)}: products of few columns may be faster than memory allows"
        )
    return [*notes, *_explain_library(identity), *_explain_load(identity)]


def _explain_library(identity: MachineIdentity) -> list[str]:
    forced = [f"{name}={value}" for name, value in identity.blas_environment.items() if name in _KERNEL_VARIABLES]
    if not identity.blas:
        return ["the matrix library did not say which it is: its threads and kernels are unknown"]
    if not forced:
        return []
    kernels = ", ".join(library.architecture or "unknown" for library in identity.blas if library.architecture)
    return [
        f"the matrix library is held to its settings by {', '.join(forced)} ({kernels} kernels in use): "
        "the machine's own peak can be higher"
    ]


def _explain_load(identity: MachineIdentity) -> list[str]:
    load = identity.load_average_1min
    if load is None or load <= _NOTED_LOAD_FRACTION * identity.num_usable_cores:
        return []
    return [
        f"load average {format_number(load)} on {identity.num_usable_cores} usable cores when the probe began: "
        "other work may have slowed it"
    ]
