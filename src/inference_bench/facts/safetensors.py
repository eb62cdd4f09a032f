"""What a safetensors file says about itself: its tensor table, without touching the weights.

In:   a path, or any source that hands out byte ranges (a browser's dropped file, a remote file read by range)
Out:  SafetensorsHeader: tensors with dtype, shape and place
Leaves out: tensor data; what a tensor is for (see safetensors_model)
Read next by: safetensors_model (headers → model).

A header is an 8-byte length and a JSON object. It is walked entry by entry, so that no header, however hostile, costs
more memory than MAX_HEADER_BYTES and what is kept of MAX_TENSORS tensors.

Source: safetensors format description, 0.8 (a tensor's bytes begin where those before it end, and fill the file)
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from inference_bench.errors import ModelFileError
from inference_bench.facts.byte_window import ByteSource, open_model_file, shown
from inference_bench.facts.json_walker import JsonWalker
from inference_bench.units import KIBI, MEBI

MAX_HEADER_BYTES: Final = 32 * MEBI  # the format allows 100 MB; 100,000 tensors take about 13 MB
MAX_TENSORS: Final = 128 * KIBI  # in one file
MAX_DIMENSIONS: Final = 16
MAX_TENSOR_VALUES: Final = (1 << 63) - 1
MAX_METADATA_BYTES: Final = MEBI

# bits a value of each dtype takes
DTYPE_BITS: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
        **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
        **dict.fromkeys(("U32", "I32", "F32"), 32),
        **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
        "F4": 4,
        "F6_E2M3": 6,
        "F6_E3M2": 6,
    }
)

_LENGTH_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class SafetensorsTensor:
    """One row of the tensor table.

    Where:  shape is as stored, the last dimension contiguous in memory; offset counts bytes from the start of the data
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int

    @property
    def num_values(self) -> int:
        """Values of the dtype; a packed tensor holds several weights in each."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """Everything before the weights of one safetensors file.

    Where:  file_bytes is None where the source does not know its size; metadata is the free-form text map
    """

    tensors: tuple[SafetensorsTensor, ...]
    metadata: Mapping[str, str]
    data_offset: int
    file_bytes: int | None
    name: str

    @property
    def data_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.num_bytes for tensor in self.tensors)


def parse_safetensors_header(source: ByteSource, name: str = "the given bytes") -> SafetensorsHeader:
    """Read the header of a safetensors file from anything that hands out byte ranges.

    Where:    name is how errors call the file
    Ignores:  tensor data
    Raises:   ModelFileError if it is not safetensors, is truncated, or claims what cannot be true;
              what source.read raises
    """
    what = f"cannot read the safetensors header of {name!r}"
    text = _header_text(source, what)
    walker = JsonWalker(text, what)
    metadata: dict[str, str] = {}
    tensors: dict[str, SafetensorsTensor] = {}
    seen_metadata = False
    for key in walker.walk_keys():
        if key == "__metadata__":
            if seen_metadata:
                raise walker.error("the key '__metadata__' is there twice")
            seen_metadata, metadata = True, _metadata(walker)
            continue
        if key in tensors:
            raise walker.error(f"the tensor {shown(key)} is there twice")
        if len(tensors) >= MAX_TENSORS:
            raise walker.error(f"more than {MAX_TENSORS} tensors; allowed: up to that")
        tensors[key] = _tensor(walker, key)
    if not walker.at_end():
        raise walker.error(f"at byte {walker.at}: something follows the object")
    data_offset = _LENGTH_BYTES + len(text)
    ordered = tuple(sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.num_bytes)))
    _check_layout(ordered, data_offset, source.size, what)
    return SafetensorsHeader(ordered, MappingProxyType(metadata), data_offset, source.size, name)


def _header_text(source: ByteSource, what: str) -> bytes:
    front = _read_all(source, 0, _LENGTH_BYTES)
    if len(front) < _LENGTH_BYTES:
        raise ModelFileError(f"{what}: it has {len(front)} bytes; a safetensors file begins with a length of 8 bytes")
    length = int.from_bytes(front, "little")
    size = source.size
    if length > MAX_HEADER_BYTES and (front.lstrip()[:1] in (b"<", b"{") or front[:4] in (b"GGUF", b"PK\x03\x04")):
        raise ModelFileError(f"{what}: it begins with {front!r}, which is another kind of file; fetch it again")
    if size is not None and _LENGTH_BYTES + length > size:
        raise ModelFileError(f"{what}: truncated or lying: a header of {length} bytes in a file of {size}")
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise ModelFileError(f"{what}: a header of {length} bytes; allowed: 2 to {MAX_HEADER_BYTES}")
    text = _read_all(source, _LENGTH_BYTES, length)
    if len(text) < length:
        raise ModelFileError(f"{what}: truncated: the header has {length} bytes, {len(text)} could be read")
    if not text.startswith(b"{"):
        raise ModelFileError(f"{what}: the header begins with {text[:8]!r}; it must begin with '{{'")
    return text


def _read_all(source: ByteSource, offset: int, num_bytes: int) -> bytes:
    """So many bytes, fewer only at the end, however little one read of the source returns."""
    pieces: list[bytes] = []
    left = num_bytes
    while left:
        piece = source.read(offset, left)[:left]
        if not piece:
            break
        pieces.append(piece)
        offset, left = offset + len(piece), left - len(piece)
    return b"".join(pieces)


def _metadata(walker: JsonWalker) -> dict[str, str]:
    if not walker.at_object():
        raise walker.error("__metadata__ should be an object that holds texts")
    found: dict[str, str] = {}
    kept_bytes = 0
    for key in walker.walk_keys():
        if key in found:
            raise walker.error(f"the key {shown(key)} of __metadata__ is there twice")
        found[key] = walker.string(f"__metadata__ {shown(key)}", MAX_METADATA_BYTES)
        kept_bytes += len(key) + len(found[key])
        if kept_bytes > MAX_METADATA_BYTES:
            raise walker.error(f"__metadata__ is longer than {MAX_METADATA_BYTES} bytes; allowed: up to that")
    return found


def _tensor(walker: JsonWalker, name: str) -> SafetensorsTensor:
    what = f"tensor {shown(name)}"
    fields = walker.flat_object(what)
    if set(fields) != {"dtype", "shape", "data_offsets"}:
        raise walker.error(
            f"{what} has the fields {', '.join(sorted(fields))[:80]}; dtype, shape, data_offsets are needed"
        )
    dtype = fields["dtype"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise walker.error(f"{what} has the dtype {str(dtype)[:40]!r}; known: {', '.join(DTYPE_BITS)}")
    shape = _whole_numbers(walker, fields["shape"], f"the shape of {what}", MAX_DIMENSIONS)
    offsets = _whole_numbers(walker, fields["data_offsets"], f"data_offsets of {what}", 2)
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise walker.error(f"data_offsets of {what} is {list(offsets)}; a begin and an end not before it are needed")
    num_values = math.prod(shape)
    if num_values > MAX_TENSOR_VALUES:
        raise walker.error(f"{what} has the shape {list(shape)}; allowed: up to 2^63 - 1 values")
    bits, span = num_values * DTYPE_BITS[dtype], offsets[1] - offsets[0]
    if bits != span * 8:
        raise walker.error(f"{what} of {dtype} {list(shape)} needs {bits / 8:g} bytes, its data_offsets span {span}")
    return SafetensorsTensor(name, dtype, shape, offsets[0], span)


def _whole_numbers(walker: JsonWalker, value: object, what: str, max_count: int) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > max_count:
        raise walker.error(f"{what} is {str(value)[:40]!r}; a list of up to {max_count} whole numbers is needed")
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item <= MAX_TENSOR_VALUES:
            raise walker.error(f"{what} holds {str(item)[:40]}; whole numbers from 0 to 2^63 - 1 are needed")
    return tuple(value)


def _check_layout(tensors: tuple[SafetensorsTensor, ...], data_offset: int, size: int | None, what: str) -> None:
    """Each tensor begins where the one before it ends, and the last one ends the file."""
    end = 0
    for tensor in tensors:
        if tensor.offset != end:
            word = "overlaps the one before it" if tensor.offset < end else "leaves a gap before it"
            raise ModelFileError(
                f"{what}: tensor {shown(tensor.name)} {word}: it begins at data byte {tensor.offset}, not {end}"
            )
        end += tensor.num_bytes
    if size is not None and data_offset + end != size:
        word = "truncated or lying" if data_offset + end > size else "bytes are left over"
        raise ModelFileError(f"{what}: {word}: the tensors end at byte {data_offset + end}, the file at byte {size}")


def read_safetensors_header(path: str | os.PathLike[str]) -> SafetensorsHeader:
    """Read the header of a safetensors file on disk.

    Raises:   ModelFileError if the file cannot be read, or its header is refused
    """
    with open_model_file(path, "safetensors") as source:
        return parse_safetensors_header(source, os.path.basename(os.fspath(path)))
