"""The few numbers that make some residuals smallest, where the model behind them is quick but has no derivatives.

In:   residuals as a function of numbers within bounds, and where to start
Out:  LeastSquares: the numbers, what is left, and how the residuals move with each
Leaves out: what the numbers mean
Read next by: fitting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

Residuals = Callable[[Sequence[float]], list[float]]

_DESCENTS: Final = 3
_ROUNDS: Final = 12
_POLISHING: Final = 40
_SPANS: Final = (2.0, 0.5)  # of the step, from round to round
_SMALLEST_STEP: Final = 1e-4
_SMALLEST_GAIN: Final = 1e-7


@dataclass(frozen=True, slots=True)
class LeastSquares:
    """Where the sum of squares is smallest.

    Where:  slopes has one row a residual, one column a number; num_runs is how often the residuals were asked for
    """

    numbers: tuple[float, ...]
    residuals: tuple[float, ...]
    slopes: tuple[tuple[float, ...], ...]
    num_runs: int

    @property
    def loss(self) -> float:
        """The sum of squares that is left."""
        return sum(value * value for value in self.residuals)


def minimise(
    residuals: Residuals, starts: Sequence[Sequence[float]], low: Sequence[float], high: Sequence[float], step: float
) -> LeastSquares:
    """The best of the starts, improved by slopes, and then without them: what is simulated moves in small jumps.

    Formula:  damped Gauss-Newton from the three best starts; from the best of those a simplex and Gauss-Newton in turn, until
              neither helps
    Source:   Levenberg 1944 and Marquardt 1963; Nelder and Mead 1965
    """
    problem = _Problem(residuals, low, high)
    ranked = sorted(((problem.loss(start), list(start)) for start in starts), key=lambda each: each[0])
    loss, at = min((problem.descend(start, step) for _, start in ranked[:_DESCENTS]), key=lambda each: each[0])
    for share in _SPANS:
        before = loss
        loss, at = problem.descend(problem.polish(at, share * step), share * step / 4)
        if loss > (1 - _SMALLEST_GAIN) * before:
            break
    return LeastSquares(tuple(at), tuple(problem(at)), tuple(map(tuple, problem.slopes(at, step))), problem.num_runs)


class _Problem:
    """Residuals within bounds, and how often they were asked for."""

    def __init__(self, residuals: Residuals, low: Sequence[float], high: Sequence[float]) -> None:
        self._residuals, self._low, self._high = residuals, low, high
        self.num_runs = 0

    def __call__(self, numbers: Sequence[float]) -> list[float]:
        self.num_runs += 1
        return self._residuals(numbers)

    def loss(self, numbers: Sequence[float]) -> float:
        return _loss(self(numbers))

    def within(self, numbers: Sequence[float]) -> list[float]:
        """The nearest numbers within the bounds."""
        return [min(max(value, least), most) for value, least, most in zip(numbers, self._low, self._high, strict=True)]

    def slopes(self, at: Sequence[float], step: float) -> list[list[float]]:
        """How each residual moves with each number: one row a residual."""
        here, columns = self(at), []
        for index, value in enumerate(at):
            span = step if value + step <= self._high[index] else -step
            there = self([*at[:index], value + span, *at[index + 1 :]])
            columns.append([(after - before) / span for before, after in zip(here, there, strict=True)])
        return [list(row) for row in zip(*columns, strict=True)]

    def descend(self, start: Sequence[float], span: float) -> tuple[float, list[float]]:
        """Damped Gauss-Newton steps.

        Formula:  (Jᵀ·J + damping · diag(Jᵀ·J)) · move = -Jᵀ·r, the damping a tenth after a step that helps, four times after
                  one that does not
        """
        at, found = list(start), self(start)
        damping, slopes = 1e-2, self.slopes(start, span)
        for _ in range(_ROUNDS):
            there = self.within([x + by for x, by in zip(at, _move(slopes, found, damping), strict=True)])
            left = self(there)
            gain, far = _loss(found) - _loss(left), max(abs(a - b) for a, b in zip(there, at, strict=True))
            if gain <= 0:
                damping *= 4
                continue
            at, found = there, left
            if gain < _SMALLEST_GAIN * _loss(found) or far < _SMALLEST_STEP:
                break
            damping, span = max(damping / 10, 1e-9), max(min(span, far), _SMALLEST_STEP)
            slopes = self.slopes(at, span)
        return _loss(found), at

    def polish(self, start: Sequence[float], step: float) -> list[float]:
        """A simplex that is mirrored, stretched and shrunk towards the least loss."""
        moved = ([*start[:at], start[at] + step, *start[at + 1 :]] for at in range(len(start)))
        corners = [list(start), *map(self.within, moved)]
        simplex = sorted(((self.loss(corner), corner) for corner in corners), key=lambda each: each[0])
        for _ in range(_POLISHING):
            if _extent(simplex) < _SMALLEST_STEP:
                break
            simplex = sorted(self._next(simplex), key=lambda each: each[0])
        return simplex[0][1]

    def _next(self, simplex: list[tuple[float, list[float]]]) -> list[tuple[float, list[float]]]:
        """The simplex with its worst corner moved, or all of it drawn to the best."""
        *kept, (worst, corner) = simplex
        middle = [sum(values) / len(kept) for values in zip(*(at for _, at in kept), strict=True)]

        def along(far: float) -> tuple[float, list[float]]:
            at = self.within([m + far * (m - c) for m, c in zip(middle, corner, strict=True)])
            return self.loss(at), at

        mirrored = along(1.0)
        if mirrored[0] < kept[0][0]:
            return [*kept, min(mirrored, along(2.0), key=lambda each: each[0])]
        if mirrored[0] < kept[-1][0]:
            return [*kept, mirrored]
        nearer = along(0.5 if mirrored[0] < worst else -0.5)
        if nearer[0] < min(mirrored[0], worst):
            return [*kept, nearer]
        best = simplex[0][1]
        drawn = ([(b + value) / 2 for b, value in zip(best, at, strict=True)] for _, at in simplex[1:])
        return [simplex[0], *((self.loss(at), at) for at in drawn)]


def _extent(simplex: Sequence[tuple[float, list[float]]]) -> float:
    best = simplex[0][1]
    return max(abs(value - other) for _, at in simplex[1:] for value, other in zip(at, best, strict=True))


def _loss(residuals: Sequence[float]) -> float:
    return sum(value * value for value in residuals)


def _move(slopes: Sequence[Sequence[float]], residuals: Sequence[float], damping: float) -> list[float]:
    size = len(slopes[0])
    matrix = normal_matrix(slopes)
    right = [-sum(row[i] * left for row, left in zip(slopes, residuals, strict=True)) for i in range(size)]
    for i in range(size):
        matrix[i][i] += damping * matrix[i][i] + 1e-12
    return solve(matrix, right)


def normal_matrix(slopes: Sequence[Sequence[float]]) -> list[list[float]]:
    """The products of slopes: Jᵀ·J."""
    size = len(slopes[0])
    return [[sum(row[i] * row[j] for row in slopes) for j in range(size)] for i in range(size)]


def solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """A symmetric positive definite system, by elimination: its diagonal needs no pivoting."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for i in range(size):
        for j in range(i + 1, size):
            ratio = rows[j][i] / rows[i][i] if rows[i][i] else 0.0
            rows[j] = [below - ratio * above for below, above in zip(rows[j], rows[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        rest = rows[i][size] - sum(rows[i][j] * found[j] for j in range(i + 1, size))
        found[i] = rest / rows[i][i] if rows[i][i] else 0.0
    return found
