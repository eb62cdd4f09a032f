"""What fills the memory of the fullest device, part by part, and what the usual formula would have put there.

In:   FitAnswer
Out:  MemoryParts
Leaves out: where on a device each part lies; which layers are on which device of a pipeline
Read next by: charts.memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inference_bench.accounting.cache import LOGICAL_STATE, STATE_FORMATS, CacheCount, count_cache
from inference_bench.predict.engine_choice import engine_title
from inference_bench.predict.fit import FitAnswer, cache_format
from inference_bench.predict.placement import Split


class PartKind(StrEnum):
    """What a part of the memory is for."""

    WEIGHTS = "weights"
    CACHE = "cache"  # keys and values, or what takes their place, of one type of layers
    STATE = "state"  # what recurrent layers keep whatever the context
    CROSS = "cross"  # an encoder's keys and values
    ROUNDING = "rounding"  # what an engine allocates beyond what the sequences need
    OVERHEAD = "overhead"
    USUAL_CACHE = "usual cache"  # the cache by the usual formula


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One part, with the name a reader knows it by.

    Unit:  bytes
    """

    kind: PartKind
    name: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """The parts of what the fullest device needs.

    Where:  usual are those by the usual formula, empty where it has nothing to multiply; no part is empty
    """

    parts: tuple[MemoryPart, ...]
    usual: tuple[MemoryPart, ...]

    @property
    def needed_bytes(self) -> int:
        """All parts together."""
        return sum(part.num_bytes for part in self.parts)

    @property
    def usual_bytes(self) -> int | None:
        """All parts by the usual formula."""
        return sum(part.num_bytes for part in self.usual) if self.usual else None


def memory_parts(answer: FitAnswer) -> MemoryParts:
    """What the fullest device holds: its parts sum to what the answer says it needs.

    Formula:  needed = weights + Σ cache of each layer type + states + cross-attention + rounding + overhead;
              rounding = what the engine allocates - what the sequences need
    Where:    the cache of a pipeline's stage is one part: which layers it has is not in the answer
    Unit:     bytes, exact
    """
    weights = MemoryPart(PartKind.WEIGHTS, "weights", answer.placement.weight_bytes)
    overhead = MemoryPart(PartKind.OVERHEAD, "overhead", answer.overhead_bytes)
    usual: tuple[MemoryPart, ...] = ()
    if answer.naive_needed_bytes is not None:
        cache = answer.naive_needed_bytes - weights.num_bytes - overhead.num_bytes
        usual = _kept((weights, MemoryPart(PartKind.USUAL_CACHE, "cache by the usual formula", cache), overhead))
    return MemoryParts(_kept((weights, *_cache_parts(answer), overhead)), usual)


def _kept(parts: tuple[MemoryPart, ...]) -> tuple[MemoryPart, ...]:
    return tuple(part for part in parts if part.num_bytes)


def _cache_parts(answer: FitAnswer) -> tuple[MemoryPart, ...]:
    """The cache by layer type, and what the engine adds; one part where that is not known."""
    held, allocation = answer.placement.cache_bytes, answer.allocation
    count = _device_count(answer)
    if count is None:
        return (MemoryPart(PartKind.CACHE, "cache of its layers", held),)
    rounding = held - count.total_bytes
    if rounding < 0:  # an engine that keeps less than every position that could be asked for again
        engine = "the engine" if allocation is None else allocation.engine
        return (MemoryPart(PartKind.CACHE, f"cache as {engine} lays it out", held),)
    by_type: dict[str, int] = {}
    for layer in count.layers:
        name = str(layer.layer_type).replace("_", " ")
        by_type[name] = by_type.get(name, 0) + layer.num_bytes
    return (
        *(MemoryPart(PartKind.CACHE, name, num_bytes) for name, num_bytes in by_type.items()),
        MemoryPart(PartKind.STATE, "recurrent state", count.state_bytes),
        MemoryPart(PartKind.CROSS, "cross-attention", count.cross_attention_bytes),
        MemoryPart(
            PartKind.ROUNDING, f"rounding of {engine_title(allocation.engine)}" if allocation else "rounding", rounding
        ),
    )


def _device_count(answer: FitAnswer) -> CacheCount | None:
    """What the sequences need on the fullest device, in the formats of the answer; None for a stage of a pipeline."""
    placement, cache = answer.placement, answer.cache
    if placement.devices == 1:
        return cache
    if placement.split is not Split.TENSOR:
        return None
    from inference_bench.accounting.parallel import rank_model

    states = next((each for each in STATE_FORMATS.values() if each.name == cache.state_format), LOGICAL_STATE)
    rank, fmt = rank_model(answer.model, placement.devices), cache_format(cache.number_format)
    return count_cache(rank, fmt, cache.context_tokens, cache.sequences, states)
