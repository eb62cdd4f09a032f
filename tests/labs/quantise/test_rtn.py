"""Rounding to the nearest: against every point of the grid tried out, and storage bits as they are published."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from inference_bench.errors import RequestError  # noqa: E402
from inference_bench.labs.quantise.rtn import Grid, fake_quantised, grid_scales, grouped, round_to, storage_bits  # noqa: E402

GRIDS = [Grid(bits, group, symmetric) for bits in (8, 4, 3, 2) for group in (None, 0, 8) for symmetric in (True, False)]


def matrix(rows: int = 5, columns: int = 16, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 0.3 + 0.1


@pytest.mark.parametrize("grid", GRIDS)
def test_every_value_becomes_the_nearest_point_of_its_groups_grid(grid: Grid) -> None:
    weight = matrix()
    scale, zero = grid_scales(weight, grid)
    numbers = torch.arange(grid.low, grid.high + 1).float()
    points = (numbers - (0 if zero is None else zero)) * scale  # [rows, groups, points]
    values = grouped(weight, grid)
    nearest = (values[..., None] - points[:, :, None, :]).abs().min(dim=-1).values
    found = (grouped(fake_quantised(weight, grid), grid) - values).abs()
    torch.testing.assert_close(found, nearest, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("bits", "numbers"), [(8, 255), (4, 15), (3, 7), (2, 3)])
def test_a_symmetric_grid_has_as_many_numbers_below_zero_as_above(bits: int, numbers: int) -> None:
    grid = Grid(bits)
    assert grid.low == -grid.high
    assert grid.high - grid.low + 1 == numbers


@pytest.mark.parametrize(("bits", "numbers"), [(8, 256), (4, 16), (3, 8), (2, 4)])
def test_a_grid_with_a_zero_point_uses_all_its_numbers(bits: int, numbers: int) -> None:
    grid = Grid(bits, symmetric=False)
    assert (grid.low, grid.high) == (0, numbers - 1)


def test_a_row_by_hand() -> None:
    # max 7 and 4 bits: scale 1, so each value is rounded to a whole number, a half to the even one
    weight = torch.tensor([[7.0, -3.4, 0.5, 1.5, -7.0, 2.6]])
    assert fake_quantised(weight, Grid(4)).tolist() == [[7.0, -3.0, 0.0, 2.0, -7.0, 3.0]]


def test_a_row_with_a_zero_point_by_hand() -> None:
    # from -1 to 2 in 2 bits: scale 1, zero at 1; the numbers are 0, 1, 2, 3 for -1, 0, 1, 2
    weight = torch.tensor([[-1.0, 0.4, 1.2, 2.0]])
    scale, zero = grid_scales(weight, Grid(2, symmetric=False))
    assert (float(scale), float(zero)) == (1.0, 1.0)  # type: ignore[arg-type]
    assert fake_quantised(weight, Grid(2, symmetric=False)).tolist() == [[-1.0, 0.0, 1.0, 2.0]]


def test_zero_stays_zero_with_a_zero_point_though_all_values_are_positive() -> None:
    weight = torch.tensor([[0.0, 5.0, 6.0, 7.0]])
    assert float(fake_quantised(weight, Grid(4, symmetric=False))[0, 0]) == 0.0


@pytest.mark.parametrize("grid", GRIDS)
def test_rounding_twice_changes_nothing_more(grid: Grid) -> None:
    scale, zero = grid_scales(matrix(), grid)
    once = round_to(grouped(matrix(), grid), scale, zero, grid)
    torch.testing.assert_close(round_to(once, scale, zero, grid), once)


def test_a_matrix_of_zeros_stays_one() -> None:
    assert not fake_quantised(torch.zeros(3, 8), Grid(4, 4)).any()
    assert not fake_quantised(torch.zeros(3, 8), Grid(4, 4, symmetric=False)).any()


def test_scales_are_numbers_of_float16_since_those_are_stored() -> None:
    scale, _ = grid_scales(matrix(), Grid(4, 8))
    assert torch.equal(scale, scale.half().float())


@pytest.mark.parametrize(("group", "shape"), [(None, (5, 1, 1)), (0, (1, 1, 1)), (8, (5, 2, 1))])
def test_a_scale_for_each_channel_matrix_or_group(group: int | None, shape: tuple[int, ...]) -> None:
    scale, zero = grid_scales(matrix(), Grid(4, group, symmetric=False))
    assert zero is not None
    assert (tuple(scale.shape), tuple(zero.shape)) == (shape, shape)


def test_finer_sharing_rounds_less() -> None:
    weight = matrix(64, 128) * torch.logspace(-2, 0, 64)[:, None]
    errors = [float((fake_quantised(weight, Grid(4, group)) - weight).norm()) for group in (0, None, 32, 8)]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize(
    ("group", "symmetric", "bits"),
    [(128, True, 4.125), (64, True, 4.25), (32, True, 4.5), (128, False, 4.25), (64, False, 4.5)],
)
def test_int4_takes_the_published_bits_a_value(group: int, symmetric: bool, bits: float) -> None:
    assert storage_bits(24, 384, Grid(4, group, symmetric)) == bits * 24 * 384


def test_exact_bits_of_a_matrix_by_hand() -> None:
    assert storage_bits(10, 30, Grid(3)) == 10 * 30 * 3 + 10 * 16
    assert storage_bits(10, 30, Grid(3, symmetric=False)) == 10 * 30 * 3 + 10 * 32
    assert storage_bits(10, 30, Grid(8, 0)) == 10 * 30 * 8 + 16


def test_a_group_that_does_not_divide_a_row_is_refused_with_those_that_do() -> None:
    with pytest.raises(
        RequestError, match=r"groups of 128 do not divide a row of 576 columns; groups that do: 16, 32, 64, 96, 192"
    ):
        storage_bits(1, 576, Grid(4, 128))
    with pytest.raises(RequestError, match="576"):
        fake_quantised(torch.ones(2, 576), Grid(4, 128))


@pytest.mark.parametrize(("bits", "group"), [(1, None), (9, None), (4, -1)])
def test_bits_and_groups_that_cannot_be_are_refused(bits: int, group: int | None) -> None:
    with pytest.raises(RequestError):
        Grid(bits, group)
