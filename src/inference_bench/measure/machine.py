"""What can this machine do at most? Its own memory bandwidth and float32 matrix-product rate, measured.

In:   how large a matrix, how many columns to try, and how long it may take
Out:  ProbeResult: bandwidth, peak, the ridge between them, and every raw value behind them
Leaves out: faster caches than the last level, and every number format but float32. An engine that computes in int8
    can pass a float32 peak, and that is a finding, not an error.
Read next by: verify and compare (the ceilings), report (the roofline).

NumPy runs in this process, not in one of its own. The number of library threads is set for the time of the probe
through threadpoolctl, so it does not matter when or how the library was loaded; the arrays go back to the system
at the end; Ctrl-C has no second process to stop. The price: a system that promises more memory than it has could
end the whole program, which is why at most half of the available memory is asked for.
"""

from __future__ import annotations

import dataclasses
import importlib
import time

from inference_bench.errors import MeasurementError, MissingExtraError, RequestError
from inference_bench.measure.ceilings import Circumstances, ProbeResult, Progress, conclude, power_of_two_batches
from inference_bench.measure.machine_identity import MachineIdentity, identify_blas, identify_machine
from inference_bench.measure.machine_plan import FP32_BYTES, explain_plan, plan_probe
from inference_bench.measure.timing import Clock
from inference_bench.units import format_bytes

__all__ = ["ProbeResult", "probe"]

_PILOT_MATRIX = 1024


def probe(
    *,
    progress: Progress | None = None,
    budget_s: float = 25.0,
    max_batch: int = 512,
    matrix_size: int = 8192,
    seed: int = 0,
    num_threads: int | None = None,
    clock: Clock = time.perf_counter,
) -> ProbeResult:
    """Memory bandwidth and float32 product rate, on all the cores that this process may use, or on fewer threads.

    Where:    num_threads None is one for each of those cores; budget_s is aimed at, not promised: a slow machine gets a
              smaller matrix and fewer repeats, and the result says so; no row is timed fewer than four times
    Raises:   MissingExtraError without NumPy or threadpoolctl; RequestError for a size, a budget or threads of nothing;
              MeasurementError when memory does not suffice
    """
    started_s = clock()
    batches = power_of_two_batches(max_batch)
    if matrix_size < 1 or budget_s <= 0:
        raise RequestError(f"matrix size {matrix_size} and budget {budget_s} s must both be above 0")
    if num_threads is not None and num_threads < 1:
        raise RequestError(f"{num_threads} threads cannot measure anything; give 1 or more")
    _require_numpy()
    from inference_bench.measure import machine_kernels as kernels

    identity = identify_machine()
    threads = num_threads or identity.num_usable_cores
    with kernels.library_threads(threads):
        identity = dataclasses.replace(identity, blas=identify_blas())
        plan = plan_probe(
            identity,
            num_threads=threads,
            matrix_size=matrix_size,
            batches=batches,
            budget_s=budget_s,
            rate_flops_per_s=kernels.estimate_product_rate(min(matrix_size, _PILOT_MATRIX), max_batch, clock),
            seed=seed,
        )
        left_s = budget_s - (clock() - started_s)
        try:
            rows, bandwidth_rows = kernels.measure_rows(
                plan, budget_s=left_s, progress=progress or _say_nothing, clock=clock
            )
        except MemoryError as error:
            size = format_bytes(FP32_BYTES * plan.matrix_size**2)
            raise MeasurementError(f"no memory for a matrix of {size} and its copy; free some memory") from error
    circumstances = Circumstances(
        compute_format="fp32",
        matrix_size=plan.matrix_size,
        identity=identity,
        gpu=None,
        method=_describe_method(identity, threads),
        notes=tuple(explain_plan(plan, identity)),
        seed=seed,
        elapsed_s=clock() - started_s,
    )
    return conclude(rows, bandwidth_rows, circumstances)


def _require_numpy() -> None:
    try:
        for package in ("numpy", "threadpoolctl"):
            importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(
            f"measuring this machine needs NumPy and threadpoolctl ({error}); "
            "install them with: pip install 'inference-bench[bench]'"
        ) from error


def _describe_method(identity: MachineIdentity, num_threads: int) -> str:
    libraries = [
        f"{library.name} {library.version or ''} ({library.architecture or 'unnamed'} kernels)"
        for library in identity.blas
    ]
    return (
        f"float32 products by NumPy {identity.numpy_version} with {', '.join(libraries) or 'an unnamed library'} on "
        f"{num_threads} threads; medians of repeated calls; bytes and FLOPs are counted from the shapes, "
        "not read from a hardware counter"
    )


def _say_nothing(_text: str) -> None:
    return
