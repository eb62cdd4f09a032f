"""What do fewer bits in the weights alone cost? Rounding to the nearest point of whole-number and of small-float grids.

In:   QuantiseBench
Out:  Methods that exchange every linear layer's matrix
Leaves out: how a matrix is rounded (rtn, small_floats); better roundings (gptq, awq)
Read next by: flow, reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, Final

import torch

from inference_bench.labs.quantise.linears import (
    grid_bits,
    linear_layers,
    model_bytes,
    relative_error,
    weights_replaced,
)
from inference_bench.labs.quantise.methods import Method, QuantiseBench
from inference_bench.labs.quantise.rtn import Grid, fake_quantised
from inference_bench.labs.quantise.small_floats import FP8_CHANNEL, MXFP4, NVFP4, FloatGrid

PLAIN: Final = "Unquantised"
ROUNDING: Final = "Rounding to nearest"
SMALL_FLOATS: Final = "Small floats"

Rounded = Callable[[torch.Tensor], torch.Tensor]


def plain_method(network: Any) -> Method:
    """The network as it is, as a method, so that it is scored like every other."""
    return Method("float32", PLAIN, model_bytes(network, {}), 0.0, "as it is", lambda _network: nullcontext())


def rounding_methods(bench: QuantiseBench) -> Iterator[Method]:
    """Whole-number grids, from mild to rough."""
    group = bench.group
    grids = [Grid(8), Grid(4), Grid(4, group)]
    if not bench.is_quick:
        grids = [Grid(8, 0), *grids, Grid(4, group, symmetric=False), Grid(3, group, symmetric=False)]
        grids += [Grid(bits, 32, symmetric=False) for bits in (4, 2) if _divides(bench.model.network, 32)]
    yield from (rounding_method(bench.model.network, grid) for grid in dict.fromkeys(grids))


def rounding_method(network: Any, grid: Grid) -> Method:
    """Every linear layer's matrix on the same kind of grid."""
    share = {0: "one scale a matrix", None: "one scale an output channel"}.get(
        grid.group, f"one scale per {grid.group} columns of a row"
    )
    detail = share if grid.symmetric else f"{share}, with a zero point"
    bits = grid_bits(network, grid)
    return weight_method(network, grid.name, ROUNDING, detail, bits, lambda weight: fake_quantised(weight, grid))


def float_methods(bench: QuantiseBench) -> Iterator[Method]:
    """Small floats: 8 bits with a scale a channel, and the two 4-bit block formats."""
    network = bench.model.network
    grids = (MXFP4,) if bench.is_quick else (FP8_CHANNEL, MXFP4, NVFP4)
    yield from (float_method(network, grid) for grid in grids if not grid.block or _divides(network, grid.block))


def _divides(network: Any, group: int) -> bool:
    return all(layer.in_features % group == 0 for layer in linear_layers(network).values())


def float_method(network: Any, grid: FloatGrid) -> Method:
    """Every linear layer's matrix in one format of small floats."""
    bits = {
        name: grid.storage_bits(layer.out_features, layer.in_features) for name, layer in linear_layers(network).items()
    }
    return weight_method(network, grid.name, SMALL_FLOATS, grid.detail, bits, grid.rounded)


def weight_method(
    network: Any, name: str, family: str, detail: str, bits: Mapping[str, int], rounded: Rounded
) -> Method:
    """A method that rounds each matrix by itself."""
    weights = {layer_name: rounded(layer.weight.data) for layer_name, layer in linear_layers(network).items()}
    return Method(
        name=name,
        family=family,
        weight_bytes=model_bytes(network, bits),
        weight_error=relative_error(network, weights),
        detail=detail,
        applied=lambda changed: weights_replaced(changed, weights),
    )
