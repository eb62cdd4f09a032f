"""What the page of the batch lab says, and that it fits a terminal."""

from __future__ import annotations

from dataclasses import replace

from inference_bench.report.lab_batch import lab_page
from inference_bench.report.lab_page import lab_markdown, lab_text
from labs.batch.sample import breakdown, sample_result


def test_the_first_sentence_answers_with_the_gain_and_what_each_sequence_gets() -> None:
    said = lab_page(sample_result()).reading
    assert said[0].startswith("In float32 a batch of 16 decodes 200 tokens/s, 8.00 times as many as a batch of 1")
    assert "25.0 % and 12.5 % of that are reached" in said[1]


def test_a_divergence_is_told_with_its_gap_and_that_it_was_a_near_tie() -> None:
    said = "\n".join(lab_page(sample_result()).reading)
    assert (
        "1 of them take another token, the first at step 4, a near tie: the two best were 0 apart, the logits 0.250"
        in said
    )


def test_faults_that_no_token_shows_are_named_and_one_that_cannot_show_is_explained() -> None:
    said = lab_page(sample_result()).reading[-1]
    assert "Of 3 planted faults the logits show 2" in said
    assert "these change no token: no mask after the prefill" in said
    assert said.endswith("positions from the left edge: all positions move alike")


def test_every_line_fits_100_columns() -> None:
    assert max(map(len, lab_text(lab_page(sample_result())).splitlines())) <= 100


def test_what_noise_swallowed_is_said_and_not_shown_as_less_than_nothing() -> None:
    result = sample_result()
    found = breakdown(1, 0.04)
    rest = replace(found.parts[-1], taken_s=-0.001, fraction_of_step=-0.025)
    bare = replace(found, overhead_per_call_s=None, parts=(*found.parts[:-1], rest))
    run = replace(result.runs[0], breakdowns=(bare,))
    said = lab_markdown(lab_page(replace(result, runs=(run,))))
    assert "what Python and dispatch take is lost in the noise" in said
    assert "| lost in noise | n/a |" in said
    assert "-2.5" not in said


def test_one_batch_alone_is_not_compared_with_itself() -> None:
    result = sample_result()
    run = replace(result.runs[0], points=result.runs[0].points[:1])
    page = lab_page(replace(result, runs=(run,)))
    assert page.reading[0].startswith("In float32 a batch of 1 decodes 25.0 tokens/s, 25.0 for each sequence")
    assert page.reading[1].endswith("25.0 % of that are reached; the limit is memory")
    assert not any("times as many" in line for line in page.reading)
    assert [each.name for each in page.figures] == ["of the bound at batch 1", "alone against in a batch"]


def test_padding_that_moves_the_logits_is_told_as_a_fault() -> None:
    result = sample_result()
    assert any(line.startswith("Padding changes nothing") for line in lab_page(result).reading)
    moved = replace(result, pads=(replace(result.pads[1], max_difference=0.5),))
    assert any(line.startswith("Padding changes the logits") for line in lab_page(moved).reading)


def test_a_step_that_is_faster_than_its_bound_says_that_the_ceilings_are_too_low() -> None:
    result = sample_result()
    assert not any("faster than its bound" in line for line in lab_page(result).reading)
    first, *others = result.runs[0].points
    run = replace(result.runs[0], points=(replace(first, step_fraction_of_bound=1.2), *others))
    said = lab_page(replace(result, runs=(run,))).reading
    assert any(line.startswith("In float32 something was faster than its bound") for line in said)
