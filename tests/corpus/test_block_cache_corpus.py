"""The recorded Mooncake traces: what a block cache without limit finds is what their README counted."""

from __future__ import annotations

import json
from array import array

import pytest

from corpus.model_configs import SHARED
from inference_bench.simulate.answers import sequence_of
from inference_bench.simulate.block_keys import BlockChain, BlockKeys
from inference_bench.simulate.hit_curve import hit_curve
from inference_bench.simulate.kv_blocks import BlockPool
from inference_bench.workload import Requests, Segment, Workload, open_loop

TRACES = SHARED / "data" / "traces"
BLOCK = 512

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not TRACES.is_dir(), reason="the shared traces are not beside this checkout"),
]

KNOWN = {"conversation": (49_091, 144_280), "synthetic": (14_823, 47_171)}


def mooncake(name: str) -> Workload:
    """Every recorded block counts as a full one, as in the README's count."""
    text = (TRACES / f"mooncake_fast25_{name}_first-half.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    prompts = tuple(tuple(Segment(block, BLOCK) for block in row["hash_ids"]) for row in rows)
    lengths = array("q", [BLOCK * len(prompt) for prompt in prompts])
    requests = Requests(lengths, array("q", [row["output_length"] for row in rows]), prompts)
    return Workload(name, requests, open_loop([row["timestamp"] / 1000 for row in rows]))


@pytest.mark.parametrize("name", KNOWN)
def test_a_pool_without_limit_finds_the_leading_blocks(name: str) -> None:
    workload = mooncake(name)
    pool, numbers = BlockPool(10**9, BLOCK), BlockKeys()
    for index, length in enumerate(workload.requests.prompt_tokens):
        keys = BlockChain.of(sequence_of(workload, index, 0.0), numbers, BLOCK).upto(length)
        found = pool.find(keys)
        pool.count(length, len(found) * BLOCK)
        pool.take(found)
        blocks = found + pool.allocate(len(keys) - len(found))
        for block, key in zip(blocks, keys, strict=True):
            pool.register(block, key)
        pool.release(blocks)
    assert (pool.hit_tokens // BLOCK, pool.query_tokens // BLOCK) == KNOWN[name]
    assert pool.evictions == 0


@pytest.mark.parametrize("name", KNOWN)
def test_the_hit_curve_rises_to_the_leading_blocks(name: str) -> None:
    curve = hit_curve(mooncake(name), BLOCK, [1, 10, 100, 1000, 10_000, 100_000, 10**9])
    assert (curve.unlimited_hits, curve.num_blocks) == KNOWN[name]
    assert list(curve.hits) == sorted(curve.hits)
    assert curve.hits[0] < curve.hits[3] < curve.hits[-1] == curve.unlimited_hits
