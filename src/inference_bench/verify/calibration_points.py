"""From the waves of a sweep to the steps they show: how long each took, and exactly what the engine computed in it.

In:   Waves of a SweepPoint, and how the engine cuts work into batches
Out:  StepObservation, what the fit takes; which waves were disturbed; whether the machine kept its pace
Leaves out: measured against ceilings (points)
Read next by: calibration_sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Final

from inference_bench.calibrate.steps.observations import StepKind, StepObservation
from inference_bench.metrics import has_one_token_per_chunk, ttft_s
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.simulate.step_time import StepPart
from inference_bench.stats import Interval, median, quantile_interval, relative_spread
from inference_bench.verify.calibration_limits import Batch, EngineLimits, mixed_batches, prompt_batches
from inference_bench.verify.calibration_plan import SweepPoint
from inference_bench.verify.calibration_waves import Wave
from inference_bench.verify.points import engine_step_s, step_window

_DISTURBED_SHARE: Final = 0.85
_LEAST_CPU_WALL_S: Final = 0.1  # processor time is counted in ticks of a hundredth of a second
_LEAST_TO_COMPARE: Final = 3


@dataclass(frozen=True, slots=True)
class Sample:
    """One wave's step.

    Where:    contexts are the cached positions of each sequence that decodes, or of the prompt; prompt_tokens the prompt's new
              ones; cpu_s and engine_s as in StepObservation
    Unit:     seconds
    """

    seconds: float
    contexts: tuple[float, ...]
    prompt_tokens: int
    cpu_s: float | None
    engine_s: float | None


def observe(point: SweepPoint, waves: Sequence[Wave], limits: EngineLimits) -> StepObservation | None:
    """The step of a point, the median over its waves; None where no wave shows it.

    Where:    contexts and prompt lengths are the means of what the server counted
    """
    samples = [sample for wave in waves if (sample := sample_of(point, wave)) is not None]
    batches = _batches(point, samples, limits) if samples else None
    if batches is None:
        return None
    seconds = [sample.seconds for sample in samples]
    return StepObservation(
        kind=point.kind,
        setting=point.name,
        batches=batches,
        seconds=median(seconds),
        num_waves=len(seconds),
        interval=quantile_interval(seconds, 0.5),
        relative_spread=relative_spread(seconds),
        includes_request=_is_prompt_alone(point),
        is_held_out=point.is_held_out,
        cpu_s=_median_of_known([sample.cpu_s for sample in samples]),
        engine_s=_median_of_known([sample.engine_s for sample in samples]),
    )


def is_tight(observation: StepObservation | None, precision: float) -> bool:
    """Whether the median is known to within so much of itself, either way."""
    interval: Interval | None = None if observation is None else observation.interval
    if observation is None or interval is None:
        return False
    return (interval.high - interval.low) / 2 <= precision * observation.seconds


def sample_of(point: SweepPoint, wave: Wave) -> Sample | None:
    """What one wave shows of its point; None where a request failed or its tokens are not known one by one."""
    if any(record.status is not RequestStatus.COMPLETED for record in wave.all_records):
        return None
    if _is_prompt_alone(point):
        return _prompt_sample(point, wave)
    return _decode_sample(wave) if point.kind is StepKind.DECODE else _mixed_sample(wave)


def _is_prompt_alone(point: SweepPoint) -> bool:
    return point.kind in (StepKind.PREFILL, StepKind.CACHED_PREFILL)


def _prompt_sample(point: SweepPoint, wave: Wave) -> Sample | None:
    record = wave.records[0]
    seconds, tokens = ttft_s(record), record.prompt_tokens
    if seconds is None or not tokens:
        return None
    cached = min(record.cached_prompt_tokens or 0, tokens - 1)
    if (point.kind is StepKind.CACHED_PREFILL) != (cached > 0):
        return None  # a cache kept what it should not have, or has lost what it should have kept
    engine_s = record.server_timings.prefill_s if record.server_timings else None
    return Sample(seconds, (float(cached),), tokens - cached, _cpu_s(wave, seconds), engine_s)


def _decode_sample(wave: Wave) -> Sample | None:
    window = step_window(wave.records)
    if window is None or window.mean_context_tokens is None:
        return None
    step_s, cached = median(window.gaps_s), window.mean_context_tokens - 1
    engine_s = engine_step_s(wave.records[0]) if len(wave.records) == 1 else None
    return Sample(step_s, (cached,) * len(wave.records), 0, _cpu_s(wave, step_s), engine_s)


def _mixed_sample(wave: Wave) -> Sample | None:
    """The gap of every stream in which the late prompt was read.

    Formula:  median over the streams of their longest gap between the prompt's sending and its first token
    """
    late = wave.late
    if late is None or not late.chunk_times_s or not late.prompt_tokens or (late.cached_prompt_tokens or 0) > 0:
        return None
    if any(not record.chunk_times_s or record.chunk_times_s[0] > late.sent_s for record in wave.records):
        return None  # not all decoded when it came
    spans = [_longest_gap(record, late.sent_s, late.chunk_times_s[0]) for record in wave.records]
    gaps = [span[0] for span in spans if span is not None]
    if len(gaps) < len(wave.records) or not all(map(has_one_token_per_chunk, wave.records)):
        return None
    contexts = tuple(
        float(record.prompt_tokens + span[1])
        for record, span in zip(wave.records, spans, strict=True)
        if span is not None and record.prompt_tokens is not None
    )
    if len(contexts) < len(gaps):
        return None
    step_s = median(gaps)
    return Sample(step_s, contexts, late.prompt_tokens, _cpu_s(wave, step_s), None)


def _longest_gap(record: RequestRecord, begin_s: float, end_s: float) -> tuple[float, int] | None:
    """The longest gap that touches this time, and the index of the chunk before it; None where there is none.

    Where:    the token of chunk i is cached by the step that makes chunk i + 1, so that prompt + i positions are before it
    """
    gaps = [
        (after - before, index)
        for index, (before, after) in enumerate(pairwise(record.chunk_times_s))
        if after > begin_s and before < end_s
    ]
    return max(gaps, default=None)


def _cpu_s(wave: Wave, seconds: float) -> float | None:
    """The engine's processor time of a step: its share of the wave's, which is long enough to be counted in ticks."""
    share = wave.cpu_share
    return None if share is None or wave.wall_s < _LEAST_CPU_WALL_S else share * seconds


def _median_of_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _batches(point: SweepPoint, samples: Sequence[Sample], limits: EngineLimits) -> tuple[Batch, ...] | None:
    """What the engine computed, at the mean context and length of the samples."""
    contexts = [round(fmean(column)) for column in zip(*(sample.contexts for sample in samples), strict=True)]
    prompt_tokens = round(fmean(sample.prompt_tokens for sample in samples))
    if _is_prompt_alone(point):
        return prompt_batches(contexts[0], prompt_tokens, limits.most_positions)
    if point.kind is StepKind.MIXED:
        return mixed_batches(contexts, prompt_tokens, limits)
    return (tuple(StepPart(context, 1, True) for context in contexts),)


# ── how steady it was ──────────────────────────────────────────────────────────────────────────────


def count_disturbed(waves: Sequence[Wave]) -> int:
    """Waves of one point in which the engine got clearly less of the processors than it usually does there.

    Formula:  CPU share below 0.85 of the median over the waves of the point
    Ignores:  points of fewer than three waves, and waves too short for the system's clock of processor time
    """
    shares = [wave.cpu_share for wave in waves if wave.cpu_share is not None and wave.wall_s >= _LEAST_CPU_WALL_S]
    if len(shares) < _LEAST_TO_COMPARE:
        return 0
    usual = median(shares)
    return sum(share < _DISTURBED_SHARE * usual for share in shares)


def processor_share(waves: Sequence[Wave], num_threads: int | None) -> float | None:
    """How much of what its threads could take the engine got while it read prompts, which keeps all of them busy.

    Formula:  median over the waves of processor time / (wall time · threads)
    Where:    None where its threads or its processor time are not known, or no wave is long enough for the system's clock
    """
    if not num_threads:
        return None
    long = [wave for wave in waves if wave.wall_s >= _LEAST_CPU_WALL_S]
    shares = [wave.cpu_share / num_threads for wave in long if wave.cpu_share is not None]
    return median(shares) if shares else None


def find_drift(point: SweepPoint, waves: Sequence[Wave]) -> float | None:
    """How much slower the reference step is at the end of the sweep than at its begin, as a fraction; below 0 it is quicker.

    Formula:  median over the last third of its waves / median over the first third - 1
    Where:    None with fewer than three waves
    """
    ordered = sorted(waves, key=lambda wave: wave.begin_s)
    seconds = [sample.seconds for wave in ordered if (sample := sample_of(point, wave)) is not None]
    if len(seconds) < _LEAST_TO_COMPARE:
        return None
    third = max(1, len(seconds) // 3)
    return median(seconds[-third:]) / median(seconds[:third]) - 1
