"""What an engine is expected to reach: the terms of its steps, each at its fitted efficiency, and an 80 % interval.

In:   Question (or a step), Fitted, optionally offsets from a user's own measurements
Out:  Expectation; EngineCost, which plugs into latency, plan and the simulator as any other StepCost
Leaves out: where the parameters come from (score.fitting, scripts/fit_efficiency.py)
Read next by: calibration, fit, plan, score.

Formula:  step = (memory^p + compute^p)^(1/p) + overheads, each term times exp(sum of its effects)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Final

from inference_bench.accounting.work import SequenceStep, prompt
from inference_bench.errors import RequestError
from inference_bench.predict.efficiency.bounds import bound_of, bound_of_step
from inference_bench.predict.efficiency.effects import GROUP_OF_TERM, serving_effects, term_effects
from inference_bench.predict.efficiency.parameters import (
    Calibration,
    Familiarity,
    Fitted,
    Parameters,
    fitted,
    is_served,
    timed_alone,
)
from inference_bench.predict.efficiency.question import Phase, Question, Shape, shape
from inference_bench.predict.efficiency.setting import Setting
from inference_bench.predict.efficiency.terms import (
    COMPUTE_TERMS,
    MEMORY_TERMS,
    TERMS,
    Rates,
    StepTerms,
    rates,
    step_terms,
)
from inference_bench.predict.step_cost import is_decode_step

_NUM_MEMORY: Final = len(MEMORY_TERMS)
_NUM_OVERLAPPED: Final = _NUM_MEMORY + len(COMPUTE_TERMS)
BOUNDED_TERMS: Final = frozenset(MEMORY_TERMS + COMPUTE_TERMS)
FLOOR_SHARPNESS: Final = 6.0
LARGEST_EXPONENT: Final = 60.0
# of which serving phase the servers' parameters know a step
_IN_SERVICE: Final = {
    Phase.DECODE: Phase.SERVING_TPOT,
    Phase.PREFILL: Phase.SERVING_TTFT,
    Phase.E2E: Phase.SERVING_TPOT,
}
Offsets = Mapping[str, float]
NO_OFFSETS: Final[Offsets] = {}


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expected time and the interval that holds 4 of 5 measurements; neither begins before the bound.

    Unit:  seconds
    """

    seconds: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True)
class StepTime:
    """The time of a step, and how much of it moves with each group of efficiencies (its logarithmic derivatives).

    Unit:  seconds
    """

    seconds: float
    by_group: Mapping[str, float]


def offset_name(term: str, *, is_decode: bool) -> str:
    """The group a user's own measurement corrects: compute apart for prompts and for decoding."""
    group = GROUP_OF_TERM[term]
    return f"compute/{'decode' if is_decode else 'prefill'}" if group == "compute" else group


def term_factor(
    setting: Setting, term: str, is_pcie: bool, is_decode: bool, known: Parameters, offsets: Offsets
) -> float:
    """What a term is multiplied by: its effects and its correction.

    Formula:  exp(sum of its effects + offset of its group), not below 1 for bytes and FLOPs (see `floored`)
    """
    return _factor_and_slope(setting, term, is_pcie, is_decode, known, offsets)[0]


def _factor_and_slope(
    setting: Setting, term: str, is_pcie: bool, is_decode: bool, known: Parameters, offsets: Offsets
) -> tuple[float, float]:
    effect = known.log_factor(term_effects(setting, term, is_pcie, is_decode=is_decode))
    effect += offsets.get(offset_name(term, is_decode=is_decode), 0.0)
    return floored(effect) if term in BOUNDED_TERMS else (math.exp(effect), 1.0)


def floored(effect: float) -> tuple[float, float]:
    """A factor that no effect takes below 1, since no engine moves bytes or FLOPs faster than the peak; and its slope.

    Formula:  (1 + exp(q·x))^(1/q), slope exp(q·x) / (1 + exp(q·x)), q = 6: exp(x) above 1.3, and 1.12 at x = 0

    >>> [round(floored(x)[0], 3) for x in (-2.0, 0.0, 0.5, 2.0)]
    [1.0, 1.122, 1.662, 7.389]
    """
    raised = math.exp(min(FLOOR_SHARPNESS * effect, LARGEST_EXPONENT))
    return (1 + raised) ** (1 / FLOOR_SHARPNESS), raised / (1 + raised)


def step_time(setting: Setting, is_pcie: bool, terms: StepTerms, known: Parameters, offsets: Offsets) -> StepTime:
    """One step at the fitted efficiencies.

    Formula:  (memory^p + compute^p)^(1/p) + overheads
    Unit:     seconds
    """
    factors = [
        _factor_and_slope(setting, term, is_pcie, terms.is_decode, known, offsets) if value > 0 else (0.0, 0.0)
        for term, value in zip(TERMS, terms.values, strict=True)
    ]
    parts = [value * factor for value, (factor, _) in zip(terms.values, factors, strict=True)]
    memory, compute, together = overlap(parts, known.norm)
    norm = known.norm
    by_group: dict[str, float] = {}
    for index, (term, value) in enumerate(zip(TERMS, parts, strict=True)):
        side = memory if index < _NUM_MEMORY else compute if index < _NUM_OVERLAPPED else 0.0
        weight = (side / together) ** (norm - 1) if side else 1.0
        group = offset_name(term, is_decode=terms.is_decode)
        by_group[group] = by_group.get(group, 0.0) + value * weight * factors[index][1]
    return StepTime(together + sum(parts[_NUM_OVERLAPPED:]), by_group)


