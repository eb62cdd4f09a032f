"""The batches in which llama.cpp computes a step, one after another, each reading the weights once.

In:   what each sequence brings to a step, in the order in which it stands in the engine's batch; where each has a stream of
      cache of its own, its slot
Out:  the parts of each batch
Leaves out: who is in a step (scheduler), and which slot a sequence gets (slots)
Read next by: server, verify.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from inference_bench.errors import RequestError
from inference_bench.simulate.step_time import StepPart


def micro_batches(parts: Iterable[StepPart], size: int) -> Iterator[list[StepPart]]:
    """The positions of a step in order, cut into batches of so many: the way of a cache that all slots share.

    Source:  llama.cpp, n_batch and n_ubatch; src/llama-batch.cpp, the simple split
    """
    _require_size(size)
    batch: list[StepPart] = []
    left = size
    for cached, new, is_decoding in parts:
        while new:
            taken = min(new, left)
            batch.append(StepPart(cached, taken, is_decoding))
            cached, new, left = cached + taken, new - taken, left - taken
            if not left:
                yield batch
                batch, left = [], size
    if batch:
        yield batch


@dataclass(slots=True)
class _Rest:
    """What is still to be computed of a sequence."""

    slot: int
    cached: int
    new: int
    is_decoding: bool


def equal_batches(parts: Iterable[tuple[int, StepPart]], size: int) -> Iterator[list[StepPart]]:
    """The positions of a step in batches of equally many of sequences in neighbouring slots: one stream of cache a slot.

    Where:   parts are (slot, part), sequences that decode first, then prompts, each by slot. A batch begins with the first
             sequence that has any position left; of those behind it one after another joins whose slot is the next after that
             of the last to join; each gives as many as the one with the fewest has, and as `size` allows
    Ignores: that the engine takes one sequence more than `size` where more neighbours decode than that
    Raises:  RequestError for a slot that is named twice, or a size below 1
    Source:  llama.cpp of 2026, src/llama-batch.cpp, the equal split with sequential ids
    """
    _require_size(size)
    rest = [_Rest(slot, *part) for slot, part in parts if part.new]
    if len({each.slot for each in rest}) < len(rest):
        raise RequestError("two sequences of a step are in one slot; each needs a slot of its own")
    while rest:
        joined = _neighbours(rest, size)
        taken = min(min(each.new for each in joined), size // len(joined))
        yield [StepPart(each.cached, taken, each.is_decoding) for each in joined]
        for each in joined:
            each.cached += taken
            each.new -= taken
        rest = [each for each in rest if each.new]


def _neighbours(rest: list[_Rest], most: int) -> list[_Rest]:
    """Who is in the next batch: in order, each in the slot after the last one's."""
    joined = [rest[0]]
    for each in rest[1:]:
        if len(joined) == most:
            break
        if each.slot == joined[-1].slot + 1:
            joined.append(each)
    return joined


def _require_size(size: int) -> None:
    if size < 1:
        raise RequestError(f"a batch that is computed at once has {size} positions; at least 1 is needed")
