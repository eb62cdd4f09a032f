"""What is a step's time made of, what is lost, and what would help: in sentences that the parts and the changes bear out.

In:   StepCalibration, Choices
Out:  GapReading
Read next by: verify.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.calibrate.steps.forms import StepCalibration
from inference_bench.calibrate.steps.observations import StepKind
from inference_bench.gap.changes import changes, signed
from inference_bench.gap.decompose import decompose, shown_steps
from inference_bench.gap.parts import Cause, CauseKind, Change, GapReading, StepGap
from inference_bench.gap.proposals import Choices
from inference_bench.units import format_fraction, format_seconds

_TOLD: Final = 0.04  # a part of a smaller share of its step is told together with the others
_GAINING: Final = 0.02  # a change that gains less is said to gain little
_PROMISING: Final = 0.05  # bytes and FLOPs that promise less make no one expect anything
_KEPT: Final = 0.5  # of a promise: a change that keeps less is worth a sentence
_UNEXPLAINED: Final = 0.1
_LOSSES: Final = frozenset({CauseKind.LOST, CauseKind.OVERHEAD})


def read_gap(calibration: StepCalibration, choices: Choices | None = None) -> GapReading:
    """Where the time of a few telling steps goes, and what would help each of them.

    Where:  the steps are decoding of the fewest and of the most sequences, and the longest prompt, as far as they were measured
    """
    steps: list[StepGap] = []
    found: list[Change] = []
    sentences: list[str] = []
    for shown in shown_steps(calibration.observations):
        step, changed = decompose(shown, calibration), changes(calibration, shown.observation, choices)
        is_decode = shown.observation.kind is StepKind.DECODE
        steps.append(step)
        found.extend(changed)
        unit = "tokens/s" if is_decode else "prompt tokens/s"
        sentences += [*_step_sentences(step), *_change_sentences(_capital(step.title), changed, unit)]
    return GapReading(tuple(steps), tuple(found), tuple(sentences))


# ── what there is ──────────────────────────────────────────────────────────────────────────────────


def _step_sentences(step: StepGap) -> Iterator[str]:
    """What a step is made of, and the largest loss in it."""
    told = sorted((part for part in step.parts if abs(part.share) >= _TOLD), key=lambda part: -part.seconds)
    rest = sum(part.seconds for part in step.parts if part not in told)
    said = [f"{part.cause} {_amount(part.seconds, part.share)}" for part in told]
    said += [f"all else {_amount(rest, rest / step.measured_s)}"] if len(told) < len(step.parts) else []
    title = _capital(step.title)
    yield f"{title}: {format_seconds(step.measured_s)} measured, of which {', '.join(said)}."
    share = step.bound_s / step.measured_s
    yield (
        f"{title}: no step of this work takes less than {format_seconds(step.bound_s)} at the measured ceilings, set by "
        f"{step.limited_by}: {format_fraction(share)} of what was measured."
    )
    losses = [part for part in step.parts if part.cause.kind in _LOSSES]
    if losses:
        worst = max(losses, key=lambda part: part.seconds)
        yield f"{title}: the largest loss is {worst.cause}, {_amount(worst.seconds, worst.share)}: {worst.words}."
    unexplained = step.seconds(Cause.UNEXPLAINED) / step.measured_s
    if abs(unexplained) > _UNEXPLAINED:
        yield (
            f"{title}: the fitted formula is off by {format_fraction(abs(unexplained))} of this step, and what changes would "
            "gain rests on that formula."
        )


def _amount(seconds: float, share: float) -> str:
    said = f"{format_seconds(abs(seconds))} ({format_fraction(abs(share))})"
    return f"less {said}" if seconds < 0 else said


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]


# ── what would help ────────────────────────────────────────────────────────────────────────────────


def _change_sentences(title: str, found: Sequence[Change], unit: str) -> Iterator[str]:
    """What would gain most of what can be chosen and of what a better engine could reach, and what does not help."""
    chosen, better = [each for each in found if each.is_choice], [each for each in found if not each.is_choice]
    best = chosen[0] if chosen and chosen[0].gain >= _GAINING else None
    if best is not None:
        yield f"{title}: of what can be chosen, {_named(best)} would gain most: {_gains(best, unit)}."
    elif chosen:
        yield f"{title}: nothing that can be chosen would gain {format_fraction(_GAINING, 1)} or more {unit}."
    if better and better[0].gain >= _GAINING:
        yield f"{title}: of what a better engine could reach, {better[0].name} would gain most: {signed(better[0].gain)} {unit}."
    yield from _disappointments(title, [each for each in chosen if each is not best])


def _disappointments(title: str, chosen: Sequence[Change]) -> Iterator[str]:
    """What gains much less than its bytes promise, what gains next to nothing, and what makes the step slower."""
    broken = [each for each in chosen if each.ceiling_gain >= _PROMISING and each.gain < _KEPT * each.ceiling_gain]
    for each in broken:
        promised, said = signed(each.ceiling_gain), signed(each.gain)
        yield f"{title}: bytes and FLOPs alone promise {promised} for {_named(each)}; the fitted formula says {said}."
    little = [each for each in chosen if abs(each.gain) < _GAINING and each not in broken]
    if little:
        names = ", ".join(each.name for each in little)
        yield f"{title}: less than {format_fraction(_GAINING, 1)} gained or lost with {names}."
    slower = [each for each in chosen if each.gain <= -_GAINING and each not in broken]
    if slower:
        yield f"{title}: slower with {', '.join(f'{each.name} ({signed(each.gain)})' for each in slower)}."


def _named(change: Change) -> str:
    return f"{change.name} (assumed, not measured here)" if change.is_assumed else change.name


def _gains(change: Change, unit: str) -> str:
    return f"{signed(change.gain)} {unit} by the fitted formula, {signed(change.ceiling_gain)} by bytes and FLOPs alone"
