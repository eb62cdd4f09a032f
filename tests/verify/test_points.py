from __future__ import annotations

import pytest

from inference_bench.accounting.weights import count_weights, weight_plan
from inference_bench.calibrate.steps.observations import StepKind
from inference_bench.compare import Phase
from inference_bench.predict.step_cost import ServedModel
from inference_bench.records import Origin, RequestRecord, RequestStatus, ServerTimings, Stage
from inference_bench.roofline import Roof
from inference_bench.verify.calibration_plan import SweepPoint
from inference_bench.verify.points import decode_point, prefill_point
from shapes import cache_in, reference_model

CEILING = Roof(1e12, 165e12, "bf16")
PROMPT = SweepPoint(StepKind.PREFILL, 1, 0, 100)


def decoding(batch: int) -> SweepPoint:
    return SweepPoint(StepKind.DECODE, batch, 100)


def served() -> ServedModel:
    model = reference_model()
    return ServedModel(model, count_weights(model, weight_plan("bf16")), cache_in("bf16"))


def record(
    times: list[float],
    *,
    tokens: int | None = None,
    prompt: int = 100,
    cached: int = 0,
    status: RequestStatus = RequestStatus.COMPLETED,
) -> RequestRecord:
    return RequestRecord(
        "r",
        Origin.MEASURED,
        Stage.MEASURE,
        status,
        0.0,
        0.001,
        times[-1] if times else 1.0,
        tuple(times),
        prompt_tokens=prompt,
        cached_prompt_tokens=cached,
        output_tokens=len(times) if tokens is None else tokens,
        server_timings=ServerTimings(prefill_s=0.4, output_tokens=len(times), decode_s=0.05 * len(times)),
    )


def stream(first: float, step: float, count: int) -> RequestRecord:
    return record([first + step * index for index in range(count)])


def test_prefill_is_the_median_time_to_the_first_token_of_a_request_alone() -> None:
    point = prefill_point(PROMPT, [(stream(first, 0.05, 4),) for first in (0.5, 0.7, 0.6)], served(), CEILING)
    assert point is not None
    assert point.measured.phase is Phase.PREFILL
    assert point.measured.seconds == pytest.approx(0.6)
    assert (point.measured.num_samples, point.tokens_per_step) == (3, 100)
    assert point.measured.engine_s == pytest.approx(0.4)


def test_prompt_tokens_the_server_had_cached_are_no_work() -> None:
    wave = (record([0.5, 0.6], cached=60),)
    point = prefill_point(PROMPT, [wave], served(), CEILING)
    assert point is not None
    assert point.tokens_per_step == 40


def test_a_decode_step_is_the_gap_while_all_streams_decode() -> None:
    # the second stream starts at 1.0; before that the first is slowed to 0.3 s a token by the other's prefill
    slow = record([0.4, 0.7, 1.0, 1.1, 1.2, 1.3])
    point = decode_point(decoding(2), [(slow, stream(1.0, 0.1, 6))], served(), CEILING)
    assert point is not None
    assert point.measured.seconds == pytest.approx(0.1)
    assert point.measured.batch == 2
    # gaps inside 1.0..1.3: chunks 3, 4, 5 of the first (contexts 103..105) and 1, 2, 3 of the second (101..103)
    assert point.measured.context_tokens == round((103 + 104 + 105 + 101 + 102 + 103) / 6)
    assert (point.measured.num_samples, point.measured.num_waves) == (6, 1)


def test_a_disturbed_wave_moves_the_mean_and_not_the_median_over_waves() -> None:
    waves = [(stream(0.4, step, 5),) for step in (0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 1.0)]
    point = decode_point(decoding(1), waves, served(), CEILING)
    assert point is not None
    assert point.measured.seconds == pytest.approx(0.1)
    assert point.measured.mean_s == pytest.approx((6 * 0.1 + 1.0) / 7)
    assert point.measured.num_waves == 7
    assert point.measured.interval is not None
    assert point.measured.interval.high >= 0.1


def test_gaps_of_few_waves_give_no_interval_however_many_they_are() -> None:
    point = decode_point(decoding(1), [(stream(0.4, 0.1, 200),)] * 3, served(), CEILING)
    assert point is not None
    assert point.measured.num_samples == 3 * 199
    assert point.measured.interval is None


@pytest.mark.parametrize(
    "wave",
    [
        (stream(0.4, 0.1, 5), record([], status=RequestStatus.FAILED)),
        (record([0.4, 0.5, 0.6], tokens=9), stream(0.4, 0.1, 3)),
        (record([0.4]), record([0.4])),
    ],
    ids=["one failed", "chunks are not tokens", "no gap"],
)
def test_a_wave_whose_gaps_are_not_steps_gives_no_point(wave: tuple[RequestRecord, ...]) -> None:
    assert decode_point(decoding(2), [wave], served(), CEILING) is None


def test_a_wave_whose_tokens_came_in_one_read_has_no_step_time() -> None:
    together = (record([0.4, 0.9, 0.9, 0.9, 0.9, 0.9]),)
    assert decode_point(decoding(1), [together], served(), CEILING) is None
    point = decode_point(decoding(1), [together, (stream(0.4, 0.1, 6),)], served(), CEILING)
    assert point is not None
    assert (point.measured.seconds, point.measured.num_waves) == (pytest.approx(0.1), 1)


def test_no_completed_request_gives_no_prefill_point() -> None:
    assert prefill_point(PROMPT, [(record([0.4], status=RequestStatus.TRUNCATED),)], served(), CEILING) is None
