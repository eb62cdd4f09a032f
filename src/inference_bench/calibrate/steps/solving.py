"""The numbers within bounds that bring a sum of terms nearest to 1 in most rows, whatever a few of them say.

In:   Rows: one a measured step, its terms as shares of the measured time
Out:  the numbers
Leaves out: what the numbers mean, and which terms a step has (candidates)
Read next by: candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Final

from inference_bench.calibrate.least_squares import solve

FAR: Final = 0.02  # a relative error from which on it counts by its size and no longer by its square
_HOLD: Final = 1e-4  # how weakly a number is held to what is usual where no step tells it
_ROUNDS: Final = 40
_PATIENCE: Final = 3  # rounds without gain after which it is over: terms of a step may change back and forth
_SAME: Final = 1e-6
_GAIN: Final = 1e-4
_TURNS: Final = 4  # of holding and letting go, for each number
_TOLD: Final = 1e-3  # of a column's square, what other columns do not explain

Row = Sequence[float]


@dataclass(frozen=True, slots=True)
class Limits:
    """Within what the numbers are looked for.

    Where:  usual is where a number stays that no step tells, spans how far from it is far
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    usual: tuple[float, ...]
    spans: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """The numbers, the rows they were solved on, and what is left as `loss_of` counts it."""

    numbers: tuple[float, ...]
    rows: tuple[Row, ...]
    loss: float


def settle(rows_at: Callable[[Row], Sequence[Row]], weights: Row, start: Row, limits: Limits) -> Solution:
    """The best numbers from a start, where the rows depend on the numbers: which kernel is the quicker one, which arm the longer.

    Formula:  argmin Σ weight · huber(row · numbers - 1), by weighted least squares of which the weights are taken anew each round
    Ignores:  that there may be a better place beyond a worse one; start at several
    Source:   Huber 1964, Robust estimation of a location parameter; Holland and Welsch 1977 for the rounds
    """
    at = tuple(start)
    rows = tuple(rows_at(at))
    errors = errors_of(rows, at)
    best = Solution(at, rows, loss_of(errors, weights))
    waited = 0
    for _ in range(_ROUNDS):
        trusted = [w * (1.0 if abs(e) <= FAR else FAR / abs(e)) for w, e in zip(weights, errors, strict=True)]
        there = least_squares(rows, trusted, limits)
        moved = max(
            abs(a - b) / max(abs(a), abs(b), span * _SAME) for a, b, span in zip(at, there, limits.spans, strict=True)
        )
        at, rows = there, tuple(rows_at(there))
        errors = errors_of(rows, at)
        loss = loss_of(errors, weights)
        waited = 0 if loss < best.loss * (1 - _GAIN) else waited + 1
        if loss < best.loss:
            best = Solution(at, rows, loss)
        if moved < _SAME or waited >= _PATIENCE:
            break
    return best


def errors_of(rows: Sequence[Row], at: Row) -> list[float]:
    """Predicted over measured, less one."""
    return [sum(map(mul, row, at)) - 1.0 for row in rows]


def loss_of(errors: Row, weights: Row) -> float:
    """Squares of small errors, sizes of large ones."""
    return sum(
        weight * (error * error if (size := abs(error)) <= FAR else FAR * (2 * size - FAR))
        for weight, error in zip(weights, errors, strict=True)
    )


def least_squares(rows: Sequence[Row], weights: Row, limits: Limits) -> tuple[float, ...]:
    """The numbers within limits for which Σ weight · (row · numbers - 1)² is smallest, each held weakly to what is usual."""
    columns = list(zip(*rows, strict=True))
    weighted = [list(map(mul, column, weights)) for column in columns]
    matrix = [[sum(map(mul, mine, other)) for other in columns] for mine in weighted]
    right = [sum(column) for column in weighted]
    for index, (usual, span) in enumerate(zip(limits.usual, limits.spans, strict=True)):
        hold = (_HOLD / span) ** 2
        matrix[index][index] += hold
        right[index] += hold * usual
    return _boxed(matrix, right, limits)


def _boxed(matrix: Sequence[Row], right: Row, limits: Limits) -> tuple[float, ...]:
    """The numbers within limits that solve a symmetric positive definite system best.

    Formula:  what leaves its limits is held at them and the rest solved again; what is held and would go back inside is let go
    Source:   Stark and Parker 1995, Bounded-variable least squares
    """
    held: dict[int, float] = {}
    at = _solved(matrix, right, held)
    for _ in range(_TURNS * len(right)):
        outside = {
            index: min(max(value, limits.low[index]), limits.high[index])
            for index, value in enumerate(at)
            if not limits.low[index] <= value <= limits.high[index]
        }
        if outside:
            held.update(outside)
        elif (free := _let_go(matrix, right, at, held, limits)) is not None:
            del held[free]
        else:
            break
        at = _solved(matrix, right, held)
    return tuple(min(max(value, low), high) for value, low, high in zip(at, limits.low, limits.high, strict=True))


def _solved(matrix: Sequence[Row], right: Row, held: Mapping[int, float]) -> list[float]:
    """The system with some numbers held."""
    free = [index for index in range(len(right)) if index not in held]
    if len(free) == len(right):
        return solve(matrix, right)
    rest = [right[index] - sum(matrix[index][other] * value for other, value in held.items()) for index in free]
    found = dict(zip(free, solve([[matrix[i][j] for j in free] for i in free], rest), strict=True))
    return [held.get(index, found.get(index, 0.0)) for index in range(len(right))]


def _let_go(matrix: Sequence[Row], right: Row, at: Row, held: Mapping[int, float], limits: Limits) -> int | None:
    """The held number that would gain most by going back inside; None where none would."""
    gains = {}
    for index, value in held.items():
        pull = (right[index] - sum(map(mul, matrix[index], at))) * limits.spans[index]
        gains[index] = pull if value == limits.low[index] else -pull
    best = max(gains, key=gains.__getitem__, default=None)
    return best if best is not None and gains[best] > _SAME * abs(right[best] * limits.spans[best]) else None


def told(rows: Sequence[Row], weights: Row, limits: Limits) -> tuple[bool, ...]:
    """Whether the rows tell each number from the others.

    Formula:  1 - R² of its column on the other columns, against a thousandth
    """
    columns = list(zip(*rows, strict=True))
    size = len(columns)
    matrix = [
        [sum(w * a * b for w, a, b in zip(weights, mine, other, strict=True)) for other in columns] for mine in columns
    ]
    diagonal = [matrix[i][i] for i in range(size)]
    seen = [value * span**2 > _HOLD**2 for value, span in zip(diagonal, limits.spans, strict=True)]
    scaled = [
        [
            matrix[i][j] / (diagonal[i] * diagonal[j]) ** 0.5 + (1e-12 if i == j else 0.0)
            if seen[i] and seen[j]
            else float(i == j)
            for j in range(size)
        ]
        for i in range(size)
    ]
    inverse = [solve(scaled, [float(i == j) for j in range(size)])[i] for i in range(size)]
    return tuple(is_seen and 0 < value < 1 / _TOLD for is_seen, value in zip(seen, inverse, strict=True))
