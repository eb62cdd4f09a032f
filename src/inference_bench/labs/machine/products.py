"""How long does one matrix product take, by PyTorch and by NumPy, on the very same numbers?

In:   one matrix, columns, a library and an orientation
Out:  Calls to time, and rounds of them taken in turn
Leaves out: what the times mean (comparison)
Read next by: flow; ceilings, which imports it only when it measures: it needs PyTorch and NumPy.

The matrix is held once: PyTorch sees NumPy's memory. Turns: a round times every product of one library, then of the next, so that
whatever else the machine does for a few seconds is in the times of both. Between two libraries the threads of the first get the time
to go to sleep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits

from inference_bench.labs.machine.proof import error_over_allowed, proof_rows
from inference_bench.labs.machine.result import LabProduct, Library, Orientation
from inference_bench.labs.session import computing_threads
from inference_bench.labs.settings import FLOAT32, value_bytes
from inference_bench.measure.ceilings import product_row
from inference_bench.measure.timing import RawTiming, Repeats, time_calls

Floats: TypeAlias = npt.NDArray[np.float32]

_SETTLE_S: Final = 0.05  # a matrix library's threads look for work so long before they sleep


@dataclass(frozen=True, slots=True)
class Operands:
    """A square matrix and the most columns it is multiplied with, between -1 and 1, so that a wrong product differs."""

    matrix: Floats
    columns: Floats
    weights: dict[str, torch.Tensor] = field(default_factory=dict)

    def weight(self, dtype: str) -> torch.Tensor:
        """The matrix as PyTorch sees it: the same memory in float32, one rounded copy in another format."""
        if dtype not in self.weights:
            self.weights[dtype] = torch.from_numpy(self.matrix).to(getattr(torch, dtype))
        return self.weights[dtype]

    @classmethod
    def drawn(cls, matrix_size: int, max_batch: int, seed: int) -> Operands:
        """From a seed, filled in place."""
        generator = np.random.default_rng(seed)
        matrix: Floats = np.empty((matrix_size, matrix_size), dtype=np.float32)
        for block in np.array_split(matrix, max(1, matrix_size // 1024)):
            generator.random(dtype=np.float32, out=block)
            block *= 2
            block -= 1
        return cls(matrix, generator.random((matrix_size, max_batch), dtype=np.float32) * 2 - 1)

    @property
    def size(self) -> int:
        """Rows of the matrix, which are its columns too."""
        return int(self.matrix.shape[0])


@dataclass(frozen=True, slots=True)
class Kind:
    """Which library multiplies how, in which format."""

    library: Library
    orientation: Orientation
    dtype: str = FLOAT32


@dataclass(slots=True)
class Timed:
    """One product, its call, and the values it has so far."""

    kind: Kind
    batch: int
    call: Callable[[], object]
    values_a_round: int = 1
    values_s: list[float] = field(default_factory=list)
    warmup_values_s: list[float] = field(default_factory=list)
    inner_loops: int = 1

    def take(self) -> None:
        """A round's values; the calls that find out how many make one warm up."""
        repeats = Repeats(num_values=self.values_a_round, min_values=self.values_a_round, num_warmups=0)
        timing = time_calls(self.call, repeats)
        self.values_s += timing.values_s
        self.warmup_values_s += timing.warmup_values_s
        self.inner_loops = timing.inner_loops

    def product(self, matrix_size: int, num_threads: int) -> LabProduct:
        """The median of its values, as rates."""
        timing = RawTiming(tuple(self.values_s), tuple(self.warmup_values_s), self.inner_loops)
        row = product_row(matrix_size, self.batch, value_bytes(self.kind.dtype), timing)
        return LabProduct(self.kind.library, self.kind.orientation, self.kind.dtype, num_threads, row)


def make_call(operands: Operands, kind: Kind, batch: int) -> Callable[[], object]:
    """A call that computes one product and returns it.

    Shape:  x @ W.T of [B, n] gives [B, n]; W @ x of [n, B] gives [n, B]
    """
    columns = np.ascontiguousarray(operands.columns[:, :batch])
    if kind.library is Library.NUMPY:
        return _numpy_call(operands.matrix, columns, kind.orientation)
    dtype = getattr(torch, kind.dtype)
    weight = operands.weight(kind.dtype)
    if kind.orientation is Orientation.ROWS:
        x = torch.from_numpy(np.ascontiguousarray(columns.T)).to(dtype)
        return lambda: torch.nn.functional.linear(x, weight)
    right, into = torch.from_numpy(columns).to(dtype), torch.empty(operands.size, batch, dtype=dtype)
    return lambda: torch.mm(weight, right, out=into)


def _numpy_call(matrix: Floats, columns: Floats, orientation: Orientation) -> Callable[[], object]:
    if orientation is Orientation.COLUMNS:
        result: Floats = np.empty((matrix.shape[0], columns.shape[1]), dtype=np.float32)
        return lambda: np.matmul(matrix, columns, out=result)
    rows = np.ascontiguousarray(columns.T)
    into: Floats = np.empty((rows.shape[0], matrix.shape[0]), dtype=np.float32)
    return lambda: np.matmul(rows, matrix.T, out=into)


def error_of(operands: Operands, each: Timed) -> float:
    """How far a product is off the same in float64 on some rows, over what rounding can explain."""
    rows, dtype = proof_rows(operands.size), each.kind.dtype
    computed = torch.as_tensor(each.call()).float()
    if each.kind.orientation is Orientation.ROWS:
        computed = computed.T
    part = operands.weight(dtype)[rows].float().numpy()
    columns = torch.from_numpy(operands.columns[:, : each.batch]).to(getattr(torch, dtype)).float().numpy()
    return error_over_allowed(part, columns, computed[rows].numpy(), dtype)


@contextmanager
def both_on(num_threads: int) -> Iterator[None]:
    """PyTorch and NumPy's matrix library on so many threads each, and back after it."""
    limited = threadpool_limits(limits=num_threads, user_api="blas")
    with computing_threads(num_threads), limited, torch.inference_mode():
        yield


def take_rounds(
    timed: Sequence[Timed], num_rounds: int, say: Callable[[str], None], *, min_rounds: int = 4, budget_s: float
) -> int:
    """Time every product in turn, library by library, round by round, until the rounds or the time are used up.

    Where:  every second round goes through the libraries backwards, so that none always follows another; it returns the rounds
            that were taken, at least min_rounds
    """
    groups = [list(group) for _, group in groupby(timed, key=lambda each: each.kind.library)]
    started = time.perf_counter()
    for number in range(num_rounds):
        began = time.perf_counter()
        for group in groups if number % 2 == 0 else groups[::-1]:
            time.sleep(_SETTLE_S)
            for each in group:
                say(
                    f"round {number + 1} of {num_rounds}: {each.kind.library}, {each.kind.orientation}, B = {each.batch}"
                )
                each.take()
        now = time.perf_counter()
        if number + 1 >= min_rounds and now - started + (now - began) > budget_s:
            return number + 1
    return num_rounds
