"""Running the sweep: warm up, then wave after wave until the plan or its budget ends.

In:   Target and Plan
Out:  Sweep: the waves of every setting, the client's health, and what the server refused
Leaves out: what the times mean (points.py)
Read next by: flow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from inference_bench.errors import MeasurementError
from inference_bench.measure.http1 import RunClock, Timeouts
from inference_bench.measure.load import LoadResult, run_closed_loop
from inference_bench.measure.prompts import PromptMaker, TokenFit, calibrate
from inference_bench.measure.target import Target
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.verify.plan import Plan, Setting
from inference_bench.verify.points import Wave
from inference_bench.workload import ClosedLoop, RequestShape, Workload

_WARMUP_WORDS = (24, 96)
_WARMUP_OUTPUT = 4

Progress = Callable[[str], None]
Writer = Callable[[RequestRecord], None]


@dataclass(slots=True)
class Sweep:
    """What the sweep measured so far."""

    waves: dict[Setting, list[Wave]] = field(default_factory=dict)
    send_delays_s: list[float] = field(default_factory=list)
    loop_lags_s: list[float] = field(default_factory=list)
    dropped_fields: tuple[str, ...] = ()
    stopped_early: bool = False

    def records(self, setting: Setting) -> list[RequestRecord]:
        """Every record of one setting."""
        return [record for wave in self.waves.get(setting, []) for record in wave]


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """How the sweep is run, beside what is asked."""

    writer: Writer
    progress: Progress
    timeouts: Timeouts
    seed: int = 0
    salt: str = ""


def run_sweep(target: Target, plan: Plan, options: SweepOptions) -> Sweep:
    """Warm up, learn how many tokens a word is, and measure.

    Raises:  MeasurementError when the server gives no token counts or nothing completes
    """
    clock = RunClock()
    prompts = PromptMaker(options.seed, salt=options.salt)
    options.progress("warming up")
    warm = _run(target, _warmup(options.seed), Stage.WARMUP, "warmup", prompts, clock, options)
    prompts.fit = _token_fit(warm)
    sweep = Sweep(dropped_fields=warm.dropped_fields)
    _measure(warm.target, plan, prompts, clock, options, sweep)
    return sweep


def _measure(
    target: Target, plan: Plan, prompts: PromptMaker, clock: RunClock, options: SweepOptions, sweep: Sweep
) -> None:
    started_s, durations_s = time.monotonic(), dict[Setting, float]()
    for repeat, setting in plan.waves():
        elapsed_s = time.monotonic() - started_s
        if repeat and elapsed_s + durations_s.get(setting, 0.0) > plan.budget_s:
            sweep.stopped_early = True
            continue
        options.progress(
            f"measuring: {setting.concurrency} at once, {setting.prompt_tokens} prompt tokens, round {repeat + 1}; "
            f"{elapsed_s:.0f} s of about {plan.budget_s:.0f} s"
        )
        wave_started_s = time.monotonic()
        workload = Workload(
            setting.name,
            (RequestShape(setting.prompt_tokens, setting.output_tokens),),
            ClosedLoop(setting.concurrency, setting.concurrency),
            options.seed,
        )
        result = _run(target, workload, Stage.MEASURE, setting.name, prompts, clock, options)
        durations_s[setting] = time.monotonic() - wave_started_s
        sweep.waves.setdefault(setting, []).append(result.records)
        sweep.send_delays_s += [result.health.send_delay_p99_s] if result.health.send_delay_p99_s is not None else []
        sweep.loop_lags_s += [result.health.loop_lag_p99_s] if result.health.loop_lag_p99_s is not None else []


def _warmup(seed: int) -> Workload:
    shapes = tuple(RequestShape(words, _WARMUP_OUTPUT) for words in _WARMUP_WORDS)
    return Workload("warmup", shapes, ClosedLoop(1, len(shapes)), seed)


def _run(
    target: Target,
    workload: Workload,
    stage: Stage,
    group: str,
    prompts: PromptMaker,
    clock: RunClock,
    options: SweepOptions,
) -> LoadResult:
    return run_closed_loop(
        target,
        workload,
        stage=stage,
        group=group,
        writer=options.writer,
        timeouts=options.timeouts,
        clock=clock,
        prompts=prompts,
    )


def _token_fit(warm: LoadResult) -> TokenFit:
    """Tokens a word, from the server's own counts of the warm-up prompts.

    Raises:  MeasurementError when no warm-up request completed with a token count
    """
    done = [record for record in warm.records if record.status is RequestStatus.COMPLETED]
    if not done:
        raise MeasurementError(f"no warm-up request completed; the first: {warm.records[0].error or 'no reason given'}")
    # a request that was sent again without the fields the server refused keeps its prompt, so order is enough
    samples = [
        (words, record.prompt_tokens)
        for words, record in zip(_WARMUP_WORDS, done, strict=False)
        if record.prompt_tokens
    ]
    if not samples:
        raise MeasurementError(
            "the server reports no token counts (usage); without them no bound can be set beside a time"
        )
    return calibrate(samples)
