"""Running a calibration sweep: warm up, then round after round until every point is known well enough or the time is over.

In:   Target, Plan, what the engine allows
Out:  Sweep: the waves of every point, the client's health, and what the server refused
Leaves out: what the times mean (calibration_points, points)
Read next by: flow.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from inference_bench.calibrate.steps.observations import StepKind, StepObservation
from inference_bench.errors import MeasurementError
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.load import LoadOptions, LoadResult
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.refusals import is_hopeless
from inference_bench.measure.target import Target
from inference_bench.measure.warmup import warm_up
from inference_bench.metrics import ttft_s
from inference_bench.records import RequestRecord
from inference_bench.units import format_fraction
from inference_bench.verify.calibration_limits import EngineLimits
from inference_bench.verify.calibration_order import WavePlan, waves_of_round, waves_to_rest
from inference_bench.verify.calibration_plan import Pace, SweepPlan, SweepPoint, plan_sweep
from inference_bench.verify.calibration_points import count_disturbed, find_drift, is_tight, observe, processor_share
from inference_bench.verify.calibration_waves import Records, Wave, WaveSender
from inference_bench.verify.count_doubts import count_doubts, why_no_steps
from inference_bench.verify.disturbances import of_sweep
from inference_bench.verify.plan import Plan

NOT_ALL_MEASURED: Final = "steps were measured; not"  # in the note that says so
_FIRST_TEXT: Final = 1000
_MOST_HOPELESS: Final = 3  # waves one after the other of which no request brought a token
_NOTED_DRIFT: Final = 0.15
_NOTED_SHARE: Final = 0.85
_FIRST_ROUND_BUDGETS: Final = 2  # a sweep with holes is worth less than the time
_READING: Final = (StepKind.PREFILL, StepKind.CACHED_PREFILL)  # what leaves a text in a cache for later waves

Progress = Callable[[str], None]
Writer = Callable[[RequestRecord], None]


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """How the sweep is run, beside what is asked.

    Where:    engine_cpu_s says how much processor time the engine has used by now; None where its process is not ours
    Unit:     seconds
    """

    writer: Writer
    progress: Progress
    timeouts: Timeouts
    seed: int = 0
    salt: str = ""
    engine_cpu_s: Callable[[], float | None] = lambda: None


@dataclass(slots=True)
class Sweep:
    """What the sweep measured so far.

    Where:    sender is as the warm-up left it: its target without fields that the server refused, its prompts fitted to the
              server's counts; tight are the points that are known well enough; texts gives numbers of texts never sent
    """

    sender: WaveSender
    plan: SweepPlan
    dropped_fields: tuple[str, ...] = ()
    waves: dict[SweepPoint, list[Wave]] = field(default_factory=dict)
    num_rounds: int = 0
    tight: set[SweepPoint] = field(default_factory=set)
    texts: Iterator[int] = field(default_factory=lambda: count(_FIRST_TEXT))

    def rest(self) -> None:
        """Leave the slots as a fresh server has them: nothing to continue in any, and given out in the same order."""
        for wave in waves_to_rest(self.plan.limits, self.texts):
            self.sender.send(wave)

    def records_of(self, point: SweepPoint) -> list[Records]:
        """The records of each wave of a point."""
        return [wave.records for wave in self.waves.get(point, [])]

    def all_records(self) -> list[RequestRecord]:
        """Every record of the sweep's points."""
        return [record for waves in self.waves.values() for wave in waves for record in wave.all_records]

    def observations(self) -> tuple[StepObservation, ...]:
        """The step of every point that was measured."""
        found = (observe(point, self.waves.get(point, []), self.plan.limits) for point in self.plan.points)
        return tuple(each for each in found if each is not None)

    def disturbances(self) -> tuple[str, ...]:
        """Why nobody should judge the engine by its figures; nothing where they can be trusted."""
        return tuple(of_sweep(_engine_share(self), _drift(self)))

    def count_doubts(self) -> tuple[str, ...]:
        """What speaks against the server's token counts."""
        waves = [wave for each in self.waves.values() for wave in each]
        return count_doubts(waves, self.sender.prompts.fit.tokens_per_word)

    def notes(self) -> tuple[str, ...]:
        """What a reader of its figures has to know."""
        return (*self.plan.notes, *_notes(self))


