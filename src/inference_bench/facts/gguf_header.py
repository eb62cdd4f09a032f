"""What a GGUF header holds, as plain values: metadata, tensor table, layout.

In:   nothing; gguf.py builds these
Out:  GGUFHeader, with typed access to its metadata
Leaves out: how a header is read, and the sizes of number formats
Read next by: gguf (reads them), gguf_model (header → model), accounting.weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from inference_bench.errors import ModelFileError
from inference_bench.facts.byte_window import shown
from inference_bench.units import KIBI

MAX_KEPT_VALUES: Final = 4 * KIBI  # a longer array of numbers keeps only its count

_T = TypeVar("_T", int, float, str, bool)


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """One row of the tensor table.

    Shape:    as stored, the dimension that is contiguous in memory first
    Where:    offset counts bytes from the start of the data
    """

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int

    @property
    def num_values(self) -> int:
        """Numbers the tensor holds; one without dimensions holds one."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class GGUFArray:
    """An array value; elements are kept only for up to MAX_KEPT_VALUES numbers or bools."""

    element_type: str
    count: int
    values: tuple[int | float | bool, ...] | None


@dataclass(frozen=True, slots=True)
class GGUFLongText:
    """A string value too long to keep, such as an embedded tokenizer.json."""

    num_bytes: int


MetadataValue: TypeAlias = bool | int | float | str | GGUFArray | GGUFLongText


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """Everything before the weights of a GGUF file.

    Where:    header_bytes ends with the tensor table; data_offset is that, padded to alignment;
              file_bytes is None where the source does not know its size; name is how errors call the file
    Ignores:  the other parts of a model split over several files (keys split.count and split.no)
    """

    version: int
    metadata: Mapping[str, MetadataValue]
    tensors: tuple[GGUFTensor, ...]
    alignment: int
    data_offset: int
    header_bytes: int
    file_bytes: int | None
    big_endian: bool
    name: str

    def get_int(self, key: str) -> int | None:
        """The whole number under key, None where there is no such key; ModelFileError for another type."""
        return self._one(key, int)

    def get_float(self, key: str) -> float | None:
        """The float under key, None where there is no such key; ModelFileError for another type."""
        return self._one(key, float)

    def get_bool(self, key: str) -> bool | None:
        """The truth value under key, None where there is no such key; ModelFileError for another type."""
        return self._one(key, bool)

    def get_str(self, key: str) -> str | None:
        """The text under key, None where there is no such key; ModelFileError for another type."""
        return self._one(key, str)

    def get_ints(self, key: str) -> tuple[int, ...] | None:
        """The whole numbers under key, an array or a single one; None where there is no such key."""
        return self._several(key, int)

    def get_bools(self, key: str) -> tuple[bool, ...] | None:
        """The truth values under key, an array or a single one; None where there is no such key."""
        return self._several(key, bool)

    def require_int(self, key: str) -> int:
        """The whole number under key; ModelFileError where there is none."""
        value = self.get_int(key)
        if value is None:
            raise ModelFileError(f"GGUF file {self.name!r} has no key {shown(key)}; it must hold a whole number")
        return value

    def _one(self, key: str, kind: type[_T]) -> _T | None:
        value = self.metadata.get(key)
        if value is None or type(value) is kind:
            return value
        found = described(value)
        raise ModelFileError(f"GGUF file {self.name!r}: key {shown(key)} holds {found}; allowed: {kind.__name__}")

    def _several(self, key: str, kind: type[_T]) -> tuple[_T, ...] | None:
        value = self.metadata.get(key)
        if not isinstance(value, GGUFArray):
            single = self._one(key, kind)
            return None if single is None else (single,)
        values: tuple[Any, ...] = value.values or ()
        kept = tuple(item for item in values if type(item) is kind)
        if len(kept) == value.count:
            return kept
        allowed = f"{kind.__name__} or an array of up to {MAX_KEPT_VALUES} of it"
        found = described(value)
        raise ModelFileError(f"GGUF file {self.name!r}: key {shown(key)} holds {found}; allowed: {allowed}")


def described(value: MetadataValue) -> str:
    """A metadata value as an error prints it: its type, and what it holds where that is short."""
    match value:
        case GGUFArray():
            return f"an array of {value.count} {value.element_type}"
        case GGUFLongText():
            return f"a text of {value.num_bytes} bytes"
        case _:
            return f"{type(value).__name__} {shown(value) if isinstance(value, str) else value}"
