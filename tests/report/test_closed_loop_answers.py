from __future__ import annotations

from dataclasses import replace

import pytest

from inference_bench.calibrate.steps.forms import StepParameter
from inference_bench.calibrate.steps.observations import StepKind
from inference_bench.gap.parts import Change, GapReading
from inference_bench.report.closed_loop_answers import Answer, State, answers
from inference_bench.report.closed_loop_tables import calibration_facts, kinds_table
from inference_bench.report.closed_loop_words import (
    figure_name,
    figure_value,
    fitted_value,
    held_out_words,
    parameter_interval,
    signed,
)
from inference_bench.report.findings import findings
from inference_bench.report.text_result import verify_text
from inference_bench.report.verify_html import verify_html
from inference_bench.stats import Interval
from inference_bench.verify.closed_loop import CapacityCheck, Figure, LoadCheck
from inference_bench.verify.result import VerifyResult
from report.closed_loop_sample import (
    capacity_check,
    gap_reading,
    load_check,
    nothing_came_of_it,
    troubled_loop,
    whole_loop,
)
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
    assert of_changes(gap_reading().changes[3]).mark == "Nothing that can be chosen"
    assert of_changes().mark == "Nothing that was tried"


def test_a_choice_that_gains_less_than_two_percent_is_none_and_a_better_engine_is_said_instead() -> None:
    first, *_, engine = gap_reading().changes
    found = of_changes(replace(first, name="half the context", gain=0.0199), engine)
    assert found.mark == "Nothing that can be chosen"
    assert found.said.startswith(
        "No change that can be chosen is predicted to gain 2 % or more (half the context: +2.0 %). A better engine could gain +118 % "
        "at most in decode, batch 8 at 266 tokens (all of the bandwidth)."
    )
    assert of_changes(replace(first, name="half the context", gain=0.0201), engine).mark == "Half the context"


def test_gains_are_said_to_be_over_the_fitted_step_where_the_measured_one_is_more_than_a_tenth_away() -> None:
    gap = gap_reading()
    step = next(step for step in gap.steps if step.title == gap.changes[0].at)
    for share, is_said in ((0.8, True), (0.95, False), (1.2, True)):
        steps = (replace(step, predicted_s=share * step.measured_s),)
        found = answers(replace(whole_loop(), gap=replace(gap, steps=steps, changes=gap.changes[:1])))[HELP]
        assert ("Gains are over the" in found.said) is is_said


def test_too_few_held_out_steps_are_counted_and_not_called_none() -> None:
    result = whole_loop()
    assert result.calibration is not None
    few = tuple(
        replace(each, observation=replace(each.observation, is_held_out=index < 3))
        for index, each in enumerate(result.calibration.observations)
    )
    fit = replace(result.calibration, observations=few, held_out_error=None, held_out_p90=None, worst_held_out=None)
    said = "oo few held-out steps (3) for an honest error"
    assert said in answers(replace(result, calibration=fit))[LOAD].said
    assert said in held_out_words(fit)
    kinds = kinds_table(fit)
    assert said in kinds.note
    assert [row[3] for row in kinds.rows] == [*("3.80 %", "n/a", "n/a")]  # the first three steps decode
    assert ("error, held out", f"t{said}") in calibration_facts(fit)


def test_an_honest_error_says_that_it_is_not_the_chosen_formula_s_where_the_two_differ() -> None:
    fit = whole_loop().calibration
    assert fit is not None
    plain = fit.plain_held_out_error
    assert plain is not None
    assert "each step judged under the formula the others chose" in held_out_words(
        replace(fit, held_out_error=2 * plain)
    )
    assert "others chose" not in held_out_words(replace(fit, held_out_error=plain))


def test_what_a_disturbed_run_says_is_hedged_and_held_against_nobody() -> None:
    result = replace(whole_loop(), disturbances=("the engine's threads got 27 % of the processor time",))
    plain = answers(whole_loop())
    for before, after in zip(plain, answers(result), strict=True):
        assert after.mark == f"{before.mark} (disturbed run)"
        assert after.state is State.OPEN
    asked = answers(replace(result, load=None, capacity=None))
    assert [asked[LOAD].mark, asked[CAPACITY].mark] == ["Not run", "Not run"]


def test_a_disturbed_run_is_the_first_thing_that_text_and_page_say() -> None:
    result = replace(troubled_loop(), disturbances=("one thing", "another"), trouble="the server ended")
    said = "This run was disturbed: one thing; another; do not judge the engine by it."
    assert findings(result)[:2] == (said, "The run did not come to its end: the server ended.")
    for shown in (verify_text(result), verify_html(result, None)):
        assert shown.index(said) < shown.index("Does it reach its ceiling?")
    assert "disturbed" not in verify_text(troubled_loop())


def test_unsteady_points_are_counted_among_the_findings_and_not_listed() -> None:
    result = whole_loop()
    odd = tuple(
        replace(point, measured=replace(point.measured, mean_s=(2 if index < 3 else 1) * point.measured.seconds))
        for index, point in enumerate(result.points)
    )
    assert findings(replace(result, points=odd)) == (
        f"3 of {len(odd)} points are unsteady: their mean time is far above their median.",
    )


def test_a_capacity_that_runs_contradict_is_undecided() -> None:
    found = of_capacity(is_confirmed=None, contradiction=(2.43, 2.11), measured_rate=None)
    assert (found.mark, found.state) == ("Undecided", State.OPEN)
    assert "Undecided: 2.43/s kept it while 2.11/s did not, so something disturbed the runs." in found.said


def test_a_number_that_the_steps_do_not_tell_is_assumed_and_a_wide_interval_is_not_known() -> None:
    assert fitted_value(StepParameter("bandwidth", 0.7, None, is_told=False)) == "70.0 % (assumed)"
    assert fitted_value(StepParameter("fixed_s", 0.0, None, is_assumed=True)).endswith("(assumed)")
    assert fitted_value(StepParameter("bandwidth", 0.7, Interval(0.6, 0.8, 0.95))) == "70.0 %"
    assert parameter_interval("bandwidth", Interval(0.05, 0.51, 0.95)) == "not known"
    assert parameter_interval("bandwidth", Interval(0.05, 0.49, 0.95)) == "5.00 – 49.0 %"
    assert parameter_interval("request_s", Interval(0.0, 0.002, 0.95)) == "at most 2.00 ms"


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
        (
            {"is_confirmed": False},
            "No",
            State.POOR,
            "Measured: 2.11 requests/s is the most up to which every run kept it.",
        ),
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
