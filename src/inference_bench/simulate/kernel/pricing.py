"""The cost function over plain arrays: the same lines run in the readable loop, in the fast engine, and compiled.

In:   coefficients in the order of the indices below, a table of times or NO_TABLE, sums over who is in a step
Out:  seconds
Read next by: step_time, steps, batch_steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

WEIGHT_BYTES: Final = 0
EXPERT_BYTES: Final = 1
EXPERT_MISS: Final = 2
READ_BYTES: Final = 3
WRITE_BYTES: Final = 4
STATE_BYTES: Final = 5
FLOPS_POSITION: Final = 6
FLOPS_SEQUENCE: Final = 7
FLOPS_PAIR: Final = 8
BANDWIDTH: Final = 9
COMPUTE: Final = 10
SERIAL_SHARE: Final = 11
FIXED_S: Final = 12
SEQUENCE_S: Final = 13
POSITION_S: Final = 14
VECTOR_S: Final = 15

NO_TABLE: Final = (0.0,)
# a table: [number of values in all, shared seconds, decode grid, prefill grid]; a grid: [rows, columns, row axis, column axis, values]
SHARED_S: Final = 1
FIRST_GRID: Final = 2


def step_seconds(
    coefficients: Sequence[float],
    table: Sequence[float],
    positions: int,
    sequences: int,
    cached: int,
    pairs: int,
    extra_bytes: float,
    extra_flops: float,
    decodes: int,
    decode_context: int,
) -> float:
    """The time of a step; see `step_time.Coefficients` for the formula, `table_seconds` for tables.

    Unit:  seconds
    """
    if table[0] > 0.0:
        return table_seconds(table, positions - decodes, cached - (decode_context - decodes), decodes, decode_context)
    bytes_before = constant_bytes(coefficients, positions, sequences)
    flops_before = constant_flops(coefficients, positions, sequences)
    besides = constant_seconds(coefficients, positions, sequences)
    memory = (bytes_before + coefficients[READ_BYTES] * cached + extra_bytes) / coefficients[BANDWIDTH]
    compute = (flops_before + coefficients[FLOPS_PAIR] * pairs + extra_flops) / coefficients[COMPUTE]
    seconds = overlapped(memory, compute, coefficients[SERIAL_SHARE])
    if coefficients[VECTOR_S] > 0.0:
        bytes_before = moved_bytes(coefficients, positions, sequences)
        memory = (bytes_before + coefficients[READ_BYTES] * cached + extra_bytes) / coefficients[BANDWIDTH]
        compute = (coefficients[FLOPS_PAIR] * pairs + extra_flops) / coefficients[COMPUTE]
        by_vector = coefficients[VECTOR_S] * positions
        seconds = min(seconds, by_vector + overlapped(memory, compute, coefficients[SERIAL_SHARE]))
    return seconds + besides


def overlapped(memory: float, compute: float, serial_share: float) -> float:
    """Memory and compute time together: the longer, and of the shorter what is not overlapped."""
    if memory >= compute:
        return memory + serial_share * compute
    return compute + serial_share * memory


def constant_bytes(coefficients: Sequence[float], positions: int, sequences: int) -> float:
    """Bytes of a step that do not depend on how long the contexts are."""
    total = coefficients[WEIGHT_BYTES] + coefficients[WRITE_BYTES] * positions + coefficients[STATE_BYTES] * sequences
    if coefficients[EXPERT_BYTES] > 0.0:
        # a float exponent: compiled, a whole one would be multiplied out and differ in the last bit
        total += coefficients[EXPERT_BYTES] * (1.0 - coefficients[EXPERT_MISS] ** float(positions))
    return total


def moved_bytes(coefficients: Sequence[float], positions: int, sequences: int) -> float:
    """Those of them that are no weights."""
    return coefficients[WRITE_BYTES] * positions + coefficients[STATE_BYTES] * sequences


def constant_flops(coefficients: Sequence[float], positions: int, sequences: int) -> float:
    """FLOPs of a step that do not depend on how long the contexts are."""
    return coefficients[FLOPS_POSITION] * positions + coefficients[FLOPS_SEQUENCE] * sequences


def constant_seconds(coefficients: Sequence[float], positions: int, sequences: int) -> float:
    """Time of a step that neither bytes nor FLOPs explain."""
    return coefficients[FIXED_S] + coefficients[SEQUENCE_S] * sequences + coefficients[POSITION_S] * positions


def table_seconds(table: Sequence[float], prefill: int, past: int, decodes: int, decode_context: int) -> float:
    """A step by a table of times: prompts alone, decoding alone, or both with one read of the weights between them.

    Formula:  prefill(P, past) ⊕ decode(D, mean context); both: their sum less the time of one read of the weights, and
              not less than either
    Unit:     seconds
    """
    second_grid = FIRST_GRID + grid_size(table, FIRST_GRID)
    decode = 0.0
    if decodes > 0:
        decode = bilinear(table, FIRST_GRID, float(decodes), decode_context / decodes)
    if prefill <= 0:
        return decode
    alone = bilinear(table, second_grid, float(prefill), float(past))
    together = alone + decode - table[SHARED_S]
    return max(alone, decode, together)


def grid_size(table: Sequence[float], start: int) -> int:
    """How many values of the table a grid takes."""
    rows, columns = int(table[start]), int(table[start + 1])
    return 2 + rows + columns + rows * columns


def bilinear(table: Sequence[float], start: int, row: float, column: float) -> float:
    """A value between grid points; outside the grid the last slope goes on, and nothing falls below zero.

    Formula:  linear along rows, then along columns
    """
    rows, columns = int(table[start]), int(table[start + 1])
    row_axis, values = start + 2, start + 2 + rows + columns
    low, row_share = axis_position(table, row_axis, rows, row)
    left, column_share = axis_position(table, row_axis + rows, columns, column)
    lower, upper = values + low * columns + left, values + min(low + 1, rows - 1) * columns + left
    right = 1 if left + 1 < columns else 0
    below = table[lower] + column_share * (table[lower + right] - table[lower])
    above = table[upper] + column_share * (table[upper + right] - table[upper])
    return max(0.0, below + row_share * (above - below))


def axis_position(table: Sequence[float], start: int, count: int, value: float) -> tuple[int, float]:
    """Between which points of an axis a value lies, and how far from the lower one."""
    if count == 1:
        return 0, 0.0
    index = 0
    while index < count - 2 and value >= table[start + index + 1]:
        index += 1
    low, high = table[start + index], table[start + index + 1]
    return index, (value - low) / (high - low)


def attended_pairs(cached: int, new: int, limit: int) -> int:
    """Query-key pairs of new positions after cached ones, each attending `limit` positions at most, itself included.

    Formula:  Σ_{j=1..k} min(c + j, W)
    """
    growing = max(0, min(new, limit - cached))
    return growing * cached + growing * (growing + 1) // 2 + (new - growing) * limit


def cached_reads(cached: int, limit: int) -> int:
    """Cached positions that a step must read where one position attends `limit` at most, itself included."""
    return min(cached, limit - 1)
