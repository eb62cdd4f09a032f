"""Steps of real engines, as they were recorded: what the formula says of them, and how far it is off."""

from __future__ import annotations

from collections.abc import Container
from statistics import median

import pytest

from inference_bench.calibrate.steps.fitting import fit_steps, fit_steps_over
from inference_bench.calibrate.steps.forms import StepCalibration, StepForm
from inference_bench.calibrate.steps.observations import StepKind

from .sweeps import (
    BY_FORMAT,
    ONE_THREAD_DECODE,
    ONE_THREAD_PREFILL,
    TWO_THREADS_DECODE,
    TWO_THREADS_PREFILL,
    cpu,
    decode,
    prefill,
    smol,
)

HELD_OUT = frozenset({(2, 42), (6, 42), (1, 266), (3, 266), (4, 266), (8, 266), (2, 778), (6, 778), (0, 256)})


def two_threads(held_out: Container[tuple[int, int]] = HELD_OUT) -> StepCalibration:
    """A prompt is (0, tokens)."""
    steps = [decode(batch, context, s, (batch, context) in held_out) for batch, context, s in TWO_THREADS_DECODE]
    steps += [prefill(tokens, seconds, (0, tokens) in held_out) for tokens, seconds in TWO_THREADS_PREFILL]
    return fit_steps(steps, smol(), cpu(), engine="llama.cpp", source="a recorded sweep", as_of="2026-11-30")


def test_with_two_threads_half_of_the_steps_say_the_other_half() -> None:
    found = two_threads()
    assert found.form is StepForm.ADDITIVE_VECTOR
    assert found.held_out_error is not None
    assert found.held_out_error <= 0.08
    assert found.shares.vector == pytest.approx(0.77, abs=0.06)  # 96.6 MB in 6.1 ms of 20.6 GB/s
    assert found.shares.cache is not None
    assert 0.15 < found.shares.cache < 0.35  # about 5 GB/s


def test_with_two_threads_each_third_of_the_steps_is_said_by_the_others() -> None:
    settings = [(batch, context) for batch, context, _ in TWO_THREADS_DECODE]
    settings += [(0, tokens) for tokens, _ in TWO_THREADS_PREFILL]
    errors = []
    for third in range(3):
        found = two_threads(settings[third::3])
        assert found.form in (StepForm.ADDITIVE_VECTOR, StepForm.MAXIMUM_VECTOR)
        errors += [abs(each.error) for each in found.observations if each.observation.is_held_out]
    assert len(errors) == len(settings)
    assert median(errors) <= 0.08


def test_with_two_threads_every_other_form_is_worse_on_what_it_has_not_seen() -> None:
    found = two_threads()
    best = {each.form: each.held_out_mean for each in reversed(found.candidates)}  # they are ordered, best first
    assert found.chosen is not None
    best[found.form], own = None, found.chosen.held_out_mean
    assert best.pop(StepForm.ADDITIVE_VECTOR) is None, "another form was chosen"
    assert len(best) == 3
    assert all(own is not None and other is not None and own < other for other in best.values())


def test_with_two_threads_it_is_said_in_words() -> None:
    found = two_threads()
    text = "\n".join(found.reading)
    assert "On this CPU a decode step beyond 2 sequences is additive: " in text
    assert "Up to 2 sequences the weights are read once for each of them" in text
    assert "from 3 on the matrix kernel takes over" in text
    assert "Q4_1 stays near the memory roof at batch 1: 75 % of the bandwidth is reached" in text
    assert "Every cached position of every sequence adds 5." in text
    assert "A prompt takes 1." in text
    assert any(
        "not measured: prompts of which the beginning is cached, prompts beside decoding" in note
        for note in found.notes
    )
    assert set(found.error_by_kind) == {StepKind.DECODE, StepKind.PREFILL}


def test_with_one_thread_large_batches_are_told_by_the_others() -> None:
    """Two and three sequences take a third more each than one does, which no form has: small batches stay off."""
    steps = [decode(batch, context, seconds, batch == 4) for batch, context, seconds in ONE_THREAD_DECODE]
    steps += [prefill(tokens, seconds, tokens == 256) for tokens, seconds in ONE_THREAD_PREFILL]
    found = fit_steps(steps, smol(), cpu(), engine="llama.cpp", source="a recorded sweep", as_of="2026-11-30")
    assert found.form is StepForm.ADDITIVE_VECTOR
    assert found.chosen.held_out_error is not None
    assert found.chosen.held_out_error <= 0.08
    assert found.held_out_error is None
    assert {each.observation.setting for each in found.observations if abs(each.error) > 0.15} <= {
        "1 × 42",
        "2 × 42",
        "3 × 42",
    }


def test_re_encoded_weights_add_up_as_they_were_first_read() -> None:
    """The slopes that were fitted by hand to the same table: 12.2, 9.4, 12.5 and 12.7 ms a sequence; F32 reads in 26 to 30 ms."""
    runs = [
        (smol(weights), [decode(batch, 8, s, batch == 4) for batch, s in zip((1, 4, 16), seconds, strict=True)])
        for weights, seconds in BY_FORMAT.items()
    ]
    found = fit_steps_over(runs, cpu(87), engine="llama.cpp", source="a recorded table", as_of="2026-11-30")
    position_flops = 2 * 134_515_008
    for each, slope_s in zip(found, (0.0122, 0.0094, 0.0125, 0.0127), strict=True):
        assert each.form is StepForm.ADDITIVE
        assert position_flops / (each.shares.compute * 87e9) == pytest.approx(slope_s, rel=0.09)
        assert all(
            "maximum" not in candidate.form or candidate.held_out_mean > each.chosen.held_out_mean
            for candidate in each.candidates
        )  # type: ignore[operator]
    q4, q8, f16, f32 = found
    assert 538_060_032 / (f32.shares.bandwidth * 20.6e9) == pytest.approx(0.026, rel=0.12)
    assert "Q4_1 is compute-bound already at batch 1" in "\n".join(q4.reading)
    assert "Q8_0 is compute-bound already at batch 1" in "\n".join(q8.reading)
    assert "takes about as long to compute as to read" in "\n".join(f16.reading)
    assert "FP32 stays near the memory roof at batch 1" in "\n".join(f32.reading)