def overlap(parts: Sequence[float], norm: float) -> tuple[float, float, float]:
    """Memory time, compute time, and both where they overlap.

    Formula:  (memory^p + compute^p)^(1/p)
    Unit:     seconds
    """
    memory, compute = sum(parts[:_NUM_MEMORY]), sum(parts[_NUM_MEMORY:_NUM_OVERLAPPED])
    return memory, compute, (memory**norm + compute**norm) ** (1 / norm)


def answer(asked: Shape, known: Parameters, offsets: Offsets = NO_OFFSETS, *, own_prompt: bool = False) -> StepTime:
    """The time of a whole phase: how often each step is paid, and what serving adds.

    Where:    own_prompt says that parameters of servers stand for a prompt outside of serving phases, too: they know its
              step only together with the factor of its own time

    Formula:  decode, prefill: one step; e2e: prefill + (n - 1) · waves · step; serving TPOT: step + interference ·
              running / n · prefill; serving TTFT: (own + burst · running) · prefill + (first + wait · n / offered +
              (waves - 1) · n) · step
    Unit:     seconds
    """
    question = asked.question
    setting, pcie = question.setting, asked.limits.is_pcie
    steps = [
        None if terms is None else step_time(setting, pcie, terms, known, offsets)
        for terms in (asked.decode, asked.prefill)
    ]
    paid = _paid(asked, known, offsets, own_prompt)
    total, by_group = 0.0, dict[str, float]()
    for step, counts in zip(steps, paid, strict=True):
        if step is None:
            continue
        times = sum(counts.values())
        total += times * step.seconds
        for group, value in step.by_group.items():
            by_group[group] = by_group.get(group, 0.0) + times * value
        for name, count in counts.items():
            if name:
                by_group[name] = by_group.get(name, 0.0) + count * step.seconds
    return StepTime(total, by_group)


