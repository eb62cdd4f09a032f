"""Is what was timed the product it claims to be, and are its operations and bytes counted as the formula says?

In:   a product's values and its operands; rows with their counts
Out:  the largest error in units of what rounding allows; Checks
Leaves out: times
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from inference_bench.accounting.work import matrix_intensity
from inference_bench.labs.checks import Check
from inference_bench.labs.machine.result import LabProduct
from inference_bench.labs.settings import BFLOAT16, value_bytes
from inference_bench.units import format_count, format_number

_SLICE_ROWS: Final = 64
_FLOAT32_UNIT: Final = 2.0**-24
_BFLOAT16_UNIT: Final = 2.0**-8
_SAME: Final = 1e-12


def proof_rows(matrix_size: int) -> list[int]:
    """The rows that are computed again, evenly spread."""
    return sorted(set(np.linspace(0, matrix_size - 1, min(_SLICE_ROWS, matrix_size)).astype(int).tolist()))


def error_over_allowed(part: Any, columns: Any, computed: Any, dtype: str) -> float:
    """How far some rows of a product are off the same in float64, over what rounding can explain.

    Formula:  max |y - Wx| / (n·u·|W||x|); in bfloat16, whose sums are kept in float32, n·u is 2^-8 + n·2^-24
    Where:    u = 2^-24; |W||x| is the product of the absolute values
    Shape:    part [rows, n], columns [n, B], computed [rows, B], all as they were multiplied
    Unit:     1 is the limit that no order of summation passes
    Source:   Higham 2002, Accuracy and Stability of Numerical Algorithms, section 3.5
    """
    rows, whole = part.astype(np.float64), columns.astype(np.float64)
    unit = part.shape[1] * _FLOAT32_UNIT + (_BFLOAT16_UNIT if dtype == BFLOAT16 else 0.0)
    allowed = unit * (np.abs(rows) @ np.abs(whole))
    return float(np.max(np.abs(computed.astype(np.float64) - rows @ whole) / allowed))


def check_products(errors: Sequence[tuple[str, float]]) -> Check:
    """Every product is the product: a transposed or a stale one is off by far more than rounding."""
    name, worst = max(errors, key=lambda each: each[1])
    return Check(
        "each product equals the same in float64 on 64 of its rows",
        worst <= 1.0,
        f"largest error {format_number(worst)} of what rounding allows ({name}; {format_count(len(errors))} products)",
        "at most 1, the bound n·u·|W||x|",
    )


def check_counts(matrix_size: int, products: Sequence[LabProduct]) -> Check:
    """Operations and bytes of every row against the formula that the accounting of models uses."""
    wrong = [each for each in products if not _is_counted(matrix_size, each)]
    return Check(
        "FLOPs and bytes of each row are 2·n²·B and b·(n² + 2·n·B)",
        not wrong,
        f"{format_count(len(products) - len(wrong))} of {format_count(len(products))} rows",
        "all of them, and their intensity as in the accounting of a model's products",
    )


def _is_counted(size: int, product: LabProduct) -> bool:
    row, each_bytes = product.row, value_bytes(product.dtype)
    flops, num_bytes = 2 * size * size * row.batch, each_bytes * (size * size + 2 * size * row.batch)
    intensity = matrix_intensity(size, size, row.batch, each_bytes)
    is_same = abs(row.intensity_flops_per_byte / intensity - 1) < _SAME
    return row.counted_flops == flops and row.counted_bytes == num_bytes and is_same
