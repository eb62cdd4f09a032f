"""A profile as the step cost of `fit` and `plan`: the simulator's own step times, of many equal sequences at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.accounting.work import SequenceStep
from inference_bench.predict.fitted_cost import FittedCost, fitted_speeds
from inference_bench.predict.step_cost import first_token_s
from inference_bench.simulate.micro_batches import micro_batches
from inference_bench.simulate.presets import llama_cpp_settings, vllm_settings
from inference_bench.simulate.profile_cost import ProfileSteps, cut
from inference_bench.simulate.step_profile import StepProfile
from inference_bench.simulate.step_sources import Ceilings, Shares
from inference_bench.simulate.step_time import StepPart
from simulate.served_models import served_model

PROFILE = StepProfile(
    shares=Shares(0.8, 0.6, fixed_s=0.001, sequence_s=0.0002, serial=0.5, cache=0.3, attention=0.4, vector=0.7),
    machine="a box",
    engine="llama.cpp",
    model="SmolLM2-135M",
    source="a sweep",
    as_of="2026-11-30",
    request_s=0.05,
    ceilings=Ceilings(20e9, 150e9),
    scheduler=llama_cpp_settings(4, 2_048, 64),
    held_out_error=0.1,
)
SERVED = served_model("SmolLM2-135M")
step = st.builds(SequenceStep, st.integers(0, 500), st.integers(1, 200), st.integers(1, 9))


def parts_of(steps: list[SequenceStep]) -> list[StepPart]:
    return [
        StepPart(each.num_cached, each.num_new, each.num_new == 1 and each.num_cached > 0)
        for each in steps
        for _ in range(each.count)
    ]


@given(st.lists(step, min_size=1, max_size=4), st.integers(1, 300))
def test_equal_sequences_are_cut_as_they_are_one_by_one(steps: list[SequenceStep], size: int) -> None:
    found = [
        [(each.num_cached, each.num_new) for each in batch for _ in range(each.count)] for batch in cut(steps, size)
    ]
    alone = [[(part.cached, part.new) for part in batch] for batch in micro_batches(parts_of(steps), size)]
    assert found == alone


@given(st.lists(step, min_size=1, max_size=4))
def test_a_step_is_that_of_the_simulator(steps: list[SequenceStep]) -> None:
    cost, step_time = ProfileSteps(PROFILE).cost(SERVED, None, 1), PROFILE.step_time(SERVED)
    expected = sum(map(step_time.step_s, micro_batches(parts_of(steps), 64)))
    assert cost.step_s(steps) == pytest.approx(expected)


def test_engines_that_compute_a_step_at_once_read_the_weights_once() -> None:
    whole = ProfileSteps(replace(PROFILE, scheduler=vllm_settings())).cost(SERVED, None, 1)
    prompt = [SequenceStep(0, 128)]
    assert whole.step_s(prompt) == pytest.approx(PROFILE.step_time(SERVED).step_s([StepPart(0, 128, False)]))
    assert whole.step_s(prompt) < ProfileSteps(PROFILE).cost(SERVED, None, 1).step_s(prompt)


def test_windows_are_counted() -> None:
    served = served_model("gemma-3-27b-it")
    steps = [SequenceStep(3_000, 1, 2), SequenceStep(0, 2_000)]
    cost = ProfileSteps(replace(PROFILE, scheduler=None)).cost(served, None, 1)
    assert cost.step_s(steps) == pytest.approx(PROFILE.step_time(served).step_s(parts_of(steps)))


def test_a_first_token_waits_for_the_request_too() -> None:
    cost = ProfileSteps(PROFILE).cost(SERVED, None, 1)
    assert first_token_s(cost, 100, 5, 40) == pytest.approx(0.05 + cost.step_s([SequenceStep(40, 60)]))


def test_ranges_are_as_wide_as_the_error() -> None:
    found = fitted_speeds(FittedCost(lambda _: 2.0, ("said",), error=0.25), 100, 3)
    assert (found.decode_middle_s, found.prefill_middle_s) == (2.0, 2.0)
    assert found.decode_s is not None
    assert (found.decode_s.low, found.decode_s.high) == (1.6, 2.5)
    assert found.lines == ("said",)
    unknown = fitted_speeds(FittedCost(lambda _: 2.0, ()), 100, 3)
    assert unknown.decode_s is not None
    assert (unknown.decode_s.low, unknown.decode_s.high) == (2.0, 2.0)
    assert "not measured" in unknown.about_range
