"""Formulas fitted to steps whose formula is known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from inference_bench.calibrate.steps.fitting import fit_steps, fit_steps_over
from inference_bench.calibrate.steps.forms import StepForm
from inference_bench.calibrate.steps.observations import StepKind, StepObservation
from inference_bench.errors import RequestError, TooFewSamplesError
from inference_bench.facts.hardware import hardware
from inference_bench.simulate.step_profile import load_profile, save_profile
from inference_bench.simulate.step_sources import Shares
from inference_bench.simulate.step_time import StepPart
from inference_bench.stats import Interval

from .sweeps import MACHINES, Made, cpu, decode, decoding, fit_of, prefill, smol

NUMBERS = ("bandwidth", "compute", "vector", "cache", "attention", "sequence_s")


def form_of(shares: Shares) -> StepForm:
    if shares.serial:
        return StepForm.ADDITIVE if shares.vector is None else StepForm.ADDITIVE_VECTOR
    return StepForm.MAXIMUM if shares.vector is None else StepForm.MAXIMUM_VECTOR


@pytest.mark.parametrize("name", MACHINES)
def test_the_numbers_of_made_steps_are_found(name: str) -> None:
    made, found = MACHINES[name], fit_of(name)
    assert found.form is form_of(made.shares)
    assert found.request_s == pytest.approx(made.request_s, rel=0.01, abs=1e-6)
    for number in NUMBERS:
        true, value = getattr(made.shares, number), getattr(found.shares, number)
        assert value == (true if true is None else pytest.approx(true, rel=0.01)), number
    assert found.held_out_error == pytest.approx(0, abs=1e-3)
    assert found.worst_held_out == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("name", MACHINES)
def test_noise_of_three_percent_hides_no_form(name: str) -> None:
    made, found = MACHINES[name], fit_of(name, 0.03, 3)
    assert found.form is form_of(made.shares)
    assert found.held_out_error is not None
    assert 0.005 < found.held_out_error < 0.05  # of noise of 3 % the middle |error| is 2 %
    exact = {each.setting: each.seconds for each in made.sweep()}
    off = sorted(abs(each.predicted_s / exact[each.observation.setting] - 1) for each in found.observations)
    assert off[len(off) // 2] < 0.03


def test_a_step_by_hand() -> None:
    """96,576,768 bytes at 75 % of 20.6 GB/s, and 2 FLOPs for each of 134,515,008 weights at half of 150 GFLOP/s."""
    read_s, position_s = 96_576_768 / (0.75 * 20.6e9), 2 * 134_515_008 / (0.5 * 150e9)
    steps = [decode(batch, 0, read_s + batch * position_s, batch in (3, 5, 7, 9)) for batch in range(1, 13)]
    found = fit_steps(steps, smol(), cpu(), engine="an engine", source="by hand", as_of="2026-11-30")
    assert found.form is StepForm.ADDITIVE
    assert found.shares.bandwidth == pytest.approx(
        0.75, rel=0.02
    )  # norms are weights and no products, keys are written
    assert found.shares.compute == pytest.approx(0.5, rel=0.02)


def test_the_formula_that_is_fitted_is_the_one_that_is_simulated() -> None:
    for found in (fit_of(name, 0.03, 3) for name in MACHINES):
        for each in found.observations:
            told = sum(found.step_time.step_s(batch) for batch in each.observation.batches)
            told += found.request_s if each.observation.includes_request else 0.0
            assert each.predicted_s == told == found.predict_s(each.observation)
        held_out = sorted(abs(each.error) for each in found.observations if each.observation.is_held_out)
        assert found.chosen.worst_held_out == pytest.approx(held_out[-1], rel=1e-9)
        fitted = sorted(abs(each.error) for each in found.observations if not each.observation.is_held_out)
        middle = (fitted[(len(fitted) - 1) // 2] + fitted[len(fitted) // 2]) / 2
        assert found.chosen.fit_error == pytest.approx(middle, rel=1e-9)


def test_what_is_held_out_moves_no_number() -> None:
    made = MACHINES["a CPU with a vector kernel"]
    steps = made.sweep(noise=0.02, seed=2)
    moved = [replace(each, seconds=each.seconds * 1.04) if each.is_held_out else each for each in steps]
    before, after = made.fit(steps), made.fit(moved)
    assert before.held_out_error != after.held_out_error
    assert {(each.form, each.free, each.fit_error) for each in before.candidates} == {
        (each.form, each.free, each.fit_error) for each in after.candidates
    }
    assert before.chosen.free == after.chosen.free
    assert before.parameters == after.parameters


def test_one_disturbed_step_bends_nothing() -> None:
    made = MACHINES["a CPU that adds up"]
    steps = made.sweep()
    for kind in (StepKind.DECODE, StepKind.PREFILL):
        index = next(i for i, each in enumerate(steps) if each.kind is kind and i > 8 and not each.is_held_out)
        disturbed = [*steps]
        disturbed[index] = replace(steps[index], seconds=steps[index].seconds * 3)
        found = made.fit(disturbed)
        assert found.form is StepForm.ADDITIVE
        for number in ("bandwidth", "compute", "cache"):
            assert getattr(found.shares, number) == pytest.approx(getattr(made.shares, number), rel=0.03), number


def test_one_disturbed_step_does_not_choose() -> None:
    made = MACHINES["a CPU with a vector kernel"]
    steps = made.sweep(noise=0.02, seed=4)
    index = next(i for i, each in enumerate(steps) if each.is_held_out and i > 4)
    steps[index] = replace(steps[index], seconds=steps[index].seconds * 2.5)
    found = made.fit(steps)
    assert found.form is StepForm.ADDITIVE_VECTOR
    assert found.worst_held_out is not None
    assert found.worst_held_out > 0.5


def test_a_step_with_a_wide_interval_counts_less() -> None:
    steps = [decode(batch, 0, 0.006 + 0.003 * batch) for batch in range(1, 13)]
    held = [replace(each, is_held_out=index % 3 == 1) for index, each in enumerate(steps)]
    exact = [replace(each, interval=Interval(each.seconds * 0.999, each.seconds * 1.001, 0.95)) for each in held]

    def bandwidth(width: float) -> float:
        off = exact[0].seconds * 1.015
        wide = Interval(off * (1 - width), off * (1 + width), 0.95)
        moved = [replace(exact[0], seconds=off, interval=wide), *exact[1:]]
        return fit_steps(moved, smol(), cpu(), engine="an engine", source="made", as_of="today").shares.bandwidth

    truth = fit_steps(exact, smol(), cpu(), engine="an engine", source="made", as_of="today").shares.bandwidth
    assert abs(bandwidth(0.2) - truth) < abs(bandwidth(0.001) - truth) / 3


def test_intervals_hold_what_is_true() -> None:
    made = MACHINES["a GPU with a slow cache"]
    held = tried = 0
    for seed in range(4):
        found = fit_of("a GPU with a slow cache", 0.03, seed)
        for each in found.parameters:
            if each.name in ("bandwidth", "compute"):
                assert each.interval is not None
                assert each.interval.low <= each.value <= each.interval.high
                held += each.interval.low <= getattr(made.shares, each.name) <= each.interval.high
                tried += 1
    assert tried == 8
    assert held >= 6


def test_a_share_above_the_ceiling_is_said_and_kept() -> None:
    made = Made(smol(), cpu(), Shares(bandwidth=1.15, compute=0.5, serial=1))
    found = made.fit(made.sweep())
    assert found.shares.bandwidth == pytest.approx(1.15, rel=0.01)
    assert any("bandwidth: 115 % of the ceiling" in note for note in found.notes)


def test_a_share_far_above_the_ceiling_is_said_to_be_at_the_edge() -> None:
    made = Made(smol("f32"), cpu(), Shares(bandwidth=1.49, compute=0.5, serial=1))
    found = made.fit(made.sweep())
    own = next(each for each in found.parameters if each.name == "bandwidth")
    assert own.value == pytest.approx(1.25)
    assert own.interval is None
    assert any("edge of what is looked for" in note for note in found.notes)


def test_with_one_weight_format_a_fixed_time_is_not_told_from_lost_bandwidth() -> None:
    made = Made(smol(), cpu(), Shares(bandwidth=0.75, compute=0.5, serial=1, fixed_s=0.003))
    found = made.fit(made.sweep())
    assert found.shares.fixed_s == 0
    assert found.shares.bandwidth == pytest.approx(96_576_768 / (96_576_768 / 0.75 + 0.003 * 20.6e9), rel=0.01)
    fixed = next(each for each in found.parameters if each.name == "fixed_s")
    assert fixed.interval is None
    assert fixed.note == "lost bandwidth or fixed overhead: not told apart with one weight format"
    assert not any("fixed_s" in each.free for each in found.candidates if each.form is StepForm.ADDITIVE)


def test_over_several_weight_formats_a_fixed_time_is_told() -> None:
    runs = [
        Made(smol(weights), cpu(), Shares(bandwidth=0.75, compute=share, serial=1, fixed_s=0.003))
        for weights, share in (("q4_1", 0.5), ("f16", 0.4), ("f32", 0.3))
    ]
    found = fit_steps_over(
        [(made.served, made.sweep()) for made in runs], cpu(), engine="an engine", source="a matrix", as_of="2026-11-30"
    )
    assert len(found) == 3
    for made, each in zip(runs, found, strict=True):
        assert each.form is StepForm.ADDITIVE
        assert each.served is made.served
        assert each.shares.fixed_s == pytest.approx(0.003, rel=0.01)
        assert each.shares.bandwidth == pytest.approx(0.75, rel=0.01)
        assert each.shares.compute == pytest.approx(made.shares.compute, rel=0.01)
        assert each.profile.weights_format == made.served.weights.format_name


def test_the_profile_gives_the_same_steps_after_a_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    made = MACHINES["a CPU with a vector kernel"]
    found = made.fit(made.sweep(noise=0.02, seed=6))
    save_profile(found.profile, tmp_path / "profile.json")
    profile = load_profile(tmp_path / "profile.json")
    assert profile == found.profile
    assert (profile.engine, profile.source, profile.as_of) == ("an engine", "a sweep", "2026-11-30")
    assert profile.held_out_error == found.held_out_error
    assert profile.request_s == found.request_s
    assert "bandwidth" in profile.intervals
    step_time = profile.step_time(made.served, made.machine)
    assert step_time.step_s(decoding(4, 300)) == found.step_time.step_s(decoding(4, 300))


def test_the_same_steps_give_the_same_answer() -> None:
    made = MACHINES["a vector kernel beside what overlaps"]
    assert made.fit(made.sweep(0.03, 3)) == fit_of("a vector kernel beside what overlaps", 0.03, 3)


# --- what cannot be fitted ------------------------------------------------------------------------------------------


def fitted(steps: list[StepObservation]) -> object:
    return fit_steps(steps, smol(), cpu(), engine="an engine", source="a test", as_of="2026-11-30")


def test_too_few_steps_are_refused_with_how_many_are_needed() -> None:
    steps = [decode(batch, 42, 0.01 * batch) for batch in range(1, 8)]
    with pytest.raises(
        TooFewSamplesError, match=r"7 step\(s\) were measured.*at least 8 are needed, 6 of them not held out"
    ):
        fitted(steps)
    held = [decode(batch, 42, 0.01 * batch, batch > 4) for batch in range(1, 11)]
    with pytest.raises(TooFewSamplesError, match="4 of them to fit to"):
        fitted(held)
    with pytest.raises(TooFewSamplesError):
        fitted([])


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, 1e-300, 1e300])
def test_a_time_that_is_none_is_refused_by_name(seconds: float) -> None:
    steps = [decode(batch, 42, 0.01 * batch) for batch in range(1, 13)]
    steps[3] = replace(steps[3], seconds=seconds)
    with pytest.raises(RequestError, match="the time of '4 × 42' is"):
        fitted(steps)


@pytest.mark.parametrize(
    ("batches", "says"),
    [
        ((), "nothing is computed"),
        (((),), "nothing is computed"),
        (((StepPart(0, 0, False),),), "0 new position"),
        (((StepPart(-1, 1, True),),), "after -1"),
        (((StepPart(10**400, 1, True),),), "at most"),
    ],
)
def test_a_step_that_computes_nothing_is_refused(batches: tuple[tuple[StepPart, ...], ...], says: str) -> None:
    steps = [decode(batch, 42, 0.01 * batch) for batch in range(1, 13)]
    steps[3] = replace(steps[3], batches=batches)
    with pytest.raises(RequestError, match=says) as caught:
        fitted(steps)
    assert len(str(caught.value)) < 400


def test_a_machine_without_a_ceiling_is_refused() -> None:
    machine = replace(hardware("H100"), bandwidth_bytes_per_s=None)
    steps = [decode(batch, 42, 0.01 * batch) for batch in range(1, 13)]
    with pytest.raises(RequestError, match="bandwidth of H100"):
        fit_steps(steps, smol(), machine, engine="an engine", source="a test", as_of="2026-11-30")


def test_no_run_at_all_is_refused() -> None:
    with pytest.raises(RequestError, match="no run is given"):
        fit_steps_over([], cpu(), engine="an engine", source="a test", as_of="2026-11-30")


def test_steps_that_tell_nothing_apart_are_fitted_and_say_so() -> None:
    found = fit_steps(
        [decode(4, 100, 0.02 + index * 1e-5) for index in range(12)],
        smol(), cpu(), engine="an engine", source="a test", as_of="2026-11-30",
    )  # fmt: skip
    assert found.predict_s(found.observations[0].observation) == pytest.approx(0.02, rel=0.02)
    assert any("do not tell" in note for note in found.notes)
    assert any(each.interval is None and "do not tell" in each.note for each in found.parameters)


def test_without_held_out_steps_every_fourth_is_kept_from_the_fit() -> None:
    made = MACHINES["a CPU that adds up"]
    found = made.fit([replace(each, is_held_out=False) for each in made.sweep()])
    assert sum(each.observation.is_held_out for each in found.observations) == 9
    assert found.held_out_error is not None


def test_with_few_held_out_steps_there_is_no_honest_error() -> None:
    steps = [decode(batch, 0, 0.006 + 0.003 * batch, batch in (3, 6)) for batch in range(1, 13)]
    found = fit_steps([*steps, prefill(64, 0.2)], smol(), cpu(), engine="an engine", source="a test", as_of="today")
    assert found.held_out_error is None
    assert found.held_out_p90 is None
    assert any("2 step(s) were held out: too few" in note for note in found.notes)
    assert found.chosen.held_out_error is not None
