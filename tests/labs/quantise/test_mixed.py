"""More bits where they are asked for, fewer elsewhere, and every byte of it counted."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.labs.quantise.linears import linear_layers  # noqa: E402
from inference_bench.labs.quantise.mixed import (  # noqa: E402
    ends_of,
    fine_where,
    kinds_of,
    mixed_method,
    mixed_methods,
)
from inference_bench.labs.quantise.rtn import Grid, fake_quantised  # noqa: E402
from labs.quantise.tiny import tiny_bench, tiny_network  # noqa: E402

KINDS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def test_down_projections_are_fine_and_the_rest_coarse() -> None:
    grids = fine_where(list(linear_layers(tiny_network())), ("down_proj",), 64)
    assert [name for name, grid in grids.items() if grid == Grid(8, 64)] == [
        "model.layers.0.mlp.down_proj",
        "model.layers.1.mlp.down_proj",
    ]
    assert sum(grid == Grid(4, 64) for grid in grids.values()) == 12


def test_the_ends_are_the_first_and_the_last_block() -> None:
    assert ends_of(tiny_network()) == ("model.layers.0.", "model.layers.1.")


def test_kinds_are_the_projections_of_a_block() -> None:
    assert kinds_of(list(linear_layers(tiny_network()))) == KINDS


def test_each_matrix_is_on_its_own_grid_and_comes_back() -> None:
    network = tiny_network()
    q, up = (network.model.layers[0].self_attn.q_proj, network.model.layers[0].mlp.up_proj)
    own = q.weight.clone(), up.weight.clone()
    method = mixed_method(
        network, "test", {"model.layers.0.self_attn.q_proj": Grid(3, 16), "model.layers.0.mlp.up_proj": Grid(8, 16)}
    )
    with method.applied(network):
        assert torch.equal(q.weight, fake_quantised(own[0], Grid(3, 16)))
        assert torch.equal(up.weight, fake_quantised(own[1], Grid(8, 16)))
    assert torch.equal(q.weight, own[0])
    assert torch.equal(up.weight, own[1])


def test_bytes_are_those_counted_by_hand() -> None:
    network = tiny_network()
    all_bytes = sum(each.numel() * 4 for each in network.parameters())
    method = mixed_method(network, "test", {"model.layers.0.self_attn.q_proj": Grid(3, 16)})
    bits = 64 * 64 * 3 + 64 * 4 * 16
    assert method.weight_bytes == all_bytes - 64 * 64 * 4 + bits // 8
    assert method.detail == "1 at 3 bits, 13 unchanged; 4.000 bits a quantised weight"


def test_full_mode_has_each_kind_alone() -> None:
    names = [method.name for method in mixed_methods(tiny_bench(is_quick=False))]
    assert [name.partition(" ")[0] for name in names[2:]] == KINDS
    assert len(list(mixed_methods(tiny_bench()))) == 1
