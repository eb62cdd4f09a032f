"""Which columns should be rounded more finely? AWQ: those with large inputs, by scaling them up first.

In:   matrices that share their inputs, what was seen of those inputs, a Grid
Out:  the matrices after rounding, as they act; which exponent was best
Leaves out: activations, which stay in floats
Read next by: flow.

W x = (W s)(x / s). A column of W that is scaled up by s > 1 before rounding is rounded s times more finely, as long as the greatest value
of its group does not grow with it. s is mean |x| to a power between 0 (plain rounding) and 1, and the power is searched: the one whose
outputs move least on a sample of the calibration tokens. Matrices with the same inputs share s.

Here s is applied to the matrix, and taken out of it again after rounding; in use x / s is folded into the layer before where there is one
that allows it. The bytes count s as kept, 16 bits a column, for every input. Optionally each group's range is then cut where that moves
the outputs less.

Source: Lin et al. 2023, AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from inference_bench.errors import RequestError
from inference_bench.labs.quantise.hessians import SAMPLE_TOKENS, LayerInputs, calibration_inputs, calibration_windows
from inference_bench.labs.quantise.linears import (
    grid_bits,
    linear_layers,
    model_bytes,
    relative_error,
    weights_replaced,
)
from inference_bench.labs.quantise.methods import Method, QuantiseBench
from inference_bench.labs.quantise.rtn import Grid, fake_quantised, grid_scales, grouped, round_to
from inference_bench.units import format_fraction

FAMILY: Final = "AWQ"
QUICK_EXPONENTS: Final = (0.0, 0.25, 0.5)
EXPONENTS: Final = tuple(step / 10 for step in range(10))
CUTS: Final = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6)
_QUICK_SAMPLE: Final = 64
_SCALE_BITS: Final = 16


@dataclass(frozen=True, slots=True)
class AwqFound:
    """Matrices that share their inputs, after AWQ.

    Where:  error is the mean square by which all their outputs together move, over the sample; plain_error that of rounding alone
    """

    weights: Mapping[str, torch.Tensor]
    exponent: float
    error: float
    plain_error: float


def column_scales(magnitude: torch.Tensor, exponent: float) -> torch.Tensor:
    """What each column is multiplied by.

    Formula:  s = a / √(max a · min a), a = (mean |x|)^α
    Shape:    [columns]
    Where:    a column that was never seen to be other than 0 counts as the least that was
    """
    seen = magnitude[magnitude > 0]
    least = float(seen.min()) if len(seen) else 1.0
    powers = magnitude.double().clamp(min=least) ** exponent
    return (powers / (powers.max() * powers.min()).sqrt()).to(magnitude.dtype)


def scaled_and_rounded(weight: torch.Tensor, scales: torch.Tensor, grid: Grid) -> torch.Tensor:
    """The matrix that acts: scaled, rounded, scaled back.

    Formula:  round(W · s) / s
    """
    return fake_quantised(weight * scales, grid) / scales


def search(
    weights: Mapping[str, torch.Tensor],
    inputs: LayerInputs,
    grid: Grid,
    exponents: Sequence[float],
    cuts: Sequence[float],
) -> AwqFound:
    """The exponent whose outputs move least, and then the cuts.

    Raises:  RequestError for exponents outside 0…1, or none
    """
    if not exponents or not all(0 <= each <= 1 for each in exponents):
        raise RequestError(
            f"AWQ's exponents lie between 0 and 1, and there is at least one; given: {list(exponents)[:8]}"
        )
    tried = [(exponent, _moved(weights, inputs, grid, exponent)) for exponent in exponents]
    exponent, error = min(tried, key=lambda each: each[1])
    plain = next((found for at, found in tried if at == 0), None)
    plain_error = _moved(weights, inputs, grid, 0.0) if plain is None else plain
    scales = column_scales(inputs.magnitude, exponent)
    best = {name: scaled_and_rounded(weight, scales, grid) for name, weight in weights.items()}
    if len(cuts) > 1:
        sample = inputs.sample / scales
        best = {name: cut_and_rounded(weight * scales, sample, grid, cuts) / scales for name, weight in weights.items()}
        error = _error(weights, best, inputs.sample)
    return AwqFound(best, exponent, error, plain_error)


def _moved(weights: Mapping[str, torch.Tensor], inputs: LayerInputs, grid: Grid, exponent: float) -> float:
    scales = column_scales(inputs.magnitude, exponent)
    changed = {name: scaled_and_rounded(weight, scales, grid) for name, weight in weights.items()}
    return _error(weights, changed, inputs.sample)


def _error(weights: Mapping[str, torch.Tensor], changed: Mapping[str, torch.Tensor], sample: torch.Tensor) -> float:
    """Σ over the matrices of mean (W x - W' x)²."""
    return sum(float((sample @ (weight - changed[name]).T).square().mean()) for name, weight in weights.items())


def cut_and_rounded(weight: torch.Tensor, sample: torch.Tensor, grid: Grid, cuts: Sequence[float]) -> torch.Tensor:
    """The matrix with each group's range cut to the fraction of its own that moves the outputs least, and rounded.

    Shape:   weight [rows, columns]; sample [tokens, columns]
    Where:   a cut is judged by what that group alone adds to the output; one scale a matrix is not cut
    """
    if grid.group == 0:
        return fake_quantised(weight, grid)
    values = grouped(weight, grid)
    seen = sample.reshape(len(sample), values.shape[1], -1)
    best, least = values, torch.full(values.shape[:2], torch.inf)
    low, high = values.amin(dim=-1, keepdim=True), values.amax(dim=-1, keepdim=True)
    largest = values.abs().amax(dim=-1, keepdim=True)
    for cut in cuts:
        ends = (-largest * cut, largest * cut) if grid.symmetric else (low * cut, high * cut)
        clamped = torch.minimum(torch.maximum(values, ends[0]), ends[1])
        scale, zero = grid_scales(clamped.reshape(weight.shape), grid)
        rounded = round_to(clamped, scale, zero, grid)
        error = torch.einsum("tgc,rgc->rgt", seen, values - rounded).square().mean(dim=-1)
        better = error < least
        best = torch.where(better[..., None], rounded, best)
        least = torch.where(better, error, least)
    return best.reshape(weight.shape)


def awq_weights(
    bench: QuantiseBench, inputs: Sequence[LayerInputs], grid: Grid, cuts: Sequence[float] = (1.0,)
) -> list[AwqFound]:
    """Every linear layer's matrix by AWQ, in groups that share their inputs; the network is not changed."""
    layers = linear_layers(bench.model.network)
    exponents = QUICK_EXPONENTS if bench.is_quick else EXPONENTS
    found = []
    for number, each in enumerate(inputs, start=1):
        bench.say(f"AWQ: searching the scales of inputs {number} of {len(inputs)}")
        found.append(search({name: layers[name].weight.data for name in each.names}, each, grid, exponents, cuts))
    return found


def awq_methods(bench: QuantiseBench) -> Iterator[Method]:
    """AWQ at the settings worth seeing, each made when it is asked for."""
    group = bench.group
    wanted: list[tuple[Grid, tuple[float, ...]]] = [(Grid(4, group), (1.0,))]
    if not bench.is_quick:
        wanted += [(Grid(4, group), CUTS), (Grid(3, group), CUTS)]
    windows = calibration_windows(bench.calibration, bench.is_quick)
    sample_tokens = _QUICK_SAMPLE if bench.is_quick else SAMPLE_TOKENS
    inputs = calibration_inputs(bench.model.network, windows, bench.say, sample_tokens)
    for grid, cuts in wanted:
        yield awq_method(bench, inputs, grid, cuts)


def awq_method(bench: QuantiseBench, inputs: Sequence[LayerInputs], grid: Grid, cuts: Sequence[float]) -> Method:
    """One of them."""
    network = bench.model.network
    found = awq_weights(bench, inputs, grid, cuts)
    weights = {name: weight for each in found for name, weight in each.weights.items()}
    return Method(
        name=f"AWQ {grid.name}{', ranges cut' if len(cuts) > 1 else ''}",
        family=FAMILY,
        weight_bytes=model_bytes(network, awq_bits(network, grid)),
        weight_error=relative_error(network, weights),
        detail=exponents_in_words(found),
        applied=lambda each: weights_replaced(each, weights),
    )


def awq_bits(network: Any, grid: Grid) -> dict[str, int]:
    """Exact bits of every linear layer's matrix, with 16 for the scale of each column."""
    layers = linear_layers(network)
    return {name: bits + layers[name].in_features * _SCALE_BITS for name, bits in grid_bits(network, grid).items()}


def exponents_in_words(found: Sequence[AwqFound]) -> str:
    """Which exponents were best, by kind of layer, and how much less the outputs move than by plain rounding."""
    kinds: dict[str, Counter[float]] = {}
    for each in found:
        kind = "/".join(name.rpartition(".")[2].removesuffix("_proj") for name in each.weights)
        kinds.setdefault(kind, Counter())[each.exponent] += 1
    best = ", ".join(f"{kind} {counts.most_common(1)[0][0]:g}" for kind, counts in kinds.items())
    ratios = [each.error / each.plain_error for each in found if each.plain_error > 0]
    mean = sum(ratios) / len(ratios) if ratios else 1.0
    return f"most frequent α: {best}; squared output error {format_fraction(mean, 2)} of plain rounding's on calibration tokens"
