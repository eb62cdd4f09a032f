"""The cache lab on the real model, as its page runs it."""

from __future__ import annotations

import pytest

from inference_bench.labs.cache.faults import Fault
from inference_bench.labs.cache.result import MODEL, TOY, CacheResult
from real.lab_pages import PAGE_TIMEOUT_S, run_page

pytestmark = [pytest.mark.labs, pytest.mark.timeout(PAGE_TIMEOUT_S)]


@pytest.fixture(scope="module")
def result() -> CacheResult:
    found: CacheResult = run_page("cache")
    return found


def test_cached_logits_lie_within_2e_4_of_full_recomputation_and_the_tokens_are_the_same(result: CacheResult) -> None:
    sound = [each for each in result.comparisons if each.subject == MODEL and each.fault is None]
    assert len(sound) == 2
    for each in sound:
        assert 0 < each.max_logit_error <= 2e-4
        assert each.num_compared == len(each.logit_errors) == each.num_emitted == 24
        assert each.num_equal_tokens == 24


def test_the_cache_has_the_bytes_of_the_formula(result: CacheResult) -> None:
    """2 · 30 layers · 3 KV heads · 64 values · 4 bytes, and the toy's 555008 at 271 positions."""
    for size in result.sizes:
        assert size.num_positions == size.num_prompt_tokens + size.num_emitted - 1
        assert size.measured_bytes == size.num_positions * (46_080 if size.subject == MODEL else 2_048)
    assert [size.measured_bytes for size in result.sizes if size.subject == TOY] == [555_008]


def test_logits_show_every_fault_and_the_text_hides_a_position_that_is_off_by_one(result: CacheResult) -> None:
    planted = [each for each in result.comparisons if each.subject == MODEL and each.fault is not None]
    assert {each.fault for each in planted} == set(Fault)
    assert all(each.max_logit_error > 0.1 for each in planted)
    off = [each for each in planted if each.fault is Fault.POSITION_OFF_BY_ONE]
    assert all(each.is_seen_by_logits_alone for each in off)
    frozen = [each for each in planted if each.fault is Fault.POSITION_FROZEN]
    assert all((each.first_over_tolerance or 0) <= each.num_equal_tokens for each in frozen)


def test_a_shared_cache_goes_wrong_and_copies_do_not(result: CacheResult) -> None:
    assert {branch.is_shared for branch in result.branches} == {True, False}
    assert all((branch.max_logit_error > 1.0) is branch.is_shared for branch in result.branches)


def test_a_trailing_space_merges_with_what_follows(result: CacheResult) -> None:
    plain, space, word = result.boundaries
    assert plain.first_difference is None
    assert space.first_difference == space.num_prefix_tokens - 1 == space.num_reusable_tokens
    assert word.first_difference is not None
    assert all(case.reused_logit_error <= 2e-4 for case in result.boundaries)


def test_without_a_cache_everything_takes_more_flops_the_longer_the_more(result: CacheResult) -> None:
    ratios = [point.flops_ratio for point in result.lengths]
    assert ratios == sorted(ratios)
    assert ratios[0] > 10
