"""What does it cost to add one token to a cache of this size, joined anew or written into its place?

In:   the shape of a model's cache, lengths
Out:  StorePoint for each length
Leaves out: computing the keys and values; a whole generation (flow, with the toy)
Read next by: flow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inference_bench.facts.models import ModelSpec
from inference_bench.labs.cache.result import StorePoint
from inference_bench.labs.cache.stores import ConcatenatingStore, PreallocatedStore, Store
from inference_bench.stats import median


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Layers, KV heads and values of a head."""

    num_layers: int
    num_kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, spec: ModelSpec) -> CacheShape:
        """That of a model's attention; layers of several kinds count as the first of them."""
        groups = spec.attention_groups()
        first = groups[0][0]
        return cls(sum(count for _, count in groups), first.num_key_value_heads, first.head_dim)


def measure_growth(
    shape: CacheShape, lengths: Sequence[int], repeats: int, seed: int, say: Callable[[str], None]
) -> tuple[StorePoint, ...]:
    """Append the last token of each length, both ways; the median of some repeats."""
    draw = torch.Generator().manual_seed(seed)
    points = []
    for length in lengths:
        say(f"appending token {length} to both kinds of cache")
        rows = torch.randn(shape.num_kv_heads, length - 1, shape.head_dim, generator=draw)
        row = torch.randn(shape.num_kv_heads, 1, shape.head_dim, generator=draw)
        joined, joined_s = _timed(lambda: ConcatenatingStore(shape.num_layers), shape, rows, row, repeats)
        placed, placed_s = _timed(
            lambda room=length: PreallocatedStore(shape.num_layers, shape.num_kv_heads, shape.head_dim, room),  # type: ignore[misc]
            shape, rows, row, repeats,
        )  # fmt: skip
        points.append(
            StorePoint(
                num_positions=length,
                concatenating_s=joined_s,
                preallocated_s=placed_s,
                concatenating_copied_bytes=joined.copied_bytes,
                preallocated_copied_bytes=placed.copied_bytes,
                concatenating_peak_bytes=joined.peak_bytes,
                preallocated_peak_bytes=placed.peak_bytes,
            )
        )
    return tuple(points)


def _timed(
    make: Callable[[], Store], shape: CacheShape, rows: Tensor, row: Tensor, repeats: int
) -> tuple[Store, float]:
    """A store after one token was added to a full one, counting that token's bytes alone, and how long that took."""
    filled = make()
    if rows.shape[1]:
        for layer in range(shape.num_layers):
            filled.append(layer, rows, rows)
    filled.copied_bytes = 0
    seconds, grown = [], filled
    for _ in range(repeats + 1):  # the first warms up
        grown = filled.copy()
        start_s = time.perf_counter()
        for layer in range(shape.num_layers):
            grown.append(layer, row, row)
        seconds.append(time.perf_counter() - start_s)
    return grown, median(seconds[1:])
