"""A question about speed, and the steps its answer is made of.

In:   Setting, phase, batch or concurrency, prompt and output lengths
Out:  Shape: the terms of one decode step and of one prefill step, and how often each is paid
Leaves out: efficiencies (expectation)
Read next by: expectation, score.

The contexts of a generation are taken at their mean; a concurrency beyond what the cache holds waits its turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inference_bench.accounting.work import SequenceStep
from inference_bench.errors import RequestError
from inference_bench.predict.efficiency.setting import Setting
from inference_bench.predict.efficiency.terms import Rates, StepTerms, rates, room_for_sequences, step_terms


class Phase(StrEnum):
    """What is timed."""

    DECODE = "decode"  # one step of a batch
    PREFILL = "prefill"  # the prompts of a batch together
    E2E = "e2e"  # a static batch from its prompts to its last token
    SERVING_TPOT = "serving_tpot"  # time per output token at a fixed concurrency
    SERVING_TTFT = "serving_ttft"  # time to first token at a fixed concurrency, waiting included


@dataclass(frozen=True, slots=True)
class Question:
    """How long one phase takes.

    Where:  batch is the concurrency in serving phases; cached_tokens are already in the cache when a prompt begins
    """

    setting: Setting
    phase: Phase
    batch: int
    input_tokens: int
    output_tokens: int = 0
    cached_tokens: int = 0

    @property
    def is_serving(self) -> bool:
        """Whether requests come and go around what is timed."""
        return self.phase in (Phase.SERVING_TPOT, Phase.SERVING_TTFT)


@dataclass(frozen=True, slots=True)
class Shape:
    """The steps of an answer.

    Where:  waves is how many times over the concurrency exceeds what the cache holds, at least 1; running and offered
            are sequences of one replica
    """

    question: Question
    limits: Rates
    decode: StepTerms | None
    prefill: StepTerms | None
    waves: float
    offered: float

    @property
    def running(self) -> float:
        """Sequences of one replica that run together."""
        return self.offered / self.waves


def shape(question: Question) -> Shape:
    """The steps that answer a question.

    Raises:  RequestError where the machine's rates are not known, or lengths make no step
    """
    setting = question.setting
    limits = rates(setting)
    if limits is None:
        raise RequestError(
            f"neither time can be derived for {setting.machine.name}: its bandwidth or peak is not known"
        )
    offered = question.batch / setting.replicas
    waves = _waves(question, offered)
    decode = prefill = None
    if question.phase is not Phase.PREFILL:
        batch = question.batch if question.phase is Phase.DECODE else question.batch / waves
        decode = step_terms(setting, limits, (_decode_step(question, batch),), is_decode=True)
    if question.phase is not Phase.DECODE:
        prompts = setting.replicas if question.is_serving else question.batch
        new = SequenceStep(question.cached_tokens, max(1, question.input_tokens), prompts)
        prefill = step_terms(setting, limits, (new,), is_decode=False)
    return Shape(question, limits, decode, prefill, waves, offered)


def _decode_step(question: Question, batch: float) -> SequenceStep:
    """One decode step at the mean context."""
    context = question.cached_tokens + question.input_tokens + question.output_tokens // 2
    return SequenceStep(max(0, context - 1), 1, max(question.setting.replicas, round(batch)))


def _waves(question: Question, offered: float) -> float:
    if question.phase in (Phase.DECODE, Phase.PREFILL):
        return 1.0
    room = room_for_sequences(question.setting, question.input_tokens + question.output_tokens)
    return 1.0 if room is None else max(1.0, offered / room)
