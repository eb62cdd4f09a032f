"""How numbers are stored: exact bits per value, scales counted, for weights and for the KV cache.

In:   a name ("bf16", "q4_1", "int4-g128") or a ggml tensor type number
Out:  NumberFormat, whose `count_bytes` is exact
Leaves out: which tensors a quantiser converts (see accounting/weights.py) and what rounding costs in quality
Read next by: accounting.weights, accounting.cache, roofline (which peak a format computes in).

A block format stores `block_values` values in `block_bytes` bytes, scales and zero points included.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.names import find_name
from inference_bench.facts.source import Source

_IEEE: Final = Source("IEEE 754-2019; bfloat16 as in Google Cloud TPU documentation", "2026-11-29")
_OCP: Final = Source("OCP Microscaling Formats (MX) specification v1.0; OCP 8-bit floating point v1.0", "2026-11-29")
_GGML: Final = Source("ggml block structures, as gguf 0.19.0 lists them (GGML_QUANT_SIZES)", "2026-11-29")
_GROUP: Final = Source(
    "symmetric group quantisation: 4 bits a value, one fp16 scale (and zero point) a group", "2026-11-29"
)

# Which peak a format's matrix products run at, best first. Weight-only formats are dequantised and computed in 16 bits.
_IN_16_BIT: Final = ("bf16", "fp16", "fp32")


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A storage format: `block_values` values take `block_bytes` bytes, scales included.

    Where:  compute_formats names the machine peaks its matrix products can use, best first
    """

    name: str
    block_values: int
    block_bytes: int
    compute_formats: tuple[str, ...]
    source: Source
    ggml_type: int | None = None
    note: str = ""

    @property
    def bits_per_value(self) -> Fraction:
        """Exact bits a value, scales included: 4.125 for int4 with an fp16 scale per 128."""
        return Fraction(self.block_bytes * 8, self.block_values)

    def count_bytes(self, num_values: int, row_values: int | None = None) -> int:
        """Bytes of so many values, stored in rows that each start a new block.

        Formula:  rows · ceil(row_values / block_values) · block_bytes
        Unit:     bytes, exact
        Raises:   RequestError if the values do not fill whole rows
        """
        row = num_values if row_values is None else row_values
        if num_values == 0:
            return 0
        if row <= 0 or num_values % row:
            raise RequestError(f"{num_values} values do not fill rows of {row}")
        blocks_per_row = -(-row // self.block_values)
        return num_values // row * blocks_per_row * self.block_bytes


def _plain(
    name: str, num_bytes: int, compute: tuple[str, ...], ggml_type: int | None, source: Source = _IEEE
) -> NumberFormat:
    return NumberFormat(name, 1, num_bytes, compute, source, ggml_type)


def _group(name: str, values: int, num_bytes: int, note: str) -> NumberFormat:
    return NumberFormat(name, values, num_bytes, _IN_16_BIT, _GROUP, note=note)


def _ggml(name: str, ggml_type: int, values: int, num_bytes: int) -> NumberFormat:
    return NumberFormat(name, values, num_bytes, _IN_16_BIT, _GGML, ggml_type)


_FORMATS: Final = (
    _plain("fp32", 4, ("fp32",), 0),
    _plain("fp16", 2, ("fp16", "bf16", "fp32"), 1),
    _plain("bf16", 2, _IN_16_BIT, 30),
    _plain("fp64", 8, ("fp64", "fp32"), 28),
    _plain("fp8", 1, ("fp8", *_IN_16_BIT), None, _OCP),
    _plain("int8", 1, _IN_16_BIT, 24, _GROUP),
    _plain("int16", 2, _IN_16_BIT, 25, _GGML),
    _plain("int32", 4, _IN_16_BIT, 26, _GGML),
    _plain("int64", 8, _IN_16_BIT, 27, _GGML),
    _group("int4-g32", 32, 18, "4-bit, one fp16 scale per 32"),
    _group("int4-g64", 64, 34, "4-bit, one fp16 scale per 64"),
    _group("int4-g128", 128, 66, "4-bit, one fp16 scale per 128"),
    _group("int4-g128-zp", 128, 68, "4-bit, one fp16 scale and one fp16 zero point per 128"),
    _group("int4-g4096", 4096, 2050, "4-bit, one fp16 scale per 4096"),
    NumberFormat("mxfp4", 32, 17, ("fp4", *_IN_16_BIT), _OCP, 39, "4-bit float, one 8-bit scale per 32"),
    NumberFormat(
        "nvfp4",
        16,
        9,
        ("fp4", *_IN_16_BIT),
        _GGML,
        40,
        "4-bit float, one fp8 scale per 16; a scale per tensor not counted",
    ),
    _ggml("q4_0", 2, 32, 18),
    _ggml("q4_1", 3, 32, 20),
    _ggml("q5_0", 6, 32, 22),
    _ggml("q5_1", 7, 32, 24),
    _ggml("q8_0", 8, 32, 34),
    _ggml("q8_1", 9, 32, 40),
    _ggml("q2_k", 10, 256, 84),
    _ggml("q3_k", 11, 256, 110),
    _ggml("q4_k", 12, 256, 144),
    _ggml("q5_k", 13, 256, 176),
    _ggml("q6_k", 14, 256, 210),
    _ggml("q8_k", 15, 256, 292),
    _ggml("iq2_xxs", 16, 256, 66),
    _ggml("iq2_xs", 17, 256, 74),
    _ggml("iq3_xxs", 18, 256, 98),
    _ggml("iq1_s", 19, 256, 50),
    _ggml("iq4_nl", 20, 32, 18),
    _ggml("iq3_s", 21, 256, 110),
    _ggml("iq2_s", 22, 256, 82),
    _ggml("iq4_xs", 23, 256, 136),
    _ggml("iq1_m", 29, 256, 56),
    _ggml("tq1_0", 34, 256, 54),
    _ggml("tq2_0", 35, 256, 66),
    _ggml("q1_0", 41, 128, 18),
)

_BY_NAME: Final = {fmt.name: fmt for fmt in _FORMATS}
_BY_GGML_TYPE: Final = {fmt.ggml_type: fmt for fmt in _FORMATS if fmt.ggml_type is not None}
_ALIASES: Final = {
    "f32": "fp32",
    "f16": "fp16",
    "f64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
}


def known_formats() -> tuple[NumberFormat, ...]:
    """Every format in the table."""
    return _FORMATS


def number_format(name: str) -> NumberFormat:
    """The format of that name.

    Raises:  UnknownNameError, with the nearest names
    """
    return find_name("number format", name, _BY_NAME, _ALIASES)


def ggml_format(ggml_type: int) -> NumberFormat:
    """The format of a ggml tensor type number, as a GGUF tensor table holds it.

    Raises:  UnknownNameError
    """
    if ggml_type not in _BY_GGML_TYPE:
        known = ", ".join(f"{number}={fmt.name}" for number, fmt in sorted(_BY_GGML_TYPE.items()))
        raise UnknownNameError(f"ggml tensor type {ggml_type} is not known; known: {known}")
    return _BY_GGML_TYPE[ggml_type]
