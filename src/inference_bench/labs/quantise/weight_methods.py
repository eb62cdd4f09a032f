"""What do fewer bits in the weights alone cost? Rounding to the nearest point of whole-number and of small-float grids.

In:   QuantiseBench, the group size asked for
Out:  Methods that exchange every linear layer's matrix
Leaves out: how a matrix is rounded (rtn, small_floats); better roundings (gptq, awq)
Read next by: flow, reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import torch

from inference_bench.labs.quantise.linears import linear_layers, model_bytes, relative_error, weights_replaced
from inference_bench.labs.quantise.methods import Method, QuantiseBench
from inference_bench.labs.quantise.rtn import Grid, fake_quantised, storage_bits
from inference_bench.labs.quantise.small_floats import FP8_CHANNEL, MXFP4, NVFP4, FloatGrid

PLAIN: Final = "Unquantised"
ROUNDING: Final = "Rounding to nearest"
SMALL_FLOATS: Final = "Small floats"
SHARES: Final = {0: "matrix", None: "channel"}

Rounded = Callable[[torch.Tensor], torch.Tensor]


def grid_name(grid: Grid) -> str:
    """How a grid is named: int4 group 64, with zero point.

    >>> grid_name(Grid(4, 64)), grid_name(Grid(8)), grid_name(Grid(8, 0, symmetric=False))
    ('int4 group 64', 'int8 channel', 'int8 matrix zero')
    """
    share = SHARES.get(grid.group, f"group {grid.group}")
    return f"int{grid.bits} {share}{'' if grid.symmetric else ' zero'}"


def plain_method(network: Any) -> Method:
    """The network as it is, as a method, so that it is scored like every other."""
    return Method("float32", PLAIN, model_bytes(network, {}), 0.0, "as it is", lambda _network: nullcontext())


def rounding_methods(bench: QuantiseBench, group: int) -> list[Method]:
    """Whole-number grids, from mild to rough."""
    quick = [Grid(8), Grid(4), Grid(4, group)]
    finer = [Grid(4, 32, symmetric=False), Grid(2, 32, symmetric=False)] if _divides(bench.model.network, 32) else []
    rough = [Grid(3, group), Grid(3, group, symmetric=False), Grid(2, group, symmetric=False)]
    grids = (
        quick if bench.is_quick else [Grid(8, 0), *quick, Grid(4, 0), Grid(4, group, symmetric=False), *finer, *rough]
    )
    return [rounding_method(bench.model.network, grid) for grid in dict.fromkeys(grids)]


def rounding_method(network: Any, grid: Grid) -> Method:
    """Every linear layer's matrix on the same kind of grid."""
    bits = {
        name: storage_bits(layer.out_features, layer.in_features, grid)
        for name, layer in linear_layers(network).items()
    }
    share = {0: "one scale a matrix", None: "one scale an output channel"}.get(
        grid.group, f"one scale per {grid.group} columns of a row"
    )
    detail = share if grid.symmetric else f"{share}, with a zero point"
    return weight_method(network, grid_name(grid), ROUNDING, detail, bits, lambda weight: fake_quantised(weight, grid))


def float_methods(bench: QuantiseBench) -> list[Method]:
    """Small floats: 8 bits with a scale a channel, and the two 4-bit block formats."""
    network = bench.model.network
    grids = (MXFP4,) if bench.is_quick else (FP8_CHANNEL, MXFP4, NVFP4)
    return [float_method(network, grid) for grid in grids if not grid.block or _divides(network, grid.block)]


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
    """A method that rounds each matrix by itself, anew each time: none is kept beside the network's own."""

    @contextmanager
    def applied(changed: Any) -> Iterator[None]:
        with weights_replaced(changed, all_rounded(changed, rounded)):
            yield

    error = relative_error(network, all_rounded(network, rounded))
    return Method(name, family, model_bytes(network, bits), error, detail, applied)


def all_rounded(network: Any, rounded: Rounded) -> dict[str, torch.Tensor]:
    """Every linear layer's matrix, rounded."""
    return {name: rounded(layer.weight.data) for name, layer in linear_layers(network).items()}
