"""Which layers deserve more bits? Some matrices at 8 bits and the rest at 4, with what that costs in bytes.

In:   a network, a Grid for each matrix
Out:  methods: kinds of layers kept finer, or one kind alone made coarse
Leaves out: a search over layers
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from inference_bench.labs.quantise.hessians import decoder_blocks
from inference_bench.labs.quantise.linears import linear_layers, model_bytes, relative_error, weights_replaced
from inference_bench.labs.quantise.methods import Method, QuantiseBench
from inference_bench.labs.quantise.result import SENSITIVITY
from inference_bench.labs.quantise.rtn import Grid, fake_quantised, storage_bits
from inference_bench.units import format_number

FAMILY: Final = "Mixed precision"
_FEW, _MANY = 4, 8
_DOWN: Final = "down_proj"


def mixed_methods(bench: QuantiseBench) -> Iterator[Method]:
    """The down projections finer than the rest; in full mode the first and last block finer too, and each kind alone coarse."""
    network = bench.model.network
    names, group = list(linear_layers(network)), bench.group
    coarse = Grid(_FEW, group).name
    yield mixed_method(network, f"{coarse}, down at {_MANY} bits", fine_where(names, (_DOWN,), group))
    if bench.is_quick:
        return
    finer = (_DOWN, *ends_of(network))
    yield mixed_method(network, f"{coarse}, down and ends at {_MANY} bits", fine_where(names, finer, group))
    for kind in kinds_of(names):
        alone = {name: Grid(_FEW, group) for name in names if name.endswith(kind)}
        yield mixed_method(network, f"{kind} alone at {coarse}", alone, SENSITIVITY)


def fine_where(names: list[str], parts: tuple[str, ...], group: int) -> dict[str, Grid]:
    """Eight bits for matrices whose name ends with, or begins with, one of these; four for the others."""
    return {name: Grid(_MANY if name.endswith(parts) or name.startswith(parts) else _FEW, group) for name in names}


def ends_of(network: Any) -> tuple[str, str]:
    """How the names of the first and the last block's matrices begin."""
    blocks = decoder_blocks(network)
    names = {id(module): name for name, module in network.named_modules()}
    return f"{names[id(blocks[0])]}.", f"{names[id(blocks[-1])]}."


def kinds_of(names: list[str]) -> list[str]:
    """The last part of each name, each once, in order of appearance."""
    return list(dict.fromkeys(name.rpartition(".")[2] for name in names))


def mixed_method(network: Any, name: str, grids: Mapping[str, Grid], family: str = FAMILY) -> Method:
    """Each named matrix on its grid; those not named stay as they are."""
    layers = linear_layers(network)
    weights = {each: fake_quantised(layers[each].weight.data, grid) for each, grid in grids.items()}
    bits = {
        each: storage_bits(layers[each].out_features, layers[each].in_features, grid) for each, grid in grids.items()
    }
    return Method(
        name=name,
        family=family,
        weight_bytes=model_bytes(network, bits),
        weight_error=relative_error(network, weights),
        detail=_detail(network, grids, bits),
        applied=lambda each: weights_replaced(each, weights),
    )


def _detail(network: Any, grids: Mapping[str, Grid], bits: Mapping[str, int]) -> str:
    """How many matrices have how many bits, and what they come to a weight."""
    layers = linear_layers(network)
    values = sum(layers[name].weight.numel() for name in grids)
    counts = {grid.bits: sum(each.bits == grid.bits for each in grids.values()) for grid in grids.values()}
    said = ", ".join(f"{count} at {number} bits" for number, count in sorted(counts.items()))
    others = len(layers) - len(grids)
    return f"{said}{f', {others} unchanged' if others else ''}; {format_number(sum(bits.values()) / values, 4)} bits a quantised weight"
