"""A model.safetensors.index.json: which shard of a model holds which tensor.

In:   the bytes of the file
Out:  SafetensorsIndex
Leaves out: whether the shards are there and hold what the index says (see safetensors_model)
Read next by: safetensors_model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from inference_bench.facts.byte_window import shown
from inference_bench.facts.json_walker import JsonWalker
from inference_bench.units import KIBI, MEBI

MAX_INDEX_BYTES: Final = 32 * MEBI
MAX_INDEX_TENSORS: Final = 256 * KIBI
MAX_SHARDS: Final = 4 * KIBI


@dataclass(frozen=True, slots=True)
class SafetensorsIndex:
    """A model.safetensors.index.json: which tensor is in which shard, and the size the file itself states."""

    shard_of: Mapping[str, str]
    shards: tuple[str, ...]
    total_size: int | None
    name: str


def parse_safetensors_index(text: bytes, name: str) -> SafetensorsIndex:
    """The object of a model.safetensors.index.json.

    Raises:  ModelFileError for a shard outside the folder, for text that is no such index
    """
    walker = JsonWalker(text, f"cannot read the index {name!r}")
    if len(text) > MAX_INDEX_BYTES:
        raise walker.error(f"it has {len(text)} bytes; allowed: up to {MAX_INDEX_BYTES}")
    shard_of: dict[str, str] | None = None
    total_size: int | None = None
    for key in walker.walk_keys():
        if key == "weight_map":
            if shard_of is not None:
                raise walker.error("the key 'weight_map' is there twice")
            shard_of = _weight_map(walker)
        elif key == "metadata":
            fields = walker.flat_object("metadata")
            total_size = _whole(fields.get("total_size"))
        else:
            raise walker.error(f"the key {shown(key)} is not one of an index; metadata and weight_map are")
    if not walker.at_end():
        raise walker.error(f"at byte {walker.at}: something follows the object")
    if not shard_of:
        raise walker.error("it maps no tensor to a file; weight_map is needed")
    return SafetensorsIndex(MappingProxyType(shard_of), tuple(dict.fromkeys(shard_of.values())), total_size, name)


def _whole(size: object) -> int | None:
    """A count as some writers store it: 1.0e9 is a whole number."""
    if isinstance(size, float) and math.isfinite(size) and size.is_integer():
        size = int(size)
    return size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None


def _weight_map(walker: JsonWalker) -> dict[str, str]:
    if not walker.at_object():
        raise walker.error("weight_map should be an object that maps tensors to files")
    shards: dict[str, str] = {}
    shard_of: dict[str, str] = {}
    for key in walker.walk_keys():
        shard = walker.string(f"the file of {shown(key)}")
        if key in shard_of:
            raise walker.error(f"the tensor {shown(key)} is there twice")
        if shard not in shards:
            _check_shard_name(walker, shard)
            shards[shard] = shard
        if len(shard_of) >= MAX_INDEX_TENSORS or len(shards) > MAX_SHARDS:
            raise walker.error(f"more than {MAX_INDEX_TENSORS} tensors or {MAX_SHARDS} files; allowed: up to that")
        shard_of[key] = shards[shard]
    return shard_of


def _check_shard_name(walker: JsonWalker, shard: str) -> None:
    """A shard lies in the folder of its index: no path out of it, no index in place of weights."""
    plain = (
        shard.isprintable()
        and not any(mark in shard for mark in ("/", "\\", ":", "\0"))
        and shard not in ("", ".", "..")
    )
    if not plain or not shard.endswith(".safetensors"):
        raise walker.error(f"the file {shown(shard)} is not the name of a .safetensors file beside the index")
