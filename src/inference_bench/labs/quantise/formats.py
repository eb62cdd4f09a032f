"""Which number formats are there: how many bits, how far do they reach, and how fine are they?

In:   facts.formats
Out:  FormatRow of each
Leaves out: what a format does to a model (weight_methods)
Read next by: flow.

Largest, smallest and the step above 1 follow from the bits of exponent and fraction, not from a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from inference_bench.facts.formats import number_format
from inference_bench.labs.quantise.result import FormatRow


@dataclass(frozen=True, slots=True)
class FloatShape:
    """How a float is laid out.

    Where:  bias is of the exponent; has_infinity gives the greatest exponent to infinity and NaN, as IEEE does; num_nan is how many
            of the greatest fractions are taken by NaN where it does not
    """

    exponent_bits: int
    fraction_bits: int
    has_infinity: bool = True
    num_nan: int = 0

    @property
    def bias(self) -> int:
        """What is taken off the stored exponent."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def largest(self) -> float:
        """The greatest finite value.

        Formula:  2^(greatest exponent) · (2 - 2^-fraction bits), less the fractions that are NaN
        """
        top = 2**self.exponent_bits - 1 - self.bias - (1 if self.has_infinity else 0)
        steps = 2 ** (self.fraction_bits + 1) - 1 - self.num_nan
        return float(steps * 2.0 ** (top - self.fraction_bits))

    @property
    def smallest(self) -> float:
        """The least positive value, a subnormal.

        Formula:  2^(1 - bias - fraction bits)
        """
        return float(2.0 ** (1 - self.bias - self.fraction_bits))

    @property
    def step_at_one(self) -> float:
        """From 1 to the next value."""
        return float(2.0**-self.fraction_bits)


FLOATS: Final = {
    "fp32": FloatShape(8, 23),
    "bf16": FloatShape(8, 7),
    "fp16": FloatShape(5, 10),
    "fp8 E5M2": FloatShape(5, 2),
    "fp8 E4M3": FloatShape(4, 3, has_infinity=False, num_nan=1),
    "fp4 E2M1": FloatShape(2, 1, has_infinity=False),
}
# how it is called here, which format of facts has its bits, what one value is
_ROWS: Final = (
    ("float32", "fp32", "fp32", ""),
    ("bfloat16", "bf16", "bf16", "the range of float32, 8 bits of precision"),
    ("float16", "fp16", "fp16", "finer than bfloat16, overflows at 65,504"),
    ("FP8 E5M2", "fp8", "fp8 E5M2", ""),
    ("FP8 E4M3", "fp8", "fp8 E4M3", "no infinity"),
    ("int8", "int8", "int8", "times a scale"),
    ("int4, group 128", "int4-g128", "int4", "one fp16 scale per 128"),
    ("int4, group 64", "int4-g64", "int4", "one fp16 scale per 64"),
    ("int4, group 32", "int4-g32", "int4", "one fp16 scale per 32"),
    ("int4, group 128, zero", "int4-g128-zp", "int4", "and an fp16 zero point"),
    ("MXFP8", "mxfp8", "fp8 E4M3", "a power of two per 32"),
    ("MXFP4", "mxfp4", "fp4 E2M1", "a power of two per 32"),
    ("NVFP4", "nvfp4", "fp4 E2M1", "an E4M3 scale per 16, a float32 a matrix"),
    ("GGUF q8_0", "q8_0", "int8", "one fp16 scale per 32"),
    ("GGUF q4_0", "q4_0", "int4", "one fp16 scale per 32"),
)


def format_rows() -> tuple[FormatRow, ...]:
    """Every format of the table, by bits."""
    return tuple(_row(*row) for row in _ROWS)


def _row(name: str, fact: str, element: str, note: str) -> FormatRow:
    known = number_format(fact)
    shape = FLOATS.get(element)
    whole = 2.0 ** (int(element[3:]) - 1) - 1 if shape is None else 0.0
    return FormatRow(
        name=name,
        element=element,
        block_values=known.block_values,
        bits_per_value=float(known.bits_per_value),
        largest=shape.largest if shape else whole,
        smallest=shape.smallest if shape else 1.0,
        step_at_one=shape.step_at_one if shape else 1.0,
        note=note,
    )
