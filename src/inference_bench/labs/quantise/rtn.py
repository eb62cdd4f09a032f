"""What does a matrix become on a grid of few values? Rounding to the nearest, and the exact bits it takes.

In:   a matrix, a Grid: bits, how many values share a scale, with or without a zero point
Out:  the matrix after rounding, still in floats; its scales and zero points; storage bits
Leaves out: choosing a better grid point than the nearest (gptq), scaling first (awq, smoothquant)
Read next by: linears, and every method.

This is fake quantisation: values are rounded as they would be stored, and multiplied as floats. It says what rounding does to the
output; it says nothing of speed, and nothing of memory here.

What the published recipes leave open, and what is done: the symmetric grid is -q…q with q = 2^(bits-1) - 1, so that 0 and ±max|w| are
on it; the zero-point grid has 2^bits points over min(w, 0)…max(w, 0), its zero point a whole number; scales are rounded to float16
before they are used, since that is what is stored; halves are rounded to the even neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from inference_bench.errors import RequestError

SCALE_BITS: Final = 16
_LEAST_BITS, _MOST_BITS = 2, 8


@dataclass(frozen=True, slots=True)
class Grid:
    """Which values a matrix may take.

    Where:   group None is one scale an output channel (row), 0 is one for the whole matrix, else so many columns of a row share one;
             without symmetric a zero point stands beside each scale
    Raises:  RequestError for bits or a group that cannot be
    """

    bits: int
    group: int | None = None
    symmetric: bool = True

    def __post_init__(self) -> None:
        if not _LEAST_BITS <= self.bits <= _MOST_BITS:
            raise RequestError(
                f"a grid of {self.bits} bits is not computed here; {_LEAST_BITS} to {_MOST_BITS} bits are"
            )
        if self.group is not None and self.group < 0:
            raise RequestError(f"{self.group} columns cannot share a scale; 1 or more can, or 0 for the whole matrix")

    @property
    def name(self) -> str:
        """How a grid is called.

        >>> Grid(4, 64).name, Grid(8).name, Grid(8, 0, symmetric=False).name
        ('int4 group 64', 'int8 channel', 'int8 matrix zero')
        """
        share = {0: "matrix", None: "channel"}.get(self.group, f"group {self.group}")
        return f"int{self.bits} {share}{'' if self.symmetric else ' zero'}"

    @property
    def low(self) -> int:
        """The least number of the grid."""
        return 1 - (1 << (self.bits - 1)) if self.symmetric else 0

    @property
    def high(self) -> int:
        """The greatest number of the grid."""
        return (1 << (self.bits - 1 if self.symmetric else self.bits)) - 1


def fake_quantised(weight: torch.Tensor, grid: Grid) -> torch.Tensor:
    """The matrix after rounding, in its own number format and shape."""
    scale, zero = grid_scales(weight, grid)
    return round_to(grouped(weight, grid), scale, zero, grid).reshape(weight.shape).to(weight.dtype)


def grouped(weight: torch.Tensor, grid: Grid) -> torch.Tensor:
    """The matrix with those values that share a scale along the last axis.

    Shape:   [rows, columns] to [rows, groups, group]; [1, 1, rows · columns] for one scale
    Raises:  RequestError
    """
    rows, columns = weight.shape
    if grid.group == 0:
        return weight.reshape(1, 1, rows * columns)
    return weight.reshape(rows, num_groups(columns, grid), -1)


def num_groups(columns: int, grid: Grid) -> int:
    """Scales a row has.

    Raises:  RequestError for a group that does not divide the row, with those that do
    """
    if not grid.group:
        return 1
    if columns % grid.group:
        fits = ", ".join(str(each) for each in (16, 32, 64, 96, 128, 192, 256, 512) if columns % each == 0)
        raise RequestError(
            f"groups of {grid.group} do not divide a row of {columns} columns; "
            + (f"groups that do: {fits}" if fits else f"give a divisor of {columns}")
        )
    return columns // grid.group


def grid_scales(weight: torch.Tensor, grid: Grid) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The scale of each group, as it is stored, and its zero point where the grid has one.

    Formula:  symmetric: max|w| / (2^(b-1) - 1); else (max(w, 0) - min(w, 0)) / (2^b - 1), zero = round(-min(w, 0) / scale)
    Shape:    [rows, groups, 1] each; [1, 1, 1] for one scale
    """
    values = grouped(weight.float(), grid)
    if grid.symmetric:
        return stored_scale(values.abs().amax(dim=-1, keepdim=True) / grid.high), None
    least = values.amin(dim=-1, keepdim=True).clamp(max=0.0)
    scale = stored_scale((values.amax(dim=-1, keepdim=True).clamp(min=0.0) - least) / grid.high)
    return scale, torch.round(-least / scale).clamp(grid.low, grid.high)


def stored_scale(scale: torch.Tensor) -> torch.Tensor:
    """A scale as float16 holds it, in float32; 1 where it would be none, since all is zero there."""
    kept = scale.half().float()
    return torch.where(kept > 0, kept, torch.ones_like(kept))


def round_to(values: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None, grid: Grid) -> torch.Tensor:
    """Each value's nearest point on the grid.

    Formula:  scale · (clamp(round(w / scale) + zero, low, high) - zero)
    """
    shift = 0.0 if zero is None else zero
    return (torch.clamp(torch.round(values / scale) + shift, grid.low, grid.high) - shift) * scale


def storage_bits(rows: int, columns: int, grid: Grid) -> int:
    """Exact bits of a matrix on a grid: numbers, a 16-bit scale a group, and a 16-bit zero point where the grid has one.

    Raises:  RequestError for a group that does not divide the row

    >>> storage_bits(1, 128, Grid(4, 128)) / 128, storage_bits(1, 128, Grid(4, 128, symmetric=False)) / 128
    (4.125, 4.25)
    """
    scales = 1 if grid.group == 0 else rows * num_groups(columns, grid)
    return rows * columns * grid.bits + scales * (SCALE_BITS if grid.symmetric else 2 * SCALE_BITS)
