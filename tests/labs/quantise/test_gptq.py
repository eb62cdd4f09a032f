"""GPTQ's columns come out as the slow definition says, and its output error is no worse than plain rounding's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.errors import RequestError  # noqa: E402
from inference_bench.labs.quantise.gptq import (  # noqa: E402
    GptqSettings,
    gptq_quantised,
    gptq_weights,
    inverse_factor,
    quantised_together,
)
from inference_bench.labs.quantise.rtn import Grid, fake_quantised  # noqa: E402
from labs.quantise.tiny import tiny_bench, tiny_network  # noqa: E402

DAMPING = 0.01


def correlated(tokens: int, columns: int, seed: int = 0) -> torch.Tensor:
    made = torch.Generator().manual_seed(seed)
    mixing = torch.randn(columns, columns, generator=made, dtype=torch.float64)
    return torch.randn(tokens, columns, generator=made, dtype=torch.float64) @ mixing


def weight(rows: int, columns: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def hessian(tokens: int = 64, columns: int = 24) -> torch.Tensor:
    seen = correlated(tokens, columns)
    return seen.T @ seen * (2 / tokens)


def damped(moments: torch.Tensor) -> torch.Tensor:
    return moments + torch.eye(len(moments), dtype=moments.dtype) * DAMPING * moments.diagonal().mean()


def by_removing_columns(values: torch.Tensor, moments: torch.Tensor, grid: Grid, order: list[int]) -> torch.Tensor:
    """Optimal brain quantisation in a given order: invert, round one column, update the rest, take it out, invert again.

    Groups are looked up from the matrix as it is when a group's first column comes up, as the columns lie; with another order than
    that, from the matrix as it was at the beginning.
    """
    left, work, done = list(order), values.clone(), torch.zeros_like(values)
    group, largest = grid.group or values.shape[1], 2 ** (grid.bits - 1) - 1
    in_place = order == sorted(order)
    scales: dict[int, torch.Tensor] = {}
    while left:
        column = left[0]
        at = column // group
        if at not in scales:
            base = work if in_place else values
            scales[at] = (base[:, at * group : (at + 1) * group].abs().amax(1) / largest).half().double()
        inverse = torch.linalg.inv(damped(moments)[left][:, left])
        done[:, column] = torch.round(work[:, column] / scales[at]).clamp(-largest, largest) * scales[at]
        error = (work[:, column] - done[:, column]) / inverse[0, 0]
        work[:, left] -= error[:, None] * inverse[0][None, :]
        left = left[1:]
    return done


@pytest.mark.parametrize("grid", [Grid(4, None), Grid(3, 8), Grid(4, 12), Grid(2, 24)])
@pytest.mark.parametrize("block", [1, 5, 8, 128])
def test_the_blocked_factorisation_is_removing_one_column_at_a_time(grid: Grid, block: int) -> None:
    values, moments = weight(7, 24), hessian()
    expected = by_removing_columns(values, moments, grid, list(range(24)))
    found = gptq_quantised(values, moments, grid, GptqSettings(DAMPING, False, block))
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("grid", [Grid(4, None), Grid(3, 8)])
def test_act_order_is_the_same_with_the_columns_by_their_second_moments(grid: Grid) -> None:
    values, moments = weight(7, 24), hessian()
    order = sorted(range(24), key=lambda column: -float(moments[column, column]))
    expected = by_removing_columns(values, moments, grid, order)
    found = gptq_quantised(values, moments, grid, GptqSettings(DAMPING, True, 8))
    assert torch.allclose(found, expected, atol=1e-5)


def test_the_factor_is_that_of_the_damped_inverse() -> None:
    moments = hessian()
    factor = inverse_factor(moments, DAMPING)
    assert torch.equal(factor, factor.triu())
    assert torch.allclose(factor.T @ factor, torch.linalg.inv(damped(moments)), rtol=1e-8)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("act_order", [False, True])
def test_outputs_move_less_than_by_plain_rounding(seed: int, act_order: bool) -> None:
    seen, values, grid = correlated(200, 32, seed), weight(16, 32, seed + 50), Grid(4, 8)
    moments = seen.T @ seen * (2 / 200)
    found = gptq_quantised(values, moments, grid, GptqSettings(act_order=act_order))
    plain = fake_quantised(values, grid)
    assert (seen @ (values - found).T).norm() < 0.8 * (seen @ (values - plain).T).norm()


@pytest.mark.parametrize("grid", [Grid(4, None), Grid(4, 8), Grid(3, 12, symmetric=False), Grid(8, 0)])
def test_inputs_that_are_not_correlated_leave_nothing_to_make_up_for(grid: Grid) -> None:
    values = weight(7, 24)
    found = gptq_quantised(values, torch.eye(24, dtype=torch.float64), grid, GptqSettings())
    assert torch.equal(found.float(), fake_quantised(values.float(), grid))


@pytest.mark.parametrize("act_order", [False, True])
def test_a_column_that_is_never_used_gives_numbers_and_changes_no_output(act_order: bool) -> None:
    seen = correlated(64, 24)
    seen[:, [3, 11]] = 0
    moments = seen.T @ seen * (2 / 64)
    found = gptq_quantised(weight(7, 24), moments, Grid(4, 8), GptqSettings(act_order=act_order))
    assert bool(torch.isfinite(found).all())
    assert bool((found[:, [3, 11]] == 0).all())


def test_fewer_tokens_than_columns_still_give_numbers() -> None:
    seen = correlated(5, 24).float()
    found = gptq_quantised(weight(7, 24).float(), seen.T @ seen * (2 / 5), Grid(3, 8), GptqSettings())
    assert bool(torch.isfinite(found).all())


def test_every_value_is_on_its_grid() -> None:
    found = gptq_quantised(weight(4, 24), hessian(), Grid(3, None), GptqSettings())
    assert all(len(row.unique()) <= 7 for row in found)


def test_matrices_with_the_same_inputs_come_out_as_each_would_alone() -> None:
    one, two, moments, grid = weight(5, 24, 2), weight(9, 24, 3), hessian(), Grid(4, 8)
    found = quantised_together({"q": one, "k": two}, moments, grid, GptqSettings())
    assert torch.allclose(found["q"], gptq_quantised(one, moments, grid, GptqSettings()), atol=1e-12)
    assert torch.allclose(found["k"], gptq_quantised(two, moments, grid, GptqSettings()), atol=1e-12)


@pytest.mark.parametrize("settings", [(0.0, 128), (1.5, 128), (0.01, 0)])
def test_a_damping_or_block_that_cannot_be_is_refused(settings: tuple[float, int]) -> None:
    with pytest.raises(RequestError, match="cannot be"):
        GptqSettings(settings[0], False, settings[1])


def test_moments_that_are_no_numbers_are_refused() -> None:
    moments = hessian()
    moments[0, 0] = torch.nan
    with pytest.raises(RequestError, match="not all finite"):
        gptq_quantised(weight(2, 24), moments, Grid(4, 8), GptqSettings())


def test_a_network_is_what_it_was_after_its_matrices_were_made() -> None:
    network = tiny_network()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    found = gptq_weights(tiny_bench(network), Grid(4, 16), GptqSettings())
    assert len(found) == 14  # two blocks of seven
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_an_interruption_puts_the_matrices_back() -> None:
    network = tiny_network()
    before = {name: value.clone() for name, value in network.state_dict().items()}

    def interrupted(line: str) -> None:
        if "block 2" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gptq_weights(tiny_bench(network, say=interrupted), Grid(4, 16), GptqSettings())
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    with torch.no_grad():
        network(input_ids=torch.tensor([[1, 2, 3]]))  # no hook is left either
