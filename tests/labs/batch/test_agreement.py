"""Differences, gaps and the first divergence, of logits made by hand."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from inference_bench.labs.batch.agreement import compare, first_divergence
from inference_bench.labs.batch.flow import _check_difference, _check_divergences
from inference_bench.labs.batch.result import BatchAgreement
from inference_bench.labs.logits import top_two_gap

ALLOWED = 2e-4
ALONE = torch.tensor([[0.0, 1.0, 5.0], [4.0, 1.0, 0.0], [2.0, 2.0001, 0.0], [9.0, 0.0, 0.0]])


def test_the_gap_is_between_the_two_best() -> None:
    assert top_two_gap(ALONE[0]) == pytest.approx(4.0)


def test_the_same_tokens_have_no_divergence() -> None:
    assert first_divergence(ALONE, ALONE, [2, 0, 1, 0], ALLOWED) is None


def test_a_flip_between_two_that_are_closer_than_rounding_is_a_near_tie() -> None:
    batch = ALONE.clone()
    batch[2, 0] = 2.0002
    found = first_divergence(ALONE, batch, [2, 0, 0, 0], ALLOWED)
    assert found is not None
    assert (found.step, found.token_alone, found.token_in_batch) == (2, 1, 0)
    assert found.top_two_gap == pytest.approx(1e-4, rel=0.01)
    assert found.logit_difference == pytest.approx(2e-4, rel=0.01)
    assert found.is_near_tie


def test_a_flip_over_a_wide_gap_is_none_even_if_the_logits_moved_as_far() -> None:
    batch = ALONE.clone()
    batch[1] = torch.tensor([0.0, 4.0, 1.0])
    found = first_divergence(ALONE, batch, [2, 1, 1, 0], ALLOWED)
    assert found is not None
    assert (found.step, found.is_near_tie) == (1, False)


def test_after_a_divergence_of_free_runs_nothing_is_compared_since_contexts_differ() -> None:
    batch = ALONE.clone()
    batch[2, 0] = 2.0002
    batch[3] = 100.0
    free = compare(0, (5, 2), ALONE, batch, [2, 0, 0, 0], is_forced=False, allowed=ALLOWED)
    assert free.num_steps_compared == 3
    assert free.max_difference == pytest.approx(2e-4, rel=0.01)
    assert free.prompt_difference == 0.0
    assert free.least_top_two_gap == pytest.approx(1e-4, rel=0.01)
    forced = compare(0, (5, 2), ALONE, batch, [2, 0, 0, 0], is_forced=True, allowed=ALLOWED)
    assert (forced.num_steps_compared, forced.max_difference) == (4, 100.0)


def agreement(batch: torch.Tensor, tokens: list[int]) -> BatchAgreement:
    row = compare(0, (5, 2), ALONE, batch, tokens, is_forced=False, allowed=ALLOWED)
    return BatchAgreement("float32", 1, 4, "by hand", ALLOWED, (row,))


def test_logits_that_differ_by_more_than_allowed_are_a_missed_check() -> None:
    near, far = ALONE + 1e-4, ALONE + 1e-3
    assert _check_difference(agreement(near, [2, 0, 1, 0])).is_met
    assert not _check_difference(agreement(far, [2, 0, 1, 0])).is_met


def test_a_divergence_without_a_near_tie_is_a_missed_check() -> None:
    batch = ALONE.clone()
    batch[1] = torch.tensor([0.0, 4.0, 1.0])
    assert _check_divergences([agreement(ALONE, [2, 0, 1, 0])]).is_met
    check = _check_divergences([agreement(batch, [2, 1, 1, 0])])
    assert not check.is_met
    assert check.found.startswith("1 of 1 runs differ, 1 of them")
