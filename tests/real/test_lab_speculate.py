"""Speculation on the real model, by the lab's own page."""

from __future__ import annotations

import pytest

from inference_bench.labs.speculate.result import SpeculateResult
from real.lab_pages import PAGE_TIMEOUT_S, run_page

pytestmark = [pytest.mark.labs, pytest.mark.timeout(PAGE_TIMEOUT_S)]


@pytest.fixture(scope="module")
def result() -> SpeculateResult:
    found = run_page("speculate")
    assert isinstance(found, SpeculateResult)
    return found


def test_every_draft_gives_the_plain_answer_on_five_prompts_or_parts_at_a_near_tie(result: SpeculateResult) -> None:
    for draft in result.drafts:
        mine = [each for each in result.comparisons if each.draft == draft.name]
        assert len({each.prompt for each in mine}) >= 5
        assert all(each.divergence is None or each.divergence.is_near_tie for each in mine)
        assert max(each.max_logit_difference for each in mine) < 1e-3


def test_one_prompt_ends_by_itself_and_speculation_ends_with_it(result: SpeculateResult) -> None:
    ended = {each.name: each.num_tokens for each in result.prompts if each.has_ended}
    assert ended
    lookups = [each for each in result.comparisons if each.draft == "lookup" and each.prompt in ended]
    assert all(each.num_equal_tokens == ended[each.prompt] for each in lookups if each.divergence is None)


def test_a_lookup_is_right_more_often_further_into_the_draft_than_at_its_first_place(result: SpeculateResult) -> None:
    (run,) = [each for each in result.runs if (each.draft, each.gamma) == ("lookup", 4)]
    first, *rest = run.by_position
    assert (
        sum(each.num_accepted for each in rest) / sum(each.num_trials for each in rest)
        > first.num_accepted / first.num_trials
    )


def test_rounds_hold_every_token_but_the_first_of_each_answer(result: SpeculateResult) -> None:
    for run in result.runs:
        mine = [each for each in result.comparisons if (each.draft, each.gamma) == (run.draft, run.gamma)]
        assert run.num_tokens == sum(each.num_tokens - 1 for each in mine)
        assert run.num_accepted <= run.num_trials <= run.num_proposed


def test_drawn_tokens_follow_the_models_own_distribution(result: SpeculateResult) -> None:
    assert {each.draft for each in result.sampled} > {"lookup", "target itself"}
    for each in result.sampled:
        assert each.identity_error < 1e-9
        assert each.total_variation < each.total_variation_allowed


def test_planted_mistakes_are_found(result: SpeculateResult) -> None:
    assert len(result.planted) == 3
    assert all(each.is_caught for each in result.planted)
    assert {each.off_by for each in result.planted_rollbacks} == {1, -1}
    assert all(each.is_caught_by_logits for each in result.planted_rollbacks)


def test_the_server_counts_what_it_drafted_and_says_the_same(result: SpeculateResult) -> None:
    assert result.server is not None
    assert sum(each.num_proposed or 0 for each in result.server.answers) > 0
    assert all(each.is_same_text or each.gap_nats is not None for each in result.server.answers)
    assert all(each.on_tokens_per_s and each.off_tokens_per_s for each in result.server.loads)
