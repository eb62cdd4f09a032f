"""How fast do NumPy's own loops and its matrix library go here? The calls that the machine probe times.

In:   a plan (sizes, batches, threads) and a clock
Out:  timed rows for data movements and for products
Leaves out: which sizes suit this machine and what the rows mean; see machine_plan and ceilings.
Read next by: machine, which imports this module only when a probe starts: it needs NumPy and threadpoolctl.

Threads. A product uses the threads of the matrix library. A movement is cut into one slice per core, each on a
Python thread of its own (NumPy lets go of the interpreter lock inside), while the matrix library is held to one
thread: two pools of threads on the same cores would wait for each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from inference_bench.measure.ceilings import (
    BandwidthRow,
    Movement,
    ProductRow,
    Progress,
    bandwidth_row,
    count_product_bytes,
    count_product_flops,
    product_row,
)
from inference_bench.measure.machine_plan import FP32_BYTES, MIN_VALUES, ProbePlan
from inference_bench.measure.timing import Call, Clock, RawTiming, Repeats, time_calls, wall_clock
from inference_bench.units import format_si

Floats: TypeAlias = npt.NDArray[np.float32]

_PRODUCT_REPEATS = 9
_MOVEMENT = Repeats(num_values=15, min_values=MIN_VALUES, num_warmups=2, min_value_s=0.02, budget_s=0.6)
_PILOT = Repeats(num_values=1, min_values=1)


@contextmanager
def library_threads(num_threads: int) -> Iterator[None]:
    """The matrix library on so many threads, whatever it was started with."""
    with threadpool_limits(limits=num_threads, user_api="blas"):
        yield


def estimate_product_rate(matrix_size: int, batch: int, clock: Clock) -> float:
    """A first, rough rate from one short product, to choose sizes by.

    Unit:     FLOP/s
    """
    matrix: Floats = np.ones((matrix_size, matrix_size), dtype=np.float32)
    timing = _time_product(matrix, np.ones((matrix_size, batch), dtype=np.float32), _PILOT, clock)
    return count_product_flops(matrix_size, batch) / timing.median_s


def measure_rows(
    plan: ProbePlan, *, budget_s: float, progress: Progress, clock: Clock
) -> tuple[list[ProductRow], list[BandwidthRow]]:
    """Every product and every movement of the plan; the product with one column counts as a movement too.

    Where:    movements are timed in two rounds, before the products and after them: bandwidth is shared with
              whatever else runs on the machine, and two rounds show a change
    Raises:   MemoryError when an array cannot be had
    """
    deadline_s = clock() + budget_s
    with ThreadPoolExecutor(plan.num_threads) as pool:
        movements = _Movements(plan, pool)
        first_round_began_s = clock()
        first_round = movements.measure(1, progress, clock)
        second_round_takes_s = clock() - first_round_began_s
        rows = _measure_products(plan, movements.matrix, deadline_s - second_round_takes_s, progress, clock)
        second_round = movements.measure(2, progress, clock)
    return rows, [*first_round, _as_movement(rows[0], plan), *second_round]


# ── products ───────────────────────────────────────────────────────────────────────────────────────


def _measure_products(
    plan: ProbePlan, matrix: Floats, deadline_s: float, progress: Progress, clock: Clock
) -> list[ProductRow]:
    generator = np.random.default_rng(plan.seed)
    rows: list[ProductRow] = []
    for batch in plan.batches:
        left_s = max(0.0, deadline_s - clock()) / (len(plan.batches) - len(rows))
        repeats = _MOVEMENT if batch == 1 else Repeats(_PRODUCT_REPEATS, MIN_VALUES, budget_s=left_s)
        columns = generator.random((plan.matrix_size, batch), dtype=np.float32)
        timing = _time_product(matrix, columns, repeats, clock)
        rows.append(product_row(plan.matrix_size, batch, FP32_BYTES, timing))
        progress(f"matrix product, B = {batch}: {format_si(rows[-1].flops_per_s, 'FLOP/s')}")
    return rows


def _time_product(matrix: Floats, columns: Floats, repeats: Repeats, clock: Clock) -> RawTiming:
    result: Floats = np.empty((matrix.shape[0], columns.shape[1]), dtype=np.float32)
    return time_calls(lambda: np.matmul(matrix, columns, out=result), repeats, wall_clock(clock))


def _as_movement(row: ProductRow, plan: ProbePlan) -> BandwidthRow:
    movement = Movement(
        "product_library_threads",
        "matrix-vector product on the matrix library's own threads (the product with B = 1)",
        row.counted_bytes,
        num_threads=plan.num_threads,
    )
    return bandwidth_row(movement, row.timing, plan.cache_bytes)


# ── movements ──────────────────────────────────────────────────────────────────────────────────────


class _Movements:
    """The arrays of a probe, and the ways of moving them that are split over threads."""

    def __init__(self, plan: ProbePlan, pool: ThreadPoolExecutor) -> None:
        self._plan, self._pool = plan, pool
        self.matrix: Floats = np.empty((plan.matrix_size, plan.matrix_size), dtype=np.float32)
        self._fill(self.matrix.reshape(-1))
        self._stream: Floats = self.matrix.reshape(-1)
        if plan.stream_bytes > self._stream.nbytes:
            self._stream = np.empty(plan.stream_bytes // FP32_BYTES, dtype=np.float32)
            self._fill(self._stream)
        self._target: Floats = np.empty_like(self._stream)

    def measure(self, round_index: int, progress: Progress, clock: Clock) -> list[BandwidthRow]:
        """Each way once, with the matrix library held to one thread."""
        rows = []
        with library_threads(1):
            for movement, call in (self._product(), self._dot(), self._copy()):
                timing = time_calls(call, _MOVEMENT, wall_clock(clock))
                row = bandwidth_row(movement, timing, self._plan.cache_bytes, round_index)
                progress(f"memory bandwidth, {movement.method}: {format_si(row.bytes_per_s, 'B/s')}")
                rows.append(row)
        return rows

    def _product(self) -> tuple[Movement, Call]:
        size, matrix = self._plan.matrix_size, self.matrix
        column: Floats = np.ones(size, dtype=np.float32)
        result: Floats = np.empty(size, dtype=np.float32)
        movement = Movement(
            "product_split",
            "matrix-vector product, rows split over threads",
            count_product_bytes(size, 1, FP32_BYTES),
            num_threads=self._plan.num_threads,
        )
        return movement, self._on_slices(size, lambda rows: np.dot(matrix[rows], column, out=result[rows]))

    def _dot(self) -> tuple[Movement, Call]:
        stream = self._stream
        movement = Movement(
            "dot_split",
            "each value multiplied by itself and summed, split over threads",
            stream.nbytes,
            num_threads=self._plan.num_threads,
        )
        return movement, self._on_slices(stream.size, lambda part: np.dot(stream[part], stream[part]))

    def _copy(self) -> tuple[Movement, Call]:
        stream, target = self._stream, self._target
        movement = Movement(
            "copy_split",
            "copy split over threads: bytes read plus bytes written, without lines read only to be overwritten",
            2 * stream.nbytes,
            is_read_dominated=False,
            num_threads=self._plan.num_threads,
        )
        return movement, self._on_slices(stream.size, lambda part: np.copyto(target[part], stream[part]))

    def _fill(self, values: Floats) -> None:
        """Random numbers in [0, 1), written by the threads that read them: pages land near their first writer."""
        parts = _slices(self._plan.num_threads, values.size)
        generators = [np.random.default_rng([self._plan.seed, index]) for index in range(len(parts))]

        def fill(generator: np.random.Generator, part: slice) -> None:
            generator.random(dtype=np.float32, out=values[part])

        list(self._pool.map(fill, generators, parts))

    def _on_slices(self, num_values: int, work: Callable[[slice], object]) -> Call:
        """One call that does the work on every slice at once and returns when the last is done."""
        parts = _slices(self._plan.num_threads, num_values)
        return lambda: list(self._pool.map(work, parts))


def _slices(num_parts: int, num_values: int) -> list[slice]:
    bounds = [num_values * index // num_parts for index in range(num_parts + 1)]
    return [slice(low, high) for low, high in itertools.pairwise(bounds) if low < high]
