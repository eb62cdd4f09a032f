"""One pass gives the hits of every capacity: those of a cache that is played through for each."""

from __future__ import annotations

from array import array
from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.errors import RequestError
from inference_bench.simulate.answers import sequence_of
from inference_bench.simulate.block_keys import BlockChain, BlockKeys
from inference_bench.simulate.hit_curve import hit_curve
from inference_bench.simulate.kv_blocks import BlockPool
from inference_bench.workload import (
    Fixed,
    Poisson,
    Requests,
    UniformLengths,
    Workload,
    closed_loop,
    generate_conversations,
    leading_block_hits,
)
from inference_bench.workload.requests import RequestShape
from simulate.block_oracle import tokens_of, workload_of

CAPACITIES = (1, 2, 3, 5, 8, 13, 40, 1000)


def hits_played_through(workload: Workload, block_size: int, capacity: int) -> int:
    """A least-recently-used cache whose blocks are known by all their tokens."""
    cache, hits = OrderedDict[object, None](), 0
    for index, output_tokens in enumerate(workload.requests.output_tokens):
        sequence = sequence_of(workload, index, 0.0)
        tokens = tokens_of(sequence, output_tokens - 1)
        blocks = [tuple(tokens[:end]) for end in range(block_size, len(tokens) + 1, block_size)]
        for block in blocks[: sequence.prompt_tokens // block_size]:
            if block not in cache:
                break
            hits += 1
        for block in reversed(blocks):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > capacity:
            cache.popitem(last=False)
    return hits


def hits_in_a_pool(workload: Workload, block_size: int, capacity: int) -> int:
    """A pool that serves one request after the other; its prompts are whole blocks."""
    pool, numbers = BlockPool(capacity, block_size), BlockKeys()
    for index, length in enumerate(workload.requests.prompt_tokens):
        keys = BlockChain.of(sequence_of(workload, index, 0.0), numbers, block_size).upto(length)
        found = pool.find(keys)
        pool.count(length, len(found) * block_size)
        pool.take(found)
        blocks = found + pool.allocate(len(keys) - len(found))
        for block, key in zip(blocks, keys, strict=True):
            pool.register(block, key)
        pool.release(blocks)
    return pool.hit_tokens // block_size


PROMPTS = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9)), min_size=1, max_size=4).map(tuple),
    min_size=1,
    max_size=25,
)


@settings(deadline=None, max_examples=200)
@given(PROMPTS, st.data(), st.integers(1, 4), st.booleans())
def test_the_hits_are_those_of_a_cache_that_is_played_through_at_each_capacity(
    prompts: list[tuple[tuple[int, int], ...]], data: st.DataObject, block_size: int, has_answers: bool
) -> None:
    outputs = data.draw(st.lists(st.integers(1, 12), min_size=len(prompts), max_size=len(prompts)))
    tenant = data.draw(st.lists(st.integers(0, 1), min_size=len(prompts), max_size=len(prompts)))
    answers = data.draw(st.lists(st.integers(0, 5), min_size=len(prompts), max_size=len(prompts)))
    workload = workload_of(prompts, outputs, answers if has_answers else None, tenant)
    curve = hit_curve(workload, block_size, CAPACITIES)
    assert curve.hits == tuple(hits_played_through(workload, block_size, capacity) for capacity in CAPACITIES)
    assert curve.unlimited_hits == hits_played_through(workload, block_size, 10**9)
    assert list(curve.hits) == sorted(curve.hits)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=25), st.integers(5, 30))
def test_the_hits_are_those_of_a_block_pool(ids: list[list[int]], capacity: int) -> None:
    workload = workload_of([tuple((content, 4) for content in prompt) for prompt in ids])
    assert hit_curve(workload, 4, [capacity]).hits == (hits_in_a_pool(workload, 4, capacity),)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=9), min_size=1, max_size=40))
def test_without_limit_the_hits_are_the_leading_blocks_of_the_workload(ids: list[list[int]]) -> None:
    workload = workload_of([tuple((content, 16) for content in prompt) for prompt in ids])
    expected = leading_block_hits(workload)
    curve = hit_curve(workload, 16, [10**12])
    assert (curve.unlimited_hits, curve.num_blocks) == (expected.num_hits, expected.num_segments)
    assert curve.hits == (expected.num_hits,)
    assert curve.hit_fractions == (expected.hit_tokens / expected.prompt_tokens,)


def test_a_block_needs_as_large_a_cache_as_it_lies_deep() -> None:
    # blocks a b, then c d e, then a b again: on top lie c d e, below them a, below that b
    workload = workload_of([((1, 4), (2, 4)), ((3, 4), (4, 4), (5, 4)), ((1, 4), (2, 4))])
    assert hit_curve(workload, 4, [3, 4, 5, 6]).hits == (0, 1, 2, 2)


def test_answers_take_room_and_later_turns_find_them() -> None:
    turns = generate_conversations(Poisson(1.0), Fixed(8), Fixed(9), 3, num_turns=3, think_s=0.0)
    # 8 + 9 - 1 = 16 positions are left of the first turn: 4 blocks; 8 + 9 + 8 + 9 - 1 = 33 of the second: 8 blocks
    assert hit_curve(turns, 4, [3, 4, 100]).hits == (3 + 3, 4 + 4, 4 + 8)
    alone = Requests(turns.requests.prompt_tokens, turns.requests.output_tokens, turns.requests.prompts)
    nameless = Workload("nameless", alone, turns.arrival)
    # without names, of the second turn's prompt nothing but the first message is known, and of the third's the whole second
    assert hit_curve(nameless, 4, [100]).hits == (2 + 25 // 4,)


def test_requests_that_share_nothing_find_nothing() -> None:
    curve = hit_curve(closed_loop("loop", [RequestShape(64, 8)], 1, 5), 16, [1, 10**6])
    assert (curve.hits, curve.unlimited_hits, curve.num_blocks) == ((0, 0), 0, 20)
    assert curve.hit_fractions == (0.0, 0.0)


def test_twelve_thousand_requests_take_a_moment() -> None:
    workload = generate_conversations(
        Poisson(1.0), UniformLengths(20, 120), UniformLengths(20, 120), 12_000, num_turns=5, think_s=9.0
    )
    curve = hit_curve(workload, 16, range(1, 200_000, 1000))
    assert curve.num_blocks > 12_000 * 15
    assert list(curve.hits) == sorted(curve.hits)
    assert curve.hits[-1] == curve.unlimited_hits > 100_000


def test_sizes_below_one_are_refused() -> None:
    workload = Workload("one", Requests(array("q", [4]), array("q", [1])), workload_of([((1, 1),)]).arrival)
    for block_size, capacities in ((0, [1]), (4, [5, 0])):
        with pytest.raises(RequestError, match="each must be at least 1"):
            hit_curve(workload, block_size, capacities)
