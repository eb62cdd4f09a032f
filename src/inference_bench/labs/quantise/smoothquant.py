"""Can the outliers of activations be moved into the weights, where they do less harm?

In:   QuantiseBench, Inputs
Out:  Methods: W8A8 after smoothing with a strength α; the smoothing alone, which must change nothing
Leaves out: rounding of activations (w8a8)
Read next by: flow, proof, reference.

The paper folds the division of x into the norm before the query, key, value and gate, up projections, and leaves the two projections
without a norm before them as they are. Here x is divided explicitly before every linear layer, those two included, since in this family
of models the input of the down projection has by far the largest outliers: a real engine would pay one product a channel for them.
Layers that read the same input share one vector of factors, as they would through a norm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from inference_bench.labs.quantise.activations import Inputs
from inference_bench.labs.quantise.linears import grid_bits, linear_layers, model_bytes, relative_error
from inference_bench.labs.quantise.methods import Method, QuantiseBench
from inference_bench.labs.quantise.result import SMOOTHQUANT_FAMILY
from inference_bench.labs.quantise.rtn import SCALE_BITS, fake_quantised
from inference_bench.labs.quantise.w8a8 import INT8, PER_TOKEN, STATIC, both_replaced, rounding_of_inputs

STRENGTHS: Final = (0.5, 0.8)
_LEAST: Final = 1e-5  # a channel that was never used, or never weighed, is left about as it is


def smoothing_factors(channel_max: torch.Tensor, weight_max: torch.Tensor, strength: float) -> torch.Tensor:
    """What each input channel is divided by, and its column of the matrix multiplied with.

    Formula:  s_j = max|x_j|^α / max|w_j|^(1-α)
    Shape:    [columns]
    Source:   Xiao et al. 2023, SmoothQuant, equation 4
    """
    most_x, most_w = channel_max.clamp(min=_LEAST), weight_max.clamp(min=_LEAST)
    return (most_x.pow(strength) / most_w.pow(1 - strength)).clamp(min=_LEAST)


def all_factors(network: Any, inputs: Inputs, strength: float) -> dict[str, torch.Tensor]:
    """The factors of every linear layer, the same for layers that read the same input."""
    layers, found = linear_layers(network), dict[str, torch.Tensor]()
    for group in inputs.groups:
        weight_max = torch.stack([layers[name].weight.data.float().abs().amax(dim=0) for name in group]).amax(dim=0)
        factors = smoothing_factors(inputs.channel_max[group[0]].float(), weight_max, strength)
        found |= dict.fromkeys(group, factors)
    return found


def smoothquant_methods(bench: QuantiseBench, inputs: Inputs) -> Iterator[Method]:
    """Each strength with static scales, the greatest with one scale a token; that with static scales alone in the quick mode."""
    kinds = [(STRENGTHS[-1], STATIC)]
    if not bench.is_quick:
        kinds = [*((strength, STATIC) for strength in STRENGTHS), (STRENGTHS[-1], PER_TOKEN)]
    yield from (smoothquant_method(bench.model.network, inputs, strength, how) for strength, how in kinds)


def smoothquant_method(network: Any, inputs: Inputs, strength: float, how: str) -> Method:
    """W8A8 after smoothing.

    Where:  the weight error is that of sW before its columns are divided by s again, as a share of W: what the output sees of it
    """
    factors = all_factors(network, inputs, strength)
    change = {
        name: _divided(factor, rounding_of_inputs(how, float((inputs.channel_max[name] / factor).max())))
        for name, factor in factors.items()
    }
    vectors = {group[0]: SCALE_BITS * factors[group[0]].numel() for group in inputs.groups}
    scale = SCALE_BITS if how == STATIC else 0
    bits = {name: number + vectors.get(name, 0) + scale for name, number in grid_bits(network, INT8).items()}
    weights = smoothed_weights(network, factors, True)
    return Method(
        f"SmoothQuant {strength:g} {how}",
        SMOOTHQUANT_FAMILY,
        model_bytes(network, bits),
        relative_error(network, {name: weight / factors[name] for name, weight in weights.items()}),
        f"α = {strength:g}, x divided before every linear layer, weights int8 channel, activations {how}",
        lambda changed: both_replaced(changed, weights, change),
    )


def smoothing_alone(network: Any, inputs: Inputs, strength: float) -> Any:
    """The network with x divided and W multiplied, and nothing rounded: its output must not change.

    Formula:  x Wᵀ = (x / s) (s W)ᵀ
    """
    factors = all_factors(network, inputs, strength)
    change = {name: _divided(factor, lambda x: x) for name, factor in factors.items()}
    return both_replaced(network, smoothed_weights(network, factors, False), change)


def smoothed_weights(network: Any, factors: dict[str, torch.Tensor], is_rounded: bool) -> dict[str, torch.Tensor]:
    """Every matrix with its columns multiplied, then rounded or not."""
    layers = linear_layers(network)
    scaled = {name: layers[name].weight.data * factor for name, factor in factors.items()}
    return {name: fake_quantised(weight, INT8) for name, weight in scaled.items()} if is_rounded else scaled


def _divided(
    factor: torch.Tensor, then: Callable[[torch.Tensor], torch.Tensor]
) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: then(x / factor)
