"""LLM.int8(): a planted outlier column stays as it is, and the rest is rounded as if it were not there."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.labs.quantise.activations import watch_inputs  # noqa: E402
from inference_bench.labs.quantise.llm_int8 import (  # noqa: E402
    decomposed_bits,
    decomposed_input,
    decomposed_weight,
    llm_int8_method,
    outlier_columns,
)
from inference_bench.labs.quantise.rtn import Grid, fake_quantised  # noqa: E402
from inference_bench.labs.quantise.w8a8 import rounded_by_token  # noqa: E402
from labs.quantise.tiny import tiny_bench  # noqa: E402

PLANTED = 3


def planted() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    x, w = torch.randn(8, 16, generator=draw), torch.randn(4, 16, generator=draw)
    x[:, PLANTED] *= 100
    return x, w


def test_only_the_planted_column_passes_the_threshold() -> None:
    x, _ = planted()
    assert outlier_columns(x.abs().amax(0)).nonzero().flatten().tolist() == [PLANTED]


def test_the_product_is_that_of_both_parts_computed_apart() -> None:
    x, w = planted()
    stays = outlier_columns(x.abs().amax(0))
    others = [column for column in range(16) if column != PLANTED]
    apart = x[:, [PLANTED]] @ w[:, [PLANTED]].half().float().T
    rest = rounded_by_token(x[:, others]) @ fake_quantised(w[:, others], Grid(8)).T
    torch.testing.assert_close(decomposed_input(x, stays) @ decomposed_weight(w, stays).T, apart + rest)


def test_keeping_the_outlier_apart_comes_much_nearer_to_the_exact_product() -> None:
    x, w = planted()
    exact, stays = x @ w.T, outlier_columns(x.abs().amax(0))
    apart = decomposed_input(x, stays) @ decomposed_weight(w, stays).T
    together = rounded_by_token(x) @ fake_quantised(w, Grid(8)).T
    assert float((apart - exact).norm()) < 0.1 * float((together - exact).norm())


def test_bits_by_hand() -> None:
    # 4 rows of 16 columns, one of which stays: 4·15·8 + 4 scales of 16, then 4·16 and its index of 16
    assert decomposed_bits(4, 16, 1) == 480 + 64 + 64 + 16
    assert decomposed_bits(4, 16, 0) == 4 * 16 * 8 + 4 * 16


def test_a_threshold_that_nothing_passes_is_int8_throughout() -> None:
    bench = tiny_bench()
    network = bench.model.network
    inputs = watch_inputs(network, bench.calibration, bench.say)
    method = llm_int8_method(network, inputs, threshold=1e9)
    assert method.detail.startswith("0 columns")
    for weight in (layer.weight for layer in network.modules() if isinstance(layer, torch.nn.Linear)):
        stays = torch.zeros(weight.shape[1], dtype=torch.bool)
        assert torch.equal(decomposed_weight(weight.data, stays), fake_quantised(weight.data, Grid(8)))
