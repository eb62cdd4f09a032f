"""A shared prefix: right from copies and after it is taken back, wrong when two suffixes share one cache."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.labs.cache.reuse import measure_branches, measure_reuse
from labs.cache.tiny import ids, tiny_network

PREFIX, SUFFIX = 20, 5


@pytest.fixture(scope="module")
def network() -> Any:
    return tiny_network()


def test_a_warm_start_gives_the_logits_of_a_cold_one_from_a_copy_of_the_formulas_bytes(network: Any) -> None:
    found = measure_reuse(network, ids(PREFIX), ids(SUFFIX, 1), repeats=1, say=print)
    assert found.max_logit_error < 1e-4
    assert found.copied_bytes == 256 * PREFIX
    assert found.cold_s > 0
    assert found.warm_s > 0


def test_copies_and_a_cache_that_is_taken_back_are_right_and_a_shared_one_is_not(network: Any) -> None:
    branches, is_untouched = measure_branches(network, ids(PREFIX), ids(SUFFIX, 1), ids(SUFFIX, 2), print)
    assert is_untouched
    shared = [branch for branch in branches if branch.is_shared]
    own = [branch for branch in branches if not branch.is_shared]
    assert len(shared) == 1
    assert len(own) == 4
    assert all(branch.max_logit_error < 1e-4 and branch.num_equal_tokens == branch.num_emitted for branch in own)
    assert all(branch.num_cached_before == PREFIX for branch in own)
    assert shared[0].max_logit_error > 0.1
    assert shared[0].num_cached_before > PREFIX + SUFFIX  # the other's suffix, and what it went on with


def test_a_copy_that_shares_its_memory_is_noticed(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the copy before branching, the second of the two branches is wrong, and the prefix's cache has grown."""
    monkeypatch.setattr("copy.deepcopy", lambda cache: cache)
    branches, is_untouched = measure_branches(network, ids(PREFIX), ids(SUFFIX, 1), ids(SUFFIX, 2), print)
    assert not is_untouched
    assert branches[1].max_logit_error > 0.1
