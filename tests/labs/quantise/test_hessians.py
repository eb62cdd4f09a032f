"""What linear layers are given on the calibration windows is what is written down of them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.labs.quantise.hessians import (  # noqa: E402
    block_by_block,
    calibration_inputs,
    calibration_windows,
    inputs_of,
)
from labs.quantise.tiny import tiny_bench, tiny_network  # noqa: E402

WINDOWS = [list(range(20)), list(range(20, 40))]


def quiet(_line: str) -> None:
    return


def test_the_second_moments_are_those_of_the_tokens_seen() -> None:
    found = inputs_of(("q",), torch.tensor([[1.0, 2.0], [3.0, -4.0]]), with_hessian=True)
    assert found.hessian.tolist() == [[10.0, -10.0], [-10.0, 20.0]]  # 2/2 · Σ x xᵀ by hand
    assert found.magnitude.tolist() == [2.0, 3.0]
    assert found.mean_square.tolist() == [5.0, 10.0]


def test_a_sample_is_spread_over_all_that_was_seen() -> None:
    found = inputs_of(("q",), torch.arange(9.0)[:, None], sample_tokens=3)
    assert found.sample[:, 0].tolist() == [0.0, 4.0, 8.0]


def test_layers_that_are_given_the_same_tensor_share_its_figures() -> None:
    found = calibration_inputs(tiny_network(), WINDOWS, quiet)
    shared = [tuple(name.rpartition(".")[2] for name in each.names) for each in found]
    expected = [("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",)]
    assert shared == [*expected, *expected]


def test_inputs_are_what_a_plain_run_gives_each_layer() -> None:
    network = tiny_network()
    given: dict[str, Any] = {}
    hooks = [
        layer.register_forward_pre_hook(lambda _module, args, name=name: given.update({name: args[0]}))
        for name, layer in network.named_modules()
        if name.endswith("_proj")
    ]
    with torch.no_grad():
        network(input_ids=torch.tensor(WINDOWS), use_cache=False)
    for hook in hooks:
        hook.remove()
    visited: list[Any] = []
    block_by_block(network, WINDOWS, lambda _block, inputs: visited.extend(inputs), quiet)
    for each, plain in zip(visited, calibration_inputs(network, WINDOWS, quiet), strict=True):
        assert each.names == plain.names
        for name in each.names:
            seen = given[name].flatten(0, 1)
            assert torch.allclose(each.hessian, 2 * seen.T @ seen / 40, rtol=1e-4, atol=1e-6), name
            assert torch.allclose(plain.magnitude, seen.abs().mean(0), rtol=1e-4, atol=1e-6), name
            assert torch.allclose(plain.mean_square, (seen**2).mean(0), rtol=1e-4, atol=1e-6), name


def test_later_blocks_are_given_what_the_changed_blocks_put_out() -> None:
    network, inputs = tiny_network(), []
    before = calibration_inputs(network, WINDOWS, quiet)
    first = network.model.layers[0]

    def visit(block: Any, found: Any) -> None:
        inputs.extend(found)
        if block is first:
            block.mlp.down_proj.weight.data.zero_()

    block_by_block(network, WINDOWS, visit, quiet)
    assert torch.equal(inputs[3].magnitude, before[3].magnitude)
    assert not torch.allclose(inputs[4].magnitude, before[4].magnitude, rtol=0.01)


def test_quick_mode_calibrates_on_the_first_window_alone() -> None:
    windows = tiny_bench().calibration
    assert calibration_windows(windows, True) == windows.ids[:1]
    assert calibration_windows(windows, False) == windows.ids
