"""How numbers are stored: exact bits per value, scales counted, for weights and for the KV cache.

In:   a name ("bf16", "q4_1", "int4-g128", "awq-g64") or a ggml tensor type number
Out:  NumberFormat, whose `count_bytes` and `count_matrix_bytes` are exact
Leaves out: which tensors a quantiser converts (see accounting/weight_plan.py) and what rounding costs in quality
Read next by: accounting.weights, accounting.cache, roofline (which peak a format computes in).

A block format stores `block_values` values in `block_bytes` bytes, scales and zero points included. What some formats
keep beside the blocks of a matrix (a scale a row, a tile or a tensor; packed zero points) is in `beside`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.names import find_name
from inference_bench.facts.source import Source

_IEEE: Final = Source("IEEE 754-2019; bfloat16 as in Google Cloud TPU documentation", "2026-11-29")
_OCP: Final = Source("OCP Microscaling Formats (MX) specification v1.0; OCP 8-bit floating point v1.0", "2026-11-29")
_GGML: Final = Source("ggml block structures, as gguf 0.19.0 lists them (GGML_QUANT_SIZES)", "2026-11-29")
_GROUP: Final = Source("symmetric group quantisation: one fp16 scale (and zero point) a group of a row", "2026-11-29")
_AWQ: Final = Source("AutoAWQ and AutoGPTQ packed tensors: qweight, qzeros, scales, g_idx", "2026-11-29")
_BNB: Final = Source("bitsandbytes quantisation states: absmax, quant_map, nested_absmax, SCB", "2026-11-29")
_FP8: Final = Source("DeepSeek-V3 checkpoint: weight_scale_inv, one float32 for 128 x 128 values", "2026-11-29")

# Which peak a format's matrix products run at, best first. Weight-only formats are dequantised and computed in 16 bits.
_IN_16_BIT: Final = ("bf16", "fp16", "fp32")
_IN_FP8: Final = ("fp8", *_IN_16_BIT)
_IN_FP4: Final = ("fp4", *_IN_16_BIT)
MAX_GROUP_VALUES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Beside:
    """What a format keeps for a matrix beside the blocks of its rows.

    Where:  block_bits more bits for each block, packed over the whole matrix (4-bit zero points); row_bytes and
            column_bytes for each row and column; tile_bytes for each tile of tile_rows by tile_columns;
            span_bytes for each span_values in a row-after-row order; matrix_bytes once
    Unit:   bytes and bits, exact
    """

    block_bits: int = 0
    row_bytes: int = 0
    row_bits: int = 0
    column_bytes: int = 0
    tile_rows: int = 1
    tile_columns: int = 1
    tile_bytes: int = 0
    span_values: int = 1
    span_bytes: int = 0
    matrix_bytes: int = 0

    def count_bytes(self, rows: int, columns: int, blocks_per_row: int) -> int:
        """Bytes beside the blocks of one matrix; a tile or span that is not filled is paid whole."""
        bits = rows * (blocks_per_row * self.block_bits + self.row_bits)
        tiles = -(-rows // self.tile_rows) * -(-columns // self.tile_columns)
        spans = -(-rows * columns // self.span_values)
        total = -(-bits // 8) + rows * self.row_bytes + columns * self.column_bytes
        return total + tiles * self.tile_bytes + spans * self.span_bytes + self.matrix_bytes


_NOTHING: Final = Beside()


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
    beside: Beside = _NOTHING

    @property
    def bits_per_value(self) -> Fraction:
        """Exact bits a value, scales of blocks, tiles and spans included: 4.125 for int4 with an fp16 scale per 128.

        Ignores:  what is paid by the row, the column or the matrix, which depends on the shape
        """
        extra = self.beside
        in_blocks = Fraction(self.block_bytes * 8 + extra.block_bits, self.block_values)
        in_tiles = Fraction(extra.tile_bytes * 8, extra.tile_rows * extra.tile_columns)
        return in_blocks + in_tiles + Fraction(extra.span_bytes * 8, extra.span_values)

    @property
    def is_plain(self) -> bool:
        """Every value stands alone in 16 bits or more: nothing was quantised."""
        return self.block_values == 1 and self.block_bytes >= 2

    def count_bytes(self, num_values: int, row_values: int | None = None) -> int:
        """Bytes of so many values, stored in rows that each start a new block.

        Formula:  rows · ceil(row_values / block_values) · block_bytes
        Unit:     bytes, exact
        Ignores:  what is kept beside the blocks (see count_matrix_bytes)
        Raises:   RequestError if the values do not fill whole rows
        """
        row = num_values if row_values is None else row_values
        if num_values == 0:
            return 0
        if row <= 0 or num_values % row:
            raise RequestError(f"{num_values} values do not fill rows of {row}")
        blocks_per_row = -(-row // self.block_values)
        return num_values // row * blocks_per_row * self.block_bytes

    def count_matrix_bytes(self, rows: int, columns: int) -> int:
        """Bytes of one weight matrix of so many output rows and input columns, with all that comes with it.

        Formula:  rows · ceil(columns / block_values) · block_bytes + what is kept beside the blocks
        Unit:     bytes, exact
        """
        blocks_per_row = -(-columns // self.block_values)
        blocks = rows * blocks_per_row * self.block_bytes
        return blocks if self.beside is _NOTHING else blocks + self.beside.count_bytes(rows, columns, blocks_per_row)


def grouped_format(
    name: str,
    bits: int,
    group_size: int | None,
    *,
    scale_bits: int = 16,
    zero_bits: int = 0,
    column_bytes: int = 0,
    source: Source = _GROUP,
) -> NumberFormat:
    """Whole numbers of `bits` bits with one scale (and zero point) for each group of a row.

    Where:   group_size None is one group a row; column_bytes is GPTQ's group index
    Raises:  RequestError for a group that cannot be

    >>> float(grouped_format("awq", 4, 128, zero_bits=4).bits_per_value)
    4.15625
    """
    if not 1 <= bits <= 16 or not (group_size is None or 1 <= group_size <= MAX_GROUP_VALUES):
        raise RequestError(f"{name}: {bits} bits in groups of {group_size} is not a format; 1 to 16 bits are")
    side = scale_bits + zero_bits
    zero = f" and a {zero_bits}-bit zero point" if zero_bits else ""
    index = ", a 4-byte group index an input" if column_bytes else ""
    if group_size is None:
        values, beside = 8, Beside(row_bits=side, column_bytes=column_bytes)
        note = f"{bits}-bit, one {scale_bits}-bit scale{zero} a row{index}"
        return NumberFormat(name, values, bits, _IN_16_BIT, source, note=note, beside=beside)
    whole, rest = divmod(group_size * bits + side, 8)
    beside = Beside(block_bits=rest, column_bytes=column_bytes) if rest or column_bytes else _NOTHING
    note = f"{bits}-bit, one {scale_bits}-bit scale{zero} per {group_size}{index}"
    return NumberFormat(name, group_size, whole, _IN_16_BIT, source, note=note, beside=beside)


def _plain(
    name: str, num_bytes: int, compute: tuple[str, ...], ggml_type: int | None, source: Source = _IEEE
) -> NumberFormat:
    return NumberFormat(name, 1, num_bytes, compute, source, ggml_type)


def _byte(name: str, compute: tuple[str, ...], source: Source, note: str, beside: Beside) -> NumberFormat:
    """One byte a value, and scales beside."""
    return NumberFormat(name, 1, 1, compute, source, note=note, beside=beside)


def _ggml(name: str, ggml_type: int, values: int, num_bytes: int) -> NumberFormat:
    return NumberFormat(name, values, num_bytes, _IN_16_BIT, _GGML, ggml_type)


_FORMATS: Final = (
    _plain("fp32", 4, ("fp32",), 0),
    _plain("fp16", 2, ("fp16", "bf16", "fp32"), 1),
    _plain("bf16", 2, _IN_16_BIT, 30),
    _plain("fp64", 8, ("fp64", "fp32"), 28),
    _byte("fp8", _IN_FP8, _OCP, "8-bit float, no scales", _NOTHING),
    _plain("int8", 1, _IN_16_BIT, 24, _GROUP),
    _plain("int16", 2, _IN_16_BIT, 25, _GGML),
    _plain("int32", 4, _IN_16_BIT, 26, _GGML),
    _plain("int64", 8, _IN_16_BIT, 27, _GGML),
    _byte("fp8-tensor", _IN_FP8, _OCP, "8-bit float, one fp32 scale a matrix", Beside(matrix_bytes=4)),
    _byte("fp8-channel", _IN_FP8, _OCP, "8-bit float, one fp32 scale a row", Beside(row_bytes=4)),
    _byte(
        "fp8-b128",
        _IN_FP8,
        _FP8,
        "8-bit float, one fp32 scale per 128 x 128",
        Beside(tile_rows=128, tile_columns=128, tile_bytes=4),
    ),
    _byte("int8-channel", _IN_16_BIT, _GROUP, "8-bit, one fp16 scale a row", Beside(row_bytes=2)),
    _byte("int8-bnb", _IN_16_BIT, _BNB, "8-bit, one fp32 scale a row", Beside(row_bytes=4)),
    *(grouped_format(f"int4-g{group}", 4, group) for group in (32, 64, 128)),
    *(grouped_format(f"int4-g{group}-zp", 4, group, zero_bits=16) for group in (32, 64, 128)),
    grouped_format("int4-g4096", 4, 4096),
    *(grouped_format(f"awq-g{group}", 4, group, zero_bits=4, source=_AWQ) for group in (32, 64, 128)),
    *(grouped_format(f"gptq-g{group}", 4, group, zero_bits=4, column_bytes=4, source=_AWQ) for group in (32, 64, 128)),
    NumberFormat(
        "nf4",
        64,
        36,
        _IN_16_BIT,
        _BNB,
        note="4-bit table, one fp32 absmax per 64, a table of 16 fp32 a matrix",
        beside=Beside(matrix_bytes=64),
    ),
    NumberFormat(
        "nf4-dq",
        64,
        33,
        _IN_16_BIT,
        _BNB,
        note="nf4 with absmax in 8 bits and one fp32 per 256 of them, a further table of 256 fp32 and an offset",
        beside=Beside(span_values=64 * 256, span_bytes=4, matrix_bytes=64 + 1024 + 4),
    ),
    NumberFormat("mxfp4", 32, 17, _IN_FP4, _OCP, 39, "4-bit float, one 8-bit scale per 32"),
    NumberFormat("mxfp8", 32, 33, _IN_FP8, _OCP, note="8-bit float, one 8-bit scale per 32"),
    NumberFormat(
        "nvfp4",
        16,
        9,
        _IN_FP4,
        _GGML,
        40,
        "4-bit float, one fp8 scale per 16, one fp32 scale a matrix",
        Beside(matrix_bytes=4),
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
    **{"f32": "fp32", "float32": "fp32", "f16": "fp16", "float16": "fp16", "half": "fp16", "bfloat16": "bf16"},
    **{"f64": "fp64", "float64": "fp64"},
    **dict.fromkeys(("f8_e4m3", "f8_e5m2", "float8_e4m3fn", "float8_e5m2"), "fp8"),
}
_GROUPED: Final = re.compile(r"(?:int([2-8])|(awq)|(gptq))-g(\d{1,7})(-zp)?")


def known_formats() -> tuple[NumberFormat, ...]:
    """Every format in the table."""
    return _FORMATS


def number_format(name: str) -> NumberFormat:
    """The format of that name: one of the table, or groups of any size as "int4-g96", "int3-g64-zp", "awq-g256".

    Raises:  UnknownNameError, with the nearest names
    """
    if name in _BY_NAME:  # tensor by tensor a search through all the names takes most of a count's time
        return _BY_NAME[name]
    match = _GROUPED.fullmatch(name.strip().lower())
    if match is not None and match[0] not in _BY_NAME and 1 <= int(match[4]) <= MAX_GROUP_VALUES:
        packed = match[1] is None
        return grouped_format(
            match[0],
            4 if packed else int(match[1]),
            int(match[4]),
            zero_bits=4 if packed else 16 if match[5] else 0,
            column_bytes=4 if match[3] else 0,
            source=_AWQ if packed else _GROUP,
        )
    return find_name("number format", name, _BY_NAME, _ALIASES)


def ggml_format(ggml_type: int) -> NumberFormat:
    """The format of a ggml tensor type number, as a GGUF tensor table holds it.

    Raises:  UnknownNameError
    """
    if ggml_type not in _BY_GGML_TYPE:
        known = ", ".join(f"{number}={fmt.name}" for number, fmt in sorted(_BY_GGML_TYPE.items()))
        raise UnknownNameError(f"ggml tensor type {ggml_type} is not known; known: {known}")
    return _BY_GGML_TYPE[ggml_type]
