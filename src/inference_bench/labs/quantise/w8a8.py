"""What do 8 bits cost when the activations are rounded too?

In:   QuantiseBench, Inputs
Out:  Methods: weights int8 by output channel; activations by one scale known in advance (static), one a call, or one a token
Leaves out: smoothing first (smoothquant), leaving outliers out (llm_int8)
Read next by: smoothquant, flow, reference.

A call here is a whole window; a server's decode step is one token for each sequence, where one scale a call is milder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch

from inference_bench.labs.quantise.activations import Inputs
from inference_bench.labs.quantise.linears import (
    grid_bits,
    inputs_changed,
    linear_layers,
    model_bytes,
    relative_error,
    rounded_weights,
    weights_replaced,
)
from inference_bench.labs.quantise.methods import Method, QuantiseBench
from inference_bench.labs.quantise.result import W8A8_FAMILY
from inference_bench.labs.quantise.rtn import SCALE_BITS, Grid

INT8: Final = Grid(8)
STATIC, PER_CALL, PER_TOKEN = "static", "a call", "a token"
_HOW: Final = {
    STATIC: "activations by one scale a layer, from the calibration",
    PER_CALL: "activations by one scale a call, a window here",
    PER_TOKEN: "activations by one scale a token",
}


def rounded_static(x: torch.Tensor, largest: float) -> torch.Tensor:
    """Rounded to int8 by one scale known in advance; what lies beyond it is cut off."""
    scale = largest / INT8.high or 1.0
    return torch.clamp(torch.round(x / scale), INT8.low, INT8.high) * scale


def rounded_by_call(x: torch.Tensor) -> torch.Tensor:
    """Rounded to int8 by the greatest |x| of all that comes in together."""
    return rounded_static(x, float(x.abs().max()))


def rounded_by_token(x: torch.Tensor) -> torch.Tensor:
    """Rounded to int8 by the greatest |x| of each token."""
    scale = x.abs().amax(dim=-1, keepdim=True) / INT8.high
    return torch.round(x / torch.where(scale > 0, scale, torch.ones_like(scale))) * scale


def rounding_of_inputs(how: str, largest: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """The rounding of one layer's input."""
    return {STATIC: lambda x: rounded_static(x, largest), PER_CALL: rounded_by_call, PER_TOKEN: rounded_by_token}[how]


def w8a8_methods(bench: QuantiseBench, inputs: Inputs) -> Iterator[Method]:
    """Static, a call and a token; static alone in the quick mode."""
    kinds = (STATIC,) if bench.is_quick else (STATIC, PER_CALL, PER_TOKEN)
    yield from (w8a8_method(bench.model.network, inputs, how) for how in kinds)


def w8a8_method(network: Any, inputs: Inputs, how: str) -> Method:
    """Weights and activations in int8."""
    bits = {name: number + (SCALE_BITS if how == STATIC else 0) for name, number in grid_bits(network, INT8).items()}
    change = {name: rounding_of_inputs(how, inputs.largest(name)) for name in linear_layers(network)}
    weights = rounded_weights(network, INT8)
    return Method(
        f"W8A8 {how}",
        W8A8_FAMILY,
        model_bytes(network, bits),
        relative_error(network, weights),
        f"weights int8 channel, {_HOW[how]}",
        lambda changed: both_replaced(changed, weights, change),
    )


@contextmanager
def both_replaced(
    network: Any, weights: Mapping[str, torch.Tensor], change: Mapping[str, Callable[[torch.Tensor], torch.Tensor]]
) -> Iterator[None]:
    """Other matrices, and other inputs to them."""
    with weights_replaced(network, weights), inputs_changed(network, change):
        yield
