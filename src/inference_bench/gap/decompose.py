"""Of a measured step, how much is weights, cache, compute, rates not reached, overhead, and how much is unexplained?

In:   FittedObservation, StepCalibration
Out:  StepGap, and which few steps are worth showing
Leaves out: how the formula is taken apart (step_parts), words of a part (part_words), what would help (changes), sentences (reading)
Read next by: changes, reading.

The parts are those of the fitted formula, and what it does not say of the measured time is unexplained: they add up to what
was measured, whatever the formula is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from inference_bench.accounting.work import SequenceStep
from inference_bench.calibrate.steps.forms import FittedObservation, StepCalibration
from inference_bench.calibrate.steps.observations import StepKind, StepObservation
from inference_bench.gap.part_words import part_words
from inference_bench.gap.parts import Cause, GapPart, StepGap
from inference_bench.gap.step_parts import Batches, StepReads, count_parts
from inference_bench.predict.step_cost import ServedModel
from inference_bench.roofline import Bound, Roof, bound_step
from inference_bench.units import format_count

_ROUNDING: Final = 1e-12


def decompose(observation: FittedObservation, calibration: StepCalibration) -> StepGap:
    """A measured step as parts that add up to it.

    Formula:  unexplained = measured - Σ of the others
    Unit:     seconds
    """
    seen = observation.observation
    reads = StepReads.of(seen.batches, calibration)
    found = count_parts(seen, reads, calibration)
    explained = math.fsum(found.values())
    unexplained = seen.seconds - explained
    found[Cause.UNEXPLAINED] = unexplained if abs(unexplained) > _ROUNDING * seen.seconds else 0.0
    limit = bound_of(seen.batches, calibration.served, calibration)
    parts = tuple(
        GapPart(cause, seconds, seconds / seen.seconds, part_words(cause, seconds, seen, reads, calibration))
        for cause, seconds in found.items()
        if seconds or cause is Cause.UNEXPLAINED
    )
    return StepGap(title_of(seen), seen.seconds, limit.seconds or 0.0, explained, parts, limit.limited_by)


def bound_of(batches: Batches, served: ServedModel, calibration: StepCalibration) -> Bound:
    """The least time of the work at the measured ceilings, all batches as one step that reads the weights once."""
    ceiling = Roof(calibration.bandwidth_bytes_per_s, calibration.compute_flops_per_s, None)
    steps = [SequenceStep(part.cached, part.new) for batch in batches for part in batch]
    return bound_step("step", served.work(steps), ceiling)


# ── which steps ────────────────────────────────────────────────────────────────────────────────────


def title_of(seen: StepObservation) -> str:
    """What a step does, in words."""
    positions = format_count(seen.num_positions)
    if seen.kind is StepKind.DECODE:
        return f"decode, batch {num_sequences(seen)} at {format_count(round(seen.mean_context_tokens))} tokens"
    if seen.kind is StepKind.PREFILL:
        return f"prefill of {positions} tokens"
    if seen.kind is StepKind.CACHED_PREFILL:
        return f"prefill of {positions} tokens after {format_count(seen.batches[0][0].cached)} cached"
    decoding = sum(part.is_decoding for batch in seen.batches for part in batch)
    return f"mixed, {positions} positions, {decoding} of them decoding"


def shown_steps(observations: Sequence[FittedObservation]) -> tuple[FittedObservation, ...]:
    """The steps worth showing: decoding of the fewest and of the most sequences, and the longest prompt.

    Where:  both decode steps are near the same context, the middle one of those measured
    """
    decodes = [each for each in observations if each.observation.kind is StepKind.DECODE]
    prompts = [each for each in observations if each.observation.kind is StepKind.PREFILL]
    longest = [max(prompts, key=lambda each: each.observation.num_positions)] if prompts else []
    if not decodes:
        return tuple(longest)
    contexts = sorted(each.observation.mean_context_tokens for each in decodes)
    middle = contexts[len(contexts) // 2]
    few = min(decodes, key=lambda each: (num_sequences(each.observation), _distance(each, middle)))
    many = min(decodes, key=lambda each: (-num_sequences(each.observation), _distance(each, middle)))
    return (few, *([many] if many is not few else []), *longest)


def _distance(each: FittedObservation, context: float) -> float:
    """How far a step's context is from another, as a factor."""
    return abs(math.log((each.observation.mean_context_tokens + 1) / (context + 1)))


def num_sequences(seen: StepObservation) -> int:
    """Sequences of a step over its batches, for decoding: each is in one batch."""
    return sum(map(len, seen.batches))
