from __future__ import annotations

from dataclasses import replace

import pytest

from inference_bench.calibrate.steps.observations import StepKind
from inference_bench.gap.parts import Change, GapReading
from inference_bench.report.closed_loop_answers import Answer, State, answers
from inference_bench.report.closed_loop_words import figure_name, figure_value, signed
from inference_bench.verify.closed_loop import CapacityCheck, Figure, LoadCheck
from inference_bench.verify.result import VerifyResult
from report.closed_loop_sample import capacity_check, gap_reading, load_check, nothing_came_of_it, whole_loop
from report.sample import no_ceiling_result, sample_result, with_findings

CEILING, HELP, LOAD, CAPACITY = range(4)


def of_capacity(**changes: object) -> Answer:
    check: CapacityCheck = replace(capacity_check(), **changes)
    return answers(replace(whole_loop(), capacity=check))[CAPACITY]


def of_changes(*changes: Change) -> Answer:
    gap: GapReading = replace(gap_reading(), changes=changes)
    return answers(replace(whole_loop(), gap=gap))[HELP]


def of_load(load: LoadCheck) -> Answer:
    return answers(replace(whole_loop(), load=load))[LOAD]


def with_shares(*shares: float) -> VerifyResult:
    """The sample's first points, with times that reach these shares of their bound."""
    from inference_bench.compare import Verdict

    result = sample_result()
    points = tuple(
        replace(point, fraction_of_bound=share, verdict=Verdict.NEAR if share >= 0.7 else Verdict.BELOW)
        for point, share in zip(result.points, shares, strict=False)
    )
    return replace(result, points=points)


def test_four_questions_are_answered_in_the_same_order_whatever_was_run() -> None:
    questions = {
        tuple(answer.question for answer in answers(make())) for make in (sample_result, whole_loop, nothing_came_of_it)
    }
    assert len(questions) == 1
    assert all(question.endswith("?") for question in questions.pop())


@pytest.mark.parametrize(
    ("result", "mark", "state"),
    [
        (with_shares(0.8, 0.9), "Nearly", State.GOOD),
        (with_shares(0.8, 0.3), "In part", State.OPEN),
        (with_shares(0.2, 0.3), "No", State.POOR),
        (with_findings(), "Beyond it", State.POOR),
        (no_ceiling_result(), "Not known", State.OPEN),
    ],
)
def test_near_the_ceiling_is_seven_tenths_of_it_and_beyond_it_is_a_finding(
    result: VerifyResult, mark: str, state: State
) -> None:
    found = answers(result)[CEILING]
    assert (found.mark, found.state) == (mark, state)


def test_shares_are_said_from_the_lowest_to_the_highest_of_each_phase() -> None:
    assert answers(sample_result())[CEILING].said == (
        "Generating tokens (decode) reaches 27 % to 62 % of what memory and compute allow; reading prompts (prefill) reaches "
        "71 % to 83 % of what compute allows."
    )


def test_the_change_that_gains_most_is_named_wherever_it_stands_in_the_list() -> None:
    small, large = gap_reading().changes[2], gap_reading().changes[0]
    found = of_changes(small, large)
    assert found.mark == "8 sequences a step in place of 4"
    assert found.said.startswith(
        "Predicted: +37.0 % tokens/s in decode, batch 8 at 266 tokens; bytes and FLOPs alone promise +71.0 %."
    )
    assert (
        "That step takes 35.0 ms, of which 34 % is compute rate not reached and 21 % is compute at full rate."
        in found.said
    )


def test_a_gain_that_rests_on_a_number_that_was_not_measured_says_so() -> None:
    assert "not measured here" in of_changes(gap_reading().changes[1]).said
    assert "not measured here" not in of_changes(gap_reading().changes[0]).said


def test_what_can_be_chosen_is_named_and_what_a_better_engine_could_reach_stands_beside_it() -> None:
    found = of_changes(*gap_reading().changes)
    assert found.mark == "8 sequences a step in place of 4"
    assert "A better engine could gain +118 % there at most (all of the bandwidth)." in found.said
    alone = of_changes(gap_reading().changes[-1])
    assert alone.mark == "All of the bandwidth"
    assert "A better engine" not in alone.said