def _paid(
    asked: Shape, known: Parameters, offsets: Offsets, own_prompt: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """How many decode and how many prefill steps are paid, by the serving term that asks for them ("" for none)."""
    question = asked.question
    has_experts = asked.decode is not None and asked.decode.values[1] > 0

    def factor(term: str) -> float:
        effects = serving_effects(question.setting, term, has_experts)
        return math.exp(known.log_factor(effects) + offsets.get(term, 0.0))

    if not question.is_serving:
        steps = (question.output_tokens - 1) * asked.waves if question.phase is Phase.E2E else 1.0
        return {"": steps}, {"own_prompt": factor("own_prompt")} if own_prompt else {"": 1.0}

    output = max(1, question.output_tokens)
    if question.phase is Phase.SERVING_TPOT:
        return {"": 1.0}, {"interference": factor("interference") * asked.running / output}
    waiting = {"first_step": factor("first_step"), "wait": factor("wait") * output / asked.offered}
    return {**waiting, "": (asked.waves - 1) * output}, {
        "own_prompt": factor("own_prompt"),
        "burst": factor("burst") * asked.running,
    }


def parameters_for(question: Question, known: Fitted) -> Parameters:
    """Serving phases have parameters of their own."""
    return known.serving if question.is_serving else known.alone


class Pace(StrEnum):
    """Which steps are meant, of an engine that was measured both ways: a scheduler and its clients make them longer."""

    ALONE = "alone"  # nothing else goes on: what benchmarks time, and what `fit` says
    IN_SERVICE = "in service"  # requests come and go: what `plan` takes


def step_parameters(setting: Setting, phase: Phase, known: Fitted, pace: Pace = Pace.ALONE) -> tuple[Parameters, bool]:
    """The parameters of an engine's steps, and whether a prompt of them is multiplied by the factor of its own time.

    Where:  serving phases have the servers'. Other steps have those timed alone, or the servers' in service and where an
            engine was measured on such machines in service only; an engine that was never served has no others
    """
    if phase in (Phase.SERVING_TPOT, Phase.SERVING_TTFT):
        return known.serving, True
    if pace is Pace.IN_SERVICE and is_served(setting.engine, known):
        return known.serving, True
    return timed_alone(setting.engine, setting.pool, known).alone, False


def expected_time(asked: Shape, known: Fitted, offsets: Offsets = NO_OFFSETS, pace: Pace = Pace.ALONE) -> StepTime:
    """The time of a phase of an engine with the parameters that its steps have."""
    parameters, own_prompt = step_parameters(asked.question.setting, asked.question.phase, known, pace)
    return answer(asked, parameters, offsets, own_prompt=own_prompt)


def familiarity_of(setting: Setting, known: Fitted, phase: Phase, pace: Pace = Pace.ALONE) -> Familiarity:
    """How close a setting lies to the rows that its parameters in this phase were fitted on."""
    is_serving = step_parameters(setting, phase, known, pace)[0] is known.serving
    rows = _IN_SERVICE.get(phase, phase) if is_serving else phase
    return known.familiarity(setting.engine, setting.machine.name, setting.pool, rows.value)


def expect(
    question: Question,
    known: Fitted | None = None,
    offsets: Offsets = NO_OFFSETS,
    calibration: Calibration = Calibration.NONE,
) -> Expectation:
    """What a measurement of this would show, with an interval that holds four of five.

    Unit:    seconds
    Raises:  RequestError where the machine's rates are not known
    """
    known, form = known or fitted(), shape(question)
    seconds = expected_time(form, known, offsets).seconds
    familiarity = familiarity_of(question.setting, known, question.phase)
    return interval(form, seconds, known.width(question.phase.value, familiarity, calibration))


def interval(form: Shape, seconds: float, width: float) -> Expectation:
    """A predicted time and its interval, of which nothing is faster than the bound.

    Formula:  t = max(t, bound); [max(t / e^width, bound), t · e^width]
    Unit:     seconds
    """
    least, spread = bound_of(form), math.exp(width)
    middle = max(seconds, least)
    return Expectation(middle, max(middle / spread, least), middle * spread)


@dataclass(frozen=True)
class EngineCost:
    """What a step costs on a real engine: a StepCost at fitted efficiencies.

    Where:  offsets are corrections from own measurements; in_service says that known are parameters of servers; each factor
            is worked out once
    Unit:   seconds
    Source: fitted.json, with its rows and date
    """

    setting: Setting
    known: Parameters
    offsets: Offsets = field(default_factory=dict)
    in_service: bool = False

    @cached_property
    def limits(self) -> Rates:
        """The machine's rates.

        Raises:  RequestError where they are not known
        """
        limits = rates(self.setting)
        if limits is None:
            raise RequestError(f"the bandwidth or the peak of {self.setting.machine.name} is not known")
        return limits

    def step_s(self, sequences: Sequence[SequenceStep]) -> float:
        """Seconds of one step; a step that brings more than a short draft for a sequence counts as prefill.

        Raises:  RequestError where the machine's rates are not known
        """
        terms = self._terms(sequences)
        parts = [
            value * self._factor(term, terms.is_decode) if value > 0 else 0.0
            for term, value in zip(TERMS, terms.values, strict=True)
        ]
        seconds = overlap(parts, self.known.norm)[2] + sum(parts[_NUM_OVERLAPPED:])
        return seconds if terms.is_decode else max(seconds * self._own_prompt, bound_of_step(terms))

    @cached_property
    def _own_prompt(self) -> float:
        """What a prompt's own time is multiplied by; servers' parameters know it only together with the step's."""
        if not self.in_service:
            return 1.0
        has_experts = self.setting.served.weights.experts > 0
        effect = self.known.log_factor(serving_effects(self.setting, "own_prompt", has_experts))
        return math.exp(effect + self.offsets.get("own_prompt", 0.0))

    def first_token_s(self, prompt_tokens: int, output_tokens: int, cached_tokens: int) -> float:
        """A lone request's first token: of servers what they show at a concurrency of 1, else the prompt's step.

        Where:   prompt_tokens include those that are in the cache already
        Raises:  RequestError where the machine's rates are not known
        """
        if not self.in_service:
            return self.step_s(prompt(prompt_tokens, cached_tokens))
        fresh = prompt_tokens - cached_tokens
        form = shape(Question(self.setting, Phase.SERVING_TTFT, 1, fresh, output_tokens, cached_tokens))
        return max(answer(form, self.known, self.offsets).seconds, bound_of(form))

    def verifying(self) -> EngineCost:
        """The same for steps that verify a draft."""
        return replace(self, setting=replace(self.setting, served=self.setting.served.verifying()))

    def bound_s(self, sequences: Sequence[SequenceStep]) -> float:
        """What no step takes less than, at the same peaks.

        Raises:  RequestError where the machine's rates are not known
        """
        return bound_of_step(self._terms(sequences))

    def _terms(self, sequences: Sequence[SequenceStep]) -> StepTerms:
        return step_terms(self.setting, self.limits, sequences, is_decode=is_decode_step(sequences))

    def _factor(self, term: str, is_decode: bool) -> float:
        found = self._factors.get((term, is_decode))
        if found is None:
            found = term_factor(self.setting, term, self.limits.is_pcie, is_decode, self.known, self.offsets)
            self._factors[term, is_decode] = found
        return found

    @cached_property
    def _factors(self) -> dict[tuple[str, bool], float]:
        return {}
