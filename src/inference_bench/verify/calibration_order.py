"""In which order the requests of a calibration sweep are sent: the waves of one round.

In:   SweepPlan, the points that are still wanted, numbers of texts that were never sent
Out:  WavePlans
Leaves out: sending (calibration_waves)
Read next by: calibration_waves, calibration_sweep.

Where a request may name its slot, one text a slot grows from context to context: reading what is new of it is itself a
measurement, of a prompt whose beginning is cached, and decoding at the context that was reached costs only the decoding.
Elsewhere every wave has prompts that no cache has seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from inference_bench.calibrate.steps.observations import StepKind
from inference_bench.verify.calibration_limits import EngineLimits
from inference_bench.verify.calibration_plan import LEAST_CONTEXT, SweepPlan, SweepPoint

_MIXED_OUTPUT_TOKENS: Final = 20


@dataclass(frozen=True, slots=True)
class Send:
    """A request of a wave.

    Where:    texts of the same number begin alike; slot is None where the engine chooses
    """

    text: int
    prompt_tokens: int
    output_tokens: int
    slot: int | None = None
    reuses_cache: bool = False


@dataclass(frozen=True, slots=True)
class WavePlan:
    """Requests that are sent together, and one that is sent while they decode.

    Where:    point is None where the wave only prepares a cache
    """

    point: SweepPoint | None
    sends: tuple[Send, ...]
    late: Send | None = None


def waves_of_round(
    sweep: SweepPlan, wanted: Collection[SweepPoint], texts: Iterator[int], repeats: int = 1
) -> list[WavePlan]:
    """The waves of one round, for the points that are still wanted; texts gives numbers of texts that were never sent.

    Where:    the reference is always measured, and more than once; repeats is how often each point that is cheap to measure is
    """
    wanted = {*wanted, sweep.reference}
    slot = max(point.batch for point in sweep.points) - 1 if sweep.limits.pins_slots else None
    cold = [
        point for point in sweep.of_kind(StepKind.PREFILL) if point in wanted and not _comes_by_itself(sweep, point)
    ]
    alone = [
        WavePlan(point, (Send(next(texts), point.prompt_tokens, 1, slot),)) for _ in range(repeats) for point in cold
    ]
    beside = _pinned_round if sweep.limits.pins_slots else _free_round
    return [*alone, *beside(sweep, wanted, texts, repeats)]


def _comes_by_itself(sweep: SweepPlan, point: SweepPoint) -> bool:
    """Whether a prompt alone is read anyway, to begin the slots' texts."""
    return sweep.limits.pins_slots and point.prompt_tokens == sweep.plan.contexts[0]


def _pinned_round(
    sweep: SweepPlan, wanted: Collection[SweepPoint], texts: Iterator[int], repeats: int
) -> list[WavePlan]:
    slots = [(slot, next(texts)) for slot in range(max(point.batch for point in sweep.points))]
    waves: list[WavePlan] = []
    before = 0
    for context in sweep.plan.contexts:
        needed = _slots_needed(wanted, context)
        if not needed:
            break
        point = _growing_point(sweep, before, context)
        waves += [WavePlan(point, (Send(text, context, 1, slot, before > 0),)) for slot, text in slots[:needed]]
        here = [each for each in sweep.of_kind(StepKind.DECODE) if each in wanted and each.context_tokens == context]
        for _ in range(repeats):
            waves += [_pinned_decode(sweep, each, slots) for each in here]
        before = context
    mixed = [point for point in sweep.of_kind(StepKind.MIXED) if point in wanted]
    for point in mixed:  # larger batches first: a prompt takes the text of the slot it comes to
        for _ in range(repeats):
            late = Send(next(texts), point.prompt_tokens, 1, point.batch)
            waves.append(replace(_pinned_decode(sweep, point, slots), late=late))
    return [*waves, _pinned_decode(sweep, sweep.reference, slots)]


def _slots_needed(wanted: Collection[SweepPoint], context: int) -> int:
    """How many slots' texts must reach this context."""
    decoding = (StepKind.DECODE, StepKind.MIXED)
    needed = [each.batch for each in wanted if each.kind in decoding and each.context_tokens >= context]
    reached = [each for each in wanted if each.kind is StepKind.CACHED_PREFILL]
    needed += [1 for each in reached if each.context_tokens + each.prompt_tokens >= context]
    return max(needed, default=0)


def _growing_point(sweep: SweepPlan, before: int, context: int) -> SweepPoint | None:
    """The point that reading a text from one context to the next measures."""
    kind = StepKind.CACHED_PREFILL if before else StepKind.PREFILL
    return next(
        (
            point
            for point in sweep.of_kind(kind)
            if (point.context_tokens, point.prompt_tokens) == (before, context - before)
        ),
        None,
    )


def _pinned_decode(sweep: SweepPlan, point: SweepPoint, slots: Sequence[tuple[int, int]]) -> WavePlan:
    output_tokens = _MIXED_OUTPUT_TOKENS if point.kind is StepKind.MIXED else sweep.plan.output_tokens
    return WavePlan(
        point,
        tuple(Send(text, point.context_tokens, output_tokens, slot, True) for slot, text in slots[: point.batch]),
    )


def _free_round(sweep: SweepPlan, wanted: Collection[SweepPoint], texts: Iterator[int], repeats: int) -> list[WavePlan]:
    """Waves of prompts that no cache has seen, but for those that are continued on purpose."""
    here = [point for point in sweep.of_kind(StepKind.DECODE) if point in wanted]
    waves = [_free_decode(sweep, point, texts) for _ in range(repeats) for point in here]
    for point in sweep.points:
        if point not in wanted:
            continue
        if point.kind is StepKind.CACHED_PREFILL:
            text, whole = next(texts), point.context_tokens + point.prompt_tokens
            waves.append(WavePlan(None, (Send(text, point.context_tokens, 1, reuses_cache=True),)))
            waves.append(WavePlan(point, (Send(text, whole, 1, reuses_cache=True),)))
        if point.kind is StepKind.MIXED:
            late = Send(next(texts), point.prompt_tokens, 1)
            waves.append(replace(_free_decode(sweep, point, texts), late=late))
    return [*waves, _free_decode(sweep, sweep.reference, texts)]


def _free_decode(sweep: SweepPlan, point: SweepPoint, texts: Iterator[int]) -> WavePlan:
    output_tokens = _MIXED_OUTPUT_TOKENS if point.kind is StepKind.MIXED else sweep.plan.output_tokens
    return WavePlan(point, tuple(Send(next(texts), point.context_tokens, output_tokens) for _ in range(point.batch)))


def waves_to_rest(limits: EngineLimits, texts: Iterator[int]) -> list[WavePlan]:
    """Waves that leave a server's slots in the order of a fresh one: the highest comes first, and none has a text to continue.

    Where:    a request gets the idle slot that was least recently left, so that the highest is left first; none where slots
              cannot be named
    """
    slots = range((limits.max_batch or 0) if limits.pins_slots else 0)
    return [WavePlan(None, (Send(next(texts), LEAST_CONTEXT, 1, slot),)) for slot in reversed(slots)]
