"""Blocks are shared by those that start alike, kept while someone reads them, and evicted oldest first."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.errors import RequestError
from inference_bench.simulate.kv_blocks import BlockAccount, BlockPool
from inference_bench.simulate.scheduler import Grant
from inference_bench.simulate.sequence import Sequence
from inference_bench.simulate.settings import KvMemory, WindowCache
from inference_bench.workload import Segment
from simulate.block_machine import BlockMachine


def filled_pool(num_blocks: int, *keys: int) -> tuple[BlockPool, list[int]]:
    """A pool in which one sequence has filled blocks with these keys."""
    pool = BlockPool(num_blocks, 4)
    blocks = pool.allocate(len(keys))
    for block, key in zip(blocks, keys, strict=True):
        pool.register(block, key)
    return pool, blocks


# the pool


def test_a_block_is_found_until_its_memory_is_needed() -> None:
    pool, blocks = filled_pool(3, 70, 71)
    assert pool.find([70, 71, 72]) == blocks
    pool.release(blocks)
    assert (pool.num_used, pool.num_idle, pool.num_free) == (0, 2, 1)
    assert pool.find([70, 71]) == blocks
    pool.allocate(1)
    assert (pool.evictions, pool.find([70, 71])) == (0, blocks)  # the free one went first
    pool.allocate(1)
    assert (pool.evictions, pool.find([70, 71])) == (1, blocks[:1])  # then the tail
    pool.allocate(1)
    assert (pool.evictions, pool.find([70, 71])) == (2, [])


def test_nothing_is_found_behind_a_block_that_is_missing() -> None:
    pool, blocks = filled_pool(3, 70, 71)
    assert pool.find([99, 71]) == []
    assert pool.find([70, 99, 71]) == blocks[:1]


def test_the_least_recently_used_goes_first() -> None:
    pool, (first, second, third) = filled_pool(3, 1, 2, 3)
    for block in (first, second, third):
        pool.release([block])
    pool.take([first])  # used once more
    pool.release([first])
    pool.allocate(1)
    assert [pool.find([key]) for key in (1, 2, 3)] == [[first], [], [third]]
    pool.allocate(1)
    assert [pool.find([key]) for key in (1, 2, 3)] == [[first], [], []]


def test_a_block_that_is_read_is_never_evicted() -> None:
    pool, blocks = filled_pool(3, 1, 2)
    pool.take(blocks)
    pool.release(blocks)
    with pytest.raises(RequestError, match="2 blocks are asked of a cache of 3, of which 2 are in use"):
        pool.allocate(2)
    assert pool.find([1, 2]) == blocks
    assert pool.num_free == 1


def test_two_blocks_may_have_one_key_and_the_second_is_found_once_the_first_is_gone() -> None:
    pool, (first, second) = filled_pool(2, 5, 5)
    pool.release([first])
    assert pool.find([5]) == [first]
    pool.allocate(1)
    assert pool.find([5]) == [second]


def test_the_first_of_two_readers_to_write_copies_and_the_last_does_not() -> None:
    pool = BlockPool(4, 4)
    (block,) = pool.allocate(1)
    pool.take([block])
    copy = pool.writable(block)
    assert copy != block
    assert (pool.num_references(block), pool.num_references(copy), pool.copies) == (1, 1, 1)
    assert pool.writable(block) == block
    assert pool.copies == 1


def test_what_cannot_be_done_to_a_block_is_refused() -> None:
    pool, (block, other) = filled_pool(3, 1, 2)
    with pytest.raises(RequestError, match="block 2 is free"):
        pool.take([2])
    with pytest.raises(RequestError, match="block 2 is not in use; only what a sequence has filled"):
        pool.register(2, 9)
    with pytest.raises(RequestError, match="block 2 is not in use; only what a sequence refers to"):
        pool.writable(2)
    with pytest.raises(RequestError, match="has the key 1 and cannot have 9"):
        pool.register(block, 9)
    pool.release([block])
    with pytest.raises(RequestError, match="given back more often"):
        pool.release([block])
    for num_blocks, block_size in ((0, 4), (4, 0)):
        with pytest.raises(RequestError, match="at least 1 of each"):
            BlockPool(num_blocks, block_size)
    assert (pool.num_used, pool.num_idle, pool.num_free) == (1, 1, 1)
    assert pool.num_references(other) == 1


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 12), st.integers(0, 10**6))
def test_used_idle_and_free_are_all_blocks_whatever_happens(num_blocks: int, seed: int) -> None:
    pool, draws = BlockPool(num_blocks, 4), Random(seed)
    held: list[list[int]] = []
    for _ in range(80):
        match draws.randrange(4):
            case 0 if pool.num_used < num_blocks:
                held.append(pool.allocate(draws.randint(1, pool.num_free + pool.num_idle)))
                for block in held[-1][: draws.randint(0, 5)]:
                    pool.register(block, draws.randrange(8))
            case 1:
                held.append(pool.find(draws.sample(range(8), 3)))
                pool.take(held[-1])
            case 2 if held:
                pool.release(held.pop(draws.randrange(len(held))))
            case 3 if held and held[-1] and pool.num_used < num_blocks:
                held[-1][-1] = pool.writable(held[-1][-1])
        readers = [block for blocks in held for block in blocks]
        assert pool.num_used + pool.num_idle + pool.num_free == num_blocks
        assert pool.num_used == len(set(readers))
        assert all(pool.num_references(block) == readers.count(block) for block in readers)


# the account


def sequence(index: int, *segments: tuple[int, int], **known: int) -> Sequence:
    content = tuple(Segment(*pair) for pair in segments)
    return Sequence(index, 0.0, sum(each.num_tokens for each in content), content=content, **known)


def read(account: BlockAccount, each: Sequence, new: int) -> None:
    """A step of this sequence alone."""
    account.commit([Grant(each, new)])
    each.filled += new


def test_who_joins_is_charged_what_others_do_not_hold() -> None:
    account = BlockAccount(KvMemory.of_blocks(10, 4, 3))
    first, second = sequence(0, (0, 10), (1, 6)), sequence(1, (0, 10), (2, 6))
    assert account.bytes_to_hold(first, 16) == 4 * 12
    account.admit(first)
    read(account, first, 16)
    assert account.held_bytes([first]) == 4 * 12
    assert account.bytes_to_hold(second, 16) == 2 * 12
    account.release(first)
    assert account.held_bytes([]) == 0
    assert account.bytes_to_hold(second, 16) == 4 * 12  # idle blocks are found, and take their room all the same
    assert account.cached_positions(second) == 8
    account.admit(second)
    assert (second.filled, second.cached_prompt_tokens, account.held_bytes([second])) == (8, 8, 2 * 12)
    assert account.bytes_after([Grant(second, 8)]) == 4 * 12


def test_a_sequence_back_from_host_memory_copies_what_is_no_longer_cached() -> None:
    account = BlockAccount(KvMemory.of_blocks(4, 4, 1))
    swapped, other = sequence(0, (0, 10)), sequence(1, (1, 7))
    account.admit(swapped)
    read(account, swapped, 10)
    swapped.generated, swapped.is_decoding = 1, True
    assert account.swap_out(swapped) == 12
    swapped.is_swapped = True
    assert account.held_bytes([]) == 0
    assert account.cached_positions(swapped) == 10
    account.admit(other)
    read(account, other, 7)
    assert account.bytes_to_hold(swapped, 11) == 12
    account.release(other)
    assert account.swap_in(swapped) == 4  # two full blocks are still there
    assert (swapped.filled, len(account.blocks_of(swapped))) == (10, 3)


def test_children_share_all_blocks_until_one_writes() -> None:
    account = BlockAccount(KvMemory.of_blocks(10, 4, 1))
    parent, *children = (sequence(index, (0, 10)) for index in range(4))
    account.admit(parent)
    read(account, parent, 10)
    for child in children:
        account.fork(parent, child)
    family = [parent, *children]
    for each in family:
        each.generated = 1
    assert {account.blocks_of(each) for each in family} == {account.blocks_of(parent)}
    assert account.held_bytes(family) == 3 * 4
    grants = [Grant(each, 1) for each in family]
    assert account.bytes_after(grants) == (3 + 3) * 4  # the last to write needs no copy
    account.commit(grants)
    assert account.held_bytes(family) == account.bytes_after(grants) == 6 * 4
    assert account.pool.copies == 3
    assert len({account.blocks_of(each)[2] for each in family}) == 4
    assert len({account.blocks_of(each)[:2] for each in family}) == 1
    for each in family:
        account.release(each)
    assert account.pool.num_used == 0


def test_only_what_runs_can_be_shared() -> None:
    account = BlockAccount(KvMemory.of_blocks(10, 4, 1))
    with pytest.raises(RequestError, match="request 0 is not running"):
        account.fork(sequence(0, (0, 10)), sequence(1, (0, 10)))
    parent = sequence(2, (0, 10))
    account.admit(parent)
    read(account, parent, 10)
    account.swap_out(parent)
    parent.is_swapped = True
    with pytest.raises(RequestError, match="request 2 is not running"):
        account.fork(parent, sequence(3, (0, 10)))


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (KvMemory(100, 1, windows=(WindowCache(8, 1),)), "sliding windows or recurrent states"),
        (KvMemory(100, 1, state_bytes=5), "sliding windows or recurrent states"),
        (KvMemory(15, 1, block_size=16), "15 bytes of cache hold no block of 16 bytes"),
    ],
)
def test_memory_that_cannot_be_shared_is_refused(memory: KvMemory, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        BlockAccount(memory)


@settings(deadline=None, max_examples=150)
@given(st.integers(3, 25), st.integers(1, 5), st.integers(0, 10**9))
def test_every_sequence_reads_back_what_it_wrote_whoever_shares_its_blocks(
    num_blocks: int, block_size: int, seed: int
) -> None:
    machine = BlockMachine(num_blocks, block_size, Random(seed))
    for _ in range(60):
        machine.act()
    machine.finish()
