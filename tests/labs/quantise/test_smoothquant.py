"""SmoothQuant: the factors by hand, and the identity against products written out."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.labs.quantise.activations import watch_inputs  # noqa: E402
from inference_bench.labs.quantise.linears import linear_layers, network_sha256  # noqa: E402
from inference_bench.labs.quantise.smoothquant import (  # noqa: E402
    all_factors,
    smoothing_alone,
    smoothing_factors,
    smoothquant_method,
)
from inference_bench.labs.quantise.w8a8 import STATIC, rounded_static, w8a8_method  # noqa: E402
from labs.quantise.tiny import tiny_bench  # noqa: E402


def test_factors_by_hand() -> None:
    # √16 / √4 = 2; with α = 1 the factor is max|x|, with α = 0 it is 1 / max|w|
    x, w = torch.tensor([16.0, 1.0]), torch.tensor([4.0, 1.0])
    assert smoothing_factors(x, w, 0.5).tolist() == [2.0, 1.0]
    assert smoothing_factors(x, w, 1.0).tolist() == [16.0, 1.0]
    assert smoothing_factors(x, w, 0.0).tolist() == [0.25, 1.0]


@pytest.mark.parametrize("strength", [0.0, 0.5, 0.8, 1.0])
def test_smoothing_leaves_every_sum_of_products_as_it_is(strength: float) -> None:
    draw = torch.Generator().manual_seed(3)
    x, w = (
        torch.randn(4, 6, generator=draw, dtype=torch.float64),
        torch.randn(3, 6, generator=draw, dtype=torch.float64),
    )
    s = smoothing_factors(x.abs().amax(0), w.abs().amax(0), strength)
    for row, column in itertools.product(range(4), range(3)):
        plain = sum(float(x[row, j]) * float(w[column, j]) for j in range(6))
        smoothed = sum(float(x[row, j] / s[j]) * float(s[j] * w[column, j]) for j in range(6))
        assert smoothed == pytest.approx(plain, abs=1e-5)


def test_halfway_smoothing_makes_the_channels_of_both_sides_equally_large() -> None:
    draw = torch.Generator().manual_seed(4)
    x, w = torch.rand(6, generator=draw) + 0.1, torch.rand(6, generator=draw) + 0.1
    s = smoothing_factors(x, w, 0.5)
    torch.testing.assert_close(x / s, w * s)


def test_a_network_that_is_smoothed_and_not_rounded_says_the_same() -> None:
    bench = tiny_bench()
    network, ids = bench.model.network, torch.tensor([bench.evaluation.ids[0]])
    inputs = watch_inputs(network, bench.calibration, bench.say)
    before = network_sha256(network)
    with torch.inference_mode():
        own = network(input_ids=ids).logits
        with smoothing_alone(network, inputs, 0.5):
            assert network_sha256(network) != before
            smoothed = network(input_ids=ids).logits
        again = network(input_ids=ids).logits
    torch.testing.assert_close(smoothed, own, rtol=1e-4, atol=1e-5)
    assert torch.equal(again, own)
    assert network_sha256(network) == before


def test_layers_that_read_the_same_input_share_their_factors() -> None:
    bench = tiny_bench()
    inputs = watch_inputs(bench.model.network, bench.calibration, bench.say)
    kinds = [tuple(name.rpartition(".")[2] for name in group) for group in inputs.groups]
    assert kinds == [("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",)] * 2
    factors = all_factors(bench.model.network, inputs, 0.5)
    assert set(factors) == set(linear_layers(bench.model.network))
    for group in inputs.groups:
        assert all(torch.equal(factors[name], factors[group[0]]) for name in group)


def test_smoothing_saves_the_small_channels_beside_a_large_one() -> None:
    draw = torch.Generator().manual_seed(5)
    x, w = torch.randn(64, 16, generator=draw), torch.randn(8, 16, generator=draw) * 0.1
    x[:, 3] *= 300
    exact = x @ w.T
    s = smoothing_factors(x.abs().amax(0), w.abs().amax(0), 0.8)
    rough = rounded_static(x, float(x.abs().max())) @ w.T
    smooth = rounded_static(x / s, float((x / s).abs().max())) @ (w * s).T
    assert float((smooth - exact).norm()) < 0.6 * float((rough - exact).norm())


def test_the_method_takes_the_bytes_of_w8a8_and_a_factor_a_channel_of_each_input() -> None:
    bench = tiny_bench()
    network = bench.model.network
    inputs = watch_inputs(network, bench.calibration, bench.say)
    smoothed, plain = smoothquant_method(network, inputs, 0.5, STATIC), w8a8_method(network, inputs, STATIC)
    assert smoothed.weight_bytes is not None
    assert plain.weight_bytes is not None
    # two blocks; three inputs of 64 channels and one of 128, 2 bytes each
    assert smoothed.weight_bytes - plain.weight_bytes == 2 * (3 * 64 + 128) * 2
