"""The key-values of a GGUF file as the bytes they are: copied as they stand, and read element by element where a header is not enough.

In:   a file whose header was read and found sound
Out:  RawMetadata: the bytes, the strings and numbers of a key, and the same bytes with the file type changed
Leaves out: what the keys mean
Read next by: gguf_file, hugging_face_tokenizer.

Source: ggml, docs/gguf.md
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inference_bench.errors import ModelFileError
from inference_bench.facts.gguf_header import GGUFHeader

FIXED_HEAD_BYTES: Final = 24  # magic, version, number of tensors, number of keys
_STRING, _ARRAY = 8, 9
_SIZES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_INTEGERS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 10: "Q", 11: "q"}
_UINT32: Final = 4
_FILE_TYPE_KEY: Final = "general.file_type"


def tensor_table_bytes(header: GGUFHeader) -> int:
    """Bytes of the tensor table.

    Formula:  for each tensor: 8 + name + 4 + 8 · dimensions + 4 + 8
    """
    return sum(24 + len(tensor.name.encode()) + 8 * len(tensor.shape) for tensor in header.tensors)


@dataclass(frozen=True, slots=True)
class RawMetadata:
    """The key-values, little-endian, and where in them the value of each key begins.

    Where:    at maps a key to its value type and to the offset of its value in raw
    """

    name: str
    raw: bytes
    at: dict[str, tuple[int, int]]

    def with_file_type(self, file_type: int) -> bytes:
        """The same bytes, saying that most tensors are of that type; unchanged where the file says nothing of it."""
        value_type, start = self.at.get(_FILE_TYPE_KEY, (None, 0))
        if value_type != _UINT32:
            return self.raw
        return self.raw[:start] + struct.pack("<I", file_type) + self.raw[start + 4 :]

    def strings(self, key: str) -> tuple[str, ...]:
        """The elements of an array of strings; none where there is no such key.

        Raises:   ModelFileError if it is another type, or an element is no UTF-8
        """
        count, at = self._array(key, (_STRING,), "strings")
        found = []
        for index in range(count):
            (size,) = struct.unpack_from("<Q", self.raw, at)
            at += 8 + size
            try:
                found.append(self.raw[at - size : at].decode())
            except UnicodeDecodeError:
                raise ModelFileError(f"{self.name}: element {index} of {key} is not UTF-8") from None
        return tuple(found)

    def integers(self, key: str) -> tuple[int, ...]:
        """The elements of an array of whole numbers; none where there is no such key.

        Raises:   ModelFileError if it is another type
        """
        count, at = self._array(key, tuple(_INTEGERS), "whole numbers")
        return struct.unpack_from(f"<{count}{_INTEGERS[self._element_type(key)]}", self.raw, at) if count else ()

    def _element_type(self, key: str) -> int:
        return int(struct.unpack_from("<I", self.raw, self.at[key][1])[0])

    def _array(self, key: str, element_types: tuple[int, ...], what: str) -> tuple[int, int]:
        """How many elements, and where the first begins."""
        if key not in self.at:
            return 0, 0
        value_type, start = self.at[key]
        if value_type != _ARRAY or self._element_type(key) not in element_types:
            raise ModelFileError(f"{self.name}: key {key} must hold an array of {what}")
        return int(struct.unpack_from("<Q", self.raw, start + 4)[0]), start + 12


def read_raw_metadata(header: GGUFHeader, path: Path) -> RawMetadata:
    """The key-values of a file whose header was read just now.

    Raises:   ModelFileError if it can no longer be read as it was then
    """
    num_bytes = header.header_bytes - tensor_table_bytes(header) - FIXED_HEAD_BYTES
    try:
        with path.open("rb") as file:
            file.seek(FIXED_HEAD_BYTES)
            raw = file.read(num_bytes)
        return RawMetadata(path.name, raw, dict(_walk(raw, len(header.metadata))))
    except OSError as error:
        raise ModelFileError(f"cannot read {path.name}: {error.strerror or error}") from error
    except (struct.error, UnicodeDecodeError, KeyError):
        raise ModelFileError(f"{path.name} changed while it was read; try again") from None


def _walk(raw: bytes, num_keys: int) -> Iterator[tuple[str, tuple[int, int]]]:
    at = 0
    for _ in range(num_keys):
        (size,) = struct.unpack_from("<Q", raw, at)
        key = raw[at + 8 : at + 8 + size].decode()
        (value_type,) = struct.unpack_from("<I", raw, at + 8 + size)
        at += 12 + size
        yield key, (value_type, at)
        at = _end_of(raw, value_type, at)


def _end_of(raw: bytes, value_type: int, at: int) -> int:
    """Where the value that begins here ends."""
    if value_type == _STRING:
        return at + 8 + int(struct.unpack_from("<Q", raw, at)[0])
    if value_type != _ARRAY:
        return at + _SIZES[value_type]
    element_type, count = struct.unpack_from("<IQ", raw, at)
    at += 12
    if element_type not in (_STRING, _ARRAY):
        return int(at + count * _SIZES[element_type])
    for _ in range(count):
        at = _end_of(raw, element_type, at)
    return at
