"""Numbers within limits."""

from __future__ import annotations

import itertools
import random

import pytest

from inference_bench.calibrate.steps.solving import Limits, errors_of, least_squares, loss_of, settle, told


def limits(count: int, low: float, high: float) -> Limits:
    return Limits((low,) * count, (high,) * count, (1.0,) * count, (1.0,) * count)


@pytest.mark.parametrize("seed", range(12))
def test_no_point_of_a_grid_is_better_than_the_numbers_found(seed: int) -> None:
    rng = random.Random(seed)
    rows = [[rng.uniform(-1, 1) for _ in range(3)] for _ in range(8)]
    weights = [rng.uniform(0.1, 1) for _ in rows]

    def loss(at: tuple[float, ...]) -> float:
        return sum(w * e * e for w, e in zip(weights, errors_of(rows, at), strict=True))

    found = least_squares(rows, weights, limits(3, 0.2, 1.2))
    assert all(0.2 <= value <= 1.2 for value in found)
    grid = [0.2 + 0.05 * step for step in range(21)]
    assert loss(found) <= min(map(loss, itertools.product(grid, repeat=3))) + 1e-6


def test_a_number_that_no_row_tells_stays_at_what_is_usual() -> None:
    found = least_squares([[2.0, 0.0], [2.0, 0.0]], [1.0, 1.0], limits(2, 0.1, 9.0))
    assert found == pytest.approx((0.5, 1.0), rel=1e-6)


def test_what_is_told_apart_is_known() -> None:
    own = limits(3, 0.0, 9.0)
    weights = [1.0] * 4
    assert told([[1, 2, 0], [1, 3, 0], [1, 5, 0], [1, 7, 0]], weights, own) == (True, True, False)
    assert told([[1, 2, 2], [1, 3, 3], [1, 5, 5], [1, 7, 7]], weights, own) == (True, False, False)
    assert told([[1, 2, 3], [1, 3, 1], [1, 5, 4], [1, 7, 2]], weights, own) == (True, True, True)


def test_one_row_in_twenty_that_is_far_off_moves_little() -> None:
    rows = [[1.0, float(index)] for index in range(20)]
    scaled = [[value / (0.5 + 0.1 * row[1]) for value in row] for row in rows]
    scaled[7] = [value / 4 for value in scaled[7]]
    found = settle(lambda _: scaled, [1.0] * 20, (1.0, 1.0), limits(2, 0.0, 9.0))
    assert found.numbers == pytest.approx((0.5, 0.1), rel=0.02)


def test_large_errors_count_by_size_and_small_ones_by_square() -> None:
    assert loss_of([0.01], [1.0]) == pytest.approx(1e-4)
    assert loss_of([0.02], [1.0]) == pytest.approx(4e-4)
    assert loss_of([1.02], [1.0]) - loss_of([0.02], [1.0]) == pytest.approx(2 * 0.02)


def test_terms_that_change_back_and_forth_come_to_an_end() -> None:
    def rows_at(at: object) -> list[list[float]]:
        value = at[0]  # type: ignore[index]
        return [[2.0]] if value < 1 else [[0.5]]  # solved at 0.5 or 2: neither side keeps its own answer

    found = settle(lambda at: [[0.5]] if rows_at(at) == [[2.0]] else [[2.0]], [1.0], (1.0,), limits(1, 0.1, 9.0))
    assert 0.1 <= found.numbers[0] <= 9.0
