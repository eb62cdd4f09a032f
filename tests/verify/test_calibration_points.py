"""From waves to steps, by hand: which gap is the step, what the engine computed in it, and which waves do not count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inference_bench.calibrate.steps.observations import StepKind
from inference_bench.records import Origin, RequestRecord, RequestStatus, ServerTimings, Stage
from inference_bench.simulate.step_time import StepPart
from inference_bench.verify.calibration_limits import EngineLimits, Mixing
from inference_bench.verify.calibration_order import Send, WavePlan
from inference_bench.verify.calibration_plan import SweepPoint
from inference_bench.verify.calibration_points import count_disturbed, find_drift, is_tight, observe, processor_share
from inference_bench.verify.calibration_waves import Wave

LIMITS = EngineLimits("llama.cpp", True, 8, 1024, None, 512, Mixing.EQUAL)
DECODE = SweepPoint(StepKind.DECODE, 2, 32)
PREFILL = SweepPoint(StepKind.PREFILL, 1, 0, 700)
CACHED = SweepPoint(StepKind.CACHED_PREFILL, 1, 32, 160, is_held_out=True)
MIXED = SweepPoint(StepKind.MIXED, 2, 50, 100)


def record(times: list[float], prompt: int = 32, cached: int = 0, sent: float = 0.0) -> RequestRecord:
    return RequestRecord(
        "r",
        Origin.MEASURED,
        Stage.MEASURE,
        RequestStatus.COMPLETED,
        sent,
        sent,
        times[-1],
        tuple(times),
        prompt_tokens=prompt,
        cached_prompt_tokens=cached,
        output_tokens=len(times),
        server_timings=ServerTimings(prefill_s=times[0] - sent - 0.001),
    )


def wave(
    point: SweepPoint,
    *records: RequestRecord,
    late: RequestRecord | None = None,
    wall_s: float = 1.0,
    cpu_s: float | None = None,
    begin_s: float = 0.0,
) -> Wave:
    return Wave(WavePlan(point, (Send(1, 32, 4, 0),)), records, late, begin_s, wall_s, cpu_s)


def stream(first: float, step: float, count: int, prompt: int = 32) -> RequestRecord:
    return record([first + step * index for index in range(count)], prompt)


def test_a_decode_step_is_the_median_over_waves_of_all_streams_gaps() -> None:
    waves = [wave(DECODE, stream(0.1, step, 5), stream(0.1, step, 5), cpu_s=1.5) for step in (0.010, 0.012, 0.050)]
    found = observe(DECODE, waves, LIMITS)
    assert found is not None
    assert (found.kind, found.setting, found.num_waves) == (StepKind.DECODE, "decode-b2-c32", 3)
    assert found.seconds == pytest.approx(0.012)
    # gaps from chunk i to i + 1 attend prompt + i + 1 positions, of which prompt + i are cached: mean of 32..35
    assert found.batches == ((StepPart(34, 1, True), StepPart(34, 1, True)),)
    assert found.cpu_s == pytest.approx(1.5 * 0.012)  # the engine used 1.5 cores
    assert not found.includes_request
    assert found.interval is None  # three values bound no median


def test_a_prompt_alone_is_the_time_to_its_first_token_with_its_request() -> None:
    waves = [wave(PREFILL, record([seconds], prompt=702)) for seconds in (1.0, 1.2, 1.1)]
    found = observe(PREFILL, waves, LIMITS)
    assert found is not None
    assert found.seconds == pytest.approx(1.1)
    assert found.includes_request
    assert found.batches == ((StepPart(0, 512, False),), (StepPart(512, 190, False),))
    assert found.engine_s == pytest.approx(1.099)


def test_what_was_cached_is_what_the_server_says() -> None:
    waves = [wave(CACHED, record([0.3], prompt=192, cached=cached)) for cached in (32, 33, 34)]
    found = observe(CACHED, waves, LIMITS)
    assert found is not None
    assert found.batches == ((StepPart(33, 159, False),),)
    assert found.is_held_out


def test_a_cache_that_kept_too_much_or_too_little_gives_no_step() -> None:
    assert observe(CACHED, [wave(CACHED, record([0.3], prompt=192, cached=0))], LIMITS) is None
    assert observe(PREFILL, [wave(PREFILL, record([0.3], prompt=700, cached=64))], LIMITS) is None


def test_a_mixed_step_is_the_gap_of_the_decoding_streams_that_spans_the_prompt() -> None:
    # both decode every 10 ms from 0.10; the prompt is sent at 0.125; the step from 0.13 to 0.33 reads it
    times = [0.10, 0.11, 0.12, 0.13, 0.33, 0.34, 0.35]
    late = record([0.331], prompt=100, sent=0.125)
    other = [each + 0.0005 for each in times]
    found = observe(MIXED, [wave(MIXED, record(times, prompt=50), record(other, prompt=51), late=late)], LIMITS)
    assert found is not None
    assert found.seconds == pytest.approx(0.2)
    # chunk 3 was the last before it: 50 + 3 and 51 + 3 positions are cached, and the prompt gives one token to the first part
    assert found.batches == (
        (StepPart(53, 1, True), StepPart(54, 1, True), StepPart(0, 1, False)),
        (StepPart(1, 99, False),),
    )
    assert not found.includes_request


def test_a_prompt_that_came_too_late_or_not_at_all_gives_no_mixed_step() -> None:
    decoding = (record([0.1, 0.11], prompt=50), record([0.1, 0.11], prompt=50))
    assert observe(MIXED, [wave(MIXED, *decoding)], LIMITS) is None
    after_the_end = record([0.5], prompt=100, sent=0.3)
    assert observe(MIXED, [wave(MIXED, *decoding, late=after_the_end)], LIMITS) is None
    before_the_second = record([0.105], prompt=100, sent=0.05)
    assert observe(MIXED, [wave(MIXED, *decoding, late=before_the_second)], LIMITS) is None


def test_a_wave_in_which_a_request_failed_does_not_count() -> None:
    good = wave(DECODE, stream(0.1, 0.01, 5), stream(0.1, 0.01, 5))
    failed = replace(stream(0.1, 0.001, 5), status=RequestStatus.TRUNCATED)
    found = observe(DECODE, [good, wave(DECODE, stream(0.1, 0.001, 5), failed)], LIMITS)
    assert found is not None
    assert (found.num_waves, found.seconds) == (1, pytest.approx(0.01))
    assert observe(DECODE, [], LIMITS) is None


def test_a_point_is_known_well_enough_when_the_interval_of_its_median_is_narrow() -> None:
    def point_of(*steps: float) -> bool:
        waves = [wave(DECODE, stream(0.1, step, 5), stream(0.1, step, 5)) for step in steps]
        return is_tight(observe(DECODE, waves, LIMITS), 0.05)

    assert point_of(0.0100, 0.0101, 0.0102, 0.0099, 0.0100, 0.0098)
    assert not point_of(0.0100, 0.0130, 0.0102, 0.0099, 0.0080, 0.0098)
    assert not point_of(0.0100, 0.0100, 0.0100)  # too few to say
    assert not is_tight(None, 0.05)


def test_a_wave_in_which_the_engine_did_not_get_the_processor_is_counted() -> None:
    streams = (stream(0.1, 0.01, 5), stream(0.1, 0.01, 5))
    steady = [wave(DECODE, *streams, wall_s=0.2, cpu_s=0.4) for _ in range(4)]
    stalled = wave(DECODE, *streams, wall_s=0.4, cpu_s=0.4)
    too_short = wave(DECODE, *streams, wall_s=0.02, cpu_s=0.01)
    assert count_disturbed([*steady, stalled, too_short]) == 1
    assert count_disturbed([steady[0], stalled]) == 0
    assert count_disturbed([replace(each, engine_cpu_s=None) for each in (*steady, stalled)]) == 0


def test_what_the_engines_threads_got_of_the_processors_is_a_share_of_what_they_could_take() -> None:
    waves = [wave(PREFILL, record([0.9], prompt=700), wall_s=1.0, cpu_s=cpu_s) for cpu_s in (1.0, 1.2, 1.1)]
    assert processor_share(waves, 2) == pytest.approx(0.55)
    assert processor_share(waves, None) is None
    assert processor_share([replace(waves[0], wall_s=0.05)], 2) is None
    assert processor_share([replace(waves[0], engine_cpu_s=None)], 2) is None


def test_a_machine_that_slows_down_is_seen_at_the_step_that_is_repeated() -> None:
    steps = (0.010, 0.010, 0.011, 0.012, 0.013, 0.013)
    waves = [
        wave(DECODE, stream(0.1, step, 5), stream(0.1, step, 5), begin_s=number) for number, step in enumerate(steps)
    ]
    assert find_drift(DECODE, waves[::-1]) == pytest.approx(0.3)
    assert find_drift(DECODE, waves[:2]) is None
