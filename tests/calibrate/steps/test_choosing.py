"""Which formula is chosen, and what it is then said to be wrong by."""

from __future__ import annotations

import random
from statistics import median

from inference_bench.calibrate.steps.forms import StepForm

from .sweeps import fit_of


def test_candidates_come_in_the_order_of_their_errors_and_hold_the_chosen_one() -> None:
    found = fit_of("a CPU that adds up", 0.03, 3)
    means = [each.held_out_mean for each in found.candidates]
    assert None not in means
    assert means == sorted(means)  # type: ignore[type-var]
    assert found.chosen in found.candidates
    assert len({(each.form, each.free) for each in found.candidates}) == len(found.candidates)
    best = found.best_of_each_form()
    assert len({each.form for each in best}) == len(best) >= 2
    assert found.chosen in best


def test_numbers_that_gain_nothing_are_left_out() -> None:
    found = fit_of("a GPU that overlaps", 0.03, 3)
    assert found.form is StepForm.MAXIMUM
    assert found.chosen.num_parameters < max(each.num_parameters for each in found.candidates)
    assert found.chosen.num_parameters <= 4


def test_errors_of_noise_are_not_prettier_than_the_noise() -> None:
    """The honest error of 12 held-out steps, over several sweeps, is no smaller than the noise that nobody can predict."""
    rng = random.Random(1)
    noise = median(abs(rng.gauss(0, 0.05)) for _ in range(9_999))
    honest = [fit_of("a CPU with wide weights", 0.05, seed).held_out_error for seed in range(3)]
    assert all(each is not None for each in honest)
    middle = median(each for each in honest if each is not None)
    assert noise * 0.75 < middle < noise * 2
