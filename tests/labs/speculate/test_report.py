"""What the lab says of a result, on a terminal and on a page."""

from __future__ import annotations

import json
from dataclasses import replace

from inference_bench.report.lab_json import lab_json
from inference_bench.report.lab_page import lab_text
from inference_bench.report.lab_speculate import fastest, lab_page
from labs.speculate.sample import EXIT, FAULT, NEAR_TIE, RUNS, sample

MOST_COLUMNS = 100


def reading(number: int, result: object = None) -> str:
    return lab_page(result or sample()).reading[number]  # type: ignore[arg-type]


def test_it_begins_with_whether_the_output_stays() -> None:
    assert reading(0).startswith("Yes, the output stays: all 6 speculative answers")
    assert "The output stays up to rounding: 5 of 6" in reading(0, sample(NEAR_TIE))
    assert "No, the output does not stay: 1 of 6" in reading(0, sample(FAULT))


def test_it_then_says_what_was_gained_and_by_which_draft() -> None:
    assert "It gains: the fastest, lookup at γ = 4, decodes 1.12 times as fast as plain" in reading(1)
    slow = replace(sample(), runs=(RUNS[0], RUNS[2]))
    assert "It gains nothing here: the fastest, lookup at γ = 2, decodes 0.850 times" in reading(1, slow)


def test_a_gain_within_what_two_timings_differ_by_is_called_none() -> None:
    timed = RUNS[0].speed_ups
    assert timed is not None
    level = replace(sample(), runs=(replace(RUNS[0], speed_ups=replace(timed, measured=1.03)),))
    assert "It hardly changes the speed here: the fastest, lookup at γ = 2, decodes 1.03 times" in reading(1, level)


def test_the_factors_between_prediction_and_stopwatch_multiply_to_their_ratio() -> None:
    said = reading(2)
    factors = [float(part.split(")")[0]) for part in said.split("(× ")[1:]]
    assert len(factors) == 3
    assert abs(factors[0] * factors[1] * factors[2] - 1.12 / 1.25) < 0.005


def test_a_draft_that_no_acceptance_would_make_pay_is_named_with_its_costs() -> None:
    said = reading(3)
    assert said.startswith("The draft early exit 20/30 could not gain at γ = 2 even if every proposal were right")
    assert "costs 3.50 plain steps" in said
    assert "3 tokens at most" in said


def test_the_target_as_its_own_draft_is_never_the_fastest() -> None:
    result = sample()
    own = replace(result.drafts[0], kind="target itself")
    best = fastest(replace(result, drafts=(own, result.drafts[1])))
    assert best is not None
    assert best[0].draft == EXIT


def test_the_target_as_its_own_draft_is_no_choice_that_could_not_gain() -> None:
    result = sample()
    facts = tuple(replace(each, kind="target itself") if each.name == EXIT else each for each in result.drafts)
    assert not any("could not gain" in said for said in lab_page(replace(result, drafts=facts)).reading)


def test_no_mistake_that_could_be_planted_and_nothing_proposed_leave_sentences_that_are_true() -> None:
    result = sample()
    assert result.server is not None
    answers = tuple(replace(each, num_proposed=0, num_accepted=0) for each in result.server.answers)
    bare = replace(result, planted=(), server=replace(result.server, answers=answers))
    said = " ".join(lab_page(bare).reading)
    assert "on purpose" not in said
    assert "it proposed nothing" in said


def test_the_server_is_said_to_be_slower_where_it_was() -> None:
    said = " ".join(lab_page(sample()).reading)
    assert "74.0 tokens/s with it and 82.0 without" in said
    assert "1 of 2 answers were slower with it, most story" in said


def test_every_line_fits_the_terminal() -> None:
    for result in (sample(), sample(FAULT), replace(sample(), server=None)):
        assert max(map(len, lab_text(lab_page(result)).splitlines())) <= MOST_COLUMNS


def test_a_result_without_drafts_draws_or_server_still_has_a_page() -> None:
    bare = replace(
        sample(), runs=(), comparisons=(), sampled=(), planted=(), planted_rollbacks=(), server=None, costs=None
    )
    assert "Nothing was decoded" in lab_text(lab_page(bare))


def test_json_holds_no_text_of_a_prompt() -> None:
    said = json.dumps(lab_json("speculate", sample()), allow_nan=False)
    assert '"acceptance": 0.62' in said
    assert "river" not in said
