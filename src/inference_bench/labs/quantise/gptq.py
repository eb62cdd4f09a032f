"""How should the columns not yet rounded make up for one that was? GPTQ, column by column.

In:   a matrix, the second moments of its inputs, a Grid
Out:  the matrix on the grid, with the output error of each rounding carried into the columns that follow
Leaves out: where the second moments come from (hessians)
Read next by: flow.

Rounding column j of a row by e changes the output by e·x_j. The least change of the columns after j that makes up for it is
-e / C_jj · C_j, where C is the upper Cholesky factor of the inverse second moments: one factorisation stands for removing the columns
from the problem one at a time. Errors are carried at once within a block of columns, and to the columns after it when it is done.

Order: as the columns lie, or those of the greatest second moment first (act order). Scales of a group are computed when its first
column is reached, from the columns as they are by then; with act order a group's columns are not reached together, so its scales are
computed beforehand (static groups).

Source: Frantar et al. 2022, GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers, algorithm 1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from inference_bench.errors import RequestError
from inference_bench.labs.quantise.hessians import LayerInputs, block_by_block, calibration_windows
from inference_bench.labs.quantise.linears import (
    grid_bits,
    linear_layers,
    model_bytes,
    relative_error,
    weights_replaced,
)
from inference_bench.labs.quantise.methods import Method, QuantiseBench
from inference_bench.labs.quantise.rtn import Grid, grid_scales, num_groups, round_to
from inference_bench.labs.session import computing_threads
from inference_bench.units import format_count, format_fraction

FAMILY: Final = "GPTQ"
PAPER_DAMPING: Final = 0.01
_MORE_DAMPING: Final = 0.1  # in full mode beside it, to see how much hangs on it
_MOST_RETRIES: Final = 6


@dataclass(frozen=True, slots=True)
class GptqSettings:
    """How GPTQ is run.

    Where:   damping is added to the diagonal, as a fraction of its mean; block is how many columns' errors are carried together
    Raises:  RequestError
    """

    damping: float = PAPER_DAMPING
    act_order: bool = False
    block: int = 128

    def __post_init__(self) -> None:
        if not 0 < self.damping <= 1 or self.block < 1:
            raise RequestError(
                f"GPTQ with a damping of {self.damping} in blocks of {self.block} columns cannot be; the damping is above 0 and at "
                "most 1, and a block has 1 column or more"
            )


def gptq_quantised(weight: torch.Tensor, hessian: torch.Tensor, grid: Grid, settings: GptqSettings) -> torch.Tensor:
    """The matrix on the grid.

    Shape:   weight [rows, columns]; hessian [columns, columns]
    Raises:  RequestError for a group that does not divide the row, or moments that are not finite
    """
    if not bool(torch.isfinite(hessian).all()):
        raise RequestError("the second moments of a layer's inputs are not all finite; GPTQ cannot use them")
    work = weight.to(hessian.dtype).clone()
    dead = hessian.diagonal() == 0
    work[:, dead] = 0  # such a column never changes the output
    order = _order(hessian, settings.act_order)
    upper = inverse_factor(hessian[order][:, order], settings.damping)
    scales = _StaticScales(work, grid, order) if settings.act_order or not grid.group else _RunningScales(grid)
    work = work[:, order]
    with computing_threads(1):  # thousands of small steps: threads would wait for one another at each
        rounded = _carried(work, upper, scales, grid, settings.block)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    return rounded[:, back].to(weight.dtype)


def _order(hessian: torch.Tensor, act_order: bool) -> torch.Tensor:
    """The columns in the order they are rounded in."""
    if not act_order:
        return torch.arange(len(hessian))
    return torch.argsort(hessian.diagonal(), descending=True, stable=True)


def inverse_factor(hessian: torch.Tensor, damping: float) -> torch.Tensor:
    """The upper Cholesky factor of the inverse, from one factorisation of the matrix itself.

    Formula:  H + damping · mean(diag H) · I = R Rᵀ with R upper triangular, and then inverse = Cᵀ C with C = R⁻¹
    Where:    R is the lower factor of the matrix with its rows and columns reversed, reversed again; where rounding makes the matrix
              indefinite, ten times the damping is used
    Raises:   RequestError where no damping helps
    """
    diagonal = hessian.diagonal()
    mean = diagonal.mean()
    base = hessian + torch.diag((diagonal == 0).to(hessian.dtype) * torch.where(mean > 0, mean, torch.ones_like(mean)))
    eye = torch.eye(len(hessian), dtype=hessian.dtype)
    for retry in range(_MOST_RETRIES):
        shifted = base + eye * (damping * 10**retry * base.diagonal().mean())
        lower, failed = torch.linalg.cholesky_ex(shifted.flip(0, 1))
        if not int(failed):
            return torch.linalg.solve_triangular(lower.flip(0, 1), eye, upper=True)
    raise RequestError("the second moments of a layer's inputs are not positive definite, whatever is added to them")


class _RunningScales:
    """Scales of a group from its columns as they are when its first one is reached."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._own = Grid(grid.bits, None, grid.symmetric)
        self._group = grid.group or 1
        self._scale: torch.Tensor | None = None
        self._zero: torch.Tensor | None = None

    def starts_at(self, column: int) -> bool:
        """Whether a group begins here."""
        return column % self._group == 0

    def begin(self, columns: torch.Tensor) -> None:
        """Take the scales of a group.

        Shape:  [rows, group]
        """
        self._scale, self._zero = grid_scales(columns, self._own)

    def rounded(self, _column: int, values: torch.Tensor) -> torch.Tensor:
        """One column on the grid."""
        scale = self._scale if self._scale is not None else torch.ones(1, 1, 1)
        return _on_grid(values, scale[:, 0], None if self._zero is None else self._zero[:, 0], self._grid)


