"""A measured step taken apart: the parts add up, say what the formula says, and are nothing else at the bound."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gap.sample import (
    BANDWIDTH,
    MAXIMUM_SHARES,
    PEAK,
    VECTOR_SHARES,
    decode_step,
    mixed_step,
    prompt_step,
    sample_calibration,
    served,
)
from inference_bench.accounting.weights import count_weights, weight_plan
from inference_bench.accounting.work import SequenceStep
from inference_bench.calibrate.steps.forms import FittedObservation, StepCalibration
from inference_bench.calibrate.steps.observations import StepKind, StepObservation
from inference_bench.facts.load import known_model
from inference_bench.facts.models import LoadedModel
from inference_bench.gap.decompose import decompose, shown_steps, title_of
from inference_bench.gap.parts import Cause, CauseKind, StepGap
from inference_bench.predict.step_cost import ServedModel
from inference_bench.roofline import LimitedBy, Roof, bound_step
from inference_bench.simulate.step_sources import Shares
from inference_bench.simulate.step_time import StepPart
from shapes import cache_in

# of the model file: published byte count; 2·30 layers·3 heads·64 values·2 bytes; 4·9 heads·64 values·30 layers FLOPs a pair
WEIGHT_BYTES = 96_576_768
CACHE_BYTES = 23_040
PAIR_FLOPS = 69_120


def parts_of(step: StepObservation, shares: Shares, error: float = 0.0, request_s: float = 0.003) -> StepGap:
    calibration = sample_calibration(shares, steps=[step], errors=[error], request_s=request_s)
    return decompose(calibration.observations[0], calibration)


def causes(step: StepGap) -> set[Cause]:
    return {part.cause for part in step.parts if part.seconds}


# ── by hand ────────────────────────────────────────────────────────────────────────────────────────


def test_two_sequences_by_the_vector_kernel_read_the_weights_twice_and_the_second_read_is_batching_loss() -> None:
    found = parts_of(decode_step(2, 266), VECTOR_SHARES)
    once_s = WEIGHT_BYTES / BANDWIDTH
    assert found.seconds(Cause.WEIGHTS) == pytest.approx(once_s, rel=1e-3)
    assert found.seconds(Cause.BATCHING) == pytest.approx(once_s / 0.785, rel=1e-3)
    cache_s = 2 * (265 + 2) * CACHE_BYTES / BANDWIDTH  # each writes its own position, and reads it too
    assert found.seconds(Cause.CACHE) == pytest.approx(cache_s)
    # a sequence's own position goes at the rate of the weights, cached ones at that of the cache
    assert found.seconds(Cause.CACHE_LOST) == pytest.approx(2 * 265 * CACHE_BYTES / BANDWIDTH * (1 / 0.243 - 1 / 0.48))
    assert found.seconds(Cause.BANDWIDTH_LOST) == pytest.approx(
        once_s * (1 / 0.785 - 1) + cache_s * (1 / 0.48 - 1), rel=1e-3
    )
    assert found.seconds(Cause.COMPUTE) == pytest.approx(2 * 266 * PAIR_FLOPS / PEAK)
    assert found.seconds(Cause.FIXED) == pytest.approx(2e-4)
    assert found.seconds(Cause.SEQUENCE) == pytest.approx(2e-4)
    assert found.seconds(Cause.UNEXPLAINED) == 0


def test_slots_that_are_no_neighbours_read_the_weights_once_a_batch() -> None:
    shares = replace(VECTOR_SHARES, vector=None)
    apart, together = (parts_of(decode_step(4, 266, cuts=cuts), shares) for cuts in ((2, 2), ()))
    assert Cause.BATCHING not in causes(together)
    assert apart.seconds(Cause.BATCHING) == pytest.approx(WEIGHT_BYTES / BANDWIDTH / 0.48, rel=1e-3)
    assert apart.seconds(Cause.FIXED) == pytest.approx(2 * together.seconds(Cause.FIXED))
    for cause in (Cause.WEIGHTS, Cause.CACHE, Cause.COMPUTE, Cause.COMPUTE_LOST, Cause.SEQUENCE):
        assert apart.seconds(cause) == pytest.approx(together.seconds(cause))
    assert apart.bound_s == together.bound_s


def test_in_a_maximum_the_hidden_arm_takes_no_time_of_its_own() -> None:
    one, many = parts_of(decode_step(1, 266), MAXIMUM_SHARES), parts_of(decode_step(8, 266), MAXIMUM_SHARES)
    overhead = {Cause.FIXED, Cause.SEQUENCE}
    assert causes(one) == {Cause.WEIGHTS, Cause.CACHE, Cause.BANDWIDTH_LOST, *overhead}
    assert causes(many) == {Cause.COMPUTE, Cause.COMPUTE_LOST, *overhead}


def test_a_prompt_in_two_micro_batches_pays_fixed_time_twice_and_its_request_once() -> None:
    found = parts_of(prompt_step(768), VECTOR_SHARES, request_s=0.004)
    assert found.seconds(Cause.FIXED) == pytest.approx(4e-4)
    assert found.seconds(Cause.REQUEST) == pytest.approx(0.004)
    assert found.seconds(Cause.BATCHING) == pytest.approx(WEIGHT_BYTES / BANDWIDTH / 0.48, rel=1e-3)
    assert found.limited_by is LimitedBy.COMPUTE


@pytest.mark.parametrize("error", [0.25, -0.2])
def test_what_the_formula_does_not_say_is_unexplained_and_may_be_negative(error: float) -> None:
    found = parts_of(decode_step(4, 266), VECTOR_SHARES, error)
    assert found.parts[-1].cause is Cause.UNEXPLAINED
    assert found.seconds(Cause.UNEXPLAINED) == pytest.approx(error * found.predicted_s)
    assert found.parts[-1].share == pytest.approx(error / (1 + error))


def test_a_rate_above_the_ceiling_stands_for_full_and_its_words_say_so() -> None:
    found = parts_of(decode_step(1, 42), replace(MAXIMUM_SHARES, bandwidth=1.2))
    assert Cause.BANDWIDTH_LOST not in causes(found)
    assert found.seconds(Cause.WEIGHTS) == pytest.approx(WEIGHT_BYTES / BANDWIDTH / 1.2, rel=1e-3)
    assert "above the measured 20.6 GB/s" in found.parts[0].words


def test_a_cache_that_is_read_better_than_the_weights_loses_only_what_it_lacks_of_the_ceiling() -> None:
    found = parts_of(decode_step(1, 778), replace(MAXIMUM_SHARES, bandwidth=0.5, cache=0.9))
    assert Cause.CACHE_LOST not in causes(found)
    weights_s = (WEIGHT_BYTES + 2 * CACHE_BYTES) / BANDWIDTH * (1 / 0.5 - 1)
    cache_s = 777 * CACHE_BYTES / BANDWIDTH * (1 / 0.9 - 1)
    assert found.seconds(Cause.BANDWIDTH_LOST) == pytest.approx(weights_s + cache_s, rel=1e-3)


# ── at the bound ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("step", "arm"),
    [
        (decode_step(1, 1024), {Cause.WEIGHTS, Cause.CACHE}),
        (decode_step(64, 42), {Cause.COMPUTE}),
        (replace(prompt_step(400), includes_request=False), {Cause.COMPUTE}),
    ],
)
def test_at_the_bound_a_step_is_its_binding_arm_and_nothing_else(step: StepObservation, arm: set[Cause]) -> None:
    found = parts_of(step, Shares())
    assert causes(found) == arm
    assert found.measured_s == pytest.approx(found.bound_s, rel=1e-6)
    assert sum(found.seconds(cause) for cause in arm) == pytest.approx(found.bound_s, rel=1e-6)


def test_the_bound_is_that_of_the_exact_count_with_the_weights_read_once() -> None:
    step = decode_step(4, 266, cuts=(2, 2))
    found = parts_of(step, VECTOR_SHARES)
    exact = bound_step("step", served().work([SequenceStep(265, 1, 4)]), Roof(BANDWIDTH, PEAK, None))
    assert found.bound_s == pytest.approx(exact.seconds)
    assert found.limited_by is exact.limited_by is LimitedBy.COMPUTE


# ── whatever the formula and the step ──────────────────────────────────────────────────────────────

share = st.floats(0.05, 1.0)
maybe = st.none() | share
seconds = st.floats(0.0, 1e-2)
formulas = st.builds(
    Shares,
    bandwidth=share,
    compute=share,
    fixed_s=seconds,
    sequence_s=seconds,
    serial=st.sampled_from((0.0, 0.3, 1.0)),
    cache=maybe,
    attention=maybe,
    vector=maybe,
)
part = st.builds(StepPart, st.integers(0, 3000), st.just(1), st.just(True)) | st.builds(
    StepPart, st.integers(0, 3000), st.integers(1, 600), st.just(False)
)
batches = st.lists(st.lists(part, min_size=1, max_size=5).map(tuple), min_size=1, max_size=3).map(tuple)


@functools.cache
def model(name: str) -> ServedModel:
    if name == "smollm2":
        return served()
    known = known_model(name)
    spec = known.spec if isinstance(known, LoadedModel) else known
    return ServedModel(spec, count_weights(spec, weight_plan("fp8")), cache_in("fp16"))


@pytest.mark.parametrize("name", ["smollm2", "qwen3-30b-a3b", "gemma-3-27b"])
@given(shares=formulas, cut=batches, error=st.floats(-0.5, 1.0), with_request=st.booleans())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_parts_add_up_and_none_but_the_unexplained_is_negative(
    name: str, shares: Shares, cut: tuple[tuple[StepPart, ...], ...], error: float, with_request: bool
) -> None:
    step = StepObservation(StepKind.MIXED, "any", cut, 1.0, 5, includes_request=with_request)
    calibration = sample_calibration(shares, model(name), [step], [error])
    fitted = calibration.observations[0]
    found = decompose(fitted, calibration)
    assert math.fsum(each.seconds for each in found.parts) == pytest.approx(found.measured_s, rel=1e-12)
    assert all(each.seconds >= 0 for each in found.parts if each.cause is not Cause.UNEXPLAINED)
    assert found.predicted_s == pytest.approx(fitted.predicted_s, rel=1e-9)  # by the simulator's own cost function
    assert [each.cause for each in found.parts] == [cause for cause in Cause if cause in {p.cause for p in found.parts}]
    assert all(each.words for each in found.parts)


@given(shares=formulas, cut=batches)
@settings(max_examples=40, deadline=None)
def test_no_step_of_whole_rates_or_less_is_quicker_than_its_bound(
    shares: Shares, cut: tuple[tuple[StepPart, ...], ...]
) -> None:
    step = StepObservation(StepKind.MIXED, "any", cut, 1.0, 5)
    found = parts_of(step, replace(shares, vector=None))
    assert found.predicted_s >= found.bound_s * (1 - 1e-6)


# ── which steps ────────────────────────────────────────────────────────────────────────────────────


def test_shown_are_the_fewest_and_the_most_sequences_near_one_context_and_the_longest_prompt() -> None:
    shown = shown_steps(sample_calibration().observations)
    assert [title_of(each.observation) for each in shown] == [
        "decode, batch 1 at 265 tokens",
        "decode, batch 8 at 265 tokens",
        "prefill of 768 tokens",
    ]


def only(calibration: StepCalibration, *kinds: StepKind) -> list[FittedObservation]:
    return [each for each in calibration.observations if each.observation.kind in kinds]


def test_without_decoding_or_prompts_fewer_steps_are_shown() -> None:
    calibration = sample_calibration()
    assert len(shown_steps(only(calibration, StepKind.PREFILL))) == 1
    assert len(shown_steps(only(calibration, StepKind.DECODE))) == 2
    assert len(shown_steps(only(calibration, StepKind.DECODE)[:1])) == 1
    assert shown_steps(only(calibration, StepKind.MIXED)) == ()


def test_titles_say_what_a_step_does() -> None:
    assert title_of(mixed_step(100, 3, 266)) == "mixed, 103 positions, 3 of them decoding"
    assert title_of(prompt_step(600, cached=512)) == "prefill of 88 tokens after 512 cached"


def test_every_cause_has_a_kind() -> None:
    assert {cause.kind for cause in Cause} == set(CauseKind)
