"""Two ways to keep keys and values: joined to a longer tensor at each step, or written into room that was set aside.

In:   keys and values of new tokens, layer by layer
Out:  those of all tokens so far; bytes filled, bytes copied, bytes held at most
Leaves out: who computes them (toy)
Read next by: toy, toy_paths, growth.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from inference_bench.errors import RequestError
from inference_bench.labs.cache.result import CONCATENATING, PREALLOCATED


class Store(Protocol):
    """Keys and values of every layer for one sequence.

    Shape:  [K, num_tokens, H] of one layer
    """

    name: str
    copied_bytes: int

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add new tokens to a layer, and give that layer's keys and values of all tokens."""
        ...

    @property
    def num_positions(self) -> int:
        """Tokens of which every layer has keys and values."""
        ...

    @property
    def filled_bytes(self) -> int:
        """Bytes of what is kept, counted from the tensors."""
        ...

    @property
    def peak_bytes(self) -> int:
        """The most bytes its tensors have held at one moment."""
        ...

    def copy(self) -> Store:
        """The same content in memory of its own."""
        ...


def tensor_bytes(*tensors: Tensor) -> int:
    """Bytes of the values of tensors, whatever else their memory holds."""
    return sum(each.numel() * each.element_size() for each in tensors)


def concatenated_rows(num_prompt: int, num_positions: int) -> int:
    """Rows written when a cache grows from a prompt, one token a step, by joining.

    Formula:  Σ t for t = P … T = T(T + 1)/2 - P(P - 1)/2
    Where:    P prompt, T positions at the end: the prompt is written once, then each step writes all rows anew

    >>> concatenated_rows(1, 4), concatenated_rows(3, 4)
    (10, 7)
    """
    return num_positions * (num_positions + 1) // 2 - num_prompt * (num_prompt - 1) // 2


class ConcatenatingStore:
    """Each step makes a tensor that is one row longer, and copies every row there is into it."""

    name = CONCATENATING

    def __init__(self, num_layers: int) -> None:
        self.layers: list[tuple[Tensor, Tensor] | None] = [None] * num_layers
        self.copied_bytes = 0
        self._held = self._peak = 0

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Join new rows to a layer's old ones."""
        old = self.layers[layer]
        joined_keys = self._joined(None if old is None else old[0], keys)
        joined_values = self._joined(None if old is None else old[1], values)
        self.layers[layer] = (joined_keys, joined_values)
        return joined_keys, joined_values

    def _joined(self, old: Tensor | None, new: Tensor) -> Tensor:
        """A new tensor of both; the old one is there until it is whole."""
        joined = new.clone() if old is None else torch.cat((old, new), dim=1)
        size = tensor_bytes(joined)
        self.copied_bytes += size
        self._peak = max(self._peak, self._held + size)
        self._held += size - (0 if old is None else tensor_bytes(old))
        return joined

    @property
    def num_positions(self) -> int:
        """Rows of the last layer, which is filled last."""
        last = self.layers[-1]
        return 0 if last is None else int(last[0].shape[1])

    @property
    def filled_bytes(self) -> int:
        """Bytes of all layers' tensors."""
        return sum(tensor_bytes(*pair) for pair in self.layers if pair is not None)

    @property
    def peak_bytes(self) -> int:
        """All layers, and the new tensor beside the old one it replaces."""
        return self._peak

    def copy(self) -> ConcatenatingStore:
        """Clones of every tensor."""
        other = ConcatenatingStore(len(self.layers))
        other.layers = [None if pair is None else (pair[0].clone(), pair[1].clone()) for pair in self.layers]
        other.copied_bytes, other._held, other._peak = self.copied_bytes, self._held, self._peak
        return other


class PreallocatedStore:
    """All room is set aside at the start; each step writes its own row alone.

    Raises:  RequestError for more tokens than there is room for
    """

    name = PREALLOCATED

    def __init__(self, num_layers: int, num_kv_heads: int, head_dim: int, capacity: int) -> None:
        self.room = torch.zeros(2, num_layers, num_kv_heads, capacity, head_dim)
        self.lengths = [0] * num_layers
        self.copied_bytes = 0

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write new rows after a layer's last."""
        start, end = self.lengths[layer], self.lengths[layer] + int(keys.shape[1])
        if end > self.room.shape[3]:
            raise RequestError(
                f"a cache with room for {self.room.shape[3]} positions cannot hold {end}; set more aside"
            )
        self.room[0, layer, :, start:end] = keys
        self.room[1, layer, :, start:end] = values
        self.copied_bytes += tensor_bytes(keys, values)
        self.lengths[layer] = end
        return self.room[0, layer, :, :end], self.room[1, layer, :, :end]

    @property
    def num_positions(self) -> int:
        """Rows of the last layer, which is filled last."""
        return self.lengths[-1]

    @property
    def filled_bytes(self) -> int:
        """Bytes of the rows that are filled."""
        return sum(tensor_bytes(self.room[:, layer, :, :end]) for layer, end in enumerate(self.lengths))

    @property
    def peak_bytes(self) -> int:
        """The whole room, from the start."""
        return tensor_bytes(self.room)

    def copy(self) -> PreallocatedStore:
        """A clone of the room."""
        _, num_layers, num_kv_heads, capacity, head_dim = self.room.shape
        other = PreallocatedStore(num_layers, num_kv_heads, head_dim, capacity)
        other.room.copy_(self.room)
        other.lengths, other.copied_bytes = list(self.lengths), self.copied_bytes
        return other
