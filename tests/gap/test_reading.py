"""What is said of a step is borne out by its parts and its changes."""

from __future__ import annotations

import re

from gap.sample import MAXIMUM_SHARES, VECTOR_SHARES, decode_step, mixed_step, sample_calibration
from inference_bench.gap.parts import Cause, CauseKind, GapReading
from inference_bench.gap.proposals import Choices
from inference_bench.gap.reading import read_gap
from inference_bench.units import format_fraction, format_seconds


def reading_of(errors: tuple[float, ...] = (0.0,)) -> GapReading:
    return read_gap(sample_calibration(errors=errors), Choices(max_batch=8))


def test_every_shown_step_has_its_time_its_bound_and_its_largest_loss_said() -> None:
    found = reading_of((0.02, -0.03))
    assert len(found.steps) == 3
    for step in found.steps:
        title = f"{step.title[:1].upper()}{step.title[1:]}"
        said = next(sentence for sentence in found.sentences if sentence.startswith(f"{title}: "))
        assert f"{format_seconds(step.measured_s)} measured" in said
        largest = max(step.parts, key=lambda part: part.seconds)
        assert f"{largest.cause} {format_seconds(largest.seconds)} ({format_fraction(largest.share)})" in said
        assert any(
            f"less than {format_seconds(step.bound_s)} at the measured ceilings" in each for each in found.sentences
        )
        losses = [part for part in step.parts if part.cause.kind in (CauseKind.LOST, CauseKind.OVERHEAD)]
        worst = max(losses, key=lambda part: part.seconds)
        assert any(
            f"{title}: the largest loss is {worst.cause}, {format_seconds(worst.seconds)}" in each
            for each in found.sentences
        )


def test_the_shares_that_are_said_add_up() -> None:
    for sentence in reading_of().sentences:
        if " measured, of which " in sentence:
            shares = [float(each) for each in re.findall(r"\(([\d.]+) %\)", sentence)]
            assert abs(sum(shares) - 100) < 0.3


def test_the_best_choice_and_the_broken_promise_are_told() -> None:
    found = reading_of()
    first = [change for change in found.changes if change.at == found.steps[0].title]
    assert next(change for change in first if change.is_choice).name == "batch of 8"
    text = "\n".join(found.sentences)
    assert "of what can be chosen, batch of 8 would gain most: +61.2 % tokens/s" in text
    assert "bytes and FLOPs alone promise +88.7 % for batch of 2; the fitted formula says +1.3 %" in text
    assert "of what a better engine could reach, all of the bandwidth would gain most: +40.9 %" in text


def test_changes_are_best_first_within_a_step_in_the_order_of_the_steps() -> None:
    found = reading_of()
    assert list(dict.fromkeys(change.at for change in found.changes)) == [step.title for step in found.steps]
    for step in found.steps:
        gains = [change.gain for change in found.changes if change.at == step.title]
        assert gains == sorted(gains, reverse=True)


def test_an_assumption_is_said_to_be_one() -> None:
    calibration = sample_calibration(MAXIMUM_SHARES, steps=[decode_step(1, 266)])
    text = "\n".join(read_gap(calibration, Choices(max_batch=1)).sentences)
    assert "speculation, 1 drafted (assumed, not measured here) would gain most: +69.9 %" in text


def test_where_nothing_helps_it_is_said() -> None:
    text = "\n".join(reading_of().sentences)
    assert "Prefill of 768 tokens: nothing that can be chosen would gain 2 % or more prompt tokens/s." in text


def test_a_formula_that_is_far_off_is_said_to_be() -> None:
    far = "\n".join(read_gap(sample_calibration(VECTOR_SHARES, errors=[0.3])).sentences)
    near = "\n".join(read_gap(sample_calibration(VECTOR_SHARES, errors=[0.01])).sentences)
    assert "the fitted formula is off by 23.1 % of this step" in far
    assert "is off by" not in near


def test_a_negative_unexplained_part_is_taken_off() -> None:
    found = read_gap(sample_calibration(errors=[-0.1]))
    unexplained = found.steps[0].seconds(Cause.UNEXPLAINED)
    assert unexplained < 0
    assert f"unexplained less {format_seconds(-unexplained)} (11.1 %)" in found.sentences[0]


def test_without_steps_of_one_kind_there_is_nothing_to_say() -> None:
    found = read_gap(sample_calibration(steps=[mixed_step(100, 3, 266)]))
    assert found == GapReading((), (), ())
