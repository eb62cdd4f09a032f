"""What is counted of rounds, what steps cost, and how the formula becomes the stopwatch."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from inference_bench.labs.checks import missed
from inference_bench.labs.speculate.account import Answer, account, by_position
from inference_bench.labs.speculate.checks import all_checks, is_server_tie
from inference_bench.labs.speculate.compare import compare
from inference_bench.labs.speculate.greedy import Decoded, Round, Times
from inference_bench.labs.speculate.result import (
    Comparison,
    Divergence,
    PlantedFault,
    PlantedRollback,
    SampledDraft,
    ServerAnswer,
    ServerResult,
    StepCosts,
)

COSTS = StepCosts(50, 5, step_s=0.1, verify_s={2: 0.12, 4: 0.16}, draft_step_s={"d": 0.02})
FULL = Round(num_wanted=2, num_proposed=2, num_trials=2, num_accepted=2, num_emitted=3, is_cut=False)
HALF = Round(2, 2, 2, 1, 2, False)
NONE = Round(2, 2, 1, 0, 1, False)
EMPTY = Round(2, 0, 0, 0, 1, False)
CUT = Round(1, 1, 1, 1, 2, True)


def test_a_cost_is_in_plain_steps_and_lies_on_the_line_between_two_that_were_measured() -> None:
    assert COSTS.draft_cost("d") == pytest.approx(0.2)
    assert [COSTS.verify_cost(gamma) for gamma in (0, 1, 2, 3, 4)] == pytest.approx([1, 1.1, 1.2, 1.4, 1.6])
    assert COSTS.verify_cost(9) == pytest.approx(1.6)


def test_rounds_are_counted_by_what_was_judged_and_by_all_that_was_proposed() -> None:
    answer = Answer((FULL, HALF, NONE, EMPTY, CUT), Times(2.0, 0.3, 1.5, 0.1), plain_s=2.4, is_equal=True)
    run = account("d", 2, [answer], COSTS)
    assert (run.num_rounds, run.num_tokens, run.num_proposed, run.num_trials, run.num_accepted) == (5, 9, 7, 6, 4)
    assert (run.num_cut_rounds, run.num_short_rounds, run.num_empty_rounds) == (1, 1, 1)
    assert run.acceptance == pytest.approx(4 / 6)
    assert run.accepted_of_proposed_fraction == pytest.approx(4 / 7)
    assert run.tokens_per_round == pytest.approx(9 / 5)
    assert run.tokens_per_full_round == pytest.approx(2)  # 3, 2 and 1
    assert run.expected_tokens_per_round == pytest.approx(1 + 2 / 3 + 4 / 9)
    assert run.other_s == pytest.approx(0.1)


def test_the_formula_becomes_the_stopwatch_in_steps_of_which_each_changes_one_thing() -> None:
    answer = Answer((FULL, EMPTY), Times(1.6, 0.2, 1.3, 0.1), plain_s=2.4, is_equal=True)
    speeds = account("d", 2, [answer], COSTS).speed_ups
    assert speeds is not None
    assert speeds.predicted == pytest.approx(3 / 1.6)  # all judged were right: 3 tokens for 2 · 0.2 + 1.2
    assert speeds.with_tokens_counted == pytest.approx(2 / 1.6)  # 4 tokens in 2 rounds
    assert speeds.with_rounds_counted == pytest.approx(2 / 1.3)  # one of 1.6 and one plain step
    assert speeds.measured == pytest.approx(1.5)


def test_a_draft_that_never_proposed_has_no_acceptance_and_no_prediction() -> None:
    run = account("d", 2, [Answer((EMPTY,), Times(1.0), 1.0, True)], COSTS)
    assert (run.acceptance, run.expected_tokens_per_round, run.speed_ups) == (None, None, None)


def test_an_answer_of_one_token_has_no_rounds_and_no_speed() -> None:
    run = account("d", 2, [Answer((), Times(), 0.0, True)], COSTS)
    assert (run.num_rounds, run.tokens_per_round, run.speed_ups) == (0, 0, None)


def test_acceptance_by_place_counts_only_what_was_reached() -> None:
    found = [(each.position, each.num_trials, each.num_accepted) for each in by_position((FULL, HALF, NONE), 2)]
    assert found == [(1, 3, 2), (2, 2, 1)]


# ── equal, near tie, fault ─────────────────────────────────────────────────────────────────────────


def decoded(*rows: list[float]) -> Decoded:
    import torch

    logits = [torch.tensor([row]) for row in rows]
    return Decoded([int(each.argmax()) for each in logits], logits)


PLAIN = decoded([5.0, 0.0], [1.0, 1.0 - 1e-5])


@pytest.mark.parametrize(
    ("second", "is_near_tie"),
    [
        ([1.0 - 1e-5, 1.0], True),  # rounding swaps the two
        ([1.0, 1.5], False),  # half a logit is no rounding
    ],
)
def test_a_swap_that_rounding_explains_is_a_near_tie_and_another_is_a_fault(
    second: list[float], is_near_tie: bool
) -> None:
    compared = compare(PLAIN, decoded([5.0, 0.0], second), "p", "d", 2)
    assert compared.divergence is not None
    assert (compared.num_equal_tokens, compared.divergence.position) == (1, 1)
    assert compared.divergence.top_two_gap == pytest.approx(1e-5, rel=0.05)
    assert compared.divergence.is_near_tie is is_near_tie


def test_a_choice_that_is_not_the_likeliest_is_a_fault_even_where_logits_agree() -> None:
    wide = decoded([5.0, 0.0], [3.0, 1.0])
    compared = compare(wide, Decoded([0, 1], wide.logits), "p", "d", 2)
    assert compared.divergence is not None
    assert not compared.divergence.is_near_tie


def test_an_answer_that_ends_too_early_is_a_fault() -> None:
    compared = compare(PLAIN, decoded([5.0, 0.0]), "p", "d", 2)
    assert compared.divergence == Divergence(1, 0.0, 0.0, is_near_tie=False)


# ── checks ─────────────────────────────────────────────────────────────────────────────────────────

SAME = Comparison("p", "d", 2, 8, 8, 1e-5, None)
ANSWER = ServerAnswer("p", 8, True, 0.01, 0.02, 4, 2, None, None)


def met(comparison: Comparison, answer: ServerAnswer = ANSWER) -> dict[str, bool]:
    server = ServerResult("llama.cpp", None, "ngram_simple", (answer,), ())
    return {each.name: each.is_met for each in all_checks([comparison], 1e-3, (), (), (), server)}


def test_equal_answers_meet_their_checks() -> None:
    assert set(met(SAME).values()) == {True}


def test_an_answer_that_parts_without_a_near_tie_does_not_meet_the_check() -> None:
    parted = replace(SAME, divergence=Divergence(3, 0.5, 1e-5, is_near_tie=False))
    assert met(parted)["answers, d"] is False
    tied = replace(SAME, divergence=Divergence(3, 1e-6, 1e-5, is_near_tie=True))
    assert met(tied)["answers, d"] is True


def test_logits_that_differ_by_more_than_rounding_do_not_meet_the_check_though_tokens_agree() -> None:
    assert met(replace(SAME, max_logit_difference=0.01))["logits, d"] is False


SAMPLED = SampledDraft("d", 6, 20_000, 1e-16, 0.39, 0.391, 0.002, 0.0024, 0.003, 0.005)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({}, None),
        ({"identity_error": 1e-6}, "identity, d"),
        ({"total_variation": 0.006}, "drawn, d"),
        ({"acceptance_sampled": 0.40}, "acceptance, d"),
        ({"acceptance_sampled": 0.38}, "acceptance, d"),
    ],
)
def test_each_figure_of_drawn_tokens_has_a_check_that_misses_when_it_alone_is_off(
    wrong: dict[str, float], name: str | None
) -> None:
    checks = all_checks((), 1e-3, [replace(SAMPLED, **wrong)], (), (), None)  # type: ignore[arg-type]
    assert [each.name for each in missed(checks)] == ([name] if name else [])


def test_a_planted_mistake_that_nothing_found_is_a_missed_check() -> None:
    planted = [PlantedFault("seen", 0.02, 0.004), PlantedFault("unseen", 0.003, 0.004)]
    rollbacks = [
        PlantedRollback(1, 8, 8, 0.4, False, True),
        PlantedRollback(-1, 8, 8, 1e-5, False, False),
    ]
    checks = all_checks((), 1e-3, (), planted, rollbacks, None)
    assert [each.name for each in missed(checks)] == ["caught: unseen", "caught: 1 token too few kept"]


def test_a_server_that_says_something_else_is_excused_only_by_a_near_tie_of_its_own() -> None:
    name = "server's texts, off and on"
    other = replace(ANSWER, is_same_text=False, first_difference=2)
    assert met(SAME, other)[name] is False
    assert met(SAME, replace(other, gap_nats=2.0))[name] is False
    assert met(SAME, replace(other, gap_nats=0.01))[name] is True
    assert not is_server_tie(ANSWER)
