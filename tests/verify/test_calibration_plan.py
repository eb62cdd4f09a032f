"""Which steps a sweep measures and in which order: slots' texts grow, some points are kept for the test, nothing is too large."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from inference_bench.calibrate.steps.observations import StepKind
from inference_bench.errors import MeasurementError
from inference_bench.verify.calibration_limits import EngineLimits, Mixing
from inference_bench.verify.calibration_order import WavePlan, waves_of_round, waves_to_rest
from inference_bench.verify.calibration_plan import (
    Pace,
    SweepPlan,
    SweepPoint,
    plan_sweep,
    prompt_tokens_of_round,
)
from inference_bench.verify.plan import QUICK, THOROUGH, Mixture, Plan

PINNED = EngineLimits("llama.cpp", True, 8, 1024, None, 512, Mixing.EQUAL)
FREE = EngineLimits("vllm", most_positions=2048, mixing=Mixing.TOGETHER)
SMALL = Plan(
    batches=(1, 2, 3, 4),
    contexts=(32, 96, 192),
    prompts=(64, 128, 256),
    mixtures=(Mixture(2, 192, 100), Mixture(1, 96, 50)),
    held_batches=(3,),
    held_contexts=(96,),
    held_prompts=(128,),
    held_mixtures=(Mixture(1, 96, 50),),
)


def round_of(sweep: SweepPlan, repeats: int = 1) -> list[WavePlan]:
    return waves_of_round(sweep, sweep.points, count(1000), repeats)


def test_every_point_of_a_plan_is_measured_in_the_first_round() -> None:
    for limits in (PINNED, FREE):
        for plan in (Plan(), QUICK, THOROUGH, SMALL):
            sweep = plan_sweep(plan, replace(limits, context_tokens=2048))
            assert {wave.point for wave in round_of(sweep)} - {None} == set(sweep.points)
            assert len({point.name for point in sweep.points}) == len(sweep.points)


def test_held_out_points_are_chosen_before_anything_is_measured_and_lie_between_others() -> None:
    sweep = plan_sweep(SMALL, PINNED)
    held = {point.name for point in sweep.points if point.is_held_out}
    assert held == {
        "decode-b3-c32",
        "decode-b3-c192",
        *(f"decode-b{batch}-c96" for batch in (1, 2, 3, 4)),
        "prefill-p128",
        "cached-c32-p64",
        "mixed-b1-c96-p50",
    }
    at_the_edge = replace(SMALL, held_batches=(1, 4), held_contexts=(32, 192), held_prompts=(256,), held_mixtures=())
    assert not any(point.is_held_out for point in plan_sweep(at_the_edge, PINNED).points)


def test_the_default_plan_keeps_some_of_every_kind_for_the_test_and_enough_for_the_fit() -> None:
    sweep = plan_sweep(Plan(), PINNED)
    for kind in StepKind:
        of_kind = sweep.of_kind(kind)
        assert 0 < sum(point.is_held_out for point in of_kind) < len(of_kind)
    fitted = [point for point in sweep.points if not point.is_held_out and point.kind is StepKind.DECODE]
    assert {point.batch for point in fitted} == {1, 2, 4, 8}
    assert {point.context_tokens for point in fitted} == {32, 512}


def test_a_slots_text_grows_from_context_to_context_and_is_only_then_continued() -> None:
    waves = round_of(plan_sweep(SMALL, PINNED))
    in_slot_0 = [send for wave in waves for send in wave.sends if send.slot == 0]
    text = in_slot_0[0].text
    grown = [
        (send.prompt_tokens, send.reuses_cache) for send in in_slot_0 if send.text == text and send.output_tokens == 1
    ]
    assert grown == [(32, False), (96, True), (192, True)]
    reached = 0
    for wave in waves:
        for send in wave.sends:
            if send.slot == 0 and send.text == text:
                assert send.prompt_tokens <= max(reached, send.prompt_tokens if send.output_tokens == 1 else reached)
                reached = max(reached, send.prompt_tokens)


def test_a_batch_decodes_in_the_first_slots_each_with_its_own_text() -> None:
    for wave in round_of(plan_sweep(SMALL, PINNED)):
        if wave.point is not None and wave.point.kind in (StepKind.DECODE, StepKind.MIXED):
            assert [send.slot for send in wave.sends] == list(range(wave.point.batch))
            assert len({send.text for send in wave.sends}) == wave.point.batch
            assert all(send.reuses_cache for send in wave.sends)


def test_a_prompt_beside_others_comes_to_the_next_slot_and_takes_no_text_that_is_still_needed() -> None:
    sweep = plan_sweep(SMALL, PINNED)
    mixed = [wave for wave in round_of(sweep) if wave.late is not None]
    assert [wave.point.batch for wave in mixed if wave.point] == [2, 1]  # larger first
    taken: set[int | None] = set()
    for wave in mixed:
        assert not taken & {send.slot for send in wave.sends}
        assert wave.late is not None
        assert wave.late.slot == len(wave.sends)
        assert not wave.late.reuses_cache
        taken.add(wave.late.slot)


def test_without_slots_every_prompt_is_new_but_those_that_are_continued() -> None:
    waves = round_of(plan_sweep(SMALL, FREE))
    fresh = [send.text for wave in waves for send in (*wave.sends, *filter(None, [wave.late])) if not send.reuses_cache]
    assert len(set(fresh)) == len(fresh)
    assert all(send.slot is None for wave in waves for send in wave.sends)
    at = next(i for i, wave in enumerate(waves) if wave.point and wave.point.kind is StepKind.CACHED_PREFILL)
    before, after = waves[at - 1], waves[at]
    assert before.point is None
    assert before.sends[0].text == after.sends[0].text
    assert (before.sends[0].prompt_tokens, after.sends[0].prompt_tokens) == (96, 192)


def test_what_is_known_well_enough_is_left_out_and_the_reference_never_is() -> None:
    sweep = plan_sweep(SMALL, PINNED)
    waves = waves_of_round(sweep, [SweepPoint(StepKind.DECODE, 2, 32)], count(1000), 2)
    decoded = [wave.point.name for wave in waves if wave.point and wave.point.kind is StepKind.DECODE]
    assert decoded == ["decode-b1-c32", "decode-b2-c32"] * 2 + ["decode-b1-c32"]
    assert {send.slot for wave in waves for send in wave.sends} == {0, 1}
    assert max(send.prompt_tokens for wave in waves for send in wave.sends) == 32


def test_a_short_cache_cuts_the_prompts_to_what_fits_and_says_so() -> None:
    limits = replace(PINNED, context_tokens=256)
    sweep = plan_sweep(Plan(), limits)
    longest = max(
        point.context_tokens + point.prompt_tokens for point in sweep.points if point.kind is not StepKind.MIXED
    )
    assert longest * 9 // 8 + 2 * Plan().output_tokens <= 256
    assert sweep.notes == (  # (256 - 2 · 12) · 8 / 9
        "contexts of the sweep are cut to 206 tokens and prompts to 206: the server holds 256 positions of a request",
    )
    assert {point.kind for point in sweep.points} == set(StepKind)


def test_fewer_slots_than_batches_end_the_batches_and_are_said() -> None:
    sweep = plan_sweep(Plan(), replace(PINNED, max_batch=2))
    assert {point.batch for point in sweep.points} == {1, 2}
    assert all(point.batch < 2 for point in sweep.of_kind(StepKind.MIXED))
    assert "batches of the sweep end at 2" in sweep.notes[0]


def test_one_cache_for_all_holds_no_more_than_it_has() -> None:
    unified = replace(PINNED, shared_tokens=1024, mixing=Mixing.IN_ORDER)
    sweep = plan_sweep(Plan(), unified)
    held: dict[int | None, int] = {}  # a slot keeps its text when it is idle
    for wave in round_of(sweep):
        for send in (*wave.sends, *filter(None, [wave.late])):
            held[send.slot] = send.prompt_tokens + send.output_tokens
        if wave.point is not None and wave.point.kind is StepKind.DECODE:
            assert sum(held.values()) <= 1024
    assert max(point.prompt_tokens for point in sweep.of_kind(StepKind.PREFILL)) == 768  # one alone has room
    assert "all requests together" in sweep.notes[0]


def test_a_cache_in_which_nothing_fits_is_one_line() -> None:
    with pytest.raises(MeasurementError) as error:
        plan_sweep(Plan(), replace(PINNED, context_tokens=16))
    assert "holds 16 positions" in str(error.value)
    assert "longer context" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_slow_server_gets_shorter_prompts_but_no_less_than_a_quarter() -> None:
    quick, slow, stuck = (plan_sweep(Plan(), PINNED, Pace(token_s)) for token_s in (0.002, 0.006, 10.0))
    assert quick == plan_sweep(Plan(), PINNED)
    assert 768 / 4 <= max(point.prompt_tokens for point in slow.points) < 768
    assert 2 * 0.006 * prompt_tokens_of_round(slow.plan, PINNED) <= 0.6 * Plan().budget_s
    assert max(point.prompt_tokens for point in stuck.points) >= 768 / 4
    assert "cut to" in stuck.notes[0]
    held = [point for point in slow.points if point.is_held_out]
    assert {point.kind for point in held} == set(StepKind)


def test_steps_that_an_engine_does_not_take_are_not_planned_and_said() -> None:
    apart = plan_sweep(Plan(), EngineLimits("sglang", mixing=Mixing.APART))
    assert not apart.of_kind(StepKind.MIXED)
    assert "steps of their own" in apart.notes[-1]
    unknown = plan_sweep(Plan(), EngineLimits("somebody"))
    assert "not known" in unknown.notes[-1]
    uncached = plan_sweep(Plan(), replace(FREE, reuses_prefix=False))
    assert not uncached.of_kind(StepKind.CACHED_PREFILL)


def test_a_server_at_rest_gives_its_slots_out_as_a_fresh_one_does() -> None:
    waves = waves_to_rest(PINNED, count(5))
    assert [wave.sends[0].slot for wave in waves] == [7, 6, 5, 4, 3, 2, 1, 0]  # least recently left comes first
    assert not any(send.reuses_cache for wave in waves for send in wave.sends)
    assert waves_to_rest(FREE, count(5)) == []


def test_servers_of_every_speed_are_measured_at_the_shortest_context_so_that_they_can_be_compared() -> None:
    slow, fast = (plan_sweep(Plan(), FREE, Pace(token_s)) for token_s in (0.002, 1e-5))
    assert max(point.context_tokens for point in slow.points) < max(point.context_tokens for point in fast.points)
    shared = {point.name for point in slow.points} & {point.name for point in fast.points}
    assert {f"decode-b{batch}-c32" for batch in Plan().batches} <= shared


def test_a_plan_of_one_length_that_is_too_slow_is_measured_as_it_is() -> None:
    plan = replace(SMALL, contexts=(300,), prompts=(300,), mixtures=(), held_mixtures=())
    assert {point.context_tokens for point in plan_sweep(plan, FREE, Pace(10.0)).of_kind(StepKind.DECODE)} == {300}


def test_a_fixed_plan_keeps_its_lengths_whatever_the_servers_pace_and_gives_way_to_its_cache_alone() -> None:
    fixed = replace(Plan(), is_fixed=True)
    quick, stuck = (plan_sweep(fixed, PINNED, Pace(token_s)) for token_s in (1e-5, 10.0))
    assert quick == stuck
    assert quick.points == plan_sweep(Plan(), PINNED).points
    small = plan_sweep(fixed, replace(PINNED, context_tokens=200), Pace(10.0))
    assert max(point.context_tokens for point in small.points) < 200
    assert "contexts of the sweep are cut to" in small.notes[0]
