"""The metadata of one GGUF file under its architecture's prefix, and the tensors of its blocks, with types checked.

In:   GGUFHeader
Out:  whole numbers, one or one for each layer; the shapes of a block's tensors
Leaves out: what they mean for a design (see gguf_layers)
Read next by: gguf_layers, gguf_model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from inference_bench.errors import ModelFileError
from inference_bench.facts.gguf_header import GGUFArray, GGUFHeader, GGUFTensor

MAX_LAYERS: Final = 4096
_MAX_VALUE: Final = 1 << 40


class GGUFMetadata:
    """Typed access to the keys of one architecture."""

    def __init__(self, header: GGUFHeader, file_name: str, architecture: str) -> None:
        self.header = header
        self.file_name = file_name
        self.architecture = architecture

    def error(self, detail: str) -> ModelFileError:
        """The error for metadata that cannot be counted."""
        return ModelFileError(f"{self.file_name}: {detail}")

    def name_of(self, key: str) -> str:
        """The key with its prefix."""
        return f"{self.architecture}.{key}"

    def optional(self, key: str, minimum: int = 1) -> int | tuple[int, ...] | None:
        """A whole number, or one for each layer; None when absent."""
        value = self.header.metadata.get(self.name_of(key))
        if value is None:
            return None
        if not isinstance(value, GGUFArray):
            return self._whole(key, value, minimum)
        if value.values is None:
            raise self.error(f"{self.name_of(key)} is a list of {value.count}; whole numbers are needed")
        return tuple(self._whole(key, item, minimum) for item in value.values)

    def one(self, key: str, default: int | None = None, minimum: int = 1) -> int | None:
        """One whole number; the first of a list that repeats it."""
        value = self.optional(key, minimum)
        if not isinstance(value, tuple):
            return default if value is None else value
        if not value or len(set(value)) != 1:
            raise self.error(f"{self.name_of(key)} is a list; one whole number is needed")
        return value[0]

    def integer(self, key: str) -> int:
        """One whole number that must be there."""
        value = self.optional(key)
        if not isinstance(value, int):
            found = "a list" if value else "missing"
            raise self.error(f"{self.name_of(key)} is {found}; one whole number is needed")
        return value

    def per_layer(self, key: str, num_layers: int, default: int | None = None) -> tuple[int, ...]:
        """One number for each layer: the file holds either one for all or a list; a list may hold zeros."""
        value = self.optional(key, minimum=0)
        if value is None and default is None:
            raise self.error(f"there is no {self.name_of(key)}; it is needed to count this model")
        if isinstance(value, tuple):
            if len(value) < num_layers:
                raise self.error(f"{self.name_of(key)} has {len(value)} entries for {num_layers} layers")
            return value[:num_layers]
        return (default or 0 if value is None else value,) * num_layers

    def flags(self, key: str, num_layers: int) -> tuple[bool, ...] | None:
        """Yes or no for each layer, None when absent or no list."""
        value = self.header.metadata.get(self.name_of(key))
        if not isinstance(value, GGUFArray):
            return None
        if value.values is None or len(value.values) < num_layers:
            raise self.error(f"{self.name_of(key)} has {value.count} entries for {num_layers} layers")
        return tuple(bool(item) for item in value.values[:num_layers])

    def _whole(self, key: str, item: object, minimum: int) -> int:
        if isinstance(item, bool) or not isinstance(item, int) or not minimum <= item < _MAX_VALUE:
            above = "above zero" if minimum else "from zero on"
            raise self.error(f"{self.name_of(key)} is {str(item)[:40]}; a whole number {above} is needed")
        return item


class Block:
    """The tensors of one block by name without its number; what is taken is counted by the part that took it."""

    def __init__(self, tensors: Mapping[str, GGUFTensor]) -> None:
        self._tensors = dict(tensors)
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, *names: str) -> None:
        """Mark tensors as counted elsewhere."""
        self._taken.update(names)

    def shape(self, name: str) -> tuple[int, int]:
        """Output rows and input columns of a matrix; experts are stacked beyond."""
        tensor = self._tensors.get(name)
        if tensor is None:
            return (0, 0)
        return (tensor.shape[1] if len(tensor.shape) > 1 else 1, tensor.shape[0])

    def size(self, *names: str) -> int:
        """Values of the named tensors that are there."""
        return sum(self._tensors[name].num_values for name in names if name in self._tensors)

    def rest(self) -> tuple[int, int]:
        """Values of the norms that nobody took, and of the other tensors."""
        left = {name: tensor.num_values for name, tensor in self._tensors.items() if name not in self._taken}
        norms = sum(size for name, size in left.items() if "norm" in name)
        return norms, sum(left.values()) - norms
