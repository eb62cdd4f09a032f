"""The cache as blocks that sequences share: who refers to which, what stays after its last reader, what is evicted.

In:   KvMemory; Sequences that say of which contents they are made
Out:  BlockPool, the blocks of one cache; BlockAccount, which keeps a scheduler's account with them
Leaves out: what makes two blocks the same (block_keys); sliding windows and recurrent states, which are refused
Read next by: server, hit_curve (the same cache without a server).

The rules are those of vLLM's prefix cache. A block that has filled up gets a key and is found by later sequences that start
alike. When its last reader ends it stays, idle, until its memory is needed; the least recently used goes first, and of one
sequence the last block, so that what many have in common stays longest. Differences from vLLM: blocks without a key are
reused before an idle one is evicted, and of two that start alike in the same step the second reads for itself.

Samples are several answers to one prompt. One of them reads it; the others wait until it has, and start with its
blocks up to the prompt's last position, a partly filled one included. That position they compute again, for a first token
of their own. Who writes into a block that others read copies it first (copy-on-write), as in vLLM's paper and its V0
engine. A sample that nobody running can share with is a request like any other.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as Values
from dataclasses import dataclass, field

from inference_bench.errors import RequestError
from inference_bench.simulate.block_keys import BlockChain, BlockKeys
from inference_bench.simulate.scheduler import Grant
from inference_bench.simulate.sequence import Sequence
from inference_bench.simulate.settings import KvMemory


class BlockPool:
    """So many blocks: each is referred to by sequences, idle with a key by which it is found, or free.

    Formula:  num_used + num_idle + num_free = num_blocks
    Where:    query_tokens were looked for and hit_tokens found; evictions are idle blocks whose key was lost;
              copies are blocks that were copied because another sequence still reads them
    Raises:   RequestError for less than one block or position
    Source:   vLLM, vllm/v1/core/block_pool.py (several blocks may have one key; freed from the tail)
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise RequestError(f"{num_blocks} blocks of {block_size} positions: at least 1 of each is needed")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.query_tokens = self.hit_tokens = self.evictions = self.copies = 0
        self._references: dict[int, int] = {}  # only of blocks that have any
        self._idle: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._free: list[int] = []
        self._num_touched = 0  # blocks from here on were never used, and are free too
        self._key_of: dict[int, int] = {}
        self._blocks_of: dict[int, list[int]] = {}

    @property
    def num_used(self) -> int:
        """Blocks that at least one sequence refers to."""
        return len(self._references)

    @property
    def num_idle(self) -> int:
        """Blocks that nobody refers to and that can still be found."""
        return len(self._idle)

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing."""
        return len(self._free) + self.num_blocks - self._num_touched

    def num_references(self, block: int) -> int:
        """How many sequences refer to a block."""
        return self._references.get(block, 0)

    def find(self, keys: Iterable[int]) -> list[int]:
        """The blocks of the leading keys that are in the cache, up to the first that is not; nothing changes."""
        found: list[int] = []
        for key in keys:
            blocks = self._blocks_of.get(key)
            if blocks is None:
                break
            found.append(blocks[0])
        return found

    def count(self, query_tokens: int, hit_tokens: int) -> None:
        """So many tokens were looked for, and so many of them found."""
        self.query_tokens += query_tokens
        self.hit_tokens += hit_tokens

    def take(self, blocks: Iterable[int]) -> None:
        """One more sequence refers to these blocks.

        Raises:   RequestError for a block that is free, which holds nothing
        """
        for block in blocks:
            if block in self._references:
                self._references[block] += 1
            elif block in self._idle:
                del self._idle[block]
                self._references[block] = 1
            else:
                raise RequestError(f"block {block} is free; only a block that holds something can be taken")

    def allocate(self, count: int) -> list[int]:
        """So many blocks for one sequence to write: free ones first, then those idle for longest.

        Raises:   RequestError where too few are free or idle
        """
        if count > self.num_free + self.num_idle:
            raise RequestError(
                f"{count} blocks are asked of a cache of {self.num_blocks}, of which {self.num_used} are in use; let "
                "sequences give way first"
            )
        blocks = [self._obtain() for _ in range(count)]
        self._references.update(dict.fromkeys(blocks, 1))
        return blocks

    def register(self, block: int, key: int) -> None:
        """A block is full, and is found under its key from now on.

        Raises:   RequestError for a block that is not in use, or has another key
        """
        if block not in self._references:
            raise RequestError(f"block {block} is not in use; only what a sequence has filled gets a key")
        known = self._key_of.setdefault(block, key)
        if known != key:
            raise RequestError(f"block {block} has the key {known} and cannot have {key} as well")
        blocks = self._blocks_of.setdefault(key, [])
        if block not in blocks:
            blocks.append(block)

    def release(self, blocks: Values[int]) -> None:
        """A sequence refers no longer to its blocks, which are given in order: the last is freed first.

        Raises:   RequestError for a block that nobody refers to
        """
        for block in reversed(blocks):
            left = self._references.get(block, 0) - 1
            if left < 0:
                raise RequestError(f"block {block} is given back more often than it was taken")
            if left:
                self._references[block] = left
                continue
            del self._references[block]
            if block in self._key_of:
                self._idle[block] = None
            else:
                self._free.append(block)

    def writable(self, block: int) -> int:
        """The block itself for its only reader; else a copy of it, and one sequence less refers to the original.

        Where:    what is written in place is no longer found under the key it had
        Raises:   RequestError for a block that is not in use, or where no block is left for the copy
        """
        if block not in self._references:
            raise RequestError(f"block {block} is not in use; only what a sequence refers to can be written")
        if self._references[block] == 1:
            self._forget(block)
            return block
        (copy,) = self.allocate(1)
        self.release((block,))
        self.copies += 1
        return copy

    def _obtain(self) -> int:
        if self._free:
            return self._free.pop()
        if self._num_touched < self.num_blocks:
            self._num_touched += 1
            return self._num_touched - 1
        block, _ = self._idle.popitem(last=False)
        self._forget(block)
        self.evictions += 1
        return block

    def _forget(self, block: int) -> None:
        key = self._key_of.pop(block, None)
        if key is None:
            return
        alike = self._blocks_of[key]
        alike.remove(block)
        if not alike:
            del self._blocks_of[key]


@dataclass(slots=True)
class _Table:
    """The blocks of one sequence, in order; the first num_keyed of them have their keys."""

    chain: BlockChain
    blocks: list[int] = field(default_factory=list)
    num_keyed: int = 0


class BlockAccount:
    """A scheduler's account in which sequences that start alike share blocks.

    Unit:     bytes of whole blocks; one that several refer to counts once, one that is idle not at all
    Where:    the cache never gives all that a sequence has to read: at least one position is computed, and what is found
              is whole blocks, but for a sample that shares the prompt of another; a sequence that comes back from host
              memory takes what is still there and copies the rest
    Raises:   RequestError for memory with windows or states, or with less than one block
    Source:   vLLM, vllm/v1/core/kv_cache_manager.py (get_computed_blocks, allocate_slots); samples: Kwon et al.,
              "Efficient Memory Management for Large Language Model Serving with PagedAttention" (2023), section 4.4
    """

    def __init__(self, memory: KvMemory) -> None:
        if memory.windows or memory.state_bytes:
            raise RequestError(
                "a prefix cache over sliding windows or recurrent states is not simulated: what is found would lack the "
                "end of the window, or the state; simulate such a model without a prefix cache"
            )
        self._memory = memory
        self._block_size = memory.block_size
        self._block_bytes = memory.bytes_per_position * memory.block_size
        if memory.budget_bytes < self._block_bytes:
            raise RequestError(f"{memory.budget_bytes} bytes of cache hold no block of {self._block_bytes} bytes")
        self.pool = BlockPool(memory.budget_bytes // self._block_bytes, memory.block_size)
        self._keys = BlockKeys()
        self._tables: dict[Sequence, _Table] = {}
        self._samples: dict[int, list[Sequence]] = {}  # those that run, by prompt, in order of admission

    def blocks_of(self, sequence: Sequence) -> tuple[int, ...]:
        """The blocks that a sequence refers to, in order."""
        return tuple(self._tables[sequence].blocks) if sequence in self._tables else ()

    def held_bytes(self, running: Values[Sequence]) -> int:  # noqa: ARG002  # the pool knows
        """What running sequences refer to, each block once."""
        return self.pool.num_used * self._block_bytes

    def should_wait(self, sequence: Sequence) -> bool:
        """Whether another sample is reading its prompt, and none has read it."""
        has_company = bool(self._running_samples(sequence)) and not sequence.is_swapped
        return has_company and self._source(sequence) is None

    def cached_positions(self, sequence: Sequence) -> int:
        """How far a sequence that is not running would be filled if it started; nothing is remembered of it."""
        return sequence.filled if sequence.is_swapped else self._start(sequence)[1]

    def bytes_to_hold(self, sequence: Sequence, positions: int) -> int:
        """What a sequence that is not running takes to hold so many positions: all but what others refer to already.

        Where:    a partly filled block that it would share is charged in full: it, or who else reads it, will copy it
        """
        self._table(sequence)  # it waits here, and will be asked for again
        blocks, filled = self._start(sequence)
        whole = blocks[: filled // self._block_size]
        shared = sum(1 for block in whole if self.pool.num_references(block))
        return max(0, self._num_blocks(positions) - shared) * self._block_bytes

    def admit(self, sequence: Sequence) -> None:
        """The sequence starts with what the cache has of it.

        Where:    a start after it gave way is no query, as in vLLM; one that is undone while a step is planned is
        """
        table = self._table(sequence)
        table.blocks, sequence.filled = self._start(sequence)
        table.num_keyed = sequence.filled // self._block_size
        self.pool.take(table.blocks)
        self._join(sequence)
        sequence.cached_prompt_tokens = min(sequence.filled, sequence.prompt_tokens)
        if sequence.admitted_s is None:
            self.pool.count(sequence.known_tokens, sequence.filled)

    def bytes_after(self, grants: Values[Grant]) -> int:
        """What is referred to once a step is done, copies of shared blocks included."""
        more, writers = 0, Counter[int]()
        for sequence, new in grants:
            if not new:
                continue
            blocks = self._tables[sequence].blocks
            more += max(0, self._num_blocks(sequence.filled + new) - len(blocks))
            if sequence.filled % self._block_size:
                writers[blocks[sequence.filled // self._block_size]] += 1
        # whoever writes last into a block that all its readers write into needs no copy
        more += sum(min(count, self.pool.num_references(block) - 1) for block, count in writers.items())
        return (self.pool.num_used + more) * self._block_bytes

    def commit(self, grants: Values[Grant]) -> None:
        """The step is going to happen: its positions get blocks, and those it fills get their keys."""
        for sequence, new in grants:
            if not new:
                continue
            table = self._tables[sequence]
            at, inside = divmod(sequence.filled, self._block_size)
            if inside:
                table.blocks[at] = self.pool.writable(table.blocks[at])
            end = sequence.filled + new
            table.blocks += self.pool.allocate(max(0, self._num_blocks(end) - len(table.blocks)))
            self._register(table, min(end, sequence.known_tokens))  # not what is only guessed

    def release(self, sequence: Sequence) -> None:
        """The sequence runs no longer; its full blocks can still be found."""
        self.pool.release(self._tables.pop(sequence).blocks)
        self._leave(sequence)

    def swap_out(self, sequence: Sequence) -> int:
        """The sequence goes to host memory, whole."""
        table = self._tables[sequence]
        self.pool.release(table.blocks)
        table.blocks = []
        self._leave(sequence)
        return self._memory.sequence_bytes(sequence.filled)

    def swap_in(self, sequence: Sequence) -> int:
        """The sequence comes back from host memory; what the cache still has of it need not be copied."""
        table, found = self._table(sequence), self._find(sequence)
        self.pool.take(found)
        copied = self.pool.allocate(self._num_blocks(sequence.filled) - len(found))
        table.blocks, table.num_keyed = found + copied, len(found)
        self._join(sequence)
        return len(copied) * self._block_bytes

    def _num_blocks(self, positions: int) -> int:
        return -(-positions // self._block_size)

    def _chain(self, sequence: Sequence) -> BlockChain:
        table = self._tables.get(sequence)
        return BlockChain.of(sequence, self._keys, self._block_size) if table is None else table.chain

    def _table(self, sequence: Sequence) -> _Table:
        if sequence not in self._tables:
            self._tables[sequence] = _Table(self._chain(sequence))
        return self._tables[sequence]

    def _start(self, sequence: Sequence) -> tuple[list[int], int]:
        """The blocks a sequence starts with and how many positions of them are its own: what is cached, or shared."""
        found, source = self._find(sequence), self._source(sequence)
        filled, before_last = len(found) * self._block_size, sequence.prompt_tokens - 1
        if source is None or before_last <= filled:
            return found, filled
        return self._tables[source].blocks[: self._num_blocks(before_last)], before_last

    def _source(self, sequence: Sequence) -> Sequence | None:
        """A running sample of the same prompt that has read it."""
        samples = () if sequence.is_swapped else self._running_samples(sequence)
        return next((each for each in samples if each.filled >= each.prompt_tokens), None)

    def _running_samples(self, sequence: Sequence) -> Values[Sequence]:
        return () if sequence.sample_of is None else self._samples.get(sequence.sample_of, ())

    def _join(self, sequence: Sequence) -> None:
        if sequence.sample_of is not None:
            self._samples.setdefault(sequence.sample_of, []).append(sequence)

    def _leave(self, sequence: Sequence) -> None:
        if sequence.sample_of is None:
            return
        samples = self._samples[sequence.sample_of]
        samples.remove(sequence)
        if not samples:
            del self._samples[sequence.sample_of]

    def _find(self, sequence: Sequence) -> list[int]:
        """The cached blocks a sequence starts with; at least one of the tokens it knows is left to be read."""
        return self.pool.find(self._chain(sequence).each(sequence.known_tokens - 1))

    def _register(self, table: _Table, known_tokens: int) -> None:
        """Give full blocks their keys, as far as their tokens are known."""
        keys, stop = table.chain.upto(known_tokens), known_tokens // self._block_size
        for at in range(table.num_keyed, stop):
            self.pool.register(table.blocks[at], keys[at])
        table.num_keyed = max(table.num_keyed, stop)