def run_sweep(target: Target, plan: Plan, limits: EngineLimits, options: SweepOptions) -> Sweep:
    """Warm up, learn how many tokens a word is and how fast the server is, and measure.

    Raises:  MeasurementError when the server gives no token counts, nothing completes, or its cache is too small
    """
    plan_sweep(plan, limits)  # a cache that is too small is said before anything is sent
    prompts = PromptMaker(options.seed, salt=options.salt)
    load = LoadOptions(writer=options.writer, timeouts=options.timeouts, prompts=prompts)
    options.progress("warming up")
    warm = warm_up(target, prompts, load)
    if not any(record.prompt_tokens for record in warm.records):
        raise MeasurementError(
            "the server reports no token counts (usage); without them no bound can be set beside a time"
        )
    sender = WaveSender(warm.target, prompts, options.writer, options.timeouts, options.engine_cpu_s, load.clock)
    sweep = Sweep(sender, plan_sweep(plan, limits, _pace(warm)), warm.dropped_fields)
    _Measuring(sweep, options.progress).run()
    return sweep


def _pace(warm: LoadResult) -> Pace | None:
    """The server's pace over the warm-up; None where no request of it says.

    Where:    the first request pays for what is done once, so that the quickest is asked
    """
    waits = [(wait_s, record.prompt_tokens) for record in warm.records if (wait_s := ttft_s(record)) is not None]
    tokens = [wait_s / prompt for wait_s, prompt in waits if prompt]
    return Pace(min(tokens)) if tokens else None


class _Measuring:
    """The rounds of one sweep."""

    def __init__(self, sweep: Sweep, say: Progress) -> None:
        self._sweep, self._say = sweep, say
        self._started_s = time.monotonic()
        self._longest_s: dict[tuple[object, int], float] = {}
        self._unread: set[int] = set()  # texts that no cache holds as far as later waves of the round continue them
        self._num_hopeless = 0

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def run(self) -> None:
        """All rounds."""
        sweep, plan = self._sweep, self._sweep.plan.plan
        while sweep.num_rounds < plan.max_rounds:
            wanted = [point for point in sweep.plan.points if point not in sweep.tight]
            if not wanted or (sweep.num_rounds and self._elapsed_s >= plan.budget_s):
                return
            repeats = plan.waves_per_round if sweep.num_rounds else 1
            for wave in waves_of_round(sweep.plan, wanted, sweep.texts, repeats):
                self._measure(wave)
            sweep.num_rounds += 1
            self._settle(wanted)

    def _measure(self, wave: WavePlan) -> None:
        """Send a wave where there is time for it: later rounds end in the budget, the first in as much again.

        Ignores: a wave that continues a text whose reading there was no time for
        """
        sweep, key = self._sweep, (wave.point, len(wave.sends))
        allowed_s = sweep.plan.plan.budget_s * (1 if sweep.num_rounds else _FIRST_ROUND_BUDGETS)
        texts = {send.text for send in wave.sends}
        if self._elapsed_s + self._longest_s.get(key, 0.0) > allowed_s or not self._unread.isdisjoint(texts):
            if wave.point is None or wave.point.kind in _READING:
                self._unread |= texts
            return
        self._say(
            f"measuring {wave.point.name if wave.point else 'the cache'}, round {sweep.num_rounds + 1}; "
            f"{self._elapsed_s:.0f} s of at most {sweep.plan.plan.budget_s:.0f} s"
        )
        found = sweep.sender.send(wave)
        self._longest_s[key] = found.wall_s
        if wave.point is not None:
            sweep.waves.setdefault(wave.point, []).append(found)
        self._judge(found)

    def _judge(self, wave: Wave) -> None:
        """Give up where the server has stopped to answer.

        Raises:  MeasurementError
        """
        self._num_hopeless = self._num_hopeless + 1 if all(map(is_hopeless, wave.all_records)) else 0
        if self._num_hopeless >= _MOST_HOPELESS:
            first = wave.records[0].error or "no reason given"
            raise MeasurementError(
                f"the server stopped answering: {self._num_hopeless} waves failed; the last: {first}"
            )

    def _settle(self, wanted: Sequence[SweepPoint]) -> None:
        sweep = self._sweep
        for point in wanted:
            seen = observe(point, sweep.waves.get(point, []), sweep.plan.limits)
            if is_tight(seen, sweep.plan.plan.precision):
                sweep.tight.add(point)