class _StaticScales:
    """Scales of every group from the matrix as it was."""

    def __init__(self, weight: torch.Tensor, grid: Grid, order: torch.Tensor) -> None:
        self._grid = grid
        self._scale, self._zero = grid_scales(weight, grid)
        columns = weight.shape[1]
        width = columns // num_groups(columns, grid)
        self._groups = (order // width).tolist()

    def starts_at(self, _column: int) -> bool:
        """No group begins anywhere: all scales are known."""
        return False

    def begin(self, columns: torch.Tensor) -> None:
        """Nothing is left to take."""

    def rounded(self, column: int, values: torch.Tensor) -> torch.Tensor:
        """One column on the grid of its group."""
        group = self._groups[column]
        return _on_grid(values, self._scale[:, group], None if self._zero is None else self._zero[:, group], self._grid)


_Scales = _RunningScales | _StaticScales


def _on_grid(values: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None, grid: Grid) -> torch.Tensor:
    """Shape: values [rows]; scale and zero [rows, 1] or [1, 1]."""
    return round_to(values[:, None], scale, zero, grid)[:, 0].to(values.dtype)


def _carried(work: torch.Tensor, upper: torch.Tensor, scales: _Scales, grid: Grid, block: int) -> torch.Tensor:
    """Every column rounded, its error carried to those after it.

    Formula:  e_j = (w_j - round(w_j)) / C_jj; w_k -= e_j · C_jk for every k after j: at once within the block, and for the columns after
              the block when it is done
    """
    columns = work.shape[1]
    lanes = work.T.contiguous()  # a column of the matrix is a row here, and lies together
    rounded = torch.empty_like(lanes)
    errors = torch.empty_like(lanes[: min(block, columns)])
    diagonal = upper.diagonal().tolist()
    for first in range(0, columns, block):
        end = min(first + block, columns)
        for j in range(first, end):
            if scales.starts_at(j):
                _begin_group(lanes, upper, errors, scales, grid, first, j, end)
            rounded[j] = scales.rounded(j, lanes[j])
            torch.div(lanes[j] - rounded[j], diagonal[j], out=errors[j - first])
            if j + 1 < end:
                lanes[j + 1 : end].addr_(upper[j, j + 1 : end], errors[j - first], alpha=-1)
        lanes[end:].addmm_(upper[first:end, end:].T, errors[: end - first], alpha=-1)
    return rounded.T.contiguous()


def _begin_group(
    lanes: torch.Tensor,
    upper: torch.Tensor,
    errors: torch.Tensor,
    scales: _Scales,
    grid: Grid,
    first: int,
    j: int,
    end: int,
) -> None:
    """Scales from the group's columns, those beyond the block with the errors that wait for them."""
    last = j + (grid.group or 1)
    group = lanes[j:last]
    if last > end and j > first:
        waiting = upper[first:j, end:last].T @ errors[: j - first]
        group = torch.cat([lanes[j:end], lanes[end:last] - waiting])
    scales.begin(group.T)


def quantised_together(
    weights: Mapping[str, torch.Tensor], hessian: torch.Tensor, grid: Grid, settings: GptqSettings
) -> dict[str, torch.Tensor]:
    """Matrices with the same inputs as one: rows know nothing of one another, so that each comes out as it would alone.

    Where:  a grid of one scale a matrix is the exception, and there each is taken alone
    """
    if grid.group == 0:
        return {name: gptq_quantised(weight, hessian, grid, settings) for name, weight in weights.items()}
    stacked = gptq_quantised(torch.cat(list(weights.values())), hessian, grid, settings)
    return dict(zip(weights, stacked.split([len(weight) for weight in weights.values()]), strict=True))


def second_moments(inputs: LayerInputs) -> torch.Tensor:
    """The hessian of some inputs.

    Raises:  ValueError where it was not asked for
    """
    if inputs.hessian is None:
        raise ValueError(f"the second moments of {inputs.names[0]} were not computed")
    return inputs.hessian


def gptq_weights(bench: QuantiseBench, grid: Grid, settings: GptqSettings) -> dict[str, torch.Tensor]:
    """Every linear layer's matrix by GPTQ, block by block; the network is as it was afterwards."""
    network = bench.model.network
    layers = linear_layers(network)
    own = {name: layer.weight.data for name, layer in layers.items()}
    found: dict[str, torch.Tensor] = {}

    def visit(_block: Any, inputs: Sequence[LayerInputs]) -> None:
        for each in inputs:
            weights = {name: own[name] for name in each.names}
            found.update(quantised_together(weights, second_moments(each), grid, settings))
        for name in (name for each in inputs for name in each.names):
            layers[name].weight.data = found[name]

    try:
        block_by_block(network, calibration_windows(bench.calibration, bench.is_quick), visit, bench.say)
    finally:
        for name, weight in own.items():
            layers[name].weight.data = weight
    return found


def gptq_methods(bench: QuantiseBench) -> Iterator[Method]:
    """GPTQ at the settings worth seeing, each made when it is asked for: a network's worth of matrices is large.

    Where:  the damping is the paper's; no setting is chosen by the text that judges
    """
    group, ordered = bench.group, GptqSettings(act_order=True)
    wanted = [(Grid(4, group), ordered)]
    if not bench.is_quick:
        wanted += [(Grid(4, group), GptqSettings()), (Grid(4, group), replace(ordered, damping=_MORE_DAMPING))]
        wanted += [(Grid(3, group), ordered)]
    for grid, settings in wanted:
        yield gptq_method(bench, grid, settings)


def gptq_method(bench: QuantiseBench, grid: Grid, settings: GptqSettings) -> Method:
    """One of them."""
    network = bench.model.network
    other = "" if settings.act_order else ", no act order"
    other += "" if settings.damping == PAPER_DAMPING else f", damping {format_fraction(settings.damping, 2)}"
    weights = gptq_weights(bench, grid, settings)
    windows = calibration_windows(bench.calibration, bench.is_quick)
    return Method(
        name=f"GPTQ {grid.name}{other}",
        family=FAMILY,
        weight_bytes=model_bytes(network, grid_bits(network, grid)),
        weight_error=relative_error(network, weights),
        detail=f"damping {format_fraction(settings.damping, 2)} of the mean, columns in {_order_words(settings)}, blocks of "
        f"{settings.block}, {format_count(sum(map(len, windows)))} calibration tokens, block by block",
        applied=lambda each: weights_replaced(each, weights),
    )


def _order_words(settings: GptqSettings) -> str:
    return "act order with static groups" if settings.act_order else "their own order"
