"""Which blocks of tokens are the same: a number for each block together with all that stands before it.

In:   what a sequence is made of, by content; the block size
Out:  BlockChain, one key a full block, in order; equal keys mean equal tokens behind an equal past, and the other way round
Leaves out: whether a block is in the cache (kv_blocks)
Read next by: kv_blocks, hit_curve.

An engine hashes the tokens of a block together with the hash of the block before it. Here a key is (key before, pieces),
kept in a table and numbered, so that nothing rests on two hashes being different. A piece says which tokens of which
content a block holds; contents are cut wherever a block ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from inference_bench.simulate.sequence import Sequence
from inference_bench.simulate.settings import UNLIMITED

Content = int | tuple[int, int]  # an id that the workload gives, or (request, part): what no other request has
Piece = tuple[Content, int, int]  # content, its first token that is meant, number of tokens

_OWN_PROMPT: Final = 0
_OWN_ANSWER: Final = 1


class BlockKeys:
    """The numbers of all keys so far, from 0 in the order in which they were first seen.

    Ignores:  memory: a key is kept after its block has left the cache, about 300 bytes for each block ever seen
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, tuple[Piece, ...]], int] = {}
        self._roots: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def root(self, salt: tuple[int, int]) -> int:
        """What stands before the first block: one number, below 0, for each tenant and adapter."""
        return self._roots.setdefault(salt, -1 - len(self._roots))

    def number(self, before: int, pieces: tuple[Piece, ...]) -> int:
        """The key of a block that holds these pieces, behind this one."""
        return self._numbers.setdefault((before, pieces), len(self._numbers))


class BlockChain:
    """The keys of one sequence's full blocks, made as its tokens become known."""

    def __init__(self, numbers: BlockKeys, block_size: int, salt: tuple[int, int], runs: Iterable[Piece]) -> None:
        self.keys: list[int] = []
        self._numbers = numbers
        self._block_size = block_size
        self._salt = salt
        self._runs = tuple(runs)
        self._last = numbers.root(salt)
        self._run = self._offset = 0  # where in the runs the next block starts

    @classmethod
    def of(cls, sequence: Sequence, numbers: BlockKeys, block_size: int) -> BlockChain:
        """The chain of a sequence."""
        return cls(numbers, block_size, sequence.salt, runs_of(sequence))

    def upto(self, num_tokens: int) -> list[int]:
        """The keys of all blocks that the first so many tokens fill, or more where more were asked for before."""
        while (len(self.keys) + 1) * self._block_size <= num_tokens:
            self._add()
        return self.keys

    def each(self, num_tokens: int) -> Iterator[int]:
        """The keys of the blocks that the first so many tokens fill; one that is not asked for is not made."""
        for at in range(num_tokens // self._block_size):
            if at == len(self.keys):
                self._add()
            yield self.keys[at]

    def _add(self) -> None:
        self._last = self._numbers.number(self._last, self._next_block())
        self.keys.append(self._last)

    def _next_block(self) -> tuple[Piece, ...]:
        pieces: list[Piece] = []
        left = self._block_size
        while left:
            content, start, length = self._runs[self._run]
            taken = min(left, length - self._offset)
            pieces.append((content, start + self._offset, taken))
            left -= taken
            self._offset += taken
            if self._offset == length:
                self._run, self._offset = self._run + 1, 0
        return tuple(pieces)


def runs_of(sequence: Sequence) -> tuple[Piece, ...]:
    """What a sequence is made of: its prompt's segments, then its answer, as long as it may become.

    Where:    a prompt without segments, and an answer without an id, are made of what no other request has
    """
    prompt: tuple[Piece, ...] = tuple((content, 0, num_tokens) for content, num_tokens in sequence.content)
    if not prompt:
        prompt = (((sequence.index, _OWN_PROMPT), 0, sequence.prompt_tokens),)
    own_answer: Content = (sequence.index, _OWN_ANSWER)
    answer = own_answer if sequence.answer_content is None else sequence.answer_content
    return (*prompt, (answer, 0, UNLIMITED))
