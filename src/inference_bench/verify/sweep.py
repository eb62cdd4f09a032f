"""Running the sweep: warm up, then wave after wave until the plan or its budget ends.

In:   Target and Plan
Out:  Sweep: the waves of every setting, the client's health, and what the server refused
Leaves out: what the times mean (points.py)
Read next by: flow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from inference_bench.errors import MeasurementError
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.load import LoadOptions, run_load
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.target import Target
from inference_bench.measure.warmup import warm_up
from inference_bench.records import RequestRecord
from inference_bench.verify.plan import Plan, Setting
from inference_bench.verify.points import Wave
from inference_bench.workload import RequestShape, closed_loop

Progress = Callable[[str], None]
Writer = Callable[[RequestRecord], None]


@dataclass(slots=True)
class Sweep:
    """What the sweep measured so far."""

    waves: dict[Setting, list[Wave]] = field(default_factory=dict)
    loop_lags_s: list[float] = field(default_factory=list)
    dropped_fields: tuple[str, ...] = ()
    stopped_early: bool = False

    def all_records(self) -> list[RequestRecord]:
        """Every record of the sweep."""
        return [record for waves in self.waves.values() for wave in waves for record in wave]

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
    prompts = PromptMaker(options.seed, salt=options.salt)
    load = LoadOptions(writer=options.writer, timeouts=options.timeouts, prompts=prompts)
    options.progress("warming up")
    warm = warm_up(target, prompts, load)
    if not any(record.prompt_tokens for record in warm.records):
        raise MeasurementError(
            "the server reports no token counts (usage); without them no bound can be set beside a time"
        )
    sweep = Sweep(dropped_fields=warm.dropped_fields)
    _measure(warm.target, plan, load, options, sweep)
    return sweep


def _measure(target: Target, plan: Plan, load: LoadOptions, options: SweepOptions, sweep: Sweep) -> None:
    started_s, durations_s = time.monotonic(), dict[Setting, float]()
    for repeat, setting in plan.waves():
        elapsed_s = time.monotonic() - started_s
        if elapsed_s + (durations_s.get(setting, 0.0) if repeat else 0.0) > plan.budget_s:
            sweep.stopped_early = True
            continue
        options.progress(
            f"measuring: {setting.concurrency} at once, {setting.prompt_tokens} prompt tokens, round {repeat + 1}; "
            f"{elapsed_s:.0f} s of about {plan.budget_s:.0f} s"
        )
        wave_started_s = time.monotonic()
        shape = RequestShape(setting.prompt_tokens, setting.output_tokens)
        workload = closed_loop(setting.name, [shape], setting.concurrency, setting.concurrency, options.seed)
        result = run_load(target, workload, replace(load, group=setting.name))
        durations_s[setting] = time.monotonic() - wave_started_s
        sweep.waves.setdefault(setting, []).append(result.records)
        sweep.loop_lags_s += result.loop_lags_s