# ── in words ───────────────────────────────────────────────────────────────────────────────────────


def _notes(sweep: Sweep) -> Iterator[str]:
    if sweep.dropped_fields:
        yield f"the server refused these request fields, so they were left out: {', '.join(sweep.dropped_fields)}"
    plan = sweep.plan
    measured = [point for point in plan.points if observe(point, sweep.waves.get(point, []), plan.limits)]
    if missing := [point for point in plan.points if point not in measured]:
        yield f"{len(measured)} of {len(plan.points)} {NOT_ALL_MEASURED}: {_kinds(missing)}"
    decode = [wave for point in missing if point.kind is StepKind.DECODE for wave in sweep.waves.get(point, [])]
    if (why := why_no_steps(decode)) is not None:
        yield f"steps of decode are not known: {why}"
    loose = [point for point in measured if point not in sweep.tight]
    if loose:
        yield (
            f"{len(loose)} of {len(measured)} steps are not known to ±{format_fraction(plan.plan.precision)} of their median: the "
            f"sweep ended after {sweep.num_rounds} round{'' if sweep.num_rounds == 1 else 's'}"
        )
    disturbed = sum(map(count_disturbed, sweep.waves.values()))
    if disturbed:
        total = sum(map(len, sweep.waves.values()))
        yield f"in {disturbed} of {total} waves other work held the engine up; they are kept, and medians pass over them"
    share = _engine_share(sweep)
    if share is not None and share < _NOTED_SHARE:
        yield (
            f"the engine's threads got {format_fraction(share)} of the processor time that they could take: other work ran beside it, "
            "and its times are longer than those of a machine of its own"
        )
    drift = _drift(sweep)
    if drift is not None and abs(drift) > _NOTED_DRIFT:
        how = "slowed" if drift > 0 else "quickened"
        yield f"the machine {how} by {format_fraction(abs(drift))} during the sweep ({plan.reference.name}, first third to last)"


def _engine_share(sweep: Sweep) -> float | None:
    """Of the processor time that the engine's threads could take while they read prompts, what they got."""
    plan = sweep.plan
    prompts = [wave for point in plan.of_kind(StepKind.PREFILL) for wave in sweep.waves.get(point, [])]
    return processor_share(prompts, plan.limits.num_threads)


def _drift(sweep: Sweep) -> float | None:
    """How much slower the machine became during the sweep."""
    return find_drift(sweep.plan.reference, sweep.waves.get(sweep.plan.reference, []))


def _kinds(points: Sequence[SweepPoint]) -> str:
    counted = Counter(str(point.kind) for point in points)
    return ", ".join(f"{number} of {kind}" for kind, number in counted.items())


def first_error(sweep: Sweep) -> str | None:
    """Why the first request that failed did; where none did, what was odd about the replies."""
    records = sweep.all_records()
    if (error := next((record.error for record in records if record.error), None)) is not None:
        return error
    empty = sum(not record.chunk_times_s for record in records)
    if empty:
        return f"{empty} of {len(records)} replies ended without any content"
    return why_no_steps(wave for each in sweep.waves.values() for wave in each)
