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


def sample(index: int, first: int, num_tokens: int = 10) -> Sequence:
    """One of several answers to the same prompt."""
    return sequence(index, (0, num_tokens), sample_of=first)


def read_prompt(account: BlockAccount, each: Sequence) -> None:
    account.admit(each)
    read(account, each, each.owed)
    each.generated = 1


def test_samples_share_all_blocks_of_their_prompt_until_one_writes() -> None:
    account = BlockAccount(KvMemory.of_blocks(10, 4, 1))
    parent, *children = (sample(index, 0) for index in range(4))
    read_prompt(account, parent)
    for child in children:
        assert account.bytes_to_hold(child, 10) == 4  # a copy of the third block
        assert account.cached_positions(child) == 9
        account.admit(child)
    family = [parent, *children]
    assert [each.filled for each in family] == [10, 9, 9, 9]
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


@pytest.mark.parametrize(
    ("prompt_tokens", "num_blocks", "copies"),
    [
        (8, 1 + 3 + 1, 2),  # the last block is the prompt's alone: each sample copies it, the parent starts another
        (9, 2 + 3, 0),  # the last position stands alone in a block, and everybody has its own
        (10, 2 + 3, 2),  # the parent and the first sample copy, the second is the last who reads the original
    ],
)
def test_a_parent_and_two_samples_copy_no_more_than_they_write(
    prompt_tokens: int, num_blocks: int, copies: int
) -> None:
    account = BlockAccount(KvMemory.of_blocks(10, 4, 1))
    family = [sample(index, 0, prompt_tokens) for index in range(3)]
    read_prompt(account, family[0])
    for child in family[1:]:
        account.admit(child)
    account.commit([Grant(each, 1) for each in family])
    assert (account.pool.num_used, account.pool.copies) == (num_blocks, copies)


def test_a_sample_waits_while_another_reads_and_reads_itself_where_nobody_does() -> None:
    account = BlockAccount(KvMemory.of_blocks(10, 4, 1))
    parent, child, stranger = sample(0, 0), sample(1, 0), sequence(2, (0, 10))
    assert not account.should_wait(child)
    account.admit(parent)
    read(account, parent, 9)
    assert account.should_wait(child)
    assert not account.should_wait(stranger)
    assert account.cached_positions(child) == 8
    read(account, parent, 1)
    parent.generated = 1
    assert not account.should_wait(child)
    assert (account.cached_positions(child), account.cached_positions(stranger)) == (9, 8)
    account.swap_out(parent)
    parent.is_swapped = True
    assert (account.should_wait(child), account.cached_positions(child)) == (False, 8)
    account.swap_in(parent)
    parent.is_swapped = False
    assert account.cached_positions(child) == 9
    account.release(parent)
    assert (account.should_wait(child), account.cached_positions(child)) == (False, 8)


def test_a_block_that_its_last_reader_overwrites_is_no_longer_found_as_what_it_was() -> None:
    account = BlockAccount(KvMemory.of_blocks(10, 4, 1))
    parent, child = sequence(0, (0, 10), sample_of=0, answer_content=5), sample(1, 0)
    read_prompt(account, parent)
    for _ in range(2):
        read(account, parent, 1)
        parent.generated += 1
    account.admit(child)  # the third block is full: two tokens of the prompt, two of the parent's answer
    account.release(parent)
    follow_up = sequence(2, (0, 10), (5, 3))
    assert account.cached_positions(follow_up) == 12
    assert account.bytes_after([Grant(child, 1)]) == 3 * 4
    account.commit([Grant(child, 1)])
    assert (account.pool.num_used, account.pool.copies) == (3, 0)
    assert account.cached_positions(follow_up) == 8


def test_what_a_sample_writes_behind_its_prompt_is_found_as_its_own() -> None:
    account = BlockAccount(KvMemory.of_blocks(10, 4, 1))
    parent, child = sample(0, 0), sequence(1, (0, 10), sample_of=0, answer_content=6)
    read_prompt(account, parent)
    account.admit(child)
    for _ in range(3):
        read(account, child, 1)
        child.generated += 1
    follow_up = sequence(2, (0, 10), (6, 3))
    assert account.cached_positions(follow_up) == 12
    account.release(child)
    assert account.cached_positions(child) == 12  # more than the nine positions it would share
    assert account.bytes_to_hold(child, 13) == (4 - 2) * 4  # only the prompt's whole blocks are held by others


def test_a_sample_back_from_host_memory_does_not_wait_for_another() -> None:
    account = BlockAccount(KvMemory.of_blocks(10, 4, 1))
    swapped, other = sample(0, 0), sample(1, 0)
    read_prompt(account, swapped)
    account.swap_out(swapped)
    swapped.is_swapped = True
    account.admit(other)
    assert not account.should_wait(swapped)
    assert account.should_wait(sample(2, 0))


def test_a_sample_that_gives_way_before_it_has_written_leaves_the_block_to_its_parent() -> None:
    account = BlockAccount(KvMemory.of_blocks(10, 4, 1))
    parent, child = sample(0, 0), sample(1, 0)
    read_prompt(account, parent)
    before = account.blocks_of(parent)
    account.admit(child)
    account.release(child)
    child.filled = 0
    read(account, parent, 1)
    assert (account.blocks_of(parent), account.pool.copies, account.pool.num_used) == (before, 0, 3)


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


@settings(deadline=None, max_examples=500)
@given(st.integers(3, 25), st.integers(1, 5), st.integers(0, 10**9))
def test_every_sequence_reads_back_what_it_wrote_whoever_shares_its_blocks(
    num_blocks: int, block_size: int, seed: int
) -> None:
    machine = BlockMachine(num_blocks, block_size, Random(seed))
    for _ in range(60):
        machine.act()
    machine.finish()
