"""From request records to measured points: one prefill time and one decode step time for each setting.

In:   the records of waves of simultaneous requests, all of one prompt length and concurrency
Out:  MeasuredPoint and the StepWork it did, ready for comparison
Leaves out: which points are measured (calibration_plan) and what the bound is (compare)
Read next by: calibration_points, summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from inference_bench.accounting.work import SequenceStep, decode_batch
from inference_bench.compare import ComparedPoint, MeasuredPoint, Phase, compare_point
from inference_bench.decode_window import DecodeWindow, steady_decode_window
from inference_bench.metrics import ttft_s
from inference_bench.predict.step_cost import ServedModel
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.roofline import Roof
from inference_bench.stats import median, quantile_interval, relative_spread
from inference_bench.verify.calibration_plan import SweepPoint

Wave = tuple[RequestRecord, ...]


def prefill_point(point: SweepPoint, waves: Sequence[Wave], served: ServedModel, ceiling: Roof) -> ComparedPoint | None:
    """The time to the first token of one prompt alone on the server; None where no such request completed.

    Formula:  median TTFT over the waves of one request; the work is the prompt less what the server said it had cached
    """
    alone = [wave[0] for wave in waves if len(wave) == 1 and wave[0].status is RequestStatus.COMPLETED]
    counted = [record for record in alone if record.chunk_times_s and record.prompt_tokens]
    seconds = [wait_s for record in counted if (wait_s := ttft_s(record)) is not None]
    if not seconds:
        return None
    prompts = [record.prompt_tokens or 0 for record in counted]
    cached = [min(record.cached_prompt_tokens or 0, (record.prompt_tokens or 1) - 1) for record in counted]
    tokens, num_cached = round(fmean(prompts)), round(fmean(cached))
    engine = [record.server_timings.prefill_s for record in counted if record.server_timings]
    measured = MeasuredPoint(
        phase=Phase.PREFILL,
        batch=1,
        context_tokens=tokens,
        nominal_context_tokens=point.prompt_tokens,
        seconds=median(seconds),
        num_samples=len(seconds),
        interval=quantile_interval(seconds, 0.5),
        relative_spread=relative_spread(seconds),
        engine_s=_mean_of_known(engine),
        mean_s=fmean(seconds),
        num_waves=len(seconds),
    )
    return compare_point(measured, served.work((SequenceStep(num_cached, tokens - num_cached),)), ceiling)


def decode_point(point: SweepPoint, waves: Sequence[Wave], served: ServedModel, ceiling: Roof) -> ComparedPoint | None:
    """The time of one decode step while every request of a wave decodes; None where no wave had such a time.

    Formula:  median over waves of the median chunk gap between the last first token and the first last token
    Ignores:  waves in which a chunk was not one token, or most chunks shared a read: their gaps are not steps
    """
    windows = [step_window(wave) for wave in waves if len(wave) == point.batch]
    usable = [window for window in windows if window is not None]
    gaps = [gap for window in usable for gap in window.gaps_s]
    medians = [median(window.gaps_s) for window in usable]
    if not gaps or (step_s := median(medians)) <= 0:
        return None
    context = round(fmean(window.mean_context_tokens or 0 for window in usable))
    records = [record for wave in waves for record in wave if record.server_timings]
    engine = [engine_step_s(record) for record in records] if point.batch == 1 else []
    measured = MeasuredPoint(
        phase=Phase.DECODE,
        batch=point.batch,
        context_tokens=context,
        nominal_context_tokens=point.context_tokens,
        seconds=step_s,
        num_samples=len(gaps),
        interval=quantile_interval(medians, 0.5),  # gaps of one wave hang together: only waves are independent
        relative_spread=relative_spread(medians),
        engine_s=_mean_of_known(engine),
        mean_s=fmean(gaps),
        num_waves=len(usable),
    )
    return compare_point(measured, served.work(decode_batch(context, point.batch)), ceiling)


def step_window(wave: Wave) -> DecodeWindow | None:
    """The window in which all of a wave decode; None where its gaps are not steps.

    Where:    they are with one token a chunk, and chunks that mostly came in reads of their own
    """
    window = steady_decode_window(wave)
    if window is None or not window.one_token_per_chunk or not window.mean_context_tokens:
        return None
    return window if median(window.gaps_s) > 0 else None


def engine_step_s(record: RequestRecord) -> float | None:
    """What the engine itself says of a step of a request alone.

    Unit:     seconds
    """
    timings = record.server_timings
    if timings is None or not timings.decode_s or not timings.output_tokens or timings.output_tokens < 2:
        return None
    return timings.decode_s / (timings.output_tokens - 1)  # the first token belongs to prefill


def _mean_of_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
