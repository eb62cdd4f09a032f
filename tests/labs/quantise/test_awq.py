"""AWQ scales columns without changing the outputs, and never ends worse than plain rounding on what it was fitted to."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.errors import RequestError  # noqa: E402
from inference_bench.labs.quantise.awq import (  # noqa: E402
    CUTS,
    EXPONENTS,
    awq_bits,
    awq_methods,
    column_scales,
    cut_and_rounded,
    scaled_and_rounded,
    search,
)
from inference_bench.labs.quantise.hessians import LayerInputs, inputs_of  # noqa: E402
from inference_bench.labs.quantise.rtn import Grid, fake_quantised  # noqa: E402
from labs.quantise.tiny import tiny_bench, tiny_network  # noqa: E402

GRID = Grid(4, 16)


def weight(rows: int = 24, columns: int = 32, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def inputs(outlier: float = 30.0) -> LayerInputs:
    seen = torch.randn(100, 32, generator=torch.Generator().manual_seed(3))
    seen[:, [5, 20]] *= outlier
    return inputs_of(("q",), seen)


def moved(values: torch.Tensor, changed: torch.Tensor, seen: torch.Tensor) -> float:
    return float(((values - changed) @ seen.T).square().mean())


def test_scaling_a_column_up_and_its_input_down_changes_no_output() -> None:
    found, values = inputs(), weight()
    scales = column_scales(found.magnitude, 0.5)
    assert torch.allclose((found.sample / scales) @ (values * scales).T, found.sample @ values.T, atol=1e-4)


def test_scales_are_the_power_of_the_mean_inputs_centred_on_one() -> None:
    # by hand: a = (1, 4, 16)^0.5 = 1, 2, 4 over √(4 · 1)
    assert column_scales(torch.tensor([1.0, 4.0, 16.0]), 0.5).tolist() == pytest.approx([0.5, 1.0, 2.0])
    assert column_scales(torch.tensor([1.0, 4.0, 16.0]), 0.0).tolist() == [1.0, 1.0, 1.0]


def test_a_column_that_was_never_used_has_a_finite_scale() -> None:
    scales = column_scales(torch.tensor([0.0, 1.0, 4.0]), 0.5)
    assert scales.tolist() == pytest.approx([0.5**0.5, 0.5**0.5, 2**0.5])
    assert bool(torch.isfinite(column_scales(torch.zeros(3), 0.7)).all())


def test_an_exponent_of_zero_is_plain_rounding() -> None:
    scales = column_scales(inputs().magnitude, 0.0)
    assert torch.equal(scaled_and_rounded(weight(), scales, GRID), fake_quantised(weight(), GRID))


def test_columns_with_large_inputs_are_found_and_kept_better() -> None:
    found = search({"q": weight()}, inputs(), GRID, EXPONENTS, (1.0,))
    assert found.exponent > 0
    assert found.error < 0.7 * found.plain_error
    off = (found.weights["q"] - weight()).abs().mean(dim=0)
    plain = (fake_quantised(weight(), GRID) - weight()).abs().mean(dim=0)
    assert off[[5, 20]].max() < plain[[5, 20]].min()


def test_the_exponent_is_the_best_of_all_by_the_outputs_of_every_matrix() -> None:
    weights, seen = {"q": weight(), "k": weight(8, 32, 2)}, inputs(8.0)
    errors = []
    for exponent in EXPONENTS:
        scales = column_scales(seen.magnitude, exponent)
        errors.append(
            sum(moved(each, scaled_and_rounded(each, scales, GRID), seen.sample) for each in weights.values())
        )
    found = search(weights, seen, GRID, EXPONENTS, (1.0,))
    assert found.exponent == EXPONENTS[errors.index(min(errors))]
    assert found.error == pytest.approx(min(errors), rel=1e-4)
    assert found.plain_error == pytest.approx(errors[0], rel=1e-4)


@pytest.mark.parametrize("grid", [Grid(3, 16), Grid(3, None), Grid(3, 16, symmetric=False)])
def test_a_cut_range_moves_the_outputs_less_where_one_value_stands_out(grid: Grid) -> None:
    values = weight()
    values[:, 7] *= 6
    seen = inputs(1.0).sample.clone()
    seen[:, 7] *= 0.01  # the value that stands out hardly matters
    cut = cut_and_rounded(values, seen, grid, CUTS)
    assert moved(values, cut, seen) < 0.8 * moved(values, fake_quantised(values, grid), seen)


def test_no_cut_is_plain_rounding() -> None:
    assert torch.equal(cut_and_rounded(weight(), inputs().sample, GRID, (1.0,)), fake_quantised(weight(), GRID))


@pytest.mark.parametrize("exponents", [(), (0.5, 1.5), (-0.1,)])
def test_exponents_that_cannot_be_are_refused(exponents: tuple[float, ...]) -> None:
    with pytest.raises(RequestError, match="between 0 and 1"):
        search({"q": weight()}, inputs(), GRID, exponents, (1.0,))


def test_the_scales_of_the_columns_are_counted() -> None:
    bits = awq_bits(tiny_network(), GRID)
    # 64 rows of 64 columns: 4 bits each, 16 a group of 16, 16 a column
    assert bits["model.layers.0.self_attn.q_proj"] == 64 * 64 * 4 + 64 * 4 * 16 + 64 * 16


def test_its_methods_put_the_network_back() -> None:
    network = tiny_network()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    (method,) = awq_methods(tiny_bench(network))
    with method.applied(network):
        assert not torch.equal(network.model.layers[0].mlp.up_proj.weight, before["model.layers.0.mlp.up_proj.weight"])
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert "α" in method.detail
