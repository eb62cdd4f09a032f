"""How much would a prefix cache find, at every size: one pass over the requests, no server.

In:   Workload whose prompts say what they share, block size, capacities
Out:  HitCurve
Leaves out: time: requests come one after another, each done before the next, and its blocks are then in the cache
Read next by: run, charts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from inference_bench.errors import RequestError
from inference_bench.simulate.answers import sequence_of
from inference_bench.simulate.block_keys import BlockChain, BlockKeys
from inference_bench.simulate.sequence import Sequence
from inference_bench.workload import Workload


@dataclass(frozen=True, slots=True)
class HitCurve:
    """How many leading blocks of the prompts a cache of each capacity would have held.

    Where:    num_blocks are full blocks of prompts, the most that could be found; unlimited_hits are found where nothing
              is ever evicted; last partly filled blocks are in prompt_tokens only
    Unit:     blocks; tokens
    """

    block_size: int
    capacities: tuple[int, ...]
    hits: tuple[int, ...]
    unlimited_hits: int
    num_blocks: int
    prompt_tokens: int

    @property
    def hit_fractions(self) -> tuple[float, ...]:
        """Tokens found as a share of all prompt tokens, the way vLLM prints its hit rate."""
        return tuple(hits * self.block_size / self.prompt_tokens for hits in self.hits)


def hit_curve(workload: Workload, block_size: int, capacities: Iterable[int]) -> HitCurve:
    """The hits of a least-recently-used block cache at each capacity.

    Formula:  a block is found by a cache of C blocks if it is among the C most recently used, which for all C at once
              takes one distance a block (Mattson's stack distance)
    Where:    what a request uses are the full blocks of its prompt and of its answer without the last token; of one
              request the last block is the first to go
    Ignores:  requests that run at the same time; partly filled blocks; that an engine computes at least one position;
              that a request larger than the cache cannot run
    Raises:   RequestError for a block size or capacity below one
    Source:   Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9 (1970)
    """
    sizes = tuple(capacities)
    if block_size < 1 or any(size < 1 for size in sizes):
        raise RequestError(f"blocks of {block_size} positions, caches of {list(sizes)} blocks: each must be at least 1")
    stack = _Stack(len(workload), block_size)
    asked = workload.requests
    for index, output_tokens in enumerate(asked.output_tokens):
        stack.use(sequence_of(workload, index, 0.0), output_tokens)
    distances = sorted(stack.distances)
    return HitCurve(
        block_size,
        sizes,
        tuple(bisect_right(distances, size) for size in sizes),
        len(distances),
        sum(tokens // block_size for tokens in asked.prompt_tokens),
        sum(asked.prompt_tokens),
    )


class _Stack:
    """All blocks by when they were last used, the most recent on top.

    Whoever uses a block uses those before it as well. So the blocks that a request was the last to use are the end of its
    chain, and they lie together in the stack: how deep a block lies follows from how many such blocks each request has,
    one number a request instead of one a block.
    """

    def __init__(self, num_requests: int, block_size: int) -> None:
        self.distances = array("q")  # of each block found, how deep it lay; 1 is the top
        self._block_size = block_size
        self._keys = BlockKeys()
        self._last_use: list[int] = []  # by key, the request
        self._remaining = _PartialSums(num_requests)  # by request, the blocks that nobody has used after it

    def use(self, sequence: Sequence, output_tokens: int) -> None:
        """A request finds the blocks of its prompt that were used before, and leaves all of its own on top."""
        index, size = sequence.index, self._block_size
        num_prompt = sequence.prompt_tokens // size
        num_all = (sequence.prompt_tokens + output_tokens - 1) // size
        num_shareable = 0
        if sequence.content:
            num_shareable = num_prompt if sequence.answer_content is None else num_all
        keys = BlockChain.of(sequence, self._keys, size).upto(num_shareable * size)
        num_known = sum(1 for key in keys if key < len(self._last_use))
        at = 0
        while at < num_known:
            before, stop = self._last_use[keys[at]], at + 1
            while stop < num_known and self._last_use[keys[stop]] == before:
                stop += 1
            depth = self._remaining.sum_after(before) + 1
            self.distances.extend(range(depth, depth + min(stop, num_prompt) - at))
            self._remaining.add(before, at - stop)
            self._remaining.add(index, stop - at)
            at = stop
        self._remaining.add(index, num_all - num_known)
        for key in keys[:num_known]:
            self._last_use[key] = index
        self._last_use += [index] * (len(self._keys) - len(self._last_use))


class _PartialSums:
    """Counts by position, with the sum of all behind one of them in few steps.

    Source:   Fenwick, "A new data structure for cumulative frequency tables", Software: Practice and Experience 24 (1994)
    """

    def __init__(self, size: int) -> None:
        self._total = 0
        self._tree = [0] * (size + 1)

    def add(self, position: int, count: int) -> None:
        self._total += count
        at = position + 1
        while at < len(self._tree):
            self._tree[at] += count
            at += at & -at

    def sum_after(self, position: int) -> int:
        upto, at = 0, position + 1
        while at:
            upto += self._tree[at]
            at &= at - 1
        return self._total - upto
