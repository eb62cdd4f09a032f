"""What a GGUF file says about itself: its key-values and its tensor table, without touching the weights.

In:   a path, or any source that hands out byte ranges (a browser's dropped file, a remote file read by range)
Out:  GGUFHeader: metadata, tensors with shape, type number and offset, and where the data begins
Leaves out: tensor data; the elements of string arrays and of long ones (tokens, scores, merges), of which only the
      count is kept; the sizes of number formats, so an unknown tensor type is no error here
Read next by: gguf_model (header → model), accounting.weights.

The file may be of any size, and hostile: bytes come through one sliding window that never reaches further than
WINDOW_BYTES past the header, and what is kept is capped at MAX_KEPT_BYTES whatever the header claims.

Source: ggml, docs/gguf.md (versions 2 and 3)
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

from inference_bench.errors import ModelFileError
from inference_bench.facts.byte_window import ByteSource, ByteWindow, open_model_file, shown
from inference_bench.facts.gguf_header import (
    MAX_KEPT_VALUES,
    GGUFArray,
    GGUFHeader,
    GGUFLongText,
    GGUFTensor,
    MetadataValue,
    described,
)
from inference_bench.units import KIBI, MEBI

MAX_KEPT_BYTES: Final = 48 * MEBI  # estimated memory of all that a GGUFHeader holds
MAX_KEYS: Final = 64 * KIBI
MAX_TENSORS: Final = 64 * KIBI
MAX_KEY_BYTES: Final = 64 * KIBI - 1  # set by the format
MAX_TENSOR_NAME_BYTES: Final = KIBI  # the format says 64, some builds of ggml allow more
MAX_TEXT_BYTES: Final = MEBI  # a longer string value is stepped over and becomes a GGUFLongText
MAX_WALKED_STRINGS: Final = 16 * MEBI  # elements of string arrays, which must be stepped over one by one
MAX_WALKED_ARRAYS: Final = MEBI  # the same of arrays of arrays; no known model has one
MAX_ARRAY_DEPTH: Final = 4
MAX_DIMENSIONS: Final = 4  # set by ggml
MAX_TENSOR_VALUES: Final = (1 << 63) - 1

_MAGIC: Final = b"GGUF"
_ALIGNMENT_KEY: Final = "general.alignment"
_BOOL, _STRING, _ARRAY = 7, 8, 9
_NUMBERS: Final = {  # value type number → (name, struct code)
    0: ("uint8", "B"),
    1: ("int8", "b"),
    2: ("uint16", "H"),
    3: ("int16", "h"),
    4: ("uint32", "I"),
    5: ("int32", "i"),
    6: ("float32", "f"),
    _BOOL: ("bool", "B"),
    10: ("uint64", "Q"),
    11: ("int64", "q"),
    12: ("float64", "d"),
}
_WALKED_TYPES: Final = {_STRING: (8, MAX_WALKED_STRINGS), _ARRAY: (12, MAX_WALKED_ARRAYS)}  # least bytes of an element
_KEY_COST, _TENSOR_COST, _TEXT_COST, _NUMBER_COST = 256, 448, 64, 40  # bytes of memory each takes, rounded up


class _HeaderReader:
    """Reads key-values and the tensor table in file order, and keeps account of what they cost."""

    def __init__(self, cursor: ByteWindow) -> None:
        self._cursor = cursor
        self._kept_bytes = 0
        self._num_walked = {_STRING: 0, _ARRAY: 0}

    def read_metadata(self, num_keys: int) -> dict[str, MetadataValue]:
        metadata: dict[str, MetadataValue] = {}
        for index in range(num_keys):
            key = self._read_name(f"key {index}", MAX_KEY_BYTES, metadata)
            self._keep(_KEY_COST, f"key {index}")
            metadata[key] = self._read_value(f"key {shown(key)}")
        return metadata

    def read_tensors(self, num_tensors: int) -> tuple[GGUFTensor, ...]:
        tensors: dict[str, GGUFTensor] = {}
        for index in range(num_tensors):
            name = self._read_name(f"the name of tensor {index}", MAX_TENSOR_NAME_BYTES, tensors)
            self._keep(_TENSOR_COST, f"tensor {index}")
            tensors[name] = self._read_tensor(name)
        return tuple(tensors.values())

    def _read_name(self, what: str, max_bytes: int, taken: Mapping[str, object]) -> str:
        start = self._cursor.offset
        (num_bytes,) = self._cursor.unpack("Q", what)
        if not 1 <= num_bytes <= max_bytes:
            raise self._refused(start, f"{what} is {num_bytes} bytes long", f"1 to {max_bytes}")
        raw = self._take_text(num_bytes, what)
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            raise self._refused(start, f"{what} is {raw[:40]!r}", "UTF-8") from None
        if name in taken:
            raise self._refused(start, f"{what} is {shown(name)} again", "each name once")
        return name

    def _read_tensor(self, name: str) -> GGUFTensor:
        start, what = self._cursor.offset, f"tensor {shown(name)}"
        (num_dimensions,) = self._cursor.unpack("I", what)
        if num_dimensions > MAX_DIMENSIONS:
            raise self._refused(start, f"{what} has {num_dimensions} dimensions", f"0 to {MAX_DIMENSIONS}")
        *shape, ggml_type, offset = self._cursor.unpack(f"{num_dimensions}QIQ", what)
        tensor = GGUFTensor(name, tuple(shape), ggml_type, offset)
        if not 1 <= tensor.num_values <= MAX_TENSOR_VALUES:
            raise self._refused(start, f"{what} has the shape {tensor.shape}", "1 to 2^63 - 1 values")
        return tensor

    def _read_value(self, what: str) -> MetadataValue:
        start = self._cursor.offset
        (type_number,) = self._cursor.unpack("I", what)
        if type_number == _STRING:
            return self._read_text(what)
        if type_number == _ARRAY:
            return self._read_array(what, depth=1)
        value: MetadataValue = self._read_numbers(type_number, 1, what, start)[0]
        return value

    def _read_text(self, what: str) -> str | GGUFLongText:
        """A string value; bytes that are not UTF-8 are replaced, since no count depends on them."""
        (num_bytes,) = self._cursor.unpack("Q", what)
        if num_bytes <= MAX_TEXT_BYTES:
            return self._take_text(num_bytes, what).decode(errors="replace")
        self._cursor.skip(num_bytes, what)
        return GGUFLongText(num_bytes)

    def _read_array(self, what: str, depth: int) -> GGUFArray:
        start = self._cursor.offset
        if depth > MAX_ARRAY_DEPTH:
            raise self._refused(start, f"{what} nests arrays {depth} deep", f"up to {MAX_ARRAY_DEPTH}")
        type_number, count = self._cursor.unpack("IQ", what)
        if type_number == _STRING:
            self._walk(_STRING, count, what)
            self._cursor.skip_strings(count, what)
            return GGUFArray("string", count, None)
        if type_number == _ARRAY:
            self._walk(_ARRAY, count, what)
            for _ in range(count):
                self._read_array(what, depth + 1)
            return GGUFArray("array", count, None)
        name, code = self._number_type(type_number, what, start)
        if count > MAX_KEPT_VALUES or depth > 1:
            self._cursor.skip(count * struct.calcsize(f"<{code}"), what)
            return GGUFArray(name, count, None)
        return GGUFArray(name, count, self._read_numbers(type_number, count, what, start))

    def _read_numbers(self, type_number: int, count: int, what: str, start: int) -> tuple[Any, ...]:
        _, code = self._number_type(type_number, what, start)
        self._keep(count * _NUMBER_COST, what)
        values = self._cursor.unpack(f"{count}{code}", what)
        if type_number != _BOOL:
            return values
        if max(values, default=0) > 1:
            raise self._refused(start, f"{what} holds the bool {max(values)}", "0 and 1")
        return tuple(map(bool, values))

    def _number_type(self, type_number: int, what: str, start: int) -> tuple[str, str]:
        if type_number not in _NUMBERS:
            raise self._refused(start, f"{what} has the value type {type_number}", "0 to 12")
        return _NUMBERS[type_number]

    def _take_text(self, num_bytes: int, what: str) -> bytes:
        raw = self._cursor.take(num_bytes, what)
        self._keep(_TEXT_COST + num_bytes * (1 if raw.isascii() else 4), what)
        return raw

    def _keep(self, num_bytes: int, what: str) -> None:
        self._kept_bytes += num_bytes
        if self._kept_bytes > MAX_KEPT_BYTES:
            raise self._refused(self._cursor.offset, f"{what} fills the memory", f"up to {MAX_KEPT_BYTES} bytes")

    def _walk(self, type_number: int, count: int, what: str) -> None:
        """Take on an array whose elements must be stepped over one by one."""
        min_bytes_each, allowed = _WALKED_TYPES[type_number]
        self._cursor.check_room(count * min_bytes_each, what)
        self._num_walked[type_number] += count
        if self._num_walked[type_number] > allowed:
            found = f"{what} brings the elements to step over to {self._num_walked[type_number]}"
            raise self._refused(self._cursor.offset, found, f"up to {allowed}")

    def _refused(self, start: int, found: str, allowed: str) -> ModelFileError:
        return self._cursor.error(f"at byte {start}: {found}; allowed: {allowed}")


def _read_magic(cursor: ByteWindow) -> None:
    first = cursor.peek(16)
    if not first:
        raise cursor.error("it is empty")
    if not first.startswith(_MAGIC):
        hint = " and looks like a web page, so fetch it again" if first.lstrip().startswith(b"<") else ""
        raise cursor.error(f"it begins with {first[:8]!r} where a GGUF file has {_MAGIC!r}{hint}")
    cursor.skip(len(_MAGIC), "the magic")


def _read_version(cursor: ByteWindow) -> int:
    """The format version; sets the byte order too, which shows only in how the version is stored."""
    raw = cursor.take(4, "the version")
    little, big = int.from_bytes(raw, "little"), int.from_bytes(raw, "big")
    if little in (2, 3):
        return little
    if big == 3:
        cursor.order = ">"
        return big
    version = min(little, big)
    raise cursor.error(f"at byte 4: version {version}; allowed: 2 and 3, big-endian only 3; convert the model again")


def _read_count(cursor: ByteWindow, what: str, max_count: int) -> int:
    start = cursor.offset
    (count,) = cursor.unpack("Q", f"the number of {what}")
    if count > max_count:
        raise cursor.error(f"at byte {start}: {count} {what}; allowed: up to {max_count}")
    return int(count)


def _find_alignment(cursor: ByteWindow, metadata: Mapping[str, MetadataValue]) -> int:
    value = metadata.get(_ALIGNMENT_KEY, 32)
    if type(value) is not int or value < 1 or value & (value - 1):
        raise cursor.error(f"key {_ALIGNMENT_KEY!r} holds {described(value)}; allowed: a power of two")
    return value


def _check_offsets(cursor: ByteWindow, header: GGUFHeader) -> None:
    for tensor in header.tensors:
        what = f"tensor {shown(tensor.name)}"
        if tensor.offset % header.alignment:
            raise cursor.error(f"{what} has the offset {tensor.offset}; allowed: multiples of {header.alignment}")
        first_byte_end = header.data_offset + tensor.offset + 1
        if header.file_bytes is not None and first_byte_end > header.file_bytes:
            raise cursor.truncated(what, first_byte_end, header.file_bytes)


def parse_gguf_header(source: ByteSource, name: str = "the given bytes") -> GGUFHeader:
    """Read the header of a GGUF file from anything that hands out byte ranges.

    Where:    name is how errors call the file
    Ignores:  tensor data, and so whether a tensor's last byte is there (see check_tensor_extents)
    Raises:   ModelFileError if it is not GGUF 2 or 3, is truncated, or claims what cannot be true;
              what source.read raises
    """
    cursor = ByteWindow(source, name)
    _read_magic(cursor)
    version = _read_version(cursor)
    num_tensors = _read_count(cursor, "tensors", MAX_TENSORS)
    num_keys = _read_count(cursor, "keys", MAX_KEYS)
    reader = _HeaderReader(cursor)
    metadata = reader.read_metadata(num_keys)
    tensors = reader.read_tensors(num_tensors)
    alignment = _find_alignment(cursor, metadata)
    header = GGUFHeader(
        version=version,
        metadata=MappingProxyType(metadata),
        tensors=tensors,
        alignment=alignment,
        data_offset=-(-cursor.offset // alignment) * alignment,
        header_bytes=cursor.offset,
        file_bytes=source.size,
        big_endian=cursor.order == ">",
        name=name,
    )
    _check_offsets(cursor, header)
    return header


def read_gguf_header(path: str | os.PathLike[str]) -> GGUFHeader:
    """Read the header of a GGUF file on disk.

    Raises:   ModelFileError if the file cannot be read, or its header is refused (see parse_gguf_header)
    """
    with open_model_file(path, "GGUF", "; give the path of one .gguf file") as source:
        return parse_gguf_header(source, os.fspath(path))


def check_tensor_extents(header: GGUFHeader, size_of: Callable[[GGUFTensor], int]) -> None:
    """Refuse a file in which a tensor overlaps the next one or reaches past the end of the file.

    Where:    size_of gives the stored bytes of one tensor
    Raises:   ModelFileError; what size_of raises
    """
    extents = sorted((tensor.offset, tensor.offset + size_of(tensor), tensor.name) for tensor in header.tensors)
    for (_, end, name), (next_start, _, next_name) in pairwise(extents):
        if end > next_start:
            what = (
                f"tensor {shown(name)} takes data bytes up to {end}, tensor {shown(next_name)} begins at {next_start}"
            )
            raise ModelFileError(f"GGUF file {header.name!r} lies: {what}; allowed: no overlap")
    for _, end, name in extents:
        end_in_file = header.data_offset + end
        if header.file_bytes is not None and end_in_file > header.file_bytes:
            what = f"tensor {shown(name)} would reach byte {end_in_file}, the file ends at byte {header.file_bytes}"
            raise ModelFileError(f"GGUF file {header.name!r} is truncated or lying: {what}")
