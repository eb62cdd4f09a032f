"""Which steps a calibration sweep measures on this server, chosen before anything is measured.

In:   the Plan that is wanted, what the engine allows, and how fast the server answered so far
Out:  SweepPlan: the points, held out or not, and in words what was left out
Leaves out: in which order they are sent (calibration_order), what the times mean (calibration_points)
Read next by: calibration_order, calibration_sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from inference_bench.calibrate.steps.observations import StepKind
from inference_bench.errors import MeasurementError
from inference_bench.units import format_seconds
from inference_bench.verify.calibration_limits import EngineLimits, Mixing
from inference_bench.verify.plan import Mixture, Plan

LEAST_CONTEXT: Final = 8
OF_THE_SWEEP: Final = "of the sweep"  # in every note that says what was cut
_LEAST_CACHED: Final = 64  # engines keep a prompt's beginning in blocks: shorter ones may not be kept
_LEAST_ROUNDS: Final = 2
_PROMPT_SHARE: Final = 0.6
_SHORTER: Final = 0.7
_SHORTEST: Final = 0.25  # of what was wanted: a warm-up on a busy machine tells little of its pace


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """A step that is measured.

    Where:    batch sequences decode, or one prompt is read; context_tokens are cached before, of each sequence that decodes or
              of the prompt; prompt_tokens are the prompt's new ones, 0 where there is none
    """

    kind: StepKind
    batch: int
    context_tokens: int
    prompt_tokens: int = 0
    is_held_out: bool = False

    @property
    def name(self) -> str:
        """How records and reports call it."""
        parts = {
            StepKind.DECODE: f"decode-b{self.batch}-c{self.context_tokens}",
            StepKind.PREFILL: f"prefill-p{self.prompt_tokens}",
            StepKind.CACHED_PREFILL: f"cached-c{self.context_tokens}-p{self.prompt_tokens}",
            StepKind.MIXED: f"mixed-b{self.batch}-c{self.context_tokens}-p{self.prompt_tokens}",
        }
        return parts[self.kind]


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a server was when it was warmed up.

    Unit:     seconds a prompt token
    """

    token_s: float


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The points of a sweep, and what was left out of it."""

    plan: Plan
    limits: EngineLimits
    points: tuple[SweepPoint, ...]
    notes: tuple[str, ...] = ()

    @property
    def reference(self) -> SweepPoint:
        """The point that every round measures, which shows whether the machine keeps its pace."""
        return next(point for point in self.points if point.kind is StepKind.DECODE)

    def of_kind(self, kind: StepKind) -> tuple[SweepPoint, ...]:
        """The points of a kind."""
        return tuple(point for point in self.points if point.kind is kind)


def plan_sweep(plan: Plan, limits: EngineLimits, pace: Pace | None = None) -> SweepPlan:
    """What of a plan this server can do, within its time unless the plan is fixed.

    Raises:   MeasurementError where its cache is too small for any of it
    """
    fitting, notes = _fit_to_cache(plan, limits)
    if pace is not None and not plan.is_fixed:
        fitting, said = _fit_to_time(fitting, limits, pace)
        notes += said
    points = [*_prompt_points(fitting, limits), *_decode_points(fitting), *_mixed_points(fitting, limits)]
    return SweepPlan(fitting, limits, tuple(points), (*notes, *_left_out(fitting, limits)))


def _fit_to_cache(plan: Plan, limits: EngineLimits) -> tuple[Plan, list[str]]:
    """No more sequences, and none longer, than the server has room for."""
    notes = []
    if limits.max_batch is not None and limits.max_batch < plan.num_slots:
        notes.append(f"batches {OF_THE_SWEEP} end at {limits.max_batch}: the server takes no more sequences at once")
        batches = tuple(batch for batch in plan.batches if batch <= limits.max_batch)
        mixtures = tuple(mixture for mixture in plan.mixtures if mixture.batch < limits.max_batch)
        plan = replace(plan, batches=batches or (limits.max_batch,), mixtures=mixtures)
    alone, shared = limits.context_tokens, limits.shared_tokens
    if alone is not None:
        plan, said = _cut(plan, _room(plan, alone), _room(plan, alone), f"{alone} positions of a request")
        notes += said
    if shared is not None:
        each = _room(plan, shared // plan.num_slots)
        plan, said = _cut(plan, each, _room(plan, shared), f"{shared} positions of all requests together")
        notes += said
    return plan, notes


def _room(plan: Plan, positions: int) -> int:
    """How long a prompt may be asked for where a request has so many positions: it may come out longer.

    Raises:   MeasurementError where there is no room for one
    """
    room = (positions - 2 * plan.output_tokens) * 8 // 9
    if room < LEAST_CONTEXT:
        raise MeasurementError(
            f"the server holds {positions} positions of a request, too few for any point of the sweep: {LEAST_CONTEXT} of prompt "
            f"and {2 * plan.output_tokens} of answer are needed; give it a longer context"
        )
    return room


def _cut(plan: Plan, most_context: int, most_prompt: int, held: str) -> tuple[Plan, list[str]]:
    """No context and no prompt longer than this, and in words what was cut."""
    if max(plan.contexts) <= most_context and max(plan.prompts) <= most_prompt:
        return plan, []

    def cut(mixtures: Iterable[Mixture]) -> tuple[Mixture, ...]:
        return tuple(
            Mixture(batch, min(context, most_context), min(prompt, most_context)) for batch, context, prompt in mixtures
        )

    fitting = replace(
        plan,
        contexts=_each_once(min(context, most_context) for context in plan.contexts),
        prompts=_each_once(min(prompt, most_prompt) for prompt in plan.prompts),
        mixtures=cut(plan.mixtures),
        held_mixtures=cut(plan.held_mixtures),
    )
    context, prompt = max(fitting.contexts), max(fitting.prompts)
    return fitting, [
        f"contexts {OF_THE_SWEEP} are cut to {context} tokens and prompts to {prompt}: the server holds {held}"
    ]


def _fit_to_time(plan: Plan, limits: EngineLimits, pace: Pace) -> tuple[Plan, list[str]]:
    """Shorter prompts until those of a few rounds take no more than a share of the time."""
    fitting = plan
    least = max(2 * LEAST_CONTEXT, _SHORTEST * max(*plan.contexts, *plan.prompts))
    while (longest := max(*fitting.contexts, *fitting.prompts)) * _SHORTER > least:
        if _LEAST_ROUNDS * pace.token_s * prompt_tokens_of_round(fitting, limits) <= _PROMPT_SHARE * plan.budget_s:
            break
        if (shorter := _shortened(fitting)) == fitting:
            break
        fitting = shorter
    if fitting is plan:
        return plan, []
    return fitting, [
        f"prompts {OF_THE_SWEEP} are cut to {longest} tokens: at {format_seconds(pace.token_s)} a prompt token longer ones "
        f"would not fit {plan.budget_s:.0f} s"
    ]


def _shortened(plan: Plan) -> Plan:
    """All lengths a step shorter but the shortest, at which servers of every speed are then measured and can be compared."""

    def shorter(tokens: int) -> int:
        return max(LEAST_CONTEXT, round(tokens * _SHORTER))

    def all_but_least(values: Sequence[int], of: Sequence[int]) -> tuple[int, ...]:
        return tuple(max(min(of), shorter(value)) for value in values)

    def shorter_mixtures(mixtures: Iterable[Mixture]) -> tuple[Mixture, ...]:
        return tuple(Mixture(batch, shorter(context), shorter(prompt)) for batch, context, prompt in mixtures)

    return replace(
        plan,
        contexts=_each_once(all_but_least(plan.contexts, plan.contexts)),
        prompts=_each_once(all_but_least(plan.prompts, plan.prompts)),
        held_contexts=all_but_least(plan.held_contexts, plan.contexts),
        held_prompts=all_but_least(plan.held_prompts, plan.prompts),
        mixtures=shorter_mixtures(plan.mixtures),
        held_mixtures=shorter_mixtures(plan.held_mixtures),
    )


def prompt_tokens_of_round(plan: Plan, limits: EngineLimits) -> int:
    """How many prompt tokens a server reads in one round.

    Formula:  with slots largest batch · longest context, else Σ batches · Σ contexts each time; with those of prompts alone and beside
              others
    """
    repeats = plan.waves_per_round
    once, everywhere = max(plan.batches) * max(plan.contexts), sum(plan.batches) * sum(plan.contexts)
    tokens = once if limits.pins_slots else repeats * everywhere
    return tokens + repeats * sum(plan.prompts) + repeats * sum(mixture.prompt_tokens for mixture in plan.mixtures)


def _each_once(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(values)))


def _is_inside(value: int, held: Collection[int], values: Sequence[int]) -> bool:
    """Whether it is kept for the test: only between others, for nothing is claimed beyond what was fitted."""
    return value in held and min(values) < value < max(values)


def _decode_points(plan: Plan) -> Iterator[SweepPoint]:
    for context in plan.contexts:
        for batch in plan.batches:
            is_held_out = _is_inside(batch, plan.held_batches, plan.batches) or _is_inside(
                context, plan.held_contexts, plan.contexts
            )
            yield SweepPoint(StepKind.DECODE, batch, context, is_held_out=is_held_out)


def _prompt_points(plan: Plan, limits: EngineLimits) -> Iterator[SweepPoint]:
    """Prompts alone; those that a text in a slot begins with or is continued by are points where there are such texts."""
    first, *others = plan.contexts
    colds = _each_once((first, *plan.prompts) if limits.pins_slots else (*plan.contexts, *plan.prompts))
    for prompt in colds:
        yield SweepPoint(StepKind.PREFILL, 1, 0, prompt, _is_inside(prompt, plan.held_prompts, colds))
    if not limits.reuses_prefix:
        return
    before = first
    for context in others:
        if limits.pins_slots or before >= _LEAST_CACHED:
            is_held_out = context in plan.held_contexts and context != others[-1]
            yield SweepPoint(StepKind.CACHED_PREFILL, 1, before, context - before, is_held_out)
        before = context


def _mixed_points(plan: Plan, limits: EngineLimits) -> Iterator[SweepPoint]:
    if limits.mixing in (Mixing.UNKNOWN, Mixing.APART):
        return
    for mixture in sorted(set(plan.mixtures), reverse=True):
        if limits.most_positions is None or mixture.prompt_tokens + mixture.batch <= limits.most_positions:
            yield SweepPoint(StepKind.MIXED, *mixture, is_held_out=mixture in plan.held_mixtures)


def _left_out(plan: Plan, limits: EngineLimits) -> list[str]:
    if not plan.mixtures or limits.mixing not in (Mixing.UNKNOWN, Mixing.APART):
        return []
    why = (
        "it reads prompts in steps of their own"
        if limits.mixing is Mixing.APART
        else "how it puts a prompt beside sequences that decode is not known"
    )
    return [f"steps of prompts beside decoding sequences were not measured on {limits.engine}: {why}"]
