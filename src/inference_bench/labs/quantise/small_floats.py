"""What does a matrix become in floats of 8 or 4 bits? FP8 with a scale a channel, and the block formats MXFP4 and NVFP4.

In:   a matrix, a FloatGrid
Out:  the matrix after rounding, still in float32; storage bits
Leaves out: the table of formats (formats), whole-number grids (rtn)
Read next by: weight_methods, formats.

Fake quantisation, as in rtn. What the formats leave to the encoder, and what is done: an MX block's scale is the power of two that
the specification suggests, 2^(floor(log2 max|w|) - 2), and what lies beyond 6 becomes 6; an NVFP4 block's scale is max|w| / 6 in
FP8 E4M3, under one float32 scale a matrix that puts the greatest block scale at 448.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

E2M1_VALUES: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E4M3_LARGEST: Final = 448.0
_E2M1_LARGEST: Final = E2M1_VALUES[-1]
_E2M1_EXPONENT: Final = 2  # of its greatest value
_E8M0_LEAST, _E8M0_MOST = -127, 127
_ELEMENT_BITS: Final = {"e4m3": 8, "e2m1": 4}


@dataclass(frozen=True, slots=True)
class FloatGrid:
    """A format of small floats.

    Where:  block is how many columns of a row share a scale, 0 is a whole row; matrix_bits are those of a scale for all
    """

    name: str
    element: str
    block: int
    scale_bits: int
    matrix_bits: int
    detail: str

    def storage_bits(self, rows: int, columns: int) -> int:
        """Exact bits of a matrix, scales included."""
        scales = rows * (columns // self.block if self.block else 1)
        return rows * columns * _ELEMENT_BITS[self.element] + scales * self.scale_bits + self.matrix_bits

    def rounded(self, weight: torch.Tensor) -> torch.Tensor:
        """The matrix after rounding, in its own number format and shape."""
        values = weight.float().reshape(weight.shape[0], -1, self.block or weight.shape[1])
        most = values.abs().amax(dim=-1, keepdim=True)
        scale = self._scale(most)
        nearest = nearest_e4m3 if self.element == "e4m3" else nearest_e2m1
        return (nearest(values / scale) * scale).reshape(weight.shape).to(weight.dtype)

    def _scale(self, most: torch.Tensor) -> torch.Tensor:
        if self.name == "MXFP4":
            exponent = torch.floor(torch.log2(torch.where(most > 0, most, torch.ones_like(most)))) - _E2M1_EXPONENT
            return torch.exp2(exponent.clamp(_E8M0_LEAST, _E8M0_MOST))
        if self.name == "NVFP4":
            whole = _positive(most.max() / (_E2M1_LARGEST * E4M3_LARGEST))
            return _positive(nearest_e4m3(most / _E2M1_LARGEST / whole)) * whole
        return _positive(most / E4M3_LARGEST)


def _positive(scale: torch.Tensor) -> torch.Tensor:
    """A scale that can be divided by: 1 where all is zero."""
    return torch.where(scale > 0, scale, torch.ones_like(scale))


def nearest_e4m3(values: torch.Tensor) -> torch.Tensor:
    """The nearest FP8 E4M3 value, halves to the even one; beyond 448 is 448."""
    return values.clamp(-E4M3_LARGEST, E4M3_LARGEST).to(torch.float8_e4m3fn).float()


def nearest_e2m1(values: torch.Tensor) -> torch.Tensor:
    """The nearest FP4 E2M1 value, halves to the even one; beyond 6 is 6.

    Formula:  the step is 0.5 below 2, 1 from 2 to 4, and 2 above
    """
    size = values.abs().clamp(max=_E2M1_LARGEST)
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    return torch.round(size / step) * step * values.sign()


FP8_CHANNEL: Final = FloatGrid("FP8 channel", "e4m3", 0, 32, 0, "E4M3, one float32 scale an output channel")
MXFP4: Final = FloatGrid("MXFP4", "e2m1", 32, 8, 0, "E2M1, one power of two per 32 columns")
NVFP4: Final = FloatGrid("NVFP4", "e2m1", 16, 8, 32, "E2M1, one E4M3 scale per 16 columns, one float32 a matrix")