def test_a_kind_of_step_that_is_far_off_does_not_hide_behind_the_median_of_all() -> None:
    result = whole_loop()
    assert result.calibration is not None
    wide = replace(result.calibration, error_by_kind={**result.calibration.error_by_kind, StepKind.MIXED: 0.46})
    said = answers(replace(result, calibration=wide))[LOAD].said
    assert "off by 4.2 % (median); mixed steps, the worst, by 46 %." in said
    assert "the worst" not in answers(result)[LOAD].said


def test_a_change_that_makes_it_slower_is_no_help() -> None:
    assert of_changes(gap_reading().changes[3]).mark == "Nothing that was tried"
    assert of_changes().mark == "Nothing that was tried"


def test_targets_are_counted_over_all_loads_and_errors_said_of_the_slowest() -> None:
    load = load_check()
    found = of_load(replace(load, rows=load.rows[::-1]))
    assert (found.mark, found.state) == ("In part, 7 of 8 targets", State.OPEN)
    assert (
        "At 1.20 requests/s the prediction was off by first token (median) +6.1 %, first token (p99) −11.2 %"
        in found.said
    )
    assert "off by 4.2 % (median)" in found.said


def test_all_targets_reached_is_a_yes_and_none_a_no() -> None:
    load = load_check()
    assert of_load(replace(load, rows=load.rows[:1])).mark == "Yes, 4 of 4 targets"
    missed = tuple(Figure("ttft_p50_s", 0.3, 0.2, 60, 0.15) for _ in range(2))
    found = of_load(replace(load, rows=(replace(load.rows[0], figures=missed),)))
    assert (found.mark, found.state) == ("No, 0 of 2 targets", State.POOR)


def test_loads_without_targets_have_errors_and_no_verdict() -> None:
    load = load_check()
    assert of_load(replace(load, rows=load.rows[2:])).mark == "No target set"


@pytest.mark.parametrize(
    ("changes", "mark", "state", "said"),
    [
        ({}, "Yes", State.GOOD, "A run at that rate kept it and one at 2.43 did not."),
        ({"is_confirmed": False}, "No", State.POOR, "Measured: 2.11 requests/s is the most that is known to keep it."),
        ({"is_confirmed": False, "measured_rate": None}, "No", State.POOR, "No measured rate is known to keep it."),
        ({"is_confirmed": None}, "Not settled", State.OPEN, "The runs did not settle it."),
        (
            {"predicted_rate": None},
            "None",
            State.POOR,
            "No rate is predicted to keep TTFT p99 ≤ 0.85 s, gap p99 ≤ 0.11 s.",
        ),
    ],
)
def test_a_capacity_is_confirmed_by_both_runs_or_it_is_not(
    changes: dict[str, object], mark: str, state: State, said: str
) -> None:
    found = of_capacity(**changes)
    assert (found.mark, found.state) == (mark, state)
    assert said in found.said


def test_errors_are_said_to_a_tenth_of_a_percent_with_their_sign() -> None:
    assert [signed(value) for value in (0.125, -0.0312, 0.00812, -0.0002, 0.0, 1.5, None)] == [
        *("+12.5 %", "−3.1 %", "+0.8 %", "0 %", "0 %", "+150 %", "n/a"),
    ]


def test_a_figure_is_named_by_its_field_and_printed_by_its_unit() -> None:
    assert (figure_name("ttft_p99_s"), figure_value("ttft_p99_s", 0.25)) == ("TTFT p99", "250 ms")
    assert (figure_name("output_tokens_per_s"), figure_value("output_tokens_per_s", 41.72)) == (
        "output tokens/s",
        "41.7",
    )
    assert figure_name("duration_s") == "duration"
    assert figure_value("tpot_p50_s", None) == "n/a"
